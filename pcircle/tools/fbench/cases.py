"""The benchmark cases that a client runs; each case creates and removes its own files.

The cases follow Snyder 2013, chapter 5. *random* (case 1) reads and writes random blocks with many
threads. *stream* (case 2) accesses blocks sequentially and submits all of them at once. *overlap*
(case 3) measures how much throughput is lost if each block is followed by a computation that takes
less time than its I/O. *metadata* measures operations on names. *blocking* measures how long a
submission blocks its caller, for several block sizes. *continuation* measures the throughput for
several durations of the computation that follows each block.

The measured time of a write includes the flush to disk. Before a read, the client evicts the file
from the page cache. If a file system has a cache of its own, the files should be larger than that
cache.

`fbench papers` runs the cases as the papers on PXFS did, with one client:

- *case1*: threads read and write random blocks of 512 KiB, and each waits for its own blocks.
- *case2*: one thread submits all blocks of one file at once, for several block sizes.
- *case3*: one thread submits a block, computes for 5 ms, and then waits for the block. The figures
  of the thesis for synchronous calls imply about this duration.
- *sweep*: how long the thread of case 3 waits, for several durations of the computation.
- *latency*: operations on names, one after the other.
- *submission*: how long a submission blocks its caller, for several sizes and numbers of threads.
  Submissions that start the threads of the pool are made beforehand and not measured.

The workloads of Yang et al. 2014 use many clients, one on each rank. *small* and *large* use blocks
of 64 KiB and 1 MiB, by default in five files of a hundred blocks each, with one or more threads.
Each combination is a phase, which all clients begin at the same time.

Blocking calls correspond to the synchronous calls of the papers. In case 2 the file contains
`BenchPlan.blocks` MiB whatever the block size; the thesis used 1 GB. Reads use the files that the
case has written before.

Asynchronous operations hide waiting. On a file system that hardly ever waits, such as tmpfs, the
papers' cases measure Python instead, and a warning is printed for each such case.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from itertools import product
from random import Random
from statistics import fmean, median
from typing import Any, TypeAlias, TypeVar

from pcircle.aio import Files, Future, Operation, when_all
from pcircle.aio import operations as ops
from pcircle.core.buffers import aligned
from pcircle.core.writing import write_at
from pcircle.tools.fbench.plan import (
    TOGETHER,
    WORKLOADS,
    BenchFigure,
    BenchPhase,
    BenchPlan,
    phases,
)

_BLOCK_SIZES = tuple(4096 << (2 * step) for step in range(6))  # 4 KiB to 4 MiB
_SUBMITTED = 32
_ROUNDS = 3
_COSTS_US = (0, 20, 100, 500, 2000)
_NAMES = 512
_LOOKED_AT = 16  # the number of calls between checks for a stop of the job
_LOOK_S = 0.1
_CALIBRATIONS = 10  # the fastest one counts, because other processes may delay some of them
_FITS = 0.8  # the duration of the computation in case 3, as a fraction of the I/O
_MIB = 1 << 20
_SIZES = (_MIB // 2, _MIB, 2 * _MIB, 4 * _MIB)
_RANDOM_BYTES = _MIB // 2
_THREADS = (1, 2, 4, 8)
_COMPUTATION_S = 0.005
_SWEEP_BYTES = _MIB
_SWEEP_MS = (0, 1, 2, 5, 10, 20)
_LATENCY_NAMES = 64
_SUBMITTED_EACH = 16
_FILL_BYTES = _MIB
_MIN_CALL_S = 0.001  # about 20 times the overhead of submitting an operation and waiting for it

Case: TypeAlias = Callable[[], Iterator[BenchFigure]]
T = TypeVar("T")
Batch: TypeAlias = Sequence[Operation[Any]]


class StopCase(Exception):
    """Raised within a case when the job is stopping, because its figures are no longer needed."""


class Client:
    """A client, which runs the cases in its own directory."""

    def __init__(self, plan: BenchPlan, number: int) -> None:
        self._plan = plan
        self._place = os.path.join(plan.place, b"client-%d" % number)
        self._rng = Random(number)
        self._data = os.urandom(plan.block_bytes)
        self._scratch = aligned(plan.block_bytes)
        self._stopping: Callable[[], bool] = bool
        self._fastest_s: dict[str, tuple[float, float]] = {}

    def measure(self, case: str, stopping: Callable[[], bool]) -> list[BenchFigure]:
        """Return the figures of a case.

        Raise OSError if the case fails, and StopCase when `stopping` returns true.
        """
        self._stopping = stopping
        os.makedirs(self._place, exist_ok=True)
        tidies = True
        try:
            figures = list(self._cases()[case]())
            tidies = not case.endswith("/write")  # the next phase reads these files
            return figures
        finally:
            if tidies:
                remove(self._place)

    def take_warnings(self) -> list[str]:
        """Return a warning for each case whose blocking calls were too fast, and forget them."""
        calls, self._fastest_s = self._fastest_s, {}
        return [
            f"{case}: too fast for this experiment: a blocking call takes {call_s * 1000:.2f} ms, "
            f"and should take at least {required_s * 1000:g} ms"
            for case, (call_s, required_s) in calls.items()
            if call_s < required_s
        ]

    def _called(
        self, case: str, backend: str, call_s: float, required_s: float = _MIN_CALL_S
    ) -> None:
        """Record how long a blocking call took, and how long it must take at least."""
        if backend != "blocking":
            return
        known_s, _ = self._fastest_s.get(case, (call_s, required_s))
        self._fastest_s[case] = min(known_s, call_s), required_s

    def _cases(self) -> dict[str, Case]:
        return {
            "random": self._random,
            "stream": self._stream,
            "overlap": self._overlap,
            "metadata": self._metadata,
            "blocking": self._blocking,
            "continuation": self._continuation,
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

    # ---- data ------------------------------------------------------------------

    def _random(self) -> Iterator[BenchFigure]:
        blocks = self._all_blocks()
        yield from self._both_ways("random", lambda: self._rng.sample(blocks, len(blocks)))

    def _stream(self) -> Iterator[BenchFigure]:
        blocks = self._all_blocks()
        # Alternate between the files, because the kernel may serialize writes to the same file.
        blocks.sort(key=lambda block: block[::-1])
        yield from self._both_ways("stream", lambda: blocks)

    def _all_blocks(self) -> list[tuple[int, int]]:
        plan = self._plan
        return [(file, block) for file in range(plan.files) for block in range(plan.blocks)]

    def _both_ways(
        self, case: str, order: Callable[[], Sequence[tuple[int, int]]]
    ) -> Iterator[BenchFigure]:
        for backend, what in self._ways():
            with self._opened(what) as fds:
                calls = [self._block(what, fds[f], b) for f, b in order()]
                begun_s = time.perf_counter()
                threads, _ = self._carry_out(backend, calls)
                if what == "write":
                    self._carry_out(backend, [ops.fsync(fd) for fd in fds])
                elapsed_s = time.perf_counter() - begun_s
            rate = self._plan.client_bytes / elapsed_s
            yield BenchFigure(case, what, backend, "B/s", rate)
            if threads:
                yield BenchFigure(case, what, backend, "threads", threads)

    def _ways(self) -> Iterator[tuple[str, str]]:
        """Return the pairs of a backend and a direction, which is `write` or `read`."""
        return product(self._plan.backends, ("write", "read"))

    def _block(self, what: str, fd: int, block: int) -> Operation[Any]:
        size = self._plan.block_bytes
        if what == "write":
            return ops.pwrite(fd, self._data, block * size)
        # All threads read into the same buffer: its content is not used, and it stays in the CPU
        # cache.
        return ops.readv(fd, [self._scratch], block * size)

    def _opened(self, what: str) -> AbstractContextManager[list[int]]:
        """Open the client's files: empty ones for writing, or full, uncached ones for reading."""
        plan = self._plan
        return self._made(what, plan.files, plan.blocks * plan.block_bytes, hole=False)

    @contextmanager
    def _made(
        self, what: str, files: int, size_bytes: int, *, hole: bool = True
    ) -> Iterator[list[int]]:
        """Open files for writing, empty or with a `hole`, or full, uncached files for reading."""
        fds: list[int] = []
        try:
            for number in range(files):
                path = os.path.join(self._place, b"file-%d" % number)
                fds.append(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
                if what == "write":
                    os.ftruncate(fds[-1], 0)
                    if hole:  # some file systems serialize writes that extend the file
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

    def _carry_out(self, backend: str, calls: Sequence[Operation[T]]) -> tuple[int, list[T]]:
        """Run all operations, and return the final number of threads and the results.

        The number is 0 for the blocking backend. Raise OSError if an operation fails.
        """
        if backend == "blocking":
            return 0, self._in_turn(calls)
        futures: list[Future[T]] = []
        try:
            with Files(self._plan.threads) as io:
                for call in self._unless_stopped(calls):
                    futures.append(io.submit(call))
                self._wait(when_all(futures))
                threads = max(io.threads().values())
            return threads, [future.result() for future in futures]
        except BaseException:
            for call, future in zip(calls, futures, strict=False):
                if future.done and future.error() is None:
                    call.take_back(future.result())
            raise

    def _in_turn(
        self, calls: Sequence[Operation[T]], run: Callable[[Operation[T]], T] = Operation.__call__
    ) -> list[T]:
        """Run each operation after the previous operation has ended, and return the results."""
        values: list[T] = []
        try:
            for call in self._unless_stopped(calls):
                values.append(run(call))
        except BaseException:
            for call, value in zip(calls, values, strict=False):
                call.take_back(value)
            raise
        return values

    def _check_stop(self) -> None:
        if self._stopping():
            raise StopCase

    def _unless_stopped(self, calls: Sequence[T]) -> Iterator[T]:
        """Yield all calls; raise StopCase when the job is stopping.

        The check takes place only once per batch of calls, so that its cost is negligible.
        """
        for at in range(0, len(calls), _LOOKED_AT):
            self._check_stop()
            yield from calls[at : at + _LOOKED_AT]

    def _wait(self, future: Future[T]) -> None:
        """Wait until the operation has ended, even if it fails."""
        while not future.done:
            self._check_stop()
            with suppress(TimeoutError):
                future.error(_LOOK_S)

    # ---- overlap ---------------------------------------------------------------

    def _overlap(self) -> Iterator[BenchFigure]:
        """Measure reads, each followed by hashing for most of the time that a read takes."""
        blocks = self._all_blocks()
        alone, lost = [], []
        for _ in range(_ROUNDS):
            bare_s = self._read_and_compute(blocks, None)
            compute = computation(_FITS * bare_s / len(blocks))
            both_s = self._read_and_compute(blocks, compute)
            alone.append(self._plan.client_bytes / bare_s)
            lost.append(100 * (1 - bare_s / both_s))
        yield BenchFigure("overlap", "read", "threads", "B/s", median(alone))
        yield BenchFigure("overlap", "lost to computation", "threads", "%", median(lost))

    def _read_and_compute(
        self, blocks: Sequence[tuple[int, int]], compute: Callable[[], None] | None
    ) -> float:
        """Return the time until the last block was read; computations may still be running."""
        with self._opened("read") as fds, Files(self._plan.threads) as io:
            begun_s = time.perf_counter()
            reads = self._unless_stopped(blocks)
            futures = [io.submit(self._block("read", fds[f], b)) for f, b in reads]
            if compute is not None:
                for future in futures:
                    future.then(lambda _: None if self._stopping() else compute())
            for future in futures:
                self._wait(future)
                future.result()
            return time.perf_counter() - begun_s

    def _continuation(self) -> Iterator[BenchFigure]:
        blocks = self._all_blocks()
        for cost_us in _COSTS_US:
            elapsed_s = self._read_and_compute(blocks, computation(cost_us / 1e6))
            rate = self._plan.client_bytes / elapsed_s
            yield BenchFigure("continuation", f"{cost_us} us a block", "threads", "B/s", rate)

    # ---- submissions -----------------------------------------------------------

    def _blocking(self) -> Iterator[BenchFigure]:
        """Measure the median times for which calls and submissions block the caller."""
        for size in _BLOCK_SIZES:
            data = bytes(size)
            what = f"{size >> 10} KiB"
            with self._opened("write") as fds:
                call_us = _median_us(partial(os.pwrite, fds[0], data, 0))
                yield BenchFigure("blocking", what, "blocking", "us", call_us)
                with Files(self._plan.threads or 1) as io:
                    submit_us = _median_us(partial(io.pwrite, fds[0], data, 0))
                yield BenchFigure("blocking", what, "threads", "us", submit_us)
                os.ftruncate(fds[0], 0)

    # ---- names -----------------------------------------------------------------

    def _metadata(self) -> Iterator[BenchFigure]:
        for backend in self._plan.backends:
            fds: list[int] = []
            for what, calls in self._steps(fds, _NAMES):
                begun_s = time.perf_counter()
                _, values = self._carry_out(backend, calls)
                rate = len(calls) / (time.perf_counter() - begun_s)
                if what in ("create", "open"):
                    fds[:] = values
                yield BenchFigure("metadata", what, backend, "op/s", rate)

    def _steps(self, fds: list[int], count: int) -> Iterator[tuple[str, list[Operation[Any]]]]:
        """Yield each type of operation and its `count` calls, in an order in which all can succeed.

        `fds` must contain the descriptors that the previous step opened.
        """
        files = [os.path.join(self._place, b"f%d" % number) for number in range(count)]
        folders = [os.path.join(self._place, b"d%d" % number) for number in range(count)]
        yield "create", [ops.creat(path, 0o600) for path in files]
        yield "close", [ops.close(fd) for fd in fds]
        yield "open", [ops.open(path) for path in files]
        for fd in fds:
            os.close(fd)
        yield "stat", [ops.stat(path) for path in files]
        yield "truncate", [ops.truncate(path, 100) for path in files]
        yield "remove", [ops.unlink(path) for path in files]
        yield "mkdir", [ops.mkdir(path) for path in folders]
        yield "rmdir", [ops.rmdir(path) for path in folders]

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
            for backend, what in self._ways():
                with self._made(what, threads, count * _RANDOM_BYTES) as fds:
                    orders = [self._rng.sample(range(count), count) for _ in fds]
                    batches = [
                        self._calls(what, [(fd, block) for block in order], _RANDOM_BYTES)
                        for fd, order in zip(fds, orders, strict=True)
                    ]
                    elapsed_s = self._elapsed_s(backend, batches, at_once=False)
                self._called("case1", backend, elapsed_s / count)
                rate = threads * count * _RANDOM_BYTES / elapsed_s
                yield BenchFigure("case1", _counted(what, threads), backend, "B/s", rate)

    def _case2(self) -> Iterator[BenchFigure]:
        for size in _SIZES:
            for backend, what in self._ways():
                with self._one_file(what, size) as batch:
                    elapsed_s = self._elapsed_s(backend, [batch], at_once=True)
                self._called("case2", backend, elapsed_s / len(batch))
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
            for backend, what in self._ways():
                with self._one_file(what, size) as batch:
                    bare_s, _ = self._computing(backend, batch, _nothing)
                    both_s, _ = self._computing(backend, batch, compute)
                self._called("case3", backend, bare_s / len(batch), _COMPUTATION_S)
                lost = 100 * (1 - bare_s / both_s)
                yield BenchFigure("case3", f"{what}, {size >> 10} KiB", backend, "%", lost)

    def _sweep(self) -> Iterator[BenchFigure]:
        for duration_ms in _SWEEP_MS:
            compute = computation(duration_ms / 1000)
            for backend, what in self._ways():
                with self._one_file(what, _SWEEP_BYTES) as batch:
                    _, waited_us = self._computing(backend, batch, compute)
                self._called("sweep", backend, waited_us / 1e6)
                yield BenchFigure("sweep", f"{what}, {duration_ms} ms", backend, "us", waited_us)

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
            for what, calls in self._steps(fds, _LATENCY_NAMES):
                begun_s = time.perf_counter()
                do = self._in_turn if backend == "blocking" else self._one_by_one
                values = do(calls)
                each_s = (time.perf_counter() - begun_s) / len(calls)
                if what == "create":
                    self._called("latency", backend, each_s)
                if what in ("create", "open"):
                    fds[:] = values
                yield BenchFigure("latency", what, backend, "us", each_s * 1e6)

    def _one_by_one(self, calls: Sequence[Operation[T]]) -> list[T]:
        """Submit each operation after the previous operation has ended, and return the results."""
        with Files(self._plan.threads) as io:
            return self._in_turn(calls, lambda call: io.submit(call).result())

    def _submission(self) -> Iterator[BenchFigure]:
        for threads in (1, _THREADS[-1]):
            for size in _SIZES:
                for backend in self._plan.backends:
                    with self._made("write", threads, size) as fds:
                        kept_us = self._kept_us(backend, fds, bytes(size))
                    self._called("submission", backend, kept_us / 1e6)
                    what = _counted(f"{size >> 10} KiB", threads)
                    yield BenchFigure("submission", what, backend, "us", kept_us)

    def _kept_us(self, backend: str, fds: Sequence[int], data: bytes) -> float:
        """Return the median time of calls or submissions in microseconds.

        There is one thread for each file.
        """
        times: list[float] = []

        def keep(call: Callable[[], object]) -> None:
            for _ in range(_SUBMITTED_EACH):
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
        if (phase.what, threads) == ("read", 1):
            self._called(phase.workload, phase.backend, elapsed_s / len(places))
        rate = len(places) * size / elapsed_s
        yield BenchFigure(
            phase.workload, _counted(phase.what, threads), phase.backend, TOGETHER, rate
        )


def remove(place: bytes) -> None:
    """Remove a client's directory, which may contain files and empty directories.

    Raise OSError if that fails.
    """
    for name in os.listdir(place):
        path = os.path.join(place, name)
        (os.rmdir if os.path.isdir(path) else os.unlink)(path)
    os.rmdir(place)


def computation(duration_s: float) -> Callable[[], None]:
    """Return a function that keeps a processor busy for about `duration_s`.

    The function releases the interpreter lock.
    """
    if duration_s <= 0:
        return lambda: None
    data = bytes(256 << 10)
    spent_s = min(_hashing_s(data) for _ in range(_CALIBRATIONS))
    rounds, fraction = divmod(duration_s / spent_s, 1.0)
    tail = data[: int(fraction * len(data))]

    def compute() -> None:
        for _ in range(int(rounds)):
            hashlib.sha256(data).digest()
        hashlib.sha256(tail).digest()

    return compute


def _hashing_s(data: bytes) -> float:
    begun_s = time.perf_counter()
    hashlib.sha256(data).digest()
    return time.perf_counter() - begun_s


def _median_us(call: Callable[[], object]) -> float:
    times = []
    for _ in range(_SUBMITTED):
        begun_s = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun_s)
    return median(times) * 1e6


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
