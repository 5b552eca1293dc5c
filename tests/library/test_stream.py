"""Iterators over results: the job ends, and its descriptors are closed, however they end."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pcircle
from pcircle.cli.program import TreeReport
from pcircle.core.errors import Interrupted
from pcircle.library.call import Cancel
from pcircle.library.stream import Results

_WAIT_S = 60


class _EndlessJob:
    """A job that writes until it is stopped."""

    def __init__(self, step: Callable[[], object]) -> None:
        self.ended = threading.Event()
        self._step = step

    def __call__(self, write: Callable[[bytes], object], cancel: Cancel) -> TreeReport:
        while not cancel.is_set():
            write(b"name\n")
            self._step()
        self.ended.set()
        raise Interrupted("stopped")


def test_a_dropped_iterator_stops_its_job() -> None:
    job = _EndlessJob(lambda: None)
    results = Results(job, b"\n", bytes, None)
    next(results)
    gc.disable()
    try:
        del results
        assert job.ended.wait(_WAIT_S)
    finally:
        gc.enable()


def test_the_collector_of_cycles_may_run_on_the_thread_of_the_job() -> None:
    job = _EndlessJob(gc.collect)
    results = Results(job, b"\n", bytes, None)
    next(results)
    cycle: list[object] = [results]
    cycle.append(cycle)
    del results, cycle
    assert job.ended.wait(_WAIT_S)


def _open_files() -> Iterator[str]:
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # closed by a job
            yield os.readlink(f"/proc/self/fd/{number}")


def test_jobs_at_the_same_time_close_their_own_descriptors(here: Path) -> None:
    """The workers of one job do not keep the descriptors of another one open."""
    listed = here / "listed"
    (listed / "sub").mkdir(parents=True)
    other_runs, may_end = threading.Event(), threading.Event()

    def wait(view: object) -> None:
        other_runs.set()
        may_end.wait(_WAIT_S)

    copying = threading.Thread(
        target=lambda: pcircle.copy("data", "copy", jobs=1, bwlimit="4k", progress=wait)
    )
    copying.start()
    try:
        assert other_runs.wait(_WAIT_S)
        assert len(list(pcircle.find("listed", jobs=1))) == 2
        assert not [path for path in _open_files() if path.startswith(str(listed))]
    finally:
        may_end.set()
        copying.join()
