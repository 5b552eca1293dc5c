"""Indexes, which record the entries of trees in one file that is read as a stream.

`docs/index-format.rst` specifies every byte of the format. The file consists of sections. The
section of a directory is followed by the sections of its names and of its subdirectories. The
status of names is stored by column, as in `pcircle.fs.stats`, so a query of one column does not
decode the others.

The content of an index is not trusted. `Index.verify` compares the whole file with its digest
before it is used, and values are checked where they are used.
"""

from __future__ import annotations

import os
import struct
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from stat import S_ISLNK
from typing import NamedTuple, TypeAlias

import msgspec
import xxhash

from pcircle.core.units import NS_PER_S
from pcircle.fs.safe_open import reading
from pcircle.fs.stats import Stats, StatusRow

VERSION = 1
ENDING = b".entries"
"""The suffix that is added to the name of a profile to form that of its index."""

_BEGIN = b"pcircle index "
_PROFILE = b"pcircle profile "
_COUNT, _SIZE = struct.Struct("<I"), struct.Struct("<I")
_HEAD = struct.Struct("<IBII")  # length, kind, root, length of the path
_NAMES = struct.Struct("<II")
_FAILURE = struct.Struct("<IB")
_END = struct.Struct("<IQ")
_DIGEST_BYTES = 16
_RANGE_BYTES = 1 << 20
_AHEAD_BYTES = 64 << 10
_MAX_BYTES = 64 << 20  # maximum length of a section; its path may be long
FIELDS = (
    ("mode", "I"), ("inode", "Q"), ("device", "Q"), ("links", "Q"), ("uid", "I"), ("gid", "I"),
    ("size", "Q"), ("blocks", "Q"), ("rdev", "Q"), ("atime", "q"), ("atime_ns", "I"),
    ("mtime", "q"), ("mtime_ns", "I"), ("ctime", "q"), ("ctime_ns", "I"),
)  # fmt: skip
"""The stored columns of `Stats`, each with its type."""
_ROW = struct.Struct("<" + "".join(letter for _, letter in FIELDS))
_NUMBERS = 0xFFFFFFFFFFFFFFFF

DIRECTORY, NAMES, FAILURE = b"DNX"
LOOKED_UP, READ = 0, 1
"""The operations that can fail."""


class DamagedIndexError(ValueError):
    """The index is damaged."""


class IndexedRoot(NamedTuple):
    """A root of an index: the PATH as typed, and its absolute form."""

    shown: bytes
    path: bytes


# ---- writing -----------------------------------------------------------------------


def key_of(root: int, path: bytes, *, itself: bool = False) -> bytes:
    """Return the sort key of a section. With `itself`, it precedes the directory's contents."""
    path = b"%06d/%b" % (root, path) if path else b"%06d" % root
    return path + b"/" if itself else path


def _section(kind: int, root: int, path: bytes, body: bytes) -> bytes:
    length = _HEAD.size - _SIZE.size + len(path) + len(body)
    if length > _MAX_BYTES:
        raise OSError("a path is too long for an index")
    return _HEAD.pack(length, kind, root, len(path)) + path + body


def directory(
    root: int, path: bytes, status: os.stat_result | StatusRow, *, entered: bool = True
) -> bytes:
    """Return the section of a directory itself, or of a root that is not a directory."""
    times = (status.st_atime_ns, status.st_mtime_ns, status.st_ctime_ns)
    row = _ROW.pack(
        status.st_mode,
        status.st_ino & _NUMBERS,
        status.st_dev,
        status.st_nlink,
        status.st_uid,
        status.st_gid,
        status.st_size & _NUMBERS,
        status.st_blocks & _NUMBERS,
        status.st_rdev,
        *(part for time_ns in times for part in divmod(time_ns, NS_PER_S)),
    )
    return _section(DIRECTORY, root, path, row + bytes([entered]))


