"""Facts about a btrfs subvolume: its identity, and the inodes that have changed since a generation.

Each node of a subvolume's tree stores the generation in which it was written, so changes are found
by reading only newer nodes. Finding a hundred changes among a million files takes milliseconds. An
inode's item stores the generation of the last change to its content, attributes or links.
Structures and numbers come from linux/btrfs.h and linux/btrfs_tree.h.

Reading the identity of a subvolume requires no privilege; searching its tree or looking up paths
requires root.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from collections.abc import Iterator
from typing import Final

import msgspec

from pcircle.fs.attributes.mounts import type_of_mount

ROOT_INODE: Final = 256
_EMPTY_SUBVOLUME_INODE = 2
_MAGIC = 0x94 << 8
_READ, _BOTH = 2 << 30, 3 << 30
_INFO = struct.Struct("<Q256sQQQQ16s16s16sQQQQQI")
_INFO_BYTES = 504
_GET_SUBVOL_INFO = _READ | _INFO_BYTES << 16 | _MAGIC | 60
_KEY = struct.Struct("<7Q4I4QQ")
_TREE_SEARCH_V2 = _BOTH | _KEY.size << 16 | _MAGIC | 17
_HEADER = struct.Struct("<QQQII")
_INO_LOOKUP_BYTES = 4096
_INO_LOOKUP = _BOTH | _INO_LOOKUP_BYTES << 16 | _MAGIC | 18
_SYNC = _MAGIC | 8
_INODE_ITEM, _INODE_REF, _INODE_EXTREF, _DIR_INDEX, _ROOT_ITEM = 1, 12, 13, 96, 132
_ROOT_REF, _UUID_KEY = 156, 251
_OWN_TREE, _ROOTS_TREE, _UUIDS_TREE = 0, 1, 9
_ROOT_REFS_AT, _ROOT_UUID_AT = 216, 247  # offsets in a subvolume's item
# At that offset: UUID, and the generations of the last change and of the creation.
_ROOT_TRANSIDS = struct.Struct("<16s32xQQ")
_LAST = 2**64 - 1
_MAX_INODE = _LAST - 256
_MODE_AT = 52  # offset in an inode's item
_DIR_ENTRY = struct.Struct("<QBQQHHB")  # precedes a name: key, generation, lengths, type
_OWN_NUMBER = struct.Struct("<Q")
_NO_BTRFS = (errno.ENOTTY, errno.EINVAL, errno.EOPNOTSUPP)


class Subvolume(msgspec.Struct, frozen=True):
    """A btrfs subvolume.

    `origin` is the UUID of the subvolume of which this is a snapshot, or its own UUID. `generation`
    is the latest generation or, for a read-only snapshot, that of its creation. `is_touched` means
    that a snapshot was changed after it was taken, because it was received or was writable for a
    while. It may then have content that its origin never had. `changed` is the generation, and the
    time in nanoseconds, of the last change to one of its inodes.
    """

    uuid: str
    origin: str
    generation: int
    read_only: bool
    is_touched: bool = False
    changed: tuple[int, int] = (0, 0)


def subvolume_of(fd: int) -> Subvolume | None:
    """Return the subvolume whose root is an open directory, or None. Raises OSError."""
    if os.fstat(fd).st_ino != ROOT_INODE:
        return None
    buffer = bytearray(504)
    try:
        fcntl.ioctl(fd, _GET_SUBVOL_INFO, buffer)
    except OSError as error:
        if error.errno in _NO_BTRFS:
            return None
        raise
    info = _INFO.unpack_from(buffer)
    (
        _,
        _,
        _,
        _,
        generation,
        flags,
        uuid,
        parent,
        _,
        ctransid,
        otransid,
        _,
        _,
        seconds,
        nanoseconds,
    ) = info
    is_snapshot = any(parent)
    origin = (parent if is_snapshot else uuid).hex()
    read_only = bool(flags & 1)
    if read_only and is_snapshot:  # its content is that of its origin at the time of the snapshot
        generation = otransid
    is_touched = is_snapshot and ctransid > otransid
    changed = ctransid, seconds * 10**9 + nanoseconds
    return Subvolume(uuid.hex(), origin, generation, read_only, is_touched, changed)


def is_empty_subvolume(fd: int, status: os.stat_result) -> bool:
    """Return whether an open directory is a placeholder for a subvolume missing from a snapshot.

    A placeholder cannot be changed, and its times are those at which the kernel first saw it.
    """
    return status.st_ino == _EMPTY_SUBVOLUME_INODE and type_of_mount(fd) == b"btrfs"


def sync(fd: int) -> None:
    """Flush everything written to a btrfs file system to disk. Raises OSError."""
    fcntl.ioctl(fd, _SYNC)


def number_of(fd: int, uuid: str) -> int | None:
    """Return the id of the subvolume with this UUID on the file system of an open directory.

    Return None if it no longer exists or was changed after its creation. Raises OSError.
    """
    low, high = struct.unpack("<QQ", bytes.fromhex(uuid))
    for key, data in _found(fd, (low, _UUID_KEY), (low, _UUID_KEY), 0, _UUIDS_TREE):
        if key[2] != high:
            continue
        (number,) = struct.unpack_from("<Q", data)
        item = number, _ROOT_ITEM
        for _, root in _found(fd, item, item, 0, _ROOTS_TREE):
            (references,) = struct.unpack_from("<I", root, _ROOT_REFS_AT)
            found, ctransid, otransid = _ROOT_TRANSIDS.unpack_from(root, _ROOT_UUID_AT)
            if references and found.hex() == uuid and ctransid <= otransid:
                return int(number)
    return None


def changed_since(fd: int, generation: int) -> Iterator[tuple[int, int]]:
    """Yield the inodes of a subvolume that changed after a generation, each with its mode.

    Raises OSError.
    """
    for key, data in _found(fd, (ROOT_INODE, 0), (_MAX_INODE, 255), generation + 1):
        if key[1] == _INODE_ITEM:
            changed_in = struct.unpack_from("<Q", data, 8)[0]
            if changed_in > generation:
                yield key[0], struct.unpack_from("<I", data, _MODE_AT)[0]


def names_of(fd: int, inode: int) -> Iterator[tuple[int, bytes]]:
    """Yield the names of an inode, each with the inode of its directory. Raises OSError."""
    for key, data in _found(fd, (inode, _INODE_REF), (inode, _INODE_EXTREF), 0):
        at = 0
        while at < len(data):
            directory = key[2]
            if key[1] == _INODE_EXTREF:
                directory = struct.unpack_from("<Q", data, at)[0]
                at += 8
            length = struct.unpack_from("<H", data, at + 8)[0]
            at += 10
            yield directory, bytes(data[at : at + length])
            at += length


def subvolumes_in(fd: int, directory: int, generation: int) -> Iterator[bytes]:
    """Yield the names of subvolumes that were added to a directory after a generation.

    A snapshot contains empty directories in their place; these have no inode in its tree. The
    result may include older names. Raises OSError.
    """
    item = directory, _DIR_INDEX
    for _, data in _found(fd, item, item, generation + 1):
        _, kind, _, _, _, length, _ = _DIR_ENTRY.unpack_from(data)
        if kind == _ROOT_ITEM:
            yield bytes(data[_DIR_ENTRY.size : _DIR_ENTRY.size + length])


def has_subvolumes(fd: int) -> bool:
    """Return whether an open directory's subvolume contains other subvolumes. Raises OSError."""
    buffer = bytearray(4096)
    struct.pack_into("<QQ", buffer, 0, 0, ROOT_INODE)
    fcntl.ioctl(fd, _INO_LOOKUP, buffer)
    number = _OWN_NUMBER.unpack_from(buffer)[0], _ROOT_REF
    return any(True for _ in _found(fd, number, number, 0, _ROOTS_TREE))


