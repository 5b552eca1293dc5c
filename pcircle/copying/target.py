"""Putting one entry into a target directory: creation, replacement, and what to do when full.

A new small file is created under its own name, exclusively, so that nothing
that exists is ever opened or followed. What exists is replaced: the copy is
made under a short temporary name beside it and renamed over it, so that an
interruption never costs the only good copy. Only regular files and symbolic
links are replaced.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

import xxhash

from pcircle.acls import read_list
from pcircle.copying.collisions import Collisions, Siblings, no_siblings
from pcircle.copying.existing import Existing, Keeper, Taken, file_stays, is_same_special
from pcircle.copying.precision import Precision
from pcircle.copying.settings import CHUNK_UNIT_BYTES, Settings
from pcircle.errors import NoSpace
from pcircle.fs.metadata import settle_as_replaced, settle_file
from pcircle.fs.naming import NO_SUCH_RENAME, give_free_name, rename_to_free
from pcircle.fs.trouble import SAME_FILE, Changed, Trouble
from pcircle.fs.xattrs import Held, Refused

CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
_REWRITE = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_PROBE_BYTES = 1 << 16


class Names:
    """Temporary names: short, so that they fit beside names of any length; unique in a job.

    `precision` is what files of such names have shown of how times are kept, `collisions` what is
    known of names that are taken for others, `keeper` who decides about these, if somebody does;
    `expected` is what the name at hand must be when it is given to something else, as they have it.
    """

    def __init__(self, settings: Settings, rank: int, siblings: Siblings = no_siblings) -> None:
        self._prefix = b".fcp-%s-%x-" % (settings.token, rank)
        self._count = 0
        self._renames = True
        self.collisions = Collisions(siblings)
        self.precision = Precision(self.next)
        self.keeper: Keeper | None = None
        self.expected = b""

    def next(self) -> bytes:
        """A name that was not given before."""
        self._count += 1
        return self._prefix + b"%x" % self._count

    def give_free(self, written: bytes, name: bytes, directory_fd: int) -> None:
        """Rename to a name that is free, in one call where there is one. FileExistsError."""
        self.check(name, directory_fd)
        if self._renames:
            try:
                return rename_to_free(written, name, directory_fd)
            except OSError as error:
                # EPERM: so some containers answer to calls that they do not know.
                if error.errno not in (*NO_SUCH_RENAME, errno.EPERM):
                    raise
                self._renames = False
        give_free_name(written, name, directory_fd)

    def check(self, name: bytes, directory_fd: int) -> None:
        """OSError if the name at hand is not what is expected, if anything is."""
        if self.expected and self.keeper is not None:
            self.keeper.check(name, directory_fd, self.expected)

    def replace(self, written: bytes, name: bytes, directory_fd: int) -> None:
        """Rename to a name that may be taken, by what may be replaced. OSError."""
        if self.keeper is not None:
            self.check(name, directory_fd)
            self.keeper.replace(written, name, directory_fd)
        else:
            os.rename(written, name, src_dir_fd=directory_fd, dst_dir_fd=directory_fd)


class Creation:
    """A target file that is being made: where it is written, and what it stands in for.

    `written` is its name until it is finished, the temporary one or its own.
    `old` is the status of the file that it will replace. `identity` is known
    once it was asked for, with the file open. `held` are the attributes that
    it is to have from its source, `access` the access control list of `old`, if
    that matters. `rewritten` tells that it was there before, and what it has of
    these is to go. Its chunks begin at multiples of `unit_bytes`.
    """

    __slots__ = (
        "access",
        "created_mode",
        "fd",
        "held",
        "identity",
        "name",
        "old",
        "rewritten",
        "unit_bytes",
        "written",
    )

    def __init__(
        self,
        fd: int,
        name: bytes,
        written: bytes,
        old: os.stat_result | None,
        created_mode: int,
        access: bytes | None = None,
    ) -> None:
        self.fd = fd
        self.name = name
        self.written = written
        self.old = old
        self.created_mode = created_mode
        self.identity: tuple[int, int] | None = None
        self.held: Held | None = None
        self.access = access
        self.rewritten = False
        self.unit_bytes = CHUNK_UNIT_BYTES

    def identify(self) -> tuple[int, int]:
        """Device and inode of the file, which must be open."""
        status = os.fstat(self.fd)
        self.identity = (status.st_dev, status.st_ino)
        return self.identity


BegunFile: TypeAlias = "tuple[os.stat_result, Creation, tuple[int, int], list[tuple[int, int]]]"
"""A large file that was begun: the source's status, its copy, that one's identity, the ranges."""


def creation_mode(source: os.stat_result, settings: Settings) -> int:
    """The mode to create with: closed to others if it will be set later, else cp's.

    The owner's part of the umask is not in force while fcp runs, so it is applied here.
    """
    return 0o600 if settings.keep.mode else source.st_mode & creation_bits(settings)


def creation_bits(settings: Settings) -> int:
    """The bits of a source's mode that a new file is created with."""
    return 0 if settings.keep.mode else 0o777 & ~(settings.umask & 0o700)


