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
from pcircle.fcp.mark import Mark, is_in_copy, new_mark
from pcircle.fcp.plan import DIRECTORY, FILE, JournalPlan, Plan, Root
from pcircle.fcp.resumed import Entries, History, is_litter_of, read_history, write_index
from pcircle.trusted import Untrusted, place_of, refuse_pseudo
from pcircle.ui.names import show
from pcircle.units import format_count, format_size

_NOTHING = History(0, False, (), ())


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
    mark: Mark

    def remove(self) -> None:
        """The copy is complete: remove the checkpoint and the target's mark. OSError."""
        self.guard.rest()
        try:
            self.mark.remove()
        finally:
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


def reached(wish: Wish) -> Wish:
    """The wish, no link left in its directory's path. UsageError if one is not trusted."""
    if wish.directory is None:
        return wish
    try:
        with place_of(os.path.join(wish.directory, b"")) as place:
            refuse_pseudo(place)
            return msgspec.structs.replace(wish, directory=os.path.abspath(place.path))
    except Untrusted as error:
        shown = show(wish.directory)
        raise UsageError(f"--checkpoint-dir '{shown}': {error.strerror}") from None
    except OSError:
        return wish  # to make the checkpoint will say what is wrong


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
            new_mark(checkpoint.path),
        )
        target = identities[0].target
        marked = target if is_in_copy(plan.roots) else os.path.dirname(target)
        kept = _begin(checkpoint, guard, header, wish, marked)
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


def _begin(checkpoint: Checkpoint, guard: Guard, header: Header, wish: Wish, marked: bytes) -> Kept:
    """Set the checkpoint up; `marked` is the directory that has the target's mark."""
    was = checkpoint.header
    stale: tuple[bytes, ...] = ()
    if was is None:  # new, or its first run ended before it began
        remarks = []
        if checkpoint.has_journals():
            remarks = _forget_damaged(checkpoint, wish)
            Mark.remove_all(marked, checkpoint.path)
        history = _NOTHING
    else:
        stale = was.tokens
        header, history, remarks = _go_on(checkpoint, was, header, wish, Mark(marked, was.mark))
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
    )
    inside = checkpoint.path == place(header.copies, None)[1]
    mark = Mark(marked, header.mark)
    return Kept(checkpoint, guard, plan, tuple(remarks), inside, header.large_bytes, mark)


def _go_on(
    checkpoint: Checkpoint, was: Header, header: Header, wish: Wish, mark: Mark
) -> tuple[Header, History, list[Remark]]:
    """The header that counts from now on, and what was done; its index is written.

    Of what is not trusted nothing is left, nor the secret by which it would be read if its
    removal were lost with the power. UsageError if the copy must not begin.
    """
    history, entries = _NOTHING, Entries(bytearray(), {})
    if was.version == VERSION:
        history, entries = read_history(checkpoint, Keys(was.secret))
    if not (wish.resume or wish.restart):
        raise UsageError(
            f"an interrupted copy has left the checkpoint '{show(checkpoint.path)}' "
            f"({how_far(history.counts)}): --resume goes on from it, --restart begins anew"
        )
    if not wish.restart and was.version == VERSION:
        refuse_other(was, header, checkpoint.path)
    tokens = (*was.tokens, *header.tokens)
    remarks = [] if wish.restart else [Remark(checkpoint.path, line) for line in history.trouble]
    distrust = "" if wish.restart else _distrust(was, mark, history)
    if distrust:
        remarks.append(Remark(checkpoint.path, distrust))
    if wish.restart or distrust:
        _forget(checkpoint)
        mark.remove()
        run = 0 if wish.restart else history.run
        history, entries = _NOTHING._replace(run=run), Entries(bytearray(), {})
        now = msgspec.structs.replace(header, begun_ns=was.begun_ns, tokens=tokens)
    else:
        now = msgspec.structs.replace(was, tokens=tokens)
    if history.committed:
        text = f"is gone on from: {how_far(history.counts)}"
        remarks.append(Remark(checkpoint.path, text))
    write_index(checkpoint, entries)
    return now, history, remarks


def _distrust(was: Header, mark: Mark, history: History) -> str:
    """Why nothing that was recorded is trusted; empty if it is."""
    if was.version != VERSION:
        return "was made by another version of fcp: it is not used, and all is copied again"
    # What was not committed is not used anyhow, and the run may have ended before the mark.
    if history.committed and not mark.stands():
        target = show(mark.directory)
        return (
            f"is not used: '{target}' is not the one that was copied to, or its mark was removed; "
            "all is copied again"
        )
    return ""


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
