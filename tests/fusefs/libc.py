"""Calls that Python lacks: mounting, renaming with flags, allocation with modes."""

from __future__ import annotations

import ctypes
import os

_LIBC = ctypes.CDLL(None, use_errno=True)
_DETACH = 2


def _check(result: int) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def mount(kind: bytes, where: bytes, flags: int, options: bytes) -> None:
    """Mount a file system without a device, by mount(2)."""
    _check(_LIBC.mount(kind, where, kind, ctypes.c_ulong(flags), options))


def unmount(where: bytes) -> None:
    """Unmount with MNT_DETACH: at once, even while the mount is in use."""
    _check(_LIBC.umount2(where, _DETACH))


def rename2(source_fd: int, old: bytes, target_fd: int, new: bytes, flags: int) -> None:
    """Rename by renameat2(2)."""
    _check(_LIBC.renameat2(source_fd, old, target_fd, new, flags))


def fallocate(fd: int, mode: int, offset: int, length: int) -> None:
    """Allocate by fallocate(2)."""
    _check(_LIBC.fallocate(fd, mode, ctypes.c_int64(offset), ctypes.c_int64(length)))
