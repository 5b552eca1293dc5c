"""Common parts of the attacks on the tools: attacker process, rounds, permitted changes.

The attacker is unprivileged. It owns a tree and swaps directories and files of it, as fast as it
can, for links to files that it does not own, while root processes that tree. The files that it
wants root to touch are the *victim*: every attribute of them is compared before and after a round.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from random import Random
from typing import NamedTuple

from tests.programs import add_stand_ins, no_mount_namespace
from tests.tools.fcp.running import HANG_S, Launcher, clean_environment
from tests.tools.fcp.trees import make_directory, remove_tree, write_file

NOBODY = 65534
_DIRECTORIES, _FILES = 12, 8
_AT_FDCWD, _EXCHANGE = -100, 2

Pairs = Sequence[tuple[bytes, bytes]]
"""Pairs of paths that are swapped for each other."""
Line = list[str | bytes]


class Round(NamedTuple):
    """The outcome of a round: swaps made while the tool ran, and problems found afterwards."""

    swaps: int
    escapes: list[str]


class Attack(NamedTuple):
    """An attack: the pairs to swap, and an action between two swaps of a share of them.

    The attacker process calls `pairs`, which creates the links, and all other functions of the
    attack.
    """

    seed: int
    pairs: Callable[[Random], Pairs]
    share: float = 0.0
    meanwhile: Callable[[bytes, bytes, Random], None] = lambda first, second, rng: None


def build(place: bytes) -> None:
    """Create a victim that root owns, and an attacker's tree with the same names."""
    os.chmod(place, 0o755)
    make_directory(place, b"victim/tree")
    write_file(place + b"/victim/loose", b"precious", 0o600)
    for inner in (b"victim", b"victim/inner", b"victim/inner/deep", b"area/top/tree"):
        os.makedirs(place + b"/" + inner, exist_ok=True)
        for number in range(_FILES):
            write_file(place + b"/%b/f%d" % (inner, number), b"precious", 0o640)
    write_file(place + b"/area/top/loose", b"x")
    for number in range(_DIRECTORIES):
        for level in (b"", b"/inner", b"/inner/deep"):
            inner = make_directory(place, b"area/top/tree/d%d" % number + level)
            for name_number in range(_FILES):
                write_file(
                    inner + b"/f%d" % name_number, b"x" * (name_number % 3), 0o600 + name_number
                )
    make_directory(place, b"area/bait")
    for directory, _, files, fd in os.fwalk(place + b"/area"):
        os.chown(directory, NOBODY, NOBODY)
        for name in files:
            os.chown(name, NOBODY, NOBODY, dir_fd=fd)


def pairs(place: bytes, rng: Random) -> list[tuple[bytes, bytes]]:
    """Return the pairs to swap; the second path of each pair is a link that is made here."""
    area = place + b"/area"
    top, bait = area + b"/top/tree", area + b"/bait"
    os.symlink(place + b"/victim", bait + b"/top")
    found = [(area + b"/top", bait + b"/top")]
    for number in range(_DIRECTORIES):
        for inner in (b"d%d" % number, b"d%d/inner" % number, b"d%d/inner/deep" % number):
            link = os.path.join(bait, inner.replace(b"/", b"-"))
            os.symlink(place + rng.choice((b"/victim", b"/victim/inner")), link)
            found.append((os.path.join(top, inner), link))
        for name in (b"f1", b"inner/f3", b"inner/deep/f5"):
            link = os.path.join(bait, b"d%d-" % number + name.replace(b"/", b"-"))
            os.symlink(place + b"/victim/" + name.rpartition(b"/")[2], link)
            found.append((os.path.join(top, b"d%d" % number, name), link))
    rng.shuffle(found)
    return found


def clear_directory(place: bytes) -> None:
    """Remove the contents of a directory."""
    for name in os.listdir(place):
        path = place + b"/" + name
        remove_tree(path) if os.path.isdir(path) else os.unlink(path)


def _swap(attack: Attack, report: int) -> None:
    """Swap until killed, and write a byte to a pipe after each hundred swaps."""
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    libc = ctypes.CDLL(None, use_errno=True)
    rng = Random(attack.seed)
    pairs = attack.pairs(rng)
    made = 0
    while True:
        for first, second in pairs:
            for _ in range(rng.choice((1, 2, 2, 3))):
                done = libc.renameat2(_AT_FDCWD, first, _AT_FDCWD, second, _EXCHANGE) == 0
                made += done
                if done and not made % 100:
                    os.write(report, b"x")
            if rng.random() < attack.share:
                attack.meanwhile(first, second, rng)


