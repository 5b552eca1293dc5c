"""Copies FIFOs, sockets and devices by creating new ones, without opening the sources.

They contain no data to copy, and opening one may block or have side effects. Copying a device fails
if the user may not create devices.
"""

from __future__ import annotations

import os
import stat

from pcircle.fs.attributes.exposure import withdraw
from pcircle.fs.attributes.metadata import settle_file
from pcircle.fs.entry_errors import Changed, error_context
from pcircle.ops.copy.entry import target
from pcircle.ops.copy.entry.attributes import pinned_path
from pcircle.ops.copy.entry.observers import CopyContext
from pcircle.ops.copy.entry.overwrite import (
    SPECIAL_KINDS,
    DestinationExistsError,
    OverwriteOptions,
    file_stays,
    is_same_special,
)


def copy_special(
    context: CopyContext, names: tuple[int, bytes, int, bytes], *, claimed: bool
) -> os.stat_result | None:
    """Create a copy of a special file; `names` are the directory and name on both sides.

    If the file has other names that must become hard links, it is copied only if this name is
    `claimed`; otherwise its status is returned. Raises OSError with the operation that failed, and
    TargetFullError if the target is full.
    """
    source_fd, source, _, _ = names
    settings = context.settings
    with error_context("copy"):
        status = os.stat(source, dir_fd=source_fd, follow_symlinks=settings.follow)
        if stat.S_IFMT(status.st_mode) not in SPECIAL_KINDS:
            raise Changed("it is no longer a special file")
        if not claimed and context.is_one_of_several(status, source_fd):
            return status
    with error_context("create the copy of"):
        _make(context, status, names)
    return None


def _make(
    context: CopyContext, status: os.stat_result, names: tuple[int, bytes, int, bytes]
) -> None:
    source_fd, source, target_fd, name = names
    settings, extras, kind = context.settings, context.extras, stat.S_IFMT(status.st_mode)
    mode = kind | target.creation_mode(status, settings)
    written, made = name, False
    try:
        try:
            os.mknod(name, mode, status.st_rdev, dir_fd=target_fd)
        except FileExistsError:
            context.names.collisions.check(target_fd, name)
            # An identical special file need not be created again.
            duplicate = _existing_duplicate(context, status, names)
            if duplicate is None:
                target.replaceable(target_fd, name, context.names)
            if duplicate is None or duplicate.st_nlink > 1:  # its other names must not change
                written = context.names.next()
                os.mknod(written, mode, status.st_rdev, dir_fd=target_fd)
                made = True
        else:
            made = True
        if settings.keep.any:
            with error_context("set the attributes of the copy of"):
                held = extras.read_name(source_fd, source, alone=not made) if extras.any else None
                with pinned_path(target_fd, written, kind) as path:
                    if not made:
                        withdraw(path, status, settings.keep, held)
                    extras.account(settle_file(path, status, settings.keep, held), target_fd)
        if written != name:
            with error_context("rename the copy of"):
                context.names.replace(written, name, target_fd)
    except OSError as error:
        target.give_up(error, target_fd, context.names, written if made else None)
        raise


def _existing_duplicate(
    context: CopyContext, status: os.stat_result, sides: tuple[int, bytes, int, bytes]
) -> os.stat_result | None:
    """Return the status of an existing identical file, or None if there is none.

    Raises DestinationExistsError if the existing entry must stay.
    """
    settings, keeper, (target_fd, name) = context.settings, context.names.keeper, sides[2:]
    old = os.stat(name, dir_fd=target_fd, follow_symlinks=False)
    if keeper is not None:
        if not settings.is_ours(old) and keeper.keeps(status, old, sides):
            raise DestinationExistsError
        return None
    same = is_same_special(status, old)
    existing = OverwriteOptions() if settings.is_ours(old) else settings.existing
    if not stat.S_ISDIR(old.st_mode) and (existing.stays or (same and existing.decides)):
        raise DestinationExistsError
    plain = stat.S_ISREG(old.st_mode) or stat.S_ISLNK(old.st_mode)
    if plain and file_stays(existing, status, old, context.target.kept_times(target_fd)):
        raise DestinationExistsError
    return old if same else None
