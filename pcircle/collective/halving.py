"""Recursive halving: who sends to whom, so that all of a list are reached in a logarithm of steps.

A rank with a list sends to the one in its middle, who gets all behind that one as his own list,
and goes on with what is before it. So the largest share leaves first, a rank has at most
``floor(log2 n) + 1`` to send to, and no path is longer than that (Carns, Settlemyer and Ligon, on
collective metadata operations, 2008 and 2009).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def shares(ranks: Sequence[int]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Whom to send to, each with the list that is his to reach."""
    left = tuple(ranks)
    while left:
        middle = len(left) // 2
        yield left[middle], left[middle + 1 :]
        left = left[:middle]


def each(ranks: Sequence[int]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """One sends to all."""
    return ((rank, ()) for rank in ranks)
