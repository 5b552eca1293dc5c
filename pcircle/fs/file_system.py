"""What the type of a file system says about the answers that it gives.

Four answers are believed only of file systems that are known to give them correctly. The type is
that of statfs(2), which is asked of an open file or directory: it is right for subvolumes and
behind bind mounts as well.

*Holes* (`reports_holes`). A FUSE server answers SEEK_DATA as its author saw fit, and so does
whatever an NFS, SMB or 9P server exports; overlayfs passes the question on to any of these. ZFS
reported data as holes before 2.2.2 (OpenZFS #15526). A file of these is read as a whole, and its
zeros may become holes in a copy.

*Sizes* (`size_is_nominal`). Files of procfs have content and size 0, those of sysfs claim a page
and have less. FUSE servers imitate both.

*Distinct files* (`is_view_free`). Two files of different devices may be one file if one of the file
systems shows what another one holds, as FUSE servers, overlayfs and network file systems do.

*O_NOATIME* (`obeys_noatime`). A server that reads a directory for its clients updates the access
time whatever they have asked for, and overlayfs reads those below it without the flag.
"""

from __future__ import annotations

import functools
import os
import random
import struct
from collections.abc import Callable
from typing import Any

from pcircle.fs.status import refreshed

# linux/magic.h, and the sources of those that are not part of Linux
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

_NS = 1_000_000_000
_FIRST_MARK_S = 400_000_000  # 1982
_MARKS = 100_000_000
_RECORD_BYTES = 256  # struct statfs has 120
_TYPE = "=I" if os.uname().machine.startswith("s390") else "@l"


def reports_holes(fd: int) -> bool:
    """Return whether the holes of an open file are where SEEK_DATA and SEEK_HOLE say."""
    return _type_of(fd) in _REPORTING


def obeys_noatime(fd: int) -> bool:
    """Return whether reading an open file with O_NOATIME leaves its access time as it is."""
    return _type_of(fd) in _NOATIME


def is_pseudo(fd: int) -> bool:
    """Return whether an open file or directory is of a file system that the kernel makes up."""
    return _type_of(fd) in _PSEUDO_TYPES


def is_view_free(fd: int) -> bool:
    """Return whether the file system of an open file shows nothing that another one holds."""
    return _type_of(fd) in _VIEW_FREE


def size_is_nominal(fd: int, status: Any) -> bool:
    """Return whether a regular file of this status may have another size than it claims.

    `fd` is the file, or the directory that it is in. Such a file is read to its end.
    """
    if status.st_size:
        return not status.st_blocks and is_pseudo(fd)
    return may_hide_content(fd)


def may_hide_content(fd: int) -> bool:
    """Return whether files of size 0 may have content, in the file system of an open directory."""
    return _type_of(fd) not in _SIZED


def are_same(source_fd: int, target_fd: int) -> bool:
    """Return whether two open files may be one, which one of the file systems shows.

    Their devices or numbers are known to differ. If size and time are alike as well, a time is set
    that the other one does not have. The target gets its own time back if it is the source.
    """
    if is_view_free(source_fd) and is_view_free(target_fd):
        return False
    source, target = refreshed(source_fd), refreshed(target_fd)
    if (source.st_size, source.st_mtime_ns) != (target.st_size, target.st_mtime_ns):
        return False
    mark_ns = (_FIRST_MARK_S + 2 * random.randrange(_MARKS)) * _NS  # FAT keeps even seconds
    if mark_ns == source.st_mtime_ns:
        mark_ns += 2 * _NS
    try:
        os.utime(target_fd, ns=(target.st_atime_ns, mark_ns))
    except PermissionError:
        return True
    if refreshed(source_fd).st_mtime_ns == source.st_mtime_ns:
        return False
    os.utime(target_fd, ns=(target.st_atime_ns, target.st_mtime_ns))
    return True


def _type_of(fd: int) -> int:
    """Return the type of the file system of an open file; 0 if unknown."""
    record = bytearray(_RECORD_BYTES)
    call = _fstatfs()
    if call is None or call(fd, record):
        return 0
    number: int = struct.unpack_from(_TYPE, record)[0]
    return number & 0xFFFFFFFF


@functools.cache
def _fstatfs() -> Callable[[int, bytearray], int] | None:
    import ctypes  # few files make this a question

    try:
        found = ctypes.PyDLL(None).fstatfs
    except (AttributeError, OSError):
        return None

    def call(fd: int, record: bytearray) -> int:
        return int(found(fd, (ctypes.c_char * len(record)).from_buffer(record)))

    return call
