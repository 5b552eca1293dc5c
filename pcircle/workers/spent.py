"""The time that threads have run, and waited for a processor, as the kernel accounts for it."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable

from pcircle.workers.overlap import is_helper


def others(threads: Collection[int | None]) -> list[int | None]:
    """The Python threads of this process, except these and the helpers of an `Overlap`."""
    return [
        thread.native_id
        for thread in threading.enumerate()
        if thread.native_id not in threads and not is_helper(thread)
    ]


def runnable(threads: Iterable[int | None]) -> int:
    """How many threads run or wait for a processor at this moment."""
    number = 0
    for thread in threads:
        try:
            with open(f"/proc/self/task/{thread}/stat", "rb") as file:
                number += file.read().rpartition(b")")[2].split()[0] == b"R"
        except OSError:
            continue  # it has ended
    return number


def spent_s(threads: Iterable[int | None]) -> tuple[float, float]:
    """Seconds that threads have run so far, and have waited for a processor."""
    cpu_ns = delay_ns = 0
    for thread in threads:
        try:
            with open(f"/proc/self/task/{thread}/schedstat", "rb") as file:
                fields = file.read().split()
        except OSError:
            continue  # it has ended, or this kernel keeps no such account
        cpu_ns += int(fields[0])
        delay_ns += int(fields[1])
    return cpu_ns / 1e9, delay_ns / 1e9
