"""When a file was made, which Python does not tell: statx(2), by way of the C library."""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Callable

_AT_FDCWD = -100
_AT_SYMLINK_NOFOLLOW = 0x100
_BIRTH = 0x800
_RECORD_BYTES = 256
_MASK, _TIME = 0, 80
_NS = 1_000_000_000


def birth_ns(path: bytes, directory_fd: int | None, *, follow: bool) -> int | None:
    """The time since the epoch; None if the file system does not keep it, or there is no file."""
    call = _statx()
    if call is None:
        return None
    buffer = ctypes.create_string_buffer(_RECORD_BYTES)
    flags = 0 if follow else _AT_SYMLINK_NOFOLLOW
    if call(_AT_FDCWD if directory_fd is None else directory_fd, path, flags, _BIRTH, buffer):
        return None
    (mask,) = struct.unpack_from("I", buffer, _MASK)
    seconds, ns = struct.unpack_from("qI", buffer, _TIME)
    return int(seconds) * _NS + int(ns) if mask & _BIRTH else None


@functools.cache
def _statx() -> Callable[..., int] | None:
    try:
        found: Callable[..., int] = ctypes.CDLL(None).statx
    except (AttributeError, OSError):
        return None
    return found
