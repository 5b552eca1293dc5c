"""Whom an idle rank asks, when, and what share a victim gives.

After LaFon, Misra and Bringhurst, "On Distributed File Tree Walk of Parallel
File Systems" (SC12): the random and the proximity-aware victim, the random
and the equal split are two plug points here, so that their DRQS, DEQS and
PA-DRQS are combinations. A rank has at most one request outstanding; after a
refusal it waits, each time twice as long up to a limit and with jitter, so
that idle ranks neither spin nor flood the ones that work.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Protocol

from pcircle.circle.topology import Nodes

Split = Callable[[int, Random], int]


def random_share(stealable: int, rng: Random) -> int:
    """DRQS: a uniformly random share, from one parcel to all."""
    return rng.randint(1, stealable)


def equal_share(stealable: int, rng: Random) -> int:
    """DEQS: half, rounded up: thief and victim have the same."""
    return (stealable + 1) // 2


SPLITS: dict[str, Split] = {"random": random_share, "equal": equal_share}


class Victims(Protocol):
    """Chooses whom to ask next."""

    def choose(self, rng: Random) -> int | None:
        """A rank to ask, or None if there is nobody."""

    def refused(self, victim: int) -> None:
        """The one asked had nothing."""

    def served(self, victim: int) -> None:
        """The one asked gave work."""

    def pleaded(self, thief: int) -> None:
        """This rank itself refused a thief."""

    @property
    def asks_for_others(self) -> bool:
        """Whether this rank should ask although it is busy itself."""


class RandomVictims:
    """DRQS: any other rank, uniformly."""

    asks_for_others = False

    def __init__(self, rank: int, size: int) -> None:
        self._rank = rank
        self._size = size

    def choose(self, rng: Random) -> int | None:
        """A uniformly random other rank."""
        if self._size == 1:
            return None
        other = rng.randrange(self._size - 1)
        return other + (other >= self._rank)

    def refused(self, victim: int) -> None:
        """Random victims remember nothing."""

    def served(self, victim: int) -> None:
        """Random victims remember nothing."""

    def pleaded(self, thief: int) -> None:
        """Random victims remember nothing."""


class NearestVictims:
    """PA-DRQS: ranks of one's own node; only each node's leader asks outward.

    A node's leader works as every rank does. It asks outward once a rank of
    its own node has refused it since it last got work, or a thief of its own
    node found it empty: then all of the node is dry, as far as it can know.
    """

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._outward = not nodes.local
        self._pleas = False

    @property
    def asks_for_others(self) -> bool:
        """A leader whose node begs asks outward even while its own worker is busy."""
        return self._nodes.is_leader and self._pleas

    def choose(self, rng: Random) -> int | None:
        """A rank of the own node, or for leaders at times of another one."""
        nodes = self._nodes
        if nodes.is_leader and nodes.remote and (self._outward or self._pleas):
            self._outward = not nodes.local
            self._pleas = False
            return rng.choice(nodes.remote)
        return rng.choice(nodes.local) if nodes.local else None

    def refused(self, victim: int) -> None:
        """A dry neighbour makes the leader look outward next."""
        if victim in self._nodes.local:
            self._outward = True

    def served(self, victim: int) -> None:
        """Got work: begin near again."""
        self._outward = not self._nodes.local

    def pleaded(self, thief: int) -> None:
        """A thief of the own node went away with nothing."""
        if thief in self._nodes.local:
            self._pleas = True


class Backoff:
    """How long to wait after refusals: doubling from `first_s` to `limit_s`, with jitter."""

    def __init__(self, first_s: float, limit_s: float) -> None:
        self._first_s = first_s
        self._limit_s = limit_s
        self._wait_s = first_s

    def reset(self) -> None:
        """There was work: ask at once next time."""
        self._wait_s = self._first_s

    def next_s(self, rng: Random) -> float:
        """The time to wait now; the next one is longer."""
        wait_s = self._wait_s
        self._wait_s = min(self._limit_s, wait_s * 2)
        return wait_s * (0.5 + rng.random())
