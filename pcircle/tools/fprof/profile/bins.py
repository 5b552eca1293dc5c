"""Sizes in bins that are fine enough for any histogram, and quantiles from them.

The idea is that of log-linear histograms (HdrHistogram; with the error bound for quantiles, the
DDSketch of Masson, Rim and Lee, VLDB 2019): each power of two is divided into 64 bins of equal
width. Such a histogram has a fixed size, adds up exactly with any other histogram in any order, and
gives every quantile to 1/128 of its value. It is a sketch and a histogram at once.

Bins are closed above: a bin holds the sizes above the previous edge up to and including its own
edge, so files of exactly 4 KiB are "up to 4 KiB". Bin 0 holds empty files; sizes up to 128 bytes
have a bin each. All powers of two, and 64 to 128 times a power of two, are edges.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
