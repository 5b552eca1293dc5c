"""Large files, signed in chunks that several ranks can read at once."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

import msgspec

from pcircle.fs.data import close_read, data_chunks, may_have_holes
from pcircle.fs.directories import Directories, join_path
from pcircle.fs.entry_errors import Changed, error_context
from pcircle.fs.open_flags import OPEN_FILE
from pcircle.ops.digest import Signer
from pcircle.runtime import Context
from pcircle.tools.fsum.plan import (
    BLOCK_BYTES,
    NOTHING,
    FileChunk,
    Item,
    LargeFileEntry,
    SignedPart,
    SumCounters,
    SumPlan,
    SumResult,
)
from pcircle.tools.fsum.reader import EntryReader, check_same

_SMALLEST_CHUNK_BYTES = 16 << 20
_LARGEST_CHUNK_BYTES = 256 << 20
_CHUNKS_PER_RANK = 32


class LargeFile(msgspec.Struct, frozen=True):
    """A large file between its first and its last chunk; `blocks` counts blocks with data."""

    status: os.stat_result
    blocks: int


class LargeFileSigner:
    """Signs large files for one worker thread."""

    def __init__(
        self,
        plan: SumPlan,
        directories: Directories,
        counters: SumCounters,
        reader: EntryReader,
        signer: Signer,
    ) -> None:
        self._plan = plan
        self._directories = directories
        self._counters = counters
        self._reader = reader
        self._signer = signer

    def begin(self, item: LargeFileEntry, context: Context[Item]) -> LargeFile | SignedPart:
        """Divide a file into chunks; return its result if there are no chunks."""
        try:
            with (
                error_context("open"),
                self._directories.lease(item.root, item.path, _source_of(item)) as lease,
            ):
                fd = os.open(item.name, OPEN_FILE, dir_fd=lease.fd)
                try:
                    status = os.fstat(fd)
                    if not stat.S_ISREG(status.st_mode):
                        raise Changed("it is no longer a regular file")
                    sparse = may_have_holes(status)
                    grid = list(self._grid(fd, status.st_size, sparse=sparse))
                finally:
                    close_read(fd)
        except OSError as error:
            self._counters.weight += item.weight
            path = join_path(item.path, item.name)
            self._reader.fail(item.root, path, None, error, context)
            return self._signer.attach_to(NOTHING)
        size = status.st_size
        self._counters.sized += 1
        self._counters.bytes_found += size
        where = item.root, item.path, item.name, self._plan.identify(status)
        context.spawn(
            [
                FileChunk(*where, offset, length, item.weight * length / size, sparse)
                for offset, length in grid
            ]
        )
        holes = size - sum(length for _, length in grid)
        self._counters.bytes_done += holes
        self._counters.weight += item.weight * holes / size if size else item.weight
        own = LargeFile(status, sum(-(-length // BLOCK_BYTES) for _, length in grid))
        return own if context.spawned else self.complete(item, own, SumResult(), context)

    def _grid(self, fd: int, size: int, *, sparse: bool) -> Iterator[tuple[int, int]]:
        """Yield the chunks of a file that have data."""
        wanted = size // (_CHUNKS_PER_RANK * self._plan.ranks)
        wanted = max(_SMALLEST_CHUNK_BYTES, min(_LARGEST_CHUNK_BYTES, wanted))
        whole = self._plan.chunk_bytes or -(-wanted // BLOCK_BYTES) * BLOCK_BYTES
        return data_chunks(fd, size, whole, sparse=sparse)

    def chunk(self, item: FileChunk, context: Context[Item]) -> SumResult:
        """Read a range; hand back the remaining range if it takes too long."""
        reached, end = item.offset, item.offset + item.length
        split = self._plan.chunk_bytes is None
        try:
            with error_context("reach"):
                lease = self._directories.lease(item.root, item.path)
            with lease:
                reached = self._reader.chunk(item, lease.fd, context.is_stopping, split=split)
        except OSError as error:
            self._counters.weight += item.weight
            path = join_path(item.path, item.name)
            return SumResult(cause=self._reader.failure(item.root, path, None, error))
        self._counters.weight += item.weight * (reached - item.offset) / item.length
        if reached < end and not context.stopping:
            half = -(-(end - reached) // 2 // BLOCK_BYTES) * BLOCK_BYTES
            middle = min(end, reached + half)
            change = msgspec.structs.replace
            parts = [(a, b) for a, b in ((reached, middle), (middle, end)) if b > a]
            weight = item.weight / item.length
            context.spawn(
                [change(item, offset=a, length=b - a, weight=weight * (b - a)) for a, b in parts]
            )
        return SumResult(blocks=self._signer.attach_to(NOTHING).blocks)

    def complete(
        self, item: LargeFileEntry, own: LargeFile, merged: SumResult, context: Context[Item]
    ) -> SignedPart:
        """Return the file's entry after all chunks, or no entry after a failure."""
        cause = merged.cause
        if cause is None:
            try:
                with self._directories.lease(item.root, item.path, _source_of(item)) as lease:
                    now = os.stat(item.name, dir_fd=lease.fd, follow_symlinks=False)
                check_same(own.status, now)
            except OSError as error:
                cause = self._reader.failure(
                    item.root, join_path(item.path, item.name), None, error
                )
        if cause is not None:
            self._counters.failed += 1
            context.note([cause])
            self._signer.clear()
            self._reader.sign_failed(item.root, join_path(item.path, item.name))
            return self._signer.attach_to(NOTHING)
        self._signer.clear()
        self._reader.note(own.status, own.status.st_size)
        self._signer.seal_large_file(own.status.st_size, own.blocks, merged.blocks)
        self._signer.add_entry_or_root(item.root, item.path, item.name)
        self._counters.files += 1
        return self._signer.attach_to(NOTHING)


def _source_of(item: LargeFileEntry) -> tuple[int, int] | None:
    return None if item.place is None else item.place.source
