"""Digests of what is copied, as it passes: what the copy must read as, later on.

It costs no second read of the source, and copies by read and write alone,
because what the kernel moves by itself is seen by nobody. A hash is of what a
reader of the copy will get: holes count as zeros.
"""

from __future__ import annotations

from typing import NamedTuple

import xxhash

from pcircle.copying.observing import Data, Observer

DIGEST_BYTES = 16
_ZEROS = bytes(256 << 10)

digest_of = xxhash.xxh3_128_digest
"""The digest of bytes, 16 of them: XXH3-128."""

_EMPTY = digest_of(b"")


class Seen(NamedTuple):
    """What a file's copy must be: size in bytes, and digest."""

    size: int
    digest: bytes


class Stream:
    """The digest of a range of a file, whose parts come in order; what is left out is a hole."""

    def __init__(self) -> None:
        self.begin(0)

    def begin(self, offset: int) -> None:
        """The range begins here."""
        self._hash = xxhash.xxh3_128()
        self._reached = offset

    def see(self, offset: int, part: memoryview | bytes) -> None:
        """The next part."""
        if offset != self._reached:
            self._skip(offset)
        self._hash.update(part)
        self._reached = offset + len(part)

    def append(self, part: memoryview | bytes) -> None:
        """The next part, right behind the last one."""
        self.see(self._reached, part)

    def end(self, offset: int) -> bytes:
        """The range ends here: its digest."""
        self._skip(offset)
        return self._hash.digest()

    def _skip(self, offset: int) -> None:
        while self._reached < offset:
            zeros = _ZEROS[: offset - self._reached]
            self._hash.update(zeros)
            self._reached += len(zeros)


class Hasher(Observer):
    """Hashes what is copied. `digest` is that of the range that was copied last."""

    reads = True

    def __init__(self) -> None:
        self.digest = _EMPTY
        self._last = Seen(0, _EMPTY)
        self._seen: dict[bytes, Seen] = {}
        self._stream = Stream()

    def take(self) -> dict[bytes, Seen]:
        """The files that were copied since this was asked last, by their names in the source."""
        seen, self._seen = self._seen, {}
        return seen

    def small(self, data: Data) -> None:
        self._last = Seen(len(data), digest_of(data))

    def begin_at(self, offset: int) -> None:
        self._stream.begin(offset)

    def see(self, offset: int, data: Data) -> None:
        self._stream.see(offset, data)

    def end_file(self, size: int) -> None:
        self._last = Seen(size, self._stream.end(size))

    def end_range(self, begin: int, end: int, *, stopped: bool) -> None:
        self.digest = self._stream.end(end)

    def copied(self, name: bytes) -> None:
        self._seen[name] = self._last
