"""Write plans and undo records: JSON lines, each with a checksum.

The last field of a line is a checksum of all lines up to and including this one. So damage anywhere
in the file is detected before the first action, and the complete lines of a truncated file can
still be verified.

Only rank 0 writes the file. If it cannot be written, the run stops, because the plan would lack
entries, and changes missing from an undo record could not be undone.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress

import xxhash

from pcircle.core.encoding import show
from pcircle.core.errors import StoppedEarly
from pcircle.fs.safe_open import writing
from pcircle.jobs.failures import LogFile, open_log

_FIELDS = {b"]": b',"', b"}": b',"check":"'}
"""The text that precedes the checksum, by the last byte of the line."""
_CHECK_BYTES = 16


class Checksums:
    """Adds or verifies the checksums of a file's lines, in order."""

    def __init__(self) -> None:
        self._digest = xxhash.xxh3_64()

    def added(self, lines: bytes) -> bytes:
        """Return complete lines, each a JSON array or object, with their checksums."""
        return b"".join([self._line(line[:-1], line[-1:]) for line in lines.splitlines()])

    def verify(self, line: bytes) -> None:
        """Raise ValueError if the checksum of a line is wrong."""
        end = line[-2:-1]
        field = _FIELDS.get(end, b"")
        body = line[: -len(field) - _CHECK_BYTES - 3]
        if not field or self._line(body, end) != line:
            raise ValueError("wrong checksum")

    def _line(self, body: bytes, end: bytes) -> bytes:
        self._digest.update(body)
        return b'%b%b%b"%b\n' % (body, _FIELDS[end], self._digest.hexdigest().encode(), end)


class PlanFile:
    """A plan or undo record that rank 0 writes; `what` names it in messages.

    Methods raise StoppedEarly if writing fails. After that, no line is added, so that the file
    never looks complete.
    """

    def __init__(self, path: str, option: str, what: str) -> None:
        """Begin a new file. Raises UsageError if it cannot be opened."""
        self._path, self._what = path, what
        self._checksums = Checksums()
        self._log: LogFile | None = LogFile(open_log(path, option))
        self._is_synced = True
        self.is_broken: bool = False

    def append(self, lines: bytes) -> None:
        """Add complete lines."""
        self._try(self._append, lines)

    def sync(self) -> None:
        """Flush all lines to disk."""
        if not self._is_synced:
            self._try(self._sync)

    def end(self, line: bytes) -> None:
        """Add the last line, which marks the file as complete, and close the file."""
        self.sync()  # otherwise the last line could reach the disk before others
        self._try(self._end, line)

    def close(self) -> None:
        """Flush all lines to disk and close the file; `append` opens it again."""
        log, self._log = self._log, None
        if log is not None and not self.is_broken:
            self._try(log.close)
        elif log is not None:
            with suppress(OSError):  # an error has already been reported
                log.close()

    def _append(self, lines: bytes) -> None:
        if self._log is None:
            self._log = LogFile(writing(os.fsencode(self._path), os.O_APPEND))
        self._is_synced = False
        self._log.append(self._checksums.added(lines))

    def _sync(self) -> None:
        if self._log is not None:
            self._log.sync()
        self._is_synced = True

    def _end(self, line: bytes) -> None:
        status = os.stat(self._path)
        try:
            self._append(line)
            log, self._log = self._log, None
            if log is not None:
                log.close()
        except OSError:
            if stat.S_ISREG(status.st_mode):
                with suppress(OSError):  # the original error must be reported
                    os.truncate(self._path, status.st_size)
            raise

    def _try(self, call: Callable[..., None], *arguments: bytes) -> None:
        if self.is_broken:
            raise StoppedEarly(f"the {self._what} '{self._shown}' is not complete")
        try:
            call(*arguments)
        except OSError as error:
            self.is_broken = True
            reason = error.strerror or str(error)
            text = f"cannot write the {self._what} '{self._shown}': {reason}"
            raise StoppedEarly(text) from error

    @property
    def _shown(self) -> str:
        return show(os.fsencode(self._path))
