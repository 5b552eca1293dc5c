"""Changes of modes and owners by root, in trees that another user owns and keeps changing.

The attacker (`tests.attacks`) swaps directories and files of the tree for links to the *victim*,
which belongs to root, and moves directories away while they are changed. It wants root to give
everybody access to the victim, or to give it away. Entries may fail; nothing outside of the tree
may change.

Everything is on a file system in memory, in a mount namespace of its own: ``python -m
tests.tools.fchmod.attacks`` creates both.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from random import Random

from tests.attacks import (
    NOBODY,
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
from tests.tools.fcp.running import FOUR, ONE, TWO, Launcher, clean_environment, command

LAUNCHERS = (ONE, TWO, FOUR)
OPTIONS: tuple[tuple[str, ...], ...] = (
    ("--mode", "0777"),
    ("--mode", "a+rwX", "-v"),
    ("--mode", "u+s,go=u", "--force"),
    ("--owner", str(NOBODY), "--mode", "a=rwx"),
    ("--owner", str(NOBODY), "--group", str(NOBODY), "--force"),
    ("--owner", str(NOBODY - 1)),
    ("--owner", str(NOBODY - 1), "--group", "1", "-f"),
    ("--usermap", f"*:{NOBODY}"),
    ("--from", str(NOBODY), "--mode", "a+w"),
    ("--acl", f"u:{NOBODY}:rwx,d:u:{NOBODY}:rwx"),
    ("--acl-remove", "--mode", "0777"),
    ("--mode", "0777", "--min-size", "1", "--exclude", "*7"),
    ("--apply",),
)
# Opens directories and changes modes through links, like a careless tool.
FOLLOWING = """
import os
from pcircle.fs import directories
from pcircle.tools.fchmod import entry_changer, state
_init = directories.Directories.__init__
def follow(self, *arguments, **options):
    options["follow"] = True
    _init(self, *arguments, **options)
directories.Directories.__init__ = follow
state.sets_modes_by_name = lambda: False
entry_changer.change_mode = lambda name, mode, fd: os.chmod(name, mode, dir_fd=fd)
"""
_ALLOWED_CODES = (0, 1, 2)  # a PATH may be a link when it is checked


def _shut(place: bytes, first: bytes, second: bytes, rng: Random) -> None:
    """Remove modes again, or move a directory out of the tree and back."""
    with suppress(OSError):
        if os.path.isdir(first) and not os.path.islink(first):
            if rng.random() < 0.5:
                os.chmod(first, rng.choice((0o700, 0o000, 0o777)))
            else:
                aside = place + b"/area/aside"
                os.rename(first, aside)
                os.rename(aside, first)


def _arguments(place: bytes, options: tuple[str, ...], launcher: Launcher) -> list[str | bytes]:
    """Return the operands; with --apply, those of a plan that is made here without an attack."""
    top = place + b"/area/top/"
    operands = [top + b"tree", top + b"loose"]
    if options != ("--apply",):
        return ["-R", *options, *operands]
    undo = place + b"/undo"
    made = command(launcher, ["-q", "-R", "--undo", undo, "--mode", "0", *operands], _PROGRAM)
    subprocess.run(made, check=True, env=clean_environment(), stdin=subprocess.DEVNULL)
    return ["--apply", undo]


_PROGRAM = ("pcircle.tools.fchmod",)


def play(place: bytes, seed: int, launchers: Sequence[Launcher], hook: str = "") -> Round:
    """Play one round in the emptied directory `place`; `hook` weakens fchmod, to be detected."""
    rng = Random(f"attack {seed}")
    options, launcher = rng.choice(OPTIONS), rng.choice(launchers)
    build(place)
    before = portrait(place + b"/victim")
    line = command(launcher, ["-q", *_arguments(place, options, launcher)], _PROGRAM)
    attack = Attack(seed, partial(pairs, place), 0.05, partial(_shut, place))
    finished, swaps = run_under_attack(hooked(line, hook, "pcircle.tools.fchmod.cli"), attack)
    said = finished.stderr.decode(errors="replace")[-2000:]
    context = f"seed {seed}, {launcher}, {' '.join(options)}: {finished.returncode}, {said}"
    escapes = []
    if not hook and finished.returncode not in _ALLOWED_CODES:
        escapes.append(context)
    escapes += changes(context, before, portrait(place + b"/victim"))
    clear_directory(place)
    return Round(swaps, escapes)


if __name__ == "__main__":
    sys.exit(main("tests.tools.fchmod.attacks", play, LAUNCHERS, FOLLOWING))
