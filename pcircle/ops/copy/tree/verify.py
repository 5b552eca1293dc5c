"""`--verify`: read copies back from disk instead of memory, and repair them.

Digests of the copy are compared with digests of the data that was read from the source. The copy
has been synced (`pcircle.ops.copy.tree.worker`), so its pages are clean and can be dropped from the
page cache. The data is then read from the disk or the server. Pages cannot be dropped on a memory
file system, or while another process maps the file.

A file or chunk that differs is read a second time, because the read may be wrong rather than the
copy. If it differs again, it is copied again, synced and read back. If it still differs, the copy
is removed and the entry fails. An unreadable file or chunk counts as different.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import msgspec

from pcircle.core.errors import require
from pcircle.fs.attributes.xattrs import lift_flags
from pcircle.fs.directories import join_path
from pcircle.fs.entry_errors import MISMATCH, Changed, EntryError, kind_of
from pcircle.jobs.failures import Failure
from pcircle.ops.copy.entry import target
from pcircle.ops.copy.entry.attributes import AttributeCopier
from pcircle.ops.copy.entry.content_hash import (
    DIGEST_BYTES,
    ExpectedContent,
    HashObserver,
    Rereader,
    StopRereading,
)
from pcircle.ops.copy.entry.files import Copier
from pcircle.ops.copy.entry.overwrite import OverwriteOptions
from pcircle.ops.copy.tree.counters import CopyCounters, named
from pcircle.ops.copy.tree.items import (
    NOTHING,
    VERIFYING,
    ChunkVerification,
    CopiedFiles,
    CopyChunk,
    CopyResult,
    FileVerification,
    FinishedCopy,
    Item,
    PartialResult,
    Remark,
)
from pcircle.ops.copy.tree.worker import Worker, WorkerPart
from pcircle.runtime import Context
from pcircle.walk.items import source_of, target_of, unpack

_NEVER_LARGE_BYTES = 1 << 62
_SECOND_MATCHED = "{}: the first read-back differed, but the second matched"
_COPIED_AGAIN = "failed verification; copied again"


class VerificationError(EntryError):
    """The data that was read back differs from the data that was copied."""

    def __init__(self) -> None:
        super().__init__(MISMATCH, "verification mismatch")


class Verifier(WorkerPart):
    """Verifies copies for one worker thread."""

    def __init__(self, worker: Worker) -> None:
        super().__init__(worker)
        plan = self._plan
        # A copy that differs is replaced regardless of the options for existing files.
        existing = OverwriteOptions(force=True, in_place=plan.existing.in_place, sync=True)
        again = msgspec.structs.replace(
            plan, existing=existing, large_bytes=_NEVER_LARGE_BYTES, since_ns=None
        )
        counters = CopyCounters()  # discarded: the files are already counted
        self._extras = AttributeCopier(plan.keep, counters, worker.copier.names)
        self._hasher = HashObserver()
        observers = [self._hasher] if worker.limits is None else [self._hasher, worker.limits]
        self._again = Copier(again, counters, self._extras, observers)
        self._rereader = Rereader()

    def verify(
        self, item: FileVerification | ChunkVerification, context: Context[Item]
    ) -> CopyResult:
        """Read copies back; the result contains the error of the last failure."""
        try:
            if isinstance(item, ChunkVerification):
                return self._part(item, context)
            return self._groups(item, context)
        except StopRereading:
            return CopyResult()

    # ---- files -----------------------------------------------------------------

    def _groups(self, item: FileVerification, context: Context[Item]) -> CopyResult:
        slots: dict[int, PartialResult] = {}
        done = CopyResult()
        delta = self._delta
        for group in item.groups:
            done = self._names(group, context)
            slots[group.slot] = delta.merge(slots.get(group.slot, NOTHING), delta.take())
        return msgspec.structs.replace(done, slots=slots)

    def _names(self, item: CopiedFiles, context: Context[Item]) -> CopyResult:
        names, again = unpack(item.names), CopyResult()
        cause: Failure | None = None
        digests = [
            item.digests[at : at + DIGEST_BYTES] for at in range(0, len(item.digests), DIGEST_BYTES)
        ]
        for name, size, digest in zip(names, item.sizes, digests, strict=True):
            if context.stopping:
                raise StopRereading
            try:
                again = self._file(item, name, ExpectedContent(size, digest), context)
            except OSError as error:
                cause = self._fail(item, name, error, context)
        recorder = self._recorder
        if recorder is not None and item.counts and cause is None:
            done = names + unpack(item.other_names)
            made_in = self._sides.copy_mark(item.root, item.path)
            recorder.add_names(
                item.root, item.path, done, named(item.counts), made_in, item.entries
            )
        return msgspec.structs.replace(again, cause=cause)

    def _file(
        self, item: CopiedFiles, name: bytes, seen: ExpectedContent, context: Context[Item]
    ) -> CopyResult:
        """Verify a file; return the result of copying it again if that was necessary."""
        own = self._sides.target_name(item.root, item.path, name)
        again = CopyResult()
        with self._sides.targets.lease(item.root, item.path, target_of(item.place)) as lease:
            reads = partial(self._rereader.reads, lease.fd, own, seen)
            text = self._read_back(reads)
            if text == _COPIED_AGAIN:
                again = self._copy_again(item, name, seen.digest, lease.fd, own)
        self._remark(item.root, join_path(item.path, name), text, context)
        return again

    def _copy_again(
        self, item: CopiedFiles, name: bytes, digest: bytes, target_fd: int, own: bytes
    ) -> CopyResult:
        identity = None
        try:
            old = os.stat(own, dir_fd=target_fd, follow_symlinks=False)
            if stat.S_ISREG(old.st_mode):
                identity = old.st_dev, old.st_ino
        except FileNotFoundError:
            pass  # then a new file is created
        try:
            with self._sides.sources.lease(item.root, item.path, source_of(item.place)) as source:
                self._extras.enter(target_fd)
                self._again.names.collisions.leave()
                if self._plan.keep.flags:
                    lift_flags(target_fd, own)
                self._hasher.take()
                self._again.file(source.fd, name, target_fd, own, claimed=True)
            seen = self._hasher.take()[name]
            made = os.stat(own, dir_fd=target_fd, follow_symlinks=False)
            identity = made.st_dev, made.st_ino
            self._check_signed(seen.digest, digest)
            if not self._rereader.reads(target_fd, own, seen):
                raise VerificationError
        except OSError:
            if identity is not None:
                target.discard(own, target_fd, identity)
            raise
        opened = require(self._again.status)  # no option can keep the old copy
        return CopyResult(copy=FinishedCopy(target.mark_of(made), self._plan.stamp(opened)))

    def _fail(
        self, item: CopiedFiles, name: bytes, error: OSError, context: Context[Item]
    ) -> Failure:
        """Report a file whose copy differs and cannot be repaired."""
        path = join_path(item.path, name)
        trouble = _as_failure(error)
        self._counters.files -= 1
        self._accounts.fail(item.root, path, VERIFYING, trouble, context, sized=True)
        self._accounts.stop_if_full(item.root, error)
        return self._accounts.failure(item.root, path, VERIFYING, trouble)

    # ---- parts of large files --------------------------------------------------

    def _part(self, item: ChunkVerification, context: Context[Item]) -> CopyResult:
        chunk = item.chunk
        path = join_path(chunk.path, chunk.name)
        try:
            with self._sides.targets.lease(chunk.root, chunk.path) as lease:
                read = partial(
                    self._rereader.has_range_digest,
                    lease.fd,
                    chunk.temporary,
                    lambda status: self._plan.identify(status) == chunk.target,
                    (chunk.offset, chunk.length),
                    context.is_stopping,
                )
                text = self._read_back(partial(read, item.digest))
                if text == _COPIED_AGAIN:
                    self._copy_part_again(chunk, lease.fd, context)
                    self._check_signed(self._hasher.digest, item.digest)
                    if not read(self._hasher.digest):
                        raise VerificationError
                self._remark(chunk.root, path, text, context)
        except OSError as error:
            self._accounts.stop_if_full(chunk.root, error)
            return CopyResult(cause=self._accounts.failure(chunk.root, path, VERIFYING, error))
        if self._recorder is not None:
            file = chunk.root, chunk.path, chunk.name
            where = chunk.temporary, chunk.offset, chunk.length
            self._recorder.add_range(file, *where, item.blocks)
        return CopyResult()

    def _copy_part_again(self, chunk: CopyChunk, target_fd: int, context: Context[Item]) -> None:
        with self._sides.sources.lease(chunk.root, chunk.path) as source:
            stop = context.is_stopping
            reached, error = self._again.chunk(chunk, source.fd, target_fd, False, stop)
        if error is not None:
            raise error
        if reached < chunk.offset + chunk.length:
            raise StopRereading

    # ---- files and parts -------------------------------------------------------

    def _read_back(self, read: Callable[[], bool]) -> str:
        """Read a copy back until it matches, at most twice, and return the remark to make.

        The remark is empty if the first read matches. `read` returns whether the content matches;
        unreadable content does not.
        """
        for remark in ("", _SECOND_MATCHED):
            with suppress(OSError):
                if read():
                    return remark
        return _COPIED_AGAIN

    def _check_signed(self, digest: bytes, signed: bytes) -> None:
        """Raise Changed if a repeated copy differs from the content that was signed."""
        if self._signer is not None and digest != signed:
            raise Changed("the content differs from the first read")

    def _remark(self, root: int, path: bytes, text: str, context: Context[Item]) -> None:
        if text:
            context.note([Remark(self._plan.shown(root, path), text)])


def _as_failure(error: OSError) -> OSError:
    """Return the error to report for an entry whose copy differs."""
    if isinstance(error, VerificationError):
        return error
    reason = error.strerror or "unknown error"
    text = f"{VerificationError().strerror}; cannot copy it again: {reason}"
    if isinstance(error, EntryError):
        return EntryError(kind_of(error), text)
    return OSError(error.errno, text)
