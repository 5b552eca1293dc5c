"""Removals by root of trees that another user owns and keeps changing.

The attacker is a process without any rights that swaps, as fast as it can, directories and files of
the tree for links to what is not its own, puts back what is gone, and moves directories away while
they are emptied. It wants root to remove something outside of the tree, the *victim*, whose every
attribute is looked at. frm may fail entries; it must end as agreed, and touch nothing outside.

All of it is on a file system in memory, in a mount namespace of its own: `python -m
tests.frm.attacks` makes both.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from random import Random
from typing import NamedTuple

from tests.fcp.attacks import NOBODY, portrait
from tests.fcp.running import FOUR, HANG_S, ONE, TWO, Launcher, clean_environment, command
from tests.fcp.trees import make_directory, remove_tree, write_file

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
# Directories are opened through links, as by a remover that doesn't mind.
FOLLOWING = """
import os
from pcircle.fs import beneath
def opener(*, cross=False):
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    return lambda name, fd: os.open(name, flags, dir_fd=fd)
beneath.opener = opener
"""
_AT_FDCWD, _EXCHANGE = -100, 2
_DIRECTORIES, _FILES = 12, 8
_ALLOWED_CODES = (0, 1, 2)  # a PATH may be a link's when it is looked at


class Round(NamedTuple):
    """How a round went: swaps that were made while frm ran, and what was wrong after it."""

    swaps: int
    escapes: list[str]


# ---- the attacker ------------------------------------------------------------------------------


def _attack(place: bytes, seed: int, report: int) -> None:
    """Swap until killed; tells how often through a pipe, of a byte for each hundred."""
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    libc = ctypes.CDLL(None, use_errno=True)
    rng = Random(seed)
    pairs = _pairs(place, rng)
    made = 0
    while True:
        for first, second in pairs:
            for _ in range(rng.choice((1, 2, 2, 3))):
                done = libc.renameat2(_AT_FDCWD, first, _AT_FDCWD, second, _EXCHANGE) == 0
                made += done
                if done and not made % 100:
                    os.write(report, b"x")
            if rng.random() < 0.05:
                _restore(place, first, second, rng)


def _pairs(place: bytes, rng: Random) -> list[tuple[bytes, bytes]]:
    """What is swapped for what: each second one is a link, made here."""
    area = place + b"/area"
    top, bait = area + b"/top/tree", area + b"/bait"
    os.symlink(place + b"/victim", bait + b"/top")
    pairs = [(area + b"/top", bait + b"/top")]
    for number in range(_DIRECTORIES):
        for inner in (b"d%d" % number, b"d%d/inner" % number, b"d%d/inner/deep" % number):
            link = os.path.join(bait, inner.replace(b"/", b"-"))
            os.symlink(place + rng.choice((b"/victim", b"/victim/inner")), link)
            pairs.append((os.path.join(top, inner), link))
        for name in (b"f1", b"inner/f3", b"inner/deep/f5"):
            link = os.path.join(bait, b"d%d-" % number + name.replace(b"/", b"-"))
            os.symlink(place + b"/victim/" + name.rpartition(b"/")[2], link)
            pairs.append((os.path.join(top, b"d%d" % number, name), link))
    rng.shuffle(pairs)
    return pairs


def _restore(place: bytes, first: bytes, second: bytes, rng: Random) -> None:
    """Make what was removed again: a directory with something in it, or the link."""
    with suppress(OSError):
        if not os.path.lexists(second):
            os.symlink(place + b"/victim", second)
        if not os.path.lexists(first) and rng.random() < 0.2:
            os.mkdir(first)
            os.mknod(first + b"/f1")
            os.symlink(place + b"/victim", first + b"/inner")


@contextmanager
def _attacker(place: bytes, seed: int) -> Iterator[int]:
    """An attacker at work; gives the pipe that it reports to."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    pid = os.fork()
    if not pid:
        try:
            _attack(place, seed, writing)
        finally:
            os._exit(1)
    os.close(writing)
    try:
        deadline = time.monotonic() + HANG_S
        while not _count(reading):  # it must be at work before the removal begins
            assert time.monotonic() < deadline, "the attacker does not begin"
            time.sleep(0.001)
        yield reading
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(reading)


def _count(reading: int) -> int:
    """Swaps that were reported since this was asked last."""
    total = 0
    with suppress(BlockingIOError):
        while data := os.read(reading, 65536):
            total += 100 * len(data)
    return total


# ---- a round -----------------------------------------------------------------------------------


