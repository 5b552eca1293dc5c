"""Lustre layouts: the number of storage targets that a file is striped over, and the stripe size.

Lustre presents a file's layout, and a directory's default layout for new files, as the extended
attribute `lustre.lov`, and accepts a new layout in the same form. So layouts are read and written
here without a Lustre library. Other file systems do not have this attribute. Its format:

- plain: a header of 32 bytes (magic, pattern, object id, stripe size, stripe count, first target),
  or of 48 bytes if a pool is named, then 24 bytes for each object of the file;
- composite: a header of 32 bytes and a table with 48 bytes for each component (id, flags, extent,
  offset and size of its plain layout), followed by the layouts. Progressive layouts (PFL), data on
  the metadata server (DoM), self-extending layouts and mirrors use this form.

Numbers are in the byte order of the machine that wrote them; the magic number reveals it.

To preserve a layout, it is converted to a request for a new file (`fresh`). Objects, generations
and ids belong to the original file, so they are omitted, and the server chooses the targets. Only
the first mirror of a mirrored file is preserved, because writes go to one mirror anyway until the
file is resynchronized. The copy of an archived file (HSM released) is not archived.

Lustre silently ignores a new layout for a file that already has one. A file gets its default layout
when it is opened for writing. Therefore a file is created with `O_NOCTTY | FASYNC` (`DELAY`), which
makes Lustre postpone the default layout. The file cannot be written to before a layout is set.

Sources: include/uapi/linux/lustre/lustre_user.h of lustre-release for structures and constants;
lustre/llite/xattr.c for the meaning of setting and getting the attribute; lod_verify_striping in
lustre/lod/lod_lov.c for the layouts that a server rejects; llapi_layout_file_open and
llapi_layout_to_lum in lustre/utils/liblustreapi_layout.c for the creation of files by Lustre's own
tools.
"""

from __future__ import annotations

import errno
import math
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from struct import Struct
from typing import Final, TypeAlias

import msgspec

from pcircle.fs.attributes.mounts import type_of_device

ATTRIBUTE: Final = "lustre.lov"
DELAY: Final = os.O_NOCTTY | os.O_ASYNC
"""Flags for creating a file whose layout will be set."""

STRIPE = "Lustre layouts"
"""The name for layouts among the attributes to preserve."""

STRIPE_UNIT_BYTES: Final = 64 << 10
"""The unit of stripe sizes."""
MAX_STRIPES: Final = 2000
ALL_STRIPES: Final = 0xFFFF
"""The stripe count that stands for all targets."""
ANY_TARGET: Final = 0xFFFF
END_OF_FILE: Final = (1 << 64) - 1

RAID0: Final = 0x001
DATA_ON_METADATA: Final = 0x100
RELEASED: Final = 0x80000000
OVERSTRIPED: Final = 0x200
COMPRESSED: Final = 0x800
_FLAGS_OF_PATTERN = 0xFFFF0000  # released, with holes
_KEPT_PATTERNS = frozenset((0, RAID0, RAID0 | OVERSTRIPED, RAID0 | COMPRESSED))

INSTANTIATED: Final = 0x010
EXTENSION: Final = 0x040
PARITY: Final = 0x080
_NOT_COMPRESSED = 0x400
_KEPT_FLAGS = EXTENSION | _NOT_COMPRESSED

_PLAIN, _POOLED, _ON_TARGETS = 0x0BD10BD0, 0x0BD30BD0, 0x0BD50BD0
_COMPOSITE, _SELF_EXTENDING = 0x0BD60BD0, 0x0BD80BD0
_FOREIGN = 0x0BD70BD0
_KNOWN = (_PLAIN, _POOLED, _ON_TARGETS, _COMPOSITE, _SELF_EXTENDING, _FOREIGN)
_POOL_BYTES = 16
_NO_LAYOUT = frozenset((errno.ENODATA, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOTSUP))


class _Order:
    """The binary structures of layouts in one byte order."""

    def __init__(self, sign: str) -> None:
        self.magic = Struct(sign + "I")
        self.plain = Struct(sign + "II16sIHH")
        self.object = Struct(sign + "16sII")
        self.composite = Struct(sign + "IIIHHHBx4x8x")
        self.entry = Struct(sign + "IIQQIII8sBB2s")


_ORDERS = {"little": _Order("<"), "big": _Order(">")}


class Stripes(msgspec.Struct, frozen=True):
    """A plain layout.

    A `stripe_bytes` or `count` of 0 selects the default of the file system. `first` is the number
    of the first target, or `ANY_TARGET`. `targets` are the target numbers of a file's objects.
    """

    pattern: int = RAID0
    stripe_bytes: int = 0
    count: int = 0
    pool: bytes = b""
    first: int = ANY_TARGET
    targets: tuple[int, ...] = ()


