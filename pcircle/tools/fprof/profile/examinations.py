"""Optional examinations of files, and the space that they would take on another file system.

`FileExaminer` finds holes and Lustre layouts, and compresses a sample of the data. Only the sample
requires reading file contents. If a file takes less space than its size, it has holes, or its file
system compresses it or stores it in the inode. SEEK_DATA (lseek(2)) distinguishes holes from data,
and data that takes no space is counted as compressed. A layout is an extended attribute, read
through the descriptor of the directory. A file system that does not support this attribute is
queried only once per thread.

The sample consists of pieces of 64 KiB. Each piece of each file draws a lot, and the pieces with
the lowest lots form the sample (bottom-k sampling). Each byte is therefore sampled with the same
probability, and the samples of the ranks can be merged into a sample of the tree. Because lots are
drawn by hashing, the sample of an unchanged tree is always the same. To avoid a draw for each piece
of a large file, the lowest of its m lots is drawn directly, then the next, and so on.

The estimate is a ratio of sums (Cochran, Sampling Techniques, 1977, chapter 6): the compressed
bytes divided by the bytes of the sample, with its standard error and the correction for a finite
population. If all n pieces compress equally, this error is 0, although a fraction of up to 3 / n of
all pieces may differ (the rule of three; Hanley and Lippman-Hand, JAMA 1983). The reported error is
therefore at least that fraction. Pieces that could not be read increase it by their share. A piece
is read during the walk as soon as its lot is among the k lowest. A worker therefore reads about k
(1 + ln(N / k)) of N pieces.

A file system that allocates space in units takes a whole number of units for each file. GPFS
(Spectrum Scale) stores the end of a file in subblocks of its large blocks, so its unit is the
subblock. The profile stores the number of units of all files for each power of two, so the result
is exact. If the file system stores small files in their inodes, they take no unit and are
subtracted. The fine bins of sizes (`pcircle.tools.fprof.profile.sizes`) suffice for that: unless
units are far smaller than the files, all files in a bin take the same number of units.
"""

from __future__ import annotations

import errno
import heapq
import math
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final

import msgspec
import xxhash

from pcircle.core.buffers import aligned
from pcircle.core.units import format_size
from pcircle.fs.attributes.lustre import ATTRIBUTE, DATA_ON_METADATA, Layout, Stripes, parse
from pcircle.fs.data import ReadEffects, RecallCounts
from pcircle.fs.directories import open_without_atime
from pcircle.fs.file_system import may_hide_content
from pcircle.fs.open_flags import OPEN_FILE
from pcircle.tools.fprof.profile.collect import SECTOR_BYTES, FileBatch, Tell
from pcircle.tools.fprof.profile.groups import share
from pcircle.tools.fprof.profile.model import (
    MAX_LAYOUTS,
    UNITS,
    Profile,
    SamplePiece,
    Sums,
    by_length,
)
from pcircle.tools.fprof.profile.sizes import bin_of, edge_of

# ---- the sample ----------------------------------------------------------------------------------

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


# ---- holes and layouts ---------------------------------------------------------------------------

NO_LAYOUT = "no layout"
UNKNOWN = "unknown layout"


class Sparse(msgspec.Struct, frozen=True):
    """Files that take less space than their size.

    `hole_bytes` is the size of their holes. `compressed_bytes` is the size of data that takes no
    space, because the file system compresses it or stores it in inodes. `unknown` counts the files
    that could not be examined.
    """

    number: int
    bytes: int
    allocated_bytes: int
    hole_bytes: int
    compressed_bytes: int
    unknown: int


