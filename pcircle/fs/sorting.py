"""External sorting: sorted runs are written to temporary files and merged.

Records are bytes, and a run is a file with lists of records. If there are many runs, they are first
merged in groups. This requires another pass, but limits the number of descriptors and buffers.
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
"""The number of runs that are merged at a time; it limits the open files per level."""
_READ_BYTES = 128 << 10
_LIST_BYTES = 32 << 10  # memory of a list of records that is written and read at once
_OBJECT_BYTES = 64  # the overhead of a bytes object
_LENGTH_BYTES = 8  # size of the length that precedes each list
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[bytes]).decode
MAX_BYTES = 16 << 20
"""The maximum length of a name in a list; a file with a longer name is not a list."""
_SHOWN_BYTES = 200  # bytes of a name that a message quotes
END = b"/"
"""The terminator of records in sorted files."""
TOGETHER = 4096
"""The number of records that are written in one call."""


class Sorter:
    """Receives records and yields them in order. Methods raise OSError if no space is left."""

    def __init__(self, run_bytes: int = RUN_BYTES) -> None:
        self._run_bytes = run_bytes
        self._together = 1
        # By level: each run is merged from FAN_IN runs of the level below.
        self._runs: list[list[IO[bytes]]] = [[]]
        self._some: list[bytes] = []
        self._size = 0

    def add(self, record: bytes) -> None:
        """Add a record."""
        self.extend((record,))

    def extend(self, records: Sequence[bytes]) -> None:
        """Add several records."""
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
        import tempfile  # slow to import

        run = tempfile.TemporaryFile(prefix="pcircle-sort-", buffering=0)  # noqa: SIM115
        if level == len(self._runs):
            self._runs.append([])
        self._runs[level].append(run)
        while batch := list(islice(records, self._together)):
            data = _encode(batch)
            write_all(run.fileno(), len(data).to_bytes(_LENGTH_BYTES, "big") + data)
        run.seek(0)

    def sorted(self) -> Iterator[bytes]:
        """Yield all records in order. The result can be used only once."""
        self._some.sort()
        runs = [run for level in self._runs for run in level]
        yield from merge(self._some, _merged(runs)) if runs else self._some

    def close(self) -> None:
        """Delete the temporary files."""
        for runs in self._runs:
            _close(runs)


def _merged(runs: Sequence[IO[bytes]]) -> Iterator[bytes]:
    """Merge the records of runs, with one list of each run in memory."""
    return merge(*(chain.from_iterable(_lists(run)) for run in runs))


def _lists(run: IO[bytes]) -> Iterator[list[bytes]]:
    """Yield the lists of records in a run. Raises OSError."""
    while length := run.read(_LENGTH_BYTES):
        yield _decode(run.read(int.from_bytes(length, "big")))


def _close(runs: list[IO[bytes]]) -> None:
    for run in runs:
        discard(run)
    runs.clear()


def sorted_records(records: Iterable[bytes], run_bytes: int = RUN_BYTES) -> Iterator[bytes]:
    """Yield any number of records in order. Raises OSError if no space is left."""
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
    """Yield the pieces of a file that are terminated by `end`. Raises OSError.

    Raises ValueError if a piece is too long or, with `complete`, if the last piece is not
    terminated.
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
    """Raise ValueError if the last piece of a file is not terminated and so may be truncated."""
    last = data.rpartition(end)[2]
    if last:
        name = show(last if len(last) <= _SHOWN_BYTES else last[:_SHOWN_BYTES] + b"...")
        missing = "NUL" if end == b"\0" else "newline"
        raise ValueError(f"'{name}' does not end with {missing} and may be truncated")
