"""A search of an index: the expression is evaluated for its sections, without a walk.

Entries are looked up in the current section, and status columns come from the index. A directory
precedes its contents, so the search remembers only one pruned directory at a time.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import closing
from stat import S_ISDIR, S_ISLNK, S_ISREG
from typing import TYPE_CHECKING

import msgspec

from pcircle.core.encoding import show
from pcircle.core.errors import StoppedEarly, UsageError
from pcircle.core.units import NS_PER_S
from pcircle.fs.directories import join_path
from pcircle.fs.stats import StatusRow
from pcircle.runtime import Context
from pcircle.tools.ffind.eval.entry import FindEntry
from pcircle.tools.ffind.eval.evaluator import Evaluator, depth_of
from pcircle.tools.ffind.language.formats import parse_format
from pcircle.tools.ffind.plan import ExpressionNode, IndexPath, SearchedIndex, Sections
from pcircle.walk.index import (
    DIRECTORY,
    NAMES,
    READ,
    Columns,
    DamagedIndexError,
    Index,
    Range,
    Section,
    is_below,
    key,
    place_of,
)
from pcircle.walk.items import ANYWHERE
from pcircle.walk.roots import Root

if TYPE_CHECKING:
    from pcircle.jobs.tree_task import TreeItem
    from pcircle.tools.ffind.eval.actions import SearchTask

_LIVE = frozenset(
    (
        "access", "xtype", "samefile", "fstype", "flags", "xattr", "xattrname", "acl", "capable",
        "layout_number", "pool", "released", "delete",
    )
)  # fmt: skip
_LIVE_LETTERS = frozenset("YZFB")


def is_live(node: ExpressionNode) -> bool:
    """Return whether a primary needs data that an index does not contain."""
    if node.name in ("exec", "execplus"):
        return bool(node.args[0])  # -execdir needs the directory of the entry
    if node.name in ("newer_than_file", "newer_than_date"):
        return bool(node.args[0] == "B")
    if node.name == "printf":
        pieces, _ = parse_format(bytes(node.args[1]), [])
        letters = {piece.letter for piece in pieces if piece.letter != "B" or piece.kind}
        return not letters.isdisjoint(_LIVE_LETTERS)
    return node.name in _LIVE


def index_of(
    name: str, paths: Sequence[bytes], *, in_order: bool
) -> tuple[SearchedIndex, tuple[Root, ...]]:
    """Return an index, and the roots of PATHs in it, or all its roots if there are no PATHs.

    If `in_order` is set, one rank reads the index sequentially. Raise UsageError if the index
    cannot be read or does not contain a PATH.
    """
    named = path = os.path.abspath(os.fsencode(name))
    shown = show(os.fsencode(name))
    try:
        path = place_of(named)
        with closing(Index(path)) as index:
            ranges = index.verify()
            return _found(index, ranges, paths, in_order=in_order)
    except OSError as error:
        why = error.strerror or str(error)
        if path != named:
            why = f"'{show(path)}': {why}; create it with fprof --save FILE --entries"
        raise UsageError(f"--in: cannot read '{shown}': {why}") from None
    except DamagedIndexError as error:
        raise UsageError(f"--in: '{shown}' is damaged or not an index: {error}") from None


def _found(
    index: Index, ranges: Sequence[Range], paths: Sequence[bytes], *, in_order: bool
) -> tuple[SearchedIndex, tuple[Root, ...]]:
    starts: list[IndexPath] = []
    roots: list[Root] = []
    portions: list[tuple[int, int, int]] = []
    if not paths:
        starts = [IndexPath(number, b"") for number in range(len(index.roots))]
        roots = [Root(b".", b"", root.shown) for root in index.roots]
    for path in paths:
        start = _start(index, ranges, path)
        starts.append(start)
        roots.append(Root(b".", start.name, path))
    for number, start in enumerate(starts):
        matching = _about(ranges, start.root, start.path)
        if in_order and matching:
            portions.append((number, matching[0].begin, matching[-1].end))
        else:
            portions += [(number, portion.begin, portion.end) for portion in matching]
    weight = 1.0 / max(1, len(portions))
    items = tuple(Sections(*portion, weight) for portion in portions)
    return SearchedIndex(index.path, index.digest, tuple(starts), items), tuple(roots)


def _about(ranges: Sequence[Range], root: int, path: bytes) -> list[Range]:
    """Return the ranges that may contain sections of a directory and its subdirectories."""
    directory = key(root, path)
    depth = len(directory[1])
    found = []
    for number, portion in enumerate(ranges):
        first = portion.key[0], portion.key[1][:depth]
        is_last = number + 1 == len(ranges)
        if first <= directory and (is_last or ranges[number + 1].key >= directory):
            found.append(portion)
    return found


def _start(index: Index, ranges: Sequence[Range], path: bytes) -> IndexPath:
    """Return the position of a PATH in an index. Raise UsageError if it is not in the index."""
    shown = show(path)
    if not path:
        raise UsageError("empty file name")
    absolute = os.path.abspath(path)
    places = [
        (number, absolute[len(root.path.rstrip(b"/")) :].lstrip(b"/"))
        for number, root in enumerate(index.roots)
        if is_below(absolute, root.path.rstrip(b"/"))
    ]
    for root, below in places:
        above, _, name = below.rpartition(b"/")
        for section in _sections(index, ranges, root, above):
            if section.path == below and section.kind == DIRECTORY:
                if path.endswith(b"/") and not stat.S_ISDIR(section.status().st_mode):
                    raise UsageError(f"--in: '{shown}' is not a directory")
                return IndexPath(root, below)
            is_above = section.path == above and section.kind == NAMES
            if is_above and name in Columns(section).names:
                if path.endswith(b"/"):
                    raise UsageError(f"--in: '{shown}' is not a directory")
                return IndexPath(root, above, name)
    all_ = ", ".join(show(root.path) for root in index.roots[:4])
    raise UsageError(f"--in: '{shown}' is not in the index, which covers {all_}")


def _sections(index: Index, ranges: Sequence[Range], root: int, path: bytes) -> Iterator[Section]:
    for portion in _about(ranges, root, path):
        for section, _ in index.sections(portion.begin, portion.end):
            if section.root == root and is_below(section.path, path):
                yield section


_NOTHING = -1  # in place of a descriptor, because a search of an index opens no directories
_HERE = b"."


class _IndexDirectory(msgspec.Struct, frozen=True):
    """A directory below a PATH."""

    root: int
    path: bytes
    weight: float = 0.0
    place = ANYWHERE
    slot: int = 0


class _KnownColumns:
    """The `StatusColumns` of names in the current section."""

    section: Columns

    def __init__(self) -> None:
        self._places: Sequence[int] = ()

    def look(self, directory_fd: int, names: Sequence[bytes]) -> None:
        """Select the names for the following calls of `column` and `times_ns`."""
        section = self.section
        is_all = len(names) == len(section.names)
        self._places = range(len(names)) if is_all else list(map(section.place, names))

    def column(self, name: str, start: int, stop: int) -> list[int]:
        """Return a column of the selected names."""
        column = self.section.column(name)
        return [column[place] for place in self._places[start:stop]]

    def times_ns(self, name: str, start: int, stop: int) -> list[int]:
        """Return times of the selected names in nanoseconds."""
        seconds, fractions = self.column(name, start, stop), self.column(f"{name}_ns", start, stop)
        return [NS_PER_S * second + ns for second, ns in zip(seconds, fractions, strict=True)]


class _KnownRows:
    """The rows of names in the current section, in the form of a `Prefetch`."""

    is_known = True
    section: Columns

    def look(self, directory_fd: int, names: Sequence[bytes]) -> list[StatusRow]:
        """Return the rows of names."""
        return self.section.rows(names)

    def done(self, count: int) -> None:
        """Do nothing: rows of an index need no timing."""


class _KnownEntry(FindEntry):
    """An entry in a section."""

    __slots__ = ("bare", "section")

    section: Columns

    def __init__(self, finder: IndexSearcher) -> None:
        super().__init__(finder._report, follow=False)
        self.bare = False

    def _status(self) -> StatusRow:
        (row,) = self.section.rows((self.name,))
        return row

    def target(self) -> bytes:
        return self.section.target(self.name)

    def is_bare(self) -> bool:
        return self.bare


class IndexSearcher(Evaluator):
    """Evaluates the expression for the sections of an index."""

    _entry: _KnownEntry

    def __init__(self, task: SearchTask, source: SearchedIndex) -> None:
        super().__init__(task)
        self._stats = self._columns = _KnownColumns()
        self._prefetch = self._rows = _KnownRows()
        self._entry = _KnownEntry(self)
        self._source = source
        self._index: Index | None = None
        self._closed: bytes | None = None
        self._device = 0

    def close(self) -> None:
        """Close the index."""
        if self._index is not None:
            self._index.close()
            self._index = None

    def portion(self, item: Sections, context: Context[TreeItem]) -> None:
        """Search a range of sections. Raise StoppedEarly if they cannot be read."""
        self.begin(item, context)
        self._closed = None
        try:
            for section, after in self._opened().sections(item.begin, item.end):
                if self._halted() or context.is_stopping():
                    break
                self._section(item.start, section, after)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise StoppedEarly(f"cannot read the index: {reason}") from error
        self.counters.weight += item.weight
        self.end(context, ())

    def _opened(self) -> Index:
        if self._index is None:
            self._index = Index(self._source.path)
            if self._index.digest != self._source.digest:
                raise DamagedIndexError("it was replaced during the search")
        return self._index

    def _section(self, number: int, section: Section, after: Section | None) -> None:
        start = self._source.starts[number]
        if section.root != start.root or not is_below(section.path, start.path):
            return
        if start.name:
            if section.path == start.path and section.kind == NAMES:
                self._one(number, start.name, Columns(section))
            return
        if self._closed is not None and is_below(section.path, self._closed):
            return
        self._closed = None
        path = section.path[len(start.path) :].lstrip(b"/")
        if section.kind == DIRECTORY:
            self._directory(number, path, section, after)
        elif section.kind == NAMES:
            self._names(_IndexDirectory(number, path), Columns(section))
        else:
            self._failure(number, path, section)

    def _one(self, number: int, name: bytes, columns: Columns) -> None:
        """Evaluate a PATH that is not a directory."""
        if name not in columns.names:
            return
        entry = self._start_entry(number, _NOTHING, name, "")
        self._entry.section = columns
        (row,) = columns.rows((name,))
        self._start(entry, row)

    def _start(self, entry: FindEntry, row: StatusRow) -> None:
        entry.st = row
        counters = self.counters
        counters.found += 1
        counters.sized += 1
        if not self._min:
            self._evaluate_one(entry)
        if entry.bad:
            self._settle(entry)
        elif S_ISLNK(row.st_mode):
            counters.links += 1
        else:
            counters.files += 1

    def _directory(self, number: int, path: bytes, section: Section, after: Section | None) -> None:
        row, depth = section.status(), depth_of(path)
        if not path:
            entry = self._start_entry(number, _NOTHING, _HERE, "d")
            if not S_ISDIR(row.st_mode):
                entry.kind = ""
                self._start(entry, row)
                return
            self._device = row.st_dev
        else:
            above, _, name = path.rpartition(b"/")
            entry = self._entry_in(_IndexDirectory(number, above), _NOTHING, "d")
            entry.begin(name)
        entry.st, self._entry.bare = row, section.entered and not section.holds(after)
        if self._max is None or depth <= self._max:
            self.counters.found += 1
            self.counters.sized += 1
            self.counters.directories += 1
            self._evaluated(entry, depth)
        is_elsewhere = self._plan.one_file_system and row.st_dev != self._device
        if entry.pruned or is_elsewhere:
            self._closed = section.path

    def _evaluated(self, entry: FindEntry, depth: int) -> None:
        """Evaluate a directory; set `pruned` if it must not be entered."""
        is_excluded = self._excludes is not None and bool(self._excludes(entry))
        if depth >= self._min:
            self._evaluate_one(entry)
            self.counters.complaints += entry.bad
        entry.pruned = is_excluded or (entry.pruned and not self._deep)

    def _names(self, where: _IndexDirectory, columns: Columns) -> None:
        if self._max is not None and depth_of(where.path) + 1 > self._max:
            return
        self._columns.section = self._rows.section = self._entry.section = columns
        counters, count = self.counters, len(columns.names)
        counters.found += count
        counters.sized += count
        files, links, specials = columns.names, [], []
        modes = columns.column("mode")
        if not all(map(S_ISREG, modes)):
            pairs = list(zip(columns.names, modes, strict=True))
            files = [name for name, mode in pairs if S_ISREG(mode)]
            links = [name for name, mode in pairs if S_ISLNK(mode)]
            specials = [n for n, mode in pairs if not (S_ISREG(mode) or S_ISLNK(mode))]
        for kind, names in (("f", files), ("l", links), ("", specials)):
            if names:
                self._evaluate_and_count(where, names, kind, _NOTHING)

    def _failure(self, number: int, path: bytes, section: Section) -> None:
        """Report an entry that could not be read or looked up when the index was made."""
        name, doing, errno_ = section.failure()
        error = OSError(errno_, os.strerror(errno_))
        depth = depth_of(path) + 1
        if self._max is not None and depth > self._max:
            return
        if doing == READ or not name:
            self.counters.complaints += 1
            self.tell(number, path, "read directory", error)
        elif not (isinstance(error, FileNotFoundError) and self._silent):
            self.counters.found += 1
            self.counters.sized += 1
            self.fail(number, join_path(path, name), "look up", error, self._context)
