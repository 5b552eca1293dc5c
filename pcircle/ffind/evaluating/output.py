"""What one part of a rank has to write: gathered in the order in which it is found, and sent.

Text goes to rank 0, which writes it: to standard output, standard error, or a file of -fprint. With
an order wanted (`Ordered`) the text of each entry is a record, and for -top only the best are kept.
An event (-quit, -limit) stands among the text where it happened; rank 0 decides by these what is
still written, so that a limit is exact whatever all ranks have found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from pcircle.ffind.evaluating.entry import Entry

QUIT = -1
_FEW_BYTES = 1 << 15


class Found(msgspec.Struct, frozen=True, array_like=True, tag="o"):
    """Text for a stream, whole lines of it; or an event: the number of a limit, or `QUIT`."""

    stream: int
    text: bytes
    event: int = 0


class Records(msgspec.Struct, frozen=True, array_like=True, tag="k"):
    """Records, each a key and a text, which rank 0 has to put in order."""

    records: tuple[tuple[bytes, bytes], ...]


class Links(msgspec.Struct, frozen=True, array_like=True, tag="i"):
    """Hard-linked files: each a device, an inode and so many blocks."""

    files: tuple[tuple[int, int, int], ...]


class Ordered(msgspec.Struct, frozen=True):
    """Makes the key of an entry; with `top` only so many of the largest are wanted."""

    key: Callable[[Entry], bytes]
    top: int | None = None


class Output:
    """Of one part. `note` is what a context has for telling rank 0."""

    def __init__(self, ordered: Ordered | None = None) -> None:
        self._ordered = ordered
        self._pending: list[Found] = []
        self._texts: list[bytes] = []
        self._stream = 0
        self._size = 0
        self._here: list[bytes] = []  # of the entry at hand
        self._records: list[tuple[bytes, bytes]] = []
        self._links: list[tuple[int, int, int]] = []
        self.flush: Callable[[], None] = lambda: None

    def add(self, stream: int, text: bytes) -> None:
        """Text for a stream."""
        if self._ordered is not None and stream == 0:
            self._here.append(text)
            return
        if stream != self._stream:
            self.settle()
            self._stream = stream
        self._texts.append(text)
        self._size += len(text)
        if self._size > _FEW_BYTES:
            self.flush()

    def settle(self) -> None:
        """What comes next is not of the same piece."""
        if self._texts:
            self._pending.append(Found(self._stream, b"".join(self._texts)))
            self._texts = []

    def event(self, number: int) -> None:
        """Something happens, after what has been written so far."""
        self.settle()
        self._pending.append(Found(0, b"", number))

    def linked(self, device: int, inode: int, blocks: int) -> None:
        """A hard-linked file was found."""
        self._links.append((device, inode, blocks))
        if len(self._links) >= 1024:
            self.flush()

    def entry_done(self, entry: Entry) -> None:
        """An entry has been evaluated."""
        ordered = self._ordered
        if ordered is None or not self._here:
            return
        self._records.append((ordered.key(entry), b"".join(self._here)))
        self._here = []
        if ordered.top is None:
            self._size += len(self._records[-1][1]) + len(self._records[-1][0])
            if self._size > _FEW_BYTES:
                self.flush()
        elif len(self._records) >= 2 * ordered.top + 64:
            self.best()

    def best(self) -> None:
        """Keep only the records that can be among the wanted ones."""
        if self._ordered is not None and self._ordered.top is not None:
            self._records.sort()
            del self._records[self._ordered.top :]

    def take(self, *, all_: bool) -> Sequence[Any]:
        """What there is to be sent now; records of a top only with `all_`."""
        self.settle()
        found: list[Any] = self._pending
        self._pending, self._size = [], 0
        if self._links:
            found.append(Links(tuple(self._links)))
            self._links = []
        if self._records and (all_ or (self._ordered is not None and self._ordered.top is None)):
            self.best()
            found.append(Records(tuple(self._records)))
            self._records = []
        return found
