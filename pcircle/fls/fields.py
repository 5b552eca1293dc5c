"""The columns of a listing: what ls says of each entry, and how wide that is.

Of many entries at once each column is made, as text; a line is then one formatting operation. How
wide the columns of a directory are is known when all that is in it was looked up: of a large one
the columns travel, with widths that rank 0 takes the largest of.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from pcircle.fls.decor import Decor, Extra
from pcircle.fls.looked import Looked, known
from pcircle.fls.plan import Form
from pcircle.fls.shapes import in_columns
from pcircle.guards import require
from pcircle.ui.listing import Modes, Owners, Times, groups, human, users

_BLOCK_BYTES = 512
_UNKNOWN = b"?"


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
        self._modes = Modes()
        self._numbers = users(numeric=True)
        self._users, self._groups = users(numeric=form.numeric), groups(numeric=form.numeric)
        self._times = Times(form.style, now_ns)
        self._time_width = len(self._times.text(now_ns))
        self._decor = Decor(form)
        self._templates: dict[tuple[object, ...], bytes] = {}
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
        self._makers = [getattr(self, f"_{name}") for name in self._columns]

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

    def lines_of(
        self, looked: Looked, ranges: Sequence[tuple[int, int]]
    ) -> Iterator[tuple[list[bytes], int]]:
        """The lines of regular files that were looked up, of which each range is a listing of its
        own, and the blocks of these.

        Most of several directories have the same modes, links and owners: a column of one text
        is made a part of what the lines are formatted by.
        """
        made, names, widths = self._made(looked)
        blocks = looked.column("blocks") if self._form.has_total else []
        if widths.numbers:
            rows = list(zip(*made, names, strict=True))
            for at, end in ranges:
                widths.columns = [max(map(len, column[at:end]), default=0) for column in made]
                yield self.lines(rows[at:end], widths), sum(blocks[at:end])
            return
        texts = [
            None if column.count(column[0]) < len(column) else column[0].replace(b"%", b"%%")
            for column in made
        ]
        varied = [number for number, text in enumerate(texts) if text is None]
        rows = list(zip(*(made[number] for number in varied), names, strict=True))
        wide = [0] * len(varied)
        unlike: list[tuple[int, list[int]]] = []  # those that are not as wide everywhere
        for place, number in enumerate(varied):
            if not self._aligns[number]:
                continue
            lengths = list(map(len, made[number]))
            wide[place] = lengths[0]
            if lengths.count(lengths[0]) < len(lengths):
                unlike.append((place, lengths))
        template = self._template_of(texts, wide)
        for at, end in ranges:
            for place, lengths in unlike:
                wide[place] = max(lengths[at:end], default=0)
            if unlike:
                template = self._template_of(texts, wide)
            yield list(map(template.__mod__, rows[at:end])), sum(blocks[at:end])

    def _template_of(self, texts: Sequence[bytes | None], wide: Sequence[int]) -> bytes:
        """What lines are formatted by, with the text of some columns, and widths of the others."""
        key = (*texts, *wide)
        found = self._templates.get(key)
        if found is None:
            widths = iter(wide)
            parts = [
                _part(align, next(widths)) if text is None else text
                for align, text in zip(self._aligns, texts, strict=True)
            ]
            found = self._remember(key, parts)
        return found

    def _made(self, looked: Looked) -> tuple[list[list[bytes]], list[bytes], Widths]:
        """The columns of entries, their names, and widths, but not of the columns."""
        widths = Widths([])
        modes = looked.column("mode")
        extra = self._decor.extra(looked, modes)
        made = [make(looked, modes, extra, widths) for make in self._makers]
        for place in looked.failed:
            self._put_unknown(made, place, looked.kinds.get(looked.names[place], _UNKNOWN))
        return made, self._decor.names(looked, modes, extra), widths

    def _inode(self, looked: Looked, *_: Any) -> list[bytes]:
        return list(map(b"%d".__mod__, looked.column("inode")))

    def _space(self, looked: Looked, *_: Any) -> list[bytes]:
        return list(map(self.space, looked.column("blocks")))

    def _mode(self, looked: Looked, modes: list[int], extra: Extra, _: Any) -> list[bytes]:
        texts = list(map(self._modes.__getitem__, modes))
        for place, more in extra.items():
            texts[place] += more.get("mark", b"")
        return texts

    def _links(self, looked: Looked, *_: Any) -> list[bytes]:
        return list(map(self._numbers.__getitem__, looked.column("links")))

    def _user(self, looked: Looked, _: Any, __: Any, widths: Widths) -> list[bytes]:
        return self._owners("user", self._users, looked.column("uid"), widths)

    def _group(self, looked: Looked, _: Any, __: Any, widths: Widths) -> list[bytes]:
        return self._owners("group", self._groups, looked.column("gid"), widths)

    def _owners(self, name: str, owners: Owners, ids: list[int], widths: Widths) -> list[bytes]:
        texts = list(map(owners.__getitem__, ids))
        if not self._form.numeric and any(map(bytes.isdigit, set(texts))):
            widths.numbers |= 1 << self._columns.index(name)
        return texts

    def _context(self, looked: Looked, _: Any, extra: Extra, __: Any) -> list[bytes]:
        places = range(len(looked.names))
        return [extra.get(place, {}).get("context", _UNKNOWN) for place in places]

    def _time(self, looked: Looked, *_: Any) -> list[bytes]:
        name = self._form.time
        return self._times.texts(looked.column(name), looked.column(f"{name}_ns"))

    def space(self, blocks: int) -> bytes:
        """So many blocks of 512 bytes in KiB, or for people."""
        return human(blocks * _BLOCK_BYTES) if self._form.human else b"%d" % (-(-blocks // 2))

    def _size(self, looked: Looked, modes: list[int], _: Any, widths: Widths) -> list[bytes]:
        sizes = looked.column("size")
        texts = list(map(human if self._form.human else b"%d".__mod__, sizes))
        if any(stat.S_ISBLK(mode) or stat.S_ISCHR(mode) for mode in set(modes)):
            devices = require(looked.stats).column("rdev", 0, len(modes))
            for place, mode in enumerate(modes):
                if stat.S_ISBLK(mode) or stat.S_ISCHR(mode):
                    major, minor = os.major(devices[place]), os.minor(devices[place])
                    widths.major = max(widths.major, len(str(major)))
                    widths.minor = max(widths.minor, len(str(minor)))
                    texts[place] = b"%d, %d" % (major, minor)
        return texts

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
        template = self._templates.get(tuple(wide)) or self._template(tuple(wide))
        return list(map(template.__mod__, map(tuple, rows)))

    def _template(self, wide: tuple[int, ...]) -> bytes:
        return self._remember(wide, list(map(_part, self._aligns, wide)))

    def _remember(self, key: tuple[object, ...], parts: list[bytes]) -> bytes:
        if len(self._templates) > 1 << 12:
            self._templates.clear()
        template = self._templates[key] = b" ".join([*parts, b"%b"])
        return template

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

    def text(self, lines: Sequence[bytes], widths: Widths, *, has_total: bool = True) -> bytes:
        """The text of a directory: its heading, its blocks if that is so, and its lines."""
        form = self._form
        if form.columns and lines:
            text = in_columns(lines, form.columns)
        else:
            text = form.end.join([*lines, b""])
        return widths.heading + (self.total(widths) if has_total else b"") + text

    def total(self, widths: Widths) -> bytes:
        """The line of a directory's blocks, if there is one."""
        form = self._form
        return b"total %b%b" % (self.space(widths.blocks), form.end) if form.has_total else b""

    def shown(self, names: Sequence[bytes]) -> list[bytes]:
        """Names as they are shown."""
        return self._decor.plain(names)


def _part(align: str, width: int) -> bytes:
    """A column of a template."""
    return b"%%%b%db" % (b"-" if align == "left" else b"", width) if align else b"%b"