def names(
    root: int,
    path: bytes,
    found: Sequence[bytes],
    stats: Stats,
    places: Sequence[int],
    targets: Sequence[bytes],
) -> bytes:
    """Return the section of names that were looked up; `places` are their rows in `stats`.

    `targets` are the targets of the links among them.
    """
    text = b"/".join(found)
    columns = []
    for name, letter in FIELDS:
        column = stats.column(name, 0, places[-1] + 1)
        if len(places) < len(column):
            column = [column[place] for place in places]
        columns.append(_packed(letter, column))
    counts = _NAMES.pack(len(found), len(text))
    return _section(NAMES, root, path, b"".join([counts, text, *columns, b"\0".join(targets)]))


def _packed(letter: str, column: Sequence[int]) -> bytes:
    packed = array(letter, column)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def failure(root: int, path: bytes, name: bytes, doing: int, error: OSError) -> bytes:
    """Return the section of a failed operation on a name or on the directory itself."""
    return _section(FAILURE, root, path, _FAILURE.pack(error.errno or 0, doing) + name)


def pieces(
    roots: Sequence[IndexedRoot], sections: Iterable[bytes], entries: int
) -> Iterator[bytes]:
    """Yield the pieces of an index file, given its sections in the order of their keys."""
    digest = xxhash.xxh3_128()

    def content() -> Iterator[bytes]:
        yield b"%b%d\n" % (_BEGIN, VERSION)
        yield _COUNT.pack(len(roots))
        for text in (text for root in roots for text in root):
            yield _SIZE.pack(len(text)) + text
        yield from sections
        yield _END.pack(0, entries)

    for piece in content():
        digest.update(piece)
        yield piece
    yield digest.digest()


# ---- reading -----------------------------------------------------------------------

Key: TypeAlias = tuple[int, list[bytes]]


def key(root: int, path: bytes) -> Key:
    """Return the sort key of the sections of a directory."""
    return root, path.split(b"/") if path else []


class Section(msgspec.Struct, frozen=True):
    """A section of an index, whose kind is `DIRECTORY`, `NAMES` or `FAILURE`."""

    kind: int
    root: int
    path: bytes
    body: bytes

    @property
    def key(self) -> Key:
        """Return the sort key."""
        return key(self.root, self.path)

    def holds(self, other: Section | None) -> bool:
        """Return whether another section belongs to this directory or lies below it."""
        if other is None or other.root != self.root:
            return False
        return is_below(other.path, self.path)

    def status(self) -> StatusRow:
        """Return the status of a directory itself."""
        numbers = _ROW.unpack_from(self.body)
        mode, inode, device, links, uid, gid, size, blocks, rdev, *times = numbers
        times_ns = [NS_PER_S * times[at] + times[at + 1] for at in (0, 2, 4)]
        return StatusRow(mode, inode, device, links, uid, gid, size, blocks, 0, rdev, *times_ns)

    @property
    def entered(self) -> bool:
        """Return whether the directory was read."""
        return self.body[_ROW.size] == 1

    def failure(self) -> tuple[bytes, int, int]:
        """Return the failed name (empty for the directory itself), the operation, and the errno."""
        number, doing = _FAILURE.unpack_from(self.body)
        return self.body[_FAILURE.size :], doing, number


