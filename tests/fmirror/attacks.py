"""Mirrors by root of and to trees that another user owns and keeps changing, as fcp is attacked.

What fcp must not do fmirror must not do either; besides, what it removes, replaces and moves to a
backup must be what it has found, and nothing that a link leads to.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from tests.attacks import NOBODY, Round
from tests.fcp import attacks
from tests.fcp.attacks import Tool
from tests.fcp.running import Launcher
from tests.fcp.trees import make_directory, write_file

OPTIONS: tuple[tuple[str, ...], ...] = (
    ("--delete",),
    ("--delete", "-c"),
    ("--delete", "--verify"),
    ("--delete", "--max-delete", "1000"),
    ("--delete", "--ignore-errors"),
    ("-u",),
    ("--delete", "-I", "--fsync"),
)


def prepare(place: bytes) -> None:
    """Names that only the target has, in directories that are swapped for links."""
    for inner in (b"d0/gone", b"d1/inner/gone"):
        made = make_directory(place, b"copy", inner)
        for number in range(10):
            path = write_file(made + b"/f%d" % (5 * number), b"to go")
            os.chown(path, NOBODY, NOBODY)
            os.chown(write_file(made[:-5] + b"/more%d" % number, b"to go"), NOBODY, NOBODY)
        os.chown(made, NOBODY, NOBODY)


MIRROR = Tool("pcircle.fmirror", OPTIONS, ("--allow-foreign",), prepare)


def play(place: bytes, seed: int, launchers: Sequence[Launcher], hook: str = "") -> Round:
    """As of fcp."""
    return attacks.play(place, seed, launchers, hook, MIRROR)


if __name__ == "__main__":
    sys.exit(attacks.main(tool=MIRROR, name="tests.fmirror.attacks"))
