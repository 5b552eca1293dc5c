"""The tables of a report as CSV files in a directory, for spreadsheets and scripts."""

from __future__ import annotations

import csv
import errno
import io
import os
from collections.abc import Iterator, Sequence

import msgspec

from pcircle.cli import json_output as jsonout
from pcircle.core.encoding import show
from pcircle.core.errors import UsageError
from pcircle.fs.safe_open import make_directory
from pcircle.tools.fprof.reports.report import ProfileReport


def check(directory: str) -> None:
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


class Special(msgspec.Struct, frozen=True):
    """The number of special files of one kind."""

    kind: str
    number: int


def write(report: ProfileReport, directory: str) -> None:
    """Write a file for each table of the report; raise OSError if that fails."""
    for name, rows in tables(report):
        text = io.StringIO()
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        path = os.path.join(directory, f"{name}.csv")
        jsonout.put(text.getvalue().encode(), path)


def tables(report: ProfileReport) -> Iterator[tuple[str, list[dict[str, object]]]]:
    """Yield each table that is not empty: its name, and its rows as dictionaries."""
    counts = msgspec.structs.asdict(report.counts)
    kinds = ("files", "directories", "links", "special", "total")
    yield "counts", [{"kind": kind, **msgspec.structs.asdict(counts[kind])} for kind in kinds]
    found: list[tuple[str, Sequence[msgspec.Struct]]] = [("sizes", report.sizes.bins)]
    if report.tree is not None:
        found.append(("tree", report.tree.directories))
    found += [(f"by-{dimension}", groups) for dimension, groups in (report.by or {}).items()]
    if report.top is not None:
        found += [(f"top-{name}", getattr(report.top, name)) for name in _names(report.top)]
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


def _names(struct: msgspec.Struct) -> tuple[str, ...]:
    return struct.__struct_fields__
