"""Whether a copy begins, goes on from a checkpoint or is refused: decided on rank 0.

Without an option a copy that finds a checkpoint of itself refuses and says how
far it got; `--resume` goes on, or begins if there is none; `--restart` begins
anew. In all cases the temporary files of earlier runs are swept up on the way.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec

from pcircle.errors import UsageError
from pcircle.fcp.checkpoint import (
    VERSION,
    Checkpoint,
    Guard,
    Header,
    copies,
    options_of,
    place,
    refuse_other,
    writable,
)
from pcircle.fcp.counters import totals
from pcircle.fcp.items import Remark
from pcircle.fcp.journal import Counts, Keys
from pcircle.fcp.plan import DIRECTORY, FILE, JournalPlan, Plan, Root
from pcircle.fcp.resumed import Entries, History, is_litter_of, read_history, write_index
from pcircle.ui.names import show
from pcircle.units import format_count, format_size


class Wish(msgspec.Struct, frozen=True):
    """What is asked for: an interval in seconds, where the checkpoint lies, and what if it exists.

    `required` tells that one was asked for by an option, so that a copy
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


class Kept(NamedTuple):
    """The checkpoint of a copy that is about to begin."""

    checkpoint: Checkpoint
    guard: Guard
    plan: JournalPlan
    remarks: tuple[Remark, ...]
    inside: bool
    large_bytes: int

    def remove(self) -> None:
        """The copy is complete: remove the checkpoint. OSError."""
        self.guard.rest()
        self.checkpoint.remove(keep_times=self.inside)

    def withdraw(self) -> None:
        """The copy is not to begin after all: leave no checkpoint that was made for it."""
        if self.plan.run == 1:
            with suppress(OSError):
                self.remove()
        self.close()

    def close(self) -> None:
        """Give up the lock, and let go."""
        self.guard.end()
        self.checkpoint.close()


def is_worth_it(plan: Plan) -> bool:
    """Whether a copy may take long enough to be interrupted."""
    return not plan.dry and any(_is_large(root, plan) for root in plan.roots)


def _is_large(root: Root, plan: Plan) -> bool:
    if root.kind != FILE:
        return root.kind == DIRECTORY
    path = os.path.join(plan.directory, root.source_holder, root.source_name)
    with suppress(OSError):
        return os.stat(path).st_size > plan.large_bytes
    return False


def has_checkpoint(roots: Sequence[Root], here: bytes, wish: Wish) -> bool:
    """Whether there is a checkpoint of a copy of these roots."""
    try:
        paths = place(copies(roots, here), wish.directory)
    except OSError:
        return False
    return any(os.path.isdir(path) and not os.path.islink(path) for path in paths)


def keep(plan: Plan, wish: Wish) -> Kept | None:
    """Find or make the checkpoint of a copy. UsageError if it must not begin.

    None if there can be none, and it was not asked for.
    """
    try:
        identities = copies(plan.roots, plan.directory)
    except OSError:
        return None  # a source is gone: the copy will tell
    beside, inside = place(identities, wish.directory)
    checkpoint = Checkpoint.find(beside) or Checkpoint.find(inside)
    made = checkpoint is None
    if checkpoint is None:
        checkpoint = _make(beside, inside, wish)
    if checkpoint is None:
        return None
    guard = Guard(checkpoint, plan.token)
    ours = False
    try:
        guard.take()
        ours = made
        guard.begin()  # to read what was done may take long
        header = Header(
            VERSION,
            os.urandom(8),
            checkpoint.now_ns() if made or checkpoint.header is None else 0,
            identities,
            options_of(plan),
            (plan.token,),
            plan.large_bytes,
        )
        kept = _begin(checkpoint, guard, header, wish)
    except BaseException as error:
        if ours:
            guard.rest()
            with suppress(OSError):
                checkpoint.remove(keep_times=checkpoint.path == inside)
        guard.end()
        checkpoint.close()
        if isinstance(error, OSError):
            raise UsageError(
                f"the checkpoint '{show(checkpoint.path)}' can't be written: {error.strerror}"
            ) from error
        raise
    if not kept.plan.resumed:  # else some of it may be gone on with
        _sweep_holders(plan, kept.plan.stale)
    return kept