class Columns:
    """The names in a section, and the columns of their status.

    Raises DamagedIndexError if the names are invalid.
    """

    def __init__(self, section: Section) -> None:
        body = section.body
        self._count, size = _NAMES.unpack_from(body)
        self._at = _NAMES.size + size
        _check_path(text := body[_NAMES.size : self._at])
        self.names: list[bytes] = text.split(b"/")
        if len(self.names) != self._count:
            raise DamagedIndexError("a section lacks names")
        self._body = body
        self._known: dict[str, array[int]] = {}
        self._places: dict[bytes, int] = {}
        self._targets: dict[bytes, bytes] | None = None

    def column(self, name: str) -> array[int]:
        """Return one column, with a value for each name."""
        found = self._known.get(name)
        if found is None:
            letter, before = _COLUMNS[name]
            found = self._known[name] = array(letter)
            begin = self._at + before * self._count
            found.frombytes(self._body[begin : begin + found.itemsize * self._count])
            if len(found) != self._count:
                raise DamagedIndexError("a section is truncated")
            if sys.byteorder == "big":
                found.byteswap()
        return found

    def place(self, name: bytes) -> int:
        """Return the place of a name in the columns. Raises KeyError for other names."""
        if not self._places:
            self._places = {listed: place for place, listed in enumerate(self.names)}
        return self._places[name]

    def rows(self, names: Sequence[bytes]) -> list[StatusRow]:
        """Return the rows of these names."""
        places: Sequence[int] = range(self._count)
        if len(names) < self._count:
            places = [self.place(name) for name in names]

        def of(name: str) -> list[int]:
            column = self.column(name)
            return [column[place] for place in places]

        def times(name: str) -> list[int]:
            pairs = zip(of(name), of(f"{name}_ns"), strict=True)
            return [NS_PER_S * second + ns for second, ns in pairs]

        plain = map(of, ("mode", "inode", "device", "links", "uid", "gid", "size", "blocks"))
        found = [*plain, [0] * len(places), of("rdev"), *map(times, ("atime", "mtime", "ctime"))]
        return list(map(StatusRow, *found))

    def target(self, name: bytes) -> bytes:
        """Return the target of a link."""
        if self._targets is None:
            modes = self.column("mode")
            links = [link for link, mode in zip(self.names, modes, strict=True) if S_ISLNK(mode)]
            texts = self._body[self._at + _ROW.size * self._count :].split(b"\0")
            if links and len(links) != len(texts):
                raise DamagedIndexError("a section lacks links")
            self._targets = dict(zip(links, texts, strict=False))
        return self._targets[name]


def _offsets() -> Iterator[tuple[str, tuple[str, int]]]:
    """Yield the name of each column, its type, and its offset in a row of all columns."""
    before = 0
    for name, letter in FIELDS:
        yield name, (letter, before)
        before += struct.calcsize("<" + letter)


_COLUMNS = dict(_offsets())


def _check_path(text: bytes) -> None:
    """Raise DamagedIndexError for a path that is invalid or could leave the tree."""
    framed = b"/%b/" % text
    if b"\0" in text or any(odd in framed for odd in (b"//", b"/./", b"/../")):
        raise DamagedIndexError("invalid name")


def is_below(path: bytes, above: bytes) -> bool:
    """Return whether a path equals `above` or lies below it."""
    return not above or path == above or path.startswith(above + b"/")


class Range(msgspec.Struct, frozen=True):
    """The byte range of consecutive sections, and the key of the first section."""

    begin: int
    end: int
    key: Key


