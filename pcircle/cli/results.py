"""Output of the tools: results on standard output and in files, and messages to the user.

A result that cannot be written is an error and is raised.

A message goes to a stream that may be full, slow or closed. A job of hours must not die, nor change
its exit code, because the terminal that watched it was closed. So messages are written to the
descriptor directly: Python's buffer would keep what it could not write, fail again at exit and turn
the exit code into 120. Results do not go through `MessageStream`, because their errors must be
raised.
"""

from __future__ import annotations

import errno
import os
import select
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, TextIO

from pcircle.core.encoding import show
from pcircle.core.errors import EntriesFailed, UsageError
from pcircle.core.writing import is_left, left, write_stream
from pcircle.fs.safe_open import writing
from pcircle.jobs.failures import open_log

if TYPE_CHECKING:
    import argparse

    from pcircle.cli import json_output as jsonout
    from pcircle.walk.roots import Root


_STREAMS = ("standard output", "standard error")
_TOGETHER = 4096  # pieces that are written at once


class Results:
    """The destinations of results. `note` prints a line; `failed` means that a write failed."""

    def __init__(self, tool: str, json: str | None, note: Callable[[str], None]) -> None:
        self._tool = tool
        self._json = json
        self._note = note
        self.failed = False
        self._broken = False

    def follow(self, former: Results) -> None:
        """Continue from the results of a run that is restarted."""
        self.failed, self._broken = former.failed, former._broken

    @property
    def is_broken(self) -> bool:
        """Return whether text can no longer be written."""
        return self._broken

    @property
    def code(self) -> int:
        """Return the exit code that follows from the writes."""
        return EntriesFailed.exit_code if self.failed else 0

    @property
    def stream(self) -> TextIO | None:
        """Return the stream for text: standard error if standard output carries JSON."""
        return sys.stderr if self._json == "-" else sys.stdout

    def write(self, where: str, write: Callable[[], None]) -> None:
        """Call `write`, which may raise OSError; `where` is the file in the message.

        A closed standard stream is a failure without a message.
        """
        try:
            write()
        except OSError as error:
            self.failed = True
            name = where if where in _STREAMS else f"'{show(os.fsencode(where))}'"
            if name != where or not is_left(error):
                self._note(f"{self._tool}: cannot write {name}: {error.strerror}")

    def document(self, document: jsonout.JsonDocument) -> None:
        """Write the JSON document, if requested."""
        if self._json is not None:
            from pcircle.cli import json_output as jsonout

            stdout = getattr(sys.stdout, "buffer", None)
            where = _STREAMS[0] if self._json == "-" else self._json
            self.write(where, partial(jsonout.write, document, self._json, stdout))

    def text(self, pieces: Iterable[bytes]) -> None:
        """Write results as text, some pieces at a time.

        After an error, such as a closed pipe, nothing more is written.
        """
        if not self._broken:
            stream, failed, self.failed = self.stream, self.failed, False
            self.write(_STREAMS[self._json == "-"], partial(_write_pieces, stream, iter(pieces)))
            self._broken = self.failed
            self.failed = self.failed or failed


def _write_pieces(stream: TextIO | None, pieces: Iterator[bytes]) -> None:
    while batch := list(islice(pieces, _TOGETHER)):
        write_stream(stream, b"".join(batch))


def list_end(args: argparse.Namespace, roots: Sequence[Root]) -> bytes:
    """Return the terminator of paths for --list-out; empty without this option. UsageError.

    Paths are relative to the PATH.
    """
    if args.list_out is None:
        return b""
    if len(roots) != 1 or roots[0].name:
        raise UsageError("--list-out requires one PATH, a directory")
    return b"\0" if args.null else b"\n"


def open_output(name: str, option: str) -> int:
    """Open the new file that an option names; `-` is standard output. UsageError."""
    if name != "-":
        return open_log(name, option)
    try:
        return os.dup(1)
    except OSError as error:
        raise UsageError(f"{option}: cannot write standard output: {error.strerror}") from None


def append_output(name: str) -> int:
    """Open a file of `open_output` again for more lines. OSError."""
    return os.dup(1) if name == "-" else writing(os.fsencode(name), os.O_APPEND)


# ---- messages ------------------------------------------------------------------------------------


# The longest wait for a terminal that was stopped with Ctrl-S, or for a full pipe, in
# non-blocking mode.
_PATIENCE_S = 1.0
# The stream may accept the next message although it refused this one.
_PASSING_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EAGAIN})


class MessageStream:
    """A text stream that never raises, with the methods that rich's Console needs.

    The stream is usually ``sys.stderr``, which is None if the process was started with the
    descriptor closed. A stream without a descriptor (StringIO) is written through its own methods.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._fd = _descriptor_of(stream)
        self.encoding: str = getattr(stream, "encoding", None) or "utf-8"

    def write(self, text: str) -> int:
        """Write a text; after an error drop the remainder. Always return the length of the text."""
        if self._stream is None:
            return len(text)
        try:
            if self._fd is None:
                self._stream.write(text)
            else:
                # Earlier output of Python's stream comes first.
                self._stream.flush()
                _write_fully(self._fd, text.encode(self.encoding, "backslashreplace"))
        except ValueError:  # the stream was closed
            self._stream = None
        except OSError as error:
            if error.errno not in _PASSING_ERRORS:
                self._stream = None
        return len(text)

    def line(self, text: str) -> None:
        """Write a text as one line."""
        self.write(text + "\n")

    def flush(self) -> None:
        """Do nothing: no output is buffered."""

    def isatty(self) -> bool:
        """Return whether the stream is a terminal."""
        try:
            return self._stream is not None and self._stream.isatty()
        except ValueError:  # the stream was closed
            return False

    def is_file(self) -> bool:
        """Return whether the stream is a regular file."""
        try:
            return self._fd is not None and stat.S_ISREG(os.fstat(self._fd).st_mode)
        except OSError:  # the descriptor was closed
            return False


def _descriptor_of(stream: TextIO | None) -> int | None:
    if stream is None:
        return None
    try:
        return stream.fileno()
    except (OSError, ValueError):  # not a file, or closed: writing will fail
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
