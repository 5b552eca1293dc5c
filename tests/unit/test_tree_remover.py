"""The removal of a tree in one thread: it ends, closes what it opened, and names what stays."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pcircle.fs import write_access
from pcircle.fs.entry_errors import BUSY, EntryError
from pcircle.fs.scan import Block
from pcircle.fs.write_access import WriteAccess
from pcircle.ops.remove.plan import MAX_TRIES
from pcircle.ops.remove.tree import TreeRemover


class Recorder:
    """Records the outcomes; `act` runs before each removal."""

    def __init__(self, act: Callable[[], None] = lambda: None) -> None:
        self.act = act
        self.stops = False
        self.removed: list[tuple[bytes, str]] = []
        self.errors: list[tuple[bytes, OSError]] = []

    def due(self, count: int) -> bool:
        self.act()
        return False

    def is_stopping(self) -> bool:
        return self.stops

    def gone(self, path: bytes, kind: str) -> None:
        self.removed.append((path, kind))

    def failed(self, path: bytes, doing: str, error: OSError) -> None:
        self.errors.append((path, error))


@pytest.fixture
def here(tmp_path: Path) -> Iterator[int]:
    """Return the descriptor of a directory with a tree."""
    (tmp_path / "tree" / "a" / "b").mkdir(parents=True)
    for name in ("tree/file", "tree/a/file", "tree/a/b/file"):
        (tmp_path / name).touch()
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def _open_count() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_tree_is_removed_from_the_bottom(here: int) -> None:
    """Each entry is reported once, a directory after its contents."""
    recorder, before = Recorder(), _open_count()
    TreeRemover(recorder).remove(b"tree", here)
    assert recorder.removed == [
        (b"tree/file", "f"),
        (b"tree/a/file", "f"),
        (b"tree/a/b/file", "f"),
        (b"tree/a/b", "d"),
        (b"tree/a", "d"),
        (b"tree", "d"),
    ]
    assert recorder.errors == []
    assert os.listdir(here) == []
    assert _open_count() == before


def test_directories_are_closed_when_the_removal_stops(here: int) -> None:
    """A job that stops in a nested directory leaves no descriptor behind."""
    before = _open_count()

    def stop() -> None:
        recorder.stops = len(recorder.removed) == 2

    recorder = Recorder(stop)
    TreeRemover(recorder).remove(b"tree", here)
    assert recorder.removed == [(b"tree/file", "f"), (b"tree/a/file", "f")]
    assert _open_count() == before


def test_a_directory_that_is_filled_again_and_again_is_given_up(here: int, tmp_path: Path) -> None:
    """After a few attempts its error is reported, and its parents stay without another one."""
    made: list[Path] = []

    def fill() -> None:
        made.append(tmp_path / "tree" / "a" / "b" / f"late{len(made)}")
        made[-1].touch()
        recorder.stops = len(made) > 20 * MAX_TRIES  # would never end

    recorder = Recorder(fill)
    TreeRemover(recorder).remove(b"tree", here)
    assert [path for path, _ in recorder.errors] == [b"tree/a/b"]
    error = recorder.errors[0][1]
    assert isinstance(error, EntryError)
    assert error.kind == BUSY
    assert not recorder.stops
    assert (tmp_path / "tree" / "a" / "b").is_dir()


def test_a_directory_that_stays_is_closed_again(
    here: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root is denied what an ordinary user is denied."""
    directory, unlink = tmp_path / "tree" / "a", os.unlink
    directory.chmod(0o555)

    def unlink_in_open_directory(name: bytes, *, dir_fd: int) -> None:
        if not os.fstat(dir_fd).st_mode & 0o200:
            raise PermissionError(errno.EACCES, "the directory is closed")
        unlink(name, dir_fd=dir_fd)

    def keep_directories(block: Block, path: bytes, _: int) -> None:
        if path == b"tree/a":
            block.directories = []

    monkeypatch.setattr(write_access, "_is_exempt", lambda _: False)
    monkeypatch.setattr(os, "unlink", unlink_in_open_directory)
    TreeRemover(Recorder(), keep_directories, WriteAccess(owner=True)).remove(b"tree", here)
    mode = stat.S_IMODE(directory.stat().st_mode)
    directory.chmod(0o755)
    assert os.listdir(directory) == ["b"]
    assert mode == 0o555
