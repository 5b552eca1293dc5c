"""The columns of a listing: what ls says of each entry, and how wide that is.

Each column is made of many entries at once. One formatting operation then makes a line, or the
listing of a small directory. The widths of the columns of a directory are known when all its
entries were looked up: columns of a large one travel, and rank 0 takes the largest of their widths.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from operator import add
from typing import Any

import msgspec

from pcircle.fls.decor import Decor, Extra
from pcircle.fls.looked import Looked, known
from pcircle.fls.plan import Form
from pcircle.fls.shapes import in_columns
from pcircle.guards import require
from pcircle.ui.listing import Modes, Times, groups, human, users

_BLOCK_BYTES = 512
_UNKNOWN = b"?"
_SOURCES = {
    "inode": "inode",
    "space": "blocks",
    "mode": "mode",
    "links": "links",
    "user": "uid",
    "group": "gid",
    "size": "size",
}
"""Columns of the status of entries, by the columns of a listing that are made of them."""


class Widths(msgspec.Struct, array_like=True):
    """How wide columns are, those of a device's two numbers, and which columns of names also have
    numbers, which stand to the right. `blocks` are those of all entries; `heading` is the line
    above them.
    """

    columns: list[int]
    major: int = 0
    minor: int = 0
    numbers: int = 0
    blocks: int = 0
    heading: bytes = b""

    def add(self, other: Widths) -> None:
        """The widths of both."""
        if not self.columns or not other.columns:
            self.columns = self.columns or other.columns
        self.columns = list(map(max, self.columns, other.columns or self.columns))
        self.major, self.minor = max(self.major, other.major), max(self.minor, other.minor)
        self.numbers |= other.numbers
        self.blocks += other.blocks
        self.heading = self.heading or other.heading


Rows = Iterable[Sequence[bytes]]


class Fields:
    """Makes columns and lines of one form."""

    def __init__(self, form: Form, now_ns: int) -> None:
        self._form = form
        self._texts: dict[str, Callable[[int], bytes]] = {
            "inode": b"%d".__mod__,
            "space": self.space,
            "mode": Modes().__getitem__,
            "links": users(numeric=True).__getitem__,
            "user": users(numeric=form.numeric).__getitem__,
            "group": groups(numeric=form.numeric).__getitem__,
            "size": human if form.human else b"%d".__mod__,
        }
        self._times = Times(form.style, now_ns)
        self._time_width = len(self._times.text(now_ns))
        self._decor = Decor(form)
        self._templates: dict[tuple[int, ...], bytes] = {}
        owner, group = (form.long and shown for shown in (form.owner, form.group))
        left = "right" if form.numeric else "left"
        columns = (
            ("inode", form.inode, "right"),
            ("space", form.blocks, "right"),
            ("mode", form.long, "left"),
            ("links", form.long, "right"),
            ("user", owner, left),
            ("group", group, left),
            ("context", form.context, "left" if form.long else "right"),
            ("size", form.long, "right"),
            ("time", form.long, ""),
        )
        shown = [(name, align) for name, is_shown, align in columns if is_shown]
        self._columns = [name for name, _ in shown]
        self._aligns = [align for _, align in shown]

    # ---- columns ---------------------------------------------------------------

    def of(self, looked: Looked) -> tuple[list[tuple[bytes, ...]], Widths]:
        """The columns of entries as rows, with the name as the last, and widths of the others."""
        if looked.stats is None:
            return [(name,) for name in self._decor.plain(looked.typed)], Widths([])
        made, names, widths = self._made(looked)
        widths.columns = [max(map(len, column), default=0) for column in made]
        if self._form.has_total:
            widths.blocks = sum(known(looked.column("blocks"), looked.failed))
        return list(zip(*made, names, strict=True)), widths

    def bodies(
        self, looked: Looked, ranges: Sequence[tuple[int, int]], *, turns: bool
    ) -> list[bytes] | None:
        """The text of several listings: each range of these regular files is one.

        With `turns` the last file is the first of its listing. A column with one text, as most are
        in the directories of one user, becomes a part of the template.

        None if some owners have names and some do not, which are not aligned alike.
        """
        form, count = self._form, len(looked.names)
        if not count:
            return [self.total(0)] * len(ranges)
        step = -1 if turns else 1
        parts: list[bytes] = []
        uneven: list[tuple[int, str, list[int]]] = []  # parts, and the lengths of their texts
        varied: list[Sequence[object]] = []
        for name, align in zip(self._columns, self._aligns, strict=True):
            part, texts = self._part_of(name, looked)
            if name in ("user", "group") and not form.numeric and any(map(bytes.isdigit, texts)):
                return None
            if texts and align:
                lengths = list(map(len, texts[::step]))
                if lengths.count(lengths[0]) < count:
                    uneven.append((len(parts), align, lengths))
            parts.append(part)
            if texts:
                varied.append(texts[::step])
        modes = [] if looked.stats is None else looked.column("mode")
        varied.append(self._decor.names(looked, modes, {})[::step])
        each, values = len(varied), tuple(chain.from_iterable(zip(*varied, strict=True)))
        blocks = looked.column("blocks")[::step] if form.has_total else []
        if turns:
            ranges = [(count - stop, count - start) for start, stop in ranges]
        known: dict[tuple[int, ...], bytes] = {}
        found = []
        for at, end in ranges:
            wide = (end - at, *[max(lengths[at:end], default=0) for _, _, lengths in uneven])
            template = known.get(wide)
            if template is None:
                for (place, align, _), width in zip(uneven, wide[1:], strict=True):
                    parts[place] = _part(align, width)
                template = known[wide] = (b" ".join([*parts, b"%b"]) + form.end) * (end - at)
            found.append(template % values[each * at : each * end])
        if form.columns:
            found = [self.text(text.split(form.end)[:-1]) for text in found]
        if blocks:
            totals = [self.total(sum(blocks[at:end])) for at, end in ranges]
            found = list(map(add, totals, found))
        return found

    def _part_of(self, name: str, looked: Looked) -> tuple[bytes, Sequence[Any]]:
        """A part of the template of lines, and what it is filled with, if it is not one text."""
        if name == "time":
            time = self._form.time
            return self._times.template(looked.column(time), looked.column(f"{time}_ns"))
        number = require(looked.stats).common(_SOURCES[name], len(looked.names))
        if number is None:
            return b"%b", self._column(name, looked, {})
        return self._texts[name](number).replace(b"%", b"%%"), ()

    def _made(self, looked: Looked) -> tuple[list[list[bytes]], list[bytes], Widths]:
        """The columns of entries, their names, and widths, but not of the columns."""
        widths = Widths([])
        modes = looked.column("mode")
        extra = self._decor.extra(looked, modes)
        made = [self._column(name, looked, extra) for name in self._columns]
        for number, (name, column) in enumerate(zip(self._columns, made, strict=True)):
            if name == "size":
                _put_devices(column, looked, modes, widths)
            elif name == "mode":
                for place, more in extra.items():
                    column[place] += more.get("mark", b"")
            elif name in ("user", "group") and not self._form.numeric:
                widths.numbers |= any(map(bytes.isdigit, set(column))) << number
        for place in looked.failed:
            self._put_unknown(made, place, looked.kinds.get(looked.names[place], _UNKNOWN))
        return made, self._decor.names(looked, modes, extra), widths

    def _column(self, name: str, looked: Looked, extra: Extra) -> list[bytes]:
        """A column of entries."""
        if name == "time":
            time = self._form.time
            return self._times.texts(looked.column(time), looked.column(f"{time}_ns"))
        if name == "context":
            places = range(len(looked.names))
            return [extra.get(place, {}).get("context", _UNKNOWN) for place in places]
        return list(map(self._texts[name], looked.column(_SOURCES[name])))

    def space(self, blocks: int) -> bytes:
        """So many blocks of 512 bytes in KiB, or for people."""
        return human(blocks * _BLOCK_BYTES) if self._form.human else b"%d" % (-(-blocks // 2))

    def _put_unknown(self, made: list[list[bytes]], place: int, kind: bytes) -> None:
        for name, column in zip(self._columns, made, strict=True):
            column[place] = _UNKNOWN
            if name == "mode":
                column[place] = kind + _UNKNOWN * 9
            if name == "time":
                column[place] = _UNKNOWN.rjust(self._time_width)

    # ---- lines -----------------------------------------------------------------

    def lines(self, rows: Rows, widths: Widths) -> list[bytes]:
        """The lines of entries, without their ends."""
        if len(self._columns) == 0:
            return [row[-1] for row in rows]
        wide = list(widths.columns)
        if not wide:  # there are no entries
            return []
        if widths.minor:
            rows = self._with_devices(rows, widths.minor)
            size = self._columns.index("size")
            wide[size] = max(wide[size], widths.major + 2 + widths.minor)
        if widths.numbers:
            rows = self._with_numbers(rows, widths.numbers, wide)
        template = self._templates.get(tuple(wide))
        if template is None:
            if len(self._templates) > 1 << 12:
                self._templates.clear()
            template = b" ".join([*map(_part, self._aligns, wide), b"%b"])
            self._templates[tuple(wide)] = template
        return list(map(template.__mod__, map(tuple, rows)))

    def _with_devices(self, rows: Rows, minor: int) -> Iterable[list[bytes]]:
        size = self._columns.index("size")
        for row in rows:
            changed = list(row)
            first, comma, second = changed[size].partition(b", ")
            if comma:
                changed[size] = first + comma + second.rjust(minor)
            yield changed

    def _with_numbers(self, rows: Rows, which: int, wide: list[int]) -> Iterable[list[bytes]]:
        places = [place for place in range(len(wide)) if which >> place & 1]
        for row in rows:
            changed = list(row)
            for place in places:
                if changed[place].isdigit():
                    changed[place] = changed[place].rjust(wide[place])
            yield changed

    def text(self, lines: Sequence[bytes]) -> bytes:
        """Lines as they are printed, in columns if that is so."""
        if self._form.columns and lines:
            return in_columns(lines, self._form.columns)
        return self._form.end.join([*lines, b""])

    def total(self, blocks: int) -> bytes:
        """The line of a directory's blocks, if there is one."""
        form = self._form
        return b"total %b%b" % (self.space(blocks), form.end) if form.has_total else b""

    def shown(self, names: Sequence[bytes]) -> list[bytes]:
        """Names as they are shown."""
        return self._decor.plain(names)


def _part(align: str, width: int) -> bytes:
    """A column of a template."""
    return b"%%%b%db" % (b"-" if align == "left" else b"", width) if align else b"%b"


def _put_devices(column: list[bytes], looked: Looked, modes: list[int], widths: Widths) -> None:
    """Put the numbers of devices in the place of their sizes."""
    if not any(stat.S_ISBLK(mode) or stat.S_ISCHR(mode) for mode in set(modes)):
        return
    devices = looked.column("rdev")
    for place, mode in enumerate(modes):
        if stat.S_ISBLK(mode) or stat.S_ISCHR(mode):
            major, minor = os.major(devices[place]), os.minor(devices[place])
            widths.major = max(widths.major, len(str(major)))
            widths.minor = max(widths.minor, len(str(minor)))
            column[place] = b"%d, %d" % (major, minor)
