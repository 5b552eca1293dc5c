"""Sorting more records than there is memory for: sorted runs in temporary files, merged.

A record is bytes without a slash, which ends it in the files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from heapq import merge
from itertools import islice
from typing import IO

from pcircle.writing import write_all

RUN_BYTES = 32 << 20
_READ_BYTES = 1 << 20
MOST_BYTES = 16 << 20
"""Of a record: what has no ends for so long is no list."""
END = b"/"
TOGETHER = 4096
"""Records that are written at once."""


class Sorter:
    """Takes records as they come, and gives them in their order. OSError without the space."""

    def __init__(self, run_bytes: int = RUN_BYTES) -> None:
        self._run_bytes = run_bytes
        self._runs: list[IO[bytes]] = []
        self._some: list[bytes] = []
        self._size = 0

    def add(self, record: bytes) -> None:
        """One more."""
        self._some.append(record)
        self._size += len(record) + 64  # what an object takes besides
        if self._size > self._run_bytes:
            self._put_away()

    def _put_away(self) -> None:
        import tempfile  # takes long to import

        run = tempfile.TemporaryFile(prefix="pcircle-sort-", buffering=0)  # noqa: SIM115
        self._runs.append(run)
        records = iter(sorted(self._some))
        while some := list(islice(records, TOGETHER)):
            write_all(run.fileno(), END.join(some) + END)
        run.seek(0)
        self._some.clear()
        self._size = 0

    def sorted(self) -> Iterator[bytes]:
        """All of them, in their order; once."""
        self._some.sort()
        yield from merge(self._some, *(pieces(run, END) for run in self._runs))

    def close(self) -> None:
        """Give the space back."""
        for run in self._runs:
            with suppress(OSError):  # it may still have something to write
                run.close()
        self._runs.clear()


def sorted_records(records: Iterable[bytes], run_bytes: int = RUN_BYTES) -> Iterator[bytes]:
    """Records in their order, however many there are. OSError without the space."""
    sorter = Sorter(run_bytes)
    try:
        for record in records:
            sorter.add(record)
        yield from sorter.sorted()
    finally:
        sorter.close()


def pieces(stream: IO[bytes], end: bytes) -> Iterator[bytes]:
    """What stands in a file, piece by piece, each ended by `end`. OSError.

    ValueError if a piece is longer than it may be.
    """
    rest = b""
    while data := stream.read(_READ_BYTES):
        *whole, rest = (rest + data).split(end)
        yield from whole
        if len(rest) > MOST_BYTES:
            raise ValueError(f"it holds a name of more than {MOST_BYTES:,} bytes")
    if rest:
        yield rest