def _build(place: bytes) -> None:
    """A victim that is root's, and a tree that is nobody's, with names as the victim has them."""
    os.chmod(place, 0o755)
    make_directory(place, b"victim/tree")  # an empty one, and a file, of the names of both PATHs
    write_file(place + b"/victim/loose", b"precious")
    for inner in (b"victim", b"victim/inner", b"victim/inner/deep", b"area/top/tree"):
        os.makedirs(place + b"/" + inner, exist_ok=True)
        for number in range(_FILES):
            write_file(place + b"/%b/f%d" % (inner, number), b"precious")
    write_file(place + b"/area/top/loose", b"x")
    for number in range(_DIRECTORIES):
        for level in (b"", b"/inner", b"/inner/deep"):
            inner = make_directory(place, b"area/top/tree/d%d" % number + level)
            for each in range(_FILES):
                write_file(inner + b"/f%d" % each, b"x" * (each % 3))
    make_directory(place, b"area/bait")
    for directory, _, files, fd in os.fwalk(place + b"/area"):
        os.chown(directory, NOBODY, NOBODY)
        for name in files:
            os.chown(name, NOBODY, NOBODY, dir_fd=fd)


def play(place: bytes, seed: int, launchers: Sequence[Launcher], hook: str = "") -> Round:
    """One round in the directory `place`, which is emptied; `hook` spoils frm, to be caught."""
    rng = Random(f"attack {seed}")
    options, launcher = rng.choice(OPTIONS), rng.choice(launchers)
    _build(place)
    before = portrait(place + b"/victim")
    top = place + b"/area/top/"
    operands = [top + b"tree"] if "--keep-root" in options else [top + b"tree", top + b"loose"]
    line = command(launcher, [*options, "-q", *operands], ("pcircle.frm",))
    if hook:
        program = f"{hook}\nimport sys\nfrom pcircle.frm.cli import main\nsys.exit(main())"
        at = line.index("-m")
        line[at : at + 2] = ["-c", program]
    with _attacker(place, seed) as reading:
        finished = subprocess.run(
            line,
            check=False,
            capture_output=True,
            timeout=HANG_S,
            env=clean_environment(),
            stdin=subprocess.DEVNULL,
        )
        swaps = _count(reading)
    said = finished.stderr.decode(errors="replace")[-2000:]
    told = f"seed {seed}, {launcher}, {' '.join(options)}: {finished.returncode}, {said}"
    escapes = []
    if not hook and finished.returncode not in _ALLOWED_CODES:
        escapes.append(told)
    after = portrait(place + b"/victim")
    escapes += [
        f"{told}: {path!r} was {before.get(path)} and is {after.get(path)}"[:3000]
        for path in sorted(before | after)
        if before.get(path) != after.get(path)
    ]
    for name in os.listdir(place):
        remove_tree(place + b"/" + name)
    return Round(swaps, escapes)


def main(arguments: Sequence[str] | None = None) -> int:
    """Rounds until there were so many swaps; with ``--following`` until frm is caught."""
    parser = argparse.ArgumentParser(prog="python -m tests.frm.attacks")
    parser.add_argument("--swaps", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--following", action="store_true")
    parser.add_argument("--room", help=argparse.SUPPRESS)  # where it is in its namespace
    typed = parser.parse_args(arguments)
    if os.geteuid() or shutil.which("unshare") is None:
        print("only root is worth attacking, and unshare is required")
        return 2
    if typed.room is None:
        return _in_namespace(sys.argv[1:] if arguments is None else arguments)
    room = os.fsencode(typed.room)
    swaps = rounds = escapes = 0
    began_s = time.monotonic()
    while swaps < typed.swaps:
        played = play(room, typed.seed + rounds, LAUNCHERS, FOLLOWING if typed.following else "")
        rounds += 1
        swaps += played.swaps
        escapes += len(played.escapes)
        for escape in played.escapes:
            print(escape, flush=True)
        if typed.following and escapes:
            break
    took_s = time.monotonic() - began_s
    print(f"{rounds} rounds, {swaps} swaps, {escapes} escapes; {took_s:.0f} s")
    return 1 if escapes else 0


_NAMESPACE = 'mount --make-rprivate / && mount -t tmpfs none "$1" && shift && exec "$@"'


def _in_namespace(arguments: Sequence[str]) -> int:
    """The same program where it may mount, with a room that nobody else sees."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="frm-attack-") as room:
        again = [sys.executable, "-m", "tests.frm.attacks", *arguments, "--room", room]
        shell = ["sh", "-c", _NAMESPACE, "sh", room]
        return subprocess.run(["unshare", "-m", *shell, *again], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