def _make(beside: bytes, inside: bytes, wish: Wish) -> Checkpoint | None:
    try:
        return Checkpoint.make(beside)
    except OSError as error:
        trouble = error
    if wish.directory is None and writable(trouble):
        with suppress(OSError):
            return Checkpoint.make(inside)
    if wish.required:
        raise UsageError(
            f"the checkpoint '{show(beside)}' can't be made: {trouble.strerror}"
        ) from trouble
    return None


def _begin(checkpoint: Checkpoint, guard: Guard, header: Header, wish: Wish) -> Kept:
    was = checkpoint.header
    inside = checkpoint.path == place(header.copies, None)[1]
    if was is None:  # new, or its first run ended before it began
        remarks = _forget_damaged(checkpoint, wish) if checkpoint.has_journals() else []
        checkpoint.write_header(header)
        plan = JournalPlan(checkpoint.path, header.secret, 1, wish.interval_s, header.begun_ns)
        return Kept(checkpoint, guard, plan, tuple(remarks), inside, header.large_bytes)
    keys = Keys(was.secret)
    history, entries = read_history(checkpoint, keys)
    if not (wish.resume or wish.restart):
        raise UsageError(
            f"an interrupted copy has left the checkpoint '{show(checkpoint.path)}' "
            f"({how_far(history.counts)}): --resume goes on from it, --restart begins anew"
        )
    if wish.restart:
        _forget(checkpoint)
        entries = Entries(bytearray(), {})
        history = History(0, False, (), ())
        was = msgspec.structs.replace(
            was, copies=header.copies, options=header.options, large_bytes=header.large_bytes
        )
    refuse_other(was, header, checkpoint.path)
    write_index(checkpoint, entries)
    stale = was.tokens
    checkpoint.write_header(msgspec.structs.replace(was, tokens=(*stale, *header.tokens)))
    remarks = [Remark(checkpoint.path, line) for line in history.trouble]
    if history.committed:
        remarks.append(Remark(checkpoint.path, f"is gone on from: {how_far(history.counts)}"))
    plan = JournalPlan(
        checkpoint.path,
        was.secret,
        history.run + 1,
        wish.interval_s,
        was.begun_ns,
        stale,
        history.committed,
    )
    return Kept(checkpoint, guard, plan, tuple(remarks), inside, was.large_bytes)


def how_far(counts: Counts) -> str:
    """How much had been done when these counts were committed."""
    if not counts:
        return "nothing is sure to be on disk yet"
    done = totals(counts)
    return f"{format_count(done.settled)} entries, {format_size(done.bytes_done)} done"


def _forget_damaged(checkpoint: Checkpoint, wish: Wish) -> list[Remark]:
    """Let a checkpoint begin anew whose header can't be read. UsageError unless it is asked for."""
    if not (wish.resume or wish.restart):
        raise UsageError(
            f"an interrupted copy has left the checkpoint '{show(checkpoint.path)}', which is "
            "damaged: its header can't be read; --resume or --restart begin anew"
        )
    _forget(checkpoint)
    text = "is damaged: nothing of it can be gone on from, and temporary files are left"
    return [Remark(checkpoint.path, text)]


def _forget(checkpoint: Checkpoint) -> None:
    """Remove what earlier runs have recorded."""
    for name in map(os.fsencode, os.listdir(checkpoint.fd)):
        if name.startswith((b"journal-", b"index")):
            os.unlink(name, dir_fd=checkpoint.fd)


def _sweep_holders(plan: Plan, stale: Sequence[bytes]) -> None:
    """Remove litter of roots that are not directories, from where these have their names."""
    if not stale:
        return
    holders = {
        os.path.join(plan.directory, root.target_holder)
        for root in plan.roots
        if root.kind != DIRECTORY
    }
    is_litter: Callable[[bytes], bool] = is_litter_of(stale)
    for holder in holders:
        with suppress(OSError):
            for name in filter(is_litter, os.listdir(holder)):
                os.unlink(os.path.join(holder, name))
