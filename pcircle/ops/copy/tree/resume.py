"""The checkpoint of a copy, the valid work of an earlier run, and cleanup of the target.

The checkpoint stores the identities of the copy and the options that a resumed copy must repeat.
`pcircle.ops.checkpoint.resume` decides whether a copy starts, resumes or is refused; this module
turns the decision into messages.
Temporary files of earlier runs are removed, except those that a resumed run still needs.

`PreviousRun` provides the completed work of an earlier run of this copy that is still valid.

An earlier run may have left the target incomplete. Entries that it copied after its last commit are
copied again and replaced. Completed directories may deny access to their owner and completed
entries may have inode flags, so access to both is restored. Temporary files of small files, and of
large files that were never committed, are removed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec

from pcircle.core.encoding import show, to_scan
from pcircle.core.errors import NoSpace, UsageError, require
from pcircle.core.units import format_size, plural
from pcircle.fs.attributes.xattrs import lift_flags
from pcircle.fs.directories import closing_fd
from pcircle.fs.open_flags import OPEN_ENTRY_PATH
from pcircle.fs.safe_open import Untrusted, named, refuse_pseudo
from pcircle.ops.checkpoint import journal, previous_records, resume
from pcircle.ops.checkpoint.plan import CheckpointOptions
from pcircle.ops.checkpoint.resume import (
    CheckpointJob,
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
from pcircle.ops.copy.entry import target
from pcircle.ops.copy.entry.attributes import path_of
from pcircle.ops.copy.entry.settings import Stamp
from pcircle.ops.copy.entry.target import FULL
from pcircle.ops.copy.tree.counters import totals
from pcircle.ops.copy.tree.directory import Sides
from pcircle.ops.copy.tree.items import DIRECTORY, FILE, CopyPlan, CopyRoot, Remark, is_in_copy

if TYPE_CHECKING:
    from pcircle.ops.digest import Signer


_LOOKED_AT_MOST = 10_000  # maximum number of names to check in the directory of a checkpoint


def is_worth_it(plan: CopyPlan) -> bool:
    """Return whether a copy may take long enough to need a checkpoint."""
    return not plan.dry and any(_is_large(root, plan) for root in plan.roots)


def _is_large(root: CopyRoot, plan: CopyPlan) -> bool:
    if root.kind != FILE:
        return root.kind == DIRECTORY
    path = os.path.join(plan.directory, root.source_holder, root.source_name)
    with suppress(OSError):
        return os.stat(path).st_size > plan.large_bytes
    return False


def reached(wish: CheckpointOptions) -> CheckpointOptions:
    """Return the options with the path of the checkpoint directory resolved.

    Raises UsageError if a link is not trusted.
    """
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
    """Return the identities of the copies of these roots. Raises OSError if a source is missing."""
    found = []
    for root in roots:
        source = os.path.join(here, root.source_holder, root.source_name)
        target = os.path.join(os.path.realpath(os.path.join(here, root.target_holder)), b"")
        inode = os.stat(source, follow_symlinks=root.kind == DIRECTORY).st_ino
        # An existing target directory may itself be the holder, with an empty name.
        path = (target + root.target_name).rstrip(b"/") or b"/"
        found.append(CopyIdentity(_lexical(source), inode, path))
    return tuple(found)


def _lexical(path: bytes) -> bytes:
    holder, name = os.path.split(os.path.normpath(path))
    return os.path.join(os.path.realpath(holder), name)


def has_checkpoint(roots: Sequence[CopyRoot], here: bytes, wish: CheckpointOptions) -> bool:
    """Return whether a checkpoint exists for a copy of these roots."""
    try:
        paths = checkpoint_paths(copies(roots, here), wish.directory)
    except OSError:
        return False
    return any(os.path.isdir(path) and not os.path.islink(path) for path in paths)


def keep(
    plan: CopyPlan, wish: CheckpointOptions, options: Mapping[str, object]
) -> CheckpointSession | None:
    """Find or create the checkpoint of a copy.

    `options` are the values that a resumed copy must have again, by their names in messages. Raises
    UsageError if the copy must not start, and NoSpace if the checkpoint cannot be written to
    because the file system is full or read-only.

    Return None if a checkpoint is impossible and was not requested.
    """
    try:
        identities = copies(plan.roots, plan.directory)
    except OSError:
        return None  # a source was removed; the copy reports that
    target = identities[0].target
    marked = target if is_in_copy(plan.roots) else os.path.dirname(target)
    compared = {**options, "your umask": 0 if plan.keep.mode else plan.umask}
    encoded = {name: msgspec.msgpack.encode(value) for name, value in compared.items()}
    job = CheckpointJob(identities, encoded, plan.token, plan.large_bytes, marked, plan.now_ns)
    try:
        session = resume.open_session(job, wish)
    except CheckpointError as why:
        cause = why.__cause__
        is_full = isinstance(cause, OSError) and cause.errno in FULL
        raise (NoSpace if is_full else UsageError)(words_of(why)) from why
    # A resumed copy may need some of the temporary files.
    if session is not None and not session.plan.resumed:
        _sweep_holders(plan, session.plan.stale)
    return session


def none_found(roots: Sequence[CopyRoot], target: bytes) -> str:
    """Return the message that no checkpoint was found, with the destination if it is unexpected."""
    root, *more_roots = roots
    goes = root.target_shown
    if more_roots or root.kind != DIRECTORY or goes.rstrip(b"/") == target.rstrip(b"/"):
        return "no checkpoint found: starting a new copy"
    return (
        f"no checkpoint found: starting a new copy; '{show(target)}' exists, so the copy goes to "
        f"'{show(goes)}': add -T to make '{show(target)}' the copy"
    )


def left_behind(session: CheckpointSession) -> Iterator[Remark]:
    """Yield remarks about checkpoints of other copies to the same place.

    The name of a checkpoint is derived from source and destination, so checkpoints of other sources
    must be searched for.
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
                text = (
                    f"belongs to an interrupted copy of {sides}: resume that copy, or remove the "
                    "checkpoint"
                )
                yield Remark(other.path, text)
                break


