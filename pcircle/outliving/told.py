"""What a job has told, record by record: one that is begun again must tell none of it twice.

What goes out while a job runs (lines of standard output, of lists and logs) is kept here as well, a
copy of its bytes and nothing more, in a temporary file once it is much: that is all that a job pays
in which no rank is lost. If one is, the records become hashes, and each record of the second
beginning that has been told is left out, as often as it was told.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import IO

from pcircle.writing import discard, write_all

_MOST_BYTES = 256 << 20  # of all; as hashes of short lines two thirds as much memory
_IN_MEMORY_BYTES = 1 << 20  # of a stream
_READ_BYTES = 1 << 20
_KIND, _STATE = b',"kind":"', b',"state":"'
_OF_RANK = b',"rank":'  # from here on a line of actions is of who did it, and when


class _Kept:
    """The records of one stream, which all end alike."""

    def __init__(self, end: bytes) -> None:
        self.end = end
        self._texts: list[bytes] = []
        self._size = 0
        self._file: IO[bytes] | None = None

    def add(self, text: bytes) -> None:
        """More of them. OSError without the space."""
        self._texts.append(text)
        self._size += len(text)
        if self._size > _IN_MEMORY_BYTES:
            if self._file is None:
                import tempfile  # takes long to import

                self._file = tempfile.TemporaryFile(prefix="pcircle-told-", buffering=0)  # noqa: SIM115
            texts, self._texts, self._size = self._texts, [], 0
            write_all(self._file.fileno(), b"".join(texts))

    def records(self) -> Iterator[bytes]:
        """All of them, each without its end. OSError."""
        rest = b""
        for text in self._blocks():
            *whole, rest = (rest + text).split(self.end)
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
    """Hashes of records, each as often as it was told."""

    def __init__(self, hashes: Iterable[int]) -> None:
        self._known, self._left = array("Q"), array("Q")
        for each, same in groupby(sorted(hashes)):
            self._known.append(each)
            self._left.append(sum(1 for _ in same))

    def take(self, wanted: int) -> bool:
        """Whether a record with this hash is left; then it is one less."""
        at = bisect_left(self._known, wanted)
        if at == len(self._known) or self._known[at] != wanted or not self._left[at]:
            return False
        self._left[at] -= 1
        return True


class Told:
    """What goes to some streams. `is_whole`: all was kept, so that the job can be begun again."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self.is_whole = True
        self._room = most_bytes
        self._kept: dict[str, _Kept] = {}
        self._before: dict[str, _Hashes] = {}

    def fresh(self, stream: str, text: bytes, end: bytes = b"\n") -> bytes:
        """The records of a text that are to be told now; it ends with the end of a record."""
        before = self._before.get(stream)
        if before is not None:
            records = text.split(end)[:-1]
            untold = [each for each in records if not before.take(_hash(stream, each))]
            text = b"".join(each + end for each in untold)
        if text and self.is_whole:
            self._keep(stream, text, end)
        return text

    def fresh_lines(self, stream: str, lines: Sequence[str]) -> list[str]:
        """As `fresh`, of lines without their ends; what is in one is no newline."""
        if not lines:
            return []
        text = "".join(line + "\n" for line in lines).encode(errors="surrogateescape")
        return self.fresh(stream, text).decode(errors="surrogateescape").split("\n")[:-1]

    def _keep(self, stream: str, text: bytes, end: bytes) -> None:
        self._room -= len(text)
        try:
            if self._room < 0:
                raise OSError
            self._kept.setdefault(stream, _Kept(end)).add(text)
        except OSError:  # then a rank that is lost is the end
            self.is_whole = False
            self.close()

    def begin_again(self) -> None:
        """From now on what was told is not told again. OSError."""
        self._before = {
            stream: _Hashes(_hash(stream, each) for each in kept.records())
            for stream, kept in self._kept.items()
        }

    def close(self) -> None:
        """Nothing of it is wanted any more."""
        for kept in self._kept.values():
            kept.close()
        self._kept.clear()


def _hash(stream: str, record: bytes) -> int:
    from xxhash import xxh3_64_intdigest  # only where a rank was lost

    if stream in ("actions", "copies"):
        record = record.rpartition(_OF_RANK)[0]
    if stream == "copies":  # what is copied again may be so in another way
        path = record.find(b'"path')
        record = record[path : record.find(_KIND, path)] + record[record.rfind(_STATE) :]
    return xxh3_64_intdigest(record)
