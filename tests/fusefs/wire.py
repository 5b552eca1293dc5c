"""The kernel's side of FUSE as bytes: operation codes, flags and the layouts of its structures.

From ``include/uapi/linux/fuse.h``, protocol 7.31, which every kernel since 5.4 supports; features
of later versions are not requested in the handshake. It covers only the needs of the tests' file
system.
"""

from __future__ import annotations

import os
from enum import IntEnum
from struct import Struct

MAJOR, MINOR = 7, 31
ROOT = 1
MAX_DATA_BYTES = 1 << 20
ROOM_BYTES = MAX_DATA_BYTES + 8192

IN_HEADER = Struct("<IIQQIIIHH")
OUT_HEADER = Struct("<IiQ")
INIT_IN = Struct("<IIII")
INIT_OUT = Struct("<IIIIHHIIHHI28x")
ATTR = Struct("<QQQqqqIIIIIIIIII")
ATTR_VALID = Struct("<QII")
ENTRY = Struct("<QQQQII")
GETATTR_IN = Struct("<IIQ")
SETATTR_IN = Struct("<IIQQQqqqIIIIIIII")
MKNOD_IN = Struct("<IIII")
MKDIR_IN = Struct("<II")
RENAME_IN = Struct("<Q")
RENAME2_IN = Struct("<QII")
LINK_IN = Struct("<Q")
OPEN_IN = Struct("<II")
OPEN_OUT = Struct("<QIi")
CREATE_IN = Struct("<IIII")
READ_IN = Struct("<QQIIQII")
WRITE_OUT = Struct("<II")
RELEASE_IN = Struct("<QIIQ")
FSYNC_IN = Struct("<QII")
SETXATTR_IN = Struct("<II")
GETXATTR_IN = Struct("<II")
STATFS_OUT = Struct("<QQQQQIIII24x")
FORGET_IN = Struct("<Q")
BATCH_FORGET_IN = Struct("<II")
FORGET_ONE = Struct("<QQ")
LSEEK_IN = Struct("<QQII")
LSEEK_OUT = Struct("<Q")
FALLOCATE_IN = Struct("<QQQII")
COPY_IN = Struct("<QQQQQQQ")
DIRENT = Struct("<QQII")

# Flags of the handshake.
ASYNC_READ, ATOMIC_TRUNC, BIG_WRITES = 1 << 0, 1 << 3, 1 << 5
READDIRPLUS, READDIRPLUS_AUTO, PARALLEL_DIROPS, MAX_PAGES = 1 << 13, 1 << 14, 1 << 18, 1 << 22
WANTED = (
    ASYNC_READ | ATOMIC_TRUNC | BIG_WRITES | READDIRPLUS | READDIRPLUS_AUTO
    | PARALLEL_DIROPS | MAX_PAGES
)  # fmt: skip
# Flags in the answer to an open.
DIRECT_IO, KEEP_CACHE, PARALLEL_WRITES = 1 << 0, 1 << 1, 1 << 6  # the last since Linux 6.2
# Flags of a setattr.
SET_MODE, SET_UID, SET_GID, SET_SIZE, SET_ATIME, SET_MTIME = 1, 2, 4, 8, 16, 32
SET_BY_HANDLE, SET_ATIME_NOW, SET_MTIME_NOW = 64, 128, 256


class Op(IntEnum):
    """Operation codes; in lower case they are the names that fault rules use."""

    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    SETATTR = 4
    READLINK = 5
    SYMLINK = 6
    MKNOD = 8
    MKDIR = 9
    UNLINK = 10
    RMDIR = 11
    RENAME = 12
    LINK = 13
    OPEN = 14
    READ = 15
    WRITE = 16
    STATFS = 17
    RELEASE = 18
    FSYNC = 20
    SETXATTR = 21
    GETXATTR = 22
    LISTXATTR = 23
    REMOVEXATTR = 24
    FLUSH = 25
    INIT = 26
    OPENDIR = 27
    READDIR = 28
    RELEASEDIR = 29
    FSYNCDIR = 30
    CREATE = 35
    INTERRUPT = 36
    DESTROY = 38
    BATCH_FORGET = 42
    FALLOCATE = 43
    READDIRPLUS = 44
    RENAME2 = 45
    LSEEK = 46
    COPY_FILE_RANGE = 47
    SYNCFS = 50


def attributes(status: os.stat_result, times_ns: int = 1, changes_ns: int = 1) -> bytes:
    """Return a status in the format of the kernel; times may precede 1970 and are truncated."""
    atime, mtime, ctime = (
        divmod(ns // cut_ns * cut_ns, 10**9)
        for ns, cut_ns in (
            (status.st_atime_ns, times_ns),
            (status.st_mtime_ns, times_ns),
            (status.st_ctime_ns, changes_ns),
        )
    )
    return ATTR.pack(
        status.st_ino, status.st_size, status.st_blocks,
        atime[0], mtime[0], ctime[0], atime[1], mtime[1], ctime[1],
        status.st_mode, status.st_nlink, status.st_uid, status.st_gid,
        status.st_rdev, status.st_blksize, 0,
    )  # fmt: skip


def strings(data: bytes | memoryview) -> list[bytes]:
    """Return the NUL-terminated strings at the start of a request's remaining bytes."""
    return bytes(data).split(b"\0")[:-1]
