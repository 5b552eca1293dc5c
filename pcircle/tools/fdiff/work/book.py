"""Entries that only a manifest has."""

from __future__ import annotations

from typing import Any

from pcircle.fs.directories import join_path
from pcircle.ops.compare.manifests import ManifestReader, entry_mode
from pcircle.ops.digest.manifest import ManifestEntry
from pcircle.tools.fdiff.telling import Telling


class Alone:
    """Reports entries that only a manifest has, with everything below on request."""

    def __init__(self, book: ManifestReader, side: int, telling: Telling, counters: Any) -> None:
        self._book = book
        self._side = side
        self._telling = telling
        self._counters = counters

    def tell(
        self, above: bytes, entry: ManifestEntry, *, told: bool, enters: bool, each: bool
    ) -> int:
        """Report an entry of the directory `above`; return the number of entries."""
        paths, count = [(above, entry, told)], 0
        while paths:
            holder, entry, is_told = paths.pop()
            path = join_path(holder, entry.name)
            self._telling.alone(self._side, path, entry_mode(entry), entry.size, told=is_told)
            count += 1
            if enters and entry.kind == b"d":
                paths += [(path, below, each) for below in self._book.section(path)]
        return count

    def below(self, path: bytes, *, each: bool) -> int:
        """Count everything below a directory, reported with `each`; return the number."""
        entries = self._book.section(path)
        return sum(self.tell(path, e, told=each, enters=True, each=each) for e in entries)
