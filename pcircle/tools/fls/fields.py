"""The names and columns of a listing as printed, in the format of ls, and their widths.

Names are escaped and coloured, and have type indicators and link targets. One native call formats
the listings of several directories. The lines of a very large directory are formatted by rank 0,
because the widths of its columns are known only after the last look-up.
"""

from __future__ import annotations

import os
import re
import stat
import unicodedata
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from pcircle.cli.listing import Modes, Times, groups, human, users
from pcircle.core.encoding import attributes, show
from pcircle.fs import native
from pcircle.fs.attributes.acls import ACCESS, DEFAULT, read_list, short_form
from pcircle.fs.native.interface import AS_IS, AS_NUMBERS, COLUMNS, LEFT, OF_EACH, OF_NAME, RIGHT
from pcircle.fs.stats import PLACE_OF, Stats
from pcircle.tools.fls.plan import Form


class NameBatch(msgspec.Struct, frozen=True):
    """Names in a directory that are not looked up.

    `printed` contains the names as printed. `shown` is the path of the directory, or empty for
    PATHs. `itself` is the number of leading names that are ``.`` or ``..``.
    """

    names: Sequence[bytes]
    printed: Sequence[bytes]
    fd: int
    shown: bytes
    itself: int


class StatBatch(NameBatch, frozen=True):
    """Names in a directory, and the results of their look-ups in `stats`.

    `failed` maps places to the errors of failed look-ups, and `kinds` maps the names to type
    letters. If the targets of links are looked up, `led` maps the places of links to the targets'
    modes.
    """

    stats: Stats
    failed: dict[int, OSError]
    kinds: dict[bytes, bytes]
    led: dict[int, int]

    def column(self, name: str) -> list[int]:
        """Return one status field of all entries."""
        return self.stats.column(name, 0, len(self.names))


_MARKS = {stat.S_IFDIR: b"/", stat.S_IFLNK: b"@", stat.S_IFIFO: b"|", stat.S_IFSOCK: b"="}
_CODES = {
    stat.S_IFDIR: "di",
    stat.S_IFLNK: "ln",
    stat.S_IFIFO: "pi",
    stat.S_IFSOCK: "so",
    stat.S_IFBLK: "bd",
    stat.S_IFCHR: "cd",
}
_DEFAULT_COLORS = (
    "di=01;34:ln=01;36:pi=33:so=01;35:bd=01;33:cd=01;33:ex=01;32:su=37;41:sg=30;43:"
    "tw=30;42:ow=34;42:st=37;44"
)
_CONTEXT = "security.selinux"
Extra = dict[int, dict[str, bytes]]


