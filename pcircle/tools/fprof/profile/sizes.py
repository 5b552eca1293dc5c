"""Sizes in bins that are fine enough for any histogram: counting files, and quantiles.

The idea is that of log-linear histograms (HdrHistogram; with the error bound for quantiles, the
DDSketch of Masson, Rim and Lee, VLDB 2019): each power of two is divided into 64 bins of equal
width. Such a histogram has a fixed size, adds up exactly with any other histogram in any order, and
gives every quantile to 1/128 of its value. It is a sketch and a histogram at once.

Bins are closed above: a bin holds the sizes above the previous edge up to and including its own
edge, so files of exactly 4 KiB are "up to 4 KiB". Bin 0 holds empty files; sizes up to 128 bytes
have a bin each. All powers of two, and 64 to 128 times a power of two, are edges.

`SizeCounts` counts files at a low cost per file for any distribution of sizes. Most files of a tree
have the same size as other files. So sizes are counted in a dictionary, a block at a time, which is
folded into the histogram when it has some thousand keys. If hardly any two sizes are equal, that is
twice the work, and a block is added to its bins directly. As floating point numbers of 32 bits with
a fraction of 23 bits, sizes have their bins in their upper half, and the machine converts a whole
block in one step. A bin includes its upper edge, which as a number begins the next bin. So 1 is
subtracted from the bits of each number, over the block as one long integer.

Sizes with more bits than the fraction would be rounded. A block that has one is counted in the
dictionary, as are all blocks if exact sizes are needed.
"""

from __future__ import annotations

import struct
import sys
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from pcircle.tools.fprof.profile.model import UNITS

_MAX_SIZES = 8192
_EXACT_BYTES = 1 << 24  # a 32-bit float represents all sizes up to this one exactly
_BLOCK_FILES = 2048
_BLOCKS_AT_ONCE = 128  # blocks added directly to bins before sizes are counted again
_UPPER_HALVES = slice(1, None, 2) if sys.byteorder == "little" else slice(0, None, 2)
_HALVES = 0x4B80  # exceeds the upper half of the largest size
_ONE_FILE = 1 << 64
_ONE = struct.pack("=I", 1)


class SizeCounts:
    """The files of one rank by size.

    `unit_counts` are kept on request, and `edge_tallies` if there are `edges`. Both are described
    in `pcircle.tools.fprof.profile.model.Profile`.
    """

    def __init__(self, edges: tuple[int, ...] = (), *, units: bool = False) -> None:
        self.largest_bytes = 0
        self.unit_counts = [0] * len(UNITS)
        self.edge_tallies = [[0, 0] for _ in range(len(edges) + 1)] if edges else []
        self._edges = edges
        self._units = units
        self._sizes: Counter[int] = Counter()
        self._waiting: list[int] = []  # sizes that do not fill a block yet
        # Files whose bytes were added or subtracted without a name.
        self._once: Counter[int] = Counter()
        self._by_half: list[int] = []  # files * _ONE_FILE + bytes, empty until used
        self._bins = [0] * BINS, [0] * BINS  # files and bytes
        self._unnamed: Counter[int] = Counter()  # hard-linked files subtracted, by bin
        self._at_once = 0  # remaining blocks to add directly to bins

    def add(self, sizes: Iterable[int]) -> None:
        """Add files of a directory."""
        self._waiting += sizes
        if len(self._waiting) >= _BLOCK_FILES:
            waiting, self._waiting = self._waiting, []
            self._add_block(waiting)

    def _add_block(self, sizes: Sequence[int]) -> None:
        if self._at_once and (largest := max(sizes)) <= _EXACT_BYTES:
            self._at_once -= 1
            self.largest_bytes = max(self.largest_bytes, largest)
            self._add_at_once(sizes)
            return
        before = len(self._sizes)
        self._sizes.update(sizes)
        if 2 * (len(self._sizes) - before) > len(sizes) and not (self._units or self._edges):
            self._at_once = _BLOCKS_AT_ONCE
        if len(self._sizes) > _MAX_SIZES:
            self._fold()

    def once(self, size_bytes: int, sign: int) -> None:
        """Add or subtract a file whose bytes count without a name."""
        self._once[size_bytes] += sign
        if len(self._once) > _MAX_SIZES:
            self._fold()

    def in_bins(self) -> dict[int, list[int]]:
        """Return names, bytes and files by bin, and complete the other results."""
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            self._add_block(waiting)
        self._fold()
        self._fold_halves()
        numbers, sizes = self._bins
        unnamed = self._unnamed
        return {
            place: [number + unnamed[place], size, number]
            for place, (number, size) in enumerate(zip(numbers, sizes, strict=True))
            if number or unnamed[place]
        }

    def _add_at_once(self, sizes: Sequence[int]) -> None:
        if not all(sizes):
            self._bins[0][0] += sizes.count(0)
            sizes = list(filter(None, sizes))
        count = len(sizes)
        self._by_half = self._by_half or [0] * _HALVES
        ones = int.from_bytes(_ONE * count, sys.byteorder)
        bits = int.from_bytes(struct.pack(f"{count}f", *sizes), sys.byteorder) - ones
        halves = memoryview(bits.to_bytes(4 * count, sys.byteorder)).cast("H")[_UPPER_HALVES]
        tallies, one = self._by_half, _ONE_FILE
        for half, size in zip(halves.tolist(), sizes, strict=True):
            tallies[half] += size + one

    def _fold_halves(self) -> None:
        """Move the files that were counted by upper halves to their bins."""
        numbers, sizes = self._bins
        for half, tally in enumerate(self._by_half):
            if tally:
                place = _bin_of_half(half)
                numbers[place] += tally // _ONE_FILE
                sizes[place] += tally % _ONE_FILE
        self._by_half = []

    def _fold(self) -> None:
        """Move the counted sizes to all histograms."""
        sizes, once = self._sizes, self._once
        self.largest_bytes = max(self.largest_bytes, *sizes, 0)
        self._fold_into_bins(sizes.items(), named=True)
        self._fold_into_bins(once.items(), named=False)
        self._sizes, self._once = Counter(), Counter()

    def _fold_into_bins(self, counted: Iterable[tuple[int, int]], *, named: bool) -> None:
        """Add files of each size to the histograms: bytes, and with `named` names."""
        numbers, sizes = self._bins
        for size, number in counted:
            # An inlined copy of `bin_of`.
            below = size - 1
            if below < 128:
                place = size
            else:
                shift = below.bit_length() - 7
                place = 1 + (shift << 6) + (below >> shift)
            numbers[place] += number
            sizes[place] += number * size
        if not named:
            for size, number in counted:
                self._unnamed[bin_of(size)] -= number
        if self._units:
            for place, bits in enumerate(UNITS):
                units = sum(number * -(-size >> bits) for size, number in counted)
                self.unit_counts[place] += units
        if self._edges:
            for size, number in counted:
                tally = self.edge_tallies[bisect_left(self._edges, size)]
                tally[0] += number * named
                tally[1] += number * size


