"""Copies large files in chunks, on many ranks at the same time.

A `LargeFileItem` creates the temporary file and spawns the chunks. A `CopyChunk` copies a range;
when its time is up, the remaining range is spawned as new chunks. After the last chunk, the
attributes of the file are set, and it is renamed to its final name. If a chunk failed, the file is
removed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from pcircle.core.units import CHUNK_UNIT_BYTES
from pcircle.fs.data import data_chunks, may_have_holes
from pcircle.fs.directories import join_path
from pcircle.jobs.failures import Failure
from pcircle.ops.checkpoint.journal import RangeRecord, StartedFileRecord
from pcircle.ops.copy.entry import target
from pcircle.ops.copy.entry.observers import SourceModifiedError
from pcircle.ops.copy.entry.overwrite import DestinationExistsError
from pcircle.ops.copy.entry.target import StartedFile, TargetFile, TargetFullError
from pcircle.ops.copy.tree.items import (
    NOTHING,
    OF_FILE,
    CopyChunk,
    CopyResult,
    FinishedCopy,
    Item,
    LargeFileItem,
)
from pcircle.ops.copy.tree.resume import temporary_of, usable, without
from pcircle.ops.copy.tree.worker import WorkerPart
from pcircle.runtime import Context

_SMALLEST_CHUNK_BYTES = 16 << 20
_LARGEST_CHUNK_BYTES = 1 << 30
_CHUNKS_PER_RANK = 4


def chunk_bytes(
    size: int, ranks: int, unit_bytes: int, min_bytes: int = _SMALLEST_CHUNK_BYTES
) -> int:
    """Return the size of the chunks of a file, a multiple of `unit_bytes`."""
    even_bytes = size // (_CHUNKS_PER_RANK * ranks)
    bounded = max(min_bytes, min(_LARGEST_CHUNK_BYTES, even_bytes))
    return -(-bounded // unit_bytes) * unit_bytes


class LargeFileState(msgspec.Struct, frozen=True):
    """The state of a large file while its chunks are being copied."""

    source: os.stat_result
    creation: TargetFile
    identity: tuple[int, int]
    blocks: int = 0  # number of signature blocks that contain data
    known: bytes = b""  # digests of the blocks that an earlier run has copied
    resumed_bytes: int = 0  # number of bytes that an earlier run copied


class LargeFileCopier(WorkerPart):
    """Copies large files for one worker thread."""

    def begin(self, item: LargeFileItem, context: Context[Item]) -> LargeFileState | CopyResult:
        """Start a file and spawn its chunks, or complete it if there is nothing left to copy."""
        self._copier.names.expected = item.expected
        if item.ahead_bytes is not None:
            self._counters.ahead -= 1
            self._counters.ahead_bytes -= item.ahead_bytes
        try:
            with self._sides.leases(item.root, item.path, item.place) as (source, lease):
                self._worker.enter(item.root, item.path, item.place, lease.fd)
                names = (source.fd, item.name, lease.fd, item.target_name)
                if self._earlier is not None:
                    self._earlier.lift(lease.fd, [item.target_name])
                begun, known = self._take_up(item, *names)
                if begun is None:
                    begun = self._copier.begin(*names, self._grid)
                    self._record(item, begun)
                status, creation, identity, ranges = begun
                lengths = [length for _, length in ranges] + [part.length for part in known]
                blocks = sum(-(-length // CHUNK_UNIT_BYTES) for length in lengths)
                digests = b"".join(part.blocks for part in known)
                resumed_bytes = status.st_size - sum(length for _, length in ranges) if known else 0
                own = LargeFileState(status, creation, identity, blocks, digests, resumed_bytes)
                self._spawn_chunks(item, own, ranges, context)
        except DestinationExistsError:
            self._counters.weight += item.weight
            return self._skip(item, context)
        except OSError as error:
            self._counters.weight += item.weight
            self._accounts.fail(item.root, join_path(item.path, item.name), None, error, context)
            return CopyResult()
        if context.spawned:
            return own
        # The file contains no data, was cloned, or an earlier run copied all its data.
        return self.complete(item, own, CopyResult(), context)

    def _skip(self, item: LargeFileItem, context: Context[Item]) -> CopyResult:
        """Skip a file because its name exists in the target."""
        try:
            with self._sides.targets.lease(item.root, item.path, item.place.target) as lease:
                self._copier.skip(lease.fd, item.target_name)
        except OSError as error:
            self._accounts.fail(item.root, join_path(item.path, item.name), None, error, context)
            return CopyResult()
        return self._signed(item, CopyResult())

    def _signed(self, item: LargeFileItem, done: CopyResult) -> CopyResult:
        if self._signer is not None:
            self._signer.add_entry_or_root(item.root, item.path, item.name)
        return done

    def _take_up(
        self, item: LargeFileItem, source_fd: int, source: bytes, target_fd: int, name: bytes
    ) -> tuple[StartedFile | None, Sequence[RangeRecord]]:
        """Resume a file of an earlier run if possible; return it with its completed ranges."""
        where = (item.root, item.path)
        if self._earlier is None:
            return None, ()
        begun = self._earlier.resumed.started_files(*where, source, name)
        if self._signer is not None:
            begun = [(record, usable(self._signer, parts)) for record, parts in begun]
        if not begun:
            return None, ()
        with self._copier.opened(source_fd, source) as (fd, status):
            found = temporary_of(begun, self._plan.stamp(status), target_fd, name)
            if found is None:
                return None, ()
            written, made, parts = found
            unit_bytes = self._copier.layouts.unit_bytes_by_name(fd, target_fd, written)
            ranges = without(self._grid(fd, status, unit_bytes), parts)
            names = written, name
            resumed = self._copier.resume_file((fd, status), ranges, made, names, target_fd)
            resumed[1].unit_bytes = unit_bytes
        self._counters.resumed_bytes += status.st_size - sum(length for _, length in ranges)
        return resumed, parts

    def _record(self, item: LargeFileItem, begun: StartedFile) -> None:
        status, creation, identity, _ = begun
        if self._recorder is None:
            return
        key_of = partial(self._recorder.keys.file, item.root, item.path)
        key, written = key_of(item.name), creation.written
        source = self._plan.stamp(status).version
        self._recorder.add(StartedFileRecord(key, key_of(written), written, identity[1], source))

    def _spawn_chunks(
        self,
        item: LargeFileItem,
        own: LargeFileState,
        ranges: Sequence[tuple[int, int]],
        context: Context[Item],
    ) -> None:
        size = own.source.st_size
        sparse = self._has_holes(own.source)
        chunks: list[Item] = [
            CopyChunk(
                item.name,
                own.creation.written,
                self._plan.identify(own.source),
                own.identity,
                offset,
                length,
                item.weight * length / size,
                sparse,
                item.root,
                item.path,
                own.creation.unit_bytes,
            )
            for offset, length in ranges
        ]
        holes = size - sum(length for _, length in ranges)
        self._counters.bytes_done += holes
        self._counters.weight += item.weight * holes / size if size else item.weight
        context.spawn(chunks)

    def _grid(self, fd: int, status: os.stat_result, unit_bytes: int) -> list[tuple[int, int]]:
        """Return the offset and length of each chunk of a file."""
        whole = self._chunk_bytes(status.st_size, unit_bytes)
        return list(data_chunks(fd, status.st_size, whole, sparse=self._has_holes(status)))

    def _has_holes(self, status: os.stat_result) -> bool:
        """Return whether a file may have holes that the copy must preserve."""
        return self._plan.sparse != "never" and may_have_holes(status)

    def _chunk_bytes(self, size: int, unit_bytes: int) -> int:
        if self._plan.chunk_bytes is not None:
            return self._plan.chunk_bytes
        # Each rank owns a fixed share of a rate limit, so all ranks should start early.
        limited = self._plan.bytes_per_s is not None
        min_bytes = CHUNK_UNIT_BYTES if limited else _SMALLEST_CHUNK_BYTES
        return chunk_bytes(size, self._size, unit_bytes, min_bytes)

    def chunk(self, item: CopyChunk, context: Context[Item]) -> CopyResult:
        """Copy a range of a file; the result contains the error, if there is one."""
        reached = item.offset
        error: OSError | None = None
        try:
            with self._sides.leases(item.root, item.path) as (source, lease):
                split = self._plan.chunk_bytes is None
                stop = context.is_stopping
                reached, error = self._copier.chunk(item, source.fd, lease.fd, split, stop)
        except OSError as unreached:
            error = unreached
        end = item.offset + item.length
        if error is not None:
            self._counters.weight += item.weight * (end - reached) / item.length
            failure = self._failure(item, error)
            if isinstance(error, TargetFullError):
                # The file is not counted as failed, because its copied part stays and other chunks
                # may fail in the same way.
                self._accounts.tell(failure, context)
                self._accounts.stop_if_full(item.root, error)
            return CopyResult(cause=failure)
        self._reached(item, reached, context)
        if reached < end and not context.stopping:
            self._share_rest(item, reached, end, context)
        return CopyResult()

    def _reached(self, item: CopyChunk, reached: int, context: Context[Item]) -> None:
        """Record the copied part of a chunk, or hold it for verification."""
        blocks = b"" if self._signer is None else self._signer.blocks
        if reached == item.offset or (self._signer is not None and not blocks):
            return
        if self._waiting is not None:
            self._waiting.part(item, reached, blocks, context)
        elif self._recorder is not None:
            file = item.root, item.path, item.name
            length = reached - item.offset
            self._recorder.add_range(file, item.temporary, item.offset, length, blocks)

    def _share_rest(self, item: CopyChunk, offset: int, end: int, context: Context[Item]) -> None:
        """Spawn the remaining range of a slow chunk as two chunks."""
        middle = min(end, -(-(offset + end) // 2 // item.unit_bytes) * item.unit_bytes)
        parts = [(a, b) for a, b in ((offset, middle), (middle, end)) if b > a]
        whole, weight = item.length, item.weight
        context.spawn(
            [
                replace(item, offset=a, length=b - a, weight=weight * (b - a) / whole)
                for a, b in parts
            ]
        )

    def complete(
        self, item: LargeFileItem, own: LargeFileState, merged: CopyResult, context: Context[Item]
    ) -> CopyResult:
        """Complete the file after all chunks: set its attributes and rename it, or remove it.

        If the file must be copied again, spawn an item for that.
        """
        cause, copy = merged.cause, None
        self._copier.names.expected = item.expected
        blocks = merged.slots.get(OF_FILE, NOTHING).blocks
        try:
            with self._sides.leases(item.root, item.path, item.place) as (source, lease):
                self._worker.enter_names(item.root, item.path, made=item.place.made)
                names = (source.fd, item.name, lease.fd)
                made_as = own.source, own.creation, own.identity
                self._copier.finish(*made_as, names, failed=cause is not None)
                if cause is None and item.linked:
                    made = os.stat(own.creation.name, dir_fd=lease.fd, follow_symlinks=False)
                    copy = FinishedCopy(target.mark_of(made), self._plan.stamp(own.source))
                self._sides.sync_holder(item.path, lease)
        except DestinationExistsError:
            self._counters.sized -= 1  # it was counted at the start
            return self._skip(item, context)
        except SourceModifiedError as moved:
            if not item.again and not context.stopping:
                return self._once_more(item, own, context)
            cause = self._failure(item, moved)
        except OSError as error:
            cause = self._failure(item, error)
        if cause is not None:
            self._counters.failed += 1
            self._accounts.tell(cause, context)
            return CopyResult(cause=cause)
        self._counters.files += 1
        if self._acting is not None:
            self._acting.at(item.root, item.path)
            self._acting.done("copy", own.source.st_mode, item.name, own.source.st_size)
        if self._signer is not None:
            self._signer.seal_large_file(own.source.st_size, own.blocks, own.known + blocks)
        return self._signed(item, CopyResult(copy=copy))

    def _failure(self, item: CopyChunk | LargeFileItem, error: OSError) -> Failure:
        return self._accounts.failure(item.root, join_path(item.path, item.name), None, error)

    def _once_more(
        self, item: LargeFileItem, own: LargeFileState, context: Context[Item]
    ) -> CopyResult:
        """Start the copy again, with an item without weight, because that is already counted."""
        counters = self._counters
        counters.sized -= 1
        counters.bytes_found -= own.source.st_size
        counters.bytes_done -= own.source.st_size
        counters.resumed_bytes -= own.resumed_bytes
        context.spawn([replace(item, weight=0.0, again=True, ahead_bytes=None)])
        return CopyResult()

    def abandon(self, item: LargeFileItem, own: LargeFileState) -> None:
        """Remove the incomplete copy, because the job is stopping."""
        try:
            with self._sides.targets.lease(item.root, item.path) as lease:
                target.discard(own.creation.written, lease.fd, own.creation.identity)
        except OSError:
            return  # the directory is unreachable, probably because it was removed with the file