class NameFormatter:
    """Formats names with the requested additions."""

    def __init__(self, form: Form) -> None:
        self._form = form
        self._links = form.long or bool(form.colors)
        self._asks = form.acl or form.xattr or form.context
        words = f"{_DEFAULT_COLORS}:{form.colors}".split(":")
        self._colors = {key: code.encode() for key, _, code in (w.partition("=") for w in words)}
        self._suffixes = tuple(
            (os.fsencode(key[1:]), code) for key, code in self._colors.items() if key[:1] == "*"
        )

    def plain(self, names: Sequence[bytes]) -> list[bytes]:
        """Return names without additions."""
        return [show(name).encode() for name in names] if self._form.escaped else list(names)

    def extra(self, looked: StatBatch, modes: list[int]) -> Extra:
        """Return properties that require further system calls, keyed by the index of the entry."""
        found: Extra = {}
        has_links = self._links and any(map(stat.S_ISLNK, set(modes)))

        def ask(start: int, stop: int) -> None:
            for place in range(start, stop):
                is_link = has_links and stat.S_ISLNK(modes[place])
                if place in looked.failed or not (self._asks or is_link):
                    continue
                more: dict[str, bytes] = {}
                if is_link:
                    with suppress(OSError):
                        more["target"] = os.readlink(looked.names[place], dir_fd=looked.fd)
                if self._asks:
                    path = b"/proc/self/fd/%d/%b" % (looked.fd, looked.names[place])
                    more |= self._attributes(path, modes[place])
                if more:
                    found[place] = more

        if has_links or self._asks:
            looked.stats.beside(ask, 0, len(modes))
        return found

    def _attributes(self, path: bytes, mode: int) -> dict[str, bytes]:
        form, found, lines = self._form, dict[str, bytes](), list[bytes]()
        if form.context:
            with suppress(OSError):
                context = os.getxattr(path, _CONTEXT, follow_symlinks=False)
                found["context"] = context.rstrip(b"\0")
        if form.acl and not stat.S_ISLNK(mode):
            kinds = ((ACCESS, "acl"), (DEFAULT, "default"))
            for attribute, word in kinds[: 1 + stat.S_ISDIR(mode)]:
                with suppress(OSError):
                    value = read_list(path, attribute, follow=False)
                    if value is not None:
                        lines.append(f"{word} {short_form(value)}".encode())
            if lines:
                found["mark"] = b"+"
        if form.xattr:
            with suppress(OSError):
                names = attributes(path, follow=False)
                lines += [b"xattr " + show(os.fsencode(name)).encode() for name in sorted(names)]
        if lines:
            found["lines"] = b"".join(b"\n    " + line for line in lines)
        return found

    def names(self, looked: StatBatch, modes: list[int], extra: Extra) -> list[bytes]:
        """Return the names of entries with all additions."""
        form = self._form
        names = self.plain(looked.printed)
        if not (form.classify or form.colors or form.host or extra):
            return names
        top = os.path.abspath(looked.shown or b".") if form.host else b""
        for place, mode in enumerate(modes):
            more = extra.get(place, {})
            if place in looked.failed:
                continue
            name, target = names[place], more.get("target")
            led = looked.led.get(place)
            if form.colors:
                name = self._colored(name, self._color(looked, place, mode, led))
            if form.host:
                name = _linked(name, form.host, os.path.join(top, looked.printed[place]))
            if form.long and target is not None:
                name += b" -> " + self._target(target, led)
                mode = led or 0
            if form.classify:
                name += _mark(mode)
            names[place] = name + more.get("lines", b"")
        return names

    def _target(self, target: bytes, led: int | None) -> bytes:
        (shown,) = self.plain([target])
        if not self._form.follows or not self._form.colors:
            return shown
        if led is not None:
            return self._colored(shown, self._by_mode(target, led, 1))
        lost = [self._colors[code] for code in ("mi", "or") if _is_color(self._colors.get(code))]
        return self._colored(shown, lost[0] if lost else None)

    def _color(self, looked: StatBatch, place: int, mode: int, led: int | None) -> bytes | None:
        if stat.S_ISLNK(mode) and led is None and _is_color(self._colors.get("or")):
            return self._colors["or"]
        if stat.S_ISLNK(mode) and self._colors.get("ln") == b"target":
            return None if led is None else self._by_mode(looked.names[place], led, 1)
        (links,) = looked.stats.column("links", place, place + 1)
        return self._by_mode(looked.names[place], mode, links)

    def _by_mode(self, name: bytes, mode: int, links: int) -> bytes | None:
        colors = self._colors
        if stat.S_ISDIR(mode):
            both = mode & stat.S_ISVTX and mode & stat.S_IWOTH
            special = "tw" if both else "ow" if mode & stat.S_IWOTH else ""
            special = special or ("st" if mode & stat.S_ISVTX else "di")
            return colors[special] if _is_color(colors[special]) else colors["di"]
        if not stat.S_ISREG(mode):
            return colors.get(_CODES.get(stat.S_IFMT(mode), "or"))
        for is_so, code in (
            (mode & stat.S_ISUID, "su"),
            (mode & stat.S_ISGID, "sg"),
            (mode & 0o111, "ex"),
            (links > 1, "mh"),
        ):
            if is_so and _is_color(colors.get(code)):
                return colors[code]
        ends = (code for suffix, code in reversed(self._suffixes) if name.endswith(suffix))
        return next(ends, colors.get("fi"))

    def _colored(self, name: bytes, code: bytes | None) -> bytes:
        return b"\x1b[%bm%b\x1b[0m" % (code, name) if code and _is_color(code) else name


def _is_color(code: bytes | None) -> bool:
    return bool(code and code.strip(b"0"))


def _linked(name: bytes, host: str, path: bytes) -> bytes:
    from urllib.parse import quote_from_bytes  # imported late: few listings contain hyperlinks

    address = f"file://{host}{quote_from_bytes(path)}".encode()
    return b"\x1b]8;;%b\x07%b\x1b]8;;\x07" % (address, name)


def _mark(mode: int) -> bytes:
    if stat.S_ISREG(mode):
        return b"*" if mode & 0o111 else b""
    return _MARKS.get(stat.S_IFMT(mode), b"")


# ---- columns -------------------------------------------------------------------------------------

_GAP = 2
_LEAST = 3
_ESCAPES = re.compile(rb"\x1b\[[0-9;]*m|\x1b\]8;;.*?\x07")


def width_of(line: bytes) -> int:
    """Return the number of terminal columns that a line occupies."""
    if b"\x1b" in line:
        line = _ESCAPES.sub(b"", line)
    if line.isascii():
        return len(line)
    text = line.decode(errors="replace")
    return sum(
        0
        if unicodedata.combining(character)
        else 1 + (unicodedata.east_asian_width(character) in "WF")
        for character in text
    )