@contextmanager
def _attacker(attack: Attack) -> Iterator[int]:
    """Run an attacker process and yield the pipe that it reports to."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    pid = os.fork()
    if not pid:
        try:
            _swap(attack, writing)
        finally:
            os._exit(1)
    os.close(writing)
    try:
        deadline = time.monotonic() + HANG_S
        while not _count(reading):  # it must be at work before the tool begins
            assert time.monotonic() < deadline, "the attacker does not begin"
            time.sleep(0.001)
        yield reading
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(reading)


def _count(reading: int) -> int:
    """Return the number of swaps reported since the previous call."""
    total = 0
    with suppress(BlockingIOError):
        while data := os.read(reading, 65536):
            total += 100 * len(data)
    return total


# ---- a round -----------------------------------------------------------------------------------


def hooked(line: Line, hook: str, tool: str) -> Line:
    """Return the command line of a tool that a hook has weakened, which must be detected."""
    if not hook:
        return line
    at = line.index("-m")
    program = f"{hook}\nimport sys\nfrom {tool} import main\nsys.exit(main())"
    return [*line[:at], "-c", program, *line[at + 2 :]]


def run_under_attack(
    line: Line, attack: Attack, before: Callable[[], None] = lambda: None
) -> tuple[subprocess.CompletedProcess[bytes], int]:
    """Run a command under attack, after an optional `before`; return its result and the swaps."""
    with _attacker(attack) as reading:
        before()
        finished = subprocess.run(
            line,
            check=False,
            capture_output=True,
            timeout=HANG_S,
            env=clean_environment(),
            stdin=subprocess.DEVNULL,
        )
        return finished, _count(reading)


def changes(
    context: str, before: dict[bytes, tuple[object, ...]], after: dict[bytes, tuple[object, ...]]
) -> list[str]:
    """Describe the attributes of the victim that have changed."""
    return [
        f"{context}: {path!r} was {before.get(path)} and is {after.get(path)}"[:3000]
        for path in sorted(before | after)
        if before.get(path) != after.get(path)
    ]


def portrait(root: bytes) -> dict[bytes, tuple[object, ...]]:
    """Return all attributes of everything below a directory, except those that reading changes."""
    found: dict[bytes, tuple[object, ...]] = {}
    for directory, directories, files in os.walk(root):
        for path in (directory, *(os.path.join(directory, name) for name in directories + files)):
            status = os.lstat(path)
            text = b""
            if stat.S_ISREG(status.st_mode):
                with open(path, "rb") as stream:
                    text = stream.read()
            names = os.listxattr(path, follow_symlinks=False)
            # A name in the attacker's tree may be replaced, which unlinks it from the file.
            linked = os.path.basename(path).startswith(b"hard-")
            found[path] = (
                stat.S_IFMT(status.st_mode),
                stat.S_IMODE(status.st_mode),
                (status.st_uid, status.st_gid, status.st_nlink * (not linked)),
                (status.st_mtime_ns, status.st_ctime_ns * (not linked), status.st_ino),
                tuple((name, os.getxattr(path, name, follow_symlinks=False)) for name in names),
                text,
            )
    return found


# ---- many rounds, in a namespace of their own ------------------------------------------------

Play = Callable[[bytes, int, Sequence[Launcher], str], Round]


def main(
    module: str,
    play: Play,
    launchers: Sequence[Launcher],
    following: str,
    arguments: Sequence[str] | None = None,
) -> int:
    """Run rounds until enough swaps were made; with ``--following`` until the tool is caught.

    Everything is on a file system in memory, in a mount namespace that this function creates; with
    ``--btrfs`` on a file system on which files can share blocks.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {module}")
    parser.add_argument("--swaps", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--following", action="store_true")
    parser.add_argument("--btrfs", action="store_true")
    parser.add_argument("--room", help=argparse.SUPPRESS)  # its path inside the namespace
    args = parser.parse_args(arguments)
    if reason := no_mount_namespace():
        print(f"tools are attacked as root, in a mount namespace: {reason}")
        return 2
    if args.room is None:
        made = _BTRFS if args.btrfs else _NAMESPACE
        return _in_namespace(module, sys.argv[1:] if arguments is None else arguments, made)
    room = os.fsencode(args.room)
    swaps = rounds = escapes = 0
    began_s = time.monotonic()
    while swaps < args.swaps:
        hook = following if args.following else ""
        played = play(room, args.seed + rounds, launchers, hook)
        rounds += 1
        swaps += played.swaps
        escapes += len(played.escapes)
        for escape in played.escapes:
            print(escape, flush=True)
        if args.following and escapes:
            break
    took_s = time.monotonic() - began_s
    print(f"{rounds} rounds, {swaps} swaps, {escapes} escapes; {took_s:.0f} s")
    return 1 if escapes else 0


_NAMESPACE = 'mount --make-rprivate / && mount -t tmpfs none "$1" && shift && exec "$@"'
_BTRFS = (
    'mount --make-rprivate / && truncate -s 2G "$1/disk" && mkfs.btrfs -q "$1/disk" &&'
    ' mount -o loop "$1/disk" "$1" && shift && exec "$@"'
)


def _in_namespace(module: str, arguments: Sequence[str], made: str) -> int:
    """Run this program in a mount namespace of its own, with a private directory."""
    import tempfile

    add_stand_ins()
    with tempfile.TemporaryDirectory(prefix="attack-") as room:
        again = [sys.executable, "-m", module, *arguments, "--room", room]
        shell = ["sh", "-c", made, "sh", room]
        return subprocess.run(["unshare", "-m", *shell, *again], check=False).returncode