class Index:
    """An index that is open for reading.

    Raises OSError, or DamagedIndexError if the beginning or the end of the file is invalid.
    """

    def __init__(self, path: bytes) -> None:
        self.path = path
        self._fd = reading(path)
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        begin = self._read(0, _AHEAD_BYTES)
        line, newline, _ = begin.partition(b"\n")
        number = line.removeprefix(_BEGIN)
        if not newline or not line.startswith(_BEGIN) or not number.isdigit() or len(number) > 9:
            raise DamagedIndexError("it is not an index")
        if int(number) != VERSION:
            raise DamagedIndexError(f"it has version {int(number)}; only {VERSION} can be read")
        self._end = os.fstat(self._fd).st_size - _END.size - _DIGEST_BYTES
        self._begin = len(line) + 1 + _COUNT.size
        end = self._read(self._end, _END.size + _DIGEST_BYTES) if self._end > self._begin else b""
        if len(end) < _END.size + _DIGEST_BYTES or _END.unpack_from(end)[0]:
            raise DamagedIndexError("it is truncated")
        self.entries: int = _END.unpack_from(end)[1]
        self.digest: bytes = end[_END.size :]
        (count,) = _COUNT.unpack(self._read(self._begin - _COUNT.size, _COUNT.size))
        self.roots: list[IndexedRoot] = [
            IndexedRoot(self._text(), self._text()) for _ in range(count)
        ]

    def _text(self) -> bytes:
        size_at = self._begin
        (size,) = _SIZE.unpack(self._read(size_at, _SIZE.size))
        self._begin += _SIZE.size + size
        if self._begin > self._end:
            raise DamagedIndexError("it is truncated")
        return self._read(size_at + _SIZE.size, size)

    def _read(self, at: int, size: int) -> bytes:
        return os.pread(self._fd, size, at)

    def close(self) -> None:
        """Close the index."""
        os.close(self._fd)

    def verify(self) -> list[Range]:
        """Read the whole index, and return ranges of its sections.

        Raises OSError, or DamagedIndexError if the file has changed since it was written.
        """
        digest = xxhash.xxh3_128(self._read(0, self._begin))
        found: list[Range] = []
        at = self._begin
        while at < self._end:
            data = self._read(at, min(_RANGE_BYTES, self._end - at))
            size = _sections_bytes(data)
            if not size:  # the next section is longer than this
                data = self._read(at, self._length_at(data))
                size = _sections_bytes(data)
            if not size:
                raise DamagedIndexError("it is truncated")
            digest.update(memoryview(data)[:size])
            found.append(Range(at, at + size, _section_at(data, 0).key))
            at += size
        digest.update(self._read(self._end, _END.size))
        if digest.digest() != self.digest:
            raise DamagedIndexError("checksum mismatch")
        return found

    def _length_at(self, data: bytes) -> int:
        if len(data) < _HEAD.size:
            raise DamagedIndexError("it is truncated")
        length = _HEAD.unpack_from(data)[0] + _SIZE.size
        if length > _MAX_BYTES + _SIZE.size or length <= _SIZE.size:
            raise DamagedIndexError("invalid section length")
        return int(length)

    def sections(self, begin: int, end: int) -> Iterator[tuple[Section, Section | None]]:
        """Yield the sections of a range, each with its successor.

        Raises OSError or DamagedIndexError.
        """
        sections = self._from(begin, end)
        for section, after in pairwise(sections):
            if section is not None:
                yield section, after

    def _from(self, begin: int, end: int) -> Iterator[Section | None]:
        """Yield the sections of a range, then the section after it, or None at the end."""
        at = begin
        while at < self._end:
            data = self._read(at, min(_RANGE_BYTES + _AHEAD_BYTES, self._end - at))
            size = _sections_bytes(data)
            if not size:
                data = self._read(at, self._length_at(data))
                size = _sections_bytes(data)
            if not size:
                raise DamagedIndexError("it is truncated")
            place = 0
            while place < size:
                yield _section_at(data, place)
                if at + place >= end:
                    return
                place += _SIZE.unpack_from(data, place)[0] + _SIZE.size
            at += size
        yield None


def _sections_bytes(data: bytes) -> int:
    """Return the length of the complete sections in `data`. Raises DamagedIndexError."""
    at, end = 0, len(data)
    while at + _HEAD.size <= end:
        length = _SIZE.unpack_from(data, at)[0]
        if not _HEAD.size - _SIZE.size <= length <= _MAX_BYTES:
            raise DamagedIndexError("invalid section length")
        if at + _SIZE.size + length > end:
            break
        at += _SIZE.size + length
    return at


def _section_at(data: bytes, at: int) -> Section:
    length, kind, root, size = _HEAD.unpack_from(data, at)
    begin, end = at + _HEAD.size, at + _SIZE.size + length
    min_bytes = {DIRECTORY: _ROW.size + 1, NAMES: _NAMES.size, FAILURE: _FAILURE.size}.get(kind)
    if min_bytes is None or begin + size + min_bytes > end:
        raise DamagedIndexError("invalid section")
    path = data[begin : begin + size]
    if path:
        _check_path(path)
    return Section(kind, root, path, data[begin + size : end])


def place_of(path: bytes) -> bytes:
    """Return the path of an index, given that path or the path of its profile. Raises OSError."""
    fd = reading(path)
    try:
        is_profile = os.pread(fd, len(_PROFILE), 0) == _PROFILE
    finally:
        os.close(fd)
    return path + ENDING if is_profile else path
