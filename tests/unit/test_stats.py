"""Attributes as columns: statx and os.stat give the same results, and failures are separate."""

from __future__ import annotations

import errno
import gc
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from pcircle.fs import native
from pcircle.fs.native import pure
from pcircle.fs.stats import CAPACITY, StatBlockError, Stats, Table
from pcircle.threads.workers import Overlap, is_helper

every_call = pytest.mark.parametrize(
    "looked_up_by",
    [
        pytest.param(
            native.module,
            id="C",
            marks=pytest.mark.skipif(not native.is_native, reason="the C module is not used"),
        ),
        pytest.param(pure, id="Python"),
    ],
)


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[int]:
    """Return the descriptor of a directory that has unusual entries."""
    (tmp_path / "file").write_bytes(b"x" * 12345)
    with open(tmp_path / "sparse", "wb") as sparse:
        sparse.truncate(1 << 41)
    os.utime(tmp_path / "sparse", ns=(0, -1_500_000_000))
    os.link(tmp_path / "file", tmp_path / "link")
    os.symlink("nowhere", tmp_path / "symbolic")
    os.mkfifo(tmp_path / "fifo", 0o620)
    (tmp_path / "directory").mkdir()
    (tmp_path / "\u00e9\udcff").write_bytes(b"")
    fd = os.open(tmp_path, os.O_RDONLY)
    yield fd
    os.close(fd)


