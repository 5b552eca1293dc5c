"""Each way of copying bytes by itself, with refusals and short results.

Refusals and short results come from the kernel where possible: between two file systems, to a file
that is open for appending, for files of /proc, under a limit on the size of files. Cases that no
kernel produces on demand (a way that copies little at a time, or fails in the middle) use a wrapper
that calls the real way.
"""

from __future__ import annotations

import errno
import os
import resource
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcircle.fs.data import (
    BLOCK_BYTES,
    BUFFER_BYTES,
    DataCopier,
    Way,
    clone_range,
    copy_range,
    send_range,
    ways_of,
)

from .test_data import SHM, finds_holes, opened, pattern

KERNEL_WAYS = [copy_range, send_range]


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Path]:
    """Return a folder on another file system than that of `tmp_path`."""
    if not os.access(SHM, os.W_OK):
        pytest.skip(f"no {SHM} to write to")
    if SHM.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("the temporary folder is on the same file system")
    with tempfile.TemporaryDirectory(prefix="pcircle-test-", dir=SHM) as memory:
        yield Path(memory)


class Counted:
    """A wrapper that counts calls and bytes, and copies at most `most` bytes per call."""

    def __init__(self, way: Way, most: int = 1 << 30) -> None:
        self.calls = self.bytes = 0
        self._way = way
        self._most = most

    def __call__(self, source_fd: int, target_fd: int, offset: int, length: int) -> int:
        self.calls += 1
        count = self._way(source_fd, target_fd, offset, min(length, self._most))
        self.bytes += count
        return count


class Refusing:
    """A way that copies `good` bytes and then fails."""

    def __init__(self, number: int, good: int = 0) -> None:
        self.calls = 0
        self._number = number
        self._good = good

    def __call__(self, source_fd: int, target_fd: int, offset: int, length: int) -> int:
        self.calls += 1
        if self.calls == 1 and self._good:
            return copy_range(source_fd, target_fd, offset, self._good)
        raise OSError(self._number, os.strerror(self._number))


def moved(mover: DataCopier, source: Path, target: Path, flags: int = 0) -> bytes:
    """Copy a whole file and return the bytes that arrived."""
    size = source.stat().st_size
    with ExitStack() as files:
        fd = files.enter_context(opened(source, os.O_RDONLY))
        out = files.enter_context(opened(target, os.O_RDWR | os.O_CREAT | os.O_TRUNC | flags))
        assert mover.move(fd, out, 0, size) == size
    return target.read_bytes()


# ---- each way --------------------------------------------------------------------------


@pytest.mark.parametrize("most", [1 << 30, 70_001], ids=["whole", "piecemeal"])
@pytest.mark.parametrize("way", KERNEL_WAYS)
def test_each_way_of_the_kernel_does_it_alone(tmp_path: Path, way: Way, most: int) -> None:
    data = pattern(2 * BUFFER_BYTES + 5)
    (tmp_path / "from").write_bytes(data)
    (tmp_path / "to").write_bytes(b"x" * len(data))
    counted = Counted(way, most)
    mover = DataCopier(ways=[counted])
    assert moved(mover, tmp_path / "from", tmp_path / "whole") == data
    assert counted.bytes == len(data)
    low, high = BUFFER_BYTES - 3, 2 * BUFFER_BYTES + 1
    with opened(tmp_path / "from", os.O_RDONLY) as fd, opened(tmp_path / "to") as out:
        assert mover.move(fd, out, low, high - low) == high - low
    range_only = b"x" * low + data[low:high] + b"x" * (len(data) - high)
    assert (tmp_path / "to").read_bytes() == range_only


def test_options_restrict_the_ways() -> None:
    assert {clone_range, copy_range} < set(ways_of("auto", "auto"))
    assert clone_range in ways_of("always", "auto")
    for reflink, sparse in (("never", "auto"), ("auto", "never"), ("never", "never")):
        allowed = ways_of(reflink, sparse)  # type: ignore[arg-type]
        assert clone_range not in allowed
        assert copy_range not in allowed
    assert ways_of("auto", "always") == ways_of("never", "always") == ()


def test_a_clone_is_refused_or_equals_the_file(tmp_path: Path) -> None:
    """Tests that require clones run where the file system has them."""
    data = pattern(3 * BLOCK_BYTES + 5)
    (tmp_path / "from").write_bytes(data)
    with opened(tmp_path / "from", os.O_RDONLY) as fd, opened(tmp_path / "to") as out:
        cloned = DataCopier().clone(fd, out)
    assert (tmp_path / "to").read_bytes() == (data if cloned else b"")


