"""Whom an idle rank asks, how often, and what share a victim gives.

After LaFon, Misra and Bringhurst, "On Distributed File Tree Walk of Parallel
File Systems" (SC12): the random and the proximity-aware victim, the random
and the equal split are two plug points here, so that their DRQS, DEQS and
PA-DRQS are combinations. A rank has at most one request outstanding. After a few
refusals it asks no more, see `pcircle.circle.lifelines`, so that idle ranks
neither spin nor flood the ones that work.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from random import Random
from typing import Generic, Protocol

from pcircle.circle.bundles import Bundles
from pcircle.circle.joins import Joins
from pcircle.circle.lifelines import Lifelines
from pcircle.circle.messages import Ask, I, Message, R, Refuse, Wait, Work
from pcircle.circle.queue import Queue
from pcircle.circle.settings import Activity, Settings
from pcircle.circle.topology import Nodes

Outgoing = list[tuple[int, Message]]

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

    def choose(self, rng: Random) -> tuple[int, Ask] | None:
        """A rank and what it is to be asked, or None if there is nobody."""

    def refused(self) -> bool:
        """The request was refused. Whether that was a try; False if it was half of one."""

    def served(self) -> None:
        """The request brought work."""

    def outward(self, rng: Random) -> int | None:
        """Who may have what a neighbour asked this rank for in vain, None if nobody."""


class RandomVictims:
    """DRQS: any other rank, uniformly."""

    def __init__(self, rank: int, size: int) -> None:
        self._rank = rank
        self._size = size

    def choose(self, rng: Random) -> tuple[int, Ask] | None:
        """A uniformly random other rank."""
        if self._size == 1:
            return None
        other = rng.randrange(self._size - 1)
        return other + (other >= self._rank), Ask()

    def refused(self) -> bool:
        """Random victims remember nothing."""
        return True

    def served(self) -> None:
        """Random victims remember nothing."""

    def outward(self, rng: Random) -> int | None:
        """Random thieves ask for themselves."""
        return None


class NearestVictims:
    """PA-DRQS: first a rank of one's own node, then, through the node's leader, another node.

    Every rank works, the leader too. It gives what it has to a neighbour that asks it after
    another one has refused, and otherwise passes the request on; the answer goes to the neighbour
    itself. So requests leave a node only when ranks that are dry have looked around in it, and
    only through one rank, and work travels once. (The leaders of LaFon et al. ask for themselves,
    and their neighbours then ask them. In simulated jobs of 200 ranks on nodes of 32 that cost a
    sixth of all time: what a leader got was gone before most had asked.)
    """

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._far = not nodes.has_local

    def choose(self, rng: Random) -> tuple[int, Ask] | None:
        """A rank of the own node; next, if it refused, one of another."""
        nodes = self._nodes
        if not self._far or not nodes.has_remote:
            near = nodes.near(rng)
            if near != nodes.leader or not nodes.has_remote:
                return None if near is None else (near, Ask())
            self._far = True  # to ask it twice would tell nothing new
        far = nodes.far(rng) if nodes.is_leader else None
        return (nodes.leader, Ask(onward=True)) if far is None else (far, Ask())

    def refused(self) -> bool:
        """After a neighbour another node is asked: only both are a try."""
        nodes = self._nodes
        was_near = not self._far
        self._far = nodes.has_remote and (was_near or not nodes.has_local)
        return not (was_near and self._far)

    def served(self) -> None:
        """Got work: begin near again."""
        self._far = not self._nodes.has_local

    def outward(self, rng: Random) -> int | None:
        """Any rank of another node."""
        return self._nodes.far(rng)


def victims_of(policy: str, nodes: Nodes) -> Victims:
    """The policy of that name; "auto" is the nearest where there are near and far ranks."""
    if policy == "nearest" or (policy == "auto" and nodes.are_shared):
        return NearestVictims(nodes)
    return RandomVictims(nodes.rank, nodes.size)


_PAUSE_S = 0.25  # or up to half as much less, or more
_ENOUGH = 16  # parcels for a rank
_MESSAGES = 128  # in which the largest share goes
_FEW = 64


def parcels_a_message(limit: int, ranks: int) -> int:
    """How many parcels one message may have in a job of so many ranks.

    Few, as each may be a list of names and all of them are in memory several times while they
    travel; but of a share that is meant for thousands of ranks not so few that the messages would
    keep its taker from work.
    """
    return min(limit, max(_FEW, _ENOUGH * ranks // _MESSAGES))


class Thief:
    """One rank's requests for work.

    It has so many `tries` when it runs dry, one after the other. Then it waits, and asks once more
    whom its neighbours may not reach. After that, which is less than half a second, it is silent.
    """

    def __init__(self, victims: Victims, tries: int, rng: Random) -> None:
        self.asked: int | None = None  # who owes an answer, or has passed the request on
        self.ask_at_s: float | None = None  # not before; None: not at all
        self.waits = True  # at the start nobody but rank 0 has any work
        self.tells = not tries  # and the neighbours need not be told at once
        self.victims = victims
        self._tries = self._left = tries
        self._has_paused = False
        self._is_halfway = False  # a near one has refused, and a far one is to be asked
        self._rng = rng

    def ask(self, now_s: float, lost: Container[int]) -> tuple[int, Ask] | None:
        """Whom to ask now, and what; None if it is not the time, or nobody is there."""
        if self.asked is not None or not self._tries:
            return None
        if self.waits and not self._is_halfway:
            if self.ask_at_s is None and not self._has_paused:
                self.ask_at_s = now_s + _PAUSE_S * (0.5 + self._rng.random())
                self._has_paused = True
            self.tells = self.tells or self.ask_at_s is None
            if self.ask_at_s is None or now_s < self.ask_at_s:
                return None
        self.ask_at_s, self._is_halfway = None, False
        request = self.victims.choose(self._rng)
        if request is None or request[0] in lost:
            self.waits = self.tells = True
            return None
        self.asked = request[0]
        return request

    def served(self) -> None:
        """The request brought work."""
        self.asked = None
        self.victims.served()

    def fed(self) -> None:
        """There is work, however it came."""
        self.waits = self.tells = not self._tries
        self.ask_at_s, self._is_halfway = None, False
        self._left, self._has_paused = self._tries, False

    def refused(self) -> None:
        """The request brought nothing."""
        self.asked = None
        self._is_halfway = not self.victims.refused()
        if not (self._is_halfway or self.waits):
            self._left -= 1
            self.waits = self.tells = not self._left


class Sharing(Generic[I, R]):
    """One rank's part in the sharing of work: what it asks for, gives, gets and gives back.

    It takes from the `queue`, and its bundles have their proxies in `joins`.
    """

    def __init__(
        self,
        place: Nodes,
        settings: Settings,
        queue: Queue[I],
        joins: Joins[I, R],
        rng: Random,
    ) -> None:
        self.activity = Activity()
        self.lifelines = Lifelines(place.rank, place.size)
        self.bundles: Bundles[I, R] = Bundles(place.rank, joins, settings.combine_s)
        # To ask those who are told anyway brings nothing.
        others = place.size - 1 - len(self.lifelines.neighbours)
        tries = settings.tries if others else 0
        self.thief = Thief(victims_of(settings.victims, place), tries, rng)
        self.refuses = False  # since there was last something to give
        self._queue = queue
        self._rng = rng
        self._split = SPLITS[settings.split]
        self._share_limit = parcels_a_message(settings.share_limit, place.size)
        self._most = max(self._share_limit, _ENOUGH * place.size)
        self._taker = 0  # who is being served
        self._rest = 0  # of its share, in parcels
        self._announced: dict[int, int] = {}  # parcels, by who is to send them

    @property
    def is_waited_for(self) -> bool:
        """Whether another rank would have work of this one. A hint, for any thread."""
        return self.refuses or self.is_serving

    @property
    def is_serving(self) -> bool:
        """Whether somebody is to be pushed work."""
        return self.lifelines.has_waiters or self._rest > 0

    def seek(self, now_s: float, lost: Container[int]) -> Outgoing:
        """A worker here has nothing to do: ask for work, or say once that this rank waits for it.

        Only then: who asks ahead takes the last items of ranks that ask back, and they travel to
        and fro for as long as the workers are busy.
        """
        out: Outgoing = []
        self._announced.clear()
        self._rest = 0
        request = self.thief.ask(now_s, lost)
        if request is not None:
            self.activity.asked += 1
            out.append(request)
        if self.thief.tells:
            out += [(neighbour, Wait()) for neighbour in self.lifelines.tell(lost)]
        return out

    def answer(self, source: int, ask: Ask, works: bool, lost: Container[int]) -> Outgoing:
        """Another rank asks; `works` says whether there may be work at all."""
        thief = source if ask.thief is None else ask.thief
        if works and self._queue.stealable():
            share = self._split(len(self._queue), self._rng)
            return [self._give(thief, share, is_answer=True)]
        self.refuses = works
        outward = self.thief.victims.outward(self._rng) if works and ask.onward else None
        if outward is None or outward in lost:
            return [(thief, Refuse())]
        return [(outward, Ask(thief=thief))]

    def serve(self) -> Outgoing:
        """All workers here are busy: push what is left to those who wait, half to each.

        A large share goes in several messages, and what is to come counts as what is here: half of
        it goes on to the next one, part by part. A share ends where each rank would have enough for
        a while: what is more stays here, and may be on disk.
        """
        out: Outgoing = []
        queue = self._queue
        while queue.stealable():
            all_of_it = len(queue) + sum(self._announced.values())
            self._rest = min(self._rest, all_of_it)
            if not self._rest:
                if not self.lifelines.has_waiters:
                    break
                self._taker = self.lifelines.newest()
                self._rest = min(equal_share(all_of_it, self._rng), self._most)
            share = min(self._rest, self._share_limit)
            if queue.gathers(share):
                break
            self._rest -= min(share, queue.stealable())
            out.append(self._give(self._taker, share, is_answer=False, rest=self._rest))
        return out

    def _give(
        self, thief: int, count: int, *, is_answer: bool, rest: int = 0
    ) -> tuple[int, Message]:
        self.activity.given += 1
        self.lifelines.gave(thief)
        parcels = self._queue.steal(min(count, self._share_limit))
        return thief, self.bundles.give(thief, parcels, is_answer=is_answer, rest=rest)

    def got(self, source: int, work: Work[I, R]) -> None:
        """Work has come; `bundles.take` makes parcels of it."""
        self.lifelines.got(source)
        if work.rest:
            self._announced[source] = work.rest
        else:
            self._announced.pop(source, None)
        if work.is_answer:
            self.thief.served()
        self.activity.got += 1
        self.activity.parcels_got += sum(map(len, work.groups))

    def fed(self) -> None:
        """There is work, however it came."""
        self.refuses = False
        self.thief.fed()

    def refused(self) -> None:
        """There was nothing."""
        self.thief.refused()
        self.activity.refused += 1
