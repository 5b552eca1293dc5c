"""Cutting what is read of a file into blocks, and digesting them on the way.

What comes in are pieces in ascending order, as large as the reader likes, so
that they are hashed while they are in the processor's cache. What lies between
them is a hole and counts as zeros; a block that is all hole costs nothing, as
its digest is known.
"""

from __future__ import annotations

from pcircle.guards import require_that
from pcircle.signature.algorithms import Algorithm, Hasher

BLOCK_BYTES = 4 << 20
_ZEROS = bytes(64 << 10)


class BlockHasher:
    """The digests of the blocks of a range of a file. One file at a time."""

    def __init__(self, algorithm: Algorithm) -> None:
        self._algorithm = algorithm
        self._zero_digest = b""
        self._at = 0
        self._hasher: Hasher | None = None  # of the block that `_at` is in
        self._digests = bytearray()

    @property
    def zero_digest(self) -> bytes:
        """The digest of a whole block of zeros."""
        if not self._zero_digest:
            self._zero_digest = self._algorithm.digest(bytes(BLOCK_BYTES))
        return self._zero_digest

    def begin(self, offset: int) -> None:
        """Begin with a range at `offset`, a multiple of the block."""
        require_that(offset % BLOCK_BYTES == 0, "a range begins within a block")
        self._at = offset
        self._hasher = None
        self._digests = bytearray()

    def add(self, offset: int, data: memoryview | bytes) -> None:
        """What was read at an offset, which is not before the end of what came before it."""
        require_that(offset >= self._at, "what was read comes twice")
        if offset > self._at:
            self._add_zeros(offset)
        view = memoryview(data)
        while view:
            room = BLOCK_BYTES - self._at % BLOCK_BYTES
            self._update(view[:room])
            view = view[room:]

    def end(self, offset: int) -> bytes:
        """The digests of the blocks up to `offset`, which ends the range: the last may be short."""
        if offset > self._at:
            self._add_zeros(offset)
        require_that(offset == self._at, "more was read than the range has")
        if self._hasher is not None:
            self._digests += self._hasher.digest()
            self._hasher = None
        return bytes(self._digests)

    def _update(self, part: memoryview) -> None:
        """Add bytes that lie in one block."""
        if self._hasher is None:
            self._hasher = self._algorithm.new()
        self._hasher.update(part)
        self._at += len(part)
        if self._at % BLOCK_BYTES == 0:
            self._digests += self._hasher.digest()
            self._hasher = None

    def _add_zeros(self, until: int) -> None:
        zeros = memoryview(_ZEROS)
        while self._at < until:
            within = self._at % BLOCK_BYTES
            if not within and until - self._at >= BLOCK_BYTES:
                count = (until - self._at) // BLOCK_BYTES
                self._digests += self.zero_digest * count
                self._at += count * BLOCK_BYTES
                continue
            self._update(zeros[: min(len(zeros), BLOCK_BYTES - within, until - self._at)])
