"""Failed entries, and how they are reported to rank 0, the user and the error log.

The error log (`--error-log`) contains a line with a JSON object for each failed entry. The rank on
which an entry fails formats its line (`pcircle.runtime.Task.line_of`). Lines are sent with the
notices of failures, and rank 0 appends them as they arrive; the lines of each rank are in the order
of its failures. Only complete lines are written, so the log is usable at any time, even if the job
is killed. Names are percent-encoded, so no byte is lost.

Alternatively, each rank could write a file, and the files could be merged at the end. But the log
may be a pipe, or in a directory where only rank 0 can write, and after a kill the files would not
be merged. Besides, each failure is sent to rank 0 anyway, to be printed on standard error.
"""

from __future__ import annotations

import errno
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from pcircle.core.encoding import show
from pcircle.core.errors import UsageError
from pcircle.core.writing import write_all
from pcircle.fs.entry_errors import errno_and_reason, error_name, kind_of
from pcircle.fs.safe_open import writing
from pcircle.walk.roots import Root

if TYPE_CHECKING:
    from pcircle.fs.data import ReadEffects

NOTHING_REMOVED = "would be removed; nothing was removed"
"""The end of the message about a job that would remove too much."""
_PLAIN = b"/-_.~+,:=@ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_TOGETHER_BYTES = 4096


class NoticeSink(Protocol):
    """The method of a `Context` that sends notices to rank 0."""

    def note(self, notices: Sequence[object]) -> None: ...


class LogFile:
    """A log that is open for writing."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def append(self, lines: bytes) -> None:
        """Append lines, about 4 KiB at a time, so that a kill does not truncate a long write.

        Raises OSError.
        """
        at = 0
        while at < len(lines):
            end = lines.rfind(b"\n", at, at + _TOGETHER_BYTES) + 1
            end = end or lines.find(b"\n", at) + 1 or len(lines)
            self._write(lines[at:end])
            at = end

    def _write(self, lines: bytes) -> None:
        """Append all lines or none: a truncated path in a list could name a parent directory."""
        status = os.fstat(self._fd)
        try:
            write_all(self._fd, lines)
        except OSError:
            if stat.S_ISREG(status.st_mode):
                os.ftruncate(self._fd, status.st_size)
            raise

    def sync(self) -> None:
        """Flush the log to disk. Raises OSError."""
        try:
            os.fsync(self._fd)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EROFS):  # pipes and devices cannot be synced
                raise

    def close(self) -> None:
        """Flush the log to disk and close it. Raises OSError."""
        try:
            self.sync()
        finally:
            os.close(self._fd)


def open_log(path: str, option: str = "--error-log") -> int:
    """Open a file for a new log, discarding its content.

    Raises UsageError, with the option's name, if the file is not writable.
    """
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
    """Decode the result of `encode`. Raises ValueError for any other text."""
    first, *remaining = text.encode("ascii").split(b"%")
    path = first + b"".join(bytes.fromhex(part[:2].decode()) + part[2:] for part in remaining)
    if encode(path) != text:
        raise ValueError("not percent-encoded")
    return path


class FailedEntry(msgspec.Struct, frozen=True):
    """A failed entry in the report; its path is escaped for display.

    `errno` is null if no system call failed. `error` is the name of the `errno`, or the kind of
    failure.
    """

    path: str
    doing: str
    errno: int | None
    reason: str
    error: str


class Failure(msgspec.Struct, frozen=True, array_like=True, tag="f"):
    """A failed entry: its path, the attempted operation and the reason.

    `path` begins with the operand as typed; `entry` is the path below root number `root`. A failure
    that no system call reported has a `kind` instead of an `errno`, see `pcircle.fs.entry_errors`.
    """

    path: bytes
    doing: str
    errno: int | None
    reason: str
    root: int
    entry: bytes
    kind: str = ""

    def said(self, tool: str) -> str:
        """Return the tool's one-line message."""
        return f"{tool}: cannot {self.doing} '{show(self.path)}': {self.reason}"

    def reported(self) -> FailedEntry:
        """Return the failure as an item of the report."""
        error = error_name(self.errno, self.kind)
        return FailedEntry(show(self.path), self.doing, self.errno, self.reason, error)


def failure_of(root: Root, number: int, path: bytes, doing: str, error: OSError) -> Failure:
    """Return the failure of an entry with this path below root number `number`."""
    entry = b"" if root.name else path
    shown = os.path.join(root.shown, entry) if entry else root.shown
    return Failure(shown, doing, *errno_and_reason(error), number, entry, kind_of(error))


def stop_reason(path: bytes, error: OSError) -> str:
    """Return why a job stops if it cannot write below a path."""
    return f"stopped: cannot write to '{show(path)}': {error.strerror}"


class RecallNotice(msgspec.Struct, frozen=True, array_like=True, tag="recalled"):
    """A notice that a file whose data is on tape is about to be read.

    With `atime`, it announces instead that reading the file changes its access time.
    """

    path: bytes
    atime: bool = False


def report_effects(
    effects: ReadEffects, shown: Callable[[int, bytes], bytes], context: NoticeSink
) -> None:
    """Report the first recalled file, and the first changed access time, through `context`.

    `shown` returns the file's path for display.
    """
    effects.tell = lambda root, path: context.note([RecallNotice(shown(root, path))])
    if effects.flags:
        effects.tell_atime = lambda root, path: context.note(
            [RecallNotice(shown(root, path), atime=True)]
        )


def shown_below(root: Root, path: bytes) -> bytes:
    """Return the path of an entry below a root, beginning with the operand as typed."""
    return root.shown if root.name else os.path.join(root.shown, path)


class FailureCounters(Protocol):
    """The counters that record failures."""

    failed: int
    sized: int


class FailureReporter(ABC):
    """Counts and reports the failures of one worker thread."""

    def __init__(self, counters: FailureCounters) -> None:
        self._failing = counters

    def fail(
        self,
        root: int,
        path: bytes,
        doing: str | None,
        error: OSError,
        context: NoticeSink,
        *,
        sized: bool = False,
    ) -> None:
        """Count and report a failed entry; `sized` means that its size was already counted.

        If `doing` is None, the error names the operation.
        """
        self._failing.failed += 1
        if not sized:
            self._failing.sized += 1
        self.tell(self.failure(root, path, doing, error), context)

    def tell(self, failure: Failure, context: NoticeSink) -> None:
        """Report a failure that was already counted."""
        context.note([failure])

    @abstractmethod
    def failure(self, root: int, path: bytes, doing: str | None, error: OSError) -> Failure:
        """Return the failure of an entry."""


class LogLine(msgspec.Struct, frozen=True):
    """A failed entry in the error log.

    `path` is escaped for display. `error` is the name of the `errno`, or the kind of failure.
    `entry` is the percent-encoded path below operand number `root`; it is empty for the operand
    itself.
    """

    path: str
    doing: str
    errno: int | None
    error: str
    reason: str
    root: int
    entry: str


def log_line(failure: Failure) -> LogLine:
    """Return the error log's line for a failed entry."""
    return LogLine(
        path=show(failure.path),
        doing=failure.doing,
        errno=failure.errno,
        error=error_name(failure.errno, failure.kind),
        reason=failure.reason,
        root=failure.root,
        entry=encode(failure.entry),
    )


def line_of(notice: object) -> bytes:
    """Return the error log's line for a notice; empty if the notice is not a failure."""
    if not isinstance(notice, Failure):
        return b""
    return msgspec.json.encode(log_line(notice)) + b"\n"
