"""Entries that only a manifest has."""

from __future__ import annotations

from typing import Any

from pcircle.fs.directories import join_path
from pcircle.ops.compare.manifests import ManifestReader, entry_mode
from pcircle.ops.digest.manifest import ManifestEntry
from pcircle.tools.fdiff.telling import Telling


class Alone:
    """Reports entries that only a manifest has, including their contents on request."""

    def __init__(self, book: ManifestReader, side: int, telling: Telling, counters: Any) -> None:
        self._book = book
        self._side = side
        self._telling = telling
        self._counters = counters

    def tell(
        self, above: bytes, entry: ManifestEntry, *, reported: bool, enters: bool, reports_all: bool
    ) -> int:
        """Report an entry of the directory `above`; return the number of entries."""
        paths, count = [(above, entry, reported)], 0
        while paths:
            holder, entry, is_reported = paths.pop()
            path = join_path(holder, entry.name)
            self._telling.alone(
                self._side, path, entry_mode(entry), entry.size, reported=is_reported
            )
            count += 1
            if enters and entry.kind == b"d":
                paths += [(path, below, reports_all) for below in self._book.section(path)]
        return count

    def below(self, path: bytes, *, reports_all: bool) -> int:
        """Count all entries below a directory; report them if `reports_all`. Return the number."""
        entries = self._book.section(path)
        return sum(
            self.tell(path, e, reported=reports_all, enters=True, reports_all=reports_all)
            for e in entries
        )
