"""The journal's bytes: written records are read back, and nothing else is accepted."""

from __future__ import annotations

import os
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import sched_yield
from pathlib import Path
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcircle.ops.checkpoint.index import IndexBuilder
from pcircle.ops.checkpoint.journal import (
    COMMIT,
    RECORDS,
    CreatedDirectoryRecord,
    DamagedRange,
    InodeRecord,
    Journal,
    JournalFrame,
    NamesRecord,
    RangeRecord,
    Record,
    Recorder,
    RecordKeys,
    StartedFileRecord,
    SubtreeRecord,
    encode_frame,
    is_below,
    journal_name,
    read_frames,
    read_record,
    read_records,
)
from pcircle.ops.checkpoint.plan import JournalPlan
from pcircle.ops.checkpoint.previous_records import History, PreviousRecords, read_history
from pcircle.ops.checkpoint.store import Checkpoint
from pcircle.ops.copy.tree.counters import CopyCounters, RecordedCounts, named, totals
from tests.unit.checkpoints import KEYS, SECRET, checkpoint

__all__ = ["checkpoint"]  # a fixture

COUNTS = dict.fromkeys(RecordedCounts.names, 1)
SUMS = dict.fromkeys(CopyCounters.names, 1)
_EPOCHS = 300
ALL: tuple[Record, ...] = (
    SubtreeRecord(b"k" * 16, COUNTS, 5, 10**18, b"digest", 12),
    NamesRecord(KEYS.directory(0, b"a/b"), KEYS.names([b"one", b"\xff"]), COUNTS, 6, b"entries"),
    StartedFileRecord(b"f" * 16, b"t" * 16, b".fcp-01234567-0-1", 77, (5, 1 << 40, -1, 7)),
    RangeRecord(b"f" * 16, b".fcp-01234567-0-1", 4 << 20, 8 << 20, b"blocks"),
    InodeRecord(b"i" * 16, 0, b"a/b", b"one", 78, (5, 10, -1, 7), b"seal"),
    CreatedDirectoryRecord(b"m" * 16),
)


def _journal(checkpoint: Checkpoint, run: int = 1, rank: int = 0) -> Journal:
    return Journal(checkpoint.fd, run, rank, KEYS)


def _path(checkpoint: Checkpoint, run: int = 1, rank: int = 0) -> str:
    return os.fsdecode(os.path.join(checkpoint.path, journal_name(run, rank)))


def _frames(path: str) -> list[JournalFrame | DamagedRange]:
    fd = os.open(path, os.O_RDONLY)
    try:
        return list(read_frames(fd, KEYS))
    finally:
        os.close(fd)


def _indexed(checkpoint: Checkpoint) -> tuple[History, int]:
    """Read the journals and write their index; return the history and the size of the index."""
    places = IndexBuilder(checkpoint.fd)
    history = read_history(checkpoint, KEYS, places)
    checkpoint.write(b"index", places.committed_entries(history.commits))
    places.close()
    return history, os.stat("index", dir_fd=checkpoint.fd).st_size


@contextmanager
def _resumed(checkpoint: Checkpoint) -> Iterator[PreviousRecords]:
    history, _ = _indexed(checkpoint)
    plan = JournalPlan(checkpoint.path, SECRET, history.run + 1, 1.0, 0, (b"01234567",), True)
    resumed = PreviousRecords(plan, KEYS)
    yield resumed
    resumed.close()


def test_written_records_are_read_back(checkpoint: Checkpoint) -> None:
    journal = _journal(checkpoint)
    journal.add(ALL, 3)
    journal.commit(3, SUMS)
    journal.close()
    records, commit = _frames(_path(checkpoint))
    assert isinstance(records, JournalFrame)
    assert isinstance(commit, JournalFrame)
    assert (records.magic, records.epoch) == (RECORDS, 3)
    assert tuple(record for _, _, record in read_records(records.payload)) == ALL
    assert (commit.magic, commit.epoch) == (COMMIT, 3)


def test_commit_after_the_journal_was_closed(checkpoint: Checkpoint) -> None:
    """The journal is closed for the rank's account, and an abort may follow even then."""
    journal = _journal(checkpoint)
    journal.reserve()
    journal.add(ALL, 3)
    journal.close()
    journal.flush()  # it is empty, so nothing is opened
    journal.commit(3, SUMS)
    journal.close()
    records, commit = _frames(_path(checkpoint))
    assert isinstance(records, JournalFrame)
    assert isinstance(commit, JournalFrame)
    assert (records.magic, records.epoch, commit.magic, commit.epoch) == (RECORDS, 3, COMMIT, 3)
    assert read_history(checkpoint, KEYS).problems == ()