def _bin_of_half(half: int) -> int:
    """Return the bin of sizes whose bits, less 1, have this upper half."""
    (least,) = struct.unpack("=f", struct.pack("=I", half << 16))
    return bin_of(int(least) + 1)


# ---- bins ----------------------------------------------------------------------------------------

PER_OCTAVE = 64
BINS = 3777
"""The number of bins for all sizes below 2 ** 64."""
RELATIVE_ERROR = 1 / (2 * PER_OCTAVE)
"""The largest relative error of a quantile."""


def bin_of(size_bytes: int) -> int:
    """Return the bin of a size in bytes, at least 0."""
    below = size_bytes - 1
    if below < 2 * PER_OCTAVE:
        return size_bytes
    shift = below.bit_length() - 7
    return 1 + (shift << 6) + (below >> shift)


def edge_of(number: int) -> int:
    """Return the largest size in a bin."""
    if number <= 2 * PER_OCTAVE:
        return number
    number -= 1
    shift = (number >> 6) - 1
    return ((number - (shift << 6)) + 1) << shift


def is_edge(size_bytes: int) -> bool:
    """Return whether a bin ends with this size, so that counts up to it are exact."""
    return edge_of(bin_of(size_bytes)) == size_bytes


def octave_of(size_bytes: int) -> int:
    """Return the exponent of the next power of two, plus 1, or 0 for empty files.

    The result is at most 63, for all files of more than 2 EiB.
    """
    return 0 if size_bytes == 0 else min(63, (size_bytes - 1).bit_length() + 1)


def quantile(numbers: Mapping[int, int], share: float) -> int | None:
    """Return the size that this share of files does not exceed, or None without files.

    The result is the middle of a bin, with an error of at most `RELATIVE_ERROR`.
    """
    total = sum(numbers.values())
    if not total:
        return None
    wanted = max(1, -(-total * round(share * 1_000_000) // 1_000_000))
    seen = 0
    for number in sorted(numbers):
        seen += numbers[number]
        if seen >= wanted:
            break
    low = edge_of(number - 1) + 1 if number else 0
    return (low + edge_of(number)) // 2


def standard_edges(kind: str, largest_bytes: int) -> list[int]:
    """Return the edges of a histogram by name, up to the first edge that holds the largest size.

    "log2" doubles from bin to bin, and "pow4" quadruples. The default starts at 4 KiB.
    """
    factor, first = {"log2": (2, 1), "pow4": (4, 1)}.get(kind, (4, 4096))
    edges = [0, first]
    while edges[-1] < largest_bytes:
        edges.append(edges[-1] * factor)
    return edges


def rebin(tallies: Mapping[int, Sequence[int]], edges: Sequence[int]) -> list[list[int]]:
    """Return the sums of fine bins up to each edge, and above the last edge."""
    width = max((len(tally) for tally in tallies.values()), default=0)
    sums = [[0] * width for _ in range(len(edges) + 1)]
    place = 0
    for number in sorted(tallies):
        while place < len(edges) and edge_of(number) > edges[place]:
            place += 1
        row = sums[place]
        for column, amount in enumerate(tallies[number]):
            row[column] += amount
    return sums
