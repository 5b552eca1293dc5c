"""Names that exist again in A before a removal stay in B; the checked directory is A itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from pcircle.tools.fmirror.work.listing import UNSTEADY_NS, KnownTimes, packed_times
from tests.fusefs.fixture import Mount
from tests.fusefs.mounting import Mounted
from tests.fusefs.rules import Rule
from tests.strace import read_calls
from tests.tools.fcp.running import ONE, TWO, Finished, Launcher, Run
from tests.tools.fcp.trees import write_file

from .edits import copy_of
from .running import FMIRROR, every_launcher, mirrored, needs_strace, run_fmirror

_CAME_BACK = b"log", b"deep/log", b"there/file"
_SLOW = ("--bwlimit=2M", "--no-checkpoint", "--chunksize=1M")


@pytest.fixture
def sides(place: bytes) -> tuple[bytes, bytes]:
    """Create A, whose first directory is listed long before the last file is copied, and B."""
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
    """Restore the missing entries in A."""
    write_file(source + b"/1/log", b"new")
    write_file(source + b"/1/deep/log", b"new")
    os.makedirs(source + b"/1/there")
    write_file(source + b"/1/there/file", b"new")


def check(target: bytes) -> None:
    """Check that B has the restored entries, and lacks the removed ones."""
    for name in _CAME_BACK:
        assert os.path.exists(target + b"/1/" + name), name
    for name in (b"surplus", b"deep/surplus"):
        assert not os.path.exists(target + b"/1/" + name), name


def run_until(launcher: Launcher, words: list[str | bytes], begun: Callable[[], bool]) -> Run:
    """Start a run, and return it once a condition holds."""
    run = Run(launcher, *_SLOW, *words, program=FMIRROR)
    while run.process.poll() is None and not begun():
        time.sleep(0.01)
    assert run.process.poll() is None
    return run


@every_launcher
@pytest.mark.parametrize("words", [[], ["--backup-dir"]], ids=str)
def test_restored_entries_stay(
    sides: tuple[bytes, bytes], place: bytes, launcher: Launcher, words: list[str]
) -> None:
    source, target = sides
    more: list[str | bytes] = [*words, *([place + b"/old"] if words else [])]
    begun = lambda: os.path.exists(target + b"/1/new")  # noqa: E731
    with run_until(launcher, ["--delete", *more, source, target], begun) as run:
        time.sleep(0.2)  # the directory has been listed, and another one is being copied
        come_back(source)
        finished = run.finish()
    assert finished.code in (0, 1), finished.said  # 1: a directory was not listed by then
    for name in _CAME_BACK:
        assert os.path.exists(target + b"/1/" + name), name
    mirrored(launcher, "--delete", *more, source, target)
    check(target)


@pytest.mark.parametrize("launcher", [ONE, TWO], ids=str)
def test_entries_restored_since_a_plan_stay(
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
    sides: tuple[bytes, bytes], tmp_path: Path, option: str
) -> None:
    """It moves to a directory that was listed before, from one that is being listed."""
    source, target = sides
    os.unlink(source + b"/zbig/big")
    for top in (source, target):
        os.makedirs(top + b"/zbig/inner/moves")
        write_file(top + b"/zbig/inner/moves/file", b"content")
    write_file(target + b"/zbig/inner/surplus", b"old")
    log = tmp_path / "calls"
    prefix = ["strace", "-f", "-o", str(log), "-P", os.fsdecode(source) + "/zbig/inner"]
    prefix += ["-e", "inject=getdents64:delay_enter=5000000:when=1"]
    words = ["-j1", "--threads=1", option]
    with Run(None, *words, source, target, program=FMIRROR, prefix=prefix) as run:
        while not os.path.exists(target + b"/1/new") or not any(
            call.name == "getdents64" for call in read_calls(log)
        ):
            assert run.process.poll() is None
            time.sleep(0.01)
        os.rename(source + b"/zbig/inner/moves", source + b"/1/moves")
        finished = run.finish()
    assert finished.code == 1, finished.said
    assert "it changed during the run" in finished.said
    assert os.path.exists(target + b"/zbig/inner/moves/file")
    mirrored(None, "--delete", source, target)
    assert os.path.exists(target + b"/1/moves/file")
    assert os.listdir(target + b"/zbig/inner") == []


def run_meanwhile(
    mounted: Mounted, directory: str, skip: int, change: Callable[[], None], *words: str | bytes
) -> Finished:
    """Run fmirror, and make a change during the read of a directory, after `skip` calls."""
    mounted.rules(Rule(("readdir", "readdirplus"), directory, skip=skip, times=1, delay_s=60.0))
    words = ("-j1", "--threads=1", *words)
    with Run(None, *words, program=FMIRROR) as run:
        while run.process.poll() is None and not mounted.state().delayed:
            time.sleep(0.01)
        assert run.process.poll() is None, run.finish().said
        change()
        mounted.rules()
        mounted.release()
        return run.finish()


@pytest.mark.parametrize("option", ["--delete", "--delete=during"])
def test_rotated_logs_are_removed_by_the_same_run(fuse: Mount, place: bytes, option: str) -> None:
    """The names had been read by then, but not the end of the directory."""
    mounted = fuse()
    source, target = mounted.path + b"/a", place + b"/b"
    os.makedirs(source + b"/logs")
    for name in (b"log", b"log.1"):
        write_file(source + b"/logs/" + name, name)
    copy_of(source, target)

    def rotate() -> None:  # behind the mount, since names in an open directory cannot change
        logs = mounted.backing + b"/a/logs/"
        os.rename(logs + b"log", logs + b"log.0")
        os.unlink(logs + b"log.1")
        write_file(logs + b"log", b"new")

    finished = run_meanwhile(mounted, "a/logs", 1, rotate, option, source, target)
    assert finished.code == 0, finished.said
    assert sorted(os.listdir(target + b"/logs")) == [b"log", b"log.0"]


@pytest.mark.parametrize("option", ["--delete", "--delete=during"])
@pytest.mark.parametrize("way", ["up", "down"])
def test_a_directory_that_moves_up_or_down_is_not_lost(
    fuse: Mount, place: bytes, way: str, option: str
) -> None:
    """It moves to its parent, which was listed before, or to the directory being listed."""
    mounted = fuse()
    source, target = mounted.path + b"/a", place + b"/b"
    places = [b"/top/inner/moves", b"/top/moves"]
    before, after = places if way == "up" else places[::-1]
    os.makedirs(source + b"/top/inner")
    os.makedirs(source + before)
    write_file(source + before + b"/file", b"content")
    copy_of(source, target)

    def move() -> None:
        os.rename(mounted.backing + b"/a" + before, mounted.backing + b"/a" + after)

    finished = run_meanwhile(mounted, "a/top/inner", 0, move, option, source, target)
    assert any(os.path.exists(target + here + b"/file") for here in places)
    if way == "up":
        assert finished.code == 1, finished.said
        assert "inner': it changed during the run; 1 entry stays" in finished.said
        assert os.path.exists(target + before + b"/file")
    mirrored(None, option, source, target)
    assert os.path.exists(target + after + b"/file")
    assert not os.path.exists(target + before)


@pytest.mark.parametrize(("launcher", "option"), [(ONE, "--delete=during"), (TWO, "--delete")])
def test_recent_changes_are_mirrored_with_any_clock(
    fuse: Mount, place: bytes, launcher: Launcher, option: str
) -> None:
    """Times of a FUSE file system may come from another machine."""
    source, target = fuse().path + b"/a", place + b"/b"
    os.makedirs(source + b"/1/2")
    for name in (b"/1/surplus", b"/1/2/surplus", b"/1/2/file"):
        write_file(source + name, b"content")
    copy_of(source, target)
    os.unlink(source + b"/1/surplus")
    os.unlink(source + b"/1/2/surplus")
    mirrored(launcher, option, source, target)
    assert sorted(os.listdir(target + b"/1")) == [b"2"]
    assert sorted(os.listdir(target + b"/1/2")) == [b"file"]


@contextmanager
def changing(directory: bytes) -> Iterator[None]:
    """Change a directory all the time."""
    path, is_over = directory + b"/changes", threading.Event()

    def change() -> None:
        while not is_over.is_set():
            write_file(path, b"")
            os.unlink(path)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@pytest.mark.parametrize(("launcher", "option"), [(ONE, "--delete"), (TWO, "--delete=during")])
def test_the_copy_of_an_ever_changing_directory_keeps_its_entries(
    place: bytes, launcher: Launcher, option: str
) -> None:
    source, target = place + b"/a", place + b"/b"
    os.makedirs(source + b"/busy")
    write_file(source + b"/busy/file", b"content")
    copy_of(source, target)
    log = place + b"/log"
    for _ in range(50):
        write_file(target + b"/busy/surplus", b"old")
        with changing(source + b"/busy"):
            finished = run_fmirror(launcher, "-q", "--error-log", log, option, source, target)
        if finished.code:
            break  # otherwise all changes were at other times, as on a busy machine
    assert finished.code == 1
    assert "busy': it changed during the run; 1 entry stays" in finished.said
    with open(log, "rb") as stream:
        assert b"it changed during the run" in stream.read()
    assert os.path.exists(target + b"/busy/surplus")
    with suppress(FileNotFoundError):
        os.unlink(target + b"/busy/changes")
    mirrored(launcher, option, source, target)
    assert os.listdir(target + b"/busy") == [b"file"]


def test_change_times_agree_with_those_of_complete_listings_only() -> None:
    times = KnownTimes()
    times.add(packed_times([b"", b"one"], [10, 20]))
    assert times.agree(packed_times([b"one"], [20]))
    assert not times.agree(packed_times([b"one"], [21]))
    assert not times.agree(packed_times([b"other"], [20])), "it was not listed as changed"
    assert not times.agree(packed_times([b"one"], [UNSTEADY_NS])), "it cannot be read"
    times.add(packed_times([b"one"], [15]))  # listed by two ranks, at one time or the other
    times.add(packed_times([b"one"], [20]))
    assert not times.agree(packed_times([b"one"], [20]))
    assert times.agree(packed_times([b""], [10]))
    times.add(packed_times([b"two"], [UNSTEADY_NS]))
    assert not times.is_complete
    assert not times.agree(packed_times([b""], [10]))


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
def test_the_checked_directory_is_walked(
    place: bytes, tmp_path: Path, launcher: Launcher, delete: str
) -> None:
    """If an empty directory takes the place of A at any moment, B is not emptied."""
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
