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
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from random import Random
from statistics import median
from typing import Any, TypeAlias, TypeVar

from pcircle.aio import Files, Future, Operation, when_all
from pcircle.aio import operations as ops
from pcircle.core.buffers import aligned
from pcircle.core.writing import write_at
from pcircle.tools.fbench.plan import BenchFigure, BenchPlan

_BLOCK_SIZES = tuple(4096 << (2 * step) for step in range(6))  # 4 KiB to 4 MiB
_SUBMITTED = 32
_ROUNDS = 3
_COSTS_US = (0, 20, 100, 500, 2000)
_NAMES = 512
_LOOKED_AT = 16  # the number of calls between checks for a stop of the job
_LOOK_S = 0.1
_CALIBRATIONS = 10  # the fastest one counts, because other processes may delay some of them
_FITS = 0.8  # the duration of the computation in case 3, as a fraction of the I/O

Case: TypeAlias = Callable[[], Iterator[BenchFigure]]
T = TypeVar("T")


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

    def measure(self, case: str, stopping: Callable[[], bool]) -> list[BenchFigure]:
        """Return the figures of a case.

        Raise OSError if the case fails, and StopCase when `stopping` returns true.
        """
        self._stopping = stopping
        os.makedirs(self._place, exist_ok=True)
        tidies = True
        try:
            figures = list(self._cases()[case]())
            tidies = not self._is_continued(case)
            return figures
        finally:
            if tidies:
                self._tidy()

    def _is_continued(self, case: str) -> bool:
        """Return whether the next case needs the files of this one."""
        return False

    def _cases(self) -> dict[str, Case]:
        return {
            "random": self._random,
            "stream": self._stream,
            "overlap": self._overlap,
            "metadata": self._metadata,
            "blocking": self._blocking,
            "continuation": self._continuation,
        }

    def _tidy(self) -> None:
        remove(self._place)

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
        for backend in self._plan.backends:
            for what in ("write", "read"):
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

    def _block(self, what: str, fd: int, block: int) -> Operation[Any]:
        size = self._plan.block_bytes
        if what == "write":
            return ops.pwrite(fd, self._data, block * size)
        # All threads read into the same buffer: its content is not used, and it stays in the CPU
        # cache.
        return ops.readv(fd, [self._scratch], block * size)

    @contextmanager
    def _opened(self, what: str) -> Iterator[list[int]]:
        """Open the client's files: empty ones for writing, or full, uncached ones for reading."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        names = [b"file-%d" % number for number in range(self._plan.files)]
        fds: list[int] = []
        try:
            for name in names:
                fds.append(os.open(os.path.join(self._place, name), flags, 0o600))
                fd = fds[-1]
                if what == "write":
                    os.ftruncate(fd, 0)
                else:
                    self._fill(fd)
                    os.fsync(fd)
                    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            yield fds
        finally:
            for fd in fds:
                os.close(fd)

    def _fill(self, fd: int) -> None:
        plan = self._plan
        if os.fstat(fd).st_size < plan.blocks * plan.block_bytes:
            for block in range(plan.blocks):
                self._check_stop()
                write_at(fd, self._data, block * plan.block_bytes)

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

    def _in_turn(self, calls: Sequence[Operation[T]]) -> list[T]:
        values: list[T] = []
        try:
            for call in self._unless_stopped(calls):
                values.append(call())
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
