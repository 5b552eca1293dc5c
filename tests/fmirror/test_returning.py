"""Names that A has again by the time of a removal stay in B, and A is the directory checked."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fcp.running import ONE, TWO, Launcher, Run
from tests.fcp.trees import write_file

from .edits import copy_of
from .running import FMIRROR, every_launcher, mirrored, needs_strace

_CAME_BACK = b"log", b"deep/log", b"there/file"
_SLOW = ("--bwlimit=2M", "--no-checkpoint", "--chunksize=1M")


@pytest.fixture
def sides(place: bytes) -> tuple[bytes, bytes]:
    """A, of which a directory is listed long before the last file is copied, and B."""
    source, target = place + b"/a", place + b"/b"
    for top in (source, target):
        os.makedirs(top + b"/1/deep")
        write_file(top + b"/1/file", b"content")
    os.makedirs(source + b"/zbig")
    write_file(source + b"/zbig/big", b"x" * 10_000_000)
    write_file(source + b"/1/new", b"content")
    for name in (b"log", b"surplus", b"deep/log", b"deep/surplus"):
        write_file(target + b"/1/" + name, b"old")
    os.makedirs(target + b"/1/there/inner")
    write_file(target + b"/1/there/file", b"old")
    return source, target


def come_back(source: bytes) -> None:
    """What was missing is in A again."""
    write_file(source + b"/1/log", b"new")
    write_file(source + b"/1/deep/log", b"new")
    os.makedirs(source + b"/1/there")
    write_file(source + b"/1/there/file", b"new")


def check(target: bytes) -> None:
    """B has what came back, and lacks what did not."""
    for name in _CAME_BACK:
        assert os.path.exists(target + b"/1/" + name), name
    for name in (b"surplus", b"deep/surplus"):
        assert not os.path.exists(target + b"/1/" + name), name


def run_until(launcher: Launcher, words: list[str | bytes], begun: Callable[[], bool]) -> Run:
    """Start a run, and return it once something has happened."""
    run = Run(launcher, *_SLOW, *words, program=FMIRROR)
    while run.process.poll() is None and not begun():
        time.sleep(0.01)
    assert run.process.poll() is None
    return run


@every_launcher
@pytest.mark.parametrize("words", [[], ["--backup-dir"]], ids=str)
def test_what_came_back_stays(
    sides: tuple[bytes, bytes], place: bytes, launcher: Launcher, words: list[str]
) -> None:
    source, target = sides
    more: list[str | bytes] = [*words, *([place + b"/old"] if words else [])]
    begun = lambda: os.path.exists(target + b"/1/new")  # noqa: E731
    with run_until(launcher, ["--delete", *more, source, target], begun) as run:
        time.sleep(0.2)  # the directory has been listed, and another one is copied
        come_back(source)
        finished = run.finish()
    assert finished.code in (0, 1), finished.said  # 1: a directory was not listed by then
    for name in _CAME_BACK:
        assert os.path.exists(target + b"/1/" + name), name
    mirrored(launcher, "--delete", *more, source, target)
    check(target)


@pytest.mark.parametrize("launcher", [ONE, TWO], ids=str)
def test_what_came_back_since_a_plan_stays(
    sides: tuple[bytes, bytes], place: bytes, launcher: Launcher
) -> None:
    source, target = sides
    plan = place + b"/plan"
    mirrored(launcher, "--delete", "--plan", plan, source, target)
    begun = lambda: os.path.exists(target + b"/1/new")  # noqa: E731
    with run_until(launcher, ["--apply", plan], begun) as run:
        time.sleep(0.2)
        come_back(source)
        run.finish()
    for name in _CAME_BACK:
        assert os.path.exists(target + b"/1/" + name), name


@needs_strace
@pytest.mark.parametrize("option", ["--delete", "--delete=during"])
def test_a_directory_that_moves_within_the_source_is_not_lost(
    sides: tuple[bytes, bytes], place: bytes, option: str
) -> None:
    """It moves to a directory that was listed before, from one that is being listed."""
    source, target = sides
    os.unlink(source + b"/zbig/big")
    for top in (source, target):
        os.makedirs(top + b"/zbig/inner/moves")
        write_file(top + b"/zbig/inner/moves/file", b"content")
    write_file(target + b"/zbig/inner/surplus", b"old")
    prefix = ["strace", "-f", "-o", "/dev/null", "-P", os.fsdecode(source) + "/zbig/inner"]
    prefix += ["-e", "inject=getdents64:delay_enter=5000000:when=1"]
    words = ["-j1", "--threads=1", option]
    with Run(None, *words, source, target, program=FMIRROR, prefix=prefix) as run:
        while run.process.poll() is None and not os.path.exists(target + b"/1/new"):
            time.sleep(0.01)
        time.sleep(0.3)
        os.rename(source + b"/zbig/inner/moves", source + b"/1/moves")
        finished = run.finish()
    assert finished.code == 1, finished.said
    assert "it changed while the run was under way" in finished.said
    assert os.path.exists(target + b"/zbig/inner/moves/file")
    mirrored(None, "--delete", source, target)
    assert os.path.exists(target + b"/1/moves/file")
    assert os.listdir(target + b"/zbig/inner") == []


_SWAP = """
import ctypes, os, struct, sys
libc = ctypes.CDLL(None)
fd = libc.inotify_init1(0)
libc.inotify_add_watch(fd, os.fsencode(sys.argv[1]), 0x10)  # a descriptor is closed
print("ready", flush=True)
left = int(sys.argv[3])
while left:
    buffer, at = os.read(fd, 65536), 0
    while at < len(buffer):
        _, mask, _, length = struct.unpack_from("iIII", buffer, at)
        name = buffer[at + 16 : at + 16 + length].strip(b"\\0")
        at += 16 + length
        if mask & 0x40000000 and not name and left:
            left -= 1
            if not left:
                libc.renameat2(-100, sys.argv[1].encode(), -100, sys.argv[2].encode(), 2)
"""
"""Exchange two directories when the first one is closed for the n-th time."""


@pytest.mark.parametrize("delete", ["after", "during"])
@pytest.mark.parametrize("launcher", [ONE, TWO], ids=str)
def test_what_is_checked_is_what_is_walked(
    place: bytes, tmp_path: Path, launcher: Launcher, delete: str
) -> None:
    """At whatever moment an empty directory takes the place of A, B is not emptied."""
    script = tmp_path / "swap.py"
    script.write_text(_SWAP)
    for moment in range(1, 5):
        shutil.rmtree(place)
        os.makedirs(place + b"/a/e")
        os.makedirs(place + b"/a.new")
        write_file(place + b"/a/e/file", b"content")
        copy_of(place + b"/a", place + b"/b")
        line = [sys.executable, str(script), os.fsdecode(place) + "/a"]
        line += [os.fsdecode(place) + "/a.new", str(moment)]
        with subprocess.Popen(line, stdout=subprocess.PIPE) as swapping:
            assert swapping.stdout is not None
            swapping.stdout.readline()
            with Run(
                launcher, "-q", f"--delete={delete}", place + b"/a", place + b"/b", program=FMIRROR
            ) as run:
                run.finish()
            swapping.kill()
        assert os.path.exists(place + b"/b/e/file"), moment
