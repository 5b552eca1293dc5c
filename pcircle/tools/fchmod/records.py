"""Undo records, on disk at rank 0 before entries are changed (`--undo`).

A rank waits until its records are on disk, so it sends the records of many entries together. Before
a block of names is changed, the known states of all its entries are recorded. A state that differs
later, for example of an exchanged file, is recorded separately.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pcircle.core.errors import StoppedEarly
from pcircle.jobs.action_log import Lines
from pcircle.runtime import Context

_TOGETHER = 256  # lines in a notice


class Records:
    """The undo records of one thread."""

    def __init__(self) -> None:
        self.context: Context[Any] | None = None
        self._recorded: set[bytes] = set()

    def add(self, lines: Iterable[bytes]) -> None:
        """Record entries that will be changed next. StoppedEarly."""
        self._recorded = set(lines)
        self._record(sorted(self._recorded))

    def demand(self, line: bytes) -> None:
        """Record an entry unless `add` has recorded it. StoppedEarly."""
        if line not in self._recorded:
            self._record([line])

    def _record(self, lines: list[bytes]) -> None:
        parts = (lines[at : at + _TOGETHER] for at in range(0, len(lines), _TOGETHER))
        notices = [Lines(b"", planned=b"".join(part)) for part in parts]
        if self.context is None or not self.context.note_synced(notices):
            raise StoppedEarly("entries that are not recorded were not changed")
