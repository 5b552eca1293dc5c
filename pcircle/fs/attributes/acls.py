"""Read, set and remove POSIX access control lists without granting extra access in between.

An ACL and the mode bits are one object. An access ACL includes the mode bits of the owner and of
others. If a file has an ACL, the group bits of its mode are not the rights of the owning group but
the *mask*. This limits the rights of the group and of all named users and groups. Therefore a mode
that is set without its ACL may grant the group more than it had. Removing an ACL gives the group
the rights in the mask. For this reason an access ACL is not removed but replaced, either by that of
the source or by a minimal one of three entries. The kernel converts the minimal one to mode bits in
a single step.

The attributes are `system.posix_acl_access` and, for directories, `system.posix_acl_default`, the
ACL that new entries inherit (in place of the umask). Their bytes are copied, so users and groups
are preserved by number. NFSv4 ACLs are a different format and are not handled here.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Iterable, Iterator

ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"

_NONE = frozenset((errno.ENODATA, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL))
"""Errors with which file systems report that an ACL is missing or that ACLs are not supported."""

_VERSION = struct.pack("<I", 2)
_ENTRY = struct.Struct("<HHI")  # tag, rights, user or group
OWNER, USER, OWNING_GROUP, GROUP, MASK, OTHER = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20
_WORDS = {1: "user", 2: "user", 4: "group", 8: "group", 16: "mask", 32: "other"}
NOBODY = 0xFFFFFFFF
_ALL = 7


def read_list(source: int | bytes, name: str = ACCESS, *, follow: bool = True) -> bytes | None:
    """Return the ACL of an open file or of a path, or None if there is none."""
    try:
        return os.getxattr(source, name, follow_symlinks=follow) or None
    except OSError as error:
        if error.errno not in _NONE:
            raise
    return None


def may_have_default(directory: int | bytes) -> bool:
    """Return whether entries created in a directory may inherit an ACL."""
    try:
        return read_list(directory, DEFAULT) is not None
    except OSError as error:
        if error.errno != errno.EBADF or isinstance(directory, bytes):
            return True
    return may_have_default(b"/proc/self/fd/%d" % directory)  # it was opened with O_PATH


def replace_list(target: int | bytes, mode: int) -> None:
    """Remove a file's access ACL and set its mode bits in one step. Raises OSError."""
    try:
        os.setxattr(target, ACCESS, list_of(mode))
    except OSError:
        if read_list(target) is not None:
            raise


def drop_default(directory: int | bytes) -> None:
    """Remove a directory's default ACL, if any. Raises OSError if it cannot be removed."""
    try:
        os.removexattr(directory, DEFAULT)
    except OSError:
        # File systems report a missing ACL with different errors.
        if read_list(directory, DEFAULT) is not None:
            raise


def give_access(fd: int, mode: int, access: bytes | None) -> None:
    """Set the mode of an open file and, if possible, the access ACL that belongs to the mode.

    If the file system does not support ACLs, the mode is that of `mode_without`. An inherited ACL
    is removed. Before the call, the file must be accessible only to its owner. Raises OSError if
    the mode cannot be set.
    """
    if access is not None:
        try:
            os.setxattr(fd, ACCESS, access)
        except OSError:
            mode, access = mode_without(mode, access), None
        else:
            mode = mode_with(mode, access)
    if access is None and read_list(fd) is not None:
        replace_list(fd, mode)
    os.fchmod(fd, mode)


def mode_with(mode: int, access: bytes) -> int:
    """Return the mode of a file that has this ACL; the ACL may be newer than `mode`."""
    rights = {tag: right for tag, right, _ in entries_of(access)}
    group = rights.get(MASK, rights.get(OWNING_GROUP, 0))
    bits = rights.get(OWNER, 0) << 6 | group << 3 | rights.get(OTHER, 0)
    return stat.S_IMODE(mode) & ~0o777 | bits


def mode_without(mode: int, access: bytes) -> int:
    """Return the mode for a copy of a file with this ACL if the copy cannot have an ACL.

    The mode grants no user more than the ACL does. The group gets the rights that the ACL grants
    it, not the mask. Without the ACL, named users and groups count as others, and named users
    possibly as members of the group. If the ACL grants a named user or group less than these
    classes, the class is limited to that.
    """
    entries = list(entries_of(access))
    rights = {tag: right for tag, right, _ in entries}
    mask = rights.get(MASK, _ALL)
    group, other = rights.get(OWNING_GROUP, 0) & mask, rights.get(OTHER, 0)
    for tag, right, _ in entries:
        if tag == USER:
            group &= right
        if tag in (USER, GROUP):
            other &= right & mask
    return stat.S_IMODE(mode) & ~0o777 | rights.get(OWNER, 0) << 6 | group << 3 | other


def list_of(mode: int) -> bytes:
    """Return the ACL of three entries that is equivalent to a mode."""
    bits = ((OWNER, mode >> 6), (OWNING_GROUP, mode >> 3), (OTHER, mode))
    return packed((tag, right & _ALL, NOBODY) for tag, right in bits)


def without_group(access: bytes) -> bytes:
    """Return a copy of an ACL that grants nothing to the owning group, because it has changed."""
    return packed(
        (tag, 0 if tag == OWNING_GROUP else right, number)
        for tag, right, number in entries_of(access)
    )


def short_form(access: bytes) -> str:
    """Format an ACL on one line in the short text form of getfacl, with numeric ids."""
    entries = []
    for tag, rights, number in entries_of(access):
        name = str(number) if tag in (USER, GROUP) else ""
        letters = zip("rwx", (4, 2, 1), strict=True)
        shown = "".join(letter if rights & bit else "-" for letter, bit in letters)
        entries.append(f"{_WORDS.get(tag, '?')}:{name}:{shown}")
    return ",".join(entries)


def entries_of(access: bytes) -> Iterator[tuple[int, int, int]]:
    """Iterate over the entries of an ACL: tag, rights, and user or group id."""
    return _ENTRY.iter_unpack(access[len(_VERSION) :])


def packed(entries: Iterable[tuple[int, int, int]]) -> bytes:
    """Pack entries, which must be in the kernel's order, into an ACL."""
    return _VERSION + b"".join(_ENTRY.pack(*entry) for entry in entries)