def test_a_failed_required_clone_has_a_reason(tmp_path: Path, other: Path) -> None:
    (tmp_path / "from").write_bytes(b"abc")
    mover = DataCopier("always")
    with opened(tmp_path / "from", os.O_RDONLY) as fd, opened(other / "to") as out:
        for _ in range(2):  # although its support is known by then
            with pytest.raises(OSError, match=r".") as caught:
                mover.clone(fd, out)
            assert caught.value.errno == errno.EXDEV
        assert DataCopier("auto").clone(fd, out) is False
        assert DataCopier("never").clone(fd, out) is False
        assert DataCopier("auto", "always").clone(fd, out) is False
        assert DataCopier("auto", "never").clone(fd, out) is False


# ---- refusals --------------------------------------------------------------------------


def test_a_way_that_a_pair_refuses_is_not_tried_again_for_the_pair(
    tmp_path: Path, other: Path
) -> None:
    """The kernel copies no range between file systems of different types: EXDEV."""
    data = pattern(BUFFER_BYTES + 5)
    for folder in (tmp_path, other):
        (folder / "from").write_bytes(data)
    with opened(tmp_path / "from", os.O_RDONLY) as fd, opened(other / "to") as out:
        try:
            os.copy_file_range(fd, out, 1, 0, 0)
        except OSError as error:
            number = error.errno
        else:
            pytest.skip("this kernel copies ranges between these two")
    assert number == errno.EXDEV
    within, sent = Counted(copy_range), Counted(send_range)
    mover = DataCopier(ways=[within, sent])
    assert moved(mover, tmp_path / "from", other / "to") == data
    assert (refused := within.calls)
    for _ in range(3):
        assert moved(mover, tmp_path / "from", other / "to") == data
    assert within.calls == refused
    assert sent.bytes == 4 * len(data)
    assert moved(mover, other / "from", other / "again") == data
    assert within.bytes == len(data)


def test_a_way_that_one_file_refuses_is_tried_for_the_next_file(tmp_path: Path) -> None:
    """Neither of the kernel's ways can write to a file that is open for appending."""
    data = pattern(BUFFER_BYTES + 5)
    (tmp_path / "from").write_bytes(data)
    copying, sending = Counted(copy_range), Counted(send_range)
    mover = DataCopier(ways=[copying, sending])
    assert moved(mover, tmp_path / "from", tmp_path / "appended", os.O_APPEND) == data
    assert copying.calls
    assert sending.calls
    assert copying.bytes == sending.bytes == 0
    assert moved(mover, tmp_path / "from", tmp_path / "other") == data
    assert copying.bytes == len(data)


PAIR = [errno.EXDEV, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOTTY]
FILE = [errno.EINVAL, errno.EPERM, errno.EACCES, errno.ETXTBSY, errno.EBADF]
FINAL = [errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS]


@pytest.mark.parametrize("number", PAIR + FILE, ids=errno.errorcode.get)
def test_after_a_late_refusal_another_way_continues(tmp_path: Path, number: int) -> None:
    data = pattern(BUFFER_BYTES + 5)
    (tmp_path / "from").write_bytes(data)
    refusing = Refusing(number, good=12_345)
    mover = DataCopier(ways=[refusing])
    assert moved(mover, tmp_path / "from", tmp_path / "to") == data
    refused = refusing.calls
    assert refused > 1
    assert moved(mover, tmp_path / "from", tmp_path / "again") == data
    assert (refusing.calls > refused) == (number not in PAIR)


@pytest.mark.parametrize("number", FINAL, ids=errno.errorcode.get)
def test_other_errors_are_raised(tmp_path: Path, number: int) -> None:
    (tmp_path / "from").write_bytes(b"abc")
    mover = DataCopier(ways=[Refusing(number), Counted(send_range)])
    with opened(tmp_path / "from", os.O_RDONLY) as fd, opened(tmp_path / "to") as out:
        with pytest.raises(OSError, match=r".") as caught:
            mover.move(fd, out, 0, 3)
        assert caught.value.errno == number


# ---- short results ---------------------------------------------------------------------