def _names_in(directory: bytes) -> Iterator[bytes]:
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            yield entry.name


def words_of(error: CheckpointError) -> str:
    """Return why a checkpoint cannot be used, and what the user can do."""
    path, detail = show(error.path), error.detail
    what, busy = f"the checkpoint '{path}'", "another run of this copy is in progress"
    left, cure = f"an interrupted copy has left {what}", "to discard it, add --restart"
    source = show(os.fsencode(detail))
    goes_on = "to continue, add --resume; to start over, --restart"
    return {
        RefusalReason.UNREACHABLE: f"{what}: {detail}",
        RefusalReason.NOT_TRUSTED: f"{what} is writable by other users",
        RefusalReason.NEWER: f"{what} was written by a newer version of pcircle",
        RefusalReason.JUST_CREATED: f"{busy}: '{path}' was just created",
        RefusalReason.BUSY: f"{busy}: {what} is locked {detail}".rstrip(),
        RefusalReason.CREATION_FAILED: f"{what} cannot be created: {detail}",
        RefusalReason.UNWRITABLE: f"{what} cannot be written: {detail}",
        RefusalReason.INTERRUPTED: f"{left} ({how_far(error.counts)}): {goes_on}",
        RefusalReason.DAMAGED: f"{left}, which is damaged: its header cannot be read; "
        "to start over, add --resume or --restart",
        RefusalReason.OTHER_SOURCE: f"{what} belongs to a source other than '{source}'; {cure}",
        RefusalReason.OTHER_SOURCES: f"{what} belongs to other sources; {cure}",
        RefusalReason.OTHER_OPTIONS: (
            f"{what} was created with different options ({detail}); {cure}"
        ),
    }[error.reason]


def remarks_of(session: CheckpointSession) -> list[Remark]:
    """Return remarks about the records of earlier runs."""
    found = session.state
    lines = [_damage(trouble) for trouble in found.problems]
    if found.discarded is not None:
        lines.append(_distrust(found.discarded, session.mark.directory))
    if found.counts is not None:
        lines.append(f"resuming from {{}}: {how_far(found.counts)}")
    return [Remark(session.checkpoint.path, line) for line in lines]


def _damage(trouble: previous_records.JournalProblem) -> str:
    if trouble.reason:
        return f"cannot read {trouble.journal}: {trouble.reason}"
    lost = f"{trouble.lost_bytes} bytes of {trouble.journal} are damaged"
    return f"{lost}; the entries they cover are copied again"


