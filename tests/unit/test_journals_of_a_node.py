"""One journal for the ranks of a node keeps all records, whichever rank dies or ends first."""

from __future__ import annotations

import errno
import multiprocessing
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random

import pytest

from pcircle.core.errors import NoSpace
from pcircle.ops.checkpoint import shared_board
from pcircle.ops.checkpoint.journal import (
    CreatedDirectoryRecord,
    DamagedRange,
    Journal,
    JournalTail,
    NamesRecord,
    TailState,
    read_frames,
    read_records,
)
from pcircle.ops.checkpoint.previous_records import read_history
from pcircle.ops.checkpoint.shared_board import SharedBoard
from pcircle.ops.checkpoint.store import Checkpoint
from tests.unit.checkpoints import KEYS, checkpoint

__all__ = ["checkpoint"]  # a fixture

RANKS = 6
PROCESSES = multiprocessing.get_context("fork")


@pytest.fixture
def token() -> bytes:
    return b"test-%d-%d" % (os.getpid(), time.monotonic_ns())


def journal_of(checkpoint: Checkpoint, rank: int, token: bytes) -> Journal:
    return Journal(checkpoint.fd, 1, rank, KEYS, 16 << 10, token)


def key(rank: int, number: int) -> bytes:
    return b"%07d/%08d" % (rank, number)


def _rank(checkpoint: Checkpoint, rank: int, token: bytes, records: int) -> None:
    rng = Random(rank)
    journal = journal_of(checkpoint, rank, token)
    for number in range(records):
        hashes = rng.randbytes(8 * rng.randrange(60))
        journal.add([NamesRecord(key(rank, number), hashes, {"found": 1}, 1)], 1)
        if rng.random() < 0.05:
            journal.flush()
        if rng.random() < 0.02:
            journal.commit(1, {"found": number})
    journal.commit(1, {"found": records})
    journal.leave()


def recorded(checkpoint: Checkpoint) -> Counter[bytes]:
    """Return the records of all journals, by key, and check that none is damaged."""
    found: Counter[bytes] = Counter()
    for name in os.listdir(checkpoint.fd):
        if name.startswith("journal-"):
            fd = os.open(name, os.O_RDONLY, dir_fd=checkpoint.fd)
            for frame in read_frames(fd, KEYS):
                assert not isinstance(frame, DamagedRange)
                if frame.magic == b"fcpR":
                    found.update(record.key for _, _, record in read_records(frame.payload))
            os.close(fd)
    return found


def journals(checkpoint: Checkpoint) -> list[str]:
    return [name for name in os.listdir(checkpoint.fd) if name.startswith("journal-")]


def test_simultaneous_writes_go_to_one_journal(checkpoint: Checkpoint, token: bytes) -> None:
    records = 800
    ranks = [
        PROCESSES.Process(target=_rank, args=(checkpoint, rank, token, records))
        for rank in range(RANKS)
    ]
    holder = journal_of(checkpoint, RANKS, token)  # else the first one to end may remove the tail
    holder.reserve()
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(60)
    holder.leave()
    assert [rank.exitcode for rank in ranks] == [0] * RANKS
    assert journals(checkpoint) == [f"journal-0001-{RANKS}"]
    every = {key(rank, number) for rank in range(RANKS) for number in range(records)}
    assert recorded(checkpoint) == Counter(every)
    history = read_history(checkpoint, KEYS)
    assert (history.counts, history.problems) == ({"found": RANKS * records}, ())


