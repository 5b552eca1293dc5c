"""The lock of a checkpoint on file systems without locks: heartbeats between hosts."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pcircle.core.errors import StoppedEarly
from pcircle.ops.checkpoint import store as module
from pcircle.ops.checkpoint.store import Checkpoint, CheckpointError, CheckpointLock, RefusalReason


@pytest.fixture
def checkpoint(tmp_path: Path) -> Iterator[Checkpoint]:
    made = Checkpoint.create(os.fsencode(tmp_path / "checkpoint"))
    yield made
    made.close()


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use heartbeats of a tenth of a second, on a file system without locks."""

    def refuse(fd: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    monkeypatch.setattr(module, "_HEARTBEAT_S", 0.1)
    monkeypatch.setattr(module, "_EXPIRY_S", 1.0)


def _elsewhere(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """Make this process appear to run on another host, or after a reboot of the same host."""
    if what == "host":
        monkeypatch.setattr(module, "_host", lambda: "another")
    else:
        monkeypatch.setattr(module, "_boot", lambda: "another")


@pytest.mark.parametrize("what", ["host", "boot"])
def test_a_job_with_heartbeats_elsewhere_is_alive(
    what: str, checkpoint: Checkpoint, short: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = CheckpointLock(checkpoint, b"first")
    first.acquire()
    first.start_heartbeat()
    try:
        # The heartbeats continue under their original name.
        lock = checkpoint.read(b"lock")
        assert b"another" not in lock
        other = CheckpointLock(checkpoint, b"other")
        with monkeypatch.context() as context:
            _elsewhere(context, what)
            with pytest.raises(CheckpointError) as refused:
                other.acquire()
            assert refused.value.reason is RefusalReason.BUSY
        other.release()
        first.check()
    finally:
        first.release()


@pytest.mark.parametrize("what", ["host", "boot"])
def test_a_job_without_heartbeats_is_dead(
    what: str, checkpoint: Checkpoint, short: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock is observed for a while if the last heartbeat may be recent, else taken at once."""
    guards = [CheckpointLock(checkpoint, token) for token in (b"first", b"second", b"third")]
    guards[0].acquire()
    _elsewhere(monkeypatch, what)
    guards[1].acquire()
    path = Path(os.fsdecode(checkpoint.path)) / "lock"
    os.utime(path, (0, 0))
    monkeypatch.setattr(CheckpointLock, "_await_heartbeat", None)  # not called
    monkeypatch.setattr(module, "_host", lambda: "a third")
    guards[2].acquire()
    for guard in guards:
        guard.release()


def test_a_job_that_lost_its_lock_stops(
    checkpoint: Checkpoint, short: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = CheckpointLock(checkpoint, b"first")
    first.acquire()
    os.utime(Path(os.fsdecode(checkpoint.path)) / "lock", (0, 0))
    with monkeypatch.context() as context:
        _elsewhere(context, "host")
        second = CheckpointLock(checkpoint, b"second")
        second.acquire()
    first.start_heartbeat()
    deadline_s = time.monotonic() + 60  # ends a hanging test
    while not first.lost and time.monotonic() < deadline_s:
        time.sleep(0.01)
    with pytest.raises(StoppedEarly, match="taken over"):
        first.check()
    first.release()
    assert checkpoint.read(b"lock"), "it is the other's"
    second.release()


def test_simultaneous_creation(checkpoint: Checkpoint) -> None:
    with pytest.raises(CheckpointError) as refused:
        Checkpoint.create(checkpoint.path)
    assert refused.value.reason is RefusalReason.JUST_CREATED