def _distrust(distrust: DiscardReason, target: bytes) -> str:
    return {
        DiscardReason.OTHER_VERSION: "was created by another version of pcircle and is ignored: "
        "everything is copied again",
        DiscardReason.OTHER_TARGET: (
            f"is ignored: '{show(target)}' is now a different directory, or its mark file was "
            "removed; everything is copied again"
        ),
        DiscardReason.DAMAGED: "is damaged and cannot be resumed; temporary files may remain",
    }[distrust]


def how_far(counts: journal.NamedCounts) -> str:
    """Return the progress at the time when these counts were committed.

    The counts include items in progress, which have no records and are processed again.
    """
    if not counts:
        return "nothing had been committed"
    done = totals(counts)
    copied = done.settled - done.failed
    return f"{plural(copied, 'entry', 'entries')}, {format_size(done.bytes_done)} copied"


def _sweep_holders(plan: CopyPlan, stale: Sequence[bytes]) -> None:
    """Remove stale temporary files from the target directories of roots that are files."""
    if not stale:
        return
    holders = {
        os.path.join(plan.directory, root.target_holder)
        for root in plan.roots
        if root.kind != DIRECTORY
    }
    is_litter: Callable[[bytes], bool] = previous_records.temporary_name_matcher(stale)
    for holder in holders:
        with suppress(OSError):
            for name in filter(is_litter, os.listdir(holder)):
                os.unlink(os.path.join(holder, name))


class PreviousRun:
    """The records of an earlier run, `resumed`, validated against the present target."""

    def __init__(
        self,
        plan: CopyPlan,
        resumed: previous_records.PreviousRecords,
        sides: Sides,
        signer: Signer | None,
    ) -> None:
        self.resumed = resumed
        self._plan = plan
        self._sides = sides
        self._signer = signer

    def partial(
        self, root: int, path: bytes, listing: previous_records.TargetNames | None = None
    ) -> previous_records.CompletedNames | None:
        """Return the completed names of a directory; restore their entries for the signature.

        If a `listing` of the copy is given, names that it lacks do not count as completed. Raises
        StoppedEarly if entries cannot be stored.
        """
        made = self._sides.copy_mark(root, path)

        def trust(record: journal.NamesRecord) -> bool:
            # A directory that was created again contains none of the recorded entries.
            same = bool(made) and record.made == made
            same = same and (listing is None or listing.has(record.hashes))
            return same and self._keep_entries(record)

        return self.resumed.partial(root, path, trust)

    def _keep_entries(self, record: journal.NamesRecord) -> bool:
        """Restore the signature entries of a record; return False if its names differ."""
        keys, signer = self.resumed.keys, self._signer
        if signer is None:
            return True
        try:
            signer.restore_entries(record.entries, lambda names: keys.are_of(names, record.hashes))
        except ValueError:
            return False
        return True

    def standing(self, root: int, path: bytes) -> previous_records.RecordedDirectory:
        """Return the record of a directory if it is still valid."""
        records = self.resumed.subtrees(root, path)
        if not records:
            return previous_records.RecordedDirectory()
        now = self._sides.copy_status(root, path)  # opened, because NFS may cache `stat`
        if now is not None:
            for record in records:
                if (record.made, record.changed) == (now.st_ino, now.st_ctime_ns):
                    return previous_records.RecordedDirectory(record)
        return previous_records.RecordedDirectory(modified=True)

    def lift(self, target_fd: int, names: Sequence[bytes]) -> None:
        """Clear the inode flags of files that the earlier run may have completed."""
        if self._plan.keep.flags:
            for name in names:
                with suppress(OSError):  # the file may not exist
                    # Files that this copy has not changed keep their flags.
                    if self._plan.is_ours(os.stat(name, dir_fd=target_fd, follow_symlinks=False)):
                        lift_flags(target_fd, name)


_LISTED_AT_ONCE = 4096


def sweep(
    resumed: previous_records.PreviousRecords, root: int, path: bytes, directory_fd: int
) -> tuple[bool, previous_records.TargetNames]:
    """Remove temporary files from a target directory, except those that may be resumed.

    Return whether any temporary files remain, and a listing of the other names.
    """
    left = False
    stale, listing = _list(resumed, directory_fd)
    for name in stale:
        if resumed.is_started(root, path, name):
            left = True
        else:
            _remove(name, directory_fd)
    return left, listing


def sweep_all(resumed: previous_records.PreviousRecords, directory_fd: int) -> None:
    """Remove all temporary files that remain in a complete directory of the target."""
    for name in _list(resumed, directory_fd)[0]:
        _remove(name, directory_fd)


