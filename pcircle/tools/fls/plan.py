"""The plan of a listing, made on rank 0, and the records of entries, with their sort keys.

Sort keys are byte strings that sort in the order of the listing. A key contains neither NUL nor
slash, so that NUL can separate the keys of nested directories. Text in descending order is
complemented byte by byte and ends with the largest byte. Two of the complements would be NUL and
slash, so these are encoded as two bytes.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter

import msgspec

from pcircle.cli.listing import Owners, groups, users
from pcircle.fs.stats import Stats
from pcircle.jobs.action_log import ActionOutput
from pcircle.jobs.tree_task import TreeCounters, TreePlan
from pcircle.tools.fls.options import TIMES


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """The contents and the format of the listing.

    `shape` is ``lines``, ``json`` (rows), ``csv`` or ``total``. If `hidden` is 1, names that begin
    with a dot are listed; if it is 2, also ``.`` and ``..``. `columns` is the line width for names
    in columns, or 0 for one name per line. On terminals, names are `escaped`. `colors` has the
    syntax of LS_COLORS, and `host` is the host name in hyperlinks; each is empty unless requested.
    """

    shape: str = "lines"
    long: bool = False
    inode: bool = False
    space: bool = False
    human: bool = False
    numeric: bool = False
    owner: bool = True
    group: bool = True
    time: str = "mtime"
    style: str = "locale"
    classify: bool = False
    colors: str = ""
    host: str = ""
    context: bool = False
    acl: bool = False
    xattr: bool = False
    digest: bool = False
    hidden: int = 0
    columns: int = 0
    escaped: bool = False
    end: bytes = b"\n"

    @property
    def shown_columns(self) -> list[str]:
        """The columns in front of each name, in order."""
        shown = {
            "inode": self.inode,
            "space": self.space,
            "mode": self.long,
            "links": self.long,
            "user": self.long and self.owner,
            "group": self.long and self.group,
            "context": self.context,
            "size": self.long,
            "time": self.long,
        }
        return [name for name, is_shown in shown.items() if is_shown]

    @property
    def is_rows(self) -> bool:
        """Return whether the output is for programs."""
        return self.shape in ("json", "csv")

    @property
    def follows(self) -> bool:
        """Return whether the targets of links are looked up, for colours or type indicators."""
        words = self.colors.split(":")
        return (
            self.classify
            or any(word[:3] in ("or=", "mi=") for word in words)
            or ("ln=target" in words)
        )

    @property
    def is_alike(self) -> bool:
        """Return whether the line of a file depends only on its name and status."""
        return not (self.acl or self.xattr or self.context or self.host)

    @property
    def has_total(self) -> bool:
        """Return whether the total blocks of each directory are printed, as in ``ls -l``."""
        return self.long or self.space


class ListPlan(TreePlan, frozen=True, kw_only=True):
    """The plan of a listing.

    `keys` are the sort fields, each with a flag for descending order. If there are none, entries
    are printed in the order in which they are found. If `headed`, the path of each directory
    precedes its entries. If `deep`, `--total` also prints the subdirectories of PATHs. If some
    PATHs are not directories, `directories` contains those that are. `acts` is the requested output
    of actions. Each of the `ranks` has an equal share of `operations_per_s`.
    """

    form: Form
    recursive: bool = False
    deep: bool = False
    keys: tuple[tuple[str, bool], ...] = (("name", False),)
    directories_first: bool = False
    headed: bool = False
    directories: tuple[bytes, ...] = ()
    acts: ActionOutput = ActionOutput()
    ranks: int = 1
    operations_per_s: float | None = None

    @property
    def looks_up(self) -> bool:
        """Return whether entries must be looked up because names and types do not suffice."""
        form = self.form
        asked = form.shown_columns or form.classify or form.colors or form.acl
        options = (
            form.host
            or form.xattr
            or form.shape != "lines"
            or self.acts.lines
            or self.directories_first
        )
        return bool(asked or options) or any(key != "name" for key, _ in self.keys)


class ListRecords(msgspec.Struct, frozen=True, array_like=True, tag="r"):
    """Records for rank 0."""

    packed: tuple[bytes, ...]


class ListCounters(TreeCounters):
    """The counters of a listing."""


# ---- sort keys -----------------------------------------------------------------------------------

_LETTERS = bytes(byte for byte in range(1, 256) if byte != ord("/"))
_TURNED = _LETTERS[1:-1][::-1]
_TURN = bytes.maketrans(_LETTERS, _TURNED + b"/\0")
_MIDDLE = 1 << 95  # times may precede the epoch
_KINDS = {
    stat.S_IFBLK: b"b",
    stat.S_IFCHR: b"c",
    stat.S_IFDIR: b"d",
    stat.S_IFREG: b"f",
    stat.S_IFLNK: b"l",
    stat.S_IFIFO: b"p",
    stat.S_IFSOCK: b"s",
}


def kind_of(mode: int) -> bytes:
    """Return the letter of ``find -type`` for a file type."""
    return _KINDS.get(stat.S_IFMT(mode), b"?")


def turned(text: bytes) -> bytes:
    """Return a key that sorts in the opposite order, even if one text begins with another."""
    return text.translate(_TURN).replace(b"\0", b"\1\1").replace(b"/", b"\1\2") + b"\xff"


class Keys:
    """Computes sort keys. A key ends with the name, so the keys in a directory are unique."""

    def __init__(self, keys: Sequence[tuple[str, bool]], *, directories_first: bool) -> None:
        self._first = directories_first
        names = [number for number, (key, _) in enumerate(keys) if key == "name"]
        self._fields = list(keys[: names[0]] if names else keys)
        self.turns: bool = bool(names) and keys[names[0]][1]
        self._owners: dict[str, Owners] = {"owner": users(), "group": groups()}
        self.of_names_alone: bool = not self._fields and not directories_first

    def of(
        self, names: Sequence[bytes], stats: Stats | None, led: Mapping[int, int]
    ) -> Sequence[bytes]:
        """Return the keys of names; `stats` is required unless keys consist of names alone.

        `led` maps places of links to the modes of their targets, because
        `--group-directories-first` treats a link to a directory as a directory.
        """
        last = list(map(turned, names)) if self.turns else names
        if stats is None or self.of_names_alone:
            return last
        count = len(names)
        parts: list[Sequence[bytes]] = []
        if self._first:
            modes = stats.column("mode", 0, count)
            modes = [led.get(place, mode) for place, mode in enumerate(modes)]
            parts.append([b"1" if stat.S_ISDIR(mode) else b"2" for mode in modes])
        for field, descends in self._fields:
            parts.append(list(map(self._text_of(field, descends), _column(field, stats, count))))
        return list(map(b"".join, zip(*parts, last, strict=True)))

    def of_directory(self, name: bytes, status: os.stat_result) -> bytes:
        """Return the key of a directory."""
        last = turned(name) if self.turns else name
        if self.of_names_alone:
            return last
        parts = [self._text_of(*key)(_value(key[0], status)) for key in self._fields]
        return b"".join((b"1" * self._first, *parts, last))

    def _text_of(self, field: str, descends: bool) -> Callable[[int], bytes]:
        sign = -1 if descends else 1
        if field == "size" or field in TIMES:
            return lambda value: b"%024x" % (_MIDDLE + sign * value)
        text = kind_of if field == "kind" else self._owners[field].__getitem__
        if descends:
            return lambda value: turned(text(value))
        return lambda value: text(value) + b"\1"


_COLUMNS = {"kind": "mode", "owner": "uid", "group": "gid"}
_STATUS = {"kind": "st_mode", "owner": "st_uid", "group": "st_gid", "size": "st_size"}


def _column(field: str, stats: Stats, count: int) -> list[int]:
    if field in TIMES:
        return stats.times_ns(field, 0, count)
    return stats.column(_COLUMNS.get(field, field), 0, count)


def _value(field: str, status: os.stat_result) -> int:
    value: int = getattr(status, _STATUS.get(field) or f"st_{field}_ns")
    return value


# ---- records -------------------------------------------------------------------------------------

# Records are byte strings that sort in the order of the listing. Each consists of the place of a
# directory, the key of an entry, a text and a letter. The place consists of the keys of the
# directory and of all directories above it, separated by NULs. A record about the directory itself
# has no key, so it precedes the entries. The letter distinguishes formatted text from columns.

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
