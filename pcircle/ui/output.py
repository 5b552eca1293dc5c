"""Lines for the user on a stream that may be full, slow or gone.

The idea: a job of hours must not die, nor end with another exit code, because the terminal that
watched it was closed.  So messages are written to the descriptor itself: Python's own buffer keeps
what it could not write, fails again at exit, and then turns the exit code into 120.

What this is not: a way to write results.  A result that can't be written is an error and must be
raised; only what is *said about* the work goes through here.
"""

from __future__ import annotations

import errno
import os
import select
import stat
from typing import TextIO

from pcircle.writing import left

__all__ = ["Output"]

# A terminal that was stopped with Ctrl-S, or a pipe that nobody empties, in non-blocking mode:
# longer than this a message does not hold up the work.
_PATIENCE_S = 1.0
# The stream may accept the next message although it refused this one.
_PASSING_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EAGAIN})


class Output:
    """A text stream that never raises; as much of a file as rich's Console asks for.

    *stream* is ``sys.stderr`` as a rule, and may be None, as that is when the process was started
    with the descriptor closed.  A stream without a descriptor (StringIO) is written as it is.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._fd = _descriptor_of(stream)
        self.encoding: str = getattr(stream, "encoding", None) or "utf-8"

    def write(self, text: str) -> int:
        """Write all of *text*, or give it up; the number of characters is always that of *text*."""
        if self._stream is None:
            return len(text)
        try:
            if self._fd is None:
                self._stream.write(text)
            else:
                # What others printed to the stream comes first.
                self._stream.flush()
                _write_fully(self._fd, text.encode(self.encoding, "backslashreplace"))
        except ValueError:  # the stream was closed
            self._stream = None
        except OSError as error:
            if error.errno not in _PASSING_ERRORS:
                self._stream = None
        return len(text)

    def line(self, text: str) -> None:
        """Write *text* as a line, in one piece."""
        self.write(text + "\n")

    def flush(self) -> None:
        """Nothing is ever held back."""

    def isatty(self) -> bool:
        """Whether a person is likely to look on."""
        try:
            return self._stream is not None and self._stream.isatty()
        except ValueError:  # the stream was closed
            return False

    def is_file(self) -> bool:
        """Whether it is a regular file, which nobody watches as it is written."""
        try:
            return self._fd is not None and stat.S_ISREG(os.fstat(self._fd).st_mode)
        except OSError:  # the descriptor was closed
            return False


def _descriptor_of(stream: TextIO | None) -> int | None:
    if stream is None:
        return None
    try:
        return stream.fileno()
    except (OSError, ValueError):  # not a file at all, or closed: writing will tell
        return None


def _write_fully(fd: int, data: bytes) -> None:
    """Write *data*, waiting up to ``_PATIENCE_S`` each time a non-blocking descriptor is full."""
    rest = memoryview(data)
    while rest:
        try:
            rest = left(rest, os.write(fd, rest))
        except BlockingIOError:
            poller = select.poll()
            poller.register(fd, select.POLLOUT)
            if not poller.poll(_PATIENCE_S * 1000):
                raise
