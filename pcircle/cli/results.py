"""Results on standard output and in files; a result that cannot be written is a failure."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, TextIO

from pcircle.core.encoding import show
from pcircle.core.errors import EntriesFailed, UsageError
from pcircle.core.writing import (
    CALLER,
    is_broken_pipe,
    standard_error,
    standard_output,
    write_stream,
)
from pcircle.fs.safe_open import writing
from pcircle.jobs.failures import open_log

if TYPE_CHECKING:
    from pcircle.cli import json_output as jsonout
    from pcircle.cli.options import CommonOptions
    from pcircle.walk.roots import Root


_STREAMS = ("standard output", "standard error")
_TOGETHER = 4096  # number of pieces that are written at once


class Results:
    """The destinations of results. `note` prints a line; `failed` is set if a write failed."""

    def __init__(self, tool: str, json: str | None, note: Callable[[str], None]) -> None:
        self._tool = tool
        self._json = json
        self._note = note
        self.failed: bool = False
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
        return standard_error() if self._json == "-" else standard_output()

    @property
    def summary_stream(self) -> TextIO | None:
        """Return the stream for a summary: to a calling program it is a message, not a result."""
        return self.stream if CALLER.get() is None else standard_error()

    def write(self, where: str, write: Callable[[], None]) -> None:
        """Call `write`, which may raise OSError; `where` is the file in the message.

        A broken pipe on a standard stream is a failure without a message.
        """
        try:
            write()
        except OSError as error:
            self.failed = True
            name = where if where in _STREAMS else f"'{show(os.fsencode(where))}'"
            if name != where or not is_broken_pipe(error):
                self._note(f"{self._tool}: cannot write {name}: {error.strerror}")

    def document(self, document: jsonout.JsonDocument) -> None:
        """Write the JSON document, if requested, and pass the result to a calling program."""
        report_to_caller(document)
        if self._json is not None:
            from pcircle.cli import json_output as jsonout

            stdout = getattr(standard_output(), "buffer", None)
            where = _STREAMS[0] if self._json == "-" else self._json
            self.write(where, partial(jsonout.write, document, self._json, stdout))

    def text(self, pieces: Iterable[bytes]) -> None:
        """Write results as text, many pieces at a time.

        After an error, such as a closed pipe, nothing more is written.
        """
        if not self._broken:
            stream, failed, self.failed = self.stream, self.failed, False
            self.write(_STREAMS[self._json == "-"], partial(_write_pieces, stream, iter(pieces)))
            self._broken = self.failed
            self.failed = self.failed or failed


def report_to_caller(report: jsonout.JsonDocument) -> None:
    """Pass the result of a tool to the program that called it, if there is one."""
    caller = CALLER.get()
    if caller is not None:
        caller.report = report


def _write_pieces(stream: TextIO | None, pieces: Iterator[bytes]) -> None:
    while batch := list(islice(pieces, _TOGETHER)):
        write_stream(stream, b"".join(batch))


def list_end(options: CommonOptions, roots: Sequence[Root]) -> bytes:
    """Return the terminator of paths for --list-out, or b"" if the option is absent.

    Paths are relative to the PATH. Raises UsageError.
    """
    if options.list_out is None:
        return b""
    if len(roots) != 1 or roots[0].name:
        raise UsageError("--list-out requires one PATH, a directory")
    return b"\0" if options.null else b"\n"


def open_output(name: str, option: str) -> int:
    """Open the new file that an option names; `-` is standard output. Raises UsageError."""
    if name != "-":
        return open_log(name, option)
    if CALLER.get() is not None:
        raise UsageError(
            f"{option}: standard output belongs to the calling program; specify a file"
        )
    try:
        return os.dup(1)
    except OSError as error:
        raise UsageError(f"{option}: cannot write standard output: {error.strerror}") from None


def append_output(name: str) -> int:
    """Open a file of `open_output` again for more lines. Raises OSError."""
    return os.dup(1) if name == "-" else writing(os.fsencode(name), os.O_APPEND)
