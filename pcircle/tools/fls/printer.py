"""The printer of rank 0: sorts records, on disk if necessary, and formats them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby, islice

import msgspec

from pcircle.cli.listing import Times, human
from pcircle.core.errors import StoppedEarly
from pcircle.core.timestamps import MIN_NS
from pcircle.fs.sorting import Sorter
from pcircle.tools.fls.fields import Fields, Widths
from pcircle.tools.fls.plan import ListPlan
from pcircle.tools.fls.records import (
    DIRECTORY,
    OPERANDS,
    Record,
    place_of,
    read,
    read_directories,
    tag_of,
)

_AT_ONCE = 64  # directories, each with up to some ten kilobytes of text
_TOGETHER = 4096
"""The number of lines formatted together; larger directories have one name per line."""


class _Sums(msgspec.Struct, frozen=True):
    """The sums of a directory, including the subdirectories added so far."""

    place: bytes
    shown: bytes
    entries: int = 0
    size: int = 0
    blocks: int = 0
    newest_ns: int = MIN_NS

    def plus(self, other: _Sums) -> _Sums:
        """Return the sum of two sums."""
        more = (self.entries + other.entries, self.size + other.size, self.blocks + other.blocks)
        return _Sums(self.place, self.shown, *more, max(self.newest_ns, other.newest_ns))


class Printer:
    """Receives records, and prints unsorted output at once."""

    def __init__(self, plan: ListPlan) -> None:
        self._plan, self._form = plan, plan.form
        self._fields = Fields(plan.form, plan.now_ns)
        self._times = Times(plan.form.style, plan.now_ns)
        self._sorter = Sorter() if plan.keys or plan.form.is_rows else None
        self._is_first = True

    def add(self, packed: Sequence[bytes]) -> bytes:
        """Store records; return text to print now. Raise StoppedEarly if the disk is full."""
        if self._sorter is None:
            return self._apart(packed)
        try:
            self._sorter.extend(packed)
        except OSError as error:
            raise unsorted(error) from error
        return b""

    def rest(self) -> Iterator[bytes]:
        """Yield the text of all stored records in order. StoppedEarly."""
        if self._sorter is None:
            return
        try:
            records = self._sorter.sorted()
            if self._form.shape == "total":
                yield from self._totals(map(read, records))
            elif self._form.is_rows:
                yield from map(_row_text, records)
            else:
                yield from self._directories(records)
        except OSError as error:
            raise unsorted(error) from error

    def close(self) -> None:
        """Delete the temporary files."""
        if self._sorter is not None:
            self._sorter.close()

    def _apart(self, packed: Sequence[bytes]) -> bytes:
        """Return the text of directories with separating lines."""
        return b"".join([self._gap(record) + read_directories([record]) for record in packed])

    def _gap(self, packed: bytes) -> bytes:
        """Return the empty line above a directory, except above the first one."""
        is_first, self._is_first = self._is_first, False
        return b"\n" * (self._plan.headed and not is_first and not packed.startswith(OPERANDS))

    def _directories(self, records: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the text of all directories and PATHs."""
        between = b"\n" * self._plan.headed
        for tag, group in groupby(records, tag_of):
            if tag == DIRECTORY:
                while batch := list(islice(group, _AT_ONCE)):
                    yield self._gap(batch[0]) + read_directories(batch, between)
            else:
                for place, entries in groupby(group, place_of):
                    yield from self._wide(place, entries)

    def _wide(self, place: bytes, entries: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the text of a directory that consists of many records, or of PATHs."""
        widths = Widths([])
        for packed in entries:
            found = read(packed)
            if found.key:
                entries = chain((packed,), entries)
                break
            widths.add(msgspec.msgpack.decode(found.text, type=Widths))
        rows = (read(packed).text.split(b"\0") for packed in entries)
        batch = list(islice(rows, _TOGETHER))
        lines = self._fields.lines(batch, widths)
        above = self._gap(place) + widths.heading
        if place != OPERANDS:
            above += self._fields.total(widths.blocks)
        if len(batch) < _TOGETHER:
            yield above + self._fields.text(lines)
            return
        yield above
        while lines:
            yield self._form.end.join([*lines, b""])
            lines = self._fields.lines(list(islice(rows, _TOGETHER)), widths)

    # ---- sums ------------------------------------------------------------------

    def _totals(self, records: Iterable[Record]) -> Iterator[bytes]:
        """Yield a line for each directory, after the lines of its subdirectories, as in du."""
        above: list[_Sums] = []
        for found in records:
            numbers, shown = found.text.split(b" ", 4)[:4], found.text.split(b" ", 4)[4]
            sums = _Sums(found.place, shown, *map(int, numbers))
            if found.place == OPERANDS:
                yield self._sum(sums)
                continue
            while above and not _is_below(found.place, above[-1].place):
                yield from self._left(above)
            if above and above[-1].place == found.place:
                above[-1] = above[-1].plus(sums)
            else:
                above.append(sums)
        while above:
            yield from self._left(above)

    def _left(self, above: list[_Sums]) -> Iterator[bytes]:
        done = above.pop()
        if above:
            above[-1] = above[-1].plus(done)
        if self._plan.deep or not above:
            yield self._sum(done)

    def _sum(self, sums: _Sums) -> bytes:
        size = human(sums.size) if self._form.human else b"%d" % sums.size
        (shown,) = self._fields.shown([sums.shown])
        newest = self._times.text(sums.newest_ns)
        columns = (b"%d" % sums.entries, size, self._fields.space(sums.blocks), newest, shown)
        return b"\t".join(columns) + self._form.end


def _row_text(packed: bytes) -> bytes:
    return read_directories([packed]) if tag_of(packed) == DIRECTORY else read(packed).text


def _is_below(place: bytes, above: bytes) -> bool:
    return place == above or place.startswith(above + b"\0")


def unsorted(error: OSError) -> StoppedEarly:
    """Return the error for results that fit neither into memory nor into temporary files."""
    return StoppedEarly(f"cannot write temporary files: {error.strerror}")
