"""Estimates of the remaining time, for jobs of ten shapes on a simulated clock.

Workers take directories, files and pieces of large files from a stack, like those of fcp, and each
takes as long as its entries and bytes cost. The known counters are passed to `Pace` five times a
second. From the half of the run on the estimates are off by at most three tenths.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import pytest

from pcircle.cli.progress import Pace
from pcircle.jobs.tree_task import WorkCounts

MIB = 1 << 20
LARGE_BYTES = 32 * MIB
PIECE_BYTES = 4 * MIB
PERIOD_S = 0.2
WRONG_AT_MOST = 0.3
Tree = Sequence["Tree | int"]  # of a directory: its subdirectories, and the sizes of its files


class Job(NamedTuple):
    """The tree to copy, the number of workers, and the costs per worker."""

    tree: Tree
    workers: int = 2
    entry_s: float = 0.001
    bytes_per_s: float = 200 * MIB
    earlier: int = 0  # files at the top that an earlier run has copied


class Moment(NamedTuple):
    at_s: float
    known: WorkCounts


class _Run:
    """A running job: `moments` yields the known counters after each piece of work."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._numbers = dict.fromkeys(("found", "sized", "done", "bytes_found", "bytes_done"), 0)
        self._due, self._scanned, self._weight = 1, 0, 0.0
        self._earlier = [0, 0]
        self._stack: list[Iterator[float]] = [self._directory(job.tree, 1.0, job.earlier)]
        self._numbers["found"] = 1

    def _count(self, **more: int) -> None:
        for name, number in more.items():
            self._numbers[name] += number

    def _directory(self, tree: Tree, weight: float, earlier: int = 0) -> Iterator[float]:
        yield self._job.entry_s
        self._scanned += 1
        self._count(found=len(tree), sized=1, done=1)
        share = weight / max(1, len(tree))
        self._weight += weight if not tree else 0.0
        below = [item for item in tree if not isinstance(item, int)]
        self._due += len(below)
        self._stack += [self._directory(item, share) for item in below]
        large = []
        for size in (item for item in tree if isinstance(item, int)):
            if earlier:
                earlier -= 1
                self._earlier = [self._earlier[0] + 1, self._earlier[1] + size]
                self._count(sized=1, bytes_found=size, bytes_done=size, done=1)
                self._weight += share
            elif size > LARGE_BYTES:
                # The size is known from now on, like that of files in `CopyCounters.ahead`.
                self._count(sized=1, bytes_found=size)
                large.append(self._large(size, share))
            else:
                yield self._job.entry_s + size / self._job.bytes_per_s
                self._count(sized=1, bytes_found=size, bytes_done=size, done=1)
                self._weight += share
        self._stack += large

    def _large(self, size: int, share: float) -> Iterator[float]:
        yield self._job.entry_s
        pieces = -(-size // PIECE_BYTES)
        left = [pieces]
        piece_bytes = size // pieces
        for number in range(pieces):
            last = size - piece_bytes * (pieces - 1) if number == pieces - 1 else piece_bytes
            self._stack.append(self._piece(last, left, share / pieces))

    def _piece(self, size: int, left: list[int], share: float) -> Iterator[float]:
        yield size / self._job.bytes_per_s
        left[0] -= 1
        self._weight += share
        self._count(bytes_done=size, done=not left[0])

    def moments(self) -> Iterator[Moment]:
        """Yield the known counters after each piece of work, in order of time."""
        busy: list[tuple[float, int, Iterator[float]]] = []
        now_s, serial = 0.0, 0
        idle = self._job.workers
        while self._stack or busy:
            while self._stack and idle:
                work = self._stack.pop()
                took_s = next(work, None)
                if took_s is not None:
                    idle, serial = idle - 1, serial + 1
                    heapq.heappush(busy, (now_s + took_s, serial, work))
            if not busy:
                continue
            now_s, _, work = heapq.heappop(busy)
            took_s = next(work, None)
            if took_s is None:
                idle += 1
            else:
                serial += 1
                heapq.heappush(busy, (now_s + took_s, serial, work))
            scanned = self._scanned == self._due
            earlier, earlier_bytes = self._earlier
            numbers = self._numbers
            yield Moment(now_s, WorkCounts(**numbers, scanned=scanned, weight=self._weight,
                                      earlier=earlier, earlier_bytes=earlier_bytes))  # fmt: skip


def _limited(small: int, workers: int = 2) -> Job:
    """A job with ``--bwlimit 40M``, files of 5 MiB, and one file of 300 MiB."""
    return Job([5 * MIB] * small + [300 * MIB], workers, bytes_per_s=40 * MIB / workers)


def _balanced(directories: int, files: int, size: int) -> Tree:
    return [[size] * files for _ in range(directories)]


def _varied() -> Tree:
    drawn = random.Random(7)
    sizes = [int(drawn.lognormvariate(9, 2)) for _ in range(40_000)]
    return [list(sizes[at : at + 100]) for at in range(0, len(sizes), 100)]


SHAPES: dict[str, Callable[[], Job]] = {
    "small files in one directory": lambda: Job([4096] * 30_000),
    "small files in many directories": lambda: Job(_balanced(400, 60, 10_000)),
    "small files, then ten large ones": lambda: Job(
        [20_000] * 400 + [40 * MIB] * 10, bytes_per_s=20 * MIB
    ),
    "one large file": lambda: Job([4000 * MIB]),
    "20 x 5 MiB and 300 MiB, limited": lambda: _limited(20),
    "the same by one worker": lambda: _limited(20, workers=1),
    "empty files, then data": lambda: Job([[2000 * MIB], *_balanced(100, 50, 0)], 1),
    "data, then empty files": lambda: Job([*_balanced(100, 100, 0), [1000 * MIB]], 1),
    "a large file in the first of many directories": lambda: Job(
        [*_balanced(100, 100, 10_000), [3000 * MIB, *[10_000] * 50]]
    ),
    "a large file in each directory": lambda: Job([[100 * MIB, *[10_000] * 50] for _ in range(40)]),
    "sizes of all kinds": lambda: Job(_varied()),
    "three levels": lambda: Job([_balanced(20, 30, 50_000) for _ in range(20)]),
    "resumed at four fifths": lambda: Job([MIB] * 10_000, earlier=8000, bytes_per_s=50 * MIB),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_time_left_is_right_in_the_second_half(shape: str) -> None:
    moments = list(_Run(SHAPES[shape]()).moments())
    end_s, end = moments[-1]
    assert end.complete
    assert (end.done, end.bytes_done) == (end.found, end.bytes_found)
    pace, due_s = Pace(), PERIOD_S
    views = 0
    for at_s, known in moments[:-1]:
        if at_s < due_s:
            continue
        due_s = at_s + PERIOD_S
        view = pace.view(at_s, known, stale_ranks=0, failed=0)
        assert 0 <= view.fraction < 1
        if at_s < end_s / 2:
            continue
        views += 1
        assert view.remaining_s is not None
        wrong = abs(view.remaining_s - (end_s - at_s))
        # A job that ends within a period is practically done.
        assert wrong <= WRONG_AT_MOST * (end_s - at_s) + PERIOD_S, f"{view} of {end_s} s"
    assert views >= 5
