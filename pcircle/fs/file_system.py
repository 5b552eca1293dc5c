"""Properties of file systems: whether their answers are reliable, and their identity.

Answers to four questions are trusted only from file systems that are known to answer correctly. The
file system type comes from statfs(2) on an open file or directory, so it is also correct for
subvolumes and behind bind mounts.

*Holes* (`reports_holes`). A FUSE server may implement SEEK_DATA in any way, and so may a file
system that an NFS, SMB or 9P server exports. Overlayfs may pass the call on to any of these. Before
version 2.2.2, ZFS sometimes reported data as holes (OpenZFS #15526). Files on these file systems
are read completely, and their zeros may become holes in a copy.

*Sizes* (`size_is_nominal`). Most files of procfs report size 0 but have content; most files of
sysfs report the size of a page but contain less. Some FUSE servers do likewise.

*Distinct files* (`is_view_free`). Two files with different devices may be the same file if one file
system shows files of the other. FUSE servers, overlayfs and network file systems may do that.

*O_NOATIME* (`obeys_noatime`). A server that reads a directory for its clients updates the access
time regardless of their flags, and overlayfs reads its lower directories without the flag.

The identity of a file system is valid only while it is mounted. A UUID distinguishes file systems
across mounts, but not a file system from its own restored image, which has the UUID, inodes and
times of the original. A local file system cannot be replaced by an image while it is mounted.
Therefore `session` identifies the current mount.

No function here requires privileges.
"""

from __future__ import annotations

import errno
import fcntl
import functools
import os
import random
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from uuid import UUID

from pcircle.core.units import NS_PER_S
from pcircle.fs.attributes.mounts import type_of_mount
from pcircle.fs.status import mount_number, refreshed

if TYPE_CHECKING:
    from pcircle.fs.status import FileStatus

NO_INODES: Final = "all inodes are in use"
LOCAL: Final = frozenset(
    b"ext2 ext3 ext4 xfs btrfs f2fs bcachefs zfs jfs tmpfs overlay vfat exfat ntfs3".split()
)
"""Types of file systems that only this machine can modify."""

_WITH_OWN_ID = frozenset((b"ext2", b"ext3", b"ext4", b"btrfs", b"f2fs", b"zfs"))
"""Types whose `f_fsid` is derived from the UUID. For other types it is a device number."""

_FSUUID = struct.Struct("<B16s")
_GET_FSUUID = 2 << 30 | _FSUUID.size << 16 | 0x15 << 8
_XFS_GEOMETRY_BYTES, _XFS_UUID_AT = 112, 64
_XFS_GEOMETRY = 2 << 30 | _XFS_GEOMETRY_BYTES << 16 | ord("X") << 8 | 100


def volume_id(fd: int, kind: bytes | None) -> str | None:
    """Return a hexadecimal identifier, valid across mounts, of a file system of this type.

    Return None if the system does not report one. Raises OSError.
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
    """Return an identifier of an open directory's file system that is valid until it is unmounted.

    Return None if the file system is not local, or the system does not report an identifier. Raises
    OSError.
    """
    kind = type_of_mount(fd)
    if kind not in LOCAL:
        return None
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as stream:
            boot = stream.read().strip()
    except OSError:
        return None
    number = _sysfs_number(fd, kind) or mount_number(fd)
    return None if number is None else f"{boot} {number}"


def _sysfs_number(fd: int, kind: bytes) -> str | None:
    """Return the inode of a mounted file system's directory in sysfs, as text, or None.

    sysfs does not reuse inode numbers. Unlike a mount number, this number is the same in all mount
    namespaces.
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


# From linux/magic.h, and from the sources of file systems that are not part of Linux.
_LOCAL = {
    "bcachefs": 0xCA451A4E,
    "btrfs": 0x9123683E,
    "ext2, ext3, ext4": 0xEF53,
    "f2fs": 0xF2F52010,
    "gfs2": 0x01161970,
    "ocfs2": 0x7461636F,
    "ramfs": 0x858458F6,
    "tmpfs": 0x01021994,
    "xfs": 0x58465342,
}
_PARALLEL = {"gpfs": 0x47504653, "lustre": 0x0BD00BD0}
_OTHER_DISKS = {
    "erofs": 0xE0F5E1E2,
    "exfat": 0x2011BAB0,
    "iso9660": 0x9660,
    "squashfs": 0x73717368,
    "vfat": 0x4D44,
    "zfs": 0x2FC12FC1,
}
_SERVERS = {"cifs": 0xFF534D42, "nfs": 0x6969, "smb2": 0xFE534D42}
_PSEUDO = {
    "binfmt_misc": 0x42494E4D,
    "bpf": 0xCAFE4A11,
    "cgroup": 0x27E0EB,
    "cgroup2": 0x63677270,
    "configfs": 0x62656570,
    "debugfs": 0x64626720,
    "efivarfs": 0xDE5E81E4,
    "fusectl": 0x65735543,
    "nfsd": 0x6E667364,
    "proc": 0x9FA0,
    "pstore": 0x6165676C,
    "resctrl": 0x07655821,
    "rpc_pipefs": 0x67596969,
    "securityfs": 0x73636673,
    "selinuxfs": 0xF97CFF8C,
    "smackfs": 0x43415D53,
    "sysfs": 0x62656572,
    "tracefs": 0x74726163,
}
_REPORTING = frozenset((*_LOCAL.values(), *_PARALLEL.values()))
_SIZED = _REPORTING | {*_OTHER_DISKS.values(), *_SERVERS.values()}
_VIEW_FREE = frozenset((*_LOCAL.values(), *_OTHER_DISKS.values()))
_NOATIME = _REPORTING | _VIEW_FREE
_PSEUDO_TYPES = frozenset(_PSEUDO.values())

