"""FIFOs, sockets and devices: made anew with the same number, never opened.

There is nothing to read in them; opening one may block, or do something. Who
may not make a device gets a failure of that entry.
"""

from __future__ import annotations

import os
import stat

from pcircle.copying import target
from pcircle.copying.existing import SPECIAL_KINDS, Existing, Taken, file_stays, is_same_special
from pcircle.copying.extras import held_by_path
from pcircle.copying.means import Means
from pcircle.copying.settings import Settings
from pcircle.copying.target import Names
from pcircle.fs.exposure import withdraw
from pcircle.fs.metadata import settle_file
from pcircle.fs.trouble import Changed, trying


def copy_special(
    means: Means, names: tuple[int, bytes, int, bytes], *, claimed: bool
) -> os.stat_result | None:
    """Make a special file like another; `names` are both directories' and the names in them.

    If it has several names that are to be one in the copy as well, and was
    not `claimed`, nothing is done, and its status returned. OSError, which says
    what was tried, if it can't be made; NoSpace if nothing could.
    """
    source_fd, source, _, _ = names
    settings = means.settings
    with trying("copy"):
        status = os.stat(source, dir_fd=source_fd, follow_symlinks=settings.follow)
        if stat.S_IFMT(status.st_mode) not in SPECIAL_KINDS:
            raise Changed("it is no longer a special file")
        if not claimed and means.is_one_of_several(status, source_fd):
            return status
    with trying("create the copy of"):
        _make(means, status, names)
    return None


def _make(means: Means, status: os.stat_result, names: tuple[int, bytes, int, bytes]) -> None:
    source_fd, source, target_fd, name = names
    settings, extras, kind = means.settings, means.extras, stat.S_IFMT(status.st_mode)
    mode = kind | target.creation_mode(status, settings)
    written, made = name, False
    try:
        try:
            os.mknod(name, mode, status.st_rdev, dir_fd=target_fd)
        except FileExistsError:
            means.names.collisions.check(target_fd, name)
            # The very same thing, of an earlier run, need not be made anew.
            alike = _alike(settings, status, names, means.names)
            if alike is None:
                target.replaceable(target_fd, name, means.names)
            if alike is None or alike.st_nlink > 1:  # its other names must not get this owner
                written = means.names.next()
                os.mknod(written, mode, status.st_rdev, dir_fd=target_fd)
                made = True
        else:
            made = True
        if settings.keep.any:
            with trying("set the attributes of the copy of"):
                held = extras.of_name(source_fd, source, alone=not made) if extras.any else None
                with held_by_path(target_fd, written, kind) as path:
                    if not made:
                        withdraw(path, status, settings.keep, held)
                    extras.account(settle_file(path, status, settings.keep, held), target_fd)
        if written != name:
            with trying("rename the copy of"):
                means.names.replace(written, name, target_fd)
    except OSError as error:
        try:
            target.stop_if_full(error, target_fd, means.names)
        finally:
            if made:
                target.discard(written, target_fd)
        raise


def _alike(
    settings: Settings,
    status: os.stat_result,
    sides: tuple[int, bytes, int, bytes],
    names: Names,
) -> os.stat_result | None:
    """The status of what has the name if it is the same thing. Taken if it is to stay."""
    target_fd, name = sides[2:]
    now = os.stat(name, dir_fd=target_fd, follow_symlinks=False)
    if names.keeper is not None:
        if not settings.is_ours(now) and names.keeper.keeps(status, now, sides):
            raise Taken
        return None
    same = is_same_special(status, now)
    existing = Existing() if settings.is_ours(now) else settings.existing
    if not stat.S_ISDIR(now.st_mode) and (existing.stays or (same and existing.decides)):
        raise Taken
    plain = stat.S_ISREG(now.st_mode) or stat.S_ISLNK(now.st_mode)
    if plain and file_stays(existing, status, now, target.kept_times(settings, target_fd, names)):
        raise Taken
    return now if same else None
