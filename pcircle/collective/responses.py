"""Collect the responses to a message that is passed down a tree of ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

from pcircle.collective.messages import Said

Shares: TypeAlias = Callable[[Sequence[int]], Iterator[tuple[int, tuple[int, ...]]]]

LOST = "the rank is lost"
_UNREACHED = "rank {rank}, which was to reach it, is lost"


class ResponseCollector:
    """The ranks that one rank waits for, each with the subtree that it must reach.

    `said` contains the responses received so far.
    """

    def __init__(self, shares: Iterable[tuple[int, tuple[int, ...]]], said: Iterable[Said]) -> None:
        self.waiting = dict(shares)
        self.said = list(said)

    @property
    def is_complete(self) -> bool:
        """True if no response is outstanding."""
        return not self.waiting

    def hear(self, rank: int, said: Iterable[Said]) -> None:
        """Record the responses of a rank and its subtree."""
        if self.waiting.pop(rank, None) is not None:
            self.said += said

    def give_up(self, rank: int) -> None:
        """Record a lost rank, and the subtree that it had to reach, as refusals."""
        subtree = self.waiting.pop(rank, None)
        if subtree is not None:
            self.said.append(Said(rank, refusal=LOST))
            self.said += [
                Said(unreached, refusal=_UNREACHED.format(rank=rank)) for unreached in subtree
            ]

    def go_round(self, rank: int, shares: Shares) -> list[tuple[int, tuple[int, ...]]]:
        """Replace a lost rank by its subtree; return the ranks to send to, with their subtrees."""
        subtree = self.waiting.pop(rank, None)
        if subtree is None:
            return []
        self.said.append(Said(rank, refusal=LOST))
        more = list(shares(subtree))
        self.waiting.update(more)
        return more

    def late(self) -> list[Said]:
        """Return a refusal for each rank that has not answered."""
        found = []
        for rank, subtree in self.waiting.items():
            found += [Said(member, refusal="no answer in time") for member in (rank, *subtree)]
        return found