_FIRST_MARK_S = 400_000_000  # of the times that serve as marks, in 1982
_MARKS = 100_000_000
_RECORD_BYTES = 256  # struct statfs has 120
_TYPE = "=I" if os.uname().machine.startswith("s390") else "@l"


def reports_holes(fd: int) -> bool:
    """Return whether SEEK_DATA and SEEK_HOLE report the holes of an open file correctly."""
    return _type_of(fd) in _REPORTING


def obeys_noatime(fd: int) -> bool:
    """Return whether reading an open file with O_NOATIME leaves its access time unchanged."""
    return _type_of(fd) in _NOATIME


def is_pseudo(fd: int) -> bool:
    """Return whether an open file or directory is on a file system generated by the kernel."""
    return _type_of(fd) in _PSEUDO_TYPES


def is_view_free(fd: int) -> bool:
    """Return whether the file system of an open file shows no files of other file systems."""
    return _type_of(fd) in _VIEW_FREE


def size_is_nominal(fd: int, status: FileStatus) -> bool:
    """Return whether the size of a regular file may differ from the size in its status.

    `fd` is the open file or its directory. If the size is nominal, the file must be read to its
    end.
    """
    if status.st_size:
        return not status.st_blocks and is_pseudo(fd)
    return may_hide_content(fd)


def may_hide_content(fd: int) -> bool:
    """Return whether files of size 0 may have content on the file system of an open directory."""
    return _type_of(fd) not in _SIZED


def are_same(source_fd: int, target_fd: int) -> bool:
    """Return whether two open files may be the same file, seen through two file systems.

    The caller knows that their devices or inodes differ. If their sizes and modification times are
    equal, the target is given a different time. If the source then has a different time as well,
    they are the same file, and the time is restored.
    """
    if is_view_free(source_fd) and is_view_free(target_fd):
        return False
    source, target = refreshed(source_fd), refreshed(target_fd)
    if (source.st_size, source.st_mtime_ns) != (target.st_size, target.st_mtime_ns):
        return False
    # FAT stores only even seconds
    mark_ns = (_FIRST_MARK_S + 2 * random.randrange(_MARKS)) * NS_PER_S
    if mark_ns == source.st_mtime_ns:
        mark_ns += 2 * NS_PER_S
    try:
        os.utime(target_fd, ns=(target.st_atime_ns, mark_ns))
    except PermissionError:
        return True
    if refreshed(source_fd).st_mtime_ns == source.st_mtime_ns:
        return False
    os.utime(target_fd, ns=(target.st_atime_ns, target.st_mtime_ns))
    return True


def _type_of(fd: int) -> int:
    """Return the number of an open file's file system type; 0 if unknown."""
    record = bytearray(_RECORD_BYTES)
    call = _fstatfs()
    if call is None or call(fd, record):
        return 0
    number: int = struct.unpack_from(_TYPE, record)[0]
    return number & 0xFFFFFFFF


@functools.cache
def _fstatfs() -> Callable[[int, bytearray], int] | None:
    import ctypes  # rarely needed

    try:
        found = ctypes.PyDLL(None).fstatfs
    except (AttributeError, OSError):
        return None

    def call(fd: int, record: bytearray) -> int:
        return int(found(fd, (ctypes.c_char * len(record)).from_buffer(record)))

    return call


def reason_of_full(error: OSError, fd: int) -> str:
    """Return the reason for an error in words; if no inode is free, it says so.

    `fd` is open on the file system that refused to create or write an entry.
    """
    reason = error.strerror or str(error)
    if error.errno == errno.ENOSPC:
        space = os.fstatvfs(fd)
        if space.f_files and not space.f_favail and space.f_bavail:
            return f"{reason}: {NO_INODES}"
    return reason


def is_read_only(path: bytes) -> bool:
    """Return whether an existing path is on a file system that is mounted read-only."""
    with suppress(OSError):
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    return False
