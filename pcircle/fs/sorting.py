"""Sorting more records than there is memory for: sorted runs in temporary files, merged.

A record is bytes without a slash, which ends it in the files. Each run is a file
of its own, so when there are many they are first merged by the score: that takes
another pass over them, but no more descriptors and buffers than a rank can spare,
whatever is sorted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from itertools import islice
from typing import IO

from pcircle.names import show
from pcircle.writing import discard, write_all

RUN_BYTES = 16 << 20
FAN_IN = 64
"""Runs that are merged at a time; with that many levels of them, all that is ever open."""
_READ_BYTES = 128 << 10
_MERGED_BYTES = 1 << 20  # read ahead of all runs that are merged; as objects several times that
MAX_BYTES = 16 << 20
"""Of a record: what has no ends for so long is no list."""
_SHOWN_BYTES = 200  # of a name in a message
END = b"/"
TOGETHER = 4096
"""Records that are written at once."""


class Sorter:
    """Takes records as they come, and gives them in their order. OSError without the space.

    So many are written `together`: of long ones few.
    """

    def __init__(self, run_bytes: int = RUN_BYTES, together: int = TOGETHER) -> None:
        self._run_bytes = run_bytes
        self._together = together
        self._runs: list[list[IO[bytes]]] = [[]]  # by level: each of many of the level before
        self._some: list[bytes] = []
        self._size = 0

    def add(self, record: bytes) -> None:
        """One more."""
        self.extend((record,))

    def extend(self, records: Sequence[bytes]) -> None:
        """Add several, which are in memory anyway."""
        self._some += records
        self._size += sum(map(len, records)) + 64 * len(records)  # what objects take besides
        if self._size > self._run_bytes:
            self._put_away()

    def _put_away(self) -> None:
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
            write_all(run.fileno(), END.join(some) + END)
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
    """Records of some runs; how much is read ahead does not depend on how many they are."""
    read_bytes = min(_READ_BYTES, _MERGED_BYTES // max(1, len(runs)))
    return merge(*(pieces(run, END, read_bytes) for run in runs))


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
