"""The benchmark cases of the papers on PXFS, which `fbench papers` runs.

The cases of Snyder 2013, chapter 5, use one client:

- *case1*: threads read and write random blocks of 512 KiB, and each waits for its own blocks.
- *case2*: one thread submits all blocks of one file at once, for several block sizes.
- *case3*: one thread submits a block, computes for 5 ms, and then waits for the block. The figures
  of the thesis for synchronous calls imply about this duration.
- *sweep*: how long the thread of case 3 waits, for several durations of the computation.
- *latency*: operations on names, one after the other.
- *submission*: how long a submission blocks its caller, for several sizes and numbers of threads.
  Submissions that start the threads of the pool are made beforehand and not measured.

The case *continuation* of `pcircle.tools.fbench.cases` measures the cost of continuations.

The workloads of Yang et al. 2014 use many clients, one on each rank. *small* and *large* use blocks
of 64 KiB and 1 MiB, by default in five files of a hundred blocks each, with one or more threads.
Each combination is a phase, which all clients begin at the same time.

Blocking calls correspond to the synchronous calls of the papers. In case 2 the file contains
`BenchPlan.blocks` MiB whatever the block size; the thesis used 1 GB. Reads use the files that the
case has written before.

Asynchronous operations hide waiting. On a file system that hardly ever waits, such as tmpfs, the
cases measure Python instead, and a warning is printed for each such case.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from statistics import fmean, median
from typing import Any, TypeVar

from pcircle.aio import Files, Operation
from pcircle.aio import operations as ops
from pcircle.core.buffers import aligned
from pcircle.core.writing import write_at
from pcircle.tools.fbench.cases import Case, Client, computation
from pcircle.tools.fbench.plan import (
    TOGETHER,
    WORKLOADS,
    BenchFigure,
    BenchPhase,
    BenchPlan,
    phases,
)

_MIB = 1 << 20
_SIZES = (_MIB // 2, _MIB, 2 * _MIB, 4 * _MIB)
_RANDOM_BYTES = _MIB // 2
_THREADS = (1, 2, 4, 8)
_COMPUTATION_S = 0.005
_SWEEP_BYTES = _MIB
_SWEEP_MS = (0, 1, 2, 5, 10, 20)
_NAMES = 64
_SUBMITTED = 16
_FILL_BYTES = _MIB
_MIN_CALL_S = 0.001  # about 20 times the overhead of submitting an operation and waiting for it

T = TypeVar("T")
Batch = Sequence[Operation[Any]]


class Papers(Client):
    """A client that also runs the cases of the papers."""

    def __init__(self, plan: BenchPlan, number: int) -> None:
        super().__init__(plan, number)
        self._fastest_s: dict[str, tuple[float, float]] = {}

    def take_warnings(self) -> list[str]:
        """Return a warning for each case whose blocking calls were too fast, and forget them."""
        calls, self._fastest_s = self._fastest_s, {}
        return [
            f"{case}: too fast for this experiment: a blocking call takes {call_s * 1000:.2f} ms, "
            f"and should take at least {required_s * 1000:g} ms"
            for case, (call_s, required_s) in calls.items()
            if call_s < required_s
        ]

    def _called(self, case: str, call_s: float, required_s: float = _MIN_CALL_S) -> None:
        """Record how long a blocking call took, and how long it must take at least."""
        known_s, _ = self._fastest_s.get(case, (call_s, required_s))
        self._fastest_s[case] = min(known_s, call_s), required_s

    def _cases(self) -> dict[str, Case]:
        return {
            **super()._cases(),
            "case1": self._case1,
            "case2": self._case2,
            "case3": self._case3,
            "sweep": self._sweep,
            "latency": self._latency,
            "submission": self._submission,
            **{
                phase.name: partial(self._phase, phase)
                for workload in WORKLOADS
                for phase in phases(workload, self._plan.backends)
            },
        }

    def _is_continued(self, case: str) -> bool:
        return case.endswith("/write")

    # ---- files -----------------------------------------------------------------

    @contextmanager
    def _made(self, what: str, files: int, size_bytes: int) -> Iterator[list[int]]:
        """Open files that consist of a hole for writing, or full, uncached files for reading."""
        fds: list[int] = []
        try:
            for number in range(files):
                path = os.path.join(self._place, b"paper-%d" % number)
                fds.append(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
                if what == "write":
                    # Some file systems serialize writes that extend the file.
                    os.ftruncate(fds[-1], 0)
                    os.ftruncate(fds[-1], size_bytes)
                else:
                    self._fill_up(fds[-1], size_bytes)
            yield fds
        finally:
            for fd in fds:
                os.close(fd)

    def _fill_up(self, fd: int, size_bytes: int) -> None:
        """Extend a file to `size_bytes`, and drop it from the cache."""
        data = os.urandom(min(_FILL_BYTES, size_bytes))
        for offset in range(os.fstat(fd).st_size, size_bytes, len(data)):
            self._check_stop()
            write_at(fd, data[: size_bytes - offset], offset)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def _calls(self, what: str, places: Sequence[tuple[int, int]], size_bytes: int) -> Batch:
        """Return operations that read or write the blocks at `places` (descriptor, number)."""
        if what == "write":
            # Unaligned data would cover one more page, and might be sent in two requests.
            data = aligned(size_bytes)
            data[:] = os.urandom(size_bytes)
            return [ops.pwrite(fd, data, block * size_bytes) for fd, block in places]
        scratch = aligned(size_bytes)
        return [ops.readv(fd, [scratch], block * size_bytes) for fd, block in places]

    # ---- threads ---------------------------------------------------------------

    def _elapsed_s(self, backend: str, batches: Sequence[Batch], at_once: bool) -> float:
        """Return the time that all batches take, each on its own thread.

        With the blocking backend, the thread runs its operations itself. Otherwise it submits them,
        either all `at_once` or each after the previous operation has ended.
        """
        if backend == "blocking":
            return _on_threads([partial(self._in_turn, batch) for batch in batches])
        with Files(self._plan.threads) as io:

            def submit(batch: Batch) -> None:
                if at_once:
                    for future in [io.submit(call) for call in self._unless_stopped(batch)]:
                        self._wait(future)
                        future.result()
                else:
                    for call in self._unless_stopped(batch):
                        io.submit(call).result()

            return _on_threads([partial(submit, batch) for batch in batches])

    # ---- the thesis ------------------------------------------------------------

    def _case1(self) -> Iterator[BenchFigure]:
        count = self._plan.blocks
        for threads in _THREADS:
            for backend in self._plan.backends:
                for what in ("write", "read"):
                    with self._made(what, threads, count * _RANDOM_BYTES) as fds:
                        orders = [self._rng.sample(range(count), count) for _ in fds]
                        batches = [
                            self._calls(what, [(fd, block) for block in order], _RANDOM_BYTES)
                            for fd, order in zip(fds, orders, strict=True)
                        ]
                        elapsed_s = self._elapsed_s(backend, batches, at_once=False)
                    if backend == "blocking":
                        self._called("case1", elapsed_s / count)
                    rate = threads * count * _RANDOM_BYTES / elapsed_s
                    yield BenchFigure("case1", _counted(what, threads), backend, "B/s", rate)

    def _case2(self) -> Iterator[BenchFigure]:
        for size in _SIZES:
            for backend in self._plan.backends:
                for what in ("write", "read"):
                    with self._one_file(what, size) as batch:
                        elapsed_s = self._elapsed_s(backend, [batch], at_once=True)
                    if backend == "blocking":
                        self._called("case2", elapsed_s / len(batch))
                    rate = len(batch) * size / elapsed_s
                    yield BenchFigure("case2", f"{what}, {size >> 10} KiB", backend, "B/s", rate)

    @contextmanager
    def _one_file(self, what: str, size_bytes: int) -> Iterator[Batch]:
        """Yield the operations on all blocks of one file, in ascending order."""
        count = max(1, self._plan.blocks * _MIB // size_bytes)
        with self._made(what, 1, count * size_bytes) as (fd,):
            yield self._calls(what, [(fd, block) for block in range(count)], size_bytes)

    def _case3(self) -> Iterator[BenchFigure]:
        compute = computation(_COMPUTATION_S)
        for size in _SIZES:
            for backend in self._plan.backends:
                for what in ("write", "read"):
                    with self._one_file(what, size) as batch:
                        bare_s, _ = self._computing(backend, batch, _nothing)
                        both_s, _ = self._computing(backend, batch, compute)
                    if backend == "blocking":
                        self._called("case3", bare_s / len(batch), _COMPUTATION_S)
                    lost = 100 * (1 - bare_s / both_s)
                    yield BenchFigure("case3", f"{what}, {size >> 10} KiB", backend, "%", lost)

    def _sweep(self) -> Iterator[BenchFigure]:
        for duration_ms in _SWEEP_MS:
            compute = computation(duration_ms / 1000)
            for backend in self._plan.backends:
                for what in ("write", "read"):
                    with self._one_file(what, _SWEEP_BYTES) as batch:
                        _, waited_us = self._computing(backend, batch, compute)
                    if backend == "blocking":
                        self._called("sweep", waited_us / 1e6)
                    yield BenchFigure(
                        "sweep", f"{what}, {duration_ms} ms", backend, "us", waited_us
                    )

    def _computing(
        self, backend: str, batch: Batch, compute: Callable[[], None]
    ) -> tuple[float, float]:
        """Run a batch with a computation for each block.

        Return the total time in seconds, and the mean time in microseconds for which the I/O of a
        block occupies the caller. With the blocking backend, the computation follows the call.
        Otherwise it takes place between the submission and the wait.
        """
        waited: list[float] = []
        begun_s = time.perf_counter()
        if backend == "blocking":
            for call in self._unless_stopped(batch):
                first_s = time.perf_counter()
                call()
                waited.append(time.perf_counter() - first_s)
                compute()
        else:
            with Files(self._plan.threads) as io:
                for call in self._unless_stopped(batch):
                    first_s = time.perf_counter()
                    future = io.submit(call)
                    submitted_s = time.perf_counter()
                    compute()
                    computed_s = time.perf_counter()
                    future.result()
                    waited.append(submitted_s - first_s + time.perf_counter() - computed_s)
        return time.perf_counter() - begun_s, fmean(waited) * 1e6

    def _latency(self) -> Iterator[BenchFigure]:
        for backend in self._plan.backends:
            fds: list[int] = []
            for what, calls in self._steps(fds, _NAMES):
                begun_s = time.perf_counter()
                do = self._in_turn if backend == "blocking" else self._one_by_one
                values = do(calls)
                each_s = (time.perf_counter() - begun_s) / len(calls)
                if backend == "blocking" and what == "create":
                    self._called("latency", each_s)
                if what in ("create", "open"):
                    fds[:] = values
                yield BenchFigure("latency", what, backend, "us", each_s * 1e6)

    def _one_by_one(self, calls: Sequence[Operation[T]]) -> list[T]:
        """Submit each operation after the previous operation has ended, and return the results."""
        values: list[T] = []
        try:
            with Files(self._plan.threads) as io:
                for call in self._unless_stopped(calls):
                    values.append(io.submit(call).result())
        except BaseException:
            for call, value in zip(calls, values, strict=False):
                call.take_back(value)
            raise
        return values

    def _submission(self) -> Iterator[BenchFigure]:
        for threads in (1, _THREADS[-1]):
            for size in _SIZES:
                for backend in self._plan.backends:
                    with self._made("write", threads, size) as fds:
                        kept_us = self._kept_us(backend, fds, bytes(size))
                    if backend == "blocking":
                        self._called("submission", kept_us / 1e6)
                    what = _counted(f"{size >> 10} KiB", threads)
                    yield BenchFigure("submission", what, backend, "us", kept_us)

    def _kept_us(self, backend: str, fds: Sequence[int], data: bytes) -> float:
        """Return the median time of calls or submissions in microseconds.

        There is one thread for each file.
        """
        times: list[float] = []

        def keep(call: Callable[[], object]) -> None:
            for _ in range(_SUBMITTED):
                self._check_stop()
                begun_s = time.perf_counter()
                call()
                times.append(time.perf_counter() - begun_s)

        if backend == "blocking":
            _on_threads([partial(keep, partial(write_at, fd, data, 0)) for fd in fds])
        else:
            with Files(self._plan.threads) as io:
                for _ in range(self._plan.threads or 1):
                    io.pwrite(fds[0], data, 0)
                _on_threads([partial(keep, partial(io.pwrite, fd, data, 0)) for fd in fds])
        return median(times) * 1e6

    # ---- the workloads ---------------------------------------------------------

    def _phase(self, phase: BenchPhase) -> Iterator[BenchFigure]:
        plan, size, threads = self._plan, WORKLOADS[phase.workload], phase.threads
        places = [(file, block) for block in range(plan.blocks) for file in range(plan.files)]
        with self._made(phase.what, plan.files, plan.blocks * size) as fds:
            blocks = [(fds[file], block) for file, block in places]
            parts = [blocks[number::threads] for number in range(threads)]
            batches = [self._calls(phase.what, part, size) for part in parts]
            elapsed_s = self._elapsed_s(phase.backend, batches, at_once=True)
        if (phase.backend, phase.what, threads) == ("blocking", "read", 1):
            self._called(phase.workload, elapsed_s / len(places))
        rate = len(places) * size / elapsed_s
        yield BenchFigure(
            phase.workload, _counted(phase.what, threads), phase.backend, TOGETHER, rate
        )


def _counted(what: str, threads: int) -> str:
    return f"{what}, {threads} thread{'s' * (threads != 1)}"


def _nothing() -> None:
    """Do nothing, as a computation that takes no time."""


def _on_threads(work: Sequence[Callable[[], object]]) -> float:
    """Run each function on its own thread, and return the time until all have ended.

    If functions fail, raise the exception of the first of them.
    """
    if len(work) == 1:
        begun_s = time.perf_counter()
        work[0]()
        return time.perf_counter() - begun_s
    with ThreadPoolExecutor(len(work)) as pool:
        begun_s = time.perf_counter()
        futures = [pool.submit(one) for one in work]
        for future in futures:
            future.exception()
        elapsed_s = time.perf_counter() - begun_s
    for future in futures:
        future.result()
    return elapsed_s
