"""Refusals before any change: trees within each other, empty trees, and other trees."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

import msgspec

from pcircle.core.errors import EntriesFailed, UsageError
from pcircle.core.names import show
from pcircle.fs.attributes.mounts import place_of
from pcircle.fs.data import DataCopier
from pcircle.fs.directories import at_and_above
from pcircle.fs.safe_open import directory, make_directory
from pcircle.walk.globs import Rule, leave_out


class HeldDirectory(msgspec.Struct, frozen=True):
    """An open directory: a path that leads to exactly this one, and its device and inode.

    If it cannot be opened, they are the given path, and None.
    """

    path: bytes
    known: tuple[int, int] | None = None


@contextmanager
def held(path: bytes) -> Iterator[HeldDirectory]:
    """Hold a directory open, so that checks concern the directory that will be walked."""
    try:
        fd = _opened(path)
    except OSError:
        yield HeldDirectory(path)
        return
    try:
        status, at = os.fstat(fd), b"/proc/self/fd/%d" % fd
        yield HeldDirectory(at if os.path.lexists(at) else path, (status.st_dev, status.st_ino))
    finally:
        os.close(fd)


def _opened(path: bytes) -> int:
    """Open a directory, with `O_PATH` if it is unreadable. OSError."""
    flags = os.O_DIRECTORY | os.O_CLOEXEC
    try:
        return os.open(path, os.O_RDONLY | flags)  # an automounter mounts it now
    except OSError:
        return os.open(path, os.O_PATH | flags)


def refuse_inside(path: bytes, *trees: bytes, said: bytes | None = None) -> None:
    """Raise UsageError if a directory is, or lies in, another of these directories.

    Messages name `said` instead, if that will be created in the directory.
    """
    try:
        fd = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        try:
            above = set(at_and_above(fd))
        except OSError as error:
            error.filename = path
            raise
        for other in trees:
            with suppress(OSError):  # it does not exist
                there = os.stat(other)
                if (there.st_dev, there.st_ino) in above:
                    raise UsageError(f"'{show(said or path)}' lies in '{show(other)}'")
    finally:
        os.close(fd)


def refuse_removed(
    written: Iterable[tuple[str, str]], target: bytes, rules: Sequence[Rule]
) -> None:
    """Raise UsageError if an output file lies in the target and would be removed there.

    `written` has pairs of an option and a path. Files that `rules` exclude are not removed.
    """
    for option, path in written:
        above, name = os.path.split(os.path.realpath(os.fsencode(path)))
        try:
            system, top = place_of(target)
            its_system, place = place_of(above)
        except OSError:
            continue  # one of them is missing
        place, top = os.path.join(place, name), os.path.join(top, b"")
        if its_system != system or not place.startswith(top):
            continue
        if not leave_out(rules, place.removeprefix(top), directory=False):
            shown = show(os.fsencode(path))
            raise UsageError(
                f"{option}: '{shown}' lies in '{show(target)}', and --delete would remove it; "
                "write it elsewhere, or add --protect"
            )


def refuse_other(other: bytes, source: bytes, target: bytes) -> None:
    """Raise UsageError if a tree to link to is not a directory, or is part of the mirror."""
    if not os.path.isdir(other):
        raise UsageError(f"'{show(other)}' is not a directory")
    try:
        os.close(directory(other))
    except OSError as error:
        text = f"cannot open directory '{show(other)}': {error.strerror or error}"
        raise UsageError(text) from None
    refuse_inside(other, source, target)


def make_backup(backup: bytes, source: bytes, target: bytes, *, make: bool) -> None:
    """Create the directory of the backup if necessary. UsageError if it cannot be one."""
    try:
        if not os.path.lexists(backup):
            if not make:
                return
            make_directory(backup)
        device = os.stat(backup).st_dev
    except OSError as error:
        raise UsageError(f"--backup-dir '{show(backup)}': {error.strerror}") from None
    refuse_inside(backup, source, target)
    refuse_apart("--backup-dir", backup, device, target)


def refuse_apart(option: str, path: bytes, device: int, target: bytes) -> None:
    """Raise UsageError if links or renames would leave the target's file system."""
    there = target if os.path.isdir(target) else os.path.dirname(target.rstrip(b"/")) or b"."
    if os.path.isdir(there) and os.stat(there).st_dev != device:
        text = f"{option} '{show(path)}' is not on the file system of '{show(target)}'"
        raise UsageError(text)


def refuse_without_clones(target: bytes, say: Callable[[str], None]) -> None:
    """Raise UsageError if files on the target's file system cannot share blocks.

    Two unnamed files are tried. Where unnamed files are not supported, the copy of each file tries.
    """
    there = target if os.path.isdir(target) else os.path.dirname(target.rstrip(b"/")) or b"."
    fds: list[int] = []
    try:
        for _ in range(2):
            fds.append(os.open(there, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600))
        try:
            DataCopier("always").clone(fds[0], fds[1])
        except OSError as error:
            text = f"the file system of '{show(target)}' cannot share blocks ({error.strerror})"
            raise UsageError(f"--reflink-dest: {text}; --copy-dest copies") from None
    except OSError as error:
        text = f"cannot tell whether '{show(target)}' can share blocks ({error.strerror})"
        say(f"--reflink-dest: {text}: files that cannot are copied")
    finally:
        for fd in fds:
            os.close(fd)


def has_entries(path: bytes, said: bytes | None = None) -> bool:
    """Return whether a directory has entries; messages name `said`."""
    try:
        with os.scandir(path) as entries:
            return next(entries, None) is not None
    except FileNotFoundError:
        return False
    except OSError as error:
        raise EntriesFailed(f"cannot read '{show(said or path)}': {error.strerror}") from None


def warn_of_slash(source: bytes, target: bytes, say: Callable[[str], None]) -> None:
    """Warn of a trailing slash as in rsync: A's name is not created below B."""
    name = os.path.basename(source.rstrip(b"/"))
    if not (target.endswith(b"/") and name and os.path.isdir(os.path.join(target, name))):
        return
    if not os.path.lexists(os.path.join(source, name)):
        inner = os.path.join(target, name)
        say(f"'{show(target)}' becomes what '{show(source)}' is; did you mean '{show(inner)}'?")
