"""Opens subdirectories of open directories, not through links and usually on the same mount.

`openat2` does that in one call, so nothing can change between the check and the opening. Its
arguments are converted for ctypes once, so it is as fast as `os.open`. Reading the error number
would cost more than the call, so after a failure `os.open` determines the error. If `os.open`
succeeds, because the kernel has no `openat2` or the directory is a mount point, the mounts are
compared.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

from pcircle.fs.attributes.mounts import is_same_mount
from pcircle.fs.directories import open_without_atime
from pcircle.fs.entry_errors import MOUNT, EntryError
from pcircle.fs.open_flags import OPEN_DIRECTORY

_OPENAT2 = 437  # the number on most machines; on others the call fails
_RESOLVE_NO_XDEV, _RESOLVE_BENEATH = 0x01, 0x08


def opener(*, cross: bool = False, no_atime: bool = False) -> Callable[[bytes, int], int]:
    """Return a function that opens a directory by its name in an open directory.

    The function raises OSError or, unless it may `cross` mounts, EntryError for a mount point. With
    `no_atime`, reading the directory does not update its access time, if that is permitted.
    """
    if no_atime and cross:
        return lambda name, directory_fd: open_without_atime(name, OPEN_DIRECTORY, directory_fd)
    if no_atime:
        return lambda name, directory_fd: _on_same_mount(
            open_without_atime(name, OPEN_DIRECTORY, directory_fd), directory_fd
        )
    if cross:
        return lambda name, directory_fd: os.open(name, OPEN_DIRECTORY, dir_fd=directory_fd)
    how = (ctypes.c_uint64 * 3)(OPEN_DIRECTORY, 0, _RESOLVE_NO_XDEV | _RESOLVE_BENEATH)
    size, number, address = ctypes.c_size_t(24), ctypes.c_long(_OPENAT2), ctypes.byref(how)
    call = ctypes.CDLL(None).syscall

    def open_beneath(name: bytes, directory_fd: int) -> int:
        fd: int = call(number, directory_fd, name, address, size)
        if fd >= 0:
            return fd
        return _on_same_mount(os.open(name, OPEN_DIRECTORY, dir_fd=directory_fd), directory_fd)

    return open_beneath


def _on_same_mount(fd: int, directory_fd: int) -> int:
    """Return an open directory if it is on this mount; otherwise close it and raise EntryError."""
    try:
        if is_same_mount(fd, directory_fd):
            return fd
        raise EntryError(MOUNT, "it is a mount point")
    except BaseException:
        os.close(fd)
        raise