def test_a_record_has_the_epoch_of_its_rank_or_a_later_one(checkpoint: Checkpoint) -> None:
    journal = _journal(checkpoint)
    assert journal.add([ALL[0]], 7) == 7
    journal.enter(5)
    assert journal.add([ALL[1]], 4) == 5
    assert journal.add([ALL[2]]) == 5
    journal.close()
    assert [
        found.epoch for found in _frames(_path(checkpoint)) if isinstance(found, JournalFrame)
    ] == [
        7,
        5,
    ]


def test_entries_of_an_epoch_are_written_before_the_rank_answers(checkpoint: Checkpoint) -> None:
    """This holds for any order of adding and sealing, and for any epoch of received results."""
    journal = _journal(checkpoint)
    claimed: dict[bytes, int] = {}
    sealing = 1

    def add() -> None:
        rng = Random(1)
        number = 0
        while sealing <= _EPOCHS:
            key = b"%016d" % number
            number += 1
            claimed[key] = journal.add(
                [CreatedDirectoryRecord(key)], rng.choice((0, sealing, sealing + 1))
            )

    adding = threading.Thread(target=add)
    adding.start()
    written = []
    while sealing <= _EPOCHS:
        enough = len(claimed) + 5
        while len(claimed) < enough:
            sched_yield()
        journal.enter(sealing + 1)
        journal.flush()
        written.append(journal.bytes)
        sealing += 1
    adding.join()
    journal.close()
    found = {
        record.key: (frame.epoch, frame.offset)
        for frame in _frames(_path(checkpoint))
        if isinstance(frame, JournalFrame)
        for _, _, record in read_records(frame.payload)
    }
    assert set(claimed.values()) >= set(range(2, _EPOCHS))
    for key, epoch in claimed.items():
        assert found[key][0] == epoch
        assert epoch > _EPOCHS or found[key][1] < written[epoch - 1]


def test_only_committed_records_count(checkpoint: Checkpoint) -> None:
    """Any rank of the same run may have committed them."""
    done, late = SubtreeRecord(KEYS.directory(0, b"done"), COUNTS, 7, 8), KEYS.directory(0, b"late")
    first, second = _journal(checkpoint, 1, 0), _journal(checkpoint, 1, 1)
    first.add([done], 2)
    first.flush()
    first.add([SubtreeRecord(late, COUNTS, 7, 8), CreatedDirectoryRecord(late)], 3)
    first.close()  # killed before its own commit
    second.commit(2, SUMS)
    second.close()
    other = _journal(checkpoint, 2, 0)
    other.add([SubtreeRecord(KEYS.directory(0, b"other"), COUNTS, 7, 8)], 1)
    other.close()
    with _resumed(checkpoint) as resumed:
        assert resumed.subtrees(0, b"done") == [done]
        assert resumed.subtrees(0, b"late") == []
        assert resumed.subtrees(0, b"other") == []
        assert resumed.is_created(0, b"late"), "that a directory was made is true at once"


def test_reserved_space_is_not_damage(checkpoint: Checkpoint) -> None:
    journal = _journal(checkpoint)
    journal.commit(1, SUMS)
    journal.close()
    assert os.stat(_path(checkpoint)).st_size > journal.bytes
    history = read_history(checkpoint, KEYS)
    assert history.committed
    assert history.problems == ()


