"""`--error-log`: a file of one JSON object a line, one for each failed entry.

The rank on which an entry fails makes its line (`pcircle.runtime.Task.line_of`);
lines travel with the notices of the failures, packed, and rank 0 adds them to the
file as they come: those of one rank in the order in which its entries failed.
Lines are written whole, so the log is of use while the job runs and after any
end. Names are percent-encoded in it, and so without loss.

Why not a file of each rank, merged in the end: the log may be a pipe, or be where
only rank 0 can write; after a kill there would be parts, and nobody to merge them;
and each failure goes to rank 0 anyway, as it is named on standard error. What is
left for rank 0 is to copy bytes, no faster than it can (`pcircle.circle.notices`).
"""

from __future__ import annotations

import errno
import os
import stat

from pcircle.errors import UsageError
from pcircle.trusted import writing
from pcircle.ui.names import show
from pcircle.writing import write_all

_PLAIN = b"/-_.~+,:=@ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_TOGETHER_BYTES = 4096


class LogFile:
    """A log, open for writing."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def append(self, lines: bytes) -> None:
        """Add lines, a few at a time: a kill ends no long write in its middle.

        OSError if that can't be done.
        """
        at = 0
        while at < len(lines):
            end = lines.rfind(b"\n", at, at + _TOGETHER_BYTES) + 1
            end = end or lines.find(b"\n", at) + 1 or len(lines)
            self._write(lines[at:end])
            at = end

    def _write(self, lines: bytes) -> None:
        """Add whole lines, or none: half a path in a list would mean what it is in."""
        status = os.fstat(self._fd)
        try:
            write_all(self._fd, lines)
        except OSError:
            if stat.S_ISREG(status.st_mode):
                os.ftruncate(self._fd, status.st_size)
            raise

    def sync(self) -> None:
        """Bring all of it to disk. OSError if that can't be done."""
        try:
            os.fsync(self._fd)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EROFS):  # a pipe or a device has no disk
                raise

    def close(self) -> None:
        """Bring all of it to disk, and close it. OSError if that can't be done."""
        try:
            self.sync()
        finally:
            os.close(self._fd)


def open_log(path: str, option: str = "--error-log") -> int:
    """Open FILE for a new log; UsageError, which names the option, if it can't be written."""
    try:
        fd = writing(os.fsencode(path), os.O_APPEND)
        if stat.S_ISREG(os.fstat(fd).st_mode):
            os.ftruncate(fd, 0)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"{option}: cannot write '{show(os.fsencode(path))}': {reason}") from None
    return fd


def encode(path: bytes) -> str:
    """Percent-encoded: what is not a letter, a digit or one of `/-_.~+,:=@` is `%XX`."""
    if not path.translate(None, _PLAIN):
        return path.decode()
    return "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in path)


def decode(text: str) -> bytes:
    """The bytes that `encode` made a text of; ValueError for any other text."""
    first, *rest = text.encode("ascii").split(b"%")
    path = first + b"".join(bytes.fromhex(part[:2].decode()) + part[2:] for part in rest)
    if encode(path) != text:
        raise ValueError("not encoded as fcp does")
    return path