class Component(msgspec.Struct, frozen=True):
    """The part of a file from byte `start` to `end`, and its layout, or None if it is foreign.

    `flags`, `number` and the two bytes of `compression` have the stored values.
    """

    start: int
    end: int
    stripes: Stripes | None
    flags: int = 0
    number: int = 0
    compression: bytes = bytes(2)


class Composite(msgspec.Struct, frozen=True):
    """A composite layout: components in order. Those of each further mirror begin at 0 again."""

    components: tuple[Component, ...]
    flags: int = 0
    mirrors: int = 1


Layout: TypeAlias = "Stripes | Composite"


def _order_of(value: bytes) -> _Order | None:
    """Return the structures in the byte order of a layout; None if the value is not a layout."""
    if len(value) >= 4:
        for order in _ORDERS.values():
            if order.magic.unpack_from(value)[0] in _KNOWN:
                return order
    return None


def parse(value: bytes) -> Layout:
    """Parse the value of the attribute. Raises ValueError if it is invalid."""
    order = _order_of(value)
    if order is None:
        raise ValueError("it does not begin like a layout")
    (magic,) = order.magic.unpack_from(value)
    if magic in (_COMPOSITE, _SELF_EXTENDING):
        return _parse_composite(value, order)
    stripes = _parse_plain(value, order)
    if stripes is None:
        raise ValueError("it is not stored in Lustre")
    return stripes


def _parse_plain(value: bytes, order: _Order) -> Stripes | None:
    """Return a plain layout, or None for a foreign one."""
    if len(value) < order.magic.size:
        raise ValueError("it is truncated")
    (magic,) = order.magic.unpack_from(value)
    if magic == _FOREIGN:
        return None
    if magic not in (_PLAIN, _POOLED, _ON_TARGETS):
        raise ValueError(f"a plain layout cannot begin with {magic:#x}")
    at = order.plain.size + (0 if magic == _PLAIN else _POOL_BYTES)
    if len(value) < at:
        raise ValueError("it is truncated")
    _, pattern, _, stripe_bytes, count, first = order.plain.unpack_from(value)
    pool, end, _ = value[order.plain.size : at].partition(b"\0")
    if magic != _PLAIN and not end:
        raise ValueError("its pool name is not terminated")
    # The length determines the number of objects: there are none before they are created, although
    # `count` is already set.
    objects = (len(value) - at) // order.object.size
    if objects > MAX_STRIPES:
        raise ValueError(f"it has {objects} objects")
    every = range(at, at + objects * order.object.size, order.object.size)
    targets = tuple(order.object.unpack_from(value, offset)[2] for offset in every)
    return Stripes(pattern, stripe_bytes, count, pool, first, targets)


def _parse_composite(value: bytes, order: _Order) -> Composite:
    if len(value) < order.composite.size:
        raise ValueError("it is truncated")
    _, size, _, flags, count, further, _ = order.composite.unpack_from(value)
    table_end = order.composite.size + count * order.entry.size
    if not count or not table_end <= size <= len(value):
        raise ValueError(f"{count} components do not fit")
    components = []
    room = size - table_end
    for at in range(order.composite.size, table_end, order.entry.size):
        number, own, start, end, offset, length, *_, compression = order.entry.unpack_from(
            value, at
        )
        room -= length
        if not table_end <= offset <= offset + length <= size or room < 0:
            raise ValueError("a component lies outside the layout")
        if start > end:
            raise ValueError("a component ends before it begins")
        stripes = _parse_plain(value[offset : offset + length], order)
        components.append(Component(start, end, stripes, own, number, compression))
    return Composite(tuple(components), flags, further + 1)


def compose(layout: Layout, byteorder: str = sys.byteorder) -> bytes:
    """Return the attribute's value for a layout. Raises ValueError for a foreign component."""
    order = _ORDERS[byteorder]
    if isinstance(layout, Stripes):
        return _compose_plain(layout, order)
    table, blobs = [], []
    offset = order.composite.size + len(layout.components) * order.entry.size
    for part in layout.components:
        if part.stripes is None:
            raise ValueError("it is not stored in Lustre")
        blob = _compose_plain(part.stripes, order)
        place = part.start, part.end, offset, len(blob)
        table.append(
            order.entry.pack(part.number, part.flags, *place, 0, bytes(8), 0, 0, part.compression)
        )
        blobs.append(blob)
        offset += len(blob)
    count, further = len(layout.components), layout.mirrors - 1
    head = order.composite.pack(_COMPOSITE, offset, 0, layout.flags, count, further, 0)
    return b"".join((head, *table, *blobs))


