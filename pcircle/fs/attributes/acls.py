"""POSIX access control lists: to read, to give and to remove them with no moment of more access.

A list and the mode are one thing. An access list holds the owner's and the others' bits; the
group's bits of the mode are its *mask*, the limit of all that it names, and not what the owning
group has. So a mode without its list may give the group more than it had, and a list that is
removed leaves its mask to the group. Here a list is always replaced by another one: by the
source's, or by one of three entries, which the kernel turns into bits of the mode and no list, in
one step.

The attributes are `system.posix_acl_access` and, of directories, `system.posix_acl_default`, which
is what is created there begins with (the umask does not count then). Their bytes are copied, so
users and groups are kept by number. Access lists of NFSv4 are another thing and not known here.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Iterable, Iterator

ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"

_NONE = frozenset((errno.ENODATA, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL))
"""How a file system says that there is no list, or that it knows of none."""

_VERSION = struct.pack("<I", 2)
_ENTRY = struct.Struct("<HHI")  # tag, rights, user or group
OWNER, USER, OWNING_GROUP, GROUP, MASK, OTHER = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20
_WORDS = {1: "user", 2: "user", 4: "group", 8: "group", 16: "mask", 32: "other"}
NOBODY = 0xFFFFFFFF
_ALL = 7


def read_list(source: int | bytes, name: str = ACCESS, *, follow: bool = True) -> bytes | None:
    """An access control list of an open file or of a path, None if it has none."""
    try:
        return os.getxattr(source, name, follow_symlinks=follow) or None
    except OSError as error:
        if error.errno not in _NONE:
            raise
    return None


def hands_down(directory: int | bytes) -> bool:
    """Whether what is created in a directory may begin with a list."""
    try:
        return read_list(directory, DEFAULT) is not None
    except OSError as error:
        if error.errno != errno.EBADF or isinstance(directory, bytes):
            return True
    return hands_down(b"/proc/self/fd/%d" % directory)  # it is open for its path alone


def replace_list(target: int | bytes, mode: int) -> None:
    """Have a file no access list, and these bits, from one moment to the next. OSError if not."""
    try:
        os.setxattr(target, ACCESS, list_of(mode))
    except OSError:
        if read_list(target) is not None:
            raise


def drop_default(directory: int | bytes) -> None:
    """Let a directory hand down nothing. OSError if it does and can't be stopped."""
    try:
        os.removexattr(directory, DEFAULT)
    except OSError:
        # How "there is none" is said differs between file systems.
        if read_list(directory, DEFAULT) is not None:
            raise


def give_access(fd: int, mode: int, access: bytes | None) -> None:
    """Give an open file a mode and the access list that goes with it, if it does.

    Where that can't be held the mode is as of `mode_without`. What the file has inherited goes.
    Before, the file must be closed to all but its owner. OSError if the mode can't be given.
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
    """The mode of a file that has this list. It may have been another when it was looked at."""
    rights = {tag: right for tag, right, _ in entries_of(access)}
    group = rights.get(MASK, rights.get(OWNING_GROUP, 0))
    bits = rights.get(OWNER, 0) << 6 | group << 3 | rights.get(OTHER, 0)
    return stat.S_IMODE(mode) & ~0o777 | bits


def mode_without(mode: int, access: bytes) -> int:
    """The mode for a copy of a file that has this list, where that can't be kept.

    Nobody gets more than before. The group gets what the list gives it, and not the mask. Whoever
    is named is then one of the others or, a user, perhaps of the group: where somebody is named
    to have less than these, they get no more than that.
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
    """The list of three entries that says the same as a mode."""
    bits = ((OWNER, mode >> 6), (OWNING_GROUP, mode >> 3), (OTHER, mode))
    return packed((tag, right & _ALL, NOBODY) for tag, right in bits)


def without_group(access: bytes) -> bytes:
    """The same list, but that gives nothing to the owning group, which is another now."""
    return packed(
        (tag, 0 if tag == OWNING_GROUP else right, number)
        for tag, right, number in entries_of(access)
    )


def short_form(access: bytes) -> str:
    """A list as text, as getfacl has it on one line, with numbers for names."""
    entries = []
    for tag, rights, number in entries_of(access):
        name = str(number) if tag in (USER, GROUP) else ""
        letters = zip("rwx", (4, 2, 1), strict=True)
        shown = "".join(letter if rights & bit else "-" for letter, bit in letters)
        entries.append(f"{_WORDS.get(tag, '?')}:{name}:{shown}")
    return ",".join(entries)


def entries_of(access: bytes) -> Iterator[tuple[int, int, int]]:
    """The entries of a list: tag, rights, user or group."""
    return _ENTRY.iter_unpack(access[len(_VERSION) :])


def packed(entries: Iterable[tuple[int, int, int]]) -> bytes:
    """A list of entries, in the kernel's order."""
    return _VERSION + b"".join(_ENTRY.pack(*entry) for entry in entries)
