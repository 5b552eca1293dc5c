"""A copier that hashes what it copies, as it passes: what the copy must read as, later on.

It costs no second read of the source, and copies by read and write alone,
because what the kernel moves by itself is seen by nobody. A hash is of what a
reader of the copy will get: holes count as zeros.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

import xxhash

from pcircle.copying.counts import Counts
from pcircle.copying.extras import Extras
from pcircle.copying.files import COPIED, Copier
from pcircle.copying.limits import Limits
from pcircle.copying.plain import NOT_PLAIN
from pcircle.copying.settings import Range, Settings
from pcircle.signature import Signer
from pcircle.writing import write_all

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


class HashingCopier(Copier):
    """As `Copier`. `digest` is that of what `chunk` copied last, up to where it got."""

    def __init__(
        self,
        settings: Settings,
        counters: Counts,
        extras: Extras,
        limits: Limits | None = None,
        signer: Signer | None = None,
    ) -> None:
        self.digest = _EMPTY
        self._seen: dict[bytes, Seen] = {}
        self._stream = Stream()
        super().__init__(settings, counters, extras, limits, signer)
        self._mover.taps.append(self._stream.see)
        self._copy_plain = self._noting(self._copy_plain)

    def take(self) -> dict[bytes, Seen]:
        """The files that were copied since this was asked last, by their names in the source."""
        seen, self._seen = self._seen, {}
        return seen

    def _noting(self, copy: Callable[[bytes, int, int], int]) -> Callable[[bytes, int, int], int]:
        def copy_noting(name: bytes, source_fd: int, target_fd: int) -> int:
            self.digest = _EMPTY
            size = copy(name, source_fd, target_fd)
            if size != NOT_PLAIN:
                self._seen[name] = Seen(size, self.digest)
            return size

        return copy_noting

    def _write(self, out: int, data: bytes | memoryview) -> int:  # type: ignore[override]
        self.digest = digest_of(data)
        return os.write(out, data)

    def _write_all(self, out: int, data: memoryview | bytes) -> int:
        self._stream.append(data)
        return write_all(out, data)

    def file(
        self, source_fd: int, source: bytes, target_fd: int, name: bytes, *, claimed: bool = False
    ) -> int:
        """As of `Copier`."""
        before = self._counters.files
        outcome = super().file(source_fd, source, target_fd, name, claimed=claimed)
        if outcome == COPIED and self._counters.files != before:  # and was not skipped
            self._seen[source] = self._last
        return outcome

    def _content(self, fd: int, out: int, status: os.stat_result) -> None:
        self._stream.begin(0)
        super()._content(fd, out, status)
        size = os.fstat(out).st_size
        self._last = Seen(size, self._stream.end(size))

    def chunk(
        self, item: Range, source_fd: int, target_fd: int, split: bool, stop: Callable[[], bool]
    ) -> tuple[int, OSError | None]:
        """As of `Copier`."""
        self._stream.begin(item.offset)
        reached, error = super().chunk(item, source_fd, target_fd, split, stop)
        self.digest = self._stream.end(reached)
        return reached, error
