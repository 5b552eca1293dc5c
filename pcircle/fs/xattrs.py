"""Extended attributes, access control lists and inode flags, from one open file to another.

POSIX ACLs are the attributes `system.posix_acl_access` and `..._default`; to
copy their bytes is to copy the lists, with owners by number. The other
namespaces are copied as far as the user may write them: `user`, `trusted` and
`security` for root. What a namespace's or a file system's rules forbid is no
error here; it is returned as a kind of thing that could not be kept, and the
caller decides.

A file without any costs one call to list them. They are read in one step and
given in another, since what is copied by many ranks, and every directory, gets
them long after the source was looked at.

Left out on purpose: `security.selinux`, which the target's policy sets, and
`lustre.*`, `system.nfs4_acl` and the like, which describe where a file is
stored and not what it is. Lustre shows some of that to root as `trusted` too;
layouts are kept by `pcircle.fs.lustre`.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
from contextlib import suppress
from typing import NamedTuple

_ACCESS, _DEFAULT = "system.posix_acl_access", "system.posix_acl_default"
_ACLS = (_ACCESS, _DEFAULT)
_COPIED = ("user.", "trusted.", "security.")
_OF_LUSTRE = ("lov", "lma", "lmv", "dmv", "link", "fid", "hsm", "som", "lfsck_bitmap", "lfsck_ns")
_NOT_COPIED = frozenset(
    (
        "security.selinux",
        "security.evm",
        "security.ima",
        *(f"trusted.{name}" for name in _OF_LUSTRE),
    )
)
# EINVAL: an ACL that names an owner whom the target's user namespace does not know.
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
_NO_ATTRIBUTE = frozenset((errno.ENODATA, errno.EOPNOTSUPP))
_NOT_LISTED = frozenset((errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM, errno.EACCES))

# asm-generic/ioctl.h, asm/ioctl.h of POWER; linux/fs.h. The size in the number is that of a
# long, the argument is an int.
_GET, _SET = (2 << 29, 4 << 29) if os.uname().machine.startswith("ppc") else (2 << 30, 1 << 30)
_NUMBER = struct.calcsize("l") << 16 | ord("f") << 8
_GET_FLAGS, _SET_FLAGS = _GET | _NUMBER | 1, _SET | _NUMBER | 2
_FLAGS = (0x01, 0x08, 0x40, 0x80, 0x20, 0x10)
"""Secure deletion, synchronous, no dump, no atime, append only, immutable: what a user sets."""
_FLAG_BITS = sum(_FLAGS)
FORBIDDING = 0x20 | 0x10
"""Append only and immutable: neither may be renamed nor linked."""

_ACL_HEADER = struct.Struct("<I")
_ACL_ENTRY = struct.Struct("<HHI")  # tag, rights, user or group
_ACL_OWNING_GROUP = 0x04

ACL = "access control lists"
XATTR = "extended attributes"
FLAGS = "inode flags"


class Held(NamedTuple):
    """What a source has of these: attributes by name, and inode flags.

    With `alone` a target keeps no access control list that the source has
    not: it may have inherited one.
    """

    values: list[tuple[str, bytes]]
    flags: int = 0
    alone: bool = False


def kind_of(name: str) -> str | None:
    """The kind of an attribute, None if such are not copied."""
    if name in _ACLS:
        return ACL
    return XATTR if name.startswith(_COPIED) and name not in _NOT_COPIED else None


def read_attributes(
    source: int | bytes, *, xattr: bool, acl: bool, follow: bool = True
) -> list[tuple[str, bytes]]:
    """The attributes to keep of an open file or of a path. OSError if they can't be read."""
    try:
        names = os.listxattr(source, follow_symlinks=follow)
    except OSError as error:
        if error.errno not in _NOT_LISTED:
            raise
        return []
    found = []
    for name in names:
        kind = kind_of(name)
        if not (xattr if kind == XATTR else acl and kind == ACL):
            continue
        try:
            found.append((name, os.getxattr(source, name, follow_symlinks=follow)))
        except OSError as error:
            if error.errno != errno.ENODATA:  # removed since it was listed
                raise
    return found


