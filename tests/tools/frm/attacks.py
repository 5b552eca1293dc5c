"""Removals by root of trees that another user owns and keeps changing.

The attacker is an unprivileged process that swaps, as fast as it can, directories and files of the
tree for links to files of other users, restores removed entries, and moves directories away while
they are emptied. It wants root to remove something outside of the tree, the *victim*, whose every
attribute is compared. frm may fail entries; it must end as documented, and touch nothing outside.

Everything is on a file system in memory, in a mount namespace of its own: `python -m
tests.tools.frm.attacks` creates both.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from random import Random

from tests.attacks import (
    Attack,
    Round,
    build,
    changes,
    clear_directory,
    hooked,
    main,
    pairs,
    portrait,
    run_under_attack,
)
from tests.tools.fcp.running import FOUR, ONE, TWO, Launcher, command

LAUNCHERS = (ONE, TWO, FOUR)
OPTIONS: tuple[tuple[str, ...], ...] = (
    ("-r",),
    ("-r", "--keep-root"),
    ("-r", "--keep-times", "--exclude", "*7"),
    ("-r", "--force-modes"),
    ("-r", "--cross-mounts"),
    ("-r", "--min-size", "1"),
    ("-r", "--empty-dirs"),
    ("-r", "--bytes"),
    ("-r", "--max-delete", "1000000"),
)
# Opens directories through links, like a careless tool.
FOLLOWING = """
import os
from pcircle.fs import openat2 as beneath
def opener(*, cross=False, no_atime=False):
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    return lambda name, fd: os.open(name, flags, dir_fd=fd)
beneath.opener = opener
"""
_ALLOWED_CODES = (0, 1, 2)  # a PATH may be a link when it is checked


def restore(place: bytes, first: bytes, second: bytes, rng: Random) -> None:
    """Restore removed entries: a directory with contents, or the link."""
    with suppress(OSError):
        if not os.path.lexists(second):
            os.symlink(place + b"/victim", second)
        if not os.path.lexists(first) and rng.random() < 0.2:
            os.mkdir(first)
            os.mknod(first + b"/f1")
            os.symlink(place + b"/victim", first + b"/inner")


def play(place: bytes, seed: int, launchers: Sequence[Launcher], hook: str = "") -> Round:
    """Play one round in the emptied directory `place`; `hook` weakens frm, to be detected."""
    rng = Random(f"attack {seed}")
    options, launcher = rng.choice(OPTIONS), rng.choice(launchers)
    build(place)
    before = portrait(place + b"/victim")
    top = place + b"/area/top/"
    operands = [top + b"tree"] if "--keep-root" in options else [top + b"tree", top + b"loose"]
    line = command(launcher, [*options, "-q", *operands], ("pcircle.tools.frm",))
    attack = Attack(seed, partial(pairs, place), 0.05, partial(restore, place))
    finished, swaps = run_under_attack(hooked(line, hook, "pcircle.tools.frm.cli"), attack)
    said = finished.stderr.decode(errors="replace")[-2000:]
    context = f"seed {seed}, {launcher}, {' '.join(options)}: {finished.returncode}, {said}"
    escapes = []
    if not hook and finished.returncode not in _ALLOWED_CODES:
        escapes.append(context)
    escapes += changes(context, before, portrait(place + b"/victim"))
    clear_directory(place)
    return Round(swaps, escapes)


if __name__ == "__main__":
    sys.exit(main("tests.tools.frm.attacks", play, LAUNCHERS, FOLLOWING))
