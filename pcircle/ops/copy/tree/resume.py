"""The checkpoint of a copy: its identities and options, and the messages about it.

`pcircle.ops.checkpoint.resume` decides whether a copy starts, resumes or is refused. Temporary
files of earlier runs are removed in all cases.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice

import msgspec

from pcircle.core.errors import UsageError
from pcircle.core.guards import require
from pcircle.core.names import show
from pcircle.core.units import format_count, format_size
from pcircle.fs.safe_open import Untrusted, named, refuse_pseudo
from pcircle.ops.checkpoint import resume
from pcircle.ops.checkpoint.journal import NamedCounts
from pcircle.ops.checkpoint.previous_records import JournalProblem, temporary_name_matcher
from pcircle.ops.checkpoint.resume import (
    CheckpointJob,
    CheckpointOptions,
    CheckpointSession,
    DiscardReason,
)
from pcircle.ops.checkpoint.store import (
    PREFIX,
    Checkpoint,
    CheckpointError,
    CopyIdentity,
    RefusalReason,
    checkpoint_paths,
)
from pcircle.ops.copy.tree.counters import totals
from pcircle.ops.copy.tree.items import Remark
from pcircle.ops.copy.tree.plan import DIRECTORY, FILE, CopyPlan, CopyRoot, is_in_copy

_LOOKED_AT_MOST = 10_000  # names in the directory of a checkpoint


def is_worth_it(plan: CopyPlan) -> bool:
    """Return whether a copy may take long enough to be interrupted."""
    return not plan.dry and any(_is_large(root, plan) for root in plan.roots)


def _is_large(root: CopyRoot, plan: CopyPlan) -> bool:
    if root.kind != FILE:
        return root.kind == DIRECTORY
    path = os.path.join(plan.directory, root.source_holder, root.source_name)
    with suppress(OSError):
        return os.stat(path).st_size > plan.large_bytes
    return False


def reached(wish: CheckpointOptions) -> CheckpointOptions:
    """Return the options with the directory resolved. UsageError if a link is not trusted."""
    if wish.directory is None:
        return wish
    try:
        with named(os.path.join(wish.directory, b"")) as checkpoint_paths:
            refuse_pseudo(checkpoint_paths)
            return msgspec.structs.replace(wish, directory=os.path.abspath(checkpoint_paths.path))
    except Untrusted as error:
        shown = show(wish.directory)
        raise UsageError(f"--checkpoint-dir '{shown}': {error.strerror}") from None
    except OSError:
        return wish  # creating the checkpoint reports the error


def copies(roots: Sequence[CopyRoot], here: bytes) -> tuple[CopyIdentity, ...]:
    """Return the identities of copies of these roots. OSError if a source is gone."""
    found = []
    for root in roots:
        source = os.path.join(here, root.source_holder, root.source_name)
        target = os.path.join(os.path.realpath(os.path.join(here, root.target_holder)), b"")
        inode = os.stat(source, follow_symlinks=root.kind == DIRECTORY).st_ino
        # An existing root may be its own holder, without a name.
        path = (target + root.target_name).rstrip(b"/") or b"/"
        found.append(CopyIdentity(_lexical(source), inode, path))
    return tuple(found)


def _lexical(path: bytes) -> bytes:
    holder, name = os.path.split(os.path.normpath(path))
    return os.path.join(os.path.realpath(holder), name)


def options_of(plan: CopyPlan) -> dict[str, bytes]:
    """Return the options that a resumed run must share, encoded by name."""
    encode = msgspec.msgpack.encode
    return {
        "what is preserved": encode(msgspec.structs.replace(plan.keep, given=None)),
        "existing files": encode(plan.existing),
        "filters": encode(plan.rules),
        "filters by attribute": encode(plan.wanted),
        "-L": encode(plan.follow),
        "-x": encode(plan.one_file_system),
        "--sparse": encode(plan.sparse),
        "--stripe": encode((plan.striping.keep, plan.striping.layout)),
        "--verify": encode(plan.verify),
        "--signature": encode(plan.sign),
        "the list of paths": encode(plan.listed),
        "your umask": encode(0 if plan.keep.mode else plan.umask),
        **plan.more_options(),
    }


def has_checkpoint(roots: Sequence[CopyRoot], here: bytes, wish: CheckpointOptions) -> bool:
    """Return whether these roots have a checkpoint."""
    try:
        paths = checkpoint_paths(copies(roots, here), wish.directory)
    except OSError:
        return False
    return any(os.path.isdir(path) and not os.path.islink(path) for path in paths)


def keep(plan: CopyPlan, wish: CheckpointOptions) -> CheckpointSession | None:
    """Find or create the checkpoint of a copy. UsageError if the copy must not start.

    None if a checkpoint is impossible and was not requested.
    """
    try:
        identities = copies(plan.roots, plan.directory)
    except OSError:
        return None  # a source was removed, which the copy reports
    target = identities[0].target
    marked = target if is_in_copy(plan.roots) else os.path.dirname(target)
    job = CheckpointJob(
        identities, options_of(plan), plan.token, plan.large_bytes, marked, plan.now_ns
    )
    try:
        session = resume.open_session(job, wish)
    except CheckpointError as why:
        raise UsageError(words_of(why)) from why
    if session is not None and not session.plan.resumed:  # otherwise some of them may be resumed
        _sweep_holders(plan, session.plan.stale)
    return session


def none_found(roots: Sequence[CopyRoot], target: bytes) -> str:
    """Return the message that nothing is resumed, with the destination of the copy."""
    root, *more_roots = roots
    goes = root.target_shown
    if more_roots or root.kind != DIRECTORY or goes.rstrip(b"/") == target.rstrip(b"/"):
        return "no checkpoint found: starting"
    return (
        f"no checkpoint found: starting; '{show(target)}' exists, so the copy goes to "
        f"'{show(goes)}': add -T to make '{show(target)}' the copy"
    )


def left_behind(session: CheckpointSession) -> Iterator[Remark]:
    """Yield remarks about checkpoints of other copies to the same place.

    Checkpoints are named by source and destination, so a copy does not find them otherwise.
    """
    mine = session.checkpoint
    targets = {copy.target for copy in require(mine.header).copies}
    holder, name = os.path.split(mine.path)
    for found in islice(_names_in(holder), _LOOKED_AT_MOST):
        if found == name or not found.startswith(PREFIX):
            continue
        try:
            other = Checkpoint.find(os.path.join(holder, found))
        except CheckpointError:
            continue
        if other is None:
            continue
        copies = () if other.header is None else other.header.copies
        other.close()
        for copy in copies:
            if copy.target in targets:
                sides = f"'{show(copy.source)}' to '{show(copy.target)}'"
                text = f"is of an interrupted copy of {sides}: resume that one, or remove it"
                yield Remark(other.path, text)
                break


def _names_in(directory: bytes) -> Iterator[bytes]:
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            yield entry.name


def words_of(error: CheckpointError) -> str:
    """Return the reason why a checkpoint cannot be used, and what to do."""
    path, detail = show(error.path), error.detail
    what, busy = f"the checkpoint '{path}'", "another run of this copy is going on"
    left, cure = f"an interrupted copy has left {what}", "to discard it, add --restart"
    source = show(os.fsencode(detail))
    goes_on = "to continue, add --resume; to start over, --restart"
    return {
        RefusalReason.UNREACHABLE: f"{what}: {detail}",
        RefusalReason.NOT_TRUSTED: f"{what} is writable by others",
        RefusalReason.NEWER: f"{what} was written by a newer version of pcircle",
        RefusalReason.JUST_CREATED: f"{busy}: '{path}' was just made",
        RefusalReason.BUSY: f"{busy}: {what} is locked {detail}".rstrip(),
        RefusalReason.CREATION_FAILED: f"{what} cannot be created: {detail}",
        RefusalReason.UNWRITABLE: f"{what} cannot be written: {detail}",
        RefusalReason.INTERRUPTED: f"{left} ({how_far(error.counts)}): {goes_on}",
        RefusalReason.DAMAGED: f"{left}, which is damaged: its header cannot be read; "
        "to start over, add --resume or --restart",
        RefusalReason.OTHER_SOURCE: f"{what} belongs to another source than '{source}'; {cure}",
        RefusalReason.OTHER_SOURCES: f"{what} belongs to other sources; {cure}",
        RefusalReason.OTHER_OPTIONS: f"{what} was made with other options ({detail}); {cure}",
    }[error.reason]


def remarks_of(session: CheckpointSession) -> list[Remark]:
    """Return remarks about the records that earlier runs have left."""
    found = session.state
    lines = [_damage(trouble) for trouble in found.problems]
    if found.discarded is not None:
        lines.append(_distrust(found.discarded, session.mark.directory))
    if found.counts is not None:
        lines.append(f"resuming from {{}}: {how_far(found.counts)}")
    return [Remark(session.checkpoint.path, line) for line in lines]


def _damage(trouble: JournalProblem) -> str:
    if trouble.reason:
        return f"cannot read {trouble.journal}: {trouble.reason}"
    lost = f"{trouble.lost_bytes} bytes of {trouble.journal} are damaged"
    return f"{lost}; the entries they cover are copied again"


def _distrust(distrust: DiscardReason, target: bytes) -> str:
    return {
        DiscardReason.OTHER_VERSION: "was made by another version of pcircle and is not used: "
        "everything is copied again",
        DiscardReason.OTHER_TARGET: f"is not used: '{show(target)}' is another directory now, "
        "or its mark was removed; everything is copied again",
        DiscardReason.DAMAGED: "is damaged and cannot be resumed; temporary files may remain",
    }[distrust]


def how_far(counts: NamedCounts) -> str:
    """Return the progress at the time when these counts were committed.

    The counts include items in progress, which are not in the records and are done again.
    """
    if not counts:
        return "nothing is committed yet"
    done = totals(counts)
    return f"up to {format_count(done.settled)} entries, {format_size(done.bytes_done)} done"


def _sweep_holders(plan: CopyPlan, stale: Sequence[bytes]) -> None:
    """Remove temporary files of roots that are not directories from their parents."""
    if not stale:
        return
    holders = {
        os.path.join(plan.directory, root.target_holder)
        for root in plan.roots
        if root.kind != DIRECTORY
    }
    is_litter: Callable[[bytes], bool] = temporary_name_matcher(stale)
    for holder in holders:
        with suppress(OSError):
            for name in filter(is_litter, os.listdir(holder)):
                os.unlink(os.path.join(holder, name))
