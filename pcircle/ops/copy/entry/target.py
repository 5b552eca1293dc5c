"""Creates and replaces entries in a target directory, and detects a full target.

By default, a new small file is created under its own name with O_EXCL, so no existing entry is
opened or followed. To replace an existing entry, the copy is written under a short temporary name
in the same directory and then renamed over the entry. Thus an interruption does not destroy the
only good copy. With --inplace, an existing file is rewritten instead. Only regular files and
symbolic links are replaced, unless an overwrite policy allows more.
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

from pcircle.core.units import CHUNK_UNIT_BYTES
from pcircle.fs.attributes.acls import read_list
from pcircle.fs.attributes.metadata import settle_as_replaced, settle_file
from pcircle.fs.attributes.xattrs import AttributeLoss, ExtendedAttributes
from pcircle.fs.entry_errors import SAME_FILE, Changed, EntryError, set_operation, tried
from pcircle.fs.file_system import reason_of_full
from pcircle.fs.naming import NO_SUCH_RENAME, give_free_name, rename_to_free
from pcircle.fs.open_flags import CREATE_FILE
from pcircle.ops.copy.entry.collisions import Collisions, Siblings, no_siblings
from pcircle.ops.copy.entry.overwrite import (
    DestinationExistsError,
    OverwriteOptions,
    OverwritePolicy,
    TimestampPrecision,
    file_stays,
    is_same_special,
)
from pcircle.ops.copy.entry.settings import CopySettings

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
_REWRITE = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_PROBE_BYTES = 1 << 16


class TargetFullError(OSError):
    """The file system of the target is full, over quota or read-only, so no entry can be copied."""


class TemporaryNames:
    """Generates temporary names that are unique in a job, and renames files to final names.

    `precision` measures the precision of timestamps with temporary files, `collisions` detects name
    collisions, and `keeper` is the overwrite policy, if there is one. `expected` is the state, in
    the format of the policy, that the current name must have before it is replaced.
    """

    def __init__(self, settings: CopySettings, rank: int, siblings: Siblings = no_siblings) -> None:
        self._prefix = b".fcp-%s-%x-" % (settings.token, rank)
        self._count = 0
        self._renames = True
        self.collisions: Collisions = Collisions(siblings)
        self.precision: TimestampPrecision = TimestampPrecision(self.next)
        self.keeper: OverwritePolicy | None = None
        self.expected = b""

    def next(self) -> bytes:
        """Return a new temporary name."""
        self._count += 1
        return self._prefix + b"%x" % self._count

    def give_free(self, written: bytes, name: bytes, directory_fd: int) -> None:
        """Rename to a free name, atomically if the system can. Raises FileExistsError."""
        self.check(name, directory_fd)
        if self._renames:
            try:
                return rename_to_free(written, name, directory_fd)
            except OSError as error:
                # Some containers return EPERM for unknown system calls.
                if error.errno not in (*NO_SUCH_RENAME, errno.EPERM):
                    raise
                self._renames = False
        give_free_name(written, name, directory_fd)

    def check(self, name: bytes, directory_fd: int) -> None:
        """Raise OSError if the current name is not in the expected state."""
        if self.expected and self.keeper is not None:
            self.keeper.check(name, directory_fd, self.expected)

    def replace(self, written: bytes, name: bytes, directory_fd: int) -> None:
        """Rename to a name that may exist, according to the overwrite policy. Raises OSError."""
        if self.keeper is not None:
            self.check(name, directory_fd)
            self.keeper.replace(written, name, directory_fd)
        else:
            os.rename(written, name, src_dir_fd=directory_fd, dst_dir_fd=directory_fd)


class TargetFile:
    """A target file that is being written: its names, and the file that it will replace.

    `written` is its current name, either temporary or final, and `old` is the status of the file
    that it will replace. `identify` sets `identity` while the file is open. `held` contains the
    attributes to copy from the source, and `access` the access control list of `old` if it is
    needed. `rewritten` means that the file existed before, so its own attributes must be removed.
    Chunks begin at multiples of `unit_bytes`.
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
        self.fd: int = fd
        self.name: bytes = name
        self.written: bytes = written
        self.old: os.stat_result | None = old
        self.created_mode: int = created_mode
        self.identity: tuple[int, int] | None = None
        self.held: ExtendedAttributes | None = None
        self.access: bytes | None = access
        self.rewritten: bool = False
        self.unit_bytes: int = CHUNK_UNIT_BYTES

    def identify(self) -> tuple[int, int]:
        """Store and return the device and inode of the open file."""
        status = os.fstat(self.fd)
        self.identity = (status.st_dev, status.st_ino)
        return self.identity


