"""`--error-log`: a file of one JSON object a line, one for each failed entry.

A line is written whole, as soon as rank 0 hears of the failure, so the log is
of use while the job runs and after any end. Names are percent-encoded in it,
and so without loss.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable

from pcircle.errors import UsageError
from pcircle.trusted import writing
from pcircle.ui.names import show
from pcircle.writing import write_all

_PLAIN = frozenset(b"/-_.~+,:=@ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789")


class LogFile:
    """A log, open for writing."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def append(self, lines: Iterable[bytes]) -> None:
        """Add lines. OSError if that can't be done."""
        write_all(self._fd, b"".join(lines))

    def close(self) -> None:
        """Bring all of it to disk. OSError if that can't be done."""
        try:
            os.fsync(self._fd)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EROFS):  # a pipe or a device has no disk
                raise
        finally:
            os.close(self._fd)


def open_log(path: str) -> int:
    """Open FILE for a new log; UsageError if it can't be written."""
    try:
        fd = writing(os.fsencode(path), os.O_APPEND)
        if stat.S_ISREG(os.fstat(fd).st_mode):
            os.ftruncate(fd, 0)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(
            f"--error-log: cannot write '{show(os.fsencode(path))}': {reason}"
        ) from None
    return fd


def encode(path: bytes) -> str:
    """Percent-encoded: what is not a letter, a digit or one of `/-_.~+,:=@` is `%XX`."""
    return "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in path)


def decode(text: str) -> bytes:
    """The bytes that `encode` made a text of; ValueError for any other text."""
    first, *rest = text.encode("ascii").split(b"%")
    path = first + b"".join(bytes.fromhex(part[:2].decode()) + part[2:] for part in rest)
    if encode(path) != text:
        raise ValueError("not encoded as fcp does")
    return path
