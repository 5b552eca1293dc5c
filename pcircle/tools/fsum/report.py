"""The result of fsum: its model and its text.

Two manifests are compared top down; subtrees with equal digests are skipped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from pcircle.cli.report import ReadReport, RootSignature, ToolReport
from pcircle.core.guards import require
from pcircle.core.names import show
from pcircle.core.units import format_count, format_duration, format_rate, format_size, plural
from pcircle.fs.directories import join_path
from pcircle.ops.digest.manifest import Manifest, pair_entries
from pcircle.tools.fsum.plan import Difference

if TYPE_CHECKING:
    from pcircle.fs.sorting import Sorter


def differences(old: Manifest, new: Manifest) -> Iterator[Difference]:
    """Yield the differences of entries of `old` and `new`, directory by directory."""
    a, b = old.root, new.root
    if (a.kind, a.digest) == (b.kind, b.digest):
        return
    if a.kind != b"d" or b.kind != b"d":
        yield Difference("changed", b".")
        return
    paths = [b""]
    while paths:
        path = paths.pop()
        deeper = []
        sections = (iter(manifest.section(path) or ()) for manifest in (old, new))
        for was, now in pair_entries(*sections):
            entry = require(now or was)
            inner = join_path(path, entry.name)
            shown = inner + (b"/" if entry.kind == b"d" else b"")
            if was is None:
                yield Difference("new", shown)
            elif now is None:
                yield Difference("missing", shown)
            elif (was.kind, was.digest) != (now.kind, now.digest):
                if was.kind == now.kind == b"d":
                    deeper.append(inner)
                else:
                    yield Difference("changed", shown)
        paths += reversed(deeper)


SCHEMA = 1
_BETWEEN = b"\0\0"  # occurs in no path, because names are not empty, and sorts first


class ReportedDifference(msgspec.Struct, frozen=True):
    """An entry that differs from the manifest; the path is relative to its root."""

    what: str
    path: str


class ManifestComparison(ToolReport, frozen=True):
    """The differences of two manifests."""

    differences: tuple[ReportedDifference, ...]


class SumReport(ReadReport, frozen=True):
    """The result of a signature; `entries` counts entries with a digest.

    `bad_lines` counts invalid lines of a checksum list. Files in a manifest or list are counted as
    `checked`, `unchecked` or `missing`.
    """

    algorithm: str
    signatures: tuple[RootSignature, ...]
    differences: tuple[ReportedDifference, ...] = ()
    bad_lines: int = 0
    checked: int = 0
    unchecked: int = 0
    missing: int = 0


class Differences:
    """Collects differences and yields them in the order of the tree. OSError.

    A comparison with the wrong tree reports every entry, so large numbers of differences are sorted
    in files.
    """

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self._sorter: Sorter | None = None

    def __bool__(self) -> bool:
        return bool(self.kinds)

    def add(self, found: Iterable[Difference]) -> None:
        """Add differences."""
        if self._sorter is None:
            from pcircle.fs.sorting import Sorter  # most runs find no differences

            self._sorter = Sorter()
        for difference in found:
            self.kinds[difference.what] += 1
            self._sorter.add(
                difference.path.replace(b"/", b"\0") + _BETWEEN + difference.what.encode()
            )

    def reported(self) -> Iterator[ReportedDifference]:
        """Yield all differences once, a directory before its contents."""
        for record in () if self._sorter is None else self._sorter.sorted():
            path, _, what = record.rpartition(_BETWEEN)
            yield ReportedDifference(what.decode(), show(path.replace(b"\0", b"/")))

    def close(self) -> None:
        """Delete the temporary files."""
        if self._sorter is not None:
            self._sorter.close()


_UNCHECKED = {"rot": "modified since", "quick": "of unchanged size and time"}


def verdict(kinds: Counter[str], report: SumReport, mode: str) -> str:
    """Return the result of a check in one line: differences by kind, and unchecked files."""
    phrases = [f"{format_count(kinds[what])} {what}" for what in sorted(kinds)]
    parts = []
    if report.unchecked:
        parts.append(f"{format_count(report.unchecked)} {_UNCHECKED[mode]}, not checked")
    if report.missing and not kinds["missing"]:
        parts.append(f"{format_count(report.missing)} missing")
    if parts:
        files = plural(report.checked + report.unchecked + report.missing, "file", "files")
        phrases.append(f"{format_count(report.checked)} of {files} checked ({'; '.join(parts)})")
    if phrases:
        return ", ".join(phrases)
    return f"{'readable contents' if report.failed else 'contents'} match the manifest"


def bad_lines(count: int) -> str:
    """Return the text about invalid lines of a checksum list."""
    return f"{format_count(count)} line{'s are' if count > 1 else ' is'} improperly formatted"


def summary(report: SumReport) -> str:
    """Return the summary of the entries read, in one line."""
    failed = f"{plural(report.failed, 'entry', 'entries')} failed; " if report.failed else ""
    rate = format_count(round(report.entries_per_s))
    return (
        f"{failed}signed {plural(report.entries, 'entry', 'entries')}, "
        f"{format_size(report.bytes)} in {format_duration(report.elapsed_s)}: "
        f"{format_rate(report.bytes_per_s)}, {rate} entries/s"
    )
