"""Estimates the compressibility of files, with its error, from a sample of 64 KiB pieces.

Each piece of each file draws a lot, and the pieces with the lowest lots form the sample (bottom-k
sampling). Each byte is therefore sampled with the same probability, and the samples of the ranks
can be merged into a sample of the tree. Because lots are drawn by hashing, the sample of an
unchanged tree is always the same. To avoid a draw for each piece of a large file, the lowest of its
m lots is drawn directly, then the next, and so on.

The estimate is a ratio of sums (Cochran, Sampling Techniques, 1977, chapter 6): the compressed
bytes divided by the bytes of the sample, with its standard error and the correction for a finite
population. If all n pieces compress equally, this error is 0, although a fraction of up to 3 / n of
all pieces may differ (the rule of three; Hanley and Lippman-Hand, JAMA 1983). The reported error is
therefore at least that fraction. Pieces that could not be read increase it by their share. A piece
is read during the walk as soon as its lot is among the k lowest. A worker therefore reads about k
(1 + ln(N / k)) of N pieces.
"""

from __future__ import annotations

import heapq
import math
import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress

import msgspec
import xxhash

from pcircle.core.buffers import aligned
from pcircle.fs.data import ReadEffects
from pcircle.fs.directories import open_without_atime
from pcircle.fs.file_system import may_hide_content
from pcircle.fs.open_flags import OPEN_FILE
from pcircle.tools.fprof.profile.collect import FileBatch, Tell
from pcircle.tools.fprof.profile.model import Profile, SamplePiece

PIECE_BYTES = 64 << 10
METHOD = "zlib, level 1, pieces of 64 KiB"
_LOTS = 1 << 63
_Z_95 = 1.959964


class Compression(msgspec.Struct, frozen=True):
    """The estimated compressibility of all files.

    `ratio` is the ratio of compressed to original bytes, within `error` at 95 % confidence.
    `pieces` is the number of compressed pieces, and `unread` the number of pieces that could not be
    read. `of_pieces` is the estimated number of pieces in the tree.
    """

    method: str
    pieces: int
    of_pieces: int
    unread: int
    ratio: float
    error: float
    saved_bytes: int
    saved_error_bytes: int


