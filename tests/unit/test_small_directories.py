"""Small directories that are listed together: selection, number, and no leaked descriptors."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from pcircle.fs.directories import affordable_at_once, affordable_threads
from pcircle.fs.native import interface, pure
from pcircle.fs.scan import DirectoryBatch
from pcircle.fs.stats import Stats


@pytest.fixture
def top(tmp_path: Path) -> Iterator[int]:
    for number in range(40):
        directory = tmp_path / f"d{number}"
        directory.mkdir()
        for file_number in range(4):
            (directory / f"f{file_number}").touch()
    fd = os.open(tmp_path, os.O_RDONLY)
    yield fd
    os.close(fd)


def names(count: int) -> list[bytes]:
    return [b"d%d" % number for number in range(count)]


def small(top: int, names: list[bytes], most: int, room: int) -> DirectoryBatch:
    """List small directories and keep them open."""
    return DirectoryBatch(
        top, names, os.fstat(top).st_dev, max_entries=most, max_all=room, looks=True, keeps=True
    )


def opened() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def test_directories_are_listed_up_to_the_limit(top: int) -> None:
    before = opened()
    with small(top, names(40), 4, 14) as batch:
        assert batch.names == names(3)
        assert batch.later == names(40)[3:]
        assert [sorted(batch.inside[begin:end]) for begin, end in batch.ranges()] == [
            [b"f0", b"f1", b"f2", b"f3"]
        ] * 3
        assert batch.own.column("inode", 0, 3) == [os.fstat(fd).st_ino for fd in batch.fds]
        looked_up = Stats()
        looked_up.put(batch.table)
        assert looked_up.column("inode", 0, 12) == [
            os.stat(name, dir_fd=batch.fds[place // 4]).st_ino
            for place, name in enumerate(batch.inside)
        ]
        assert [os.fstat(fd).st_ino for fd in batch.fds] == [
            os.stat(name, dir_fd=top).st_ino for name in batch.names
        ]
        assert not batch.unread
    with small(top, names(40), 4, 1) as one:
        assert one.names == names(1)
    assert opened() == before


def test_other_entries_are_not_listed(top: int, tmp_path: Path) -> None:
    """A link is not followed, and a pipe does not block."""
    (tmp_path / "link").symlink_to("d0")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "d1" / "fifth").touch()
    (tmp_path / "d2" / "below").mkdir()
    (tmp_path / "d3" / "link").symlink_to("f0")
    os.mkfifo(tmp_path / "d4" / "pipe")
    left = [b"link", b"pipe", b"d1", b"missing", b"d2", b"d3", b"d4"]
    before = opened()
    with small(top, [*left, b"d5"], 4, 512) as batch:
        assert (batch.names, batch.unread) == ([b"d5"], left)
    assert opened() == before


def test_descriptors_are_bounded_for_each_rlimit(top: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All threads of a process together use at most half of its descriptors."""
    monkeypatch.setattr("pcircle.fs.scan._SCAN_NS", 1 << 60)
    rlimits = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        for limit in (64, 100, 256, 1024, 2048, 4096, 20_000):
            if limit > rlimits[1] != resource.RLIM_INFINITY:
                continue
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, rlimits[1]))
            for threads in (16, affordable_threads(), 1):
                monkeypatch.setattr("threading.active_count", partial(int, threads))
                at_once = affordable_at_once()
                assert at_once * threads <= (limit - 64) // 2 or at_once == 1
            assert at_once == 32 or limit < 256
            with small(top, names(40), 4, 512) as batch:
                assert len(batch.fds) == at_once
                assert batch.later == names(40)[at_once:]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, rlimits)


def test_an_always_interrupted_listing_is_left_to_the_walk(
    top: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server may return EINTR for ever."""
    untried = interface.UNTRIED.to_bytes(8, sys.byteorder, signed=True)

    def interrupted(fd: int, batch: list[bytes], *_: object) -> tuple[object, ...]:
        return untried * len(batch), [], b"", b"", b"", b"", b""

    stub = SimpleNamespace(scan_directories=interrupted)
    monkeypatch.setattr("pcircle.fs.scan.within_limit", lambda: stub)
    with small(top, names(3), 4, 512) as batch:
        assert (batch.names, batch.unread, batch.later) == ([], names(1), names(3)[1:])


def test_a_look_up_that_is_always_interrupted_fails(top: int) -> None:
    untried = interface.UNTRIED.to_bytes(8, sys.byteorder, signed=True)
    stub = SimpleNamespace(stat_names=lambda fds, batch, _: (untried * len(batch), b""))
    stats = Stats(looked_up_by=stub)  # type: ignore[arg-type]
    stats.look(top, names(20))
    assert stats.column("inode", 0, 20) == [os.stat(name, dir_fd=top).st_ino for name in names(20)]


@pytest.mark.parametrize("each_s", [60e-6, 200e-6, 1e-3])
@pytest.mark.parametrize("count", [8, 12, 20])
def test_slow_look_ups_are_detected_in_small_batches(
    top: int, each_s: float, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock advances only in look-ups."""
    now_s = 0.0

    def looked_up(fds: object, batch: list[bytes], until_ns: int) -> tuple[bytes, bytes]:
        nonlocal now_s
        done = 0
        while done < len(batch) and (not done or now_s * 1e9 <= until_ns):
            now_s += each_s
            done += 1
        outcomes, table = pure.stat_names(top, batch[:done], 1 << 62)
        untried_count = len(batch) - done
        rows = [
            bytes(table[at : at + 8 * done]) + bytes(8 * untried_count)
            for at in _columns(table, done)
        ]
        untried = interface.UNTRIED.to_bytes(8, sys.byteorder, signed=True)
        return outcomes + untried * untried_count, b"".join(rows)

    clock = SimpleNamespace(perf_counter=lambda: now_s, monotonic_ns=lambda: int(now_s * 1e9))
    monkeypatch.setattr("pcircle.fs.stats.time", clock)
    monkeypatch.setattr("pcircle.fs.stats.cpu_and_delay_s", lambda threads: (0.0, 0.0))
    stats = Stats(1, looked_up_by=SimpleNamespace(stat_names=looked_up))  # type: ignore[arg-type]
    for _ in range(3):
        stats.look(top, names(count))
    assert stats.is_slow
    assert stats.column("inode", 0, count) == [
        os.stat(name, dir_fd=top).st_ino for name in names(count)
    ]


def _columns(table: bytes, count: int) -> range:
    return range(0, len(table), 8 * count)
