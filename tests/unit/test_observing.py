"""Observers of file copies: the events that they receive, and the operation in an error."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import xxhash

from pcircle.fs.attributes.metadata import PreservedAttributes
from pcircle.fs.entry_errors import error_context, tried
from pcircle.ops.checkpoint.store import CheckpointError, RefusalReason
from pcircle.ops.copy.entry.attributes import AttributeCopier
from pcircle.ops.copy.entry.content_hash import HashObserver
from pcircle.ops.copy.entry.counts import CopyCounts
from pcircle.ops.copy.entry.files import COPIED, Copier
from pcircle.ops.copy.entry.observers import CopyObserver, Data, ObserverSet
from pcircle.ops.copy.entry.settings import CopySettings
from pcircle.ops.copy.entry.target import TemporaryNames
from pcircle.ops.copy.tree.resume import words_of

MIB = 1 << 20


class Recorder(CopyObserver):
    """An observer that records all bytes by name, holes as zeros."""

    reads = True

    def __init__(self) -> None:
        self.contents: dict[bytes, bytes] = {}
        self.settled_names: list[bytes] = []
        self._parts: list[tuple[int, bytes]] = []
        self._data = b""

    def small(self, data: Data) -> None:
        self._data = bytes(data)

    def begin_at(self, offset: int) -> None:
        assert offset == 0
        self._parts = []

    def see(self, offset: int, data: Data) -> None:
        self._parts.append((offset, bytes(data)))

    def end_file(self, size: int) -> None:
        content = bytearray(size)
        for offset, part in self._parts:
            content[offset : offset + len(part)] = part
        self._data = bytes(content)

    def copied(self, name: bytes, size: int) -> None:
        self.contents[name] = self._data

    def settled(self, name: bytes) -> None:
        self.settled_names.append(name)


class Pace(CopyObserver):
    """A counter of the amounts that are due."""

    slice_bytes = MIB

    def __init__(self) -> None:
        self.bytes = 0
        self.most = 0

    def due(self, count: int) -> None:
        self.bytes += count
        self.most = max(self.most, count)


@contextmanager
def _opened(*paths: Path) -> Iterator[list[int]]:
    descriptors = [os.open(path, os.O_RDONLY | os.O_DIRECTORY) for path in paths]
    try:
        yield descriptors
    finally:
        for fd in descriptors:
            os.close(fd)


def _copier(*observers: CopyObserver, umask: int = 0o022) -> Copier:
    settings = CopySettings(
        keep=PreservedAttributes(), large_bytes=1 << 40, token=b"t0k", umask=umask
    )
    counts = CopyCounts()
    return Copier(
        settings,
        counts,
        AttributeCopier(settings.keep, counts, TemporaryNames(settings, 0)),
        observers,
    )


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Create small files, an empty one, a large one and one with a hole."""
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "empty").write_bytes(b"")
    (folder / "small").write_bytes(b"content")
    (folder / "large").write_bytes(os.urandom(3 * MIB + 17))
    with open(folder / "hole", "wb") as file:
        file.write(b"begin")
        file.seek(2 * MIB)
        file.write(b"end")
    return folder


def _copy(copier: Copier, source: Path, target: Path) -> list[bytes]:
    target.mkdir()
    names = sorted(os.listdir(os.fsencode(source)))
    with _opened(source, target) as (source_fd, target_fd):
        count, tally = copier.files(names, source_fd, target_fd, bool, bool)
    assert count == len(names)
    assert tally.failed == []
    return names


def test_observers_receive_all_content(source: Path, tmp_path: Path) -> None:
    recorder, hasher, pace = Recorder(), HashObserver(), Pace()
    names = _copy(_copier(hasher, recorder, pace), source, tmp_path / "target")
    seen = hasher.take()
    for name in names:
        content = (source / os.fsdecode(name)).read_bytes()
        assert (tmp_path / "target" / os.fsdecode(name)).read_bytes() == content
        assert recorder.contents[name] == content, name
        assert seen[name] == (len(content), xxhash.xxh3_128_digest(content))
    assert recorder.settled_names == names
    assert hasher.take() == {}
    assert pace.most == MIB, "what is paced is moved in slices"
    assert 3 * MIB + 17 + len(b"content") < pace.bytes < 6 * MIB


def test_an_observer_of_the_pace_causes_no_reads() -> None:
    watch = ObserverSet([Pace()])
    assert watch.is_paced
    assert not watch.reads
    assert not ObserverSet().any


def test_an_existing_file_is_not_reported_as_copied(source: Path, tmp_path: Path) -> None:
    """Only a file that replaces an existing one is reported as a copy."""
    recorder = Recorder()
    target = tmp_path / "target"
    target.mkdir()
    (target / "small").mkdir()
    copier = _copier(recorder)
    with _opened(source, target) as (source_fd, target_fd):
        with pytest.raises(IsADirectoryError) as refused:
            copier.file(source_fd, b"small", target_fd, b"small")
        assert recorder.contents == {}
        assert tried(refused.value, "") == "create the copy of"
        assert copier.file(source_fd, b"empty", target_fd, b"empty") == COPIED
        with pytest.raises(FileNotFoundError) as missing:
            copier.file(source_fd, b"gone", target_fd, b"gone")
        assert tried(missing.value, "") == "open"
        with pytest.raises(OSError, match="Invalid argument") as no_link:
            copier.link(source_fd, b"small", target_fd, b"link")
        assert tried(no_link.value, "") == "read the link"
    assert recorder.contents == {b"empty": b""}


def test_the_innermost_operation_is_reported() -> None:
    error = OSError(errno.EIO, "broken")
    with pytest.raises(OSError, match="broken"), error_context("outer"), error_context("inner"):
        raise error
    assert tried(error, "otherwise") == "inner"
    assert tried(OSError(errno.EIO, "other"), "otherwise") == "otherwise"


@pytest.mark.parametrize("why", RefusalReason)
def test_every_checkpoint_error_has_a_message(why: RefusalReason) -> None:
    text = words_of(CheckpointError(why, b"/there/\n", "detail"))
    assert r"'/there/\x0a'" in text
