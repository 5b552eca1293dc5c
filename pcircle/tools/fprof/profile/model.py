"""The profile of a tree, its tables of bounded size, and its encoding as bytes.

Profiles can be merged, and every report can be made from a profile. It consists of sums, histograms
of fine resolution (`pcircle.tools.fprof.profile.sizes`), bounded tables and a sample. Its size is
bounded, whatever the number of entries in the tree. Merging is exactly associative and commutative,
so the result depends neither on which rank saw an entry nor on the order of merges.

Two ranks that see the same files in different orders must keep the same rows. Each table therefore
defines a total order. A top list keeps its first rows in that order. A table of sums keeps its
first keys, and adds up all other keys as "other". A dropped row is preceded by enough rows to fill
the table. Later additions can replace these only with rows that precede them. So the dropped row
could not have been in the final table, and no row that belongs there is lost. Tables of both types
can therefore be merged exactly, in any order. The price is that a table of sums chooses keys
regardless of their sums. The limits are therefore far higher than the numbers of keys in real
trees, and the least informative keys are dropped first.

In counts of files, a hard-linked file counts under each of its names. Its bytes count only once. By
size, age and owner, which are properties of the inode, they count under the first name that is
found. By extension, depth and directory, which are properties of the name, they count in equal
parts under all names. So the result does not depend on the order. A hard link between trees that
have separate profiles cannot be detected.

In messages and files, profiles are encoded as MessagePack, extended to integers of any size. A
sparse file can have nearly 8 EiB, so the sum of three does not fit into the 64 bits of a
MessagePack integer. Larger integers are encoded big endian as extension type 1. Because they are
rare, the encoder looks for them only if plain encoding fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

from pcircle.core.errors import require_type

K = TypeVar("K")
Row = TypeVar("Row")
RowKey: TypeAlias = tuple[int | bytes, ...]
KeyRank: TypeAlias = int | tuple[int | str, ...]

OTHER_WIDTH = 3


class Best(Generic[Row]):
    """The first `most` rows in the order of `key`.

    The first part of a key is the number by which rows are ranked. Rows whose number exceeds
    `floor` are never kept, so callers need not create them.
    """

    def __init__(self, most: int, key: Callable[[Row], RowKey]) -> None:
        self.floor: float = float("inf") if most else float("-inf")
        self._most = most
        self._key = key
        self._last: RowKey = ()
        self._rows: list[Row] = []

    def passes_by(self, bounds: RowKey) -> bool:
        """Return whether rows with the number `floor` are dropped unless they precede `bounds`."""
        return bool(self._last) and bounds > self._last[1 : 1 + len(bounds)]

    def add(self, row: Row) -> None:
        """Add a row."""
        self._rows.append(row)
        if len(self._rows) >= 2 * self._most + 16:
            self._cut()

    def update(self, rows: Iterable[Row]) -> None:
        """Add rows."""
        for row in rows:
            self.add(row)

    def rows(self) -> list[Row]:
        """Return the rows in order."""
        self._cut()
        return self._rows

    def _cut(self) -> None:
        self._rows.sort(key=self._key)
        del self._rows[self._most :]
        if self._most and len(self._rows) == self._most:
            self._last = self._key(self._rows[-1])
            self.floor = require_type(int, self._last[0])


class Sums(Generic[K]):
    """Tallies of the first `most` keys in the order of `rank`, and of all other keys together."""

    def __init__(self, most: int, rank: Callable[[K], KeyRank]) -> None:
        self.tallies: dict[K, list[int]] = {}
        self.other: list[int] = [0] * OTHER_WIDTH
        self._most = most
        self._rank = rank

    def add(self, key: K, number: int, size_bytes: int, allocated_bytes: int) -> None:
        """Add numbers to the tally of a key; negative numbers undo earlier additions."""
        tally = self.tallies.get(key)
        if tally is None:
            if len(self.tallies) >= 2 * self._most:
                self.cut()
            self.tallies[key] = [number, size_bytes, allocated_bytes]
        else:
            tally[0] += number
            tally[1] += size_bytes
            tally[2] += allocated_bytes

    def cut(self) -> None:
        """Add the tallies of keys beyond the limit to `other`."""
        if len(self.tallies) > self._most:
            for key in sorted(self.tallies, key=self._rank)[self._most :]:
                add_to(self.other, self.tallies.pop(key))

    def end(self, profile: Profile, name: str) -> None:
        """Store the tallies in the field `name` of a profile, and the rest in `other_<name>`."""
        self.cut()
        setattr(profile, name, self.tallies)
        setattr(profile, f"other_{name}", self.other)


def add_to(tally: list[int], more: Iterable[int]) -> None:
    """Add a tally to another tally."""
    for place, amount in enumerate(more):
        tally[place] += amount


def by_number(key: int) -> int:
    """Return the sort key of an owner or group: system accounts are kept first."""
    return key


def by_sense(extension: str) -> tuple[bool, int, str]:
    """Return the sort key of an extension: short ones without digits are kept first."""
    return any(map(str.isdigit, extension)), len(extension), extension


def by_length(layout: str) -> tuple[int, str]:
    """Return the sort key of a layout: the shortest descriptions are kept first."""
    return len(layout), layout


# ---- the profile ---------------------------------------------------------------------------------

KINDS = ("file", "directory", "link", "special")
MAX_OWNERS = 16_384
MAX_EXTENSIONS = 8192
MAX_LAYOUTS = 4096
MAX_DIRECTORIES = 4096
LONGEST_EXTENSION = 16
DEEPEST = 255  # entries at greater depths are counted at this depth
LARGEST_UNIT_BITS = 26
SMALLEST_UNIT_BITS = 9
UNITS = range(SMALLEST_UNIT_BITS, LARGEST_UNIT_BITS + 1)
"""The exponents of the unit sizes for which a profile stores how many units all files take."""


class FileRow(msgspec.Struct, frozen=True, array_like=True):
    """A file in a top list; `value` is its size, or its modification time in seconds."""

    value: int
    root: int
    path: bytes


class DirectoryRow(msgspec.Struct, frozen=True, array_like=True):
    """A directory, with the sums of its direct contents (`own_`) and of all contents.

    `entries` counts the directory itself.
    """

    root: int
    path: bytes
    depth: int
    entries: int
    size_bytes: int
    own_entries: int
    own_bytes: int


class SamplePiece(msgspec.Struct, frozen=True, array_like=True):
    """A piece of a file in the sample: its lot, and its size before and after compression."""

    lot: int
    raw_bytes: int
    packed_bytes: int


Tallies = dict[int, list[int]]


class Profile(msgspec.Struct, kw_only=True):
    """The profile of the trees below `roots`.

    Bytes are apparent sizes unless stated otherwise. Tallies are [number, bytes, allocated bytes],
    except those of `sizes`, which are [names, bytes, files], and those of `directory_sizes`, which
    are [directories, entries]. The keys of `kinds` are the kinds of entries, those of `sizes` are
    bins of sizes, and those of `directory_sizes` are bins of entry counts. `specials` maps kinds of
    special files to their numbers. `unit_counts` lists, for each of `UNITS`, the number of units
    that all files take. The keys of `ages` are days of modification since 1970. A key of
    `age_sizes` is 64 times the week plus the octave of the size. The keys of `stripes` are layouts.

    `weights` and `crowds` list the directories with the most bytes and entries including
    subdirectories, and `heavy` and `wide` those with the most direct contents. `names` contains the
    number of names of hard-linked files, and the number of these files. `sparse` contains six
    numbers: the sparse files, their bytes, their allocated bytes, the bytes in holes, the bytes
    saved otherwise, and the files that could not be examined. `sample` contains the pieces with the
    lowest lots, and `sampled` is the requested number of pieces.
    """

    taken_s: int
    facets: tuple[str, ...]
    roots: tuple[bytes, ...]
    top: int = 1
    kinds: dict[str, list[int]] = {}
    specials: dict[str, list[int]] = {}
    names: list[int] = msgspec.field(default_factory=lambda: [0, 0])
    unreadable: int = 0
    failed: int = 0
    largest_bytes: int = 0
    sizes: Tallies = {}
    unit_counts: list[int] = msgspec.field(default_factory=lambda: [0] * len(UNITS))
    edges: tuple[int, ...] = ()
    edge_tallies: list[list[int]] = []
    owners: Tallies = {}
    other_owners: list[int] = msgspec.field(default_factory=lambda: [0, 0, 0])
    groups: Tallies = {}
    other_groups: list[int] = msgspec.field(default_factory=lambda: [0, 0, 0])
    extensions: dict[str, list[int]] = {}
    other_extensions: list[int] = msgspec.field(default_factory=lambda: [0, 0, 0])
    ages: Tallies = {}
    age_sizes: Tallies = {}
    depths: Tallies = {}
    directory_sizes: Tallies = {}
    largest: list[FileRow] = []
    newest: list[FileRow] = []
    oldest: list[FileRow] = []
    weights: list[DirectoryRow] = []
    crowds: list[DirectoryRow] = []
    heavy: list[DirectoryRow] = []
    wide: list[DirectoryRow] = []
    sparse: list[int] = msgspec.field(default_factory=lambda: [0] * 6)
    stripes: dict[str, list[int]] = {}
    other_stripes: list[int] = msgspec.field(default_factory=lambda: [0, 0, 0])
    sampled: int = 0
    sample: list[SamplePiece] = []


_SUMMED_TABLES = ("ages", "age_sizes", "depths", "directory_sizes", "sizes", "kinds", "specials")
_SUMMED_LISTS = ("names", "sparse", "unit_counts")
_BOUNDED: tuple[tuple[str, int, Callable[[Any], Any]], ...] = (
    ("owners", MAX_OWNERS, by_number),
    ("groups", MAX_OWNERS, by_number),
    ("extensions", MAX_EXTENSIONS, by_sense),
    ("stripes", MAX_LAYOUTS, by_length),
)


Order = tuple[int | bytes, ...]


def by_bytes(row: DirectoryRow) -> Order:
    """Return the sort key by all bytes; a directory never precedes its parent."""
    return -row.size_bytes, row.depth, *_all(row)


def _all(row: DirectoryRow) -> Order:
    """Return a sort key that is a total order, even for rows of the same path."""
    return row.root, row.path, row.size_bytes, row.entries, row.own_bytes, row.own_entries


FILE_LISTS: dict[str, Callable[[FileRow], Order]] = {
    "largest": lambda row: (-row.value, row.root, row.path),
    "newest": lambda row: (-row.value, row.root, row.path),
    "oldest": lambda row: (row.value, row.root, row.path),
}
DIRECTORY_LISTS: dict[str, tuple[Callable[[DirectoryRow], Order], int | None]] = {
    "weights": (by_bytes, MAX_DIRECTORIES),
    # As by bytes, a directory never precedes its parent.
    "crowds": (lambda row: (-row.entries, row.depth, *_all(row)), MAX_DIRECTORIES),
    "heavy": (lambda row: (-row.own_bytes, *_all(row)), None),
    "wide": (lambda row: (-row.own_entries, *_all(row)), None),
}
"""The order and the length of each list. None stands for the requested length."""


def merge(a: Profile, b: Profile) -> Profile:
    """Merge two profiles into one; neither argument can be used afterwards."""
    roots = a.roots
    if a.roots != b.roots:
        roots = tuple(sorted({*a.roots, *b.roots}))
        a, b = _renumbered(a, roots), _renumbered(b, roots)
    top = min(a.top, b.top)
    merged = Profile(
        taken_s=max(a.taken_s, b.taken_s),
        facets=tuple(sorted(set(a.facets) & set(b.facets))),
        roots=roots,
        top=top,
        unreadable=a.unreadable + b.unreadable,
        failed=a.failed + b.failed,
        largest_bytes=max(a.largest_bytes, b.largest_bytes),
        sampled=min(a.sampled, b.sampled),
    )
    for name in _SUMMED_TABLES:
        setattr(merged, name, _summed(getattr(a, name), getattr(b, name)))
    for name in _SUMMED_LISTS:
        pairs = zip(getattr(a, name), getattr(b, name), strict=True)
        setattr(merged, name, [x + y for x, y in pairs])
    for name, most, rank in _BOUNDED:
        _merge_bounded(merged, a, b, name, most, rank)
    if a.edges == b.edges:
        merged.edges = a.edges
        pairs = zip(a.edge_tallies, b.edge_tallies, strict=True)
        merged.edge_tallies = [[x + y for x, y in zip(*pair, strict=True)] for pair in pairs]
    for name, order in FILE_LISTS.items():
        setattr(merged, name, _first(top, order, getattr(a, name), getattr(b, name)))
    for name, (by, max_kept) in DIRECTORY_LISTS.items():
        both = getattr(a, name), getattr(b, name)
        setattr(merged, name, _first(top if max_kept is None else max_kept, by, *both))
    # Equal lots belong to the same piece of a hard-linked file, found under two names.
    pieces = list({piece.lot: piece for piece in (*a.sample, *b.sample)}.values())
    merged.sample = _first(merged.sampled, _by_lot, pieces)
    return merged


def _by_lot(piece: SamplePiece) -> tuple[int, int, int]:
    return piece.lot, piece.raw_bytes, piece.packed_bytes


def _first(most: int, order: Callable[[Row], RowKey], *lists: list[Row]) -> list[Row]:
    best = Best(most, order)
    for rows in lists:
        best.update(rows)
    return best.rows()


def _summed(a: dict[K, list[int]], b: dict[K, list[int]]) -> dict[K, list[int]]:
    """Add the tallies of the smaller table to the larger one, and return the latter."""
    if len(a) < len(b):
        a, b = b, a
    for key, tally in b.items():
        if key in a:
            add_to(a[key], tally)
        else:
            a[key] = tally
    return a


def _merge_bounded(
    merged: Profile, a: Profile, b: Profile, name: str, most: int, rank: Callable[[Any], Any]
) -> None:
    table: Sums[Any] = Sums(most, rank)
    table.tallies = _summed(getattr(a, name), getattr(b, name))
    for other in (getattr(a, f"other_{name}"), getattr(b, f"other_{name}")):
        add_to(table.other, other)
    table.end(merged, name)


def _renumbered(profile: Profile, roots: tuple[bytes, ...]) -> Profile:
    """Return a profile whose root numbers refer to `roots`."""
    change = msgspec.structs.replace
    places = {root: place for place, root in enumerate(roots)}
    changed = {}
    for name in (*FILE_LISTS, *DIRECTORY_LISTS):
        rows = getattr(profile, name)
        changed[name] = [change(row, root=places[profile.roots[row.root]]) for row in rows]
    return change(profile, roots=roots, **changed)


# ---- encoding ------------------------------------------------------------------------------------

_LARGE = 1  # the extension type
_LARGEST_PLAIN = (1 << 64) - 1
_MAX_BYTES = 16


def pack(profile: Profile) -> bytes:
    """Encode a profile as bytes."""
    try:
        return msgspec.msgpack.encode(profile)
    except OverflowError:
        plain = msgspec.to_builtins(profile, builtin_types=(bytes,))
        return msgspec.msgpack.encode(_with_extensions(plain))


def unpack(packed: bytes) -> Profile:
    """Decode a profile. Raise msgspec.DecodeError or ValueError if it is invalid."""
    try:
        return msgspec.msgpack.decode(packed, type=Profile)
    except msgspec.ValidationError as error:
        if "got `ext`" not in str(error):
            raise
    loose = msgspec.msgpack.decode(packed, ext_hook=_large)
    return msgspec.convert(loose, Profile, builtin_types=(bytes,))


def _with_extensions(value: object) -> object:
    if isinstance(value, int) and value > _LARGEST_PLAIN:
        return msgspec.msgpack.Ext(_LARGE, value.to_bytes(_MAX_BYTES, "big"))
    if isinstance(value, dict):
        return {key: _with_extensions(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_with_extensions(inner) for inner in value]
    return value


def _large(code: int, data: memoryview) -> int:
    if code != _LARGE or len(data) > _MAX_BYTES:
        raise ValueError("invalid extension")
    return int.from_bytes(data, "big")
