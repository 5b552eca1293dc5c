"""Whether a job begins, resumes from a checkpoint or is refused: decided on rank 0.

Without a wish for one or the other a job that finds a checkpoint of itself is refused, and it is
said how far that got; with `resume` it goes on, or begins if there is none; with `restart` it
begins anew. What is found is data, see `Found` and `Unusable`: the tool words it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from enum import Enum, auto
from typing import NamedTuple

import msgspec

from pcircle.checkpoint.guard import Guard
from pcircle.checkpoint.index import Places
from pcircle.checkpoint.journal import Keys, Named
from pcircle.checkpoint.mark import Mark, new_mark
from pcircle.checkpoint.plan import JournalPlan
from pcircle.checkpoint.resumed import History, Trouble, read_history
from pcircle.checkpoint.store import (
    VERSION,
    Checkpoint,
    Header,
    Identity,
    Unusable,
    Why,
    place,
    refuse_other,
    writable,
)
from pcircle.fs.scan import rewound

_NOTHING = History(0, {}, (), {})


class Wish(msgspec.Struct, frozen=True):
    """What is asked for: an interval in seconds, where the checkpoint lies, and what if it exists.

    `required` tells that one was asked for by an option, so that a job
    without one is refused.
    """

    interval_s: float = 60.0
    directory: bytes | None = None
    resume: bool = False
    restart: bool = False
    never: bool = False

    @property
    def required(self) -> bool:
        return self.directory is not None


class Job(NamedTuple):
    """What a checkpoint is to be of.

    `options` are those that another run must have as well, each by its name, encoded; `marked` is
    the directory that has the target's mark. `token`, `large_bytes` and
    `now_ns` as of `Header`.
    """

    copies: tuple[Identity, ...]
    options: dict[str, bytes]
    token: bytes
    large_bytes: int
    marked: bytes
    now_ns: int = 0


class Distrust(Enum):
    """Why nothing that was recorded is used."""

    OTHER_VERSION = auto()
    """Another version has made the checkpoint."""
    OTHER_TARGET = auto()
    """The target is not the one that was written to, or its mark was removed."""
    DAMAGED = auto()
    """The header can't be read: temporary files are left as well."""


class Found(NamedTuple):
    """What earlier runs have left. `counts` None: nothing of it is resumed."""

    counts: Named | None = None
    trouble: tuple[Trouble, ...] = ()
    distrust: Distrust | None = None


class Kept(NamedTuple):
    """The checkpoint of a job that is about to begin."""

    checkpoint: Checkpoint
    guard: Guard
    plan: JournalPlan
    found: Found
    inside: bool
    large_bytes: int
    mark: Mark

    def remove(self) -> None:
        """The job is complete: remove the checkpoint and the target's mark. OSError."""
        self.guard.rest()
        try:
            self.mark.remove()
        finally:
            self.checkpoint.remove(keep_times=self.inside)

    def withdraw(self) -> None:
        """The job is not to begin after all: leave no checkpoint that was made for it."""
        if self.plan.run == 1:
            with suppress(OSError):
                self.remove()
        self.close()

    def close(self) -> None:
        """Give up the lock, and let go."""
        self.guard.end()
        self.checkpoint.close()


def keep(job: Job, wish: Wish) -> Kept | None:
    """Find or make the checkpoint of a job. Unusable if it must not begin.

    None if there can be none, and it was not asked for.
    """
    beside, inside = place(job.copies, wish.directory)
    checkpoint = Checkpoint.find(beside) or Checkpoint.find(inside)
    made = checkpoint is None
    if checkpoint is None:
        checkpoint = _make(beside, inside, wish)
    if checkpoint is None:
        return None
    guard = Guard(checkpoint, job.token)
    ours = False
    try:
        guard.take()
        ours = made
        guard.begin()  # to read what was done may take long
        header = Header(
            VERSION,
            os.urandom(8),
            checkpoint.now_ns() if made or checkpoint.header is None else 0,
            job.copies,
            job.options,
            (job.token,),
            job.large_bytes,
            new_mark(checkpoint.path),
            job.now_ns,
        )
        return _begin(checkpoint, guard, header, wish, job)
    except BaseException as error:
        if ours:
            guard.rest()
            with suppress(OSError):
                checkpoint.remove(keep_times=checkpoint.path == inside)
        guard.end()
        checkpoint.close()
        if isinstance(error, OSError):
            raise Unusable(Why.UNWRITABLE, checkpoint.path, error.strerror or "") from error
        raise


