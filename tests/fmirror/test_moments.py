"""Killed, interrupted or failed at any changing call: no name is ever without its content.

What a run has done by a moment is what its calls have changed before it, so a kill in place of each
changing call in turn shows every moment that there is. strace counts the calls of each thread by
itself, so those of the one that makes most are met; a hook in the interpreter counts the changes of
names and attributes by all threads together, to the last removal and what is remembered of it.
"""

from __future__ import annotations

import os
import re
import stat
import subprocess
from pathlib import Path
from random import Random

import pytest

from tests.attacks import hooked
from tests.conftest import SOAK
from tests.fcp.running import clean_environment, command
from tests.fcp.trees import remove_tree

from .edits import NAMES, Tree, cleared, copy_of
from .running import FMIRROR, as_root, differences, needs_rsync, needs_strace, run_fmirror
from .test_judge import CHANGING

# Also a rank wakes itself by writing into a pipe, and would hang if that failed.
_FAILING = CHANGING.replace(",write,", ",")

# At change number AT the process is killed, or the change fails with ERROR; without, it is counted.
_HOOK = """
import os, sys, threading
from pcircle.fs import naming
made, lock = [0], threading.Lock()
def change(said=""):
    with lock:
        made[0] += 1
        now = made[0]
    if not AT:
        with open(LOG, "a") as log:
            log.write("x")
    if now == AT and ERROR:
        raise OSError(ERROR, os.strerror(ERROR))
    if now == AT:
        os.kill(os.getpid(), 9)
        threading.Event().wait()
def audited(event, arguments):
    if event in EVENTS:
        change(event)
rename = naming._rename
def renamed(*arguments):
    change()
    rename(*arguments)
naming._rename = renamed
sys.addaudithook(audited)
"""
_EVENTS = (
    "chmod", "chown", "link", "mkdir", "remove", "removexattr", "rename", "rmdir", "setxattr",
    "symlink", "truncate", "utime",
)  # fmt: skip

pytestmark = [as_root, needs_rsync, needs_strace]
_DRAWN = 10
DURING = "--delete=during"
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


def injected(place: bytes, what: str, source: bytes, target: bytes, word: str = "--delete") -> int:
    """Run it with something injected into its calls; the exit code."""
    prefix = ["strace", "-f", "-o", "/dev/null", "-e", f"trace={CHANGING}"]
    calls = CHANGING if what.startswith("signal") else _FAILING
    prefix += ["-e", f"inject={calls}:{what}"] if what else []
    arguments: list[str | bytes] = [
        "-q",
        "-j1",
        "--threads=1",
        word,
        "--resume",
        source,
        target,
    ]
    return run_fmirror(None, *arguments, prefix=prefix).code


def changing_calls(place: bytes, log: Path, seed: int, word: str = "--delete") -> int:
    """How many changing calls the thread makes that makes most."""
    source, target = night(place, seed)
    prefix = ["strace", "-f", "-o", str(log), "-e", f"trace={CHANGING}"]
    run_fmirror(None, "-q", "-j1", "--threads=1", word, source, target, prefix=prefix)
    made: dict[bytes, int] = {}
    for line in log.read_bytes().splitlines():
        number = re.match(rb"\d+", line)
        if number is not None:
            made[number[0]] = made.get(number[0], 0) + 1
    return max(made.values())


def moments(place: bytes, log: Path, seed: int, word: str = "--delete") -> list[int]:
    """The calls to be hit: all in a soak, else some."""
    count = changing_calls(place, log, seed, word)
    assert count > 20
    every = range(1, count + 1)
    return list(every) if SOAK else sorted(Random(seed).sample(every, _DRAWN))


@pytest.mark.parametrize("signal", ["KILL", "INT"])
@pytest.mark.parametrize(("seed", "word"), [(5, "--delete"), (6, "--delete"), (5, DURING)])
def test_a_signal_at_any_moment(
    place: bytes, tmp_path: Path, seed: int, word: str, signal: str
) -> None:
    """One that ends the job in good order leaves a checkpoint, by which the next run goes on."""
    for moment in moments(place, tmp_path / "calls", seed, word):
        source, target = night(place, seed)
        old, new = held(target), held(source)
        injected(place, f"signal={signal}:when={moment}", source, target, word)
        now = held(target)
        for name in old.keys() & new.keys():
            if all(stat.S_ISDIR(side[above][0]) for above in _above(name) for side in (old, new)):
                assert now.get(name) in (old[name], new[name]), (moment, name)
        assert injected(place, "", source, target, word) == 0, moment
        assert differences(source, target) == "", moment


