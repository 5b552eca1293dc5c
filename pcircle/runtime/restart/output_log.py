"""The output of a job so far, by record, so that a restarted job does not repeat it.

A copy of the output that a job produces while it is running (standard output, lists and logs) is
stored in memory and, beyond a certain size, in a temporary file. If no rank is lost, this is the
only cost. If a rank is lost, the records are hashed, and a record of the restarted job is omitted
as many times as it was already output.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import IO

from pcircle.core.writing import discard, write_all

# The limit for all streams together. If lines are short, their hashes take two thirds of that in
# memory.
_MAX_BYTES = 256 << 20
_MEMORY_BYTES = 1 << 20  # the limit for each stream
_READ_BYTES = 1 << 20
_KIND, _STATE = b',"kind":"', b',"state":"'
_OF_RANK = b',"rank":'  # the part of an action's line from here on depends on the rank and the time


class _RecordStore:
    """The records of one stream, all with the same terminator."""

    def __init__(self, end: bytes) -> None:
        self.end = end
        self._texts: list[bytes] = []
        self._size = 0
        self._file: IO[bytes] | None = None

    def add(self, text: bytes) -> None:
        """Append records. Raises OSError if no space is left."""
        self._texts.append(text)
        self._size += len(text)
        if self._size > _MEMORY_BYTES:
            if self._file is None:
                import tempfile  # slow to import

                self._file = tempfile.TemporaryFile(prefix="pcircle-told-", buffering=0)  # noqa: SIM115
            texts, self._texts, self._size = self._texts, [], 0
            write_all(self._file.fileno(), b"".join(texts))

    def records(self) -> Iterator[bytes]:
        """Yield all records without their terminators. Raises OSError."""
        remainder = b""
        for text in self._blocks():
            *whole, remainder = (remainder + text).split(self.end)
            yield from whole

    def _blocks(self) -> Iterator[bytes]:
        if self._file is not None:
            self._file.seek(0)
            while data := self._file.read(_READ_BYTES):
                yield data
        yield from self._texts

    def close(self) -> None:
        if self._file is not None:
            discard(self._file)


class _Hashes:
    """A multiset of hashes of records."""

    def __init__(self, hashes: Iterable[int]) -> None:
        self._known, self._left = array("Q"), array("Q")
        for value, same in groupby(sorted(hashes)):
            self._known.append(value)
            self._left.append(sum(1 for _ in same))

    def take(self, value: int) -> bool:
        """Remove one occurrence of a hash; return False if none is left."""
        at = bisect_left(self._known, value)
        if at == len(self._known) or self._known[at] != value or not self._left[at]:
            return False
        self._left[at] -= 1
        return True


class OutputLog:
    """The output of a job, by stream.

    `is_whole` is true while all output is stored, so that the job can be restarted.
    """

    def __init__(self, max_bytes: int = _MAX_BYTES) -> None:
        self.is_whole: bool = True
        self._room = max_bytes
        self._stores: dict[str, _RecordStore] = {}
        self._before: dict[str, _Hashes] = {}

    def fresh(self, stream: str, text: bytes, end: bytes = b"\n") -> bytes:
        """Return the records in `text` that must still be output; `text` ends with a terminator."""
        before = self._before.get(stream)
        if before is not None:
            records = text.split(end)[:-1]
            new_records = [record for record in records if not before.take(_hash(stream, record))]
            text = b"".join(record + end for record in new_records)
        if text and self.is_whole:
            self._keep(stream, text, end)
        return text

    def fresh_lines(self, stream: str, lines: Sequence[str]) -> list[str]:
        """Like `fresh`, for lines that contain no newlines."""
        if not lines:
            return []
        text = "".join(line + "\n" for line in lines).encode(errors="surrogateescape")
        return self.fresh(stream, text).decode(errors="surrogateescape").split("\n")[:-1]

    def _keep(self, stream: str, text: bytes, end: bytes) -> None:
        self._room -= len(text)
        try:
            if self._room < 0:
                raise OSError
            self._stores.setdefault(stream, _RecordStore(end)).add(text)
        except OSError:  # without the output, the job cannot be restarted
            self.is_whole = False
            self.close()

    def begin_again(self) -> None:
        """From now on, omit records that were already output. Raises OSError."""
        self._before = {
            stream: _Hashes(_hash(stream, record) for record in records.records())
            for stream, records in self._stores.items()
        }

    def close(self) -> None:
        """Delete the stored output."""
        for records in self._stores.values():
            records.close()
        self._stores.clear()


def _hash(stream: str, record: bytes) -> int:
    from xxhash import xxh3_64_intdigest  # needed only after the loss of a rank

    if stream in ("actions", "copies"):
        record = record.rpartition(_OF_RANK)[0]
    if stream == "copies":  # the next run may use another copy method
        path = record.find(b'"path')
        record = record[path : record.find(_KIND, path)] + record[record.rfind(_STATE) :]
    return xxh3_64_intdigest(record)