class Sampler:
    """The sample of one worker: at most `most` pieces.

    `effects` counts the offline files that are read.
    """

    def __init__(self, most: int, effects: ReadEffects | None = None) -> None:
        self._most = most
        self._effects = effects
        self._lots: list[tuple[int, int, int]] = []  # a heap with the highest lot first
        self._drawn: set[int] = set()  # the lots in the heap
        self._bar = _LOTS
        self._piece = aligned(PIECE_BYTES)

    def look(self, directory_fd: int, files: FileBatch, tell: Tell) -> None:
        """Draw lots for the pieces of files, and read the pieces that enter the sample."""
        if self._effects is not None:
            self._effects.place = files.root, files.path
        columns = [files.column(name) for name in ("inode", "links", "mtime")]
        hidden: bool | None = None
        for place, (size, *identity) in enumerate(zip(files.sizes, *columns, strict=True)):
            if not size:
                hidden = may_hide_content(directory_fd) if hidden is None else hidden
                if not hidden:
                    continue
            # A hard-linked file draws the same lots under each name, so its pieces count once.
            seed = b"%d %d %d %d" % (size, *identity)
            raw = packed = 0
            is_first = True
            for lot, piece in _drawn(seed, max(1, -(-size // PIECE_BYTES))):
                if lot >= self._bar:
                    break
                if lot not in self._drawn:
                    name = files.names[place]
                    offset = piece * PIECE_BYTES
                    found = self._read(directory_fd, name, offset, lot, is_first=is_first)
                    if not (size or found.raw_bytes):
                        break  # the file is empty
                    self._add(lot, found)
                    is_first = False
                    raw, packed = raw + found.raw_bytes, packed + found.packed_bytes
            if raw:
                tell("compress", *files.at(place), size, raw, packed)

    def sample(self) -> list[SamplePiece]:
        """Return the pieces with the lowest lots."""
        return [
            SamplePiece(-lot, raw, packed) for lot, raw, packed in sorted(self._lots, reverse=True)
        ]

    def _add(self, lot: int, piece: SamplePiece) -> None:
        heapq.heappush(self._lots, (-lot, piece.raw_bytes, piece.packed_bytes))
        self._drawn.add(lot)
        if len(self._lots) > self._most:
            self._drawn.discard(-heapq.heappop(self._lots)[0])
        if len(self._lots) == self._most:
            self._bar = -self._lots[0][0]

    def _read(
        self, directory_fd: int, name: bytes, offset: int, lot: int, *, is_first: bool
    ) -> SamplePiece:
        """Read and compress a piece; return 0 bytes if it cannot be read.

        If it is the first piece of an offline file, count the file as recalled.
        """
        count = 0
        with suppress(OSError):
            fd = open_without_atime(name, OPEN_FILE, directory_fd)
            try:
                if is_first and self._effects is not None:
                    self._effects.see(name, directory_fd, os.fstat(fd))
                count = os.preadv(fd, [self._piece], offset)
            finally:
                os.close(fd)
        return SamplePiece(lot, count, min(count, len(zlib.compress(self._piece[:count], 1))))


def _drawn(seed: bytes, pieces: int) -> Iterator[tuple[int, int]]:
    """Yield the lot and the number of each piece of a file, in ascending order of lots."""
    share, left = 0.0, pieces
    at = xxhash.xxh3_64_intdigest(seed, 1) % pieces
    step = max(1, round(pieces * 0.618))
    while math.gcd(step, pieces) > 1:
        step += 1
    while left:
        uniform = (xxhash.xxh3_64_intdigest(seed, 1 + left) + 0.5) / 2**64
        share += (1 - share) * -math.expm1(math.log1p(-uniform) / left)
        yield min(_LOTS - 1, int(share * _LOTS)), at
        at = (at + step) % pieces
        left -= 1


def compression_of(profile: Profile) -> Compression | None:
    """Return the estimate from the sample of a profile, or None if there is no sample."""
    if not profile.sampled:
        return None
    read = [piece for piece in profile.sample if piece.raw_bytes]
    total = profile.kinds["file"][1]
    number = len(read)
    raw = sum(piece.raw_bytes for piece in read)
    ratio = sum(piece.packed_bytes for piece in read) / raw if raw else 1.0
    drawn = of_pieces = len(profile.sample)
    error = 0.0
    if drawn >= profile.sampled:
        # The density of the lots in the sample yields the number of pieces in the tree.
        of_pieces = max(drawn, round((drawn - 1) * _LOTS / max(1, profile.sample[-1].lot)))
        error = _Z_95 * _standard_error(read, ratio, raw, of_pieces)
        # The rule of three: even if all pieces read are alike, other pieces may differ.
        error = max(error, 3 / max(3, number) * (1 - number / max(number, of_pieces)))
    # An unread piece may have any ratio.
    error = min(1.0, error + (drawn - number) / drawn) if drawn else 0.0
    return Compression(
        method=METHOD,
        pieces=number,
        of_pieces=of_pieces,
        unread=drawn - number,
        ratio=round(ratio, 6),
        error=round(error, 6),
        saved_bytes=round(total * (1 - ratio)),
        saved_error_bytes=round(total * error),
    )


def _standard_error(read: Sequence[SamplePiece], ratio: float, raw: int, of_pieces: int) -> float:
    """Return the standard error of a ratio of sums when sampling without replacement."""
    number = len(read)
    if number < 2:
        return 1.0
    squares = sum((piece.packed_bytes - ratio * piece.raw_bytes) ** 2 for piece in read)
    correction = max(0.0, 1 - number / max(number, of_pieces))
    return math.sqrt(correction * squares / (number - 1) / number) / (raw / number)
