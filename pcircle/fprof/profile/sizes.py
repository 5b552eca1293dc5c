"""Counting files by size, so that a file costs little whatever the sizes are.

Most files of a tree share their sizes with others. So sizes are counted as they are, in a
dictionary, which the interpreter does by the block, and which is folded into the histogram when it
has some thousand keys. Where hardly two sizes are equal that is twice the work, and a block goes
to its bins at once: as numbers of 32 bits with a fraction of 23, sizes have all bins there are in
their upper half (`bins` cuts each power of two into 64), and the machine makes these
for a block in one step. A bin ends with its edge, which as a number begins the next one: so all of
the block, taken as one long integer, has 1 subtracted from each number's bits. Sizes of more bits
than the fraction has would be rounded; blocks that have one are counted the first way, as are all
where the sizes themselves are wanted.
"""

from __future__ import annotations

import struct
import sys
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence

from pcircle.fprof.profile.bins import BINS, bin_of
from pcircle.fprof.profile.model import UNITS

_MAX_SIZES = 8192
_EXACT_BYTES = 1 << 24  # sizes up to this are told apart by a number of 32 bits
_BLOCK_FILES = 2048
_BLOCKS_AT_ONCE = 128  # blocks that go to their bins before sizes are counted again
_UPPER_HALVES = slice(1, None, 2) if sys.byteorder == "little" else slice(0, None, 2)
_HALVES = 0x4B80  # up to that of the largest size
_ONE_FILE = 1 << 64
_ONE = struct.pack("=I", 1)


class Sizes:
    """The files of one rank by size. `unit_counts` are kept if asked for, `edge_tallies` if there
    are `edges`; see `pcircle.fprof.profile.model.Profile`.
    """

    def __init__(self, edges: tuple[int, ...] = (), *, units: bool = False) -> None:
        self.largest_bytes = 0
        self.unit_counts = [0] * len(UNITS)
        self.edge_tallies = [[0, 0] for _ in range(len(edges) + 1)] if edges else []
        self._edges = edges
        self._units = units
        self._sizes: Counter[int] = Counter()
        self._waiting: list[int] = []  # of small directories, to be added with others
        self._once: Counter[int] = Counter()  # files whose bytes came, or were taken back, alone
        self._by_half: list[int] = []  # files * _ONE_FILE + bytes, if there are any
        self._bins = [0] * BINS, [0] * BINS  # files and bytes
        self._unnamed: Counter[int] = Counter()  # hard-linked files taken back, by bin
        self._at_once = 0  # blocks that still go to their bins

    def add(self, sizes: Iterable[int]) -> None:
        """Files of a directory."""
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
        """A file whose bytes count, or do no longer, without a name."""
        self._once[size_bytes] += sign
        if len(self._once) > _MAX_SIZES:
            self._fold()

    def in_bins(self) -> dict[int, list[int]]:
        """All of them: names, bytes and files by bin; the rest is complete as well, then."""
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
        """Move the files that were tallied by the half to their bins."""
        numbers, sizes = self._bins
        for half, tally in enumerate(self._by_half):
            if tally:
                place = _bin_of_half(half)
                numbers[place] += tally // _ONE_FILE
                sizes[place] += tally % _ONE_FILE
        self._by_half = []

    def _fold(self) -> None:
        """Move the sizes that were counted to where they belong."""
        sizes, once = self._sizes, self._once
        self.largest_bytes = max(self.largest_bytes, *sizes, 0)
        self._fold_into_bins(sizes.items(), named=True)
        self._fold_into_bins(once.items(), named=False)
        self._sizes, self._once = Counter(), Counter()

    def _fold_into_bins(self, counted: Iterable[tuple[int, int]], *, named: bool) -> None:
        """Add so many files of each size to the histograms: bytes, and perhaps names."""
        numbers, sizes = self._bins
        for size, number in counted:
            # This is `bin_of`, without the call.
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
    """The bin of sizes whose bits, less 1, have this upper half."""
    (least,) = struct.unpack("=f", struct.pack("=I", half << 16))
    return bin_of(int(least) + 1)
