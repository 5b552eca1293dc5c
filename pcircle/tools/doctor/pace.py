"""Measures how many concurrent file operations are worthwhile on a file system.

Small files are created, looked up and removed, first one call at a time and then through the
asynchronous layer. The layer finds the number of its threads by the same search as in the tools.
"""

from __future__ import annotations

import os
import time

from pcircle.aio import Files, when_all
from pcircle.aio import operations as ops

_ROUND_S = 1.0
_BLOCKING_S = 0.3
_AT_ONCE = 256
_DATA = bytes(4096)
_LOOK_S = 0.05


def paid(place: bytes) -> dict[str, int | float]:
    """Return the number of threads found, and operations per second with and without them.

    Raise OSError if a file operation fails.
    """
    alone = _alone(place)
    threads, together = _together(place)
    return {
        "threads_that_paid": threads,
        "operations_per_s": round(together),
        "operations_per_s_blocking": round(alone),
    }


def _alone(place: bytes) -> float:
    """Return the rate of creating, looking up and removing files one call at a time."""
    begun_s = time.perf_counter()
    count = 0
    while (elapsed_s := time.perf_counter() - begun_s) < _BLOCKING_S or not count:
        path = os.path.join(place, b"alone-%d" % count)
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL | os.O_CLOEXEC, 0o600))
        os.stat(path)
        os.unlink(path)
        count += 1
    return 3 * count / elapsed_s


def _together(place: bytes) -> tuple[int, float]:
    """Return the final number of threads of the asynchronous layer, and its last rate."""
    begun_s = time.perf_counter()
    rate, number = 0.0, 0
    with Files() as io:
        while time.perf_counter() - begun_s < _ROUND_S:
            paths = [os.path.join(place, b"many-%d" % at) for at in range(_AT_ONCE)]
            round_s = time.perf_counter()
            made = [io.submit(ops.mknod(path, 0o600)) for path in paths]
            when_all(made).result()
            seen = [io.submit(ops.stat(path)) for path in paths]
            when_all(seen).result()
            gone = [io.submit(ops.unlink(path)) for path in paths]
            when_all(gone).result()
            rate = 3 * _AT_ONCE / (time.perf_counter() - round_s)
            number += 1
        threads = max(io.threads().values())
    return threads, rate