StartedFile: TypeAlias = "tuple[os.stat_result, TargetFile, tuple[int, int], list[tuple[int, int]]]"
"""A started large file: status of the source, copy, identity of the copy, and remaining ranges."""


def creation_mode(source: os.stat_result, settings: CopySettings) -> int:
    """Return the creation mode: private if the mode is set later, otherwise that of cp.

    The owner bits of the umask are disabled while a copy is running, so they are applied here.
    """
    return 0o600 if settings.keep.mode else source.st_mode & creation_bits(settings)


def creation_bits(settings: CopySettings) -> int:
    """Return the bits of a source's mode that are used at creation."""
    return 0 if settings.keep.mode else 0o777 & ~(settings.umask & 0o700)


Make: TypeAlias = Callable[[bytes, int, int], int]
"""Creates a file, given name, mode and directory, and returns a descriptor for writing.

Raises FileExistsError if the name exists.
"""


def new_file(name: bytes, mode: int, directory_fd: int) -> int:
    """Create an ordinary file, open for writing."""
    return os.open(name, CREATE_FILE, mode, dir_fd=directory_fd)


class TargetWriter:
    """Creates, resumes and publishes the files of one thread, with temporary names if necessary."""

    def __init__(self, settings: CopySettings, names: TemporaryNames) -> None:
        self._settings = settings
        self._names = names

    def create(
        self, directory_fd: int, name: bytes, source: os.stat_result, make: Make = new_file
    ) -> TargetFile:
        """Create a file under its own name, or under a temporary one if necessary.

        Raises OSError.
        """
        mode = creation_mode(source, self._settings)
        if self._settings.existing.in_place:
            return self._create_in_place(directory_fd, name, source, make, mode)
        if not self._settings.existing.beside:
            with suppress(FileExistsError):
                return TargetFile(make(name, mode, directory_fd), name, name, None, mode)
        return self._create_temporary(directory_fd, name, source, make)

    def create_beside(
        self, directory_fd: int, name: bytes, source: os.stat_result, make: Make = new_file
    ) -> TargetFile:
        """Create a file under a temporary name or, with --inplace, under its own name."""
        if self._settings.existing.in_place:
            mode = creation_mode(source, self._settings) | 0o600
            return self._create_in_place(directory_fd, name, source, make, mode)
        return self._create_temporary(directory_fd, name, source, make)

    def _create_temporary(
        self, directory_fd: int, name: bytes, source: os.stat_result, make: Make
    ) -> TargetFile:
        old = replaceable(directory_fd, name, self._names)
        if old is not None:
            self._names.collisions.check(directory_fd, name)
        access = self._access_of(old, directory_fd, name)
        mode = self._temporary_mode(old, source)
        written = self._names.next()
        return TargetFile(make(written, mode, directory_fd), name, written, old, mode, access)

    def _temporary_mode(self, old: os.stat_result | None, source: os.stat_result) -> int:
        """Return the creation mode of a temporary file: private if it replaces another file."""
        if old is not None and stat.S_ISREG(old.st_mode):
            return 0o600
        # Other ranks must be able to open the file for writing.
        return creation_mode(source, self._settings) | 0o600

    def _access_of(
        self, old: os.stat_result | None, directory_fd: int, name: bytes
    ) -> bytes | None:
        """Return the access control list that a file takes over from the one it replaces."""
        if self._settings.keep.mode or old is None or not stat.S_ISREG(old.st_mode):
            return None
        with suppress(FileNotFoundError):  # the old file was just removed
            return read_list(b"/proc/self/fd/%d/%s" % (directory_fd, name), follow=False)
        return None

    def resume(
        self, directory_fd: int, name: bytes, written: bytes, source: os.stat_result
    ) -> TargetFile:
        """Return a `TargetFile` for a file that a previous run created, without opening it.

        Raises OSError if the file cannot be renamed to its final name.
        """
        if written == name:
            creation = TargetFile(-1, name, name, None, creation_mode(source, self._settings))
            creation.rewritten = True
            return creation
        old = replaceable(directory_fd, name, self._names)
        access = self._access_of(old, directory_fd, name)
        return TargetFile(-1, name, written, old, self._temporary_mode(old, source), access)

    def _create_in_place(
        self, directory_fd: int, name: bytes, source: os.stat_result, make: Make, mode: int
    ) -> TargetFile:
        """Create a file under its own name, or open the existing one to rewrite it.

        A symbolic link is replaced, not followed. A file with several names is also replaced,
        because the other names may belong to other copies or be outside the destination.
        """
        settings = self._settings
        try:
            return TargetFile(make(name, mode, directory_fd), name, name, None, mode)
        except FileExistsError:
            self._names.collisions.check(directory_fd, name)
            if settings.existing.stays:
                current = os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
                if not settings.is_ours(current):
                    raise DestinationExistsError from None
        old = replaceable(directory_fd, name, self._names)
        if old is not None:
            _refuse_source(old, source)
        if old is None or stat.S_ISLNK(old.st_mode) or old.st_nlink > 1:
            return self._create_temporary(directory_fd, name, source, make)
        try:
            fd = os.open(name, _REWRITE, dir_fd=directory_fd)
        except OSError:
            # A previous run may have set a mode that forbids opening.
            if not (settings.existing.force or settings.is_ours(old)):
                raise
            os.unlink(name, dir_fd=directory_fd)
            return TargetFile(make(name, mode, directory_fd), name, name, None, mode)
        try:
            _check_open(fd, source)
        except OSError:
            os.close(fd)
            raise
        creation = TargetFile(fd, name, name, None, creation_mode(source, settings))
        creation.rewritten = True
        return creation

    def stays(
        self, source_fd: int, source: bytes, directory_fd: int, name: bytes
    ) -> os.stat_result | None:
        """Return the status of an existing entry that must stay, or None if a copy must be made.

        Raises OSError if the entry can neither stay nor be replaced.
        """
        settings, names = self._settings, self._names
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
        is_kept = self.kept_times(directory_fd)
        return old if same or file_stays(settings.existing, status, old, is_kept) else None

    def is_alike(self, source: os.stat_result, old: os.stat_result, directory_fd: int) -> bool:
        """Return whether two files have the same size and time in the sense of `--skip-same`."""
        same = OverwriteOptions(same=True)
        return file_stays(same, source, old, self.kept_times(directory_fd))

    def kept_times(self, directory_fd: int) -> Callable[[int, os.stat_result], bool] | None:
        """Return the argument `is_kept` of `file_stays`; None if times are not preserved."""
        if not self._settings.keep.timestamps:
            return None
        precision = self._names.precision
        return lambda source_ns, old: precision.is_kept(source_ns, old, directory_fd)

    def still_replaceable(self, creation: TargetFile, source: os.stat_result, fd: int) -> None:
        """Check again whether an existing entry may be replaced, before a slow copy is renamed.

        Raises OSError if the entry cannot be replaced, and DestinationExistsError if it must stay.
        """
        existing = self._settings.existing
        if existing.stays:
            return  # `publish` checks the name
        current = replaceable(fd, creation.name, self._names)
        if current is None or creation.written == creation.name:
            return
        self._names.collisions.check(fd, creation.name)
        if not existing.decides or self._settings.is_ours(current):
            return
        if file_stays(existing, source, current, self.kept_times(fd)):
            raise DestinationExistsError

    def settle(self, creation: TargetFile, source: os.stat_result) -> list[AttributeLoss]:
        """Set the attributes of the file: preserved ones from the source, the others from `old`.

        Return the attributes that could not be preserved. `Copier` sets inode flags later.
        """
        keep, old, fd = self._settings.keep, creation.old, creation.fd
        mode = creation_mode(source, self._settings)
        if old is not None and stat.S_ISREG(old.st_mode):
            settle_as_replaced(fd, old, creation.access, keep)
        elif not keep.mode and creation.created_mode != mode:
            # The file was created with more owner permissions than the source grants.
            os.fchmod(fd, stat.S_IMODE(os.fstat(fd).st_mode) & ~(0o600 & ~mode))
        return settle_file(fd, source, keep, creation.held) if keep.any else []

    def publish(self, creation: TargetFile, directory_fd: int) -> None:
        """Rename a complete, closed file to its final name.

        Raises DestinationExistsError if an existing entry must stay.
        """
        if creation.written == creation.name:
            return
        settings, names, stays = self._settings, self._names, self._settings.existing.stays
        if stays or creation.old is None:
            try:
                give = give_free_name if stays else names.give_free
                return give(creation.written, creation.name, directory_fd)
            except FileExistsError:
                names.collisions.check(directory_fd, creation.name)
                current = os.stat(creation.name, dir_fd=directory_fd, follow_symlinks=False)
                _refuse(current, names, special_too=not stays)
                if stays and not settings.is_ours(current):
                    raise DestinationExistsError from None
        names.replace(creation.written, creation.name, directory_fd)


