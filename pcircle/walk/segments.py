"""Results that are too long for messages: each rank writes files, which all ranks merge.

A rank appends its records to one file and their sorted index to another (`SegmentWriter`). A record
consists of a path, which determines its place in the order of a walk, and a text, which may be
empty or gigabytes long. The two files are a *part* of the result.

`merged` yields the texts of all records between two keys, in order. From the index of every part it
takes the entries between these keys, sorts them, and reads the texts in batches that fit in memory.
Each batch is read from one part after another. Thus only one part is open at a time, however many
there are, and only one batch is in memory. A merge of sorted runs would need several passes, or a
descriptor and a buffer for each run. The price is that every batch reopens its parts. A range is
therefore several batches long (see `cut`), so that most batches are full.

A `Sink` takes results that are too long for messages and memory, such as names, digests and
differences. Each rank writes its records to a `SegmentWriter` in a directory that all ranks can
access. When all work is done, the ranks sort the records in three steps, so that no single process
has to sort a long result:

1. A `Seal` is posted to every rank, and the rank ends its part and sorts the index.
2. Keys sampled from all parts divide the records into ranges of about 64 MiB (`cut`). If there is
   only one range, the third step is omitted.
3. A `Merge`, which any rank may steal, reads one range from all parts (`merged`), and writes it to
   a file in order.

Merging is thus ordinary work: it can be stolen, it ends early if the job is stopped, and the engine
treats it like any other item. Afterwards, rank 0 reads the ordered records from `result`, and can
write them to standard output or compute their checksum. It only copies bytes and compares no names.

Failures do not use the sink: they must be reported immediately on rank 0's standard error, and
their log must be usable even if the job is killed. They are sent as notices, packed and
acknowledged (`pcircle.circle.notices`).

Use in a task:

    seed:     return [Gather(tuple(items))]      instead of the items
    process:  if isinstance(item, SINK_ITEMS): return sink.process(item, context)
    join:     if isinstance(item, SINK_ITEMS): return sink.join(item, own, merged, context)
    anywhere: with sink.part() as part: part.add(path, text)

The observer of the task reads `result(place, ranks)`, then calls `remove(place, ranks)`.
"""

from __future__ import annotations

import io
import mmap
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any, BinaryIO, Generic, TypeAlias, TypeVar, cast

import msgspec

from pcircle.core.errors import require_type
from pcircle.core.writing import WholeFile
from pcircle.fs.safe_open import create, reading
from pcircle.fs.sorting import END, TOGETHER, Sorter, sorted_records
from pcircle.runtime import Context
from pcircle.walk.items import Gather, Merge, Seal

RANGE_BYTES = 64 << 20
"""The intended size of a range; actual sizes vary, because `cut` only samples the keys."""
MAX_RANGES = 1024
_BATCH_BYTES = 16 << 20
_BATCH_RECORDS = 100_000
_COPY_BYTES = 1 << 20
_FLUSH_BYTES = 1 << 20
_SAMPLES = 8  # samples per RANGE_BYTES of a part's text
_MAX_SAMPLES = 256  # per part
_KEY_END = b"\0\0"


def key_of(path: bytes) -> bytes:
    """Return the sort key of the records of a path."""
    return path.replace(b"/", b"\0") + _KEY_END


class SegmentWriter:
    """Writes one rank's records. `place` is the path of the files without their suffixes.

    Methods raise OSError if a file cannot be created or written to.
    """

    def __init__(self, place: bytes) -> None:
        self._place = place
        self._text = _create(place + b".text")
        self._sorter = Sorter()
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._reached = 0
        self._began = 0

    def begin(self) -> None:
        """Begin a record."""
        self._began = self._reached

    def put(self, data: bytes) -> None:
        """Add text to the record."""
        self._pending.append(data)
        self._pending_bytes += len(data)
        self._reached += len(data)
        if self._pending_bytes >= _FLUSH_BYTES:
            self._flush()

    def end(self, path: bytes) -> None:
        """End the record and file it under `path`."""
        self._sorter.add(b"%b%d %d" % (key_of(path), self._began, self._reached - self._began))

    def add(self, path: bytes, text: bytes) -> None:
        """Add a record with this text."""
        self.begin()
        self.put(text)
        self.end(path)

    def _flush(self) -> None:
        self._text.write(b"".join(self._pending))
        self._pending.clear()
        self._pending_bytes = 0

    def close(self) -> None:
        """Write the sorted index and close both files, so that other ranks can read them.

        The files are not synced: closing them is sufficient on network file systems too, and they
        are not needed after a crash.
        """
        try:
            with self._text:
                self._flush()
            with _create(self._place + b".index") as index:
                records = self._sorter.sorted()
                while batch := list(islice(records, TOGETHER)):
                    index.write(END.join(batch) + END)
        finally:
            self._sorter.close()


def _create(path: bytes) -> BinaryIO:
    return io.BufferedWriter(WholeFile(create(path, 0o600), "wb"))


def present(place: bytes, ranks: int) -> list[bytes]:
    """Return the parts that ranks have written at a place."""
    parts = [b"%b-%d" % (place, rank) for rank in range(ranks)]
    return [part for part in parts if os.path.exists(part + b".index")]