def path_of(fd: int, inode: int, subvolume: int = _OWN_TREE) -> bytes:
    """Return the path of a directory inode, relative to the root of its subvolume.

    `subvolume` is the subvolume's id; by default that of the open directory. Raises OSError if the
    directory no longer exists.
    """
    if inode == ROOT_INODE:
        return b""
    buffer = bytearray(4096)
    struct.pack_into("<QQ", buffer, 0, subvolume, inode)
    fcntl.ioctl(fd, _INO_LOOKUP, buffer)
    return bytes(buffer[16 : buffer.index(0, 16)]).rstrip(b"/")


def _found(
    fd: int,
    first: tuple[int, int],
    last: tuple[int, int],
    least_generation: int,
    tree: int = _OWN_TREE,
) -> Iterator[tuple[tuple[int, int, int], memoryview]]:
    """Yield the key of each matching item of a tree, and its data."""
    at = (*first, 0)
    while True:
        buffer = bytearray(32_872)  # the request, and 32 KiB of results
        inodes, types = (at[0], last[0]), (at[1], last[1])
        search_key = (tree, *inodes, at[2], _LAST, least_generation, _LAST, *types, 2**32 - 1, 0)
        _KEY.pack_into(buffer, 0, *search_key, 0, 0, 0, 0, len(buffer) - _KEY.size)
        fcntl.ioctl(fd, _TREE_SEARCH_V2, buffer)
        count = struct.unpack_from("<I", buffer, 64)[0]
        if not count:
            return
        view, place = memoryview(buffer), _KEY.size
        for _ in range(count):
            _, inode, offset, kind, length = _HEADER.unpack_from(buffer, place)
            place += _HEADER.size
            at = inode, kind, offset
            if (inode, kind) >= first and (inode, kind) <= last:
                yield at, view[place : place + length]
            place += length
        at = (at[0], at[1] + 1, 0) if at[2] == _LAST else (at[0], at[1], at[2] + 1)
