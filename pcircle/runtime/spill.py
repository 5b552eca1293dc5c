"""Storage for the middle of a long queue: one unnamed temporary file per rank.

A segment is written at the end of the file. The segment fetched next is usually the last one
written (the own end is last-in first-out), so the file is then truncated; it is empty again when
all segments are gone. It has no name, so a killed job leaves nothing behind.
"""

from __future__ import annotations

import os
from typing import IO

from pcircle.core.writing import discard, write_at


class SpillFile:
    """Numbered byte strings on disk; OSError if the temporary directory cannot hold them."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._places: dict[int, tuple[int, int, int]] = {}  # descriptor, offset, size
        self._order: list[tuple[int, int]] = []  # numbers and offsets in file order
        self._end = 0

    def keep(self, number: int, data: bytes) -> None:
        """Store a segment."""
        if self._file is None:
            import tempfile  # slow to import, and few queues spill

            self._file = tempfile.TemporaryFile(prefix="pcircle-queue-", buffering=0)  # noqa: SIM115
        fd = self._file.fileno()
        write_at(fd, data, self._end)
        self._places[number] = (fd, self._end, len(data))
        self._order.append((number, self._end))
        self._end += len(data)

    def fetch(self, number: int) -> bytes:
        """Read a segment back and discard it."""
        fd, offset, length = self._places[number]
        parts: list[bytes] = []
        while length:
            part = os.pread(fd, length, offset)
            if not part:
                raise OSError(f"the spilled segment {number} is cut short")
            parts.append(part)
            offset += len(part)
            length -= len(part)
        self.discard(number)
        return b"".join(parts)

    def discard(self, number: int) -> None:
        """Discard a segment and truncate the file to the last segment that remains."""
        del self._places[number]
        end = self._end
        while self._order and self._order[-1][0] not in self._places:
            end = self._order.pop()[1]
        if end < self._end and self._file is not None:
            os.ftruncate(self._file.fileno(), end)
            self._end = end

    def close(self) -> None:
        """Release the space."""
        if self._file is not None:
            discard(self._file)
            self._file = None
        self._places.clear()
        self._order.clear()
        self._end = 0