def _check_open(fd: int, source: os.stat_result) -> None:
    """Raise OSError if an open existing file must not be rewritten."""
    old = os.fstat(fd)
    if not stat.S_ISREG(old.st_mode):
        raise FileExistsError(errno.EEXIST, "a special file is in the way")
    _refuse_source(old, source)
    if old.st_nlink > 1:
        raise Changed("it was renamed in the meantime")


def _refuse_source(old: os.stat_result, source: os.stat_result) -> None:
    if (old.st_dev, old.st_ino) == (source.st_dev, source.st_ino):
        raise EntryError(SAME_FILE, "the source and its copy are the same file")


def replaceable(directory_fd: int, name: bytes, names: TemporaryNames) -> os.stat_result | None:
    """Return the status of an existing entry, or None if there is none.

    Raises OSError if it must not be replaced.
    """
    try:
        old = os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
    except FileNotFoundError:
        return None
    _refuse(old, names, special_too=True)
    return old


def _refuse(old: os.stat_result, names: TemporaryNames, *, special_too: bool) -> None:
    if names.keeper is not None and names.keeper.may_replace(old):
        return
    if stat.S_ISDIR(old.st_mode):
        raise IsADirectoryError(errno.EISDIR, "a directory is in the way")
    if special_too and not (stat.S_ISREG(old.st_mode) or stat.S_ISLNK(old.st_mode)):
        raise FileExistsError(errno.EEXIST, "a special file is in the way")


