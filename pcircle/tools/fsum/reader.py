"""Reads the content of entries to compute their digests.

A native function reads many small files per call. Larger files are read in pieces small enough to
stay in the processor's cache until they are hashed, while the kernel reads ahead. Holes are not
read. A file that changes while it is being read gets no digest.

`LargeFileSigner` signs large files in chunks that several ranks can read at the same time.
"""

from __future__ import annotations

import math
import os
import stat
import time
from collections.abc import Callable, Iterator

import msgspec
from msgspec.structs import replace

from pcircle.core.buffers import aligned
from pcircle.fs import native
from pcircle.fs.data import ReadEffects, data_chunks, data_ranges, may_have_holes
from pcircle.fs.directories import Directories, close_open, join_path
from pcircle.fs.entry_errors import Changed, error_context, tried
from pcircle.fs.file_system import size_is_nominal
from pcircle.fs.native.interface import MAX_FILE_BYTES, NOT_PLAIN, UNTRIED
from pcircle.fs.open_flags import OPEN_FILE
from pcircle.fs.stats import within_limit
from pcircle.jobs.action_log import ActionLog
from pcircle.jobs.failures import Failure, FailureReporter, NoticeSink, failure_of
from pcircle.ops.digest import Signer
from pcircle.ops.digest.digests import FAILED
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
from pcircle.walk.items import source_of

_SMALL_BYTES = 128 << 10
_PIECE_BYTES = 512 << 10
_AHEAD_BYTES = BLOCK_BYTES
_CHUNK_SPLIT_S = 0.25
_LOOK_EVERY_NS = 10_000_000  # time limit of a native call, so that progress is reported
_TOGETHER = 64  # the maximum number of small files read by one call
_CONTENTS_BYTES = 256 << 10
_BARE_BYTES = 32 << 10  # larger files in batches of directories are read one by one
_LARGER = 4  # consecutive large files after which `small` returns
_KIND_BITS = 0o170000


def check_same(before: os.stat_result, after: os.stat_result) -> None:
    """Raise Changed if a file was modified or replaced between two look-ups."""
    for field in ("st_ino", "st_size", "st_mtime_ns", "st_ctime_ns"):
        if getattr(before, field) != getattr(after, field):
            raise Changed("it changed while it was read")


