"""``python -m tests.benchmarks.backends DIR...``: blocking calls and threads.

Reads a cached and an uncached file on the file system of each DIR. The backends take turns, and the
medians of all rounds are printed: microseconds of elapsed time and of processor time per read. (A
file on a tmpfs never leaves the cache.)
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

from pcircle.aio import Files, when_all
from pcircle.aio import operations as ops
from pcircle.cli.listing import render

_CACHED = (4096, 65536, 1 << 20)
_CACHED_BLOCKS = 64
_CACHED_BYTES = 1 << 30
_COLD = 16384
_COLD_BLOCKS = 16384

Way = Callable[[int, list[int], int], None]


def _blocking(fd: int, places: list[int], size: int) -> None:
    buffer = [bytearray(size)]
    for place in places:
        os.preadv(fd, buffer, place)


def _overlapped(threads: int | None) -> Way:
    def read(fd: int, places: list[int], size: int) -> None:
        buffer = [bytearray(size)]
        with Files(threads) as io:
            futures = [io.submit(ops.readv(fd, buffer, place)) for place in places]
            for future in when_all(futures).result():
                future.result()

    return read


WAYS: dict[str, Way] = {
    "blocking": _blocking,
    "threads": _overlapped(None),
    "threads=16": _overlapped(16),
}


@contextmanager
def _file(folder: str, size: int, blocks: int) -> Iterator[int]:
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        for _ in range(blocks):
            file.write(os.urandom(size))
        file.flush()
        os.fsync(file.fileno())
        yield file.fileno()


def _cached(folder: str, size: int, rounds: int) -> list[str]:
    count = max(1000, min(20_000, _CACHED_BYTES // size))
    places = [Random(size).randrange(_CACHED_BLOCKS) * size for _ in range(count)]
    with _file(folder, size, _CACHED_BLOCKS) as fd:
        return [f"{size >> 10} KiB, {folder}", *_measure(fd, size, rounds, lambda: places)]


def _cold(folder: str, rounds: int) -> list[str]:
    rng, places = Random(1), [number * _COLD for number in range(_COLD_BLOCKS)]
    with _file(folder, _COLD, _COLD_BLOCKS) as fd:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)

        def forget() -> list[int]:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            return rng.sample(places, 3000)

        name = f"{_COLD >> 10} KiB, {folder}, not in the cache"
        return [name, *_measure(fd, _COLD, rounds, forget)]


def _measure(fd: int, size: int, rounds: int, order: Callable[[], list[int]]) -> list[str]:
    wall: dict[str, list[float]] = {name: [] for name in WAYS}
    used: dict[str, list[float]] = {name: [] for name in WAYS}
    for _ in range(rounds):
        for name, way in WAYS.items():
            places = order()
            begun_s, begun_cpu_s = time.perf_counter(), time.process_time()
            way(fd, places, size)
            wall[name].append((time.perf_counter() - begun_s) / len(places) * 1e6)
            used[name].append((time.process_time() - begun_cpu_s) / len(places) * 1e6)
    return [f"{median(wall[name]):.1f} ({median(used[name]):.1f})" for name in WAYS]


def main() -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.backends")
    parser.add_argument("folders", nargs="+", metavar="DIR")
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    rows = []
    for folder in args.folders:
        rows += [_cached(folder, size, args.rounds) for size in _CACHED]
        rows.append(_cold(folder, args.rounds))
    header = ["us a read (of a processor)", *WAYS]
    print(render(rows, align="l" + "r" * len(WAYS), header=header))
    return 0


if __name__ == "__main__":
    sys.exit(main())
