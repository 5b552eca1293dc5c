"""Copying bytes: holes are found and preserved, and every byte arrives, whichever way is used.

The tests run on the file system of the temporary folder and, where there is one, on a tmpfs;
between the two; and between descriptors that the kernel refuses to copy a range between.
"""

from __future__ import annotations

import errno
import os
import resource
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcircle.core.writing import write_all, write_at
from pcircle.fs.data import BUFFER_BYTES, DataCopier, data_ranges, may_have_holes

BLOCK_BYTES = 64 << 10
SHM = Path("/dev/shm")


@pytest.fixture(params=["temporary", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    if request.param == "temporary":
        yield tmp_path
        return
    if not os.access(SHM, os.W_OK):
        pytest.skip(f"no {SHM} to write to")
    with tempfile.TemporaryDirectory(prefix="pcircle-test-", dir=SHM) as memory:
        yield Path(memory)


@contextmanager
def opened(path: Path, flags: int = os.O_RDWR | os.O_CREAT) -> Iterator[int]:
    fd = os.open(path, flags, 0o600)
    try:
        yield fd
    finally:
        os.close(fd)


def pattern(size: int, seed: int = 1) -> bytes:
    """Return nonzero bytes that differ from place to place."""
    return bytes(1 + (seed + number * 7 + number // 251) % 255 for number in range(251)) * (
        size // 251
    ) + bytes(1 + number % 255 for number in range(size % 251))


def finds_holes(folder: Path) -> bool:
    """Return whether the file system distinguishes holes from data."""
    with opened(folder / "probe") as fd:
        os.ftruncate(fd, BLOCK_BYTES)
        try:
            os.lseek(fd, 0, os.SEEK_DATA)
        except OSError as error:
            return error.errno == errno.ENXIO
    return False


# ---- holes ---------------------------------------------------------------------------


@given(
    layout=st.lists(st.booleans(), min_size=1, max_size=8),
    start=st.integers(0, 8 * BLOCK_BYTES),
    length=st.integers(1, 9 * BLOCK_BYTES),
)
def test_the_ranges_of_a_window_are_its_data(layout: list[bool], start: int, length: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        exact = finds_holes(Path(folder))
        with opened(Path(folder) / "f") as fd:
            os.ftruncate(fd, len(layout) * BLOCK_BYTES)
            for number, filled in enumerate(layout):
                if filled:
                    os.pwrite(fd, b"x" * BLOCK_BYTES, number * BLOCK_BYTES)
            ranges = list(data_ranges(fd, start, length))
    covered: set[int] = set()
    for offset, size in ranges:
        assert size > 0
        assert start <= offset
        assert offset + size <= start + length
        assert not covered or offset > max(covered)
        # Pieces of 4 KiB would suffice, but the window has any offset: use end points per block.
        covered.update((offset, offset + size - 1))
    inside = [
        (max(start, n * BLOCK_BYTES), min(start + length, (n + 1) * BLOCK_BYTES))
        for n, filled in enumerate(layout)
        if filled and n * BLOCK_BYTES < start + length and (n + 1) * BLOCK_BYTES > start
    ]
    for low, high in inside:
        assert any(offset <= low and high <= offset + size for offset, size in ranges)
    if exact:
        assert sum(size for _, size in ranges) == sum(high - low for low, high in inside)


def test_a_file_of_holes_has_no_ranges(folder: Path) -> None:
    if not finds_holes(folder):
        pytest.skip("the file system knows nothing of holes")
    with opened(folder / "f") as fd:
        os.ftruncate(fd, 1 << 30)
        assert list(data_ranges(fd, 0, 1 << 30)) == []
        os.pwrite(fd, b"x" * BLOCK_BYTES, 512 << 20)
        assert list(data_ranges(fd, 0, 1 << 30)) == [(512 << 20, BLOCK_BYTES)]
        assert list(data_ranges(fd, (512 << 20) + 5, 10)) == [((512 << 20) + 5, 10)]
        assert list(data_ranges(fd, 0, 512 << 20)) == []


def test_without_reported_holes_everything_is_data() -> None:
    """A pipe has no file system that reports holes; a device without holes is all data."""
    readable, writable = os.pipe()
    try:
        assert list(data_ranges(readable, 0, 10)) == [(0, 10)]
    finally:
        os.close(readable)
        os.close(writable)


def test_ranges_of_a_file_that_shrinks_end_early(folder: Path) -> None:
    with opened(folder / "f") as fd:
        os.ftruncate(fd, 4 * BLOCK_BYTES)
        os.pwrite(fd, b"x" * BLOCK_BYTES, 0)
        os.pwrite(fd, b"x" * BLOCK_BYTES, 2 * BLOCK_BYTES)
        ranges = data_ranges(fd, 0, 4 * BLOCK_BYTES)
        offset, length = next(ranges)
        assert offset == 0
        os.ftruncate(fd, BLOCK_BYTES)
        assert list(ranges) == []
        assert length >= BLOCK_BYTES


def test_a_file_may_have_holes_if_it_takes_less_space(folder: Path) -> None:
    with opened(folder / "f") as fd:
        assert not may_have_holes(os.fstat(fd))
        os.pwrite(fd, b"x" * BLOCK_BYTES, 0)
        os.fsync(fd)
        assert not may_have_holes(os.fstat(fd))
        os.ftruncate(fd, 100 * BLOCK_BYTES)
        assert may_have_holes(os.fstat(fd))


# ---- copying -------------------------------------------------------------------------

SIZES = [0, 1, 4096, BUFFER_BYTES - 1, BUFFER_BYTES, 3 * BUFFER_BYTES + 5]


@pytest.mark.parametrize("size", SIZES)
def test_all_bytes_arrive_within_a_file_system(folder: Path, size: int) -> None:
    data = pattern(size)
    (folder / "from").write_bytes(data)
    with opened(folder / "from", os.O_RDONLY) as source, opened(folder / "to") as out:
        assert DataCopier().move(source, out, 0, size) == size
    assert (folder / "to").read_bytes() == data


@pytest.mark.parametrize("size", SIZES)
def test_all_bytes_arrive_between_file_systems(folder: Path, tmp_path: Path, size: int) -> None:
    data = pattern(size)
    (folder / "from").write_bytes(data)
    other = tmp_path / "other"
    with opened(folder / "from", os.O_RDONLY) as source, opened(other) as out:
        assert DataCopier().move(source, out, 0, size) == size
    assert other.read_bytes() == data


@pytest.mark.parametrize("size", SIZES)
def test_all_bytes_arrive_where_the_kernel_refuses(folder: Path, size: int) -> None:
    """The kernel refuses to copy a range to a file that is open for appending."""
    data = pattern(size)
    (folder / "from").write_bytes(data)
    append = os.O_RDWR | os.O_CREAT | os.O_APPEND
    with opened(folder / "from", os.O_RDONLY) as source, opened(folder / "to", append) as out:
        with pytest.raises(OSError, match=r"."):
            os.copy_file_range(source, out, 10, 0, 0)
        mover = DataCopier()
        assert mover.move(source, out, 0, size) == size
    assert (folder / "to").read_bytes() == data
    # The refusal is remembered for all pairs.
    with opened(folder / "from", os.O_RDONLY) as source, opened(folder / "again") as out:
        assert mover.move(source, out, 0, size) == size
    assert (folder / "again").read_bytes() == data


def test_files_that_report_no_size_are_copied_to_their_end(tmp_path: Path) -> None:
    """For /proc the kernel's copy returns at once and reports the end of the file."""
    with opened(Path("/proc/self/status"), os.O_RDONLY) as source, opened(tmp_path / "to") as out:
        assert os.fstat(source).st_size == 0
        count = DataCopier().move(source, out, 0, 1 << 20)
    copied = (tmp_path / "to").read_bytes()
    assert len(copied) == count
    assert copied.startswith(b"Name:")
    assert copied.endswith(b"\n")


def test_a_range_is_copied_to_the_same_offset_alone(folder: Path) -> None:
    data, before = pattern(3 * BUFFER_BYTES), pattern(3 * BUFFER_BYTES, seed=99)
    (folder / "from").write_bytes(data)
    (folder / "to").write_bytes(before)
    low, high = BUFFER_BYTES - 3, 2 * BUFFER_BYTES + 7
    with opened(folder / "from", os.O_RDONLY) as source, opened(folder / "to") as out:
        assert DataCopier().move(source, out, low, high - low) == high - low
        assert os.lseek(source, 0, os.SEEK_CUR) == os.lseek(out, 0, os.SEEK_CUR) == 0
    assert (folder / "to").read_bytes() == before[:low] + data[low:high] + before[high:]


@pytest.mark.parametrize("flags", [0, os.O_APPEND], ids=["by-kernel", "by-buffer"])
def test_a_shorter_source_is_copied_to_its_end(folder: Path, flags: int) -> None:
    (folder / "from").write_bytes(b"abc")
    target = os.O_RDWR | os.O_CREAT | flags
    with opened(folder / "from", os.O_RDONLY) as source, opened(folder / "to", target) as out:
        assert DataCopier().move(source, out, 0, 100) == 3
        assert DataCopier().move(source, out, 50, 100) == 0
    assert (folder / "to").read_bytes() == b"abc"


def test_a_truncated_source_is_copied_to_its_new_end(folder: Path) -> None:
    (folder / "from").write_bytes(pattern(2 * BUFFER_BYTES))
    with opened(folder / "from") as source, opened(folder / "to") as out:
        size = os.fstat(source).st_size
        os.ftruncate(source, 1000)
        assert DataCopier().move(source, out, 0, size) == 1000


def test_an_unwritable_target_raises_oserror(folder: Path) -> None:
    (folder / "from").write_bytes(b"abc")
    (folder / "to").write_bytes(b"")
    read_only = os.O_RDONLY
    with opened(folder / "from", read_only) as source, opened(folder / "to", read_only) as out:
        with pytest.raises(OSError, match="descriptor"):
            DataCopier().move(source, out, 0, 3)
        with pytest.raises(OSError, match="descriptor"):
            write_all(out, b"abc")


@contextmanager
def largest_file(limit_bytes: int) -> Iterator[None]:
    """Limit the size of files: a write across the limit is short, the next one fails."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_short_write_is_continued_and_its_failure_raised(folder: Path) -> None:
    with largest_file(1000):
        with opened(folder / "all") as fd, pytest.raises(OSError, match="large"):
            write_all(fd, b"x" * 2000)
        with opened(folder / "at") as fd, pytest.raises(OSError, match="large"):
            write_at(fd, b"x" * 2000, 10)
        (folder / "from").write_bytes(b"x" * 1000)
        append = os.O_RDWR | os.O_CREAT | os.O_APPEND
        with opened(folder / "from") as source, opened(folder / "to", append) as out:
            assert DataCopier().move(source, out, 0, 1000) == 1000
    assert (folder / "all").stat().st_size == 1000
    assert (folder / "at").stat().st_size == 1000


def test_short_writes_are_continued() -> None:
    """A pipe accepts what fits; the remaining bytes follow."""
    readable, writable = os.pipe()
    data = pattern(300_000)

    def write() -> None:
        try:
            write_all(writable, memoryview(data))
        finally:
            os.close(writable)

    writer = threading.Thread(target=write)
    writer.start()
    with open(readable, "rb") as reader:
        assert reader.read() == data
    writer.join()
