"""Extended attributes, access control lists and inode flags, from one open file to another.

POSIX ACLs are the attributes `system.posix_acl_access` and `..._default`; to
copy their bytes is to copy the lists, with owners by number. The other
namespaces are copied as far as the user may write them: `user`, `trusted` and
`security` for root. What a namespace's or a file system's rules forbid is no
failure of the entry; it is reported as a kind of thing that could not be
kept, and the caller decides.

Left out on purpose: `security.selinux`, which the target's policy sets, and
`lustre.*`, `system.nfs4_acl` and the like, which describe where a file is
stored and not what it is.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from contextlib import suppress

_ACLS = frozenset(("system.posix_acl_access", "system.posix_acl_default"))
_COPIED = ("user.", "trusted.", "security.")
_NOT_COPIED = frozenset(("security.selinux", "security.evm", "security.ima"))
_UNSUPPORTED = frozenset((errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM, errno.EACCES))

# linux/fs.h; the size in the number is that of a long, the argument is an int.
_GET_FLAGS = 0x80086601
_SET_FLAGS = 0x40086602
_FLAG_BITS = 0x00000001 | 0x00000008 | 0x00000010 | 0x00000020 | 0x00000040 | 0x00000080
"""Secure deletion, synchronous, immutable, append only, no dump, no atime: what a user sets."""

ACL = "access control lists"
XATTR = "extended attributes"
FLAGS = "inode flags"


class Attributes:
    """What is to be kept of these; the kinds that the target could not hold are returned."""

    def __init__(self, *, xattr: bool, acl: bool) -> None:
        self._xattr = xattr
        self._acl = acl

    @property
    def any(self) -> bool:
        """Whether there is anything to copy."""
        return self._xattr or self._acl

    def wanted(self, name: str) -> str | None:
        """The kind of an attribute that is to be kept, None if it is not."""
        if name in _ACLS:
            return ACL if self._acl else None
        if self._xattr and name.startswith(_COPIED) and name not in _NOT_COPIED:
            return XATTR
        return None

    def copy(self, source: int | bytes, target: int | bytes, *, follow: bool = True) -> set[str]:
        """Copy attributes between two open files, or two names given as paths.

        Returns the kinds of which something could not be kept. OSError if the
        source can't be read or the target is full.
        """
        lost: set[str] = set()
        try:
            names = os.listxattr(source, follow_symlinks=follow)
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
            return lost
        for name in names:
            kind = self.wanted(name)
            if kind is None:
                continue
            try:
                value = os.getxattr(source, name, follow_symlinks=follow)
            except OSError as error:
                if error.errno == errno.ENODATA:
                    continue  # removed since it was listed
                raise
            try:
                os.setxattr(target, name, value, follow_symlinks=follow)
            except OSError as error:
                if error.errno not in _UNSUPPORTED:
                    raise
                lost.add(kind)
        return lost


def copy_flags(source_fd: int, target_fd: int) -> set[str]:
    """Give an open file the inode flags of another; last of all, since they may forbid the rest.

    Returns the kind if the target could not take them. File systems without
    flags have none to keep.
    """
    flags = _flags(source_fd)
    if not flags:
        return set()
    try:
        present = struct.unpack("i", fcntl.ioctl(target_fd, _GET_FLAGS, bytes(4)))[0]
        fcntl.ioctl(target_fd, _SET_FLAGS, struct.pack("i", present & ~_FLAG_BITS | flags))
    except OSError:
        return {FLAGS}
    return set()


def _flags(fd: int) -> int:
    # Not every file system has them (ENOTTY, EOPNOTSUPP), and some refuse to tell (EACCES).
    with suppress(OSError):
        number: int = struct.unpack("i", fcntl.ioctl(fd, _GET_FLAGS, bytes(4)))[0]
        return number & _FLAG_BITS
    return 0