@pytest.mark.parametrize("word", ["--delete", DURING])
@pytest.mark.parametrize("error", ["EIO", "ENOSPC", "EACCES"])
def test_a_failure_at_any_moment(place: bytes, tmp_path: Path, error: str, word: str) -> None:
    seed = 8
    for moment in moments(place, tmp_path / "calls", seed, word)[:: 1 if SOAK else 2]:
        source, target = night(place, seed)
        old, new = held(target), held(source)
        code = injected(place, f"error={error}:when={moment}", source, target, word)
        assert code in (0, 1, 2, 4, 70), (moment, code)
        now = held(target)
        for name in old.keys() & new.keys():
            if os.path.dirname(name):
                continue
            assert now.get(name) in (old[name], new[name]), (moment, name)
        assert injected(place, "", source, target, word) == 0, moment
        assert differences(source, target) == "", moment


def hooked_run(
    pair: tuple[bytes, bytes], words: list[str], log: Path, at: int = 0, error: int = 0
) -> int:
    """Run it with a hook that hits one of its changes, or counts them; the exit code."""
    fixed = f"AT, ERROR, LOG, EVENTS = {at}, {error}, {str(log)!r}, {{"
    fixed += ", ".join(f"'os.{event}'" for event in _EVENTS) + "}"
    arguments: list[str | bytes] = ["-q", "-j1", "--delete", "--resume", *words, *pair]
    line = hooked(command(None, arguments, FMIRROR), fixed + _HOOK, "pcircle.fmirror.cli")
    return subprocess.run(
        line, capture_output=True, env=clean_environment(), timeout=240
    ).returncode


def everything(place: bytes) -> set[bytes]:
    """The bytes of all files, but of those that a run writes for itself."""
    found = set()
    for here, _, files in os.walk(place):
        for name in files:
            path = os.path.join(here, name)
            if not name.startswith(b".") and stat.S_ISREG(os.lstat(path).st_mode):
                with open(path, "rb") as stream:
                    found.add(stream.read())
    return found


@pytest.mark.parametrize("error", [0, 5, 28, 13], ids=["KILL", "EIO", "ENOSPC", "EACCES"])
@pytest.mark.parametrize("words", [[], ["--backup-dir"], ["--moved"], [DURING]], ids=str)
def test_any_change_of_any_thread(
    place: bytes, tmp_path: Path, words: list[str], error: int
) -> None:
    """With a backup no content is ever lost, wherever it lies."""
    seed, log = 5, tmp_path / "changes"
    words = [
        os.fsdecode(b"%b=%b/old" % (word.encode(), place)) if "dir" in word else word
        for word in words
    ]
    assert hooked_run(night(place, seed), words, log) == 0
    every = range(1, log.stat().st_size + 1)
    assert len(every) > 60
    for moment in every if SOAK else sorted(Random(error + len(words)).sample(every, _DRAWN // 2)):
        source, target = pair = night(place, seed)
        os.rename(source + b"/kept 5", source + b"/moved")
        old, new, had = held(target), held(source), everything(target)
        code = hooked_run(pair, words, log, moment, error)
        assert code in ((0, 1, 2, 4) if error else (0, -9)), (moment, code)
        now = held(target)
        for name in old.keys() & new.keys():
            if all(stat.S_ISDIR(side[above][0]) for above in _above(name) for side in (old, new)):
                assert now.get(name) in (old[name], new[name]), (moment, name)
        assert not any("dir" in word for word in words) or had <= everything(place), moment
        assert hooked_run(pair, words, log, 10**9) == 0, moment
        left = differences(source, target, *["--exclude=.fcp-mark-*"] * bool(error))
        assert left == "", moment  # a mark that can't be removed stays, which is told
