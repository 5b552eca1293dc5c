"""Batches of names that were looked up together."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pcircle.core.guards import require
from pcircle.fs.stats import Stats


class Looked(msgspec.Struct, frozen=True):
    """Names of a directory, with columns of `stats` if they were looked up.

    `failed` has the errors of failed look-ups, and `kinds` the letters of ls for these names.
    `printed` are the printed names, and `shown` is the path of the directory, empty for PATHs. The
    first names are the directory `itself`: ``.`` and ``..``. `led` has the modes of link targets,
    on request.
    """

    names: Sequence[bytes]
    printed: Sequence[bytes]
    stats: Stats | None
    failed: dict[int, OSError]
    kinds: dict[bytes, bytes]
    fd: int
    shown: bytes
    itself: int
    led: dict[int, int]

    def column(self, name: str) -> list[int]:
        """Return a column of numbers."""
        return require(self.stats).column(name, 0, len(self.names))


def known(column: list[int], failed: dict[int, OSError]) -> list[int]:
    """Return a column without failed entries."""
    if not failed:
        return column
    return [value for place, value in enumerate(column) if place not in failed]
