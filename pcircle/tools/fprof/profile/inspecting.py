"""Properties for which files must be opened or examined: holes, and Lustre layouts.

No data is read. A file that takes less space than its size has holes, or its file system has
compressed it or stores it within the inode. SEEK_DATA distinguishes these cases (lseek(2)): data
without space was compressed. A layout is an attribute of the file, read through the descriptor of
its directory. File systems other than Lustre are queried once.
"""

from __future__ import annotations

import errno
import os

import msgspec

from pcircle.core.units import format_size
from pcircle.fs.attributes.lustre import ATTRIBUTE, DATA_ON_METADATA, Layout, Stripes, parse
from pcircle.fs.open_flags import OPEN_FILE
from pcircle.tools.fprof.profile.collect import SECTOR_BYTES, FileBatch, Tell
from pcircle.tools.fprof.profile.model import MAX_LAYOUTS, Profile
from pcircle.tools.fprof.profile.tables import Sums, by_length

NO_LAYOUT = "no layout"
UNKNOWN = "unknown layout"


class Sparse(msgspec.Struct, frozen=True):
    """Files that take less space than their size.

    `hole_bytes` are in holes. `compressed_bytes` are data without space, which the file system has
    compressed or stored within inodes. `unknown` counts files that could not be examined.
    """

    number: int
    bytes: int
    allocated_bytes: int
    hole_bytes: int
    compressed_bytes: int
    unknown: int


def find_holes(directory_fd: int, files: FileBatch, profile: Profile, tell: Tell) -> None:
    """Add sparse files to a profile."""
    sums = profile.sparse
    links = files.column("links")
    for place, (size, blocks) in enumerate(zip(files.sizes, files.blocks, strict=True)):
        allocated = blocks * SECTOR_BYTES
        if allocated >= size:
            continue
        # A hard-linked file counts with a part under each name.
        parts = max(1, links[place])
        sums[0] += 1
        sums[1] += size // parts
        sums[2] += allocated // parts
        try:
            data = _data_bytes(directory_fd, files.names[place], size)
        except OSError:
            sums[5] += 1
            tell("sparse", *files.at(place), size, allocated, "?", "?")
            continue
        sums[3] += (size - data) // parts
        sums[4] += max(0, data - allocated) // parts
        found = size, allocated, size - data, max(0, data - allocated)
        tell("sparse", *files.at(place), *found)


def _data_bytes(directory_fd: int, name: bytes, size: int) -> int:
    """Return the bytes of a file outside of holes."""
    fd = os.open(name, OPEN_FILE, dir_fd=directory_fd)
    try:
        data = at = 0
        while at < size:
            try:
                at = os.lseek(fd, at, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:  # only a hole remains
                    break
                raise
            hole = min(size, os.lseek(fd, at, os.SEEK_HOLE))
            data += max(0, hole - at)
            at = max(hole, at + 1)
        return data
    finally:
        os.close(fd)


class Layouts:
    """The numbers of files by layout."""

    def __init__(self) -> None:
        self.found: Sums[str] = Sums(MAX_LAYOUTS, by_length)
        self._without: set[int] = set()  # devices without Lustre

    def look(self, directory_fd: int, files: FileBatch, tell: Tell) -> None:
        """Add the layouts of files."""
        links = files.column("links")
        device = files.column("device")[0]
        for place, (size, blocks) in enumerate(zip(files.sizes, files.blocks, strict=True)):
            name = files.names[place]
            label = NO_LAYOUT
            if device not in self._without:
                label = self._label(b"/proc/self/fd/%d/%b" % (directory_fd, name), device)
            parts = max(1, links[place])
            self.found.add(label, 1, size // parts, blocks * SECTOR_BYTES // parts)
            tell("stripe", *files.at(place), size, label)

    def _label(self, path: bytes, device: int) -> str:
        try:
            value = os.getxattr(path, ATTRIBUTE, follow_symlinks=False)
        except OSError as error:
            if error.errno in (errno.EOPNOTSUPP, errno.ENOSYS):
                self._without.add(device)
            return NO_LAYOUT if error.errno in _NONE else UNKNOWN
        try:
            return describe(parse(value))
        except ValueError:
            return UNKNOWN


_NONE = frozenset((errno.ENODATA, errno.EOPNOTSUPP, errno.ENOSYS))


def describe(layout: Layout) -> str:
    """Return a short description of a layout: "4 x 1.0 MiB", with the pool.

    Components are listed by offset.
    """
    if isinstance(layout, Stripes):
        return _stripes(layout)
    parts = [
        f"{format_size(part.start)}: {_stripes(part.stripes) if part.stripes else 'foreign'}"
        for part in layout.components[:8]
    ]
    more = ", ..." if len(layout.components) > 8 else ""
    mirrors = f", {layout.mirrors} mirrors" if layout.mirrors > 1 else ""
    return f"[{', '.join(parts)}{more}{mirrors}]"


def _stripes(stripes: Stripes) -> str:
    if stripes.pattern & DATA_ON_METADATA:
        return "on metadata target"
    number = "all" if stripes.count == 0xFFFF else str(stripes.count or "default")
    size = format_size(stripes.stripe_bytes) if stripes.stripe_bytes else "default"
    name = stripes.pool.decode("ascii", "backslashreplace")
    if not name.isprintable():  # any user may have set the attribute
        name = ascii(name)[1:-1]
    pool = f" in {name}" if name else ""
    return f"{number} x {size}{pool}"