# ---- ranges ----------------------------------------------------------------------------------


def cut(parts: Sequence[bytes], range_bytes: int = RANGE_BYTES) -> list[bytes]:
    """Return the keys that separate ranges of about this size, or no keys if there is one range.

    Keys are sampled at regular intervals from each part, more of them from larger parts. Raises
    OSError.
    """
    weighed: list[tuple[bytes, float]] = []
    total_bytes = 0
    for part in parts:
        size_bytes = os.stat(part + b".text").st_size
        total_bytes += size_bytes
        with _index(part) as index:
            count = max(1, min(_MAX_SAMPLES, _SAMPLES * size_bytes // range_bytes))
            middles = (len(index) * (2 * at + 1) // (2 * count) for at in range(count))
            keys = [_key_from(index, middle) for middle in middles]
        weighed += [(key, size_bytes / count) for key in keys if key]
    ranges = min(MAX_RANGES, total_bytes // range_bytes)
    cuts: list[bytes] = []
    passed = 0.0
    for key, weight in sorted(weighed):
        due = passed >= (len(cuts) + 1) * total_bytes / max(1, ranges)
        if due and len(cuts) + 1 < ranges and (not cuts or key > cuts[-1]):
            cuts.append(key)
        passed += weight
    return cuts


@contextmanager
def _index(part: bytes) -> Iterator[mmap.mmap | bytes]:
    fd = reading(part + b".index")
    try:
        size = os.fstat(fd).st_size
        mapped = mmap.mmap(fd, size, prot=mmap.PROT_READ) if size else None
    finally:
        os.close(fd)
    try:
        yield b"" if mapped is None else mapped
    finally:
        if mapped is not None:
            mapped.close()


def _start_from(index: mmap.mmap | bytes, at: int) -> int:
    """Return the start of the first record at or after `at`, or the end of the index."""
    return index.find(END, at - 1) + 1 or len(index) if at else 0


def _key_from(index: mmap.mmap | bytes, at: int) -> bytes:
    start = _start_from(index, at)
    record = index[start : index.find(END, start)] if start < len(index) else b""
    return record[: record.rfind(_KEY_END) + len(_KEY_END)] if record else b""


def _first(index: mmap.mmap | bytes, key: bytes) -> int:
    """Return the start of the first record at or after a key, or the end of the index."""
    # Records before `low` are before the key; records from `high` on are not.
    low, high = 0, len(index)
    while low < high:
        middle = (low + high) // 2
        start = _start_from(index, middle)
        if start >= high:
            high = middle  # no record starts between `middle` and `high`
            continue
        end = index.find(END, start)
        if index[start:end] < key:
            low = end + 1
        else:
            high = start
    return low


def merged(parts: Sequence[bytes], low: bytes = b"", high: bytes | None = None) -> Iterator[bytes]:
    """Yield the texts of all records from one key to another, in order, in bounded pieces.

    Raises OSError, for example if a part is shorter than its index states.
    """
    ranges: list[tuple[int, int, int]] = []
    ranges_bytes = 0
    for record in sorted_records(_records(parts, low, high)):
        begin, length, number = map(int, record.rpartition(_KEY_END)[2].split(b" "))
        full = ranges_bytes + length > _BATCH_BYTES or len(ranges) == _BATCH_RECORDS
        if full and ranges:
            yield from _texts(parts, ranges)
            ranges, ranges_bytes = [], 0
        ranges.append((number, begin, length))
        ranges_bytes += length
    yield from _texts(parts, ranges)


def _records(parts: Sequence[bytes], low: bytes, high: bytes | None) -> Iterator[bytes]:
    """Yield the records between two keys in all indexes, each with the number of its part."""
    for number, part in enumerate(parts):
        with _index(part) as index:
            at = _first(index, low)
            end = len(index) if high is None else _first(index, high)
            while at < end:
                stop = index.find(END, at)
                yield b"%b %d" % (index[at:stop], number)
                at = stop + 1


def _texts(parts: Sequence[bytes], ranges: Sequence[tuple[int, int, int]]) -> Iterator[bytes]:
    """Yield texts in the given order. Each is given as (number of the part, begin, length)."""
    if len(ranges) == 1:  # it may be gigabytes long
        number, begin, length = ranges[0]
        yield from _read(parts[number], begin, length)
        return
    found = [b""] * len(ranges)
    places = sorted((*place, at) for at, place in enumerate(ranges))
    opened, fd = -1, -1
    try:
        for number, begin, length, at in places:
            if number != opened:
                if fd >= 0:
                    os.close(fd)
                    fd = -1
                fd, opened = reading(parts[number] + b".text"), number
            found[at] = b"".join(_pieces(fd, begin, length))
    finally:
        if fd >= 0:
            os.close(fd)
    # Long texts are joined a few at a time, because one join would hold all of them twice.
    together = max(1, TOGETHER * len(found) * 64 // max(1, sum(map(len, found))))
    for at in range(0, len(found), together):
        yield b"".join(found[at : at + together])


def _read(part: bytes, begin: int, length: int) -> Iterator[bytes]:
    fd = reading(part + b".text")
    try:
        yield from _pieces(fd, begin, length)
    finally:
        os.close(fd)


def _pieces(fd: int, begin: int, length: int) -> Iterator[bytes]:
    while length:
        data = os.pread(fd, min(length, _COPY_BYTES), begin)
        if not data:
            raise OSError("a part of the result is truncated")
        yield data
        begin += len(data)
        length -= len(data)


# ---- the whole -------------------------------------------------------------------------------


def _range_name(place: bytes, number: int, *, last: bool) -> bytes:
    return b"%b-%b-%d" % (place, b"last" if last else b"range", number)


def write_range(place: bytes, number: int, texts: Iterable[bytes], *, last: bool) -> None:
    """Write the texts of a range to its file, which is named after the number. Raises OSError.

    The name also shows whether the range is the last.
    """
    with _create(_range_name(place, number, last=last)) as stream:
        for text in texts:
            stream.write(text)


def result(place: bytes, ranks: int) -> Iterator[bytes]:
    """Yield the text of all records, in order and in pieces.

    It is read from the ranges if they exist, otherwise from the parts.

    Raises OSError, for example if a range is missing.
    """
    if not os.path.exists(_range_name(place, 0, last=False)):
        yield from merged(present(place, ranks))
        return
    for number in range(MAX_RANGES):
        last = not os.path.exists(_range_name(place, number, last=False))
        with open(reading(_range_name(place, number, last=last)), "rb") as stream:
            while data := stream.read(_COPY_BYTES):
                yield data
        if last:
            return


def remove(place: bytes, ranks: int) -> None:
    """Remove the parts and ranges at a place, but not the file `place` itself. Raises OSError."""
    parts = (b"%b-%d" % (place, rank) for rank in range(ranks))
    names = [part + ending for part in parts for ending in (b".text", b".index")]
    names += [
        _range_name(place, number, last=last)
        for number in range(MAX_RANGES)
        for last in (False, True)
    ]
    for name in names:
        with suppress(FileNotFoundError):
            os.unlink(name)


# ---- sink ----------------------------------------------------------------------------------------


I = TypeVar("I")  # noqa: E741 - item
R = TypeVar("R")  # result


SinkItem: TypeAlias = Gather[I] | Seal | Merge


class _Stage(msgspec.Struct, frozen=True):
    """The stage for which a `Gather` is waiting, and the result of the work itself."""

    waits: str
    result: object = None


class Sink(Generic[R]):
    """One rank's side of a sink. Its threads share it, but only one at a time may use `part`.

    `place` is a file that rank 0 has created, and the prefix of the names of all files of the sink.
    If a rank does not find it, the path leads elsewhere on that rank's node. `nothing` returns an
    empty result, and `unwritable` the exception for files that cannot be written to or read.
    """

    def __init__(
        self,
        place: bytes,
        rank: int,
        ranks: int,
        nothing: Callable[[], R],
        unwritable: Callable[[OSError], Exception],
        range_bytes: int = RANGE_BYTES,
    ) -> None:
        self._place = place
        self._rank = rank
        self._ranks = ranks
        self._nothing = nothing
        self._unwritable = unwritable
        self._range_bytes = range_bytes
        self._alone = threading.Lock()
        self._part: SegmentWriter | None = None

    @contextmanager
    def part(self) -> Iterator[SegmentWriter]:
        """Give this thread exclusive use of the rank's part."""
        with self._alone, self._translated_errors():
            if self._part is None:
                os.stat(self._place)  # fails on a node where rank 0 would never see the part
                self._part = SegmentWriter(b"%b-%d" % (self._place, self._rank))
            yield self._part

    def seal(self) -> None:
        """End this rank's part."""
        with self._alone, self._translated_errors():
            part, self._part = self._part, None
            if part is not None:
                part.close()

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._unwritable(error) from error

    def process(self, item: SinkItem[Any], context: Context[Any]) -> Any:
        """Spawn the gathered items, end the part, or merge a range, depending on the item."""
        if isinstance(item, Gather):
            context.spawn(item.items)
            return _Stage("work") if item.items else self._nothing()
        if isinstance(item, Seal):
            self.seal()
        else:
            with self._translated_errors():
                texts = merged(present(self._place, self._ranks), item.low, item.high)
                write_range(self._place, item.number, texts, last=item.high is None)
        return self._nothing()

    def join(self, item: SinkItem[Any], own: Any, merged: R, context: Context[Any]) -> R:
        """Start the next stage after all work or all seals; return the result after all merges."""
        stage = require_type(_Stage, own)
        if stage.waits == "work":
            for rank in range(self._ranks):
                context.post(rank, [Seal()])
            return cast(R, _Stage("seals", merged))
        if stage.waits == "seals":
            with self._translated_errors():
                cuts = cut(present(self._place, self._ranks), self._range_bytes)
            if cuts:
                ranges = enumerate(zip([b"", *cuts], [*cuts, None], strict=True))
                context.spawn([Merge(number, low, high) for number, (low, high) in ranges])
                return cast(R, _Stage("merges", stage.result))
        return cast(R, stage.result)
