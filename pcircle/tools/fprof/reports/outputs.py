"""The outputs of a report: text on standard output, and the requested files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TextIO

import msgspec

from pcircle.cli.json_output import JsonDocument
from pcircle.cli.output import Terminal, terminal_of
from pcircle.cli.results import Results
from pcircle.tools.fprof.profile.model import Profile
from pcircle.tools.fprof.reports.report import ProfileReport, ProfileRun, make
from pcircle.tools.fprof.reports.text import insert_tree, render


class Outputs(msgspec.Struct, frozen=True, kw_only=True):
    """The names of the output files, and of the directory for CSV files.

    If `tree` is set, the text on a terminal shows the largest directories.
    """

    json: str | None = None
    csv: str | None = None
    save: str | None = None
    html: str | None = None
    plot: str | None = None
    tree: bool = False

    def tell(
        self,
        profile: Profile,
        report: ProfileReport,
        run: ProfileRun,
        results: Results,
        *,
        quiet: bool,
    ) -> None:
        """Write all outputs."""
        for where, write in self._writers(profile, report, run):
            results.write(where, write)
        terminal = terminal_of(results.stream)
        columns = None if terminal is None else terminal.columns
        parts: Callable[..., Iterable[str]] = partial(render, report, columns=columns)
        if self.tree and terminal is not None and profile.weights:
            parts = partial(_with_tree, profile, report, terminal)
        tell(report, None if quiet else parts, results)

    def _writers(
        self, profile: Profile, report: ProfileReport, run: ProfileRun
    ) -> Iterator[tuple[str, Callable[[], None]]]:
        # Modules that only some runs need are imported late.
        if self.save is not None:
            from pcircle.tools.fprof.profile import saved

            # The exact edges were only computed for the histogram of this run.
            stored = msgspec.structs.replace(profile, edges=(), edge_tallies=[])
            yield self.save, partial(saved.write, stored, self.save)
        if self.csv is not None:
            from pcircle.tools.fprof.reports import csvout

            yield self.csv, partial(csvout.write, report, self.csv)
        if self.html is not None:
            from pcircle.tools.fprof.reports import page

            top = len(report.top.largest) if report.top else 0
            whole = make(profile, page.page_options(top), run)
            yield self.html, partial(page.write, profile, whole, self.html)
        if self.plot is not None:
            from pcircle.tools.fprof.reports import page, plot

            whole = make(profile, page.page_options(0), run)
            yield self.plot, partial(plot.write, whole, page.heat_of(profile), self.plot)


def _with_tree(
    profile: Profile, report: ProfileReport, terminal: Terminal, *, unicode: bool
) -> list[str]:
    """Return the report with the largest directories, as many as fit on the terminal."""
    from pcircle.tools.fprof.reports import tree

    parts = render(report, unicode=unicode, columns=terminal.columns)
    taken = tree.lines_of(parts, terminal)
    return insert_tree(parts, tree.render(profile, terminal, taken, unicode=unicode))


def tell(
    document: JsonDocument, parts: Callable[..., Iterable[str]] | None, results: Results
) -> None:
    """Write a result as JSON, if requested, and as text with empty lines between its parts."""
    results.document(document)
    if parts is not None:
        unicode = _supports_unicode(results.stream)
        results.text(["\n".join(parts(unicode=unicode)).encode()])


def _supports_unicode(stream: TextIO | None) -> bool:
    """Return whether the encoding of a stream supports the characters of bars."""
    encoding = getattr(stream, "encoding", None) or ""
    return encoding.lower().replace("-", "") == "utf8"
