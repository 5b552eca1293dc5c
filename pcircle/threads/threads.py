"""Functions that start worker threads, find those alive, and measure how they spend time.

All worker threads are daemons, because a thread that hangs in the kernel cannot be ended and must
not keep its process alive.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable

HELPER_PREFIX = "overlap-"
"""The prefix of the names of helper threads, which make calls on behalf of a waiting worker."""


class OperationTimeout:
    """The time limit on file operations in this process, set by `pcircle.threads.deadline`.

    `lost` counts the operations that were abandoned. While a limit is set, file systems may be
    accessed only through functions of `os`.
    """

    limit_s: float | None = None
    lost = 0


class _Worker(threading.Thread):
    """A thread that this module has started, and the thread of the job for which it works."""

    def __init__(self, work: Callable[..., None], args: tuple[object, ...], name: str) -> None:
        super().__init__(target=work, args=args, name=name, daemon=True)
        self.job_thread: threading.Thread = _job_thread()


def _job_thread() -> threading.Thread:
    """Return the thread whose job the calling thread carries out: itself unless it is a worker."""
    current = threading.current_thread()
    return current.job_thread if isinstance(current, _Worker) else current


def has_live_workers() -> bool:
    """Return whether any worker of the calling thread's job is alive.

    A program may run other jobs on other threads. Helpers do not count, because without the worker
    that they help they are idle and about to end.
    """
    workers = [thread for thread in threading.enumerate() if isinstance(thread, _Worker)]
    job = _job_thread()
    return any(worker.job_thread is job and not is_helper(worker) for worker in workers)


def is_helper(thread: threading.Thread) -> bool:
    """Return whether a thread makes calls on behalf of a worker."""
    return thread.name.startswith(HELPER_PREFIX)


def start_thread(
    workers: list[threading.Thread], work: Callable[..., None], *args: object, name: str
) -> bool:
    """Start a thread and append it to `workers`; its name ends with its index.

    Return false if this process may have no more threads.
    """
    worker = _Worker(work, args, f"{name}{len(workers)}")
    try:
        worker.start()
    except RuntimeError:
        return False
    workers.append(worker)
    return True


def require_thread(
    workers: list[threading.Thread], work: Callable[..., None], *args: object, name: str
) -> bool:
    """Start a thread like `start_thread`, but raise RuntimeError if `workers` remains empty."""
    is_started = start_thread(workers, work, *args, name=name)
    if not workers:
        raise RuntimeError("cannot start a thread: this process cannot have more")
    return is_started


def other_threads(threads: Collection[int | None]) -> list[int | None]:
    """Return the native ids of this process's Python threads, except `threads` and helpers."""
    return [
        thread.native_id
        for thread in threading.enumerate()
        if thread.native_id not in threads and not is_helper(thread)
    ]


def count_runnable(threads: Iterable[int | None]) -> int:
    """Return how many of the threads are currently running or waiting for a processor."""
    number = 0
    for thread in threads:
        try:
            with open(f"/proc/self/task/{thread}/stat", "rb") as file:
                number += file.read().rpartition(b")")[2].split()[0] == b"R"
        except OSError:
            continue  # the thread has ended
    return number


def cpu_and_delay_s(threads: Iterable[int | None]) -> tuple[float, float]:
    """Return the total time that threads have run, and have waited for a processor, in seconds.

    Both are zero on kernels without scheduler statistics (CONFIG_SCHED_INFO).
    """
    cpu_ns = delay_ns = 0
    for thread in threads:
        try:
            with open(f"/proc/self/task/{thread}/schedstat", "rb") as file:
                fields = file.read().split()
        except OSError:
            continue  # the thread has ended, or the kernel keeps no statistics
        cpu_ns += int(fields[0])
        delay_ns += int(fields[1])
    return cpu_ns / 1e9, delay_ns / 1e9
