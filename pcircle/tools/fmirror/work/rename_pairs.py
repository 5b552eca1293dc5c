"""Detects renamed files: ranks report unmatched files, and rank 0 pairs them."""

from __future__ import annotations

import os
import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from io import BytesIO
from typing import IO, TYPE_CHECKING

import msgspec
import xxhash

from pcircle.cli.results import append_output
from pcircle.core.errors import require_type
from pcircle.core.units import Timestamp, timestamp
from pcircle.jobs.failures import LogFile
from pcircle.tools.fmirror.plan import RenamedPaths

if TYPE_CHECKING:
    from pcircle.ops.compare.manifests import MoveCandidate

_BYTES = 8
_PARTS = 1 << 8
_AT_ONCE = 1 << 20


class MissingFiles(msgspec.Struct, frozen=True, array_like=True, tag="z"):
    """Files that the target lacks: their paths, sizes and modification times."""

    files: tuple[tuple[bytes, int, Timestamp], ...]


class RenamePair(msgspec.Struct, frozen=True, array_like=True):
    """A path of the source and an extraneous path whose files have the same size and time."""

    new: bytes
    old: bytes
    size: int
    mtime: Timestamp


def packed(path: bytes) -> bytes:
    """Return the hash of a path, as `PathHashes` stores it."""
    return xxhash.xxh3_64_intdigest(path).to_bytes(_BYTES, sys.byteorder)


def ordered(hashes: bytearray) -> bytes:
    """Return the packed paths in sorted order, and clear `hashes`.

    The hashes are first divided into arrays by their first byte. Only one array at a time is then
    sorted as a list, because a list of millions of numbers would take too much memory.
    """
    parts = [array("Q") for _ in range(_PARTS)]
    with memoryview(hashes).cast("Q") as numbers:
        for number in numbers:
            parts[number * _PARTS >> 8 * _BYTES].append(number)
    hashes.clear()
    found = BytesIO()
    for place, part in enumerate(parts):
        found.write(array("Q", sorted(part)))
        parts[place] = array("Q")
    return found.getvalue()


class PathHashes:
    """A compact set of paths for dry runs; each path is stored as an eight-byte hash.

    Paths whose hashes collide are not distinguished.
    """

    def __init__(self, hashes: bytes | memoryview) -> None:
        """Wrap the result of `ordered` without copying it."""
        self._numbers = memoryview(hashes).cast("Q")

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, path: object) -> bool:
        number = xxhash.xxh3_64_intdigest(require_type(bytes, path))
        at = bisect_left(self._numbers, number)
        return at < len(self._numbers) and self._numbers[at] == number


class RenameResult(msgspec.Struct, frozen=True):
    """The result of the renames.

    `files` and `size` count the renamed files and their bytes. `lines` and `paths` are temporary
    files with the lines for the two logs.
    """

    files: int = 0
    size: int = 0
    lines: IO[bytes] | None = None
    paths: IO[bytes] | None = None
    renamed: RenamedPaths = RenamedPaths()

    def log(self, json_lines: str | None, list_out: str | None) -> None:
        """Append the lines to the action logs. The copy must have closed these.

        Raise OSError if that fails.
        """
        for path, stream in ((json_lines, self.lines), (list_out, self.paths)):
            if path is not None and stream is not None:
                stream.seek(0)
                log = LogFile(append_output(path))
                while text := stream.read(_AT_ONCE):
                    log.append(text)
                log.close()

    def close(self) -> None:
        """Close the temporary files to free their space."""
        for stream in (self.lines, self.paths):
            if stream is not None:
                stream.close()


class RenameCandidates:
    """The files that exist on one side only, as collected on rank 0.

    Files with equal names are paired first.
    """

    def __init__(self) -> None:
        from pcircle.ops.compare.manifests import MoveMatcher  # few runs rename files

        self._named, self._unmatched = MoveMatcher(), MoveMatcher()

    def add(self, side: int, path: bytes, size: int, mtime_ns: int) -> None:
        """Add a file of the source (`side` 0) or of the target (`side` 1)."""
        key = b"%020d %021d %b" % (size, mtime_ns, os.path.basename(path).hex().encode())
        self._named.add(side, key, path, b"%d %d" % (size, mtime_ns))

    def add_all(self, alone: MissingFiles) -> None:
        """Add source files that the target lacks."""
        for path, size, mtime in alone.files:
            self.add(0, path, size, mtime.ns)

    def pairs(self) -> Iterator[RenamePair]:
        """Yield all pairs. This method can be called only once."""
        unmatched = self._unmatched
        try:
            for a, b in self._named.pairs():
                if a is not None and b is not None:
                    yield _pair(a, b)
                    continue
                for side, one in enumerate((a, b)):
                    if one is not None:
                        unmatched.add(side, one.key.rpartition(b" ")[0], one.path, one.extra)
            for a, b in unmatched.pairs():
                if a is not None and b is not None:
                    yield _pair(a, b)
        finally:
            unmatched.close()
            self._named.close()


def _pair(a: MoveCandidate, b: MoveCandidate) -> RenamePair:
    size, mtime_ns = map(int, a.extra.split(b" "))
    return RenamePair(a.path, b.path, size, timestamp(mtime_ns))
