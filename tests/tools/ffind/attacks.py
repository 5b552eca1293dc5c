"""Searches by root that remove what they find, in trees that another user owns and keeps changing.

The attacker (`tests.attacks`) swaps directories and files of the tree for links to the *victim*,
which belongs to root, and restores removed entries. It wants root to remove something there, or to
run a command of -execdir there. Entries may fail; nothing outside of the tree may change.

Everything is on a file system in memory, in a mount namespace of its own: ``python -m
tests.tools.ffind.attacks`` creates both.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
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
    portrait,
    run_under_attack,
)
from tests.attacks import pairs as all_pairs
from tests.tools.fcp.running import FOUR, ONE, TWO, Launcher, command
from tests.tools.frm.attacks import restore

LAUNCHERS = (ONE, TWO, FOUR)
EXPRESSIONS: tuple[tuple[str, ...], ...] = (
    ("-delete",),
    ("-type", "f", "-delete"),
    ("-name", "f*", "-delete"),
    ("-size", "+0", "-delete"),
    ("-mindepth", "2", "!", "-name", "*7", "-delete"),
    ("-user", "nobody", "-perm", "-u+r", "-delete"),
    ("-type", "d", "-empty", "-delete"),
    ("-type", "f", "-links", "1", "-delete", "-o", "-type", "d", "-delete"),
    ("-xdev", "-newermt", "2000-01-01", "-delete"),
    ("-name", "f1", "-execdir", "/bin/rm", "-f", "--", "{}", ";"),
    ("-name", "tree", "-execdir", "/bin/rmdir", "{}", ";"),
    ("-name", "tree", "-execdir", "/bin/rmdir", "{}", "+"),
)
# Opens directories through links, like a careless tool.
FOLLOWING = """
from pcircle.fs import directories
_init = directories.Directories.__init__
def follow(self, *arguments, **options):
    options["follow"] = True
    _init(self, *arguments, **options)
directories.Directories.__init__ = follow
"""
_ALLOWED_CODES = (0, 1, 2)  # a PATH may be a link when it is checked
_PROGRAM = ("pcircle.tools.ffind",)


def play(place: bytes, seed: int, launchers: Sequence[Launcher], hook: str = "") -> Round:
    """Play one round in the emptied directory `place`; `hook` weakens ffind, to be detected."""
    rng = Random(f"attack {seed}")
    expression, launcher = rng.choice(EXPRESSIONS), rng.choice(launchers)
    more = rng.choice(((), ("--max-delete", "1000000"))) if "-delete" in expression else ()
    build(place)
    before = portrait(place + b"/victim")
    top = place + b"/area/top/tree"
    line = command(launcher, [*more, "-q", top, *expression], _PROGRAM)
    attack = Attack(seed, partial(all_pairs, place), 0.05, partial(restore, place))
    finished, swaps = run_under_attack(hooked(line, hook, "pcircle.tools.ffind.cli"), attack)
    said = finished.stderr.decode(errors="replace")[-2000:]
    context = f"seed {seed}, {launcher}, {' '.join(expression)}: {finished.returncode}, {said}"
    escapes = []
    if not hook and finished.returncode not in _ALLOWED_CODES:
        escapes.append(context)
    escapes += changes(context, before, portrait(place + b"/victim"))
    clear_directory(place)
    return Round(swaps, escapes)


if __name__ == "__main__":
    sys.exit(main("tests.tools.ffind.attacks", play, LAUNCHERS, FOLLOWING))
