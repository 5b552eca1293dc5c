"""Every rank reports the access times that entries had before the walk."""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec
import pytest

from pcircle.core.errors import StoppedEarly
from pcircle.core.units import NS_PER_S
from pcircle.fs.directories import device_and_inode
from pcircle.jobs.access_times import AccessTimes
from pcircle.tools.ffind.eval import compiler
from pcircle.tools.ffind.plan import ExpressionNode
from pcircle.walk.items import Accesses

YEAR_9999_S = 253_370_764_800


def accessed_at(status: os.stat_result, second: int) -> os.stat_result:
    """Return the status that the entry has after it was read."""
    times = {"st_atime_ns": second * NS_PER_S, "st_ctime_ns": status.st_ctime_ns}
    return os.stat_result(tuple(status), times)


def test_all_ranks_restore_the_earliest_time(tmp_path: Path) -> None:
    """A rank may open a directory that another rank has read. Any year can be sent."""
    first, second, third = (AccessTimes(device_and_inode) for _ in range(3))
    status = tmp_path.stat()
    first.remember(accessed_at(status, YEAR_9999_S))
    second.remember(accessed_at(status, YEAR_9999_S + 1))
    for sender in (second, first):
        sent = msgspec.msgpack.decode(msgspec.msgpack.encode(sender.take_new()), type=Accesses)
        for receiver in {first, second, third} - {sender}:
            receiver.receive(sent)
    assert first.take_new() is None
    for times in (first, second, third):
        times.complete()
        restored = times.restored(accessed_at(status, YEAR_9999_S + 2))
        assert restored.st_atime_ns == YEAR_9999_S * NS_PER_S
        assert restored[:7] == status[:7]


def test_an_entry_that_has_changed_keeps_its_time(tmp_path: Path) -> None:
    times = AccessTimes(device_and_inode)
    os.utime(tmp_path, (1, 1))
    times.remember(tmp_path.stat())
    changed_ns = tmp_path.stat().st_ctime_ns
    while tmp_path.stat().st_ctime_ns == changed_ns:  # the clock of the file system is coarse
        time.sleep(0.001)
        os.utime(tmp_path, (2, 2))
    assert times.restored(tmp_path.stat()).st_atime == 2


def test_too_many_times_stop_the_job_before_anything_is_removed(tmp_path: Path) -> None:
    times, status = AccessTimes(device_and_inode), tmp_path.stat()
    for inode in range(100_001):
        times.remember(os.stat_result((status.st_mode, inode, *status[2:])))
    with pytest.raises(StoppedEarly, match="more than 100,000 access times"):
        times.take_new()


def test_access_times_are_remembered_only_for_kinds_that_are_tested() -> None:
    """If only files are tested, the directories that the walk reads need not be remembered."""
    accessed, of_files = ExpressionNode("time", ("a", "+", 1, 1, 0)), ExpressionNode("type", ("f",))
    for tests in ((accessed, of_files), (of_files, accessed)):
        node = ExpressionNode("and", (), (*tests, ExpressionNode("delete")))
        assert not compiler.tests_access_time(node, "d")
        assert compiler.tests_access_time(node, "f")
    is_either = ExpressionNode("or", (), (of_files, ExpressionNode("not", (), (accessed,))))
    assert compiler.tests_access_time(is_either, "d")