def _make(beside: bytes, inside: bytes, wish: Wish) -> Checkpoint | None:
    try:
        return Checkpoint.make(beside)
    except OSError as error:
        trouble = error
    if wish.directory is None and writable(trouble):
        with suppress(OSError):
            return Checkpoint.make(inside)
    if wish.required:
        raise Unusable(Why.UNMAKEABLE, beside, trouble.strerror or "") from trouble
    return None


def _begin(checkpoint: Checkpoint, guard: Guard, header: Header, wish: Wish, job: Job) -> Kept:
    """Set the checkpoint up."""
    was = checkpoint.header
    stale: tuple[bytes, ...] = ()
    found = Found()
    if was is None:  # new, or its first run ended before it began
        if checkpoint.has_journals():
            found = _forget_damaged(checkpoint, wish)
            Mark.remove_all(job.marked, checkpoint.path)
        history = _NOTHING
    else:
        stale = was.tokens
        header, history, found = _go_on(checkpoint, was, header, wish, job)
    checkpoint.write_header(header)
    plan = JournalPlan(
        checkpoint.path,
        header.secret,
        history.run + 1,
        wish.interval_s,
        header.begun_ns,
        stale,
        history.committed,
        header.mark,
        header.now_ns,
    )
    inside = checkpoint.path == place(header.copies, None)[1]
    mark = Mark(job.marked, header.mark)
    return Kept(checkpoint, guard, plan, found, inside, header.large_bytes, mark)


def _go_on(
    checkpoint: Checkpoint, was: Header, header: Header, wish: Wish, job: Job
) -> tuple[Header, History, Found]:
    """The header that counts from now on, and what was done; its index is written."""
    places = Places(checkpoint.fd)
    try:
        return _decided(checkpoint, was, header, wish, job, places)
    finally:
        places.close()


def _decided(
    checkpoint: Checkpoint, was: Header, header: Header, wish: Wish, job: Job, places: Places
) -> tuple[Header, History, Found]:
    """As of `_go_on`.

    Of what is not trusted nothing is left, nor the secret by which it would be read if its
    removal were lost with the power. Unusable if the job must not begin.
    """
    history = _NOTHING
    mark = Mark(job.marked, was.mark)
    if was.version == VERSION:
        history = read_history(checkpoint, Keys(was.secret), places if wish.resume else None)
    if not (wish.resume or wish.restart):
        raise Unusable(Why.INTERRUPTED, checkpoint.path, counts=history.counts)
    if not wish.restart and was.version == VERSION:
        refuse_other(was, header, checkpoint.path)
    tokens = (*was.tokens, *header.tokens)
    trouble = () if wish.restart else history.trouble
    distrust = None if wish.restart else _distrust(was, mark, history)
    if wish.restart or distrust is not None:
        _forget(checkpoint)
        mark.remove()
        history = _NOTHING._replace(run=0 if wish.restart else history.run)
        now = msgspec.structs.replace(header, begun_ns=was.begun_ns, tokens=tokens)
    else:
        now = msgspec.structs.replace(was, tokens=tokens)
    checkpoint.write(b"index", places.committed(history.commits))
    counts = history.counts if history.committed else None
    return now, history, Found(counts, trouble, distrust)


def _distrust(was: Header, mark: Mark, history: History) -> Distrust | None:
    """Why nothing that was recorded is trusted; None if it is."""
    if was.version != VERSION:
        return Distrust.OTHER_VERSION
    # What was not committed is not used anyhow, and the run may have ended before the mark.
    if history.committed and not mark.stands():
        return Distrust.OTHER_TARGET
    return None


def _forget_damaged(checkpoint: Checkpoint, wish: Wish) -> Found:
    """Let a checkpoint begin anew whose header can't be read. Unusable unless it is asked for."""
    if not (wish.resume or wish.restart):
        raise Unusable(Why.DAMAGED, checkpoint.path)
    _forget(checkpoint)
    return Found(distrust=Distrust.DAMAGED)


def _forget(checkpoint: Checkpoint) -> None:
    """Remove what earlier runs have recorded."""
    for name in map(os.fsencode, os.listdir(rewound(checkpoint.fd))):
        if name.startswith((b"journal-", b"index")):
            os.unlink(name, dir_fd=checkpoint.fd)
