"""What the log of removals has no room for makes the numbers unknown, and changes no other log."""

from __future__ import annotations

from pathlib import Path

from pcircle.ops.remove.plan import RemovalCounters
from pcircle.ops.remove.removal_log import RemovalLog
from pcircle.walk.roots import Root

FULL = b"x" * (3 << 16)  # a path that is longer than the room for it
THREADS = 64  # as many as a rank has room for


def _root(tmp_path: Path) -> tuple[Root]:
    return (Root(bytes(tmp_path), b"", b"d"),)


def test_a_thread_writes_nothing_after_a_path_that_was_too_long(tmp_path: Path) -> None:
    """The numbers stay unknown, and the logs of other threads can still be read."""
    log = RemovalLog(1)
    first, second = log.thread_log(0), log.thread_log(0)
    first.write(RemovalCounters(files=3), "f", 0, b"", [b"a"])
    second.write(RemovalCounters(), "f", 0, FULL, [b"a"])
    second.write(RemovalCounters(links=9), "f", 0, b"some path", [b"b", b"c"])
    assert log.count_removed(_root(tmp_path), b"/") is None
    log.close()


def test_a_thread_without_a_place_writes_into_no_other(tmp_path: Path) -> None:
    """One thread more than there is room for: its numbers are unknown, and so is the sum."""
    log = RemovalLog(1)
    logs = [log.thread_log(0) for _ in range(THREADS + 1)]
    logs[0].write(RemovalCounters(files=3), "f", 0, b"", [b"a"])
    logs[-1].write(RemovalCounters(links=9), "f", 0, b"some path", [b"b", b"c"])
    assert log.count_removed(_root(tmp_path), b"/") is None
    log.close()
