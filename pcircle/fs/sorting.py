"""Sorting more records than there is memory for: sorted runs in temporary files, merged.

A record is bytes without a slash, which ends it in the files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from heapq import merge
from typing import BinaryIO

RUN_BYTES = 32 << 20
_READ_BYTES = 1 << 20
END = b"/"


def sorted_records(records: Iterable[bytes], run_bytes: int = RUN_BYTES) -> Iterator[bytes]:
    """Records in their order, however many there are. OSError without the space."""
    import tempfile  # takes long to import

    runs: list[BinaryIO] = []
    some: list[bytes] = []
    size = 0
    with ExitStack() as stack:
        for record in records:
            some.append(record)
            size += len(record) + 64  # what an object takes besides
            if size > run_bytes:
                run = stack.enter_context(tempfile.TemporaryFile(prefix="pcircle-sort-"))
                for each in sorted(some):
                    run.write(each + END)
                run.seek(0)
                runs.append(run)
                some.clear()
                size = 0
        some.sort()
        yield from merge(some, *(pieces(run, END) for run in runs))


def pieces(stream: BinaryIO, end: bytes) -> Iterator[bytes]:
    """What stands in a file, piece by piece, each ended by `end`. OSError."""
    rest = b""
    while data := stream.read(_READ_BYTES):
        *whole, rest = (rest + data).split(end)
        yield from whole
    if rest:
        yield rest
