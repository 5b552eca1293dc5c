"""Who waits for work, and at whom: demand that is told once, and then silent.

A rank that has asked a few others in vain does not go on asking. It tells its neighbours in a
fixed graph, its *lifelines*, that it waits, and is silent; whoever of them has work that it does
not need pushes some of it. After Saraswat, Kambadur, Kodali, Grove and Krishnamoorthy,
"Lifeline-based Global Load Balancing" (PPoPP 2011). An idle job therefore sends nothing at all,
however long somebody computes, and one that has work again is busy in as many steps as the graph
is wide: there is no timer.

The graph is a cube: neighbours are the ranks whose numbers differ in one bit, log2 P of them. Only
who has nothing to do waits. If busy ranks waited for others as well, demand would reach everybody,
but single items then go round among busy ranks for ever. So a rank that waits may be unlucky: all
its neighbours are busy, and have nothing to spare. So some time later it asks others once more
(`pcircle.circle.stealing.Thief`).

A line has two ends: `_lines` is what this rank has told and nobody has acted on, `_waiters` is what
it was told. Work that is given uses up the taker's line at the giver, and takes back the giver's at
the taker, since who gives does not wait: at the giver when it is sent, at the taker when it comes.
As an edge keeps order, who says afterwards that it waits is heard. Where messages cross, a line may
be known only to the one at which somebody waits; then it is told once more. It is never known only
to the one who waits, who would wait for ever.

At the start nobody tells anything. A rank is known to wait at its parent in the binomial tree,
which is its number without the highest bit, and what the first one has goes down that tree, half
of it to the largest subtree. Were it known to all its neighbours, most would act on it too late.
"""

from __future__ import annotations

from collections.abc import Container


class Lifelines:
    """One rank's ends of its lines."""

    def __init__(self, rank: int, size: int) -> None:
        bits = range((size - 1).bit_length())
        self.neighbours = tuple(other for bit in bits if (other := rank ^ 1 << bit) < size)
        own_bits = rank.bit_length()
        self._lines = {rank ^ 1 << own_bits - 1} if rank else set()
        # The last one is served first: the child with the largest subtree, that is the one whose
        # descendants may differ in the most bits.
        children = [other for other in self.neighbours if other >> own_bits]
        self._waiters: dict[int, None] = dict.fromkeys(reversed(children))

    @property
    def has_waiters(self) -> bool:
        """Whether somebody waits for work of this rank."""
        return bool(self._waiters)

    @property
    def waiters(self) -> tuple[int, ...]:
        """Who waits here."""
        return tuple(self._waiters)

    @property
    def waits_at(self) -> frozenset[int]:
        """Where this rank waits."""
        return frozenset(self._lines)

    def told(self, source: int) -> None:
        """A neighbour waits."""
        self._waiters.pop(source, None)
        self._waiters[source] = None

    def tell(self, lost: Container[int]) -> list[int]:
        """Whom to tell now that this rank waits: the neighbours that do not know it."""
        lines = self._lines
        if len(lines) >= len(self.neighbours):
            return []
        untold = [n for n in self.neighbours if n not in lines and n not in lost]
        lines.update(untold)
        return untold

    def newest(self) -> int:
        """Who was the last to say that it waits; somebody must."""
        return next(reversed(self._waiters))

    def gave(self, taker: int) -> None:
        """This rank has sent work to another one."""
        self._waiters.pop(taker, None)
        self._lines.discard(taker)

    def got(self, giver: int) -> None:
        """Work has come from another rank."""
        self._lines.discard(giver)
        self._waiters.pop(giver, None)
