"""The printer of rank 0: sorts records, on disk if necessary, and formats them.

Records are byte strings that sort in the order of the listing. Each consists of the place of a
directory, the key of an entry, a text and a letter. The place consists of the keys of the directory
and of all directories above it, separated by NULs. A record about the directory itself has no key,
so it precedes the entries. The letter distinguishes formatted text from columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, groupby, islice
from operator import itemgetter

import msgspec

from pcircle.cli.listing import Times, human
from pcircle.core.errors import StoppedEarly
from pcircle.core.units import MIN_NS
from pcircle.core.writing import CALLER
from pcircle.fs.sorting import Sorter
from pcircle.tools.fls.fields import ColumnFormatter, Widths
from pcircle.tools.fls.plan import ListPlan

OPERANDS = b"0"
"""The place of PATHs that are not directories. It precedes the places of all directories."""
DIRECTORY = ord("d")
tag_of: Callable[[bytes], int] = itemgetter(-1)
"""Return the letter of a record; `DIRECTORY` means that its text is formatted."""
_DIRECTORY = b"%b\0\0\0%b%bd"


class Record(msgspec.Struct, frozen=True):
    """A decoded record."""

    place: bytes
    key: bytes
    text: bytes


def root_place(number: int) -> bytes:
    """Return the place of a PATH that is a directory, from its position among the roots."""
    return b"1%08x" % number


def place_in(place: bytes, key: bytes) -> bytes:
    """Return the place of a directory, from the place of its parent and its own key."""
    return place + b"\0" + key


def record(place: bytes, text: bytes, key: bytes = b"") -> bytes:
    """Return the record of the entry with this key, or, if the key is empty, of the directory."""
    return b"%b\0\0%b\0%be" % (place, key, text)


def read(packed: bytes) -> Record:
    """Decode a record."""
    at = packed.index(b"\0\0")
    end = packed.index(b"\0", at + 2)
    return Record(packed[:at], packed[at + 2 : end], packed[end + 1 : -1])


def directories(
    places: Iterable[bytes], headings: Iterable[bytes], texts: Iterable[bytes]
) -> list[bytes]:
    """Return the records of directories, or of parts of directories, from their formatted text."""
    return list(map(_DIRECTORY.__mod__, zip(places, headings, texts, strict=True)))


def read_directories(packed: Iterable[bytes], between: bytes = b"") -> bytes:
    """Return the text of directory records, with `between` as separator."""
    return between.join([record[record.index(b"\0\0\0") + 3 : -1] for record in packed])


def place_of(packed: bytes) -> bytes:
    """Return the place of a record."""
    return packed[: packed.index(b"\0\0")]


_AT_ONCE = 64  # directories, each with at most tens of kilobytes of text
_TOGETHER = 4096
"""The number of lines formatted together. Directories with more are printed one name per line."""


class _Sums(msgspec.Struct, frozen=True):
    """The sums of a directory, including those subdirectories that are already added."""

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
    """Stores records until the walk has ended, or formats them at once if nothing is sorted."""

    def __init__(self, plan: ListPlan) -> None:
        self._plan, self._form = plan, plan.form
        self._fields = ColumnFormatter(plan.form, plan.now_ns)
        self._times = Times(plan.form.style, plan.now_ns)
        is_file = plan.form.is_rows and CALLER.get() is None  # a program takes rows at once
        self._sorter = Sorter() if plan.keys or is_file else None
        self._is_first = True

    def add(self, packed: Sequence[bytes]) -> bytes:
        """Store records, and return the text that can be printed already.

        Raise StoppedEarly if temporary files cannot be written.
        """
        if self._sorter is None:
            is_rows = self._form.is_rows
            return b"".join(map(_row_text, packed)) if is_rows else self._apart(packed)
        try:
            self._sorter.extend(packed)
        except OSError as error:
            raise unsorted(error) from error
        return b""

    def remaining(self) -> Iterator[bytes]:
        """Yield the text of all stored records in order.

        Raise StoppedEarly if temporary files cannot be written or read.
        """
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
        """Return the text of directory records, separated by empty lines if there are headings."""
        return b"".join([self._gap(record) + read_directories([record]) for record in packed])

    def _gap(self, packed: bytes) -> bytes:
        """Return the empty line above a directory, or nothing for the first one."""
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
        """Yield the text of a large directory, or of PATHs. Each of their entries is a record."""
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
        """Yield a line for each directory, after the lines of its subdirectories, like du."""
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
    """Return the error to raise when a temporary file for sorting cannot be used."""
    return StoppedEarly(f"cannot write temporary files: {error.strerror}")
