"""``python -m tests.benchmarks.backends DIR...``: blocking calls, threads and io_uring.

Reads of a file that is in the cache, on the file system of each DIR. Backends take turns, and the
median of the rounds is what is printed: microseconds of the clock, and of processors, a read.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from statistics import median

from pcircle.aio import Files, uring, when_all
from pcircle.aio import operations as ops
from pcircle.ui.table import render

_SIZES = (4096, 65536, 1 << 20)
_BLOCKS = 64
_READ_BYTES = 1 << 30

Way = Callable[[int, list[int], int], None]


def _blocking(fd: int, places: list[int], size: int) -> None:
    buffer = [bytearray(size)]
    for place in places:
        os.preadv(fd, buffer, place)


def _overlapped(threads: int | None, backend: str) -> Way:
    def read(fd: int, places: list[int], size: int) -> None:
        buffer = [bytearray(size)]
        with Files(threads, backend="uring" if backend == "uring" else "threads") as io:
            futures = [io.submit(ops.readv(fd, buffer, place)) for place in places]
            for future in when_all(futures).result():
                future.result()

    return read


WAYS: dict[str, Way] = {
    "blocking": _blocking,
    "threads": _overlapped(None, "threads"),
    "threads=16": _overlapped(16, "threads"),
    "uring": _overlapped(None, "uring"),
}


@contextmanager
def _file(folder: str, size: int) -> Iterator[str]:
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        for _ in range(_BLOCKS):
            file.write(os.urandom(size))
        file.flush()
        os.fsync(file.fileno())
        yield file.name


def _row(folder: str, size: int, rounds: int, count: int) -> list[str]:
    places = [Random(size).randrange(_BLOCKS) * size for _ in range(count)]
    wall: dict[str, list[float]] = {name: [] for name in WAYS}
    used: dict[str, list[float]] = {name: [] for name in WAYS}
    with _file(folder, size) as path:
        fd = os.open(path, os.O_RDONLY)
        try:
            for _ in range(rounds):
                for name, way in WAYS.items():
                    begun_s, begun_cpu_s = time.perf_counter(), time.process_time()
                    way(fd, places, size)
                    wall[name].append((time.perf_counter() - begun_s) / count * 1e6)
                    used[name].append((time.process_time() - begun_cpu_s) / count * 1e6)
        finally:
            os.close(fd)
    cells = [f"{median(wall[name]):.1f} ({median(used[name]):.1f})" for name in WAYS]
    return [f"{size >> 10} KiB, {folder}", *cells]


def main() -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.backends")
    parser.add_argument("folders", nargs="+", metavar="DIR")
    parser.add_argument("--rounds", type=int, default=7)
    typed = parser.parse_args()
    if uring.missing():
        print(uring.missing(), file=sys.stderr)
        return 1
    rows = [
        _row(folder, size, typed.rounds, max(1000, min(20_000, _READ_BYTES // size)))
        for folder in typed.folders
        for size in _SIZES
    ]
    header = ["us a read (of a processor)", *WAYS]
    print(render(rows, align="l" + "r" * len(WAYS), header=header))
    return 0


if __name__ == "__main__":
    sys.exit(main())