Make: TypeAlias = Callable[[bytes, int, int], int]
"""Makes a file of a name and a mode in a directory, open for writing; FileExistsError."""


def new_file(name: bytes, mode: int, directory_fd: int) -> int:
    """The usual way to make a file."""
    return os.open(name, CREATE, mode, dir_fd=directory_fd)


def create(
    directory_fd: int,
    name: bytes,
    source: os.stat_result,
    settings: Settings,
    names: Names,
    make: Make = new_file,
) -> Creation:
    """Create a file under its own name, or beside it if that is taken. OSError if it can't be."""
    mode = creation_mode(source, settings)
    if settings.existing.in_place:
        return _create_in_place(directory_fd, name, source, settings, names, make, mode)
    if settings.existing.beside:
        return create_beside(directory_fd, name, source, settings, names, make)
    try:
        fd = make(name, mode, directory_fd)
    except FileExistsError:
        return create_beside(directory_fd, name, source, settings, names, make)
    return Creation(fd, name, name, None, mode)


def create_beside(
    directory_fd: int,
    name: bytes,
    source: os.stat_result,
    settings: Settings,
    names: Names,
    make: Make = new_file,
) -> Creation:
    """Create a file under a temporary name beside `name`, to be renamed when it is complete."""
    if settings.existing.in_place:
        mode = creation_mode(source, settings) | 0o600
        return _create_in_place(directory_fd, name, source, settings, names, make, mode)
    return _create_temporary(directory_fd, name, source, settings, names, make)


def _create_temporary(
    directory_fd: int,
    name: bytes,
    source: os.stat_result,
    settings: Settings,
    names: Names,
    make: Make,
) -> Creation:
    old = replaceable(directory_fd, name, names)
    if old is not None:
        names.collisions.check(directory_fd, name)
    access = _access_of(old, directory_fd, name, settings)
    mode = _temporary_mode(old, source, settings)
    written = names.next()
    return Creation(make(written, mode, directory_fd), name, written, old, mode, access)


def _temporary_mode(old: os.stat_result | None, source: os.stat_result, settings: Settings) -> int:
    """The mode of a temporary file: it is nobody else's if it stands in for a file."""
    if old is not None and stat.S_ISREG(old.st_mode):
        return 0o600
    # Other ranks will open it for writing, so the owner must be allowed to.
    return creation_mode(source, settings) | 0o600


def _access_of(
    old: os.stat_result | None, directory_fd: int, name: bytes, settings: Settings
) -> bytes | None:
    """The access control list that a file is to have from the one that it replaces."""
    if settings.keep.mode or old is None or not stat.S_ISREG(old.st_mode):
        return None
    with suppress(FileNotFoundError):  # it has just been removed
        return read_list(b"/proc/self/fd/%d/%s" % (directory_fd, name), follow=False)
    return None


def taken_up(
    directory_fd: int,
    name: bytes,
    written: bytes,
    source: os.stat_result,
    settings: Settings,
    names: Names,
) -> Creation:
    """A file that an earlier run has created, not open. OSError if it must not get its name."""
    if written == name:
        creation = Creation(-1, name, name, None, creation_mode(source, settings))
        creation.rewritten = True
        return creation
    old = replaceable(directory_fd, name, names)
    access = _access_of(old, directory_fd, name, settings)
    return Creation(-1, name, written, old, _temporary_mode(old, source, settings), access)