def _compose_plain(stripes: Stripes, order: _Order) -> bytes:
    if len(stripes.pool) >= _POOL_BYTES:
        raise ValueError(f"a pool name has fewer than {_POOL_BYTES} bytes")
    fields = stripes.pattern, bytes(16), stripes.stripe_bytes, stripes.count, stripes.first
    head = order.plain.pack(_POOLED if stripes.pool else _PLAIN, *fields)
    if stripes.pool:
        head += stripes.pool.ljust(_POOL_BYTES, b"\0")
    return head + b"".join(order.object.pack(bytes(16), 0, number) for number in stripes.targets)


def fresh(layout: Layout) -> Layout:
    """Return the request that gives a new file the same layout.

    Raises ValueError if no request can express the layout.
    """
    if isinstance(layout, Stripes):
        return _fresh_stripes(layout)
    for mirror in _mirrors(layout.components):
        stripes = [part.stripes for part in mirror if part.stripes and not part.flags & PARITY]
        if len(stripes) == len(mirror):
            return Composite(tuple(map(_fresh_component, mirror, stripes)))
    raise ValueError("it has no mirror that is stored in Lustre")


def _mirrors(components: Sequence[Component]) -> list[list[Component]]:
    mirrors: list[list[Component]] = []
    for part in components:
        if part.start == 0 or not mirrors:
            mirrors.append([])
        mirrors[-1].append(part)
    return mirrors


def _fresh_component(part: Component, stripes: Stripes) -> Component:
    if stripes.pattern & DATA_ON_METADATA:
        # Data on the metadata server is one piece, without a stripe count or a pool.
        stripes = Stripes(DATA_ON_METADATA, stripes.stripe_bytes)
    else:
        stripes = _fresh_stripes(stripes)
    flags = part.flags & _KEPT_FLAGS
    return Component(part.start, part.end, stripes, flags, compression=part.compression)


def _fresh_stripes(stripes: Stripes) -> Stripes:
    pattern = stripes.pattern & ~_FLAGS_OF_PATTERN
    if pattern not in _KEPT_PATTERNS:
        raise ValueError(f"unknown pattern {pattern:#x}")
    return Stripes(pattern, stripes.stripe_bytes, stripes.count, stripes.pool)


def requested_layout(value: bytes) -> bytes:
    """Return the attribute that requests the same layout for a new file; see `fresh`."""
    return compose(fresh(parse(value)))


def common_stripe_bytes(layout: Layout) -> int:
    """Return the least common multiple of all stripe sizes; 0 if unknown."""
    if isinstance(layout, Stripes):
        return layout.stripe_bytes
    sizes = [
        part.stripes.stripe_bytes
        for part in layout.components
        # In extensions and in data on the metadata server, this field is not a stripe size.
        if part.stripes is not None
        and not part.flags & EXTENSION
        and not part.stripes.pattern & DATA_ON_METADATA
    ]
    sizes = [size for size in sizes if size]
    return math.lcm(*sizes) if sizes else 0


def read_layout(file: int | bytes, *, follow: bool = True) -> bytes | None:
    """Return the attribute of an open file or of a path, or None if it has none.

    With `follow`, a symbolic link stands for its target. For a directory without a default layout,
    Lustre returns that of the file system. Raises OSError if it cannot be read.
    """
    try:
        return os.getxattr(file, ATTRIBUTE, follow_symlinks=follow)
    except OSError as error:
        if error.errno not in _NO_LAYOUT:
            raise
        return None


def is_released(path: bytes, *, follow: bool) -> bool:
    """Return whether the data of a file is only in the archive. Raises OSError if unknown."""
    value = read_layout(path, follow=follow)
    try:
        layout = None if value is None else parse(value)
    except ValueError:
        return False
    parts = layout.components if isinstance(layout, Composite) else ()
    stripes = [layout] if isinstance(layout, Stripes) else [part.stripes for part in parts]
    return any(stripe is not None and stripe.pattern & RELEASED for stripe in stripes)


def is_lustre(path: bytes) -> bool:
    """Return whether a directory is on Lustre, with one system call on most other file systems.

    A directory that has or inherits a layout is on Lustre. Most other file systems do not support
    the attribute's namespace, but some FUSE servers only report that the attribute is missing. In
    that case, on a Lustre without any default, and for an unreadable directory, the file system
    type in the list of mounts decides.
    """
    try:
        return _order_of(os.getxattr(path, ATTRIBUTE)) is not None
    except OSError as error:
        if error.errno == errno.EOPNOTSUPP:
            return False
    # A path that cannot be reached needs no layout.
    with suppress(OSError):
        return type_of_device(os.stat(path).st_dev) == b"lustre"
    return False


def default_of_file_system(path: bytes) -> bytes | None:
    """Return the attribute of the root of a directory's file system, or None.

    Raises OSError if the root cannot be reached.
    """
    path = os.path.realpath(path)
    while not os.path.ismount(path):
        path = os.path.dirname(path)
    return read_layout(path)