@every_call
def test_columns_match_stat(tree: int, looked_up_by: ModuleType) -> None:
    names = sorted(map(os.fsencode, os.listdir(tree)))
    stats = Stats(looked_up_by=looked_up_by)
    stats.look(tree, names)
    want = [os.stat(name, dir_fd=tree, follow_symlinks=False) for name in names]
    count = len(names)
    assert stats.column("size", 0, count) == [status.st_size for status in want]
    assert stats.column("blocks", 0, count) == [status.st_blocks for status in want]
    assert stats.column("links", 0, count) == [status.st_nlink for status in want]
    assert not stats.has_single_names(0, count)
    assert not stats.are_files(count)
    stats.look(tree, [b"file", b"link", b"sparse"])
    assert stats.are_files(3)
    stats.look(tree, names)
    assert stats.has_single_names(names.index(b"fifo"), names.index(b"fifo") + 1)
    assert stats.column("uid", 0, count) == [status.st_uid for status in want]
    assert stats.column("gid", 0, count) == [status.st_gid for status in want]
    assert stats.column("mode", 0, count) == [status.st_mode for status in want]
    assert stats.column("inode", 0, count) == [status.st_ino for status in want]
    assert stats.column("mtime", 0, count) == [status.st_mtime_ns // 10**9 for status in want]
    assert -2 in stats.column("mtime", 0, count)
    assert stats.column("device", 1, 3) == [want[0].st_dev] * 2


@every_call
def test_a_failed_name_does_not_affect_others(tree: int, looked_up_by: ModuleType) -> None:
    stats = Stats(looked_up_by=looked_up_by)
    with pytest.raises(StatBlockError) as failed:
        stats.look(tree, [b"gone", b"file", b"x" * 300, b"fifo"])
    errors = {place: error.errno for place, error in failed.value.errors.items()}
    assert errors == {0: errno.ENOENT, 2: errno.ENAMETOOLONG}
    assert stats.column("size", 1, 2) == [12345]
    stats.look(tree, [b"file"])
    assert stats.column("size", 0, 1) == [12345]
    with pytest.raises(ValueError, match="too many"):
        stats.look(tree, [b"file"] * (CAPACITY + 1))


def test_the_parts_of_a_range_overlap() -> None:
    """The test hangs unless all parts run at the same time."""
    overlap = Overlap(5)
    met = threading.Barrier(5, timeout=60)
    ranges: list[tuple[int, int]] = []

    def part(start: int, stop: int) -> None:
        met.wait()
        ranges.append((start, stop))

    overlap.run(part, 10, 33)
    overlap.run(part, 0, 5)
    overlap.close()
    covered = sorted(number for start, stop in ranges[:5] for number in range(start, stop))
    assert covered == list(range(10, 33))
    assert sorted(ranges[5:]) == [(number, number + 1) for number in range(5)]


@pytest.mark.parametrize(("alone_s", "is_slow"), [(10e-6, False), (2e-3, True)])
def test_look_ups_that_only_compute_end_their_overlap(
    tree: int, alone_s: float, is_slow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside others, a look-up takes long because of the server, or of the interpreter lock."""
    now_s = 0.0
    never = 1 << 62

    def looked_up(fds: object, batch: list[bytes], until_ns: int) -> tuple[bytes, bytes]:
        nonlocal now_s
        now_s += 2e-3 if until_ns == never else alone_s * len(batch)
        return pure.stat_names(tree, batch, never)

    clock = SimpleNamespace(perf_counter=lambda: now_s, monotonic_ns=lambda: int(now_s * 1e9))
    monkeypatch.setattr("pcircle.fs.stats.time", clock)
    monkeypatch.setattr("pcircle.fs.stats.cpu_and_delay_s", lambda threads: (0.0, 0.0))
    stats = Stats(4, looked_up_by=SimpleNamespace(stat_names=looked_up))  # type: ignore[arg-type]
    stats._slow = 6
    for _ in range(16):
        stats.look(tree, [b"file"] * 8)
    assert stats.is_slow == is_slow
    stats.close()


@pytest.mark.parametrize(("share", "is_slow"), [(1.0, False), (0.0, True)])
def test_waiting_for_a_processor_is_no_slow_look_up(
    tree: int, share: float, is_slow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A `share` of the time of each look-up passes while other processes have the processors."""
    now_s = 0.0

    def looked_up(fds: object, batch: list[bytes], until_ns: int) -> tuple[bytes, bytes]:
        nonlocal now_s
        now_s += 5e-3
        return pure.stat_names(tree, batch, 1 << 62)

    clock = SimpleNamespace(perf_counter=lambda: now_s, monotonic_ns=lambda: int(now_s * 1e9))
    monkeypatch.setattr("pcircle.fs.stats.time", clock)
    monkeypatch.setattr("pcircle.fs.stats.cpu_and_delay_s", lambda threads: (0.0, share * now_s))
    stats = Stats(4, looked_up_by=SimpleNamespace(stat_names=looked_up))  # type: ignore[arg-type]
    for _ in range(9):
        stats.look(tree, [b"file"] * 8)
    assert stats.is_slow == is_slow
    stats.close()


def test_helpers_end_with_the_object_that_started_them(tree: int) -> None:
    """No thread is left if an object was not closed, but is garbage."""
    earlier = threading.enumerate()
    stats = Stats(threads=3)
    stats._slow = 9
    stats.look(tree, [b"file"] * 40)
    helpers = [
        thread for thread in threading.enumerate() if is_helper(thread) and thread not in earlier
    ]
    assert len(helpers) == 2
    del stats
    gc.collect()
    for helper in helpers:
        helper.join(60)
        assert not helper.is_alive()


def test_an_error_of_a_part_is_the_callers() -> None:
    overlap = Overlap(3)

    def part(start: int, stop: int) -> None:
        time.sleep(0.001)
        if start:
            raise LookupError(str(start))

    for _ in range(3):  # it can be used again
        with pytest.raises(LookupError):
            overlap.run(part, 0, 9)
    overlap.close()
    with pytest.raises(ValueError, match="at least 1"):
        Overlap(0)


@every_call
def test_devices_and_nanoseconds_match_stat(tree: int, looked_up_by: ModuleType) -> None:
    names = [b"file", b"sparse", b"fifo", b"directory"]
    stats = Stats(looked_up_by=looked_up_by)
    stats.look(tree, names)
    want = [os.stat(name, dir_fd=tree, follow_symlinks=False) for name in names]
    for name in ("atime", "mtime", "ctime"):
        assert stats.times_ns(name, 0, 4) == [getattr(status, f"st_{name}_ns") for status in want]
    assert stats.column("block_size", 0, 4) == [status.st_blksize for status in want]
    assert stats.column("rdev", 0, 4) == [status.st_rdev for status in want]
    null = os.open("/dev", os.O_RDONLY)
    stats.look(null, [b"null"])
    assert stats.column("rdev", 0, 1) == [os.makedev(1, 3)]
    os.close(null)


@every_call
def test_each_name_may_have_a_directory_of_its_own(
    tree: int, tmp_path: Path, looked_up_by: ModuleType
) -> None:
    """A failure for one name does not affect the others."""
    (tmp_path / "directory" / "file").write_bytes(b"other")
    inner = os.open(tmp_path / "directory", os.O_RDONLY)
    stats = Stats(looked_up_by=looked_up_by)
    fds, names = [tree, inner] * 8, [b"file"] * 16
    stats.look(fds, names)
    assert stats.column("size", 0, 16) == [12345, 5] * 8
    names[3] = b"missing"
    with pytest.raises(StatBlockError) as failed:
        stats.look(fds, names)
    assert list(failed.value.errors) == [3]
    assert stats.column("size", 4, 16) == [12345, 5] * 6
    os.close(inner)


def test_all_overlapped_calls_are_made(tree: int) -> None:
    """The calls are sequential, and parallel if look-ups are slow."""
    stats = Stats(threads=4)
    for slow in (0, 9):
        stats._slow = slow
        made: list[int] = []
        stats.beside(lambda start, stop, to=made: to.extend(range(start, stop)), 3, 40)  # type: ignore[misc]
        assert sorted(made) == list(range(3, 40))
    stats.close()


@every_call
def test_no_names_have_no_rows(tree: int, looked_up_by: ModuleType) -> None:
    stats = Stats(looked_up_by=looked_up_by)
    stats.look(tree, [])
    assert stats.count == 0


def test_a_row_may_have_any_inode_number_and_time(tree: int) -> None:
    status = os.stat(b"file", dir_fd=tree)
    names = "st_blocks", "st_blksize", "st_rdev", "st_atime_ns", "st_mtime_ns", "st_ctime_ns"
    times_ns = dict.fromkeys(names, -1)  # of 31 December 1969
    largest = (1 << 64) - 1
    odd = os.stat_result((status.st_mode, largest, 5, 1, 2, 3, 4, -1, -1, -1), times_ns)
    table = Table(pure.table([status, odd, None]))
    assert table.column("inode", 0, 3) == [status.st_ino, largest, 0]
    assert table.times_ns("mtime", 0, 3) == [status.st_mtime_ns, -1, 0]
    assert table.column("uid", 0, 3) == [status.st_uid, 2, 0]