def in_columns(lines: Sequence[bytes], terminal: int) -> bytes:
    """Arrange lines in as many columns as fit on the terminal, sorted down each column."""
    widths = list(map(width_of, lines))
    count = len(lines)
    for columns in range(min(count, max(1, terminal // _LEAST)), 0, -1):
        rows = -(-count // columns)
        tops = range(0, count, rows)
        wide = [
            max(_LEAST, max(widths[top : top + rows]) + _GAP * (number < columns - 1))
            for number, top in enumerate(tops)
        ]
        if columns == 1 or sum(wide) + _LEAST * (columns - len(wide)) < terminal:
            break
    text = []
    for row in range(rows):
        places = range(row, count, rows)
        cells = [lines[at] + b" " * (wide[at // rows] - widths[at]) for at in places]
        text.append(b"".join([*cells[:-1], lines[places[-1]], b"\n"]))
    return b"".join(text)


_BLOCK_BYTES = 512
_UNKNOWN = b"?"
_BLOCKS_PLACE = PLACE_OF["blocks"]


class Widths(msgspec.Struct, array_like=True):
    """The widths of the columns of a directory.

    `major` and `minor` are the widths of device numbers. `numbers` is a bit mask of the owner
    columns that contain numbers. Numbers are right-aligned. `blocks` is the total of all entries,
    and `heading` is the line above them.
    """

    columns: list[int]
    major: int = 0
    minor: int = 0
    numbers: int = 0
    blocks: int = 0
    heading: bytes = b""

    def add(self, other: Widths) -> None:
        """Widen columns to the other widths, and add the other blocks."""
        if not self.columns or not other.columns:
            self.columns = self.columns or other.columns
        self.columns = list(map(max, self.columns, other.columns or self.columns))
        self.major, self.minor = max(self.major, other.major), max(self.minor, other.minor)
        self.numbers |= other.numbers
        self.blocks += other.blocks
        self.heading = self.heading or other.heading


Rows = Iterable[Sequence[bytes]]


class ColumnFormatter:
    """Formats the columns and lines of a listing."""

    def __init__(self, form: Form, now_ns: int) -> None:
        self._form = form
        self._times = Times(form.style, now_ns)
        changes: dict[str, tuple[str, Any]] = {
            "inode": ("inode", None),
            "space": ("blocks", self.space),
            "mode": ("mode", Modes().__getitem__),
            "links": ("links", None),
            "user": ("uid", users(numeric=form.numeric).__getitem__),
            "group": ("gid", groups(numeric=form.numeric).__getitem__),
            "size": ("size", human if form.human else None),
            "time": (form.time, self._times.change),
        }
        self._sources = {
            name: (PLACE_OF[column], change) for name, (column, change) in changes.items()
        }
        self._time_width = len(self._times.text(now_ns))
        self._formatter = NameFormatter(form)
        self._templates: dict[tuple[int, ...], bytes] = {}
        alignments = {
            "mode": LEFT,
            "user": AS_NUMBERS,
            "group": AS_NUMBERS,
            "context": LEFT if form.long else RIGHT,
            "time": AS_IS,
        }
        self._columns = form.shown_columns
        self._aligns = [alignments.get(name, RIGHT) for name in self._columns]

    # ---- columns ---------------------------------------------------------------

    def of(self, looked: NameBatch) -> tuple[list[tuple[bytes, ...]], Widths]:
        """Return the columns of each entry, ending with its name, and the widths of the columns."""
        if not isinstance(looked, StatBatch):
            return [(name,) for name in self._formatter.plain(looked.printed)], Widths([])
        modes = looked.column("mode")
        extra = self._formatter.extra(looked, modes)
        made, widths = self._made(looked, modes, extra)
        names = self._formatter.names(looked, modes, extra)
        widths.columns = [max(map(len, column), default=0) for column in made]
        if self._form.has_total:
            blocks = enumerate(looked.column("blocks"))
            widths.blocks = sum(number for place, number in blocks if place not in looked.failed)
        return list(zip(*made, names, strict=True)), widths

    def bodies(
        self,
        looked: NameBatch,
        counts: list[int],
        order: list[int] | None = None,
        names: bytes = b"",
        *,
        whole: bool = True,
    ) -> list[bytes]:
        """Return the text of several directories.

        `counts` contains the number of entries in each directory, and `order` the places of all
        entries in the order of the output. If directories are listed `whole`, the text of each
        begins with its total blocks. If names need no additions (see `are_plain`), `names` contains
        all of them with NUL terminators.
        """
        form, fields, table = self._form, list[Any](), b""
        if not isinstance(looked, StatBatch):
            shown = () if names else self._formatter.plain(looked.printed)
        else:
            table = looked.stats.data
            modes = [] if names else looked.column("mode")
            extra = {} if names else self._formatter.extra(looked, modes)
            shown = () if names else self._formatter.names(looked, modes, extra)
            if looked.failed or form.context or _are_special(modes, extra):
                made = ((OF_EACH, column) for column in self._adjusted(looked, modes, extra))
            else:
                made = (self._sources[name] for name in self._columns)
            for align, (place, change) in zip(self._aligns, made, strict=True):
                fields += ((place, align, change), b" ")
        text = names or b"".join([name + b"\0" for name in shown])
        fields += ((OF_NAME, AS_IS, None), form.end)
        total = _BLOCKS_PLACE if form.has_total and whole else -1
        found = native.format_entries(table, text, counts, order, fields, total, self.total)
        return [self._in_columns(text, total >= 0) for text in found] if form.columns else found

    def _adjusted(self, looked: StatBatch, modes: list[int], extra: Extra) -> list[list[bytes]]:
        """Return the columns of entries whose format depends on more than their status, as text."""
        made, widths = self._made(looked, modes, extra)
        if widths.minor:
            rows = self._with_devices(zip(*made, strict=True), widths.minor)
            made = list(map(list, zip(*rows, strict=True)))
        return made

    def _in_columns(self, text: bytes, has_total: bool) -> bytes:
        """Arrange the names of a listing in columns, below its total."""
        lines = text.split(self._form.end)[:-1]
        head = [line + self._form.end for line in lines[:has_total]]
        return b"".join((*head, self.text(lines[has_total:])))

    def _made(
        self, looked: StatBatch, modes: list[int], extra: Extra
    ) -> tuple[list[list[bytes]], Widths]:
        """Return the columns of entries, and all widths except those of the columns themselves."""
        widths = Widths([])
        made = [self._column(name, looked, extra) for name in self._columns]
        for number, (name, column) in enumerate(zip(self._columns, made, strict=True)):
            if name == "size":
                _put_devices(column, looked, modes, widths)
            elif name == "mode":
                for place, more in extra.items():
                    column[place] += more.get("mark", b"")
            elif self._aligns[number] == AS_NUMBERS:
                widths.numbers |= any(map(bytes.isdigit, set(column))) << number
        for place in looked.failed:
            self._put_unknown(made, place, looked.kinds.get(looked.names[place], _UNKNOWN))
        return made, widths

    def _column(self, name: str, looked: StatBatch, extra: Extra) -> list[bytes]:
        """Return the text of one column for all entries."""
        if name == "time":
            time = self._form.time
            return self._times.texts(looked.column(time), looked.column(f"{time}_ns"))
        if name == "context":
            places = range(len(looked.names))
            return [extra.get(place, {}).get("context", _UNKNOWN) for place in places]
        place, change = self._sources[name]
        return list(map(change or b"%d".__mod__, looked.column(COLUMNS[place])))

    def space(self, blocks: int) -> bytes:
        """Format a number of 512-byte blocks as KiB, or in human-readable form."""
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
        """Return the lines of entries, without line endings."""
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
        """Return lines as text, in columns if requested."""
        if self._form.columns and lines:
            return in_columns(lines, self._form.columns)
        return self._form.end.join([*lines, b""])

    def total(self, blocks: int) -> bytes:
        """Return the line with the total blocks of a directory, or nothing if it is not printed."""
        form = self._form
        return b"total %b%b" % (self.space(blocks), form.end) if form.has_total else b""

    @property
    def are_plain(self) -> bool:
        """Return whether names of regular files are printed without additions."""
        form = self._form
        return not (form.escaped or form.classify or form.colors or form.host)

    def shown(self, names: Sequence[bytes]) -> list[bytes]:
        """Return names as printed, without additions."""
        return self._formatter.plain(names)


def _part(align: int, width: int) -> bytes:
    """Return the part of a format template for one column."""
    return b"%b" if align == AS_IS else b"%%%b%db" % (b"" if align == RIGHT else b"-", width)


def _are_special(modes: list[int], extra: Extra) -> bool:
    """Return whether the status of some entry does not determine its columns."""
    if any("mark" in more for more in extra.values()):
        return True
    return any(stat.S_ISBLK(mode) or stat.S_ISCHR(mode) for mode in set(modes))


def _put_devices(column: list[bytes], looked: StatBatch, modes: list[int], widths: Widths) -> None:
    """Replace the sizes of device files with their major and minor numbers."""
    if not _are_special(modes, {}):
        return
    devices = looked.column("rdev")
    for place, mode in enumerate(modes):
        if stat.S_ISBLK(mode) or stat.S_ISCHR(mode):
            major, minor = os.major(devices[place]), os.minor(devices[place])
            widths.major = max(widths.major, len(str(major)))
            widths.minor = max(widths.minor, len(str(minor)))
            column[place] = b"%d, %d" % (major, minor)
