"""Files of two sides that may be the same one at another path: paired by what is known of them.

What each side has alone are records that are sorted on disk, so memory is constant however many
there are. A record has no slash and its fields no NUL, see `pcircle.fs.sorting`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pcircle.fs.sorting import RUN_BYTES, Sorter

_RUN_BYTES = RUN_BYTES // 8  # both sides' are there at once, beside much else that a rank 0 keeps
_SLASH, _STAND_IN = b"/", b"\0"


class Alike(NamedTuple):
    """A record: what it is alike by, its path, and what else is known of it."""

    key: bytes
    path: bytes
    rest: bytes


class Pairing:
    """Pairs of records of two sides that have the same key, in the order of their paths."""

    def __init__(self) -> None:
        self._sides = Sorter(_RUN_BYTES), Sorter(_RUN_BYTES)

    def add(self, side: int, key: bytes, path: bytes, rest: bytes) -> None:
        """One more record of side 0 or 1. OSError without the space."""
        self._sides[side].add(packed(key, path, rest))

    def pairs(self) -> Iterator[tuple[Alike | None, Alike | None]]:
        """All records, once, by their keys: what has no partner stands alone. OSError as of `add`.

        A key that begins with a space has no partner in any case.
        """
        heads = [map(unpacked, side.sorted()) for side in self._sides]
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
        """Give the space back."""
        for side in self._sides:
            side.close()


def packed(key: bytes, path: bytes, rest: bytes) -> bytes:
    """A record, sorted by its key and then by its path, as trees are."""
    return key + b"\1" + path.replace(_SLASH, _STAND_IN) + b"\0\0" + rest


def unpacked(record: bytes) -> Alike:
    """What was packed."""
    key, _, text = record.partition(b"\1")
    path, _, rest = text.rpartition(b"\0\0")
    return Alike(key, path.replace(_STAND_IN, _SLASH), rest)