def find_holes(directory_fd: int, files: FileBatch, profile: Profile, tell: Tell) -> None:
    """Find the sparse files of a batch and add them to a profile."""
    sums = profile.sparse
    links = files.column("links")
    for place, (size, blocks) in enumerate(zip(files.sizes, files.blocks, strict=True)):
        allocated = blocks * SECTOR_BYTES
        if allocated >= size:
            continue
        # An equal part of a hard-linked file counts under each name.
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
    """Return the number of bytes of a file that are not in holes."""
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
    """The files and bytes of each Lustre layout."""

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
    """Return a short description of a layout, such as "4 x 1.0 MiB in POOL".

    A composite layout is described by its components and their offsets.
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


# ---- all examinations ----------------------------------------------------------------------------


def _ignore_finding(*found: object) -> None:
    """Ignore a finding, because no list was requested."""


class FileExaminer:
    """The optional examinations of one worker. `end` adds layouts and the sample to a profile."""

    def __init__(
        self, facets: Iterable[str], pieces: int, counts: RecallCounts, tell: Tell | None = None
    ) -> None:
        """Prepare the examinations of `facets`; pass each file with a finding to `tell`."""
        self._facets = frozenset(facets)
        self._tell: Tell = tell or _ignore_finding
        self._layouts = Layouts()
        self.effects: ReadEffects = ReadEffects(counts)
        self._sampler = Sampler(pieces, self.effects)

    def look(self, directory_fd: int, files: FileBatch, profile: Profile) -> None:
        """Examine files in a directory."""
        if "sparse" in self._facets:
            find_holes(directory_fd, files, profile, self._tell)
        if "stripe" in self._facets:
            self._layouts.look(directory_fd, files, self._tell)
        if "compress" in self._facets:
            self._sampler.look(directory_fd, files, self._tell)

    def end(self, profile: Profile, pieces: int) -> None:
        """Add the layouts, and the sample of at most `pieces` pieces, to a profile."""
        self._layouts.found.end(profile, "stripes")
        profile.sampled, profile.sample = pieces, self._sampler.sample()


# ---- space elsewhere -----------------------------------------------------------------------------

KiB: Final = 1 << 10
MiB: Final = 1 << 20
# Subblock sizes by block size since GPFS version 5. Blocks of other sizes have 32 subblocks.
_SUBBLOCKS = {
    64 * KiB: 2 * KiB,
    128 * KiB: 4 * KiB,
    **dict.fromkeys((256 * KiB, 512 * KiB, MiB, 2 * MiB, 4 * MiB), 8 * KiB),
    **dict.fromkeys((8 * MiB, 16 * MiB), 16 * KiB),
}


class Blocks(msgspec.Struct, frozen=True):
    """The space that files would take in whole blocks, and with subblocks.

    An efficiency is the fraction of the space that contains data.
    """

    block_bytes: int
    subblock_bytes: int
    space_bytes: int
    efficiency: float
    subblocks: int
    subblocks_space_bytes: int
    subblocks_efficiency: float


class InInode(msgspec.Struct, frozen=True):
    """Files of at most `limit_bytes`, whose data would fit into their inodes.

    The limit is the largest edge of a bin that does not exceed `asked_bytes`, the requested size.
    """

    asked_bytes: int
    limit_bytes: int
    number: int
    bytes: int
    number_share: float
    bytes_share: float


LARGEST_INODE_BYTES = 128 << UNITS[0]
"""The largest inode size for which the space can be estimated.

Up to this size, all files in a bin take the same number of units.
"""


def subblock_of(block_bytes: int) -> int:
    """Return the size of the subblocks that GPFS uses for a block size, in bytes."""
    return _SUBBLOCKS.get(block_bytes) or max(1 << UNITS[0], block_bytes // 32)


def is_unit(size_bytes: int) -> bool:
    """Return whether a profile stores the number of units of this size."""
    return size_bytes in {1 << bits for bits in UNITS}


def blocks_of(
    profile: Profile, sizes: Sequence[tuple[int, int]], inode: InInode | None
) -> tuple[Blocks, ...]:
    """Return the space that files would take for each pair of block and subblock sizes."""
    data = profile.kinds["file"][1] - (inode.bytes if inode else 0)
    limit = inode.limit_bytes if inode else -1
    rows = []
    for block, subblock in sizes:
        whole = block * _units(profile, block, limit)
        count = _units(profile, subblock, limit)
        rows.append(
            Blocks(
                block_bytes=block,
                subblock_bytes=subblock,
                space_bytes=whole,
                efficiency=share(data, whole),
                subblocks=count,
                subblocks_space_bytes=count * subblock,
                subblocks_efficiency=share(data, count * subblock),
            )
        )
    return tuple(rows)


def _units(profile: Profile, unit: int, limit: int) -> int:
    """Return the number of units of files larger than `limit`; hard-linked files count once."""
    total = profile.unit_counts[UNITS.index(unit.bit_length() - 1)]
    if limit <= 0:
        return total
    for number, (_, _, files) in profile.sizes.items():
        edge = edge_of(number)
        if 0 < edge <= limit:
            total -= files * -(-edge // unit)
    return total


def in_inode(profile: Profile, limit_bytes: int) -> InInode:
    """Count the files that would fit into inodes, up to the last bin edge within the limit."""
    last = bin_of(limit_bytes)
    if edge_of(last) > limit_bytes:
        last -= 1
    number = sum(tally[0] for place, tally in profile.sizes.items() if place <= last)
    total = sum(tally[1] for place, tally in profile.sizes.items() if place <= last)
    files = profile.kinds["file"]
    shares = share(number, files[0]), share(total, files[1])
    return InInode(limit_bytes, edge_of(last), number, total, *shares)
