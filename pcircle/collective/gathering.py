"""One wave through a list of ranks: handed down by shares, gathered on the way back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

from pcircle.collective.messages import Said

Shares: TypeAlias = Callable[[Sequence[int]], Iterator[tuple[int, tuple[int, ...]]]]

LOST = "the rank is lost"
_UNREACHED = "rank {rank}, which was to reach it, is lost"


class Gathering:
    """What one rank waits for: those it has sent to, each with the list that is his to reach.

    `said` is what has come of them all so far.
    """

    def __init__(self, shares: Iterable[tuple[int, tuple[int, ...]]], said: Iterable[Said]) -> None:
        self.waiting = dict(shares)
        self.said = list(said)

    @property
    def is_complete(self) -> bool:
        """Whether nobody is waited for."""
        return not self.waiting

    def hear(self, rank: int, said: Iterable[Said]) -> None:
        """One has answered for himself and his list."""
        if self.waiting.pop(rank, None) is not None:
            self.said += said

    def give_up(self, rank: int) -> None:
        """One is lost, and with him the way to his list: none of these has said yes."""
        rest = self.waiting.pop(rank, None)
        if rest is not None:
            self.said.append(Said(rank, refusal=LOST))
            self.said += [Said(each, refusal=_UNREACHED.format(rank=rank)) for each in rest]

    def go_round(self, rank: int, shares: Shares) -> list[tuple[int, tuple[int, ...]]]:
        """One is lost, and his list is to be reached without him: whom to send to."""
        rest = self.waiting.pop(rank, None)
        if rest is None:
            return []
        self.said.append(Said(rank, refusal=LOST))
        more = list(shares(rest))
        self.waiting.update(more)
        return more

    def late(self) -> list[Said]:
        """The ranks that have not answered, each with that as its refusal."""
        found = []
        for rank, rest in self.waiting.items():
            found += [Said(each, refusal="no answer in time") for each in (rank, *rest)]
        return found
