"""Compares manifests with trees or each other, and matches files that may have been moved.

A manifest contains file types, sizes, times and digests. Its entries are converted to statuses and
compared like any other; digests show whether link targets, device numbers and file contents are
equal.

`MoveMatcher` matches files that may be the same although their paths on the two sides differ.
Entries without a counterpart on the other side become records that are sorted on disk
(`pcircle.fs.sorting`), so memory use does not depend on their number. Slashes in paths are replaced
by NUL, so that the entries in a directory sort directly after it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, Protocol

from pcircle.core.buffers import aligned
from pcircle.core.encoding import show
from pcircle.core.errors import UsageError
from pcircle.fs.data import data_ranges
from pcircle.fs.directories import closing_fd
from pcircle.fs.entry_errors import Changed
from pcircle.fs.open_flags import OPEN_FILE
from pcircle.fs.sorting import RUN_BYTES, Sorter
from pcircle.fs.stats import StatusRow
from pcircle.ops.compare.fields import CONTENT, CTIME, KIND, MTIME, RDEV, SIZE, TARGET
from pcircle.ops.compare.statuses import StatusComparer
from pcircle.ops.digest import digests
from pcircle.ops.digest.manifest import (
    Manifest,
    ManifestEntry,
    read_manifest,
)

KNOWN: Final = KIND | SIZE | MTIME | CTIME | TARGET | RDEV | CONTENT
"""The fields that a manifest contains."""
_MODES = {
    b"f": stat.S_IFREG,
    b"d": stat.S_IFDIR,
    b"l": stat.S_IFLNK,
    b"c": stat.S_IFCHR,
    b"b": stat.S_IFBLK,
    b"p": stat.S_IFIFO,
    b"s": stat.S_IFSOCK,
}
_PIECE_BYTES = 512 << 10
_OTHER_DEVICE = 2**64 - 1  # of the second manifest, whose times may have another granularity


def open_verified(path: bytes) -> Manifest:
    """Open and verify the manifest of a tree. Raises UsageError if it is unreadable or damaged."""
    manifest = read_manifest(path)
    if manifest.root.kind != b"d":
        raise UsageError(
            f"'{show(path)}' is the manifest of a file; the manifest of a directory is required"
        )
    return manifest


def entry_row(entry: ManifestEntry, device: int = 0) -> StatusRow:
    """Return an entry as a status on this device.

    The link count is 1, the change time is also the access time, and other unknown fields are 0.
    """
    times = entry.changed_ns, entry.modified_ns, entry.changed_ns
    return StatusRow(entry_mode(entry), 0, device, 1, 0, 0, entry.size, 0, 0, 0, *times)


def entry_mode(entry: ManifestEntry) -> int:
    """Return the file type bits of an entry's mode."""
    return _MODES[entry.kind]


class ByteCounters(Protocol):
    """The counters of bytes to read and of bytes that were read."""

    bytes_found: int
    bytes_done: int


