"""Mounts and file system types, as the kernel reports them in /proc.

This module imports no other module of the package.
"""

from __future__ import annotations

import os
import re


def type_of(mountinfo: bytes, device: int) -> bytes | None:
    """Return the type of the file system with this device number in mountinfo text, or None."""
    wanted_device = b"%d:%d" % (os.major(device), os.minor(device))
    for line in mountinfo.splitlines():
        fields = line.split()
        # Optional fields, terminated by a dash, precede the type.
        if len(fields) > 6 and fields[2] == wanted_device and b"-" in fields[6:-1]:
            return fields[fields.index(b"-", 6) + 1]
    return None


def type_of_device(device: int) -> bytes | None:
    """Return the type of the mounted file system with this device number; None if unknown."""
    try:
        with open("/proc/self/mountinfo", "rb") as mounts:
            return type_of(mounts.read(), device)
    except OSError:
        return None


def type_of_mount(fd: int) -> bytes | None:
    """Return the file system type of the mount through which a file was opened.

    Unlike `type_of_device`, this works for btrfs subvolumes, whose device numbers are not in the
    list of mounts. Return None if the type is unknown.
    """
    number = b"%d" % mount_of(fd)[0]
    try:
        with open("/proc/self/mountinfo", "rb") as mounts:
            for line in mounts:
                fields = line.split()
                if fields[0] == number:
                    return fields[fields.index(b"-", 6) + 1]
    except OSError:
        pass  # procfs is not mounted
    return None


def is_same_mount(fd: int, directory_fd: int) -> bool:
    """Return whether two open files are on the same mount. Raises OSError."""
    return mount_of(fd) == mount_of(directory_fd)


def mounts_below(path: bytes) -> set[bytes]:
    """Return the mount points below a directory, except automount points not yet mounted.

    The paths are relative to the directory. If procfs is not mounted, the set is empty.
    """
    top = os.path.join(os.path.realpath(path), b"")
    found: set[bytes] = set()
    on_demand: set[bytes] = set()
    try:
        with open("/proc/self/mountinfo", "rb") as mounts:
            lines = mounts.read().splitlines()
    except OSError:
        return found
    for line in lines:
        fields = line.split()
        place = _unescaped(fields[4])
        if place.startswith(top):
            kind = fields[fields.index(b"-", 6) + 1]
            (on_demand if kind == b"autofs" else found).add(place.removeprefix(top))
    return found - on_demand


def place_of(directory: bytes) -> tuple[bytes, bytes]:
    """Return a directory's device number (``major:minor``) and its path within that file system.

    The result does not depend on the bind mount through which the directory is reached. If procfs
    is not mounted, the device number is empty and the path is the real path. Raises OSError if the
    directory cannot be reached.
    """
    fd = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        path = os.readlink(b"/proc/self/fd/%d" % fd)
        number = b"%d" % mount_of(fd)[0]
        with open("/proc/self/mountinfo", "rb") as mounts:
            lines = [line.split() for line in mounts]
    except FileNotFoundError:
        return b"", os.path.realpath(directory)
    finally:
        os.close(fd)
    for fields in lines:
        if fields[0] == number:
            root, place = map(_unescaped, fields[3:5])
            return fields[2], os.path.normpath(os.path.join(root, os.path.relpath(path, place)))
    return b"", path


def _unescaped(path: bytes) -> bytes:
    """Decode a path in mountinfo, where white space is escaped as octal numbers."""
    return re.sub(rb"\\([0-7]{3})", lambda octal: bytes([int(octal[1], 8)]), path)


def mount_of(fd: int) -> tuple[int, int]:
    """Return a value that identifies the mount of an open file; each bind mount has its own value.

    If procfs is not mounted, the value identifies only the file system. Raises OSError if the
    descriptor is invalid.
    """
    try:
        with open(b"/proc/self/fdinfo/%d" % fd, "rb") as lines:
            for line in lines:
                if line.startswith(b"mnt_id:"):
                    return int(line.split()[1]), 0
    except FileNotFoundError:
        pass  # procfs is not mounted: only the device number is available
    return -1, os.fstat(fd).st_dev
