"""Summaries of many ranks in constant space: the sum, extremes and histogram of each figure.

In a job of more than `EngineSettings.rank_rows` ranks, a table with a row per rank would be
unreadable and too large for rank 0. In such a job, each rank's report is a `Summary`. A rank that
sends its account up the tree merges its children's summaries into its own. So the size of an
account does not depend on the number of ranks.

Merging is associative and commutative, so the summary does not depend on the shape of the tree.
This includes the histograms. A bin of level 0 spans at most 1.6 % of its values, and a bin of each
higher level combines two bins of the level below. A histogram is stored at the lowest level at
which it has at most `MAX_BINS` bins. All figures are integers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

MAX_BINS = 64
LIMIT = (1 << 63) - 1
_HIGH_BITS = 62  # the size of the low part of a sum
_FINE_BITS = 6  # bits after the leading bit that distinguish values


class FigureDistribution(msgspec.Struct, frozen=True, array_like=True):
    """One figure over many ranks; `bins` maps each bin, at this `level`, to its number of ranks.

    If several ranks share the minimum or maximum, the lowest rank is stored. The sum is stored in
    two parts, `high` and `low`, because it may exceed 64 bits.
    """

    high: int
    low: int
    minimum: int
    min_rank: int
    maximum: int
    max_rank: int
    level: int
    bins: dict[int, int]

    @classmethod
    def of(cls, rank: int, value: int) -> FigureDistribution:
        """Return the distribution of one rank's figure."""
        value = max(-LIMIT, min(LIMIT, value))
        bins = {bin_of(value): 1}
        return cls(*divmod(value, 1 << _HIGH_BITS), value, rank, value, rank, 0, bins)

    @property
    def total(self) -> int:
        """The sum over all ranks."""
        return (self.high << _HIGH_BITS) + self.low

    def __add__(self, other: FigureDistribution) -> FigureDistribution:
        minimum, min_rank = min((self.minimum, self.min_rank), (other.minimum, other.min_rank))
        maximum, max_rank = min((-self.maximum, self.max_rank), (-other.maximum, other.max_rank))
        level = max(self.level, other.level)
        bins: dict[int, int] = {}
        for spread in (self, other):
            _add(bins, spread.bins, level - spread.level)
        while len(bins) > MAX_BINS:
            finer, bins = bins, {}
            _add(bins, finer, 1)
            level += 1
        total = divmod(self.total + other.total, 1 << _HIGH_BITS)
        return FigureDistribution(*total, minimum, min_rank, -maximum, max_rank, level, bins)

    def quantile(self, share: float) -> int:
        """Return the value that this share of the ranks does not exceed, rounded to a bin."""
        due = share * sum(self.bins.values())
        for number, count in sorted(self.bins.items()):
            due -= count
            if due <= 0:
                low, high = (edge(number + up << self.level) for up in (0, 1))
                return min(self.maximum, max(self.minimum, (low + high) // 2))
        return self.maximum

    def edges(self) -> tuple[tuple[int, int], ...]:
        """Return the lower edges of the bins, with the number of ranks in each."""
        return tuple((edge(number << self.level), n) for number, n in sorted(self.bins.items()))


def _add(bins: dict[int, int], more: Mapping[int, int], levels: int) -> None:
    for number, count in more.items():
        number >>= levels
        bins[number] = bins.get(number, 0) + count


def bin_of(value: int) -> int:
    """Return the bin of level 0 that contains a value."""
    if value < 0:
        return -bin_of(-value)
    shift = max(0, value.bit_length() - _FINE_BITS - 1)
    return (shift << _FINE_BITS) + (value >> shift)


def edge(number: int) -> int:
    """Return the value of smallest magnitude in a bin of level 0."""
    if number < 0:
        return -edge(-number)
    shift = max(0, (number >> _FINE_BITS) - 1)
    return (number - (shift << _FINE_BITS)) << shift


class Summary(msgspec.Struct, frozen=True, array_like=True, tag="s"):
    """The work of several ranks: the sums of their counts, and the distribution of each figure."""

    ranks: int
    counts: tuple[int, ...]
    figures: dict[str, FigureDistribution]

    @classmethod
    def of(cls, rank: int, counts: tuple[int, ...], figures: Mapping[str, int]) -> Summary:
        """Return the summary of one rank."""
        return cls(
            1, counts, {name: FigureDistribution.of(rank, value) for name, value in figures.items()}
        )

    def __add__(self, other: Summary) -> Summary:
        # The counts of a rank that failed to count are empty.
        if not (self.counts and other.counts):
            counts = self.counts or other.counts
        else:
            counts = tuple(map(sum, zip(self.counts, other.counts, strict=True)))
        figures = dict(self.figures)
        for name, spread in other.figures.items():
            figures[name] = figures[name] + spread if name in figures else spread
        return Summary(self.ranks + other.ranks, counts, figures)


def unpacked(reports: Iterable[bytes]) -> Iterator[Summary]:
    """Decode summaries."""
    return map(msgspec.msgpack.Decoder(Summary).decode, reports)


def merged(summaries: Iterable[Summary]) -> Summary:
    """Merge summaries."""
    return sum(summaries, Summary(0, (), {}))
