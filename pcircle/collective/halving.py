"""Recursive halving: a message reaches all ranks of a list in a logarithmic number of steps.

A rank with a list sends to the rank in its middle, which gets everything behind it as its own list,
and continues with the part before it. The largest part thus leaves first, a rank sends to at most
``floor(log2 n) + 1`` ranks, and no path is longer than that (Carns, Settlemyer and Ligon, on
collective metadata operations, 2008 and 2009).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def shares(ranks: Sequence[int]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield the ranks to send to, each with the ranks that it must reach."""
    left = tuple(ranks)
    while left:
        middle = len(left) // 2
        yield left[middle], left[middle + 1 :]
        left = left[:middle]


def without_subtrees(ranks: Sequence[int]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield all ranks with empty subtrees, so that one rank sends to each of them itself."""
    return ((rank, ()) for rank in ranks)
