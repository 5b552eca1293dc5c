"""Decides, on rank 0, whether a job starts, resumes or is refused.

A job that finds its own checkpoint is refused with a report of the progress, unless `resume` or
`restart` is requested. `resume` continues from an existing checkpoint, or starts the job if there
is none; `restart` discards an existing checkpoint. The result is data (`ResumeState` or
`CheckpointError`) that the tools turn into messages.
"""

from __future__ import annotations

import errno
import os
from contextlib import closing, suppress
from enum import Enum, auto
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from pcircle.fs.scan import rewound
from pcircle.ops.checkpoint import store
from pcircle.ops.checkpoint.journal import NamedCounts, RecordKeys
from pcircle.ops.checkpoint.plan import CheckpointOptions, JournalPlan
from pcircle.ops.checkpoint.previous_records import History, JournalProblem, read_history

if TYPE_CHECKING:
    from pcircle.ops.checkpoint.index import IndexBuilder

_NOTHING = History(0, {}, (), {})


class CheckpointJob(msgspec.Struct, frozen=True):
    """The job to which a checkpoint belongs.

    `options` contains the encoded value of each option that another run must repeat, and
    `mark_directory` is the directory for the target's mark. `CheckpointHeader` describes `token`,
    `large_bytes` and `now_ns`.
    """

    copies: tuple[store.CopyIdentity, ...]
    options: dict[str, bytes]
    token: bytes
    large_bytes: int
    mark_directory: bytes
    now_ns: int = 0


class DiscardReason(Enum):
    """The reason why the records of previous runs are not used."""

    OTHER_VERSION = auto()
    """Another version created the checkpoint."""
    OTHER_TARGET = auto()
    """The target is not the one that was written to, or its mark was removed."""
    DAMAGED = auto()
    """The header is unreadable, so the tokens are unknown and temporary files remain."""


class ResumeState(msgspec.Struct, frozen=True):
    """The work of previous runs; `counts` is None if no work is resumed."""

    counts: NamedCounts | None = None
    problems: tuple[JournalProblem, ...] = ()
    discarded: DiscardReason | None = None


class CheckpointSession(msgspec.Struct, frozen=True):
    """The checkpoint of a job that is about to start."""

    checkpoint: store.Checkpoint
    lock: store.CheckpointLock
    plan: JournalPlan
    state: ResumeState
    inside: bool
    large_bytes: int
    mark: store.TargetMark

    def remove(self) -> None:
        """Remove the checkpoint and the target's mark after a complete job. Raises OSError."""
        self.lock.stop()
        try:
            self.mark.remove()
        finally:
            self.checkpoint.remove(keep_times=self.inside)

    def abandon(self) -> None:
        """Abandon the job before it starts; remove the checkpoint if this is its first run."""
        if self.plan.run == 1:
            with suppress(OSError):
                self.remove()
        self.close()

    def close(self) -> None:
        """Release the lock and close the checkpoint."""
        self.lock.release()
        self.checkpoint.close()


def open_session(job: CheckpointJob, options: CheckpointOptions) -> CheckpointSession | None:
    """Open or create the checkpoint of a job. Raises CheckpointError if the job must not start.

    Return None if a checkpoint cannot be created and is not required.
    """
    preferred, inside = store.checkpoint_paths(job.copies, options.directory)
    checkpoint = store.Checkpoint.find(preferred) or store.Checkpoint.find(inside)
    created = checkpoint is None
    if checkpoint is None:
        checkpoint = _create(preferred, inside, options)
    if checkpoint is None:
        return None
    lock = store.CheckpointLock(checkpoint, job.token)
    is_new = False
    try:
        lock.acquire()
        is_new = created
        lock.start_heartbeat()  # reading the journals may take a long time
        header = store.CheckpointHeader(
            store.VERSION,
            os.urandom(8),
            checkpoint.now_ns() if created or checkpoint.header is None else 0,
            job.copies,
            job.options,
            (job.token,),
            job.large_bytes,
            store.new_mark(checkpoint.path),
            job.now_ns,
        )
        return _begin(checkpoint, lock, header, options, job)
    except BaseException as error:
        if is_new:
            lock.stop()
            with suppress(OSError):
                checkpoint.remove(keep_times=checkpoint.path == inside)
        lock.release()
        checkpoint.close()
        if isinstance(error, OSError):
            if created and not is_new:  # without its lock, another job may already use it
                with suppress(OSError):
                    os.rmdir(checkpoint.path)
            is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            if created and is_full and not options.required:
                return None  # the copy reports which entry could not be created
            raise store.CheckpointError(
                store.RefusalReason.UNWRITABLE, checkpoint.path, error.strerror or ""
            ) from error
        raise


