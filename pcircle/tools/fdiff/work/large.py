"""Compares large files in chunks, so that several ranks can read a file at once.

The item of a file reads the first megabyte itself. If the files differ there, as most differing
files do, no chunks are created. The join of the item reports the result.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from pcircle.fs.data import data_ranges, may_have_holes
from pcircle.fs.directories import HOLDER, join_path
from pcircle.jobs.failures import NoticeSink
from pcircle.ops.compare.content import ContentComparer
from pcircle.ops.compare.fields import CONTENT, NOTHING, SIZE
from pcircle.ops.compare.statuses import (
    Fds,
    Openers,
    error_side,
    open_files,
    set_error_side,
    with_side,
)
from pcircle.runtime import Context
from pcircle.tools.fdiff.plan import DiffItem, LargeFilePair, PairChunk
from pcircle.tools.fdiff.work.pairs import EntryPair, PairComparer
from pcircle.walk.items import source_of, target_of

if TYPE_CHECKING:
    from pcircle.tools.fdiff.reporter import ComparisonTask

_FIRST_BYTES = 1 << 20
_STEP_BYTES = 8 << 20
_SMALLEST_CHUNK_BYTES = 16 << 20
_LARGEST_CHUNK_BYTES = 256 << 20
_CHUNKS_PER_RANK = 32
_CHUNK_S = 0.25
UNLIKE = -1
"""The slot that counts differing chunks. Slot numbers below it are error codes."""


class ChunkedPair(msgspec.Struct, frozen=True):
    """A pair whose chunks are being compared; `different` holds the differences so far."""

    pair: EntryPair
    different: int


class LargeFileComparer:
    """Compares large files.

    Each thread has its own instance. The number of ranks determines the size of the chunks.
    """

    def __init__(self, task: ComparisonTask, pairs: PairComparer) -> None:
        self._task = task
        self._pairs = pairs
        self._counters = task.counters
        self._contents = ContentComparer()

    @contextmanager
    def _opened(
        self, item: LargeFilePair | PairChunk, openers: Openers
    ) -> Iterator[tuple[bytes, Fds, tuple[os.stat_result, os.stat_result]]]:
        place, task = item.place, self._task
        known = source_of(place), target_of(place)
        (other,) = self._pairs.names_in_b(item.path, [item.name])
        with (
            with_side(0, lambda _: task.directories.lease(0, item.path, known[0])) as source,
            with_side(1, lambda _: task.targets.lease(0, item.path, known[1])) as target,
            open_files(item.name, (source.fd, target.fd), other, openers) as (fds, statuses),
        ):
            yield other, fds, statuses

    def begin(self, item: LargeFilePair, context: Context[DiffItem]) -> ChunkedPair | None:
        """Compare the start of a pair, and divide the rest into chunks if it is equal.

        Return None if the pair is complete or has failed.
        """
        path = b"" if item.path == HOLDER else join_path(item.path, item.name)
        self._counters.sized += 1
        try:
            self._pairs.watch(path, context)
            with self._opened(item, self._pairs.openers) as (other, fds, (a, b)):
                pair = EntryPair(path, item.name, other, a, b)
                different = item.different | CONTENT
                if a.st_size != b.st_size:
                    different |= SIZE
                elif self._contents.same(fds, 0, min(a.st_size, _FIRST_BYTES)):
                    different = item.different
                    self._hand_out(item, fds, (a, b), context)
        except OSError as error:
            self._task.fail(path, "compare", error, context)
            return None
        if context.spawned:
            return ChunkedPair(pair, different)
        self._pairs.settle(pair, different, context)
        return None

    def _hand_out(
        self,
        item: LargeFilePair,
        fds: Fds,
        statuses: tuple[os.stat_result, os.stat_result],
        context: Context[DiffItem],
    ) -> None:
        """Spawn chunks for the rest of the file, except for ranges without data on either side."""
        size = statuses[0].st_size
        self._counters.bytes_found += size
        self._counters.bytes_done += min(size, _FIRST_BYTES)
        sparse = all(map(may_have_holes, statuses))
        whole = size // (_CHUNKS_PER_RANK * self._task.plan.ranks) // _STEP_BYTES * _STEP_BYTES
        whole = max(_SMALLEST_CHUNK_BYTES, min(_LARGEST_CHUNK_BYTES, whole))
        for offset in range(_FIRST_BYTES, size, whole):
            length = min(whole, size - offset)
            if sparse and not any(any(data_ranges(fd, offset, length)) for fd in fds):
                self._counters.bytes_done += length
                continue
            context.spawn([PairChunk(item.path, item.name, item.place, offset, length, sparse)])

    def chunk(self, item: PairChunk, context: Context[DiffItem]) -> dict[int, int]:
        """Compare a range, and spawn the remaining range in two parts if that takes too long."""
        until_s = time.monotonic() + _CHUNK_S
        at, end = item.offset, item.offset + item.length
        try:
            with self._opened(item, self._pairs.reopeners) as (_, fds, _statuses):
                while at < end and not context.stopping:
                    length = min(_STEP_BYTES, end - at)
                    if not self._contents.same(fds, at, length, sparse=item.sparse):
                        self._counters.bytes_done += end - at
                        return {UNLIKE: 1}
                    at += length
                    self._counters.bytes_done += length
                    if time.monotonic() > until_s:
                        break
        except OSError as error:
            self._counters.bytes_done += end - at
            return {_code_of(error): 1}
        if at < end and not context.stopping:
            middle = at + (end - at) // 2 // _STEP_BYTES * _STEP_BYTES
            change = msgspec.structs.replace
            parts = [(a, b) for a, b in ((at, middle), (middle, end)) if b > a]
            context.spawn([change(item, offset=a, length=b - a) for a, b in parts])
        return {}

    def complete(self, begun: ChunkedPair, merged: dict[int, int], context: NoticeSink) -> None:
        """Report a pair after all of its chunks have been compared."""
        code = min(merged, default=0)
        if code < UNLIKE and not merged.get(UNLIKE):
            self._task.fail(begun.pair.path, "compare", _error_of(code), context)
            return
        found = CONTENT if merged.get(UNLIKE) else NOTHING
        self._pairs.settle(begun.pair, begun.different | found, context)


def _code_of(error: OSError) -> int:
    """Encode an error and the side on which it occurred as a number."""
    return -2 - 2 * (error.errno or 0) - error_side(error)


def _error_of(code: int) -> OSError:
    number, side = divmod(-2 - code, 2)
    text = os.strerror(number) if number else "it is no longer the same file"
    return set_error_side(OSError(number or None, text), side)
