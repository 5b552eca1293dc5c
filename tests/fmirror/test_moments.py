"""Killed, interrupted or failed at any changing call: no name is ever without its content.

What a run has done by a moment is what its calls have changed before it, so a kill in place of each
changing call in turn shows every moment that there is.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from random import Random

import pytest

from tests.conftest import SOAK
from tests.fcp.trees import remove_tree

from .edits import NAMES, Tree, cleared, copy_of
from .running import as_root, differences, needs_rsync, needs_strace, run_fmirror
from .test_judge import CHANGING

# Also a rank wakes itself by writing into a pipe, and would hang if that failed.
_FAILING = CHANGING.replace(",write,", ",")

pytestmark = [as_root, needs_rsync, needs_strace]
_DRAWN = 10
Content = tuple[int, bytes]


def held(top: bytes) -> dict[bytes, Content]:
    """What each name stands for: its kind, and its bytes or what a link says."""
    found: dict[bytes, Content] = {}
    for here, directories, files in os.walk(top):
        for name in (*directories, *files):
            path = os.path.join(here, name)
            mode = os.lstat(path).st_mode
            text = b""
            if stat.S_ISREG(mode):
                with open(path, "rb") as stream:
                    text = stream.read()
            elif stat.S_ISLNK(mode):
                text = os.readlink(path)
            found[os.path.relpath(path, top)] = stat.S_IFMT(mode), text
    return found


def night(place: bytes, seed: int) -> tuple[bytes, bytes]:
    """A tree that was mirrored yesterday and was edited since, with some files of each kind."""
    source, target = cleared(place)
    tree = Tree(source, seed)
    for number in range(6):
        with open(source + b"/kept %d" % number, "xb") as stream:
            stream.write(b"old" * 1000)
    os.makedirs(source + b"/gone/deep")
    for name in NAMES:
        with open(source + b"/gone/deep/" + name, "xb") as stream:
            stream.write(b"surplus")
    copy_of(source, target)
    for number in range(4):
        with open(source + b"/kept %d" % number, "wb") as stream:
            stream.write(b"new" * 900)
    os.unlink(source + b"/kept 4")
    os.mkdir(source + b"/kept 4")
    remove_tree(source + b"/gone")
    with open(source + b"/gone", "xb") as stream:
        stream.write(b"a file now")
    for _ in range(12):
        tree.edit()
    return source, target


def _above(name: bytes) -> list[bytes]:
    """The directories that a path leads through."""
    parts = name.split(b"/")
    return [b"/".join(parts[:count]) for count in range(1, len(parts))]


def injected(place: bytes, what: str, source: bytes, target: bytes) -> int:
    """Run it with something injected into its calls; the exit code."""
    prefix = ["strace", "-f", "-o", "/dev/null", "-e", f"trace={CHANGING}"]
    calls = CHANGING if what.startswith("signal") else _FAILING
    prefix += ["-e", f"inject={calls}:{what}"] if what else []
    arguments: list[str | bytes] = [
        "-q",
        "-j1",
        "--threads=1",
        "--delete",
        "--resume",
        source,
        target,
    ]
    return run_fmirror(None, *arguments, prefix=prefix).code


def changing_calls(place: bytes, log: Path, seed: int) -> int:
    """How many changing calls the thread makes that makes most."""
    source, target = night(place, seed)
    prefix = ["strace", "-f", "-o", str(log), "-e", f"trace={CHANGING}"]
    run_fmirror(None, "-q", "-j1", "--threads=1", "--delete", source, target, prefix=prefix)
    made: dict[bytes, int] = {}
    for line in log.read_bytes().splitlines():
        number = re.match(rb"\d+", line)
        if number is not None:
            made[number[0]] = made.get(number[0], 0) + 1
    return max(made.values())


def moments(place: bytes, log: Path, seed: int) -> list[int]:
    """The calls to be hit: all in a soak, else some."""
    count = changing_calls(place, log, seed)
    assert count > 20
    every = range(1, count + 1)
    return list(every) if SOAK else sorted(Random(seed).sample(every, _DRAWN))


@pytest.mark.parametrize("signal", ["KILL", "INT"])
@pytest.mark.parametrize("seed", [5, 6])
def test_a_signal_at_any_moment(place: bytes, tmp_path: Path, seed: int, signal: str) -> None:
    """One that ends the job in good order leaves a checkpoint, by which the next run goes on."""
    for moment in moments(place, tmp_path / "calls", seed):
        source, target = night(place, seed)
        old, new = held(target), held(source)
        injected(place, f"signal={signal}:when={moment}", source, target)
        now = held(target)
        for name in old.keys() & new.keys():
            if all(stat.S_ISDIR(side[above][0]) for above in _above(name) for side in (old, new)):
                assert now.get(name) in (old[name], new[name]), (moment, name)
        assert injected(place, "", source, target) == 0, moment
        assert differences(source, target) == "", moment


@pytest.mark.parametrize("error", ["EIO", "ENOSPC", "EACCES"])
def test_a_failure_at_any_moment(place: bytes, tmp_path: Path, error: str) -> None:
    seed = 8
    for moment in moments(place, tmp_path / "calls", seed)[:: 1 if SOAK else 2]:
        source, target = night(place, seed)
        old, new = held(target), held(source)
        code = injected(place, f"error={error}:when={moment}", source, target)
        assert code in (0, 1, 2, 4, 70), (moment, code)
        now = held(target)
        for name in old.keys() & new.keys():
            if os.path.dirname(name):
                continue
            assert now.get(name) in (old[name], new[name]), (moment, name)
        assert injected(place, "", source, target) == 0, moment
        assert differences(source, target) == "", moment