def _create(preferred: bytes, inside: bytes, options: CheckpointOptions) -> store.Checkpoint | None:
    try:
        return store.Checkpoint.create(preferred)
    except OSError as error:
        failure = error
    if options.directory is None and store.is_place_error(failure):
        with suppress(OSError):
            return store.Checkpoint.create(inside)
    if options.required:
        raise store.CheckpointError(
            store.RefusalReason.CREATION_FAILED, preferred, failure.strerror or ""
        ) from failure
    return None


def _begin(
    checkpoint: store.Checkpoint,
    lock: store.CheckpointLock,
    header: store.CheckpointHeader,
    options: CheckpointOptions,
    job: CheckpointJob,
) -> CheckpointSession:
    """Write the header of the checkpoint, and return the session."""
    old = checkpoint.header
    stale: tuple[bytes, ...] = ()
    state = ResumeState()
    if old is None:  # new, or the header is missing or damaged
        if checkpoint.has_journals():
            state = _discard_damaged(checkpoint, options)
            store.TargetMark.remove_all(job.mark_directory, checkpoint.path)
        history = _NOTHING
    else:
        stale = old.tokens
        from pcircle.ops.checkpoint.index import IndexBuilder  # only resumed copies need the index

        with closing(IndexBuilder(checkpoint.fd)) as builder:
            mark = store.TargetMark(job.mark_directory, old.mark)
            header, history, state = _resume(checkpoint, old, header, options, mark, builder)
    checkpoint.write_header(header)
    plan = JournalPlan(
        checkpoint.path,
        header.secret,
        history.run + 1,
        options.interval_s,
        header.begun_ns,
        stale,
        history.committed,
        header.mark,
        header.now_ns,
    )
    inside = checkpoint.path == store.checkpoint_paths(header.copies, None)[1]
    mark = store.TargetMark(job.mark_directory, header.mark)
    return CheckpointSession(checkpoint, lock, plan, state, inside, header.large_bytes, mark)


def _resume(
    checkpoint: store.Checkpoint,
    old: store.CheckpointHeader,
    header: store.CheckpointHeader,
    options: CheckpointOptions,
    mark: store.TargetMark,
    builder: IndexBuilder,
) -> tuple[store.CheckpointHeader, History, ResumeState]:
    """Write the index of the records that are used; return the new header and the previous work.

    Records that are not trusted are removed together with the secret that is needed to read them.
    They stay unreadable even if a power failure undoes the removal. Raises CheckpointError if the
    job must not start.
    """
    history, path, restart = _NOTHING, checkpoint.path, options.restart
    is_same_version = old.version == store.VERSION
    if is_same_version:
        keys = RecordKeys(old.secret)
        history = read_history(checkpoint, keys, builder if options.resume else None)
    if not (options.resume or restart):
        raise store.CheckpointError(store.RefusalReason.INTERRUPTED, path, counts=history.counts)
    if not restart and is_same_version:
        store.require_same_job(old, header, path)
    tokens = (*old.tokens, *header.tokens)
    problems = () if restart else history.problems
    discarded = None if restart else _discard_reason(old, mark, history)
    if restart or discarded is not None:
        _remove_records(checkpoint)
        mark.remove()
        history = replace(_NOTHING, run=0 if restart else history.run)
        new = replace(header, begun_ns=old.begun_ns, tokens=tokens)
    else:
        new = replace(old, tokens=tokens)
    checkpoint.write(b"index", builder.committed_entries(history.commits))
    counts = history.counts if history.committed else None
    return new, history, ResumeState(counts, problems, discarded)


def _discard_reason(
    old: store.CheckpointHeader, mark: store.TargetMark, history: History
) -> DiscardReason | None:
    """Return the reason why the records are not trusted, or None if they are trusted."""
    if old.version != store.VERSION:
        return DiscardReason.OTHER_VERSION
    # If nothing was committed, no record is used, and the run may have ended before it created the
    # mark.
    if history.committed and not mark.exists():
        return DiscardReason.OTHER_TARGET
    return None


def _discard_damaged(checkpoint: store.Checkpoint, options: CheckpointOptions) -> ResumeState:
    """Discard a checkpoint with an unreadable header.

    Raises CheckpointError if neither resume nor restart was requested.
    """
    if not (options.resume or options.restart):
        raise store.CheckpointError(store.RefusalReason.DAMAGED, checkpoint.path)
    _remove_records(checkpoint)
    return ResumeState(discarded=DiscardReason.DAMAGED)


def _remove_records(checkpoint: store.Checkpoint) -> None:
    """Remove the records of previous runs."""
    for name in map(os.fsencode, os.listdir(rewound(checkpoint.fd))):
        if name.startswith((b"journal-", b"index")):
            os.unlink(name, dir_fd=checkpoint.fd)
