"""The spill file: segments are read back in any order, and the file leaves no trace.

A property test drives it from both ends like the queue does, and compares it with a dictionary.
Further tests check that the file has no name, shrinks when segments are read, and raises OSError.
"""

from __future__ import annotations

import os
import resource
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcircle.runtime.loop import SpillFile


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder for temporary files of the test."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def spill(folder: Path) -> Iterator[SpillFile]:
    spill = SpillFile()
    yield spill
    spill.close()


def file_of(folder: Path) -> os.stat_result:
    """Return the status of the nameless file in a folder, which only its descriptor refers to."""
    for number in os.listdir("/proc/self/fd"):
        target = f"/proc/self/fd/{number}"
        if os.path.islink(target) and os.readlink(target).startswith(f"{folder}/"):
            return os.stat(target)
    raise AssertionError("no file is open")


segments = st.binary(max_size=300)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("keep"), segments),
        st.tuples(st.sampled_from(["newest", "oldest", "discard"]), st.none()),
    ),
    max_size=60,
)


@given(steps=steps)
def test_segments_are_read_in_any_order(steps: list[tuple[str, bytes | None]]) -> None:
    spill, contents = SpillFile(), dict[int, bytes]()
    try:
        for number, (what, data) in enumerate(steps):
            if data is not None:
                spill.keep(number, data)
                contents[number] = data
            elif contents and what == "discard":
                contents.pop(min(contents))
                spill.discard(min(set(spill._places) - set(contents)))
            elif contents:
                wanted = max(contents) if what == "newest" else min(contents)
                assert spill.fetch(wanted) == contents.pop(wanted)
        for number, data in contents.items():
            assert spill.fetch(number) == data
    finally:
        spill.close()


def test_a_segment_is_returned_once(spill: SpillFile) -> None:
    spill.keep(1, b"one")
    assert spill.fetch(1) == b"one"
    with pytest.raises(KeyError):
        spill.fetch(1)


def test_the_file_has_no_name_and_shrinks(spill: SpillFile, folder: Path) -> None:
    for number in range(4):
        spill.keep(number, bytes(1000))
    assert os.listdir(folder) == []
    assert file_of(folder).st_size == 4000
    spill.fetch(3)
    assert file_of(folder).st_size == 3000
    spill.fetch(0)  # the other end cannot be truncated
    assert file_of(folder).st_size == 3000
    spill.fetch(2)
    spill.fetch(1)
    assert file_of(folder).st_size == 0


def test_the_file_is_created_by_the_first_segment(folder: Path) -> None:
    spill = SpillFile()
    spill.close()
    with pytest.raises(AssertionError):
        file_of(folder)


def test_the_file_can_be_used_again_after_close(spill: SpillFile, folder: Path) -> None:
    spill.keep(1, bytes(5000))
    spill.close()
    spill.close()
    spill.keep(2, b"two")
    assert file_of(folder).st_size == 3
    assert spill.fetch(2) == b"two"


def test_a_full_disk_raises_oserror(spill: SpillFile) -> None:
    """A limit on file sizes makes the first write short and the next one fail."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        spill.keep(1, bytes(900))
        with pytest.raises(OSError, match="large"):
            spill.keep(2, bytes(900))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert spill.fetch(1) == bytes(900)


def test_a_truncated_file_raises_oserror(spill: SpillFile) -> None:
    spill.keep(1, bytes(900))
    assert spill._file is not None
    os.ftruncate(spill._file.fileno(), 100)
    with pytest.raises(OSError, match="segment 1 is truncated"):
        spill.fetch(1)
