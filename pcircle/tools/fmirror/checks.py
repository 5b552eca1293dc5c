"""Checks operands and trees before anything is changed.

The checks refuse trees that lie within each other, and unsuitable directories of options such as
`--link-dest` and `--backup-dir`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

import msgspec

from pcircle.core.encoding import show
from pcircle.core.errors import EntriesFailed, UsageError
from pcircle.fs.attributes.mounts import place_of
from pcircle.fs.data import DataCopier
from pcircle.fs.directories import closing_fd, directory_and_ancestors
from pcircle.fs.safe_open import directory, make_directory
from pcircle.walk.globs import Rule, leave_out


class HeldDirectory(msgspec.Struct, frozen=True):
    """A directory that is being held open.

    `known` is its device and inode number. `path` leads to it through /proc, or is the given path
    if /proc is not mounted. If the directory could not be opened, these are None and the given
    path.
    """

    path: bytes
    known: tuple[int, int] | None = None


@contextmanager
def held(path: bytes) -> Iterator[HeldDirectory]:
    """Hold a directory open, so that the walk enters the directory that was checked."""
    try:
        fd = _opened(path)
    except OSError:
        yield HeldDirectory(path)
        return
    with closing_fd(fd):
        status, at = os.fstat(fd), b"/proc/self/fd/%d" % fd
        yield HeldDirectory(at if os.path.lexists(at) else path, (status.st_dev, status.st_ino))


def _opened(path: bytes) -> int:
    """Open a directory, with `O_PATH` if it cannot be read. Raise OSError on failure."""
    flags = os.O_DIRECTORY | os.O_CLOEXEC
    try:
        return os.open(path, os.O_RDONLY | flags)  # unlike O_PATH, this triggers an automount
    except OSError:
        return os.open(path, os.O_PATH | flags)


def refuse_inside(path: bytes, *trees: bytes, said: bytes | None = None) -> None:
    """Raise UsageError if a directory is one of these trees or lies in one of them.

    If `said` is given, for example a path to be created in the directory, the message names that
    instead.
    """
    try:
        fd = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return
    with closing_fd(fd):
        try:
            above = set(directory_and_ancestors(fd))
        except OSError as error:
            error.filename = path
            raise
        for other in trees:
            with suppress(OSError):  # the tree does not exist
                there = os.stat(other)
                if (there.st_dev, there.st_ino) in above:
                    raise UsageError(f"'{show(said or path)}' is inside '{show(other)}'")


def refuse_removed(
    written: Iterable[tuple[str, str]], target: bytes, rules: Sequence[Rule]
) -> None:
    """Raise UsageError if an output file lies in the target and would be removed there.

    `written` contains pairs of an option and a path. Files that `rules` exclude are not removed.
    """
    for option, path in written:
        above, name = os.path.split(os.path.realpath(os.fsencode(path)))
        try:
            system, top = place_of(target)
            its_system, place = place_of(above)
        except OSError:
            continue  # the target or the directory of the file is missing
        place, top = os.path.join(place, name), os.path.join(top, b"")
        if its_system != system or not place.startswith(top):
            continue
        if not leave_out(rules, place.removeprefix(top), directory=False):
            shown = show(os.fsencode(path))
            raise UsageError(
                f"{option}: '{shown}' is inside '{show(target)}', and --delete would delete it; "
                "write it elsewhere, or add --protect"
            )


def refuse_other(other: bytes, source: bytes, target: bytes) -> None:
    """Raise UsageError if a reference tree cannot be opened, or lies in the source or target."""
    if not os.path.isdir(other):
        raise UsageError(f"'{show(other)}' is not a directory")
    try:
        os.close(directory(other))
    except OSError as error:
        text = f"cannot open directory '{show(other)}': {error.strerror or error}"
        raise UsageError(text) from None
    refuse_inside(other, source, target)


def make_backup(backup: bytes, source: bytes, target: bytes, *, make: bool) -> None:
    """Create the backup directory if `make` is set and it does not exist.

    Raise UsageError if it cannot be created, lies in the source or target, or is not on the
    target's file system.
    """
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
    """Raise UsageError if a path is not on the target's file system.

    Hard links, renames and shared blocks are possible only within one file system.
    """
    there = target if os.path.isdir(target) else os.path.dirname(target.rstrip(b"/")) or b"."
    if os.path.isdir(there) and os.stat(there).st_dev != device:
        text = f"{option} '{show(path)}' is not on the file system of '{show(target)}'"
        raise UsageError(text)


def refuse_without_clones(target: bytes, say: Callable[[str], None]) -> None:
    """Raise UsageError if files on the target's file system cannot share blocks.

    This is tested with two unnamed files. If these cannot be created, print a message; the copy
    then tries to share the blocks of each file.
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
        text = f"cannot determine whether '{show(target)}' can share blocks ({error.strerror})"
        say(f"--reflink-dest: {text}: files that cannot share blocks are copied")
    finally:
        for fd in fds:
            os.close(fd)


def has_entries(path: bytes, said: bytes | None = None) -> bool:
    """Return whether a directory exists and has entries.

    Raise EntriesFailed if it cannot be read. If `said` is given, the message names that instead.
    """
    try:
        with os.scandir(path) as entries:
            return next(entries, None) is not None
    except FileNotFoundError:
        return False
    except OSError as error:
        raise EntriesFailed(f"cannot read '{show(said or path)}': {error.strerror}") from None


def warn_of_slash(source: bytes, target: bytes, say: Callable[[str], None]) -> None:
    """Warn if B ends with a slash and contains a directory with A's name; B itself is changed."""
    name = os.path.basename(source.rstrip(b"/"))
    if not (target.endswith(b"/") and name and os.path.isdir(os.path.join(target, name))):
        return
    if not os.path.lexists(os.path.join(source, name)):
        inner = os.path.join(target, name)
        say(
            f"'{show(target)}' itself becomes identical to '{show(source)}'; did you mean "
            f"'{show(inner)}'?"
        )