class EntryReader(FailureReporter):
    """Reads entries for the `signer` of a worker, and reports failures."""

    def __init__(self, plan: SumPlan, counters: SumCounters, signer: Signer) -> None:
        super().__init__(counters)
        self.plan = plan
        self.counters = counters
        self.signer = signer
        self._detailed = plan.detailed
        self.effects: ReadEffects = ReadEffects(counters, noatime=plan.noatime)
        self._small = aligned(_SMALL_BYTES + 1)
        self._native = within_limit()
        self._piece = aligned(_PIECE_BYTES)

    def small(
        self, names: list[bytes], directory_fd: int, enough: Callable[[], bool]
    ) -> tuple[int, list[bytes]]:
        """Sign small files in batches until `enough` returns true or several large files follow.

        Return the number of files tried, and the names that must be passed to `file`: those of
        files that are not small or failed.
        """
        undone: list[bytes] = []
        tried, count = 0, _LARGER
        while tried < len(names):
            batch = names[tried : tried + count]
            sizes, entries = self._read(batch, directory_fd, _SMALL_BYTES)
            self.signer.add_entries(entries)
            missed = [name for name, entry in zip(batch, entries, strict=False) if not entry]
            tried += len(sizes)
            undone += missed
            self.count_files(len(sizes) - len(missed), sum(size for size in sizes if size > 0))
            # Stop if the next files are probably large, because `file` would open them again.
            if enough() or sizes[-_LARGER:] == [NOT_PLAIN] * _LARGER:
                break
            count = min(2 * count, _TOGETHER)
        return tried, undone

    def bare(
        self, names: list[bytes], fds: list[int], enough: Callable[[], bool]
    ) -> tuple[list[int], list[bytes]]:
        """Read files in several directories until `enough` returns true.

        Return their sizes and entries. The entry of a file that must be passed to `file` is empty.
        The counters do not change.
        """
        sizes: list[int] = []
        entries: list[bytes] = []
        while (at := len(sizes)) < len(names):
            batch = slice(at, at + _TOGETHER)
            more = self._read(names[batch], fds[batch], _BARE_BYTES)
            sizes += more[0]
            entries += more[1]
            if enough():
                break
        larger = [at for at, size in enumerate(sizes) if size == NOT_PLAIN]
        for at in larger:
            if enough():
                break
            name = slice(at, at + 1)
            sizes[name], entries[name] = self._read(
                names[name], fds[name], MAX_FILE_BYTES, MAX_FILE_BYTES + 1
            )
        return sizes, entries

    def _read(
        self,
        names: list[bytes],
        fds: int | list[int],
        max_bytes: int,
        contents_bytes: int = _CONTENTS_BYTES,
    ) -> tuple[list[int], list[bytes]]:
        """Return the sizes and entries of as many files as one call can read; see `bare`."""
        until_ns = time.monotonic_ns() + _LOOK_EVERY_NS
        outcomes, contents = self._native.read_files(
            fds, names, OPEN_FILE | self.effects.flags, max_bytes, contents_bytes, until_ns
        )
        sizes = native.numbers(outcomes)
        if sizes[-1] == UNTRIED:
            # If the first read was interrupted, leave that file to `file`.
            sizes = sizes[: sizes.index(UNTRIED)] or [NOT_PLAIN]
        return sizes, self.signer.pack_small_files(names, sizes, contents)

    def count_files(self, added: int, size: int) -> None:
        """Count files that were signed, and their bytes."""
        self.counters.sized += added
        self.counters.files += added
        self.counters.bytes_found += size
        self.counters.bytes_done += size

    def file(
        self, name: bytes, directory_fd: int, stop: Callable[[], bool], *, whole: bool = False
    ) -> bool:
        """Sign a regular file; return False if it is large, unless it must be read as a `whole`.

        Raise OSError if the file cannot be read or has changed.
        """
        with error_context("open"):
            fd = self.effects.open(name, OPEN_FILE, dir_fd=directory_fd)
        try:
            status = os.fstat(fd)
            self.effects.see(name, directory_fd, status)
            size = status.st_size
            if size <= _SMALL_BYTES and status.st_mode & _KIND_BITS == stat.S_IFREG:
                # The buffer has one more byte than needed, to detect that the file has grown.
                count = os.readv(fd, [self._small])
                if count == size:
                    self.signer.seal_small_file(self._small[:count])
                    self.note(status, size)
                    self.counters.bytes_found += size
                    self.counters.bytes_done += size
                    self.counters.sized += 1
                    return True
                os.lseek(fd, 0, os.SEEK_SET)
            if not stat.S_ISREG(status.st_mode):
                raise Changed("it is no longer a regular file")
            is_large = size > self.plan.large_bytes and not whole
            if is_large and not size_is_nominal(fd, status):
                return False
            self._whole(fd, status, stop)
            return True
        finally:
            close_open(fd)

    def _whole(self, fd: int, status: os.stat_result, stop: Callable[[], bool]) -> None:
        self.counters.sized += 1
        self.signer.begin()
        if not status.st_size or size_is_nominal(fd, status):
            self.note(status, self._unsized(fd, stop))
            return
        self.counters.bytes_found += status.st_size
        done = self.counters.bytes_done
        try:
            sparse = may_have_holes(status)
            enough = stop if status.st_size > self.plan.large_bytes else bool
            if self._ranges(fd, 0, status.st_size, sparse=sparse, enough=enough) < status.st_size:
                raise Changed("it was unfinished when the job stopped")
            check_same(status, os.fstat(fd))
        except OSError:
            self.counters.bytes_found -= status.st_size
            self.counters.bytes_done = done
            raise
        self.counters.bytes_done = done + status.st_size  # holes count as read
        self.signer.end_file(status.st_size)
        self.note(status, status.st_size)

    def _unsized(self, fd: int, stop: Callable[[], bool]) -> int:
        at = 0
        while count := os.readv(fd, [self._piece]):
            self.signer.tap(at, self._piece[:count])
            at += count
            if stop():
                raise Changed("it was unfinished when the job stopped")
        self.counters.bytes_found += at
        self.counters.bytes_done += at
        self.signer.end_file(at)
        return at

    def chunk(
        self, item: FileChunk, directory_fd: int, stop: Callable[[], bool], *, split: bool
    ) -> int:
        """Read a range of a file into the signer; return the offset at which reading ended.

        If `split` is set, reading ends at the first block boundary after a quarter of a second.
        Other ranks can then read the remaining range. Raise OSError if the file cannot be read or
        was replaced.
        """
        with error_context("open"):
            fd = self.effects.reopen(item.name, OPEN_FILE, dir_fd=directory_fd)
        try:
            if self.plan.identify(os.fstat(fd)) != item.file:
                raise Changed("it was replaced while it was read")
            self.signer.begin(item.offset)
            before = self.counters.bytes_done
            until_s = time.monotonic() + (_CHUNK_SPLIT_S if split else math.inf)
            end = item.offset + item.length

            def enough() -> bool:
                return stop() or time.monotonic() > until_s

            reached = self._ranges(fd, item.offset, end, sparse=item.sparse, enough=enough)
            self.signer.end_chunk(item.offset, reached)
        finally:
            close_open(fd)
        self.counters.bytes_done = before + reached - item.offset
        return reached

    def _ranges(
        self, fd: int, offset: int, end: int, *, sparse: bool, enough: Callable[[], bool]
    ) -> int:
        """Read a range that begins at a block boundary until `enough` returns true.

        Return the offset at which reading ended.
        """
        length = end - offset
        ranges = data_ranges(fd, offset, length) if sparse else iter([(offset, length)])
        for start, length in ranges:
            at, last = start, start + length
            while at < last:
                if at % BLOCK_BYTES == 0:
                    if at > offset and enough():
                        return at
                    ahead = min(_AHEAD_BYTES, end - at - BLOCK_BYTES)
                    if ahead > 0:
                        os.posix_fadvise(fd, at + BLOCK_BYTES, ahead, os.POSIX_FADV_WILLNEED)
                piece = self._piece[: min(_PIECE_BYTES - at % _PIECE_BYTES, last - at)]
                count = os.preadv(fd, [piece], at)
                if not count:
                    raise Changed("it shrank while it was read")
                self.signer.tap(at, piece[:count])
                self.counters.bytes_done += count
                at += count
        return end

    def link(self, name: bytes, directory_fd: int) -> None:
        """Sign a symbolic link; raise OSError if it cannot be read."""
        with error_context("read link"):
            text = os.readlink(name, dir_fd=directory_fd)
        self.signer.seal_link(text)
        if self._detailed:
            status = os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
            self.note(status, len(text))

    def node(self, name: bytes, directory_fd: int) -> None:
        """Sign a FIFO, socket or device without opening it.

        Raise OSError if it cannot be looked up or was replaced.
        """
        with error_context("look at"):
            status = os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
            if stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode):
                raise Changed("it was replaced")
        self.signer.seal_node(status.st_mode, status.st_rdev)
        self.note(status, 0)

    def note(self, status: os.stat_result, size: int) -> None:
        """Store size and times with the seal if the plan requires them."""
        if self._detailed:
            self.signer.set_trailer(size, status.st_mtime_ns, status.st_ctime_ns)

    # ---- failures --------------------------------------------------------------

    def tell(self, failure: Failure, context: NoticeSink) -> None:
        """Report a failed entry, and mark it as failed for comparisons."""
        super().tell(failure, context)
        self.sign_failed(failure.root, failure.entry)

    def sign_failed(self, root: int, path: bytes) -> None:
        """Sign an entry as failed, so that a comparison does not report it as missing."""
        if self.plan.against is not None:
            self.signer.seal = FAILED + bytes(self.signer.algorithm.size)
            self.signer.trailer = bytes(self.plan.trailer_bytes)
            name = path.rpartition(b"/")[2]
            self.signer.add_entry(name if path and not self.plan.roots[root].name else b"%d" % root)

    def failure(self, root: int, path: bytes, doing: str | None, error: OSError) -> Failure:
        doing = doing or tried(error, "read")
        return failure_of(self.plan.roots[root], root, path, doing, error)


