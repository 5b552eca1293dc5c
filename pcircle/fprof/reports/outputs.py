"""Where a report goes: standard output, and the files that were asked for.

A result that can't be written is a failure: it is said, and makes the exit code 1.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Protocol, TextIO

import msgspec

from pcircle.errors import EntriesFailed, worst
from pcircle.fprof.profile.model import Profile
from pcircle.fprof.reports.report import Report, Run, make
from pcircle.fprof.reports.text import render
from pcircle.ui import jsonout
from pcircle.ui.names import show
from pcircle.writing import write_stream

Note = Callable[[str], None]


class Result(Protocol):
    """A document with the exit code that it stands for."""

    @property
    def schema(self) -> int: ...
    @property
    def exit_code(self) -> int: ...


class Outputs(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be written, besides the text: names of files, of a directory for `csv`."""

    json: str | None = None
    csv: str | None = None
    save: str | None = None
    html: str | None = None
    plot: str | None = None

    def tell(self, profile: Profile, report: Report, run: Run, note: Note, *, quiet: bool) -> int:
        """Write it all; returns the exit code. `note` says a line on standard error."""
        codes = [_try(where, write, note) for where, write in self._writers(profile, report, run)]
        parts = None if quiet else partial(render, report)
        return worst((tell(report, parts, self.json, note), *codes))

    def _writers(
        self, profile: Profile, report: Report, run: Run
    ) -> Iterator[tuple[str, Callable[[], None]]]:
        # What only some runs need is imported by them.
        if self.save is not None:
            from pcircle.fprof.profile import saved

            # Kept without what only this run's histogram needed.
            kept = msgspec.structs.replace(profile, edges=(), edge_tallies=[])
            yield self.save, partial(saved.write, kept, self.save)
        if self.csv is not None:
            from pcircle.fprof.reports import csvout

            yield self.csv, partial(csvout.write, report, self.csv)
        if self.html is not None:
            from pcircle.fprof.reports import page

            top = len(report.top.largest) if report.top else 0
            whole = make(profile, page.wishes(top), run)
            yield self.html, partial(page.write, profile, whole, self.html)
        if self.plot is not None:
            from pcircle.fprof.reports import page, plot

            whole = make(profile, page.wishes(0), run)
            yield self.plot, partial(plot.write, whole, page.heat_of(profile), self.plot)


def tell(
    result: Result, parts: Callable[..., Iterable[str]] | None, json: str | None, note: Note
) -> int:
    """Write a result as JSON, if asked for, and as text; returns the exit code."""
    codes = [result.exit_code]
    if json is not None:
        stdout = None if sys.stdout is None else sys.stdout.buffer
        codes.append(_try(json, partial(jsonout.write, result, json, stdout), note))
    if parts is not None:
        # Standard output carries the JSON document then.
        stream = sys.stderr if json == "-" else sys.stdout
        write = partial(_write_text, stream, parts)
        where = "standard error" if json == "-" else "standard output"
        codes.append(_try(where, write, note))
    return worst(codes)


def _try(where: str, write: Callable[[], None], note: Note) -> int:
    try:
        write()
    except OSError as error:
        note(f"fprof: cannot write '{show(os.fsencode(where))}': {error.strerror}")
        return EntriesFailed.exit_code
    return 0


def _speaks_unicode(stream: TextIO) -> bool:
    """Whether bars may be drawn on it."""
    return (stream.encoding or "").lower().replace("-", "") == "utf8"


def _write_text(stream: TextIO | None, parts: Callable[..., Iterable[str]]) -> None:
    """Write parts with empty lines between them. OSError if that can't be done."""
    unicode = stream is not None and _speaks_unicode(stream)
    write_stream(stream, "\n".join(parts(unicode=unicode)).encode())
