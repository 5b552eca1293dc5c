"""Sorting more records than there is memory for: sorted runs in temporary files, merged.

A record is bytes, and a run a file of lists of these. When there are many runs they are first
merged by the score: that takes another pass over them, but no more descriptors and buffers than a
rank can spare, whatever is sorted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from itertools import chain, islice
from typing import IO

import msgspec

from pcircle.names import show
from pcircle.writing import discard, write_all

RUN_BYTES = 16 << 20
FAN_IN = 64
"""Runs that are merged at a time; with that many levels of them, all that is ever open."""
_READ_BYTES = 128 << 10
_LIST_BYTES = 32 << 10  # of records as objects, which are written and read together
_OBJECT_BYTES = 64  # in addition to what is in it
_LENGTH_BYTES = 8  # before each list
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[bytes]).decode
MAX_BYTES = 16 << 20
"""Of a record: what has no ends for so long is no list."""
_SHOWN_BYTES = 200  # of a name in a message
END = b"/"
"""What ends records in files of those that have none."""
TOGETHER = 4096
"""Records that are written at once."""


class Sorter:
    """Takes records as they come, and gives them in their order. OSError without the space."""

    def __init__(self, run_bytes: int = RUN_BYTES) -> None:
        self._run_bytes = run_bytes
        self._together = 1
        self._runs: list[list[IO[bytes]]] = [[]]  # by level: each of many of the level before
        self._some: list[bytes] = []
        self._size = 0

    def add(self, record: bytes) -> None:
        """One more."""
        self.extend((record,))

    def extend(self, records: Sequence[bytes]) -> None:
        """Add several, which are in memory anyway."""
        self._some += records
        self._size += sum(map(len, records)) + _OBJECT_BYTES * len(records)
        if self._size > self._run_bytes:
            self._put_away()

    def _put_away(self) -> None:
        self._together = max(1, _LIST_BYTES * len(self._some) // self._size)
        self._keep(iter(sorted(self._some)), 0)
        self._some.clear()
        self._size = 0
        for level, runs in enumerate(self._runs):
            if len(runs) == FAN_IN:
                self._keep(_merged(runs), level + 1)
                _close(runs)

    def _keep(self, records: Iterator[bytes], level: int) -> None:
        """Write records, which are in order, as a run of a level."""
        import tempfile  # takes long to import

        run = tempfile.TemporaryFile(prefix="pcircle-sort-", buffering=0)  # noqa: SIM115
        if level == len(self._runs):
            self._runs.append([])
        self._runs[level].append(run)
        while some := list(islice(records, self._together)):
            data = _encode(some)
            write_all(run.fileno(), len(data).to_bytes(_LENGTH_BYTES, "big") + data)
        run.seek(0)

    def sorted(self) -> Iterator[bytes]:
        """All of them, in their order; once."""
        self._some.sort()
        runs = [run for level in self._runs for run in level]
        yield from merge(self._some, _merged(runs)) if runs else self._some

    def close(self) -> None:
        """Give the space back."""
        for runs in self._runs:
            _close(runs)


def _merged(runs: Sequence[IO[bytes]]) -> Iterator[bytes]:
    """Records of some runs. Of each a list is read ahead."""
    return merge(*(chain.from_iterable(_lists(run)) for run in runs))


def _lists(run: IO[bytes]) -> Iterator[list[bytes]]:
    """The lists of records of a run. OSError."""
    while length := run.read(_LENGTH_BYTES):
        yield _decode(run.read(int.from_bytes(length, "big")))


def _close(runs: list[IO[bytes]]) -> None:
    for run in runs:
        discard(run)
    runs.clear()


def sorted_records(records: Iterable[bytes], run_bytes: int = RUN_BYTES) -> Iterator[bytes]:
    """Records in their order, however many there are. OSError without the space."""
    sorter = Sorter(run_bytes)
    try:
        for record in records:
            sorter.add(record)
        yield from sorter.sorted()
    finally:
        sorter.close()


def pieces(
    stream: IO[bytes], end: bytes, read_bytes: int = _READ_BYTES, *, complete: bool = False
) -> Iterator[bytes]:
    """What stands in a file, piece by piece, each ended by `end`. OSError.

    ValueError if a piece is longer than it may be or, with `complete`, the last one is not ended.
    """
    rest = b""
    while data := stream.read(read_bytes):
        *whole, rest = (rest + data).split(end)
        yield from whole
        if len(rest) > MAX_BYTES:
            raise ValueError(f"it contains a name of more than {MAX_BYTES:,} bytes")
    if complete:
        refuse_cut(rest, end)
    if rest:
        yield rest


def refuse_cut(data: bytes, end: bytes) -> None:
    """Raise ValueError if the last piece of what a file has is not ended, and so may be cut off."""
    last = data.rpartition(end)[2]
    if last:
        name = show(last if len(last) <= _SHOWN_BYTES else last[:_SHOWN_BYTES] + b"...")
        missing = "NUL" if end == b"\0" else "newline"
        raise ValueError(f"'{name}' at its end has no {missing} and may be cut off")
