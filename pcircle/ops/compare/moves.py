"""Matching of files that may be the same on two sides under different paths.

The entries of each side without a counterpart become records that are sorted on disk
(`pcircle.fs.sorting`), so memory use does not depend on their number. Slashes are replaced by NUL,
so that an entry sorts directly after its parent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pcircle.fs.sorting import RUN_BYTES, Sorter

_RUN_BYTES = RUN_BYTES // 8  # two sorters at once, next to the other data of rank 0
_SLASH, _STAND_IN = b"/", b"\0"


class MoveCandidate(NamedTuple):
    """A record: the key to match by, the path, and additional data."""

    key: bytes
    path: bytes
    extra: bytes


class MoveMatcher:
    """Matches the records of two sides with the same key, in the order of their paths."""

    def __init__(self) -> None:
        self._sides = Sorter(_RUN_BYTES), Sorter(_RUN_BYTES)

    def add(self, side: int, key: bytes, path: bytes, extra: bytes) -> None:
        """Add a record of side 0 or 1. OSError if there is no space."""
        self._sides[side].add(pack_candidate(key, path, extra))

    def pairs(self) -> Iterator[tuple[MoveCandidate | None, MoveCandidate | None]]:
        """Yield each record once, ordered by key, with its partner or None. OSError.

        A key that begins with a space never has a partner.
        """
        heads = [map(unpack_candidate, side.sorted()) for side in self._sides]
        a, b = (next(head, None) for head in heads)
        while a is not None or b is not None:
            if a is not None and b is not None and a.key == b.key and a.key[:1] != b" ":
                yield a, b
                a, b = next(heads[0], None), next(heads[1], None)
            elif b is None or (a is not None and a.key <= b.key):
                yield a, None
                a = next(heads[0], None)
            else:
                yield None, b
                b = next(heads[1], None)

    def close(self) -> None:
        """Release the temporary files."""
        for side in self._sides:
            side.close()


def pack_candidate(key: bytes, path: bytes, extra: bytes) -> bytes:
    """Pack a record so that records sort by key and then by path, in the order of trees."""
    return key + b"\1" + path.replace(_SLASH, _STAND_IN) + b"\0\0" + extra


def unpack_candidate(record: bytes) -> MoveCandidate:
    """Unpack a record."""
    key, _, text = record.partition(b"\1")
    path, _, extra = text.rpartition(b"\0\0")
    return MoveCandidate(key, path.replace(_STAND_IN, _SLASH), extra)