def _list(
    resumed: previous_records.PreviousRecords, directory_fd: int
) -> tuple[list[bytes], previous_records.TargetNames]:
    """Return the temporary names in a directory of the target, and its other names."""
    stale: list[bytes] = []
    listing = previous_records.TargetNames()
    # mypy has no common type for scans of paths and of descriptors.
    scan: Any = os.scandir(to_scan(directory_fd))
    with scan as entries:
        while batch := list(islice(entries, _LISTED_AT_ONCE)):
            files = [entry for entry in batch if not entry.is_dir(follow_symlinks=False)]
            names = [os.fsencode(entry.name) for entry in files]
            stale += filter(resumed.is_stale, names)
            # Directories are never among the recorded names.
            listing.add(resumed.keys.names(names))
    return stale, listing


def _remove(name: bytes, directory_fd: int) -> None:
    with suppress(OSError):  # a remaining temporary file is harmless
        os.unlink(name, dir_fd=directory_fd)


def open_again(holder_fd: int, name: bytes, *, flags: bool) -> None:
    """Restore access to a directory that an earlier run may have completed.

    If `flags` is true, inode flags are cleared too. Raises OSError.
    """
    with closing_fd(os.open(name, OPEN_ENTRY_PATH, dir_fd=holder_fd)) as fd:
        status = os.fstat(fd)
        if not stat.S_ISDIR(status.st_mode):
            return  # opening it as a directory reports the error
        if status.st_mode & 0o700 != 0o700 and status.st_uid == os.geteuid():
            os.chmod(path_of(fd), stat.S_IMODE(status.st_mode) | 0o700)
    if flags:
        lift_flags(holder_fd, name, os.O_DIRECTORY)


def temporary_of(
    begun: Sequence[tuple[journal.StartedFileRecord, list[journal.RangeRecord]]],
    source: Stamp,
    directory_fd: int,
    name: bytes,
) -> tuple[bytes, os.stat_result, list[journal.RangeRecord]] | None:
    """Find the temporary file to resume; return its name, status and completed ranges, or None.

    The source must be unchanged, and the file must be the recorded one. Files that cannot be
    resumed are removed.
    """
    chosen = None
    for record, parts in begun:
        try:
            status = os.stat(record.temporary, dir_fd=directory_fd, follow_symlinks=False)
        except OSError:
            continue
        same = record.source == source.version
        ours = stat.S_ISREG(status.st_mode) and status.st_ino == record.made
        # Inode numbers are reused, so a file that another user could have created is not resumed.
        private = status.st_uid == os.geteuid() and status.st_nlink == 1
        private = private and not status.st_mode & 0o022
        ours = ours and (private or record.temporary == name)
        if chosen is None and same and ours and status.st_size == source.size and parts:
            chosen = record.temporary, status, parts
        elif ours and record.temporary != name:
            target.discard(record.temporary, directory_fd, (status.st_dev, status.st_ino))
    return chosen


def without(
    ranges: Sequence[tuple[int, int]], parts: Sequence[journal.RangeRecord]
) -> list[tuple[int, int]]:
    """Return ranges, given as (offset, length), without the parts that are complete."""
    left = list(ranges)
    for part in parts:
        begin, end = part.offset, part.offset + part.length
        cut: list[tuple[int, int]] = []
        for offset, length in left:
            stop = offset + length
            after = max(offset, end)
            cut += [(offset, min(stop, begin) - offset), (after, stop - after)]
        left = [(offset, length) for offset, length in cut if length > 0]
    return left


def usable(signer: Signer, parts: Sequence[journal.RangeRecord]) -> list[journal.RangeRecord]:
    """Return the parts of a large file whose digests are complete, without overlapping blocks."""
    from pcircle.ops.digest import BLOCK_BYTES, PART  # imported late: few copies are signed

    chosen: list[journal.RangeRecord] = []
    reached = 0
    for part in sorted(parts, key=attrgetter("offset")):
        count = -(-part.length // BLOCK_BYTES)
        head = PART.pack(part.offset // BLOCK_BYTES, count)
        whole = len(part.blocks) == len(head) + count * signer.algorithm.size
        whole = whole and part.blocks.startswith(head)
        if part.offset >= reached and not part.offset % BLOCK_BYTES and whole:
            chosen.append(part)
            reached = part.offset + count * BLOCK_BYTES
    return chosen