def _create_in_place(
    directory_fd: int,
    name: bytes,
    source: os.stat_result,
    settings: Settings,
    names: Names,
    make: Make,
    mode: int,
) -> Creation:
    """Create a file under its own name, or open the one that has it, which is to be rewritten.

    A link is not followed: it is replaced, as ever. So is a file that has other names: these may
    be where other copies go, or out of the destination altogether.
    """
    try:
        return Creation(make(name, mode, directory_fd), name, name, None, mode)
    except FileExistsError:
        names.collisions.check(directory_fd, name)
        if settings.existing.stays and not _is_ours(settings, directory_fd, name):
            raise Taken from None
    old = replaceable(directory_fd, name, names)
    if old is not None:
        _refuse_source(old, source)
    if old is None or stat.S_ISLNK(old.st_mode) or old.st_nlink > 1:
        return _create_temporary(directory_fd, name, source, settings, names, make)
    try:
        fd = os.open(name, _REWRITE, dir_fd=directory_fd)
    except OSError:
        # An earlier run may have given it a mode that forbids it.
        if not (settings.existing.force or settings.is_ours(old)):
            raise
        os.unlink(name, dir_fd=directory_fd)
        return Creation(make(name, mode, directory_fd), name, name, None, mode)
    try:
        _check_open(fd, source)
    except OSError:
        os.close(fd)
        raise
    creation = Creation(fd, name, name, None, creation_mode(source, settings))
    creation.rewritten = True
    return creation


def _check_open(fd: int, source: os.stat_result) -> None:
    """OSError unless an existing file, which is open, may be rewritten."""
    old = os.fstat(fd)
    if not stat.S_ISREG(old.st_mode):
        raise FileExistsError(errno.EEXIST, "a special file is in its place")
    _refuse_source(old, source)
    if old.st_nlink > 1:
        raise Changed("it was renamed meanwhile")


def _refuse_source(old: os.stat_result, source: os.stat_result) -> None:
    if (old.st_dev, old.st_ino) == (source.st_dev, source.st_ino):
        raise Trouble(SAME_FILE, "it and its copy are the same file")


def stays(
    settings: Settings, source_fd: int, source: bytes, directory_fd: int, name: bytes, names: Names
) -> os.stat_result | None:
    """The status of what has the name, if it is to stay; None if a copy is to be made.

    OSError if something stands there that is neither kept nor replaced.
    """
    try:
        old = os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if settings.existing.stays:
        _refuse(old, names, special_too=False)
        names.collisions.check(directory_fd, name)
        return None if settings.is_ours(old) else old
    status = os.stat(source, dir_fd=source_fd, follow_symlinks=settings.follow)
    same = is_same_special(status, old)
    if names.keeper is not None:
        names.collisions.check(directory_fd, name)
        sides = source_fd, source, directory_fd, name
        if not settings.is_ours(old) and names.keeper.keeps(status, old, sides):
            return old
        _refuse(old, names, special_too=not same)
        return None
    _refuse(old, names, special_too=not same)
    names.collisions.check(directory_fd, name)
    if settings.is_ours(old):
        return None
    kept = kept_times(settings, directory_fd, names)
    return old if same or file_stays(settings.existing, status, old, kept) else None


def is_alike(
    settings: Settings, source: os.stat_result, old: os.stat_result, directory_fd: int, names: Names
) -> bool:
    """Whether two files are of one size and time, as `--skip-same` has it."""
    return file_stays(Existing(same=True), source, old, kept_times(settings, directory_fd, names))


def kept_times(
    settings: Settings, directory_fd: int, names: Names
) -> Callable[[int, os.stat_result], bool] | None:
    """What `file_stays` wants to know of a directory's file system."""
    if not settings.keep.timestamps:
        return None
    return lambda source_ns, old: names.precision.is_kept(source_ns, old, directory_fd)


def still_replaceable(
    creation: Creation, source: os.stat_result, settings: Settings, fd: int, names: Names
) -> None:
    """Before a copy that took its time gets its name: OSError, Taken if what is there now stays."""
    if settings.existing.stays:
        return  # `publish` finds out
    now = replaceable(fd, creation.name, names)
    if now is None or creation.written == creation.name:
        return
    names.collisions.check(fd, creation.name)
    if not settings.existing.decides:
        return
    if settings.is_ours(now):
        return
    if file_stays(settings.existing, source, now, kept_times(settings, fd, names)):
        raise Taken