def mark_of(status: os.stat_result) -> int:
    """Return a 63-bit mark that identifies a complete copy by its inode and owner.

    An inode number alone is not enough: any user who may remove the copy can obtain the number for
    a file of their own.
    """
    return xxhash.xxh3_64_intdigest(struct.pack("<QQ", status.st_ino, status.st_uid)) >> 1


def discard(name: bytes, directory_fd: int, identity: tuple[int, int] | None = None) -> None:
    """Remove an incomplete file of this job.

    If `identity` is given, the file is removed only if the name still belongs to it. Another job
    may have replaced it with a complete copy.
    """
    # The file may already be removed, or removal may be denied; the entry has failed anyway.
    with suppress(OSError):
        if identity is not None:
            current = os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
            if (current.st_dev, current.st_ino) != identity:
                return
        os.unlink(name, dir_fd=directory_fd)


def stop_if_full(
    error: OSError, directory_fd: int, names: TemporaryNames, wanted_bytes: int = _PROBE_BYTES
) -> None:
    """Raise TargetFullError if the target's file system is full, over quota or read-only.

    A single full storage target or an attribute that does not fit causes the same errors. Therefore
    a probe file of the wanted size (but at least 64 KiB) is written to distinguish these cases.
    """
    if error.errno not in FULL:
        return
    wanted_bytes = max(wanted_bytes, _PROBE_BYTES)
    probe = names.next()
    try:
        fd = os.open(probe, CREATE_FILE, 0o600, dir_fd=directory_fd)
        try:
            written = os.write(fd, bytes(wanted_bytes))
            os.fsync(fd)
        finally:
            os.close(fd)
            discard(probe, directory_fd)
    except OSError as probe_error:
        if probe_error.errno in FULL:
            raise _full(probe_error, error, directory_fd) from error
        return
    if written < wanted_bytes:
        raise _full(error, error, directory_fd) from error


def give_up(
    error: OSError,
    directory_fd: int,
    names: TemporaryNames,
    written: bytes | None,
    identity: tuple[int, int] | None = None,
) -> None:
    """Remove an incomplete entry, if there is one, after an error; `identity` is as in `discard`.

    Raises TargetFullError if the target is full.
    """
    try:
        stop_if_full(error, directory_fd, names)
    finally:
        if written is not None:
            discard(written, directory_fd, identity)


def _full(reason: OSError, error: OSError, directory_fd: int) -> TargetFullError:
    """Return an error with the reason of the probe and the operation of the first error."""
    full = TargetFullError(reason.errno, reason_of_full(reason, directory_fd))
    if doing := tried(error, ""):
        set_operation(full, doing)
    return full


def is_link(text: bytes, directory_fd: int, name: bytes) -> bool:
    """Return whether an entry is a symbolic link with this text."""
    try:
        return os.readlink(name, dir_fd=directory_fd) == text
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return False  # not a link
