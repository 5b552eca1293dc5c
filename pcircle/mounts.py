"""Which type of file system something is on, as the kernel lists what is mounted.

A leaf of the package: it imports nothing of it.
"""

from __future__ import annotations

import os

__all__ = ["type_of", "type_of_device"]


def type_of(mountinfo: bytes, device: int) -> bytes | None:
    """The type of the file system with this device number, by a list as of proc(5)."""
    wanted_device = b"%d:%d" % (os.major(device), os.minor(device))
    for line in mountinfo.splitlines():
        fields = line.split()
        # Between the options and the type are optional fields, ended by a dash.
        if len(fields) > 6 and fields[2] == wanted_device and b"-" in fields[6:-1]:
            return fields[fields.index(b"-", 6) + 1]
    return None


def type_of_device(device: int) -> bytes | None:
    """The type of the file system with this device number here; None if it is not known."""
    try:
        with open("/proc/self/mountinfo", "rb") as mounts:
            return type_of(mounts.read(), device)
    except OSError:
        return None