class DigestComparer:
    """Compares entries of a tree with the digests in a manifest; not thread-safe.

    `open_file` replaces `os.open`.
    """

    def __init__(
        self,
        algorithm: digests.Algorithm,
        counters: ByteCounters,
        open_file: Callable[..., int] = os.open,
    ) -> None:
        self.open = open_file
        self._algorithm = algorithm
        self._counters = counters
        self._hasher = digests.BlockHasher(algorithm)
        self._piece = aligned(_PIECE_BYTES)

    def differences(
        self,
        fields: int,
        entry: ManifestEntry,
        name: bytes,
        fd: int,
        row: StatusRow,
        stop: Callable[[], bool],
    ) -> int:
        """Return which of `fields` differ between an entry and its manifest entry.

        Raises OSError. If `stop` returns true, reading ends early and the result is meaningless.
        """
        field = {stat.S_IFLNK: TARGET, stat.S_IFREG: CONTENT}.get(stat.S_IFMT(row.st_mode), RDEV)
        if field == CONTENT and (not fields & CONTENT or row.st_size != entry.size):
            return fields & CONTENT
        return fields & field * (self._digest(name, fd, row, stop) != entry.digest)

    def entry(
        self, name: bytes, fd: int, row: StatusRow, stop: Callable[[], bool]
    ) -> ManifestEntry:
        """Compute the manifest entry of a name, other than a directory, in an open directory.

        Raises OSError.
        """
        size = row.st_size if stat.S_ISREG(row.st_mode) or stat.S_ISLNK(row.st_mode) else 0
        digest, times = self._digest(name, fd, row, stop), (row.st_mtime_ns, row.st_ctime_ns)
        return ManifestEntry(name, digests.kind_byte(row.st_mode), digest, size, *times)

    def _digest(self, name: bytes, fd: int, row: StatusRow, stop: Callable[[], bool]) -> bytes:
        if stat.S_ISLNK(row.st_mode):
            return digests.link_digest(self._algorithm, os.readlink(name, dir_fd=fd))
        if stat.S_ISREG(row.st_mode):
            return self._digest_file(name, fd, stop)
        return digests.node_digest(self._algorithm, row.st_mode, row.st_rdev)

    def _digest_file(self, name: bytes, directory_fd: int, stop: Callable[[], bool]) -> bytes:
        with closing_fd(self.open(name, OPEN_FILE, dir_fd=directory_fd)) as fd:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise Changed("it is no longer a regular file")
            size = status.st_size
            self._counters.bytes_found += size
            self._hasher.begin(0)
            for offset, length in data_ranges(fd, 0, size):
                end = offset + length
                while offset < end and not stop():
                    piece = self._piece[: min(_PIECE_BYTES, end - offset)]
                    count = os.preadv(fd, [piece], offset)
                    if not count:
                        raise Changed("it shrank while it was read")
                    self._hasher.add(offset, piece[:count])
                    offset += count
            self._counters.bytes_done += size
            return digests.file_digest(self._algorithm, size, self._hasher.end(size))


def compare_entries(
    old: ManifestEntry, new: ManifestEntry, fields: int, comparer: StatusComparer
) -> int:
    """Compare two entries of manifests with the same algorithm."""
    found = comparer.differences(entry_row(old), entry_row(new, _OTHER_DEVICE))
    if found & KIND or old.kind == b"d":
        return found
    field = {b"f": CONTENT, b"l": TARGET}.get(old.kind, RDEV) & fields
    if not field:
        return found
    return found | field * (old.digest != new.digest)


# ---- moves ---------------------------------------------------------------------------------------

_RUN_BYTES = RUN_BYTES // 8  # small, because rank 0 holds two sorters and other data
_SLASH, _STAND_IN = b"/", b"\0"


class MoveCandidate(NamedTuple):
    """A record: the key for matching, the path, and additional data."""

    key: bytes
    path: bytes
    extra: bytes


class MoveMatcher:
    """Matches records of two sides that have the same key, in the order of their paths."""

    def __init__(self) -> None:
        self._sides = Sorter(_RUN_BYTES), Sorter(_RUN_BYTES)

    def add(self, side: int, key: bytes, path: bytes, extra: bytes) -> None:
        """Add a record of side 0 or 1. Raises OSError if there is no space."""
        self._sides[side].add(pack_candidate(key, path, extra))

    def pairs(self) -> Iterator[tuple[MoveCandidate | None, MoveCandidate | None]]:
        """Yield all records in the order of keys, each with its match on the other side or None.

        Raises OSError. A key that begins with a space never matches.
        """
        heads = [map(unpack_candidate, side.sorted()) for side in self._sides]
        a, b = (next(head, None) for head in heads)
        while a is not None or b is not None:
            if a is not None and b is not None and a.key == b.key and a.key[:1] != b" ":
                yield a, b
                a, b = next(heads[0], None), next(heads[1], None)
            elif b is None or (a is not None and a.key <= b.key):
                yield a, None
                a = next(heads[0], None)
            else:
                yield None, b
                b = next(heads[1], None)

    def close(self) -> None:
        """Close the temporary files."""
        for side in self._sides:
            side.close()


def pack_candidate(key: bytes, path: bytes, extra: bytes) -> bytes:
    """Pack a record so that records sort by key, and then by path in the order of a walk."""
    return key + b"\1" + path.replace(_SLASH, _STAND_IN) + b"\0\0" + extra


def unpack_candidate(record: bytes) -> MoveCandidate:
    """Unpack a record."""
    key, _, text = record.partition(b"\1")
    path, _, extra = text.rpartition(b"\0\0")
    return MoveCandidate(key, path.replace(_STAND_IN, _SLASH), extra)