def test_ranks_that_start_after_others_have_a_new_journal(
    checkpoint: Checkpoint, token: bytes
) -> None:
    first, second = (journal_of(checkpoint, rank, token) for rank in range(2))
    first.add([CreatedDirectoryRecord(key(0, 0))])
    first.commit(1, {"found": 1})
    second.add([CreatedDirectoryRecord(key(1, 0))])
    second.flush()
    first.leave()  # it had the numbers, which the second one keeps
    third, fourth = (journal_of(checkpoint, rank, token) for rank in (2, 3))
    for rank, journal in ((1, second), (2, third), (3, fourth)):
        journal.add([CreatedDirectoryRecord(key(rank, 1))])
        journal.commit(1, {"found": 10**rank})
    for journal in (second, third, fourth):
        journal.leave()
    assert sorted(journals(checkpoint)) == ["journal-0001-0", "journal-0001-2"]
    assert set(recorded(checkpoint)) == {key(0, 0), key(1, 0), *(key(r, 1) for r in (1, 2, 3))}
    assert read_history(checkpoint, KEYS).counts == {"found": 1111}


def _die_before_it_writes(checkpoint: Checkpoint, token: bytes) -> None:
    end = JournalTail(token, 1)
    with end.locked() as here:
        here.bytes += 1000
    os._exit(9)


def _die_with_the_lock(checkpoint: Checkpoint, token: bytes) -> None:
    end = JournalTail(token, 1)
    with end.locked():
        os._exit(9)


@pytest.mark.parametrize("death", [_die_before_it_writes, _die_with_the_lock])
def test_a_rank_that_dies_costs_the_others_nothing(
    checkpoint: Checkpoint, token: bytes, death: object
) -> None:
    journal = journal_of(checkpoint, 0, token)
    journal.add([CreatedDirectoryRecord(key(0, 0))])
    journal.flush()
    rank = PROCESSES.Process(target=death, args=(checkpoint, token))  # type: ignore[arg-type]
    rank.start()
    rank.join(60)
    assert rank.exitcode == 9
    journal.add([CreatedDirectoryRecord(key(0, 1))])
    journal.commit(1, {})
    journal.leave()
    assert set(recorded(checkpoint)) == {key(0, 0), key(0, 1)}
    assert read_history(checkpoint, KEYS).problems == ()


def test_a_flush_of_one_rank_is_one_for_those_that_wait(
    checkpoint: Checkpoint, token: bytes
) -> None:
    """A flush serves all ranks that wait, unless it began before they had written."""
    ends = [JournalTail(token, 1) for _ in range(2)]
    for end in ends:
        with end.locked() as here:
            here.creator = 1
    flushes: list[str] = []
    ends[0].sync(lambda: flushes.append("first"))
    ends[1].sync(lambda: flushes.append("second"))
    assert flushes == ["first", "second"]
    for end in ends:
        end.close()


def test_a_single_rank_shares_nothing(checkpoint: Checkpoint) -> None:
    before = len(os.listdir("/proc/self/fd"))
    alone = journal_of(checkpoint, 0, b"")
    alone.add([CreatedDirectoryRecord(key(0, 0))])
    alone.commit(1, {})
    assert len(os.listdir("/proc/self/fd")) == before + 1
    alone.leave()


def _without_memory_files(patch: pytest.MonkeyPatch) -> None:
    """Simulate a Python that was built with an old C library."""
    patch.delattr(os, "memfd_create")


