"""Extended attributes, access control lists and inode flags, from one open file to another.

All namespaces are copied that the target accepts, as far as the user may write them: `trusted` and
`security` for root alone, `btrfs` on btrfs; access control lists (`pcircle.fs.attributes.acls`) are
attributes as well. An attribute that the rules of a namespace or a file system forbid, or that is
too large, is not an error here; it is returned as refused, and the caller decides. A full disk
refuses with the same errors.

A file without attributes costs one call to list them, or to read the one list. They are read in one
step and set in another, because a copy by many ranks, and every directory, gets them long after the
source was read.

Some attributes are omitted on purpose: `security.selinux`, which the policy of the target sets, and
`lustre.*`, `system.nfs4_acl` and similar ones, which have a meaning only on their own file system.
Their entry counts as one whose attributes are not kept. Lustre shows some of these to root as
`trusted` too, and so does XFS its access control lists, which would bypass their treatment here;
`pcircle.fs.attributes.lustre` keeps layouts.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from pcircle.core.encoding import attributes
from pcircle.fs.attributes.acls import (
    ACCESS,
    DEFAULT,
    drop_default,
    hands_down,
    mode_with,
    mode_without,
    read_list,
    replace_list,
)
from pcircle.fs.attributes.mounts import type_of_device
from pcircle.fs.open_flags import OPEN_FILE

_LISTS = (ACCESS, DEFAULT)
_STORAGE = ("system.", "lustre.")
_OF_LUSTRE = ("lov", "lma", "lmv", "dmv", "link", "fid", "hsm", "som", "lfsck_bitmap", "lfsck_ns")
_NOT_COPIED = frozenset(
    (
        "security.selinux",
        "security.evm",
        "security.ima",
        "trusted.SGI_ACL_FILE",
        "trusted.SGI_ACL_DEFAULT",
        *(f"trusted.{name}" for name in _OF_LUSTRE),
    )
)
IGNORED = b"".join(name.encode() + b"\0" for name in sorted(_NOT_COPIED | {"lustre.lov"}))
"""Names of attributes that copies do not get, and do not miss."""
# EINVAL: an ACL with a user or group that the target's user namespace does not map.
_REFUSED = frozenset(
    (
        errno.EOPNOTSUPP,
        errno.ENOSYS,
        errno.EPERM,
        errno.EACCES,
        errno.EINVAL,
        errno.E2BIG,
        errno.ERANGE,
    )
)
# An attribute that cannot be read, or names that are more than the kernel lists.
_UNREADABLE = frozenset((errno.E2BIG, errno.ERANGE, errno.EPERM, errno.EACCES, errno.EOPNOTSUPP))
# Errors of a full disk, and of values larger than an attribute may be.
_NO_ROOM = frozenset((errno.ENOSPC, errno.EDQUOT))
_LISTING = frozenset((b"tmpfs", b"ext2", b"ext3", b"ext4", b"xfs", b"btrfs"))
_NOT_LISTED = frozenset((errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM, errno.EACCES))

# asm-generic/ioctl.h, asm/ioctl.h of POWER; linux/fs.h. The size in the number is that of a
# long, the argument is an int.
_GET, _SET = (2 << 29, 4 << 29) if os.uname().machine.startswith("ppc") else (2 << 30, 1 << 30)
_NUMBER = struct.calcsize("l") << 16 | ord("f") << 8
_GET_VERSION = _GET | struct.calcsize("l") << 16 | ord("v") << 8 | 1
_GET_FLAGS, _SET_FLAGS = _GET | _NUMBER | 1, _SET | _NUMBER | 2
_FLAGS = (0x01, 0x08, 0x40, 0x80, 0x20, 0x10)
"""Secure deletion, synchronous, no dump, no atime, append only, immutable: flags that users set."""
USER_FLAGS = sum(_FLAGS)
"""Inode flags that users set, as one number."""
FORBIDDING = 0x20 | 0x10
"""Append only and immutable: files with these flags may be neither renamed nor linked."""

ACL = "access control lists"
XATTR = "extended attributes"
FLAGS = "inode flags"


class AttributeLoss(msgspec.Struct, frozen=True):
    """An attribute that could not be kept: its name, and the error if there was one.

    `size_bytes` is the size of all attributes to set, up to and including this one.
    """

    kind: str
    name: str = ""
    error: OSError | None = None
    size_bytes: int = 0

    @property
    def may_be_full(self) -> bool:
        """Return whether a full disk may be the reason as well."""
        return self.error is not None and self.error.errno in _NO_ROOM


class ExtendedAttributes(msgspec.Struct, frozen=True):
    """The attributes of a source: attributes and access control lists by name, and inode flags.

    With `alone` a target keeps no access control list that the source lacks: it may have inherited
    one, or had it before. `unread` attributes could not be read, or belong to an omitted namespace.
    """

    values: list[tuple[str, bytes]]
    flags: int = 0
    alone: bool = False
    unread: tuple[AttributeLoss, ...] = ()

    def acl(self, name: str) -> bytes | None:
        """Return one of the access control lists, or None."""
        return next((value for held, value in self.values if held == name), None)


def lists_all(device: int) -> bool:
    """Return whether the file system with this number includes access lists in listxattr.

    Lustre answers for an access list at once, but not for names of attributes; others are unknown.
    """
    return type_of_device(device) in _LISTING


def kind_of(name: str) -> str | None:
    """Return the kind of an attribute; None if it is not copied."""
    if name in _LISTS:
        return ACL
    return None if name.startswith(_STORAGE) or name in _NOT_COPIED else XATTR


def _is_lost(name: str) -> bool:
    """Return whether a copy lacks the content of an attribute that is not copied.

    `pcircle.fs.attributes.lustre` keeps and counts layouts; the policy of the target sets the
    remaining attributes.
    """
    return name.startswith(_STORAGE) and name != "lustre.lov"


def read_attributes(
    source: int | bytes,
    *,
    xattr: bool,
    lists: Sequence[str],
    follow: bool = True,
    listed: bool = False,
    unread: list[AttributeLoss] | None = None,
) -> list[tuple[str, bytes]]:
    """Return the attributes of an open file or of a path to keep, and these access control lists.

    With `listed` lists are found by one call, which is cheaper for several lists, but not for one,
    which Lustre has at hand. Attributes that cannot be read or copied are added to `unread`, or
    raise OSError.
    """
    names: Sequence[str] = lists
    if xattr or listed:
        try:
            names = attributes(source, follow=follow)
        except OSError as error:
            if error.errno == errno.E2BIG:  # the kernel lists no more than 64 KiB of names
                if xattr and unread is None:
                    raise
                if xattr and unread is not None:
                    unread.append(AttributeLoss(XATTR, "all", error))
            elif error.errno not in _NOT_LISTED:
                raise
    found = []
    for name in names:
        if name in _LISTS:
            value = read_list(source, name, follow=follow) if name in lists else None
            if value is not None:
                found.append((name, value))
        elif xattr and kind_of(name) == XATTR:
            try:
                found.append((name, os.getxattr(source, name, follow_symlinks=follow)))
            except OSError as error:
                if error.errno == errno.ENODATA:  # removed since it was listed
                    continue
                if unread is None or error.errno not in _UNREADABLE:
                    raise
                unread.append(AttributeLoss(XATTR, name, error))
        elif xattr and unread is not None and _is_lost(name):
            unread.append(AttributeLoss(XATTR, name))
    return found


def give_attributes(target: int | bytes, held: ExtendedAttributes) -> list[AttributeLoss]:
    """Set the attributes of a source on an open file, or on a path, except lists.

    Return what could not be kept. OSError if the target fails.
    """
    refused = list(held.unread)
    size = 0
    for name, value in held.values:
        if name not in _LISTS:
            size += len(name) + len(value)
            _try(target, (name, value), XATTR, size, refused)
    return refused


def drop_attributes(target: int | bytes, held: ExtendedAttributes) -> None:
    """Remove from an open file, or from a path, attributes that its source lacks."""
    if any(kind_of(attribute.name) == XATTR for attribute in held.unread):
        return  # the source may have them
    wanted = {name for name, _ in held.values}
    for name, _ in read_attributes(target, xattr=True, lists=(), unread=[]):
        if name not in wanted:
            os.removexattr(target, name)


def give_lists(
    target: int | bytes,
    held: ExtendedAttributes,
    mode: int,
    refused: list[AttributeLoss],
    *,
    directory: bool,
) -> int:
    """Set the access control lists of a source of that mode; return the mode to set then.

    Lists that could not be kept are added to `refused`. OSError if the target fails, or a list that
    it must not have cannot be removed.
    """
    access = held.acl(ACCESS)
    size = sum(len(name) + len(value) for name, value in held.values)
    if access is not None and _try(target, (ACCESS, access), ACL, size, refused):
        mode = mode_with(mode, access)
    else:
        if access is not None:
            mode = mode_without(mode, access)
        # A file has mostly inherited one; a directory that was there mostly has none.
        if held.alone and not (directory and read_list(target) is None):
            replace_list(target, mode)
    if directory:
        default = held.acl(DEFAULT)
        given = default is not None and _try(target, (DEFAULT, default), ACL, size, refused)
        if held.alone and not given and hands_down(target):
            drop_default(target)
    return mode


def _try(
    target: int | bytes,
    attribute: tuple[str, bytes],
    kind: str,
    size: int,
    refused: list[AttributeLoss],
) -> bool:
    try:
        give_attribute(target, *attribute)
    except OSError as error:
        if error.errno not in _REFUSED | _NO_ROOM:
            raise
        refused.append(AttributeLoss(kind, attribute[0], error, size))
        return False
    return True


def give_attribute(target: int | bytes, name: str, value: bytes) -> None:
    """Set one attribute of an open file or of a path. OSError as of `setxattr`."""
    try:
        os.setxattr(target, name, value)
    except PermissionError as error:
        # The namespaces `user` and `lustre` require write permission, even from the owner.
        mode = stat.S_IMODE(os.stat(target).st_mode)
        if error.errno != errno.EACCES or mode & stat.S_IWUSR:
            raise
        os.chmod(target, mode | stat.S_IWUSR)
        try:
            os.setxattr(target, name, value)
        finally:
            os.chmod(target, mode)


def read_flags(fd: int, among: int = USER_FLAGS) -> int:
    """Return the inode flags of an open file that users set, or others; 0 without any."""
    # Not every file system has them (ENOTTY, EOPNOTSUPP), and some deny reading them (EACCES).
    with suppress(OSError):
        return _flags(fd) & among
    return 0


def give_flags(fd: int, flags: int) -> bool:
    """Set the inode flags of an open file, last of all, because they may forbid the rest.

    Return False if it did not accept all of them.
    """
    try:
        accepted = _flags(fd) & ~USER_FLAGS
    except OSError:
        return False
    with suppress(OSError):  # then one by one
        _set_flags(fd, accepted | flags)
        return True
    for flag in _FLAGS:
        if flags & flag:
            with suppress(OSError):  # the result reports missing flags
                _set_flags(fd, accepted | flag)
                accepted |= flag
    return False


def generation(fd: int) -> int:
    """Return the generation of an inode, which distinguishes reuses; 0 if unknown."""
    with suppress(OSError):
        number: int = struct.unpack_from("I", fcntl.ioctl(fd, _GET_VERSION, bytes(8)))[0]
        return number
    return 0


def _flags(fd: int) -> int:
    number: int = struct.unpack("i", fcntl.ioctl(fd, _GET_FLAGS, bytes(4)))[0]
    return number


def _set_flags(fd: int, flags: int) -> None:
    fcntl.ioctl(fd, _SET_FLAGS, struct.pack("i", flags))


def lift_flags(holder_fd: int, name: bytes, kind: int = 0) -> bool:
    """Remove flags that forbid changes from a file or directory; return False without any."""
    try:
        fd = os.open(name, OPEN_FILE | kind, dir_fd=holder_fd)
    except OSError:
        return False
    try:
        status = os.fstat(fd)
        if not (stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode)):
            return False
        present = read_flags(fd)
        return bool(present & FORBIDDING) and give_flags(fd, present & ~FORBIDDING)
    finally:
        os.close(fd)
