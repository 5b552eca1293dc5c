"""External sorting: sorted runs in temporary files, merged.

A record is bytes, and a run a file with lists of records. If there are many runs, they are first
merged in groups: another pass, but never more descriptors and buffers than a rank can spare.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from itertools import chain, islice
from typing import IO

import msgspec

from pcircle.core.encoding import show
from pcircle.core.writing import discard, write_all

RUN_BYTES = 16 << 20
FAN_IN = 64
"""The number of runs that are merged at a time; with the levels, the number of open files."""
_READ_BYTES = 128 << 10
_LIST_BYTES = 32 << 10  # of records as objects, which are written and read together
_OBJECT_BYTES = 64  # in addition to its content
_LENGTH_BYTES = 8  # before each list
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[bytes]).decode
MAX_BYTES = 16 << 20
"""The largest record: a file without a terminator within this size is not a list."""
_SHOWN_BYTES = 200  # of a name in a message
END = b"/"
"""The terminator of records in files."""
TOGETHER = 4096
"""The number of records that are written at once."""


class Sorter:
    """Receives records and yields them in order. OSError without space."""

    def __init__(self, run_bytes: int = RUN_BYTES) -> None:
        self._run_bytes = run_bytes
        self._together = 1
        self._runs: list[list[IO[bytes]]] = [[]]  # by level: each of many of the level before
        self._some: list[bytes] = []
        self._size = 0

    def add(self, record: bytes) -> None:
        """Add a record."""
        self.extend((record,))

    def extend(self, records: Sequence[bytes]) -> None:
        """Add several records that are in memory."""
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
        """Write sorted records as a run of a level."""
        import tempfile  # takes long to import

        run = tempfile.TemporaryFile(prefix="pcircle-sort-", buffering=0)  # noqa: SIM115
        if level == len(self._runs):
            self._runs.append([])
        self._runs[level].append(run)
        while batch := list(islice(records, self._together)):
            data = _encode(batch)
            write_all(run.fileno(), len(data).to_bytes(_LENGTH_BYTES, "big") + data)
        run.seek(0)

    def sorted(self) -> Iterator[bytes]:
        """Yield all records in order, once."""
        self._some.sort()
        runs = [run for level in self._runs for run in level]
        yield from merge(self._some, _merged(runs)) if runs else self._some

    def close(self) -> None:
        """Release the space."""
        for runs in self._runs:
            _close(runs)


def _merged(runs: Sequence[IO[bytes]]) -> Iterator[bytes]:
    """Merge the records of runs; one list of each is read ahead."""
    return merge(*(chain.from_iterable(_lists(run)) for run in runs))


def _lists(run: IO[bytes]) -> Iterator[list[bytes]]:
    """Yield the lists of records of a run. OSError."""
    while length := run.read(_LENGTH_BYTES):
        yield _decode(run.read(int.from_bytes(length, "big")))


def _close(runs: list[IO[bytes]]) -> None:
    for run in runs:
        discard(run)
    runs.clear()


def sorted_records(records: Iterable[bytes], run_bytes: int = RUN_BYTES) -> Iterator[bytes]:
    """Yield records in order, however many there are. OSError without space."""
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
    """Yield the terminated pieces of a file. OSError.

    ValueError if a piece is too long or, with `complete`, if the last one is not terminated.
    """
    partial = b""
    while data := stream.read(read_bytes):
        *whole, partial = (partial + data).split(end)
        yield from whole
        if len(partial) > MAX_BYTES:
            raise ValueError(f"it contains a name of more than {MAX_BYTES:,} bytes")
    if complete:
        refuse_cut(partial, end)
    if partial:
        yield partial


def refuse_cut(data: bytes, end: bytes) -> None:
    """Raise ValueError if the last piece of a file is not terminated, and so may be truncated."""
    last = data.rpartition(end)[2]
    if last:
        name = show(last if len(last) <= _SHOWN_BYTES else last[:_SHOWN_BYTES] + b"...")
        missing = "NUL" if end == b"\0" else "newline"
        raise ValueError(f"'{name}' at its end has no {missing} and may be cut off")