def _without_proc(patch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    patch.setattr(shared_board, "_open_from_listener", refuse)


@pytest.mark.parametrize("lacks", [_without_memory_files, _without_proc])
def test_a_rank_that_cannot_share_has_its_own_journal(
    checkpoint: Checkpoint,
    token: bytes,
    monkeypatch: pytest.MonkeyPatch,
    lacks: Callable[[pytest.MonkeyPatch], None],
) -> None:
    lacks(monkeypatch)
    for rank in range(2):
        journal = journal_of(checkpoint, rank, token)
        journal.add([CreatedDirectoryRecord(key(rank, 0))])
        journal.commit(1, {"found": 1})
        journal.leave()
    assert sorted(journals(checkpoint)) == ["journal-0001-0", "journal-0001-1"]
    assert read_history(checkpoint, KEYS).counts == {"found": 2}


def test_a_descriptor_whose_number_was_reused_is_not_used(
    token: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the numbers would be written into a file of the user."""
    first = SharedBoard(token, "x", 2)
    (tmp_path / "precious").write_bytes(b"precious")
    real = os.open

    def late(path: str, flags: int) -> int:
        return real(tmp_path / "precious" if "/fd/" in path else path, flags)

    monkeypatch.setattr(os, "open", late)
    monkeypatch.setattr(shared_board, "_TRIES", 2)
    with pytest.raises(FileExistsError):
        SharedBoard(token, "x", 2)
    monkeypatch.undo()
    first.close()
    assert (tmp_path / "precious").read_bytes() == b"precious"


def test_a_writer_that_waits_at_close_writes_nowhere_else(token: bytes, tmp_path: Path) -> None:
    one, other = SharedBoard(token, "x", 2), SharedBoard(token, "x", 2)
    begun = threading.Event()

    def wait() -> None:
        begun.set()
        with other.locked() as numbers:
            numbers.write([7, 7])

    waiting = threading.Thread(target=wait)
    with one.locked():
        waiting.start()
        begun.wait()
        time.sleep(0.05)  # by now it is probably in the call
        number = other._fd
        other.close()
        foreign = os.open(tmp_path / "foreign", os.O_RDWR | os.O_CREAT)
        assert foreign == number
    waiting.join()
    assert one.read() == [7, 7]
    assert os.fstat(foreign).st_size == 0
    os.close(foreign)
    one.close()


def test_more_ranks_than_a_queue_holds_find_each_other(
    token: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_board, "_MAX_RANKS", 3)
    boards = []
    for _ in range(20):
        boards.append(SharedBoard(token, "x", 1))
        with boards[0].locked() as numbers:  # as its owner does for each frame
            numbers.write([numbers.read()[0] + 1])
    assert [board.read() for board in boards] == [[20]] * 20
    for board in boards:
        board.close()


def test_a_journal_closed_meanwhile_is_flushed(
    checkpoint: Checkpoint, token: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = journal_of(checkpoint, 0, token)
    synced: list[str] = []
    real = os.fdatasync

    def late(fd: int) -> None:
        journal.close()  # as the main thread does at the end
        real(fd)
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))

    monkeypatch.setattr(os, "fdatasync", late)
    journal.add([CreatedDirectoryRecord(key(0, 0))])
    journal.commit(1, {})
    assert [os.path.basename(path) for path in synced] == ["journal-0001-0"]
    journal.leave()
    with pytest.raises(NoSpace, match="Bad file descriptor"):
        journal.commit(2, {"found": 1})


def test_a_partly_written_frame_is_not_damage(
    checkpoint: Checkpoint, token: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, other = (journal_of(checkpoint, rank, token) for rank in range(2))
    other.reserve()
    real = os.pwrite

    def half(then: bool, fd: int, data: bytes, offset: int) -> int:
        if b"fcpR" not in bytes(data[:4]):
            return real(fd, data, offset)
        monkeypatch.undo()
        real(fd, data[: len(data) // 2], offset)
        if then:
            other.add([CreatedDirectoryRecord(key(1, 0))], now=True)
        raise OSError(errno.ENOSPC, "full")

    for then in (False, True):
        monkeypatch.setattr(os, "pwrite", partial(half, then))
        with pytest.raises(NoSpace):
            journal.add([CreatedDirectoryRecord(key(0, then))], now=True)
        monkeypatch.undo()
    journal.add([CreatedDirectoryRecord(key(0, 2))])
    journal.commit(1, {})
    assert set(recorded(checkpoint)) == {key(1, 0), key(0, 2)}
    journal.leave()
    other.leave()


def test_the_tail_survives_a_failed_reservation(token: bytes) -> None:
    """A created file is recorded as existing even if no space could be reserved for it."""
    one, other = JournalTail(token, 1), JournalTail(token, 1)
    with suppress(OSError), one.locked() as end:
        end.creator = 5
        raise OSError("full")
    with other.locked() as end:
        assert end == TailState(creator=5)
    one.close()
    other.close()
