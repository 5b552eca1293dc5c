"""Messages to the user, on a stream that may be full, slow or closed.

A job that takes hours must neither die nor change its exit code because its terminal was closed. So
messages are written to the descriptor directly: Python's buffer would keep the data that it could
not write, fail again at exit and turn the exit code into 120.

Results are not written through this module, because a result that cannot be written is an error.
"""

from __future__ import annotations

import errno
import os
import select
import sys
from typing import NamedTuple, TextIO

from pcircle.core.units import is_whole
from pcircle.core.writing import left

# The longest wait for a terminal that was stopped with Ctrl-S, or for a full pipe, in
# non-blocking mode.
_PATIENCE_S = 1.0
_LINES, _COLUMNS = 24, 80  # of a terminal of unknown size
# After these errors, the stream may accept the next message.
_PASSING_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EAGAIN})


def version_details() -> str:
    """Return the lines that --version prints after the version if -v is given."""
    from pcircle.fs.native import description  # imported late: few runs print it

    return f"file operations: {description()}\n"


def columns() -> int:
    """Return the width of the terminal; the environment variable COLUMNS overrides it."""
    given = os.environ.get("COLUMNS", "")
    if is_whole(given) and len(given) < len(str(sys.maxsize)) and int(given):
        return int(given)
    try:
        return os.get_terminal_size().columns or _COLUMNS
    except OSError:  # not a terminal
        return _COLUMNS


class MessageStream:
    """A text stream that never raises, with the methods that rich's Console needs.

    The stream is usually ``sys.stderr``, which is None if the process was started with the
    descriptor closed. If the stream has no descriptor (StringIO), its own methods are used.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._fd = _descriptor_of(stream)
        self.encoding: str = getattr(stream, "encoding", None) or "utf-8"

    def write(self, text: str) -> int:
        """Write text; on an error, drop the rest. Always return the length of the text."""
        if self._stream is None:
            return len(text)
        try:
            if self._fd is None:
                self._stream.write(text)
            else:
                # Earlier output that Python has buffered must come first.
                self._stream.flush()
                _write_fully(self._fd, text.encode(self.encoding, "backslashreplace"))
        except ValueError:  # the stream was closed
            self._stream = None
        except OSError as error:
            if error.errno not in _PASSING_ERRORS:
                self._stream = None
        return len(text)

    def line(self, text: str) -> None:
        """Write text followed by a newline."""
        self.write(text + "\n")

    def flush(self) -> None:
        """Do nothing: no output is buffered."""

    def isatty(self) -> bool:
        """Return whether the stream is a terminal."""
        try:
            return self._stream is not None and self._stream.isatty()
        except ValueError:  # the stream was closed
            return False


class Terminal(NamedTuple):
    """The size of a terminal."""

    lines: int
    columns: int


def terminal_of(stream: TextIO | None) -> Terminal | None:
    """Return the size of a stream's terminal, or None if it is not a terminal.

    The environment variables COLUMNS and LINES override the size.
    """
    try:
        if stream is None or not stream.isatty():
            return None
        size = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):  # the stream is closed, or has no descriptor
        return None
    lines, columns = _given("LINES") or size.lines, _given("COLUMNS") or size.columns
    return Terminal(lines or _LINES, columns or _COLUMNS)


def _given(name: str) -> int:
    text = os.environ.get(name, "")
    return int(text) if is_whole(text) and len(text) < len("100000") else 0


def _descriptor_of(stream: TextIO | None) -> int | None:
    if stream is None:
        return None
    try:
        return stream.fileno()
    except (OSError, ValueError):  # a StringIO, for example, or closed, which `write` detects
        return None


def _write_fully(fd: int, data: bytes) -> None:
    """Write data, waiting up to `_PATIENCE_S` whenever a non-blocking descriptor is full."""
    remaining = memoryview(data)
    while remaining:
        try:
            remaining = left(remaining, os.write(fd, remaining))
        except BlockingIOError:
            poller = select.poll()
            poller.register(fd, select.POLLOUT)
            if not poller.poll(_PATIENCE_S * 1000):
                raise
