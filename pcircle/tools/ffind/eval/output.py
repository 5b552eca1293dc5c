"""The output of one thread of a rank, gathered in order and sent to rank 0.

Rank 0 writes text to standard output, standard error, or a file of -fprint. With a sort order
(`SortKeys`) the text of each entry is a record, and -top retains only the best records. Events
(-quit and -limit) are placed in the text where they happened. Rank 0 uses them to decide which text
is written, so a limit is exact even if ranks have found more entries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from pcircle.jobs.action_log import NOTICE_BYTES
from pcircle.tools.ffind.eval.entry import FindEntry

QUIT = -1


class StreamText(msgspec.Struct, frozen=True, array_like=True, tag="o"):
    """Complete lines of text for a stream, or an event: the number of a limit, or `QUIT`."""

    stream: int
    text: bytes
    event: int = 0


class SortRecords(msgspec.Struct, frozen=True, array_like=True, tag="k"):
    """Records of a key and a text, which rank 0 sorts."""

    records: tuple[tuple[bytes, bytes], ...]


class LinkedFiles(msgspec.Struct, frozen=True, array_like=True, tag="i"):
    """Hard-linked files: the device, inode and blocks of each file."""

    files: tuple[tuple[int, int, int], ...]


class SortKeys(msgspec.Struct, frozen=True):
    """Computes the sort keys of entries; `top` limits the number of entries."""

    key: Callable[[FindEntry], bytes]
    top: int | None = None


class FindOutput:
    """The output of one thread. `flush` sends pending output to rank 0."""

    def __init__(self, ordered: SortKeys | None = None) -> None:
        self._ordered = ordered
        self._pending: list[StreamText] = []
        self._texts: list[bytes] = []
        self._stream = 0
        self._size = 0
        self._here: list[bytes] = []  # texts of the current entry
        self._records: list[tuple[bytes, bytes]] = []
        self._links: list[tuple[int, int, int]] = []
        self.flush: Callable[[], None] = lambda: None

    def add(self, stream: int, text: bytes) -> None:
        """Add text for a stream."""
        if self._ordered is not None and stream == 0:
            self._here.append(text)
            return
        if stream != self._stream:
            self.settle()
            self._stream = stream
        self._texts.append(text)
        self._size += len(text)
        if self._size > NOTICE_BYTES:
            self.flush()

    def settle(self) -> None:
        """End the current piece of text."""
        if self._texts:
            self._pending.append(StreamText(self._stream, b"".join(self._texts)))
            self._texts = []

    def event(self, number: int) -> None:
        """Add an event after the text so far."""
        self.settle()
        self._pending.append(StreamText(0, b"", number))

    def linked(self, device: int, inode: int, blocks: int) -> None:
        """Add a hard-linked file."""
        self._links.append((device, inode, blocks))
        if len(self._links) >= 1024:
            self.flush()

    def entry_done(self, entry: FindEntry) -> None:
        """Complete the record of an entry."""
        ordered = self._ordered
        if ordered is None or not self._here:
            return
        self._records.append((ordered.key(entry), b"".join(self._here)))
        self._here = []
        if ordered.top is None:
            self._size += len(self._records[-1][1]) + len(self._records[-1][0])
            if self._size > NOTICE_BYTES:
                self.flush()
        elif len(self._records) >= 2 * ordered.top + 64:
            self.best()

    def best(self) -> None:
        """Retain only the records that can be among the top."""
        if self._ordered is not None and self._ordered.top is not None:
            self._records.sort()
            del self._records[self._ordered.top :]

    def take(self, *, all_: bool) -> Sequence[StreamText | LinkedFiles | SortRecords]:
        """Return the output to send now; with `all_`, also the records of a top list."""
        self.settle()
        found: list[StreamText | LinkedFiles | SortRecords] = [*self._pending]
        self._pending, self._size = [], 0
        if self._links:
            found.append(LinkedFiles(tuple(self._links)))
            self._links = []
        if self._records and (all_ or (self._ordered is not None and self._ordered.top is None)):
            self.best()
            found.append(SortRecords(tuple(self._records)))
            self._records = []
        return found
