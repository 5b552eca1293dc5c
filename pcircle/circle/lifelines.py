"""Lifelines: a rank without work registers with a few neighbours and then stays silent.

A rank whose first requests fail makes no more of them. It registers as a waiter with its neighbours
in a fixed graph, its *lifelines*, and is silent; a neighbour that has work to spare pushes some of
it. This is the scheme of Saraswat, Kambadur, Kodali, Grove and Krishnamoorthy, "Lifeline-based
Global Load Balancing" (PPoPP 2011). An idle job therefore sends no messages, however long a single
item runs, and when there is work again, it reaches every rank in as many steps as the diameter of
the graph, without a timer.

The graph is a hypercube: neighbours are the ranks whose numbers differ in one bit, log2(P) of them.
Only a rank with nothing to do registers. If busy ranks registered as well, demand would reach every
rank, but single items would circulate among busy ranks forever. The price is that a waiting rank
can be unlucky: all its neighbours are busy and have nothing to spare. So after a while it sends
another request to other ranks (`pcircle.circle.stealing.Thief`).

A lifeline has two ends. `_lines` are the neighbours at which this rank is registered and that have
not served it; `_waiters` are the neighbours registered here. Giving work consumes both
registrations between the two ranks, the taker's and the giver's, because a giver is not waiting: at
the giver when the work is sent, at the taker when it arrives. Messages between two ranks keep their
order, so a registration that follows a transfer is valid. If messages cross, a registration may be
known only to the neighbour; the waiting rank then registers again. It is never known only to the
waiting rank, which would wait forever.

At the start no rank sends a registration. Each rank is registered with its parent in the binomial
tree, whose number is its own without the highest bit, and the work of rank 0 flows down that tree,
half of it to the largest subtree. If every rank were registered with all its neighbours, most of
them would act on it too late.
"""

from __future__ import annotations

from collections.abc import Container


class Lifelines:
    """One rank's ends of its lifelines."""

    def __init__(self, rank: int, size: int) -> None:
        bits = range((size - 1).bit_length())
        self.neighbours = tuple(other for bit in bits if (other := rank ^ 1 << bit) < size)
        own_bits = rank.bit_length()
        self._lines = {rank ^ 1 << own_bits - 1} if rank else set()
        # The last waiter is served first: the child with the largest subtree, whose descendants may
        # differ in the largest number of bits.
        children = [other for other in self.neighbours if other >> own_bits]
        self._waiters: dict[int, None] = dict.fromkeys(reversed(children))

    @property
    def has_waiters(self) -> bool:
        """Return whether a neighbour waits for work from this rank."""
        return bool(self._waiters)

    @property
    def waiters(self) -> tuple[int, ...]:
        """The neighbours that wait here, longest waiting first."""
        return tuple(self._waiters)

    @property
    def waits_at(self) -> frozenset[int]:
        """The neighbours at which this rank is registered."""
        return frozenset(self._lines)

    def add_waiter(self, source: int) -> None:
        """Register a neighbour as waiting."""
        self._waiters.pop(source, None)
        self._waiters[source] = None

    def register(self, lost: Container[int]) -> list[int]:
        """Return the neighbours at which this rank must still register, and assume that it does."""
        lines = self._lines
        if len(lines) >= len(self.neighbours):
            return []
        unregistered = [n for n in self.neighbours if n not in lines and n not in lost]
        lines.update(unregistered)
        return unregistered

    def newest(self) -> int:
        """Return the neighbour that registered last; there must be one."""
        return next(reversed(self._waiters))

    def gave(self, taker: int) -> None:
        """Record that this rank has sent work to another rank."""
        self._waiters.pop(taker, None)
        self._lines.discard(taker)

    def got(self, giver: int) -> None:
        """Record that work has arrived from another rank."""
        self._lines.discard(giver)
        self._waiters.pop(giver, None)