def replaceable(directory_fd: int, name: bytes, names: Names) -> os.stat_result | None:
    """The status of what has the name, None if nothing. OSError if it must not be replaced."""
    try:
        old = os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
    except FileNotFoundError:
        return None
    _refuse(old, names, special_too=True)
    return old


def _refuse(old: os.stat_result, names: Names, *, special_too: bool) -> None:
    if names.keeper is not None and names.keeper.may_replace(old):
        return
    if stat.S_ISDIR(old.st_mode):
        raise IsADirectoryError(errno.EISDIR, "a directory is in its place")
    if special_too and not (stat.S_ISREG(old.st_mode) or stat.S_ISLNK(old.st_mode)):
        raise FileExistsError(errno.EEXIST, "a special file is in its place")


def settle(creation: Creation, source: os.stat_result, settings: Settings) -> list[Refused]:
    """Give the file its attributes: the source's that are kept, else those of what it replaces.

    Returns what could not be kept. Inode flags come later, see `Copier`.
    """
    keep, old, fd = settings.keep, creation.old, creation.fd
    if old is not None and stat.S_ISREG(old.st_mode):
        settle_as_replaced(fd, old, creation.access, keep)
    elif not keep.mode and creation.created_mode != creation_mode(source, settings):
        # Created with more for the owner than the source has.
        more = 0o600 & ~creation_mode(source, settings)
        os.fchmod(fd, stat.S_IMODE(os.fstat(fd).st_mode) & ~more)
    return settle_file(fd, source, keep, creation.held) if keep.any else []


def publish(creation: Creation, directory_fd: int, settings: Settings, names: Names) -> None:
    """Give a complete, closed file its own name; Taken if that must not be replaced."""
    if creation.written == creation.name:
        return
    if settings.existing.stays or creation.old is None:
        give = give_free_name if settings.existing.stays else names.give_free
        try:
            give(creation.written, creation.name, directory_fd)
        except FileExistsError:
            names.collisions.check(directory_fd, creation.name)
            now = os.stat(creation.name, dir_fd=directory_fd, follow_symlinks=False)
            _refuse(now, names, special_too=not settings.existing.stays)
            if settings.existing.stays and not settings.is_ours(now):
                raise Taken from None
        else:
            return
    names.replace(creation.written, creation.name, directory_fd)


def _is_ours(settings: Settings, directory_fd: int, name: bytes) -> bool:
    return settings.is_ours(os.stat(name, dir_fd=directory_fd, follow_symlinks=False))


def mark_of(status: os.stat_result) -> int:
    """What a finished copy is known again by: 63 bits of its inode and owner.

    A number of an inode alone may be had by whoever may remove the copy.
    """
    return xxhash.xxh3_64_intdigest(struct.pack("<QQ", status.st_ino, status.st_uid)) >> 1


def discard(name: bytes, directory_fd: int, identity: tuple[int, int] | None = None) -> None:
    """Remove a file that this job has made and will not finish.

    With `identity` only if the name still stands for it: another job may have
    put a finished copy there.
    """
    # It may be gone already, or the directory may not let us: the entry has failed either way.
    with suppress(OSError):
        if identity is not None:
            now = os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
            if (now.st_dev, now.st_ino) != identity:
                return
        os.unlink(name, dir_fd=directory_fd)


def stop_if_full(
    error: OSError, directory_fd: int, names: Names, wanted_bytes: int = _PROBE_BYTES
) -> None:
    """Raise NoSpace if the target's file system is full, over quota or read-only.

    One full storage target or a full attribute gives the same errors without
    the rest being full, so it is tried with a file of its own first, of the
    size that was wanted, if that is more than a little.
    """
    if error.errno not in _FULL:
        return
    wanted_bytes = max(wanted_bytes, _PROBE_BYTES)
    probe = names.next()
    try:
        fd = os.open(probe, CREATE, 0o600, dir_fd=directory_fd)
        try:
            written = os.write(fd, bytes(wanted_bytes))
            os.fsync(fd)
        finally:
            os.close(fd)
            discard(probe, directory_fd)
    except OSError as again:
        if again.errno in _FULL:
            raise NoSpace(again.strerror) from error
        return
    if written < wanted_bytes:
        raise NoSpace(error.strerror) from error


def is_link(text: bytes, directory_fd: int, name: bytes) -> bool:
    """Whether the name is a link of this text."""
    try:
        return os.readlink(name, dir_fd=directory_fd) == text
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return False  # no link
