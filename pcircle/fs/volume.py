"""The identity of a file system, and of the period for which it is mounted.

A UUID distinguishes file systems across mounts, but not a file system from its own restored image:
the image has the UUID, the inodes and the times of the original. While a local file system stays
mounted, its content cannot be exchanged for that of an image. So `session` identifies the current
mount.

No function here needs a privilege.
"""

from __future__ import annotations

import fcntl
import os
import struct
from contextlib import suppress
from typing import Final
from uuid import UUID

from pcircle.fs.attributes.mounts import type_of_mount
from pcircle.fs.status import mount_number

LOCAL: Final = frozenset(
    b"ext2 ext3 ext4 xfs btrfs f2fs bcachefs zfs jfs tmpfs overlay vfat exfat ntfs3".split()
)
"""Types of file systems that only this machine writes."""

_WITH_OWN_ID = frozenset((b"ext2", b"ext3", b"ext4", b"btrfs", b"f2fs", b"zfs"))
"""Types whose `f_fsid` is derived from the UUID; for other types it is a device number."""

_FSUUID = struct.Struct("<B16s")
_GET_FSUUID = 2 << 30 | _FSUUID.size << 16 | 0x15 << 8
_XFS_GEOMETRY_BYTES, _XFS_UUID_AT = 112, 64
_XFS_GEOMETRY = 2 << 30 | _XFS_GEOMETRY_BYTES << 16 | ord("X") << 8 | 100


def volume_id(fd: int, kind: bytes | None) -> str | None:
    """Return an identifier, in hex, that a file system of this type keeps across mounts.

    None if the system does not report it. OSError.
    """
    if kind in _WITH_OWN_ID:
        return f"{os.fstatvfs(fd).f_fsid:x}"
    return _uuid(fd, kind).hex() or None


def _uuid(fd: int, kind: bytes | None) -> bytes:
    """Return the UUID of a file system; empty if the system does not report one."""
    with suppress(OSError):  # Linux 6.9
        length, uuid = _FSUUID.unpack(fcntl.ioctl(fd, _GET_FSUUID, bytes(_FSUUID.size)))
        return bytes(uuid[:length])
    if kind == b"xfs":
        with suppress(OSError):
            geometry = fcntl.ioctl(fd, _XFS_GEOMETRY, bytes(_XFS_GEOMETRY_BYTES))
            return geometry[_XFS_UUID_AT : _XFS_UUID_AT + 16]
    return b""


def session(fd: int) -> str | None:
    """Return an identifier of an open directory's file system that is valid until unmount.

    None if it is not local, or the system does not report it. OSError.
    """
    kind = type_of_mount(fd)
    if kind not in LOCAL:
        return None
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as stream:
            boot = stream.read().strip()
    except OSError:
        return None
    number = _sysfs_number(fd, kind) or mount_number(fd)
    return None if number is None else f"{boot} {number}"


def _sysfs_number(fd: int, kind: bytes) -> str | None:
    """Return the inode of the directory that sysfs has for a file system while it is mounted.

    Inode numbers of sysfs are not used twice. Unlike the number of a mount, it is the same in each
    mount namespace.
    """
    try:
        if kind == b"btrfs":
            name = str(UUID(bytes=_uuid(fd, kind)))
        else:
            device = os.fstat(fd).st_dev
            link = f"/sys/dev/block/{os.major(device)}:{os.minor(device)}"
            name = os.path.basename(os.readlink(link))
        driver = "ext4" if kind.startswith(b"ext") else os.fsdecode(kind)
        return f"sysfs {os.stat(f'/sys/fs/{driver}/{name}').st_ino}"
    except (OSError, ValueError):  # no sysfs, or no UUID
        return None