def give_attributes(target: int | bytes, held: Held) -> set[str]:
    """Give an open file, or what a path leads to, the attributes of a source.

    Returns the kinds of which something could not be kept. OSError if the
    target is full or broken.
    """
    lost: set[str] = set()
    for name, value in held.values:
        try:
            give_attribute(target, name, value)
        except OSError as error:
            if error.errno not in _REFUSED:
                raise
            lost.add(ACL if name in _ACLS else XATTR)
    if held.alone:
        present = {name for name, _ in held.values}
        for name in _ACLS:
            if name not in present:
                drop_acl(target, name)
    return lost


def give_attribute(target: int | bytes, name: str, value: bytes) -> None:
    """Give an open file, or what a path leads to, one attribute. OSError as of `setxattr`."""
    try:
        os.setxattr(target, name, value)
    except PermissionError as error:
        # The namespaces `user` and `lustre` ask for the right to write, even of the owner.
        mode = stat.S_IMODE(os.stat(target).st_mode)
        if error.errno != errno.EACCES or mode & stat.S_IWUSR:
            raise
        os.chmod(target, mode | stat.S_IWUSR)
        try:
            os.setxattr(target, name, value)
        finally:
            os.chmod(target, mode)


def drop_acl(target: int | bytes, name: str = _DEFAULT) -> None:
    """Remove an access control list, if there is one. OSError if it can't be removed."""
    try:
        os.removexattr(target, name)
    except OSError as error:
        # How "there is none" is said differs between file systems.
        if error.errno not in _NO_ATTRIBUTE and has_acl(target, name):
            raise


def has_acl(target: int | bytes, name: str = _DEFAULT) -> bool:
    """Whether there is an access control list; the default one is what a directory hands down."""
    try:
        return len(os.getxattr(target, name)) > 0
    except OSError:
        return False  # none, or a file system without


def mode_without_acl(mode: int, held: Held) -> int:
    """The mode for a file whose access control list could not be kept.

    The group's bits of such a source's mode are the list's mask: the rights
    of all that it names. The group itself must not get more than it had.
    """
    for name, value in held.values:
        if name != _ACCESS:
            continue
        tag: int
        rights: int
        for tag, rights, _ in _ACL_ENTRY.iter_unpack(value[_ACL_HEADER.size :]):
            if tag == _ACL_OWNING_GROUP:
                return mode & ~(~rights << 3 & stat.S_IRWXG)
    return mode


def read_flags(fd: int) -> int:
    """The inode flags of an open file that a user sets; 0 where there are none."""
    # Not every file system has them (ENOTTY, EOPNOTSUPP), and some refuse to tell (EACCES).
    with suppress(OSError):
        return _flags(fd) & _FLAG_BITS
    return 0


def give_flags(fd: int, flags: int) -> bool:
    """Give an open file inode flags, last of all, since they may forbid the rest.

    False if it could not take all of them; it has those then that it could take.
    """
    try:
        rest = _flags(fd) & ~_FLAG_BITS
    except OSError:
        return False
    with suppress(OSError):  # then one by one
        _set_flags(fd, rest | flags)
        return True
    for flag in _FLAGS:
        if flags & flag:
            with suppress(OSError):  # what is missing is reported by the result
                _set_flags(fd, rest | flag)
                rest |= flag
    return False


def _flags(fd: int) -> int:
    number: int = struct.unpack("i", fcntl.ioctl(fd, _GET_FLAGS, bytes(4)))[0]
    return number


def _set_flags(fd: int, flags: int) -> None:
    fcntl.ioctl(fd, _SET_FLAGS, struct.pack("i", flags))


def lift_flags(holder_fd: int, name: bytes, kind: int = 0) -> bool:
    """Take the flags that forbid changes from a file or directory; false if it has none."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        fd = os.open(name, flags | kind, dir_fd=holder_fd)
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
