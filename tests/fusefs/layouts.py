"""Lustre's handling of the attribute `lustre.lov`, for a file system that imitates Lustre.

Written after lustre/llite/xattr.c, lustre/llite/dir.c and lustre/lod/lod_lov.c of lustre-release,
with structures of its own, so that fcp's parser of the format is compared with another one:

- a file gets a layout when it is opened for writing, unless it was with O_ASYNC (Lustre's
  O_LOV_DELAY_CREATE is O_NOCTTY | FASYNC; the kernel keeps O_NOCTTY from FUSE): then it has none,
  and can't be written to;
- a layout that is set on a file which has one is ignored, *without an error*, and counted here;
- a new layout is checked, then gets its targets: objects, ids and flags appear in it;
- a directory passes its default on to new files and directories in it; one without a default
  answers with the default of the root, if that has one.

Little-endian only, because FUSE is mounted on the machine that runs the tests.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Sequence
from typing import NamedTuple

from .nodes import Node, SideStore

NAME = b"lustre.lov"
TARGETS = 8
DEFAULT_STRIPE_BYTES = 1 << 20
EOF = (1 << 64) - 1
ANY = 0xFFFF

V1, V3, SPECIFIC, COMP = 0x0BD10BD0, 0x0BD30BD0, 0x0BD50BD0, 0x0BD60BD0
RAID0, MDT, OVERSTRIPED, RELEASED = 0x1, 0x100, 0x200, 0x80000000
INIT = 0x10
_GRAIN = 65536
_MD, _COMP, _ENTRY = (
    struct.Struct("<IIQQIHH"),
    struct.Struct("<IIIHHHHIQ"),
    struct.Struct("<IIQQIII"),
)
_ENTRY_BYTES, _OBJECT_BYTES = 48, 24


class Md(NamedTuple):
    """A plain layout without objects."""

    stripes: int = 1
    size: int = DEFAULT_STRIPE_BYTES
    pool: bytes = b""
    pattern: int = RAID0
    offset: int = ANY

    def pack(self, objects: Sequence[int] = ()) -> bytes:
        magic = V3 if self.pool else V1
        value = _MD.pack(magic, self.pattern, 11, 12, self.size, self.stripes, self.offset)
        value += self.pool.ljust(16, b"\0") if self.pool else b""
        return value + b"".join(struct.pack("<QQII", 500 + n, 0, 3, n) for n in objects)


class Entry(NamedTuple):
    """A component of a composite layout."""

    start: int
    end: int
    md: Md
    flags: int = 0
    number: int = 0
    objects: tuple[int, ...] = ()


def pack_composite(entries: Sequence[Entry], mirrors: int = 1, generation: int = 0) -> bytes:
    """Return the bytes of a composite layout."""
    blobs = [entry.md.pack(entry.objects) for entry in entries]
    at = _COMP.size + _ENTRY_BYTES * len(entries)
    size = at + sum(map(len, blobs))
    out = _COMP.pack(COMP, size, generation, 0, len(entries), mirrors - 1, 0, 0, 0)
    for entry, blob in zip(entries, blobs, strict=True):
        place = entry.start, entry.end, at, len(blob), 0
        out += _ENTRY.pack(entry.number, entry.flags, *place).ljust(_ENTRY_BYTES, b"\0")
        at += len(blob)
    return out + b"".join(blobs)


def unpack_md(value: bytes) -> Md:
    """Parse a plain layout without its objects."""
    magic, pattern, _, _, size, count, offset = _MD.unpack_from(value)
    _demand(magic in (V1, V3, SPECIFIC))
    pool = value[32:48].rstrip(b"\0") if magic != V1 else b""
    return Md(count, size, pool, pattern, offset)


def unpack_composite(value: bytes) -> tuple[int, list[Entry]]:
    """Return the number of mirrors, and the components without objects."""
    _, size, _, _, count, further, *_ = _COMP.unpack_from(value)
    _demand(len(value) >= size >= _COMP.size + count * _ENTRY_BYTES and count > 0)
    entries = []
    for number in range(count):
        at = _COMP.size + number * _ENTRY_BYTES
        own, flags, start, end, offset, length, _ = _ENTRY.unpack_from(value, at)
        _demand(offset + length <= size and length >= _MD.size)
        md = unpack_md(value[offset : offset + length])
        entries.append(Entry(start, end, md, flags, own))
    return further + 1, entries


def _demand(holds: bool) -> None:
    if not holds:
        raise OSError(errno.EINVAL, "")


def _check_md(md: Md) -> None:
    base = md.pattern & ~0xFFFF0000
    _demand(base in (0, RAID0, RAID0 | OVERSTRIPED, MDT))
    _demand(not md.pattern & 0xFFFF0000)
    _demand(md.size % _GRAIN == 0)
    _demand(md.offset == ANY or md.offset < TARGETS)
    _demand(md.stripes <= 2000 or md.stripes == 0xFFFF)


def _check_composite(mirrors: int, entries: Sequence[Entry]) -> None:
    """Check a composite layout like lod_verify_striping."""
    reached = found = 0
    for entry in entries:
        start, end, md = entry.start, entry.end, entry.md
        _demand(start <= end and start % _GRAIN == 0 and (end == EOF or end % _GRAIN == 0))
        _demand(not entry.flags and not entry.number)
        if start == 0:
            found, reached = found + 1, 0
        _demand(start == reached)
        if md.pattern & MDT:
            _demand(start == 0 and md.size == end and md.stripes == 0 and not md.pool)
        _check_md(md)
        _demand(end == EOF or not md.size or end % md.size == 0)
        reached = end
    _demand(found == mirrors)


def _chosen(md: Md, begin: int) -> tuple[Md, tuple[int, ...]]:
    """Return a layout with its defaults filled in, and its targets."""
    if md.pattern & MDT:
        return md, ()
    count = TARGETS if md.stripes == 0xFFFF else min(md.stripes or 1, TARGETS)
    size = md.size or DEFAULT_STRIPE_BYTES
    objects = tuple((begin + number) % TARGETS for number in range(count))
    return md._replace(stripes=count, size=size, pattern=md.pattern or RAID0, offset=ANY), objects


class LustreStore(SideStore):
    """Attributes as Lustre stores them. `ignored` counts the layouts that were set too late."""

    def __init__(self, root: Node) -> None:
        super().__init__()
        self._root = root
        self._begin = 0
        self.ignored = 0

    def set_layout(self, node: Node, value: bytes) -> None:
        """Set a layout on a file, if it has none, or on a directory."""
        if len(value) < _MD.size:
            raise OSError(errno.ERANGE, "")
        if not stat.S_ISDIR(os.fstat(node.fd).st_mode):
            if NAME in self.of(node):
                self.ignored += 1
            else:
                self.of(node)[NAME] = self._instantiated(value)
            return
        if struct.unpack_from("<I", value)[0] == COMP:
            mirrors, entries = unpack_composite(value)
            _check_composite(mirrors, entries)
            self.of(node)[NAME] = pack_composite(entries, mirrors)
        else:
            md = unpack_md(value)
            _check_md(md)
            self.of(node)[NAME] = md._replace(offset=ANY).pack()

    def _instantiated(self, value: bytes) -> bytes:
        self._begin += 1
        if struct.unpack_from("<I", value)[0] != COMP:
            md = unpack_md(value)
            _demand(not md.pattern & MDT)
            _check_md(md)
            chosen, objects = _chosen(md, self._begin)
            return chosen.pack(objects)
        mirrors, entries = unpack_composite(value)
        _check_composite(mirrors, entries)
        made = []
        for number, entry in enumerate(entries):
            md, objects = _chosen(entry.md, self._begin)
            begun = entry.start == 0
            flags = INIT if begun else 0
            entry = entry._replace(md=md, flags=flags, number=number + 1)
            made.append(entry._replace(objects=objects if begun else ()))
        return pack_composite(made, mirrors, generation=len(made))

    def default_of(self, directory: Node) -> bytes | None:
        """Return the default layout that a directory reports."""
        own = self.of(directory).get(NAME)
        return own if own is not None else self.of(self._root).get(NAME)

    def opened(self, node: Node, flags: int, directory: Node | None = None) -> None:
        """Give the default layout to a file that is created or opened, if necessary."""
        writable = flags & os.O_ACCMODE != os.O_RDONLY
        if not writable or flags & os.O_ASYNC or NAME in self.of(node):
            return
        above = directory or node.parent or self._root
        default = self.default_of(above)
        self.of(node)[NAME] = self._instantiated(Md().pack() if default is None else default)

    def made_directory(self, node: Node, above: Node) -> None:
        """Inherit the default layout in a new directory."""
        own = self.of(above).get(NAME)
        if own is not None and above is not self._root:
            self.of(node)[NAME] = own

    def demand_layout(self, node: Node) -> None:
        """Raise EBADF if a file can't be written to yet."""
        if NAME not in self.of(node):
            raise OSError(errno.EBADF, "")
