"""Copy extended attributes, access control lists and inode flags between open files.

Attributes of all namespaces that the user may write and the target accepts are copied: `trusted`
and `security` only for root, and `btrfs` only on btrfs. Access control lists (ACLs,
`pcircle.fs.attributes.acls`) are stored as attributes as well. An attribute that is too large, or
that a namespace or file system does not permit, is not an error here. It is returned as an
`AttributeLoss`, and the caller decides. A full disk causes the same errors.

A file without attributes costs one system call, which lists the attributes or reads the only
requested ACL. Reading and setting are separate steps, because directories, and files copied by many
ranks, get their attributes long after the source was read.

Some attributes are omitted on purpose: `security.selinux`, which the policy of the target sets, and
attributes that have a meaning only on their own file system, such as `lustre.*` and
`system.nfs4_acl`. An entry that has attributes of the latter kind counts as one whose attributes
are not preserved, except for Lustre layouts, which `pcircle.fs.attributes.lustre` handles. Lustre
also presents some of its attributes to root as `trusted.*`, and XFS its ACLs. These are omitted as
well, because copying them would bypass the rules above.
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
from pcircle.fs.attributes import acls
from pcircle.fs.attributes.mounts import type_of_device
from pcircle.fs.open_flags import OPEN_FILE

_LISTS = (acls.ACCESS, acls.DEFAULT)
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
"""Names of attributes that copies neither get nor count as lost, each terminated by a NUL."""
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
# Errors of an attribute that cannot be read, or of more names than the kernel can list.
_UNREADABLE = frozenset((errno.E2BIG, errno.ERANGE, errno.EPERM, errno.EACCES, errno.EOPNOTSUPP))
# Errors of a full disk, and of values that exceed the maximum size of an attribute.
_NO_ROOM = frozenset((errno.ENOSPC, errno.EDQUOT))
_LISTING = frozenset((b"tmpfs", b"ext2", b"ext3", b"ext4", b"xfs", b"btrfs"))
_NOT_LISTED = frozenset((errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM, errno.EACCES))

# From asm-generic/ioctl.h, asm/ioctl.h of POWER, and linux/fs.h. The request number encodes the
# size of a long, but the argument is an int.
_GET, _SET = (2 << 29, 4 << 29) if os.uname().machine.startswith("ppc") else (2 << 30, 1 << 30)
_NUMBER = struct.calcsize("l") << 16 | ord("f") << 8
_GET_VERSION = _GET | struct.calcsize("l") << 16 | ord("v") << 8 | 1
_GET_FLAGS, _SET_FLAGS = _GET | _NUMBER | 1, _SET | _NUMBER | 2
_FLAGS = (0x01, 0x08, 0x40, 0x80, 0x20, 0x10)
"""Flags that users set: secure deletion, synchronous, no dump, no atime, append-only, immutable."""
USER_FLAGS = sum(_FLAGS)
"""All inode flags that users set, as a bit mask."""
FORBIDDING = 0x20 | 0x10
"""Append-only and immutable: files with these flags can be neither renamed nor linked."""

ACL = "access control lists"
XATTR = "extended attributes"
FLAGS = "inode flags"


class AttributeLoss(msgspec.Struct, frozen=True):
    """An attribute that could not be preserved: its name, and the error if there was one.

    `size_bytes` is the total size of the attributes to set, up to and including this one.
    """

    kind: str
    name: str = ""
    error: OSError | None = None
    size_bytes: int = 0

    @property
    def may_be_full(self) -> bool:
        """Return whether a full disk may have caused the loss."""
        return self.error is not None and self.error.errno in _NO_ROOM


class ExtendedAttributes(msgspec.Struct, frozen=True):
    """The extended attributes, ACLs and inode flags of a source.

    With `alone`, ACLs that the source lacks are removed from the target, which may have inherited
    them or had them before. `unread` lists attributes that could not be read or belong to an
    omitted namespace.
    """

    values: list[tuple[str, bytes]]
    flags: int = 0
    alone: bool = False
    unread: tuple[AttributeLoss, ...] = ()

    def acl(self, name: str) -> bytes | None:
        """Return the ACL with this attribute name, or None."""
        return next((value for held, value in self.values if held == name), None)


def lists_all(device: int) -> bool:
    """Return whether listxattr includes ACLs on the file system with this device number.

    Lustre returns an ACL at once, but listing the names of attributes takes longer. For file
    systems that are not known, assume that ACLs are not listed.
    """
    return type_of_device(device) in _LISTING


def kind_of(name: str) -> str | None:
    """Return the kind of an attribute; None if it is not copied."""
    if name in _LISTS:
        return ACL
    return None if name.startswith(_STORAGE) or name in _NOT_COPIED else XATTR


def _is_lost(name: str) -> bool:
    """Return whether omitting an attribute that is not copied counts as a loss.

    `pcircle.fs.attributes.lustre` preserves layouts and counts their losses. The policy of the
    target sets the other omitted attributes.
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
    """Return the extended attributes of a file that are preserved, and its ACLs in `lists`.

    `source` is an open file or a path. With `listed`, ACLs are found by listing all names in one
    call. This is cheaper for several ACLs, but not for a single one, which Lustre returns at once.
    Attributes that cannot be read or copied are added to `unread`; if that is None, those that
    cannot be read raise OSError.
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
            value = acls.read_list(source, name, follow=follow) if name in lists else None
            if value is not None:
                found.append((name, value))
        elif xattr and kind_of(name) == XATTR:
            try:
                found.append((name, os.getxattr(source, name, follow_symlinks=follow)))
            except OSError as error:
                if error.errno == errno.ENODATA:  # removed after it was listed
                    continue
                if unread is None or error.errno not in _UNREADABLE:
                    raise
                unread.append(AttributeLoss(XATTR, name, error))
        elif xattr and unread is not None and _is_lost(name):
            unread.append(AttributeLoss(XATTR, name))
    return found


def give_attributes(target: int | bytes, held: ExtendedAttributes) -> list[AttributeLoss]:
    """Set the attributes of a source, except ACLs, on an open file or on a path.

    Return the attributes that could not be preserved. Raises OSError for any other error.
    """
    refused = list(held.unread)
    size = 0
    for name, value in held.values:
        if name not in _LISTS:
            size += len(name) + len(value)
            _try(target, (name, value), XATTR, size, refused)
    return refused


def drop_attributes(target: int | bytes, held: ExtendedAttributes) -> None:
    """Remove the attributes that the source lacks from an open file or from a path."""
    if any(kind_of(attribute.name) == XATTR for attribute in held.unread):
        return  # the source may have any of the target's attributes
    names = {name for name, _ in held.values}
    for name, _ in read_attributes(target, xattr=True, lists=(), unread=[]):
        if name not in names:
            os.removexattr(target, name)


def give_lists(
    target: int | bytes,
    held: ExtendedAttributes,
    mode: int,
    refused: list[AttributeLoss],
    *,
    directory: bool,
) -> int:
    """Set the ACLs of a source that has this mode; return the mode to set afterwards.

    ACLs that could not be preserved are added to `refused`. Raises OSError for any other error, or
    if an ACL that the target must not have cannot be removed.
    """
    access = held.acl(acls.ACCESS)
    size = sum(len(name) + len(value) for name, value in held.values)
    if access is not None and _try(target, (acls.ACCESS, access), ACL, size, refused):
        mode = acls.mode_with(mode, access)
    else:
        if access is not None:
            mode = acls.mode_without(mode, access)
        # Looking up the ACL saves a call only if there is none, which is usual for directories, but
        # not for new files that may inherit one.
        if held.alone and not (directory and acls.read_list(target) is None):
            acls.replace_list(target, mode)
    if directory:
        default = held.acl(acls.DEFAULT)
        given = default is not None and _try(target, (acls.DEFAULT, default), ACL, size, refused)
        if held.alone and not given and acls.may_have_default(target):
            acls.drop_default(target)
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
    """Set one attribute of an open file or of a path. Raises OSError like `os.setxattr`."""
    try:
        os.setxattr(target, name, value)
    except PermissionError as error:
        # Setting attributes of `user` and `lustre` requires write permission, even for the owner.
        mode = stat.S_IMODE(os.stat(target).st_mode)
        if error.errno != errno.EACCES or mode & stat.S_IWUSR:
            raise
        os.chmod(target, mode | stat.S_IWUSR)
        try:
            os.setxattr(target, name, value)
        finally:
            os.chmod(target, mode)


def read_flags(fd: int, among: int = USER_FLAGS) -> int:
    """Return the inode flags of an open file, limited to `among`; 0 if they cannot be read."""
    # Not every file system supports flags (ENOTTY, EOPNOTSUPP), and some deny reading them
    # (EACCES).
    with suppress(OSError):
        return _flags(fd) & among
    return 0


def give_flags(fd: int, flags: int) -> bool:
    """Set the inode flags of an open file, as the last step: they may forbid other changes.

    Return False if the file system did not accept all of them.
    """
    try:
        accepted = _flags(fd) & ~USER_FLAGS
    except OSError:
        return False
    with suppress(OSError):  # if any flag is refused, set them one by one
        _set_flags(fd, accepted | flags)
        return True
    for flag in _FLAGS:
        if flags & flag:
            with suppress(OSError):  # the result reports that flags are missing
                _set_flags(fd, accepted | flag)
                accepted |= flag
    return False


def generation(fd: int) -> int:
    """Return an inode's generation, which distinguishes reuses of its number; 0 if unknown."""
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
    """Remove the flags that forbid changes to an entry; return whether any were removed."""
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
