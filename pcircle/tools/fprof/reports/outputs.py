"""The outputs of a report: text on standard output, and the requested files."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TextIO

import msgspec

from pcircle.cli import json_output as jsonout
from pcircle.cli.json_output import JsonDocument
from pcircle.cli.output import Terminal, terminal_of
from pcircle.cli.results import Results
from pcircle.core.encoding import show
from pcircle.core.errors import UsageError
from pcircle.fs.safe_open import make_directory
from pcircle.tools.fprof.options import ProfileOptions
from pcircle.tools.fprof.plan import index_of
from pcircle.tools.fprof.profile.model import Profile
from pcircle.tools.fprof.reports.report import ProfileReport, ProfileRun, make
from pcircle.tools.fprof.reports.text import insert_tree, render


def write_outputs(
    options: ProfileOptions,
    profile: Profile,
    report: ProfileReport,
    run: ProfileRun,
    results: Results,
) -> None:
    """Write the report as text and to all requested files."""
    for where, write in _writers(options, profile, report, run):
        results.write(where, write)
    terminal = terminal_of(results.stream)
    columns = None if terminal is None else terminal.columns
    parts: Callable[..., Iterable[str]] = partial(render, report, columns=columns)
    if options.tree and terminal is not None and profile.weights:
        parts = partial(_with_tree, profile, report, terminal)
    tell(report, None if options.quiet else parts, results)


def _writers(
    options: ProfileOptions, profile: Profile, report: ProfileReport, run: ProfileRun
) -> Iterator[tuple[str, Callable[[], None]]]:
    # Modules that only some runs need are imported late.
    if options.save is not None:
        from pcircle.tools.fprof.profile import saved

        # The exact edges were computed only for the histogram of this run.
        stored = msgspec.structs.replace(profile, edges=(), edge_tallies=[])
        yield options.save, partial(saved.write, stored, options.save)
    if options.csv is not None:
        yield options.csv, partial(_write_csv, report, options.csv)
    if options.html is not None:
        from pcircle.tools.fprof.reports import charts

        top = len(report.top.largest) if report.top else 0
        whole = make(profile, charts.page_options(top), run)
        yield options.html, partial(charts.write_page, profile, whole, options.html)
    if options.plot is not None:
        from pcircle.tools.fprof.reports import charts

        whole = make(profile, charts.page_options(0), run)
        yield options.plot, partial(charts.write_plot, profile, whole, options.plot)


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


# ---- tables as CSV files, for spreadsheets and scripts -------------------------------------------


class Special(msgspec.Struct, frozen=True):
    """The number of special files of one kind."""

    kind: str
    number: int


def _write_csv(report: ProfileReport, directory: str) -> None:
    """Write a file for each table of the report; raise OSError if that fails."""
    import csv

    for name, rows in _tables(report):
        text = io.StringIO()
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        path = os.path.join(directory, f"{name}.csv")
        jsonout.put(text.getvalue().encode(), path)


def _tables(report: ProfileReport) -> Iterator[tuple[str, list[dict[str, object]]]]:
    """Yield each table that is not empty: its name, and its rows as dictionaries."""
    counts = msgspec.structs.asdict(report.counts)
    kinds = ("files", "directories", "links", "special", "total")
    yield "counts", [{"kind": kind, **msgspec.structs.asdict(counts[kind])} for kind in kinds]
    found: list[tuple[str, Sequence[msgspec.Struct]]] = [("sizes", report.sizes.bins)]
    if report.tree is not None:
        found.append(("tree", report.tree.directories))
    found += [(f"by-{dimension}", groups) for dimension, groups in (report.by or {}).items()]
    if report.top is not None:
        found += [
            (f"top-{name}", rows) for name, rows in msgspec.structs.asdict(report.top).items()
        ]
    specials = [Special(kind, number) for kind, number in report.counts.specials.items()]
    found += [
        ("specials", specials),
        ("blocks", report.blocks or ()),
        ("stripes", report.stripes or ()),
    ]
    single = ("data_in_inode", "sparse", "compression")
    found += [(name, (row,)) for name in single if (row := getattr(report, name)) is not None]
    found += [("failures", report.failures)]
    for name, rows in found:
        if rows:
            yield name.replace("_", "-"), list(map(msgspec.structs.asdict, rows))


# ---- checks --------------------------------------------------------------------------------------


def check_outputs(options: ProfileOptions) -> None:
    """Raise UsageError if an output file cannot be written, before the walk begins."""
    _check_files(options)
    if options.plot is not None:
        from pcircle.cli import pictures

        pictures.check(options.plot)
    if options.csv is not None:
        _check_directory(options.csv)


def _check_files(options: ProfileOptions) -> None:
    files = {"json": options.json, "save": options.save, "html": options.html}
    files |= {"plot": options.plot, "error-log": options.error_log}
    files |= {f"list-out={kind}": name for kind, name in options.lists}
    if options.save is not None and options.entries:
        files["entries"] = index_of(options.save)
    option_by_path: dict[str, str] = {}
    for option, where in files.items():
        if where is None or (option, where) == ("json", "-"):
            continue
        shown = show(os.fsencode(where))
        if where == "-":
            raise UsageError(f"--{option}: '-' is not supported: the text is on standard output")
        # Logs and lists are checked when they are opened at the start.
        if not option.startswith(("error-log", "list-out")):
            jsonout.check(where)
        other = option_by_path.setdefault(os.path.realpath(where), option)
        if other != option and not where.startswith("/dev/"):
            raise UsageError(f"--{other} and --{option} cannot both write to '{shown}'")


def _check_directory(directory: str) -> None:
    """Create the directory if it is missing; raise UsageError if files cannot be created in it."""
    if directory == "-":
        raise UsageError("--csv: '-' is not supported: specify a directory, or ./- for this name")
    try:
        make_directory(os.fsencode(directory), option=True)
        problem = "" if os.access(directory, os.W_OK | os.X_OK) else os.strerror(errno.EACCES)
    except OSError as error:
        problem = error.strerror or str(error)
    if problem:
        raise UsageError(f"--csv: cannot write to '{show(os.fsencode(directory))}': {problem}")