@pytest.mark.parametrize("ways", [[copy_range], [send_range], [send_range, copy_range]])
def test_a_way_that_copies_nothing_is_followed_by_the_next_way(
    tmp_path: Path, ways: list[Way]
) -> None:
    """From /proc the kernel's copy of a range ends at once, without an error."""
    counted = [Counted(way) for way in ways]
    mover = DataCopier(ways=counted)
    with opened(Path("/proc/self/status"), os.O_RDONLY) as fd, opened(tmp_path / "to") as out:
        count = mover.move(fd, out, 0, 1 << 20)
    copied = (tmp_path / "to").read_bytes()
    assert len(copied) == count
    assert copied.startswith(b"Name:")
    assert copied.endswith(b"\n")
    assert all(way.calls for way in counted)


@pytest.mark.parametrize("ways", [[copy_range], [send_range], []])
def test_every_way_ends_at_the_end_of_the_source(tmp_path: Path, ways: list[Way]) -> None:
    (tmp_path / "from").write_bytes(b"abc")
    with opened(tmp_path / "from", os.O_RDONLY) as fd, opened(tmp_path / "to") as out:
        assert DataCopier(ways=ways).move(fd, out, 0, 100) == 3
        assert DataCopier(ways=ways).move(fd, out, 50, 100) == 0
    assert (tmp_path / "to").read_bytes() == b"abc"


@contextmanager
def largest_file(limit_bytes: int) -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize("ways", [[copy_range], [send_range], []])
def test_a_short_write_is_continued_and_its_failure_raised(tmp_path: Path, ways: list[Way]) -> None:
    data = pattern(2 * BUFFER_BYTES)
    (tmp_path / "from").write_bytes(data)
    limit = BUFFER_BYTES + 1000
    with (
        opened(tmp_path / "from", os.O_RDONLY) as fd,
        opened(tmp_path / "to") as out,
        largest_file(limit),
        pytest.raises(OSError, match="large"),
    ):
        DataCopier(ways=ways).move(fd, out, 0, len(data))
    assert (tmp_path / "to").read_bytes() == data[:limit]


# ---- zeros that become holes ------------------------------------------------------------


@given(
    layout=st.lists(st.sampled_from("0xs"), min_size=1, max_size=12),
    cut=st.integers(0, BLOCK_BYTES - 1),
    start=st.integers(0, 3 * BLOCK_BYTES),
)
def test_only_blocks_of_zeros_become_holes(layout: list[str], cut: int, start: int) -> None:
    """`0` is a block of zeros, `x` a block of data, `s` a block with a single nonzero byte."""
    blocks: dict[str, Callable[[int], bytes]] = {
        "0": lambda _: bytes(BLOCK_BYTES),
        "x": lambda n: pattern(BLOCK_BYTES, n + 1),
        "s": lambda n: bytes(n * 100) + b"s" + bytes(BLOCK_BYTES - 1 - n * 100),
    }
    data = b"".join(blocks[kind](number) for number, kind in enumerate(layout))
    data = data[: len(data) - cut]
    start = min(start, len(data))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        exact = finds_holes(folder) and os.statvfs(folder).f_bsize == BLOCK_BYTES
        (folder / "from").write_bytes(data)
        with opened(folder / "from", os.O_RDONLY) as fd, opened(folder / "to") as out:
            os.ftruncate(out, len(data))
            mover = DataCopier(sparse="always")
            assert mover.move(fd, out, start, len(data) - start) == len(data) - start
            assert mover.move(fd, out, 0, start) == start
        assert (folder / "to").read_bytes() == data
        if exact:
            zero = layout.count("0")
            most = (len(layout) - zero) * BLOCK_BYTES
            assert (folder / "to").stat().st_blocks * 512 <= most


def test_runs_of_zeros_are_found_across_buffers(tmp_path: Path) -> None:
    size = 3 * BUFFER_BYTES
    with opened(tmp_path / "from") as fd, opened(tmp_path / "to") as out:
        os.pwrite(fd, bytes(size), 0)
        os.pwrite(fd, b"x", BUFFER_BYTES)
        os.ftruncate(out, size)
        assert DataCopier(sparse="always").move(fd, out, 0, size) == size
        os.fsync(out)
        assert os.fstat(out).st_blocks * 512 <= 2 * BLOCK_BYTES
    assert (tmp_path / "to").read_bytes() == (tmp_path / "from").read_bytes()
