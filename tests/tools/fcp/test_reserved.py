"""The space that journals reserve: sufficient for a commit on a full disk, and small in total."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from random import Random

import msgspec
import pytest

from pcircle.core.errors import NoSpace
from pcircle.ops.checkpoint.index import IndexBuilder
from pcircle.ops.checkpoint.journal import (
    Journal,
    NamesRecord,
    RecordKeys,
    journal_name,
    reserved_bytes,
)
from pcircle.ops.checkpoint.previous_records import read_history
from pcircle.ops.checkpoint.store import Checkpoint, CheckpointHeader
from pcircle.ops.copy.tree.counters import CopyCounters

SECRET = b"8 bytes!"
KEYS = RecordKeys(SECRET)
COUNTS = dict.fromkeys(CopyCounters.names, 1 << 60)


def test_many_ranks_reserve_little() -> None:
    assert reserved_bytes(1) == reserved_bytes(1000) == 256 << 10
    assert 5000 * reserved_bytes(5000) <= 256 << 20
    assert 100_000 * reserved_bytes(100_000) < 2 << 30


def fill(path: bytes) -> None:
    """Use all free space."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    for size in (1 << 16, 1 << 12, 1):
        full = False
        while not full:
            try:
                os.write(fd, bytes(size))
            except OSError as error:
                full = error.errno == errno.ENOSPC
    os.close(fd)


def record(number: int, rng: Random) -> NamesRecord:
    return NamesRecord(number.to_bytes(16, "big"), rng.randbytes(8 * rng.randrange(1, 40)), {}, 1)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("ranks", [1, 4000, 100_000])
def test_recorded_work_is_committed_on_a_full_disk(
    ranks: int, count: int, mount_tmpfs: Callable[[str], bytes]
) -> None:
    """Nothing recorded before the disk became full is lost, at any moment.

    This includes the pending work of several ranks of a node with one journal.
    """
    place = mount_tmpfs("size=6m")
    for seed in range(25):
        rng = Random(seed)
        checkpoint = Checkpoint.create(place + b"/checkpoint")
        checkpoint.write_header(CheckpointHeader(1, SECRET, 0, (), {}, (b"01234567",), 1))
        token = b"test-%d-%d-%d" % (os.getpid(), ranks, seed) if count > 1 else b""
        journals = [
            Journal(checkpoint.fd, 1, rank, KEYS, reserved_bytes(ranks), token)
            for rank in range(count)
        ]
        for journal in journals:
            journal.reserve()
        number, until = 0, rng.randrange(-10_000, 3 * reserved_bytes(ranks))
        while max(journal.bytes for journal in journals) < until:
            rng.choice(journals).add([record(number, rng)])
            number += 1
        for journal in journals:
            journal.flush()
        fill(place + b"/filler")
        for journal in journals:
            left = reserved_bytes(ranks) // 4  # that a rank may have
            while left > 400:
                journal.add([one := record(number, rng)])
                number, left = number + 1, left - len(msgspec.msgpack.encode(one)) - 4
        for journal in journals:
            journal.commit(1, COUNTS)
        for journal in journals:
            journal.leave()
        assert len(os.listdir(checkpoint.path)) == 1 + 1  # the header, and one journal
        os.unlink(place + b"/filler")
        places = IndexBuilder(checkpoint.fd)
        history = read_history(checkpoint, KEYS, places)
        found = sum(len(entries) for entries in places.committed_entries(history.commits)) // 36
        places.close()
        all_counts = {name: count * per_record for name, per_record in COUNTS.items()}
        assert (found, history.problems, history.counts) == (number, (), all_counts), seed
        checkpoint.remove()
        checkpoint.close()


def test_journals_keep_their_share_of_a_full_disk(mount_tmpfs: Callable[[str], bytes]) -> None:
    """Both a journal that continues to write and one that is created later do."""
    place = mount_tmpfs("size=6m")
    checkpoint = Checkpoint.create(place + b"/checkpoint")
    checkpoint.write_header(CheckpointHeader(1, SECRET, 0, (), {}, (b"01234567",), 1))
    token, rng = b"test-%d-share" % os.getpid(), Random(1)
    first, greedy, late = (Journal(checkpoint.fd, 1, n, KEYS, 16 << 10, token) for n in range(3))
    for journal in (first, greedy):
        journal.reserve()
    records = [record(number, rng) for number in range(10)]
    first.add(records)
    fill(place + b"/filler")
    number = 100
    with suppress(NoSpace):
        while number < 1000:
            greedy.add([record(number, rng)], now=True)
            number += 1
    assert 110 < number < 1000
    late.reserve()
    with pytest.raises(NoSpace):
        late.commit(1, COUNTS)
    first.commit(1, COUNTS)
    os.unlink(place + b"/filler")
    late.add([record(200, rng)])
    late.commit(1, COUNTS)
    for journal in (first, greedy, late):
        journal.leave()
    places = IndexBuilder(checkpoint.fd)
    history = read_history(checkpoint, KEYS, places)
    found = sum(len(entries) for entries in places.committed_entries(history.commits)) // 36
    places.close()
    assert (found, history.problems) == (number - 100 + len(records) + 1, ())
    checkpoint.close()


def test_a_rank_without_work_has_no_journal(place: bytes) -> None:
    checkpoint = Checkpoint.create(place + b"/checkpoint")
    idle, busy = (Journal(checkpoint.fd, 1, rank, KEYS) for rank in range(2))
    busy.reserve()
    busy.add([record(1, Random(1))])
    for journal in (idle, busy):
        journal.flush()
        journal.commit(1, {} if journal is idle else {"found": 1})
        journal.close()
    assert os.listdir(checkpoint.path) == [journal_name(1, 1)]
    idle.commit(2, {"found": 2})
    idle.close()
    assert read_history(checkpoint, KEYS).counts == {"found": 3}
    checkpoint.close()
