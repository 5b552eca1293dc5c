"""The bins in which files are counted by size, fine enough for histograms and quantiles.

The bins are those of a log-linear histogram (HdrHistogram; for the error bound of quantiles, see
DDSketch by Masson, Rim and Lee, VLDB 2019): each power of two is divided into 64 bins of equal
width. Such histograms have a fixed size and can be added exactly, in any order. They yield every
quantile with a relative error of at most 1/128.

A bin contains the sizes above the previous edge up to and including its own edge. A file of exactly
4 KiB therefore counts as "up to 4 KiB". Bin 0 contains empty files, and each size up to 128 bytes
has its own bin. All powers of two, and 64 to 128 times each of them, are edges.

`SizeCounts` is fast for any distribution of sizes. In most trees many files share a size. Sizes are
therefore counted in a dictionary, a block of files at a time. When the dictionary contains several
thousand keys, it is folded into the histogram. If hardly any sizes are equal, this would double the
work, so blocks are then added to the bins directly. All sizes of a block are converted to 32-bit
floating-point numbers in one step, and the upper half of such a number determines the bin. A bin
includes its upper edge, but the floating-point number of that edge would begin the next bin.
Therefore, 1 is subtracted from the bits of each number, for the whole block at once as one long
integer.

Sizes that need more bits than the 23-bit fraction would be rounded. Blocks with such sizes are
counted in the dictionary, and so are all blocks if exact sizes are needed.
"""

from __future__ import annotations

import struct
import sys
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from pcircle.tools.fprof.profile.model import UNITS

_MAX_SIZES = 8192
_EXACT_BYTES = 1 << 24  # 32-bit floats represent all sizes up to this limit exactly
_BLOCK_FILES = 2048
_BLOCKS_AT_ONCE = 128  # blocks added directly to bins before the dictionary is tried again
_UPPER_HALVES = slice(1, None, 2) if sys.byteorder == "little" else slice(0, None, 2)
_HALVES = 0x4B80  # exceeds the upper half of the largest size
_ONE_FILE = 1 << 64
_ONE = struct.pack("=I", 1)


class SizeCounts:
    """The files of a worker, counted by size.

    If `units` is set, `unit_counts` is computed, and if there are `edges`, `edge_tallies`; see
    `pcircle.tools.fprof.profile.model.Profile`.
    """

    def __init__(self, edges: tuple[int, ...] = (), *, units: bool = False) -> None:
        self.largest_bytes: int = 0
        self.unit_counts: list[int] = [0] * len(UNITS)
        self.edge_tallies: list[list[int]] = (
            [[0, 0] for _ in range(len(edges) + 1)] if edges else []
        )
        self._edges = edges
        self._units = units
        self._sizes: Counter[int] = Counter()
        self._waiting: list[int] = []  # sizes that do not yet fill a block
        # The number of files added minus those subtracted by `once`, by size.
        self._once: Counter[int] = Counter()
        self._by_half: list[int] = []  # files * _ONE_FILE + bytes, empty until used
        self._bins = [0] * BINS, [0] * BINS  # files and bytes
        self._unnamed: Counter[int] = Counter()  # files subtracted minus files added, by bin
        self._at_once = 0  # remaining blocks to add directly to bins

    def add(self, sizes: Iterable[int]) -> None:
        """Count files of these sizes."""
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
        """Add or subtract a file and its bytes, but not a name."""
        self._once[size_bytes] += sign
        if len(self._once) > _MAX_SIZES:
            self._fold()

    def in_bins(self) -> dict[int, list[int]]:
        """Return the names, bytes and files in each bin, and complete all other tallies."""
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
        """Add the files that were counted by upper halves to their bins."""
        numbers, sizes = self._bins
        for half, tally in enumerate(self._by_half):
            if tally:
                place = _bin_of_half(half)
                numbers[place] += tally // _ONE_FILE
                sizes[place] += tally % _ONE_FILE
        self._by_half = []

    def _fold(self) -> None:
        """Add the counted sizes to all histograms, and forget them."""
        sizes, once = self._sizes, self._once
        self.largest_bytes = max(self.largest_bytes, *sizes, 0)
        self._fold_into_bins(sizes.items(), named=True)
        self._fold_into_bins(once.items(), named=False)
        self._sizes, self._once = Counter(), Counter()

    def _fold_into_bins(self, counted: Iterable[tuple[int, int]], *, named: bool) -> None:
        """Add files of each size to the histograms, and count their names if they are `named`."""
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
    """Return the bin of sizes whose 32-bit float, minus 1 as an integer, has this upper half."""
    (least,) = struct.unpack("=f", struct.pack("=I", half << 16))
    return bin_of(int(least) + 1)


# ---- bins ----------------------------------------------------------------------------------------

PER_OCTAVE = 64
BINS = 3777
"""The number of bins for all sizes below 2 ** 64."""
RELATIVE_ERROR = 1 / (2 * PER_OCTAVE)
"""The largest relative error of a quantile."""


def bin_of(size_bytes: int) -> int:
    """Return the bin of a size in bytes. The size must not be negative."""
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
    """Return whether this size is the edge of a bin, so that the count up to it is exact."""
    return edge_of(bin_of(size_bytes)) == size_bytes


def octave_of(size_bytes: int) -> int:
    """Return the exponent of the next power of two, plus 1, or 0 for empty files.

    The result is 63 for all files of more than 2 EiB.
    """
    return 0 if size_bytes == 0 else min(63, (size_bytes - 1).bit_length() + 1)


def quantile(numbers: Mapping[int, int], share: float) -> int | None:
    """Return the size that this share of files does not exceed, or None if there are no files.

    The result is the middle of a bin, with an error of at most `RELATIVE_ERROR`.
    """
    total = sum(numbers.values())
    if not total:
        return None
    rank = max(1, -(-total * round(share * 1_000_000) // 1_000_000))
    seen = 0
    for number in sorted(numbers):
        seen += numbers[number]
        if seen >= rank:
            break
    low = edge_of(number - 1) + 1 if number else 0
    return (low + edge_of(number)) // 2


def standard_edges(kind: str, largest_bytes: int) -> list[int]:
    """Return the edges of a named histogram, up to the first that includes the largest size.

    The edges of "log2" double from bin to bin, and those of "pow4" quadruple. For any other name,
    edges quadruple from 4 KiB.
    """
    factor, first = {"log2": (2, 1), "pow4": (4, 1)}.get(kind, (4, 4096))
    edges = [0, first]
    while edges[-1] < largest_bytes:
        edges.append(edges[-1] * factor)
    return edges


def rebin(tallies: Mapping[int, Sequence[int]], edges: Sequence[int]) -> list[list[int]]:
    """Return the sums of the fine bins between adjacent edges, and above the last edge."""
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
