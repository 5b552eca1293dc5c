"""Resuming in a target that an earlier run of the same copy has left incomplete.

Work of that run since its last checkpoint is done again and replaces existing entries. Completed
directories may deny access to their owner, and completed entries may have inode flags. Temporary
files of small files, and of large ones that were never committed, are removed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from pcircle.core.encoding import to_scan
from pcircle.fs.attributes.xattrs import lift_flags
from pcircle.fs.open_flags import OPEN_ENTRY_PATH
from pcircle.ops.checkpoint.journal import RangeRecord, StartedFileRecord
from pcircle.ops.checkpoint.previous_records import PreviousRecords, TargetNames
from pcircle.ops.copy.entry import target
from pcircle.ops.copy.entry.attributes import path_of
from pcircle.ops.copy.entry.files import Copier
from pcircle.ops.copy.entry.settings import Stamp
from pcircle.ops.copy.entry.target import StartedFile

if TYPE_CHECKING:
    from pcircle.ops.digest import Signer

_LISTED_AT_ONCE = 4096


def sweep(
    resumed: PreviousRecords, root: int, path: bytes, directory_fd: int
) -> tuple[bool, TargetNames]:
    """Remove temporary files that will not be resumed from a directory of the target.

    Return whether temporary files remain that may be resumed, and the other names.
    """
    left = False
    stale, listing = _list(resumed, directory_fd)
    for name in stale:
        if resumed.is_started(root, path, name):
            left = True
        else:
            _remove(name, directory_fd)
    return left, listing


def sweep_all(resumed: PreviousRecords, directory_fd: int) -> None:
    """Remove all temporary files, because the source has changed."""
    for name in _list(resumed, directory_fd)[0]:
        _remove(name, directory_fd)


def _list(resumed: PreviousRecords, directory_fd: int) -> tuple[list[bytes], TargetNames]:
    """Return the temporary names in a directory of the target, and its other names."""
    stale: list[bytes] = []
    listing = TargetNames()
    # mypy has no type for a scan of either a path or a descriptor.
    scan: Any = os.scandir(to_scan(directory_fd))
    with scan as entries:
        while batch := list(islice(entries, _LISTED_AT_ONCE)):
            files = [entry for entry in batch if not entry.is_dir(follow_symlinks=False)]
            names = [os.fsencode(entry.name) for entry in files]
            stale += filter(resumed.is_stale, names)
            # Recorded names of a directory are never directories.
            listing.add(resumed.names(names))
    return stale, listing


def _remove(name: bytes, directory_fd: int) -> None:
    with suppress(OSError):  # a remaining temporary file is harmless
        os.unlink(name, dir_fd=directory_fd)


def open_again(holder_fd: int, name: bytes, *, flags: bool) -> None:
    """Make a directory that an earlier run may have completed writable again.

    `flags` means that inode flags are kept. OSError.
    """
    fd = os.open(name, OPEN_ENTRY_PATH, dir_fd=holder_fd)
    try:
        status = os.fstat(fd)
        if not stat.S_ISDIR(status.st_mode):
            return  # opening it as a directory reports the error
        if status.st_mode & 0o700 != 0o700 and status.st_uid == os.geteuid():
            os.chmod(path_of(fd), stat.S_IMODE(status.st_mode) | 0o700)
    finally:
        os.close(fd)
    if flags:
        lift_flags(holder_fd, name, os.O_DIRECTORY)


def temporary_of(
    begun: Sequence[tuple[StartedFileRecord, list[RangeRecord]]],
    source: Stamp,
    directory_fd: int,
    name: bytes,
) -> tuple[bytes, os.stat_result, list[RangeRecord]] | None:
    """Return the temporary file to resume, its status, and its completed ranges; or None.

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
        # Inode numbers are reused, so a file that another user could have made is not resumed.
        private = status.st_uid == os.geteuid() and status.st_nlink == 1
        private = private and not status.st_mode & 0o022
        ours = ours and (private or record.temporary == name)
        if chosen is None and same and ours and status.st_size == source.size and parts:
            chosen = record.temporary, status, parts
        elif ours and record.temporary != name:
            target.discard(record.temporary, directory_fd, (status.st_dev, status.st_ino))
    return chosen


def without(
    ranges: Sequence[tuple[int, int]], parts: Sequence[RangeRecord]
) -> list[tuple[int, int]]:
    """Return what remains of ranges, given as (offset, length), without completed parts."""
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


def take_up(
    copier: Copier,
    begun: Sequence[tuple[StartedFileRecord, list[RangeRecord]]],
    names: tuple[int, bytes, int, bytes],
    divide: Callable[[int, os.stat_result, int], list[tuple[int, int]]],
    stamp: Callable[[os.stat_result], Stamp],
) -> StartedFile | None:
    """Resume a large file; None if it must start again.

    `names` are the directories and names of source and target; `divide` returns the ranges to copy;
    `stamp` is as in `CopyPlan`. OSError as in `Copier.begin`.
    """
    source_fd, source, target_fd, name = names
    with copier.opened(source_fd, source) as (fd, status):
        found = temporary_of(begun, stamp(status), target_fd, name)
        if found is None:
            return None
        written, made, parts = found
        unit_bytes = copier.layouts.unit_bytes_by_name(fd, target_fd, written)
        ranges = without(divide(fd, status, unit_bytes), parts)
        taken = copier.resume_file((fd, status), ranges, made, (written, name), target_fd)
        taken[1].unit_bytes = unit_bytes
        return taken


def usable(signer: Signer, parts: Sequence[RangeRecord]) -> list[RangeRecord]:
    """Return the parts of a large file with complete digests, each block at most once."""
    from pcircle.ops.digest import BLOCK_BYTES, PART  # few copies are signed

    chosen: list[RangeRecord] = []
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
