"""Names that were looked up together."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pcircle.fs.stats import Stats
from pcircle.guards import require


class Looked(msgspec.Struct, frozen=True):
    """Names of a directory, and if they were looked up columns of `stats`, but of those that
    `failed`.

    `typed` is how they are shown, `kinds` are letters as of ls for those that failed, `shown` is
    the path of the directory, empty for PATHs themselves. The first so many are the directory
    `itself`, as ``.`` and ``..``. `led` are the modes of what links lead to, if that is asked for.
    """

    names: Sequence[bytes]
    typed: Sequence[bytes]
    stats: Stats | None
    failed: dict[int, OSError]
    kinds: dict[bytes, bytes]
    fd: int
    shown: bytes
    itself: int
    led: dict[int, int]

    def column(self, name: str) -> list[int]:
        """A column of numbers."""
        return require(self.stats).column(name, 0, len(self.names))


def known(column: list[int], failed: dict[int, OSError]) -> list[int]:
    """A column without what is not known."""
    if not failed:
        return column
    return [value for place, value in enumerate(column) if place not in failed]
