"""Incremental digests of the blocks of a file.

The reader passes pieces of any length in ascending order, so each piece is hashed while it is still
in the CPU cache. Gaps between pieces are holes and count as zeros. A block that is entirely a hole
costs nothing because the digest of a zero block is computed only once.
"""

from __future__ import annotations

from pcircle.core.guards import require_that
from pcircle.ops.digest.algorithms import Algorithm, Hasher

BLOCK_BYTES = 4 << 20
_ZEROS = bytes(64 << 10)


class BlockHasher:
    """Computes the digests of the blocks in a range of a file, one range at a time."""

    def __init__(self, algorithm: Algorithm) -> None:
        self._algorithm = algorithm
        self._zero_digest = b""
        self._at = 0
        self._hasher: Hasher | None = None  # of the block that contains `_at`
        self._digests = bytearray()

    @property
    def zero_digest(self) -> bytes:
        """The digest of a full block of zeros."""
        if not self._zero_digest:
            self._zero_digest = self._algorithm.digest(bytes(BLOCK_BYTES))
        return self._zero_digest

    def begin(self, offset: int) -> None:
        """Start a range at `offset`, which must be a multiple of the block size."""
        require_that(offset % BLOCK_BYTES == 0, "a range begins within a block")
        self._at = offset
        self._hasher = None
        self._digests = bytearray()

    def add(self, offset: int, data: memoryview | bytes) -> None:
        """Add the data that was read at `offset`; offsets must not go backwards."""
        require_that(offset >= self._at, "what was read comes twice")
        if offset > self._at:
            self._add_zeros(offset)
        view = memoryview(data)
        while view:
            room = BLOCK_BYTES - self._at % BLOCK_BYTES
            self._update(view[:room])
            view = view[room:]

    def end(self, offset: int) -> bytes:
        """Finish the range at `offset` and return the digests of its blocks.

        The last block may be short.
        """
        if offset > self._at:
            self._add_zeros(offset)
        require_that(offset == self._at, "more was read than the range has")
        if self._hasher is not None:
            self._digests += self._hasher.digest()
            self._hasher = None
        return bytes(self._digests)

    def _update(self, part: memoryview) -> None:
        """Add bytes that lie within one block."""
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
