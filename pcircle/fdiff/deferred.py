"""What is known at the end only, on rank 0: how names are grouped by hard links, and what moved.

Both come from records that are sorted in temporary files, so memory is constant however many there
are. A record has no slash and its fields no NUL, see `pcircle.fs.sorting`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pcircle.comparing.fields import LINKS
from pcircle.fdiff.plan import Alone, Linked
from pcircle.fdiff.telling import Telling
from pcircle.fs.sorting import Sorter

_SLASH, _STAND_IN = b"/", b"\0"
_TOLD_AT_ONCE = 256


class Groups:
    """Names of files of which one side has several: do those of a file of A name one file of B?

    The first name of each file, by its path, is taken to be right: the others differ if they are
    another file on the other side.
    """

    def __init__(self) -> None:
        self._by_a = Sorter()

    def add(self, pair: Linked) -> None:
        """One more name. OSError without the space."""
        rest = b"%x:%x %d %d %d" % (*pair.b, pair.different, pair.mode, pair.size)
        self._by_a.add(_packed(b"%020x:%020x" % pair.a, pair.path, rest))

    def pairs(self) -> Iterator[tuple[bytes, int, int, int]]:
        """All names, with what they have different, and A's mode and size. OSError as of `add`."""
        by_b = Sorter()
        try:
            first = b"", b""
            for record in self._by_a.sorted():
                a, path, rest = _unpacked(record)
                b, different, mode, size = rest.split(b" ")
                first = (a, b) if a != first[0] else first
                bits = int(different) | LINKS * (b != first[1])
                device, _, inode = b.partition(b":")
                key = b"%020x:%020x" % (int(device, 16), int(inode, 16))
                by_b.add(_packed(key, path, b"%b %d %b %b" % (a, bits, mode, size)))
            first = b"", b""
            for record in by_b.sorted():
                b, path, rest = _unpacked(record)
                a, different, mode, size = rest.split(b" ")
                first = (b, a) if b != first[0] else first
                yield path, int(different) | LINKS * (a != first[1]), int(mode), int(size)
        finally:
            by_b.close()

    def close(self) -> None:
        """Give the space back."""
        self._by_a.close()


class Moves:
    """Files of one side: those of A and of B that are alike are pairs, in the order of paths.

    Alike are files of one size and either one modification time or one digest. Empty ones are not.
    """

    def __init__(self, *, by_content: bool) -> None:
        self._by_content = by_content
        self._sides = Sorter(), Sorter()

    def add(self, file: Alone) -> None:
        """One more file. OSError without the space."""
        what = file.digest.hex().encode() if self._by_content else b"%021d" % file.mtime_ns
        key = b"%020d %b" % (file.size, what)
        self._sides[file.side].add(_packed(key, file.path, b"%d %d" % (file.mode, file.told)))

    def tell(self, telling: Telling, context: Any) -> None:
        """Tell of all of them, moved or alone. OSError as of `add`."""
        heads = [map(_unpacked, side.sorted()) for side in self._sides]
        a, b = (next(head, None) for head in heads)
        told = 0
        while a is not None or b is not None:
            if a is not None and b is not None and a[0] == b[0] and int(a[0][:20]):
                size, mode = int(a[0][:20]), int(a[2].split(b" ")[0])
                telling.moved(a[1], b[1], mode, size)
                a, b = next(heads[0], None), next(heads[1], None)
            elif b is None or (a is not None and a[0] <= b[0]):
                _alone(telling, 0, a or (b"", b"", b""))
                a = next(heads[0], None)
            else:
                _alone(telling, 1, b)
                b = next(heads[1], None)
            told += 1
            if not told % _TOLD_AT_ONCE:
                telling.tell(context)

    def close(self) -> None:
        """Give the space back."""
        for side in self._sides:
            side.close()


def _alone(telling: Telling, side: int, record: tuple[bytes, bytes, bytes]) -> None:
    key, path, rest = record
    mode, told = map(int, rest.split(b" "))
    telling.alone(side, path, mode, int(key[:20]), told=bool(told))


def tell_groups(groups: Groups, telling: Telling, context: Any) -> None:
    """Tell of all names that have others. OSError without the space."""
    for told, pair in enumerate(groups.pairs(), 1):
        path, different, mode, size = pair
        telling.pair(path, mode, size, different)
        if not told % _TOLD_AT_ONCE:
            telling.tell(context)


def _packed(key: bytes, path: bytes, rest: bytes) -> bytes:
    """A record, sorted by its key and then by its path, as trees are."""
    return key + b"\1" + path.replace(_SLASH, _STAND_IN) + b"\0\0" + rest


def _unpacked(record: bytes) -> tuple[bytes, bytes, bytes]:
    key, _, text = record.partition(b"\1")
    path, _, rest = text.rpartition(b"\0\0")
    return key, path.replace(_STAND_IN, _SLASH), rest