# ---- large files ---------------------------------------------------------------------------------

_SMALLEST_CHUNK_BYTES = 16 << 20
_LARGEST_CHUNK_BYTES = 256 << 20
_CHUNKS_PER_RANK = 32


class LargeFile(msgspec.Struct, frozen=True):
    """A large file whose chunks are being read; `blocks` is the number of blocks with data."""

    status: os.stat_result
    blocks: int


class LargeFileSigner:
    """Signs large files for one worker thread."""

    def __init__(
        self, reader: EntryReader, directories: Directories, log: ActionLog | None
    ) -> None:
        self._reader = reader
        self._plan, self._counters, self._signer = reader.plan, reader.counters, reader.signer
        self._directories = directories
        self._log = log

    def begin(self, item: LargeFileEntry, context: Context[Item]) -> LargeFile | SignedPart:
        """Spawn an item for each chunk of a file; return its result if there are no chunks."""
        try:
            with (
                error_context("open"),
                self._directories.lease(item.root, item.path, source_of(item.place)) as lease,
            ):
                fd = self._reader.effects.reopen(item.name, OPEN_FILE, dir_fd=lease.fd)
                try:
                    status = os.fstat(fd)
                    if not stat.S_ISREG(status.st_mode):
                        raise Changed("it is no longer a regular file")
                    sparse = may_have_holes(status)
                    grid = list(self._grid(fd, status.st_size, sparse=sparse))
                finally:
                    close_open(fd)
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
        """Yield the chunks of a file that contain data."""
        even_bytes = size // (_CHUNKS_PER_RANK * self._plan.ranks)
        even_bytes = max(_SMALLEST_CHUNK_BYTES, min(_LARGEST_CHUNK_BYTES, even_bytes))
        whole = self._plan.chunk_bytes or -(-even_bytes // BLOCK_BYTES) * BLOCK_BYTES
        return data_chunks(fd, size, whole, sparse=sparse)

    def chunk(self, item: FileChunk, context: Context[Item]) -> SumResult:
        """Read a range, and spawn items for the remaining range if reading takes too long."""
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
            parts = [(a, b) for a, b in ((reached, middle), (middle, end)) if b > a]
            weight = item.weight / item.length
            context.spawn(
                [replace(item, offset=a, length=b - a, weight=weight * (b - a)) for a, b in parts]
            )
        return SumResult(blocks=self._signer.attach_to(NOTHING).blocks)

    def complete(
        self, item: LargeFileEntry, own: LargeFile, merged: SumResult, context: Context[Item]
    ) -> SignedPart:
        """Sign a file whose chunks have been read, or report its failure."""
        cause, path = merged.cause, join_path(item.path, item.name)
        if cause is None:
            try:
                with self._directories.lease(item.root, item.path, source_of(item.place)) as lease:
                    now = os.stat(item.name, dir_fd=lease.fd, follow_symlinks=False)
                check_same(own.status, now)
            except OSError as error:
                cause = self._reader.failure(item.root, path, None, error)
        self._signer.clear()
        if cause is not None:
            self._counters.failed += 1
            context.note([cause])
            self._reader.sign_failed(item.root, path)
            return self._signer.attach_to(NOTHING)
        self._signer.seal_large_file(own.status.st_size, own.blocks, merged.blocks)
        self._reader.note(own.status, own.status.st_size)
        self._signer.add_entry_or_root(item.root, item.path, item.name)
        if self._log is not None:
            self._log.entry("sign", item.root, item.path, item.name)
            self._log.tell(context)
        self._counters.files += 1
        return self._signer.attach_to(NOTHING)
