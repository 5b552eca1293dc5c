"""`--error-log`: a file with one JSON object per line, one line for each failed entry.

The rank on which an entry fails formats its line (`pcircle.runtime.Task.line_of`). Lines travel
with the notices of the failures, and rank 0 appends them as they arrive; lines of one rank are in
the order of its failures. Only complete lines are written, so the log is usable while the job runs
and after any end. Names are percent-encoded, so no byte is lost.

A file for each rank, merged at the end, was rejected. The log may be a pipe, or lie where only rank
0 can write; after a kill the parts would remain unmerged. Every failure travels to rank 0 anyway,
because it is printed on standard error.
"""

from __future__ import annotations

import errno
import os
import stat

from pcircle.core.errors import UsageError
from pcircle.core.names import show
from pcircle.core.writing import write_all
from pcircle.fs.safe_open import writing

_PLAIN = b"/-_.~+,:=@ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_TOGETHER_BYTES = 4096


class LogFile:
    """A log that is open for writing."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def append(self, lines: bytes) -> None:
        """Append lines, at most 4 KiB at a time, so that a kill cuts no long write. OSError."""
        at = 0
        while at < len(lines):
            end = lines.rfind(b"\n", at, at + _TOGETHER_BYTES) + 1
            end = end or lines.find(b"\n", at) + 1 or len(lines)
            self._write(lines[at:end])
            at = end

    def _write(self, lines: bytes) -> None:
        """Append all lines or none: half a path in a list would name its parent directory."""
        status = os.fstat(self._fd)
        try:
            write_all(self._fd, lines)
        except OSError:
            if stat.S_ISREG(status.st_mode):
                os.ftruncate(self._fd, status.st_size)
            raise

    def sync(self) -> None:
        """Flush the log to disk. OSError."""
        try:
            os.fsync(self._fd)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EROFS):  # pipes and devices cannot be synced
                raise

    def close(self) -> None:
        """Flush the log to disk and close it. OSError."""
        try:
            self.sync()
        finally:
            os.close(self._fd)


def open_log(path: str, option: str = "--error-log") -> int:
    """Open a file for a new log. UsageError with the option's name if it is not writable."""
    try:
        fd = writing(os.fsencode(path), os.O_APPEND)
        if stat.S_ISREG(os.fstat(fd).st_mode):
            os.ftruncate(fd, 0)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"{option}: cannot write '{show(os.fsencode(path))}': {reason}") from None
    return fd


def encode(path: bytes) -> str:
    """Percent-encode all bytes except letters, digits and `/-_.~+,:=@`."""
    if not path.translate(None, _PLAIN):
        return path.decode()
    return "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in path)


def decode(text: str) -> bytes:
    """Return the bytes that `encode` encoded. ValueError for any other text."""
    first, *rest = text.encode("ascii").split(b"%")
    path = first + b"".join(bytes.fromhex(part[:2].decode()) + part[2:] for part in rest)
    if encode(path) != text:
        raise ValueError("not encoded as fcp does")
    return path