@pytest.mark.parametrize("seed", range(60))
def test_damage_costs_only_the_damaged_records(checkpoint: Checkpoint, seed: int) -> None:
    """Bytes are flipped, zeroed or cut anywhere: undamaged records are read, none is invented."""
    rng = Random(seed)
    journal = _journal(checkpoint)
    names = [b"%d" % number for number in range(40)]
    for number, name in enumerate(names):
        journal.add([SubtreeRecord(KEYS.directory(0, name), COUNTS, 7, 8)], number // 8 + 1)
        journal.flush()
    journal.commit(9, SUMS)
    journal.close()
    data = bytearray(Path(_path(checkpoint)).read_bytes())
    at = rng.randrange(journal.bytes)
    how = rng.choice(("flip", "zero", "cut"))
    if how == "flip":
        data[at] ^= 1 << rng.randrange(8)
    elif how == "zero":
        data[at : at + rng.randrange(1, 200)] = bytes(rng.randrange(1, 200))
    else:
        del data[at:]
    Path(_path(checkpoint)).write_bytes(data)
    # Another rank has the mark as well.
    other = _journal(checkpoint, 1, 1)
    other.commit(9, SUMS)
    other.close()
    with _resumed(checkpoint) as resumed:
        found = [bool(resumed.subtrees(0, name)) for name in names]
        assert resumed.subtrees(0, b"never") == []
    frame_bytes = journal.bytes // 41
    if how == "cut":
        assert all(found[: at // frame_bytes - 1])
    else:
        assert sum(found) >= len(names) - 4 - 200 // frame_bytes * 2, (how, at)
    if how == "flip":
        assert read_history(checkpoint, KEYS).problems, "damage is reported"


def test_records_of_an_abandoned_item_are_not_written(checkpoint: Checkpoint) -> None:
    recorder = Recorder(JournalPlan(checkpoint.path, SECRET, 1, 1.0, 0), 0, 1)
    for name in (b"abandoned", b"complete"):
        recorder.begin_item()
        recorder.add(SubtreeRecord(KEYS.directory(0, name), COUNTS, 7, 8))
    recorder.journal.commit(recorder.end_item(0), SUMS)
    recorder.close()
    with _resumed(checkpoint) as resumed:
        assert resumed.subtrees(0, b"complete")
        assert not resumed.subtrees(0, b"abandoned")


def test_problem_has_the_length_of_the_damage(checkpoint: Checkpoint) -> None:
    journal = _journal(checkpoint)
    ends = []
    for epoch in (1, 2, 3):
        journal.add([SubtreeRecord(KEYS.directory(0, b"%d" % epoch), COUNTS, 7, 8)], epoch)
        journal.flush()
        ends.append(journal.bytes)
    journal.close()
    path = Path(_path(checkpoint))
    data = bytearray(path.read_bytes())
    data[ends[0] + 40] ^= 1
    path.write_bytes(data)
    problems = read_history(checkpoint, KEYS).problems
    assert [problem.lost_bytes for problem in problems] == [ends[1] - ends[0]]


@pytest.mark.parametrize(
    "counts",
    [
        {**COUNTS, "counted_some_day": 7},
        {name: 1 for name in COUNTS if name != "special_skipped"},
        {},
    ],
    ids=["more", "fewer", "none"],
)
def test_unknown_and_missing_counters_are_accepted(
    counts: dict[str, int], checkpoint: Checkpoint
) -> None:
    """Another version wrote the record: known counters are read, missing ones are 0."""
    journal = _journal(checkpoint)
    names = NamesRecord(KEYS.directory(0, b"a"), KEYS.names([b"one"]), counts, 6)
    journal.add([SubtreeRecord(KEYS.directory(0, b"b"), counts, 7, 8), names], 1)
    journal.commit(1, counts)
    journal.close()
    history = read_history(checkpoint, KEYS)
    assert history.problems == ()
    assert history.counts == counts
    known = {name: n for name, n in counts.items() if name in COUNTS}
    with _resumed(checkpoint) as resumed:
        (subtree,) = resumed.subtrees(0, b"b")
        partial = resumed.partial(0, b"a")
    assert partial is not None
    for read in (subtree.counts, partial.counts):
        assert totals(read) == CopyCounters(**known)


def test_a_foreign_journal_is_not_used(checkpoint: Checkpoint) -> None:
    stranger = RecordKeys(b"another!")
    journal = Journal(checkpoint.fd, 1, 0, stranger)
    journal.add([SubtreeRecord(KEYS.directory(0, b""), COUNTS, 7, 8)], 1)
    journal.commit(1, SUMS)
    journal.close()
    history, index_bytes = _indexed(checkpoint)
    assert not history.committed
    assert not index_bytes
    assert history.problems


HOSTILE = (
    b"",
    b"\xc1",
    msgspec.msgpack.encode(["d", b"short", COUNTS, 1, 1]),
    msgspec.msgpack.encode(["d", b"k" * 16, dict.fromkeys(COUNTS, "x"), 1, 1]),
    msgspec.msgpack.encode(["d", b"k" * 16, dict.fromkeys(COUNTS, -1), 1, 1]),
    msgspec.msgpack.encode(["n", b"k" * 16, b"odd", COUNTS, 1]),
    msgspec.msgpack.encode(["d", b"k" * 16, {1: 1}, 1, 1]),
    msgspec.msgpack.encode(["d", b"k" * 16, [1] * 18, 1, 1]),
    msgspec.msgpack.encode(["d", b"k" * 16, dict.fromkeys(COUNTS, 1 << 63), 1, 1]),
    msgspec.msgpack.encode(["c", b"k" * 16, b".fcp-01234567-0-1", -4096, 1]),
    msgspec.msgpack.encode(["c", b"k" * 16, b".fcp-01234567-0-1", 1 << 63, 1]),
    msgspec.msgpack.encode(["i", b"k" * 16, 0, b"/etc", b"passwd", 1, [1, 2, 3, 4]]),
    msgspec.msgpack.encode(["i", b"k" * 16, 0, b"../..", b"x", 1, [1, 2, 3, 4]]),
    msgspec.msgpack.encode(["i", b"k" * 16, 0, b"a", b"../x", 1, [1, 2, 3, 4]]),
    msgspec.msgpack.encode(["i", b"k" * 16, -1, b"a", b"x", 1, [1, 2, 3, 4]]),
    msgspec.msgpack.encode(["i", b"k" * 16, 0, b".", b"..", 1, [1, 2, 3, 4]]),
    msgspec.msgpack.encode(["z", b"k" * 16]),
    msgspec.msgpack.encode({"d": 1}),
)


@pytest.mark.parametrize("data", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_records_are_refused(data: bytes, checkpoint: Checkpoint) -> None:
    """Each record is refused on its own, even with a checksum that requires the secret."""
    with pytest.raises((ValueError, msgspec.DecodeError)):
        read_record(data)
    good = encode_frame(KEYS, RECORDS, 1, len(data).to_bytes(4, "little") + data)
    Path(_path(checkpoint)).write_bytes(good + encode_frame(KEYS, COMMIT, 1, b"\x92\x00\x80"))
    history, index_bytes = _indexed(checkpoint)
    assert history.problems
    assert not index_bytes


def test_impossible_totals_are_refused(checkpoint: Checkpoint) -> None:
    """Each count is possible on its own, but their sum is not."""
    journal = _journal(checkpoint)
    for number in range(8):
        journal.add(
            [
                SubtreeRecord(
                    KEYS.directory(0, b"%d" % number), dict.fromkeys(COUNTS, 1 << 56), 1, 8
                )
            ],
            1,
        )
        journal.flush()
    journal.commit(1, SUMS)
    journal.close()
    history, index_bytes = _indexed(checkpoint)
    assert history.problems
    assert 0 < index_bytes < 8 * 36


def test_names_recorded_by_two_runs_count_once(checkpoint: Checkpoint) -> None:
    """The later run found the directory changed and repeated it; unprocessed names remain to do."""
    key = KEYS.directory(0, b"a")
    for run, names in ((1, ([b"1", b"2"], [b"3", b"4"], [b"5"])), (2, ([b"2", b"3"], [b"6"]))):
        journal = _journal(checkpoint, run)
        journal.add([NamesRecord(key, KEYS.names(batch), COUNTS, 6) for batch in names], 1)
        journal.commit(1, SUMS)
        journal.close()
    asked: list[bytes] = []

    def trust(record: NamesRecord) -> bool:
        asked.append(record.hashes)
        return True

    with _resumed(checkpoint) as resumed:
        partial = resumed.partial(0, b"a", trust)
    assert partial is not None
    every = [b"%d" % number for number in range(1, 7)]
    done = [
        name
        for name, is_done in zip(every, partial.are_done(KEYS.names(every)), strict=True)
        if is_done
    ]
    assert done == [b"2", b"3", b"5", b"6"]
    assert partial.counts == dict.fromkeys(COUNTS, 3)
    assert asked == [KEYS.names([b"2", b"3"]), KEYS.names([b"6"]), KEYS.names([b"5"])]


def test_few_journals_are_open_at_once(checkpoint: Checkpoint) -> None:
    """The number does not depend on how many runs and ranks there were."""
    for rank in range(100):
        journal = _journal(checkpoint, 1, rank)
        journal.add([SubtreeRecord(KEYS.directory(0, b"%d" % rank), COUNTS, 1, 8)], 1)
        journal.commit(1, SUMS)
        journal.close()
    with _resumed(checkpoint) as resumed:
        before = len(os.listdir("/proc/self/fd"))
        for rank in range(100):
            assert resumed.subtrees(0, b"%d" % rank)
        assert len(os.listdir("/proc/self/fd")) - before < 40


def test_a_giant_length_is_refused(checkpoint: Checkpoint) -> None:
    head = RECORDS + (0xFFFFFFFF).to_bytes(4, "little") + bytes(16)
    good = encode_frame(KEYS, COMMIT, 1, b"\x92\x00\x80")
    Path(_path(checkpoint)).write_bytes(head + good)
    assert [type(found) for found in _frames(_path(checkpoint))] == [DamagedRange, JournalFrame]


@given(st.binary(max_size=300))
def test_no_bytes_make_the_reader_fail(data: bytes) -> None:
    with suppress(ValueError, msgspec.DecodeError):  # the only two files that it may create
        list(read_records(data))


def test_invalid_temporary_names_are_not_continued(checkpoint: Checkpoint) -> None:
    key = KEYS.file(0, b"", b"big")
    journal = _journal(checkpoint)
    for name in (b"../../etc/passwd", b"other", b".fcp-76543210-0-1", b".fcp-01234567-0-1"):
        journal.add([StartedFileRecord(key, KEYS.file(0, b"", name), name, 1, (1, 1, 1, 1))], 1)
    journal.commit(1, SUMS)
    journal.close()
    with _resumed(checkpoint) as resumed:
        begun = resumed.started_files(0, b"", b"big", b"big")
    assert [record.temporary for record, _ in begun] == [b".fcp-01234567-0-1"]


@pytest.mark.parametrize(
    ("path", "name", "fine"),
    [
        (b"", b"a", True),
        (b".", b"a", True),
        (b"a/b", b"...", True),
        (b"a/../b", b"x", False),
        (b"a//b", b"x", False),
        (b"/a", b"x", False),
        (b"a", b"", False),
        (b"a", b"b\0c", False),
        (b"a", b"b/c", False),
        (b"", b"..", False),
    ],
)
def test_is_below(path: bytes, name: bytes, fine: bool) -> None:
    assert is_below(path, name) is fine


def test_keys_are_distinct() -> None:
    keys = {
        KEYS.directory(0, b"a"),
        KEYS.directory(1, b"a"),
        KEYS.directory(0, b"a/b"),
        KEYS.file(0, b"a", b"b"),
        KEYS.file(0, b"", b"a/b"[:1]),
        KEYS.inode(0, 1),
        RecordKeys(b"another!").directory(0, b"a"),
    }
    assert len(keys) == 7


def test_the_example_of_the_documentation(checkpoint: Checkpoint) -> None:
    """The bytes are those in the example of the page."""
    page = (Path(__file__).parents[2] / "docs" / "journal-format.rst").read_text()
    lines = re.findall(r"^    ([0-9a-f]{4})  ((?:[0-9a-f]{2} ?)+)", page, re.MULTILINE)
    example = b"".join(bytes.fromhex(data) for _, data in lines)
    assert [int(offset, 16) for offset, _ in lines] == [
        *range(0, 0x75, 16),
        *range(0x75, len(example), 16),
    ]
    keys = RecordKeys(bytes(range(8)))
    done = CopyCounters(found=2, sized=2, files=2, bytes_found=10, bytes_done=10)
    counts = named(done.counts())
    names = NamesRecord(keys.directory(0, b"sub"), keys.names([b"a", b"b"]), counts, 5)
    journal = Journal(checkpoint.fd, 1, 0, keys)
    journal.add([names], 3)
    done.scans_due = done.scans_done = 1
    journal.commit(3, named(done.row()))
    journal.close()
    assert Path(_path(checkpoint)).read_bytes()[: journal.bytes] == example


def test_a_journal_grows_without_reserved_space(tmp_path: Path) -> None:
    """On ramfs, ext2 or NFSv3 the journal grows past the size of a first reservation."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount")
    mount = ["mount", "-t", "ramfs", "none", str(tmp_path)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("ramfs can't be mounted here")
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        journal = Journal(fd, 1, 0, KEYS)
        journal.reserve()
        for number in range(20_000):
            journal.add([SubtreeRecord(b"%016d" % number, COUNTS, number, 10**18)])
        journal.commit(1, SUMS)
        journal.close()
        assert os.stat(journal_name(1, 0), dir_fd=fd).st_size > 1 << 20
        read = os.open(journal_name(1, 0), os.O_RDONLY, dir_fd=fd)
        frames = list(read_frames(read, KEYS))
        os.close(read)
        assert not any(isinstance(frame, DamagedRange) for frame in frames)
    finally:
        os.close(fd)
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)
