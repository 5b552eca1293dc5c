"""Work stealing: the choice of victims, the number of requests, and the share that a victim gives.

The policies are those of LaFon, Misra and Bringhurst, "On Distributed File Tree Walk of Parallel
File Systems" (SC12). The choice of the victim (random or proximity-aware) and the split (random or
equal) are independent here, so that the paper's DRQS, DEQS and PA-DRQS are combinations of the two.
A rank has at most one request outstanding. After a few refusals it relies on its lifelines instead,
so that idle ranks neither spin nor flood the working ranks.

A rank whose first requests fail registers as a waiter with its neighbours in a fixed graph, its
*lifelines*. A neighbour that has work to spare sends it some. This is the scheme of Saraswat,
Kambadur, Kodali, Grove and Krishnamoorthy, "Lifeline-based Global Load Balancing" (PPoPP 2011).
While a single item runs for a long time, the idle ranks therefore soon stop sending requests. When
there is work again, it can reach every rank in as many steps as the diameter of the graph, without
a timer.

The graph is a hypercube. The neighbours of a rank, at most log2(P) rounded up, are the ranks whose
numbers differ from its own in one bit. Only a rank with nothing to do registers. If busy ranks also
registered, demand would reach every rank, but single items would circulate among busy ranks
forever. The price is that all neighbours of a waiting rank may be busy with nothing to spare. So
after a pause the rank makes one more attempt to steal (`Thief`).

A lifeline has two ends. `_lines` holds the neighbours at which this rank is registered and that
have not served it; `_waiters` holds the neighbours registered here. A transfer of work consumes
both registrations between the two ranks, that of the taker and that of the giver, because a giver
is not waiting. They are removed at the giver when the work is sent, and at the taker when it
arrives. Messages between two ranks keep their order, so a registration that follows a transfer is
valid. If messages cross, a registration may be known only to the neighbour, and the waiting rank
then registers again. It is never known only to the waiting rank; otherwise that rank would wait
forever.

At the start no rank needs to send a registration. Each one but rank 0 counts as registered with its
parent in the binomial tree: the rank whose number lacks its highest bit. The work of rank 0 flows
down that tree, half of it to the largest subtree. If every rank were registered with all its
neighbours, most of these registrations would be served too late.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from random import Random
from typing import Generic, Protocol

from pcircle.circle.instructions import Activity, EngineSettings
from pcircle.circle.joins import Bundles, Joins
from pcircle.circle.messages import (
    I,
    LifelineRequest,
    Message,
    R,
    StealRefusal,
    StealRequest,
    WorkTransfer,
)
from pcircle.circle.queue import Queue
from pcircle.circle.topology import Locality


class Lifelines:
    """The lifelines of one rank."""

    def __init__(self, rank: int, size: int) -> None:
        bits = range((size - 1).bit_length())
        self.neighbours: tuple[int, ...] = tuple(
            other for bit in bits if (other := rank ^ 1 << bit) < size
        )
        own_bits = rank.bit_length()
        self._lines = {rank ^ 1 << own_bits - 1} if rank else set()
        # The last waiter is served first. It must be the child with the largest subtree: the one
        # that differs from this rank in the lowest bit, because its descendants may differ in all
        # higher bits.
        children = [other for other in self.neighbours if other >> own_bits]
        self._waiters: dict[int, None] = dict.fromkeys(reversed(children))

    @property
    def has_waiters(self) -> bool:
        """Return whether a neighbour is waiting for work from this rank."""
        return bool(self._waiters)

    @property
    def waiters(self) -> tuple[int, ...]:
        """The neighbours that are waiting for work from this rank, longest waiting first."""
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


Outgoing = list[tuple[int, Message]]

Split = Callable[[int, Random], int]


def random_share(stealable: int, rng: Random) -> int:
    """Return a uniformly random share, from one parcel to all (DRQS)."""
    return rng.randint(1, stealable)


def equal_share(stealable: int, rng: Random) -> int:
    """Return half of the parcels, rounded up (DEQS)."""
    return (stealable + 1) // 2


SPLITS: dict[str, Split] = {"random": random_share, "equal": equal_share}


class VictimPolicy(Protocol):
    """The policy that chooses victims."""

    def choose(self, rng: Random) -> tuple[int, StealRequest] | None:
        """Return a victim and the request to send, or None if there is no victim."""

    def refused(self) -> bool:
        """Record a refusal; return whether it completes an attempt."""
        ...

    def served(self) -> None:
        """Record that a request brought work."""

    def outward(self, rng: Random) -> int | None:
        """Return a rank to pass a neighbour's request on to, or None."""


class RandomVictims:
    """The policy of DRQS: chooses uniformly among all other ranks."""

    def __init__(self, rank: int, size: int) -> None:
        self._rank = rank
        self._size = size

    def choose(self, rng: Random) -> tuple[int, StealRequest] | None:
        if self._size == 1:
            return None
        other = rng.randrange(self._size - 1)
        return other + (other >= self._rank), StealRequest()

    def refused(self) -> bool:
        return True

    def served(self) -> None:
        """Do nothing: random choices have no memory."""

    def outward(self, rng: Random) -> int | None:
        return None


class NearestVictims:
    """The policy of PA-DRQS: first a rank of the same node, then one of another node.

    Every rank works, including the leader of the node. A rank that another neighbour has refused
    may request work from the leader. The leader gives work if it has any, and otherwise passes the
    request on to another node. The answer is sent directly to the rank that needs work. So, on a
    node with several ranks, a request leaves the node only after one of its ranks has refused, and
    only through the leader. Work travels once. (The leaders of LaFon et al. steal for themselves,
    and their neighbours then steal from them. In simulated jobs of 200 ranks on nodes of 32 that
    cost a sixth of the total time, because the leader's work was gone before most neighbours had
    requested it.)
    """

    def __init__(self, nodes: Locality) -> None:
        self._nodes = nodes
        self._far = not nodes.has_local

    def choose(self, rng: Random) -> tuple[int, StealRequest] | None:
        """Return a rank of this node or, after it has refused, the leader or a remote rank."""
        nodes = self._nodes
        if not self._far or not nodes.has_remote:
            near = nodes.near(rng)
            if near != nodes.leader or not nodes.has_remote:
                return None if near is None else (near, StealRequest())
            # The next request would go to the leader too, so this one may be passed on.
            self._far = True
        far = nodes.far(rng) if nodes.is_leader else None
        return (nodes.leader, StealRequest(onward=True)) if far is None else (far, StealRequest())

    def refused(self) -> bool:
        """Try another node after a neighbour has refused. Both requests form one attempt."""
        nodes = self._nodes
        was_near = not self._far
        self._far = nodes.has_remote and (was_near or not nodes.has_local)
        return not (was_near and self._far)

    def served(self) -> None:
        """Start with this rank's own node again."""
        self._far = not self._nodes.has_local

    def outward(self, rng: Random) -> int | None:
        return self._nodes.far(rng)


def victims_of(policy: str, nodes: Locality) -> VictimPolicy:
    """Return the policy of that name. For "auto", see `EngineSettings`."""
    if policy == "nearest" or (policy == "auto" and nodes.are_shared):
        return NearestVictims(nodes)
    return RandomVictims(nodes.rank, nodes.size)


PAUSE_S: float = 0.25  # varied at random by up to 50 %
PARCELS_PER_RANK: int = 16  # a share is limited to this many times the number of ranks
_MAX_MESSAGES = 128  # the largest share is sent in about this many messages
_MIN_PARCELS = 64  # limit per message in a small job


def parcels_per_message(limit: int, ranks: int) -> int:
    """Return the maximum number of parcels in one message of a job with this number of ranks.

    Few parcels keep memory small, because each may be a list of names, and a message exists in
    several copies while it travels. But a share for thousands of ranks needs large messages,
    because receiving many small ones would delay the work.
    """
    return min(limit, max(_MIN_PARCELS, PARCELS_PER_RANK * ranks // _MAX_MESSAGES))


class Thief:
    """One rank's requests for work.

    A rank without work makes `tries` attempts, one after the other. Then it waits, and makes one
    more attempt after a pause of less than half a second, to reach ranks that its lifelines may not
    reach. After that it is silent.
    """

    def __init__(self, victims: VictimPolicy, tries: int, rng: Random) -> None:
        self.asked: int | None = None  # the rank that owes an answer, or passed the request on
        self.ask_at_s: float | None = None  # earliest time of the next request, if one is due
        self.waits: bool = True  # at the start only rank 0 has work
        self.registers: bool = not tries  # otherwise the attempts precede the registrations
        self.victims = victims
        self._tries = self._left = tries
        self._has_paused = False
        self._is_halfway = False  # a near rank has refused, and a far rank is next
        self._rng = rng

    def ask(self, now_s: float, lost: Container[int]) -> tuple[int, StealRequest] | None:
        """Return the next victim and request, or None if it is too early or there is no victim."""
        if self.asked is not None or not self._tries:
            return None
        if self.waits and not self._is_halfway:
            if self.ask_at_s is None and not self._has_paused:
                self.ask_at_s = now_s + PAUSE_S * (0.5 + self._rng.random())
                self._has_paused = True
            self.registers = self.registers or self.ask_at_s is None
            if self.ask_at_s is None or now_s < self.ask_at_s:
                return None
        self.ask_at_s, self._is_halfway = None, False
        request = self.victims.choose(self._rng)
        if request is None or request[0] in lost:
            self.waits = self.registers = True
            return None
        self.asked = request[0]
        return request

    def served(self) -> None:
        """Record that the request brought work."""
        self.asked = None
        self.victims.served()

    def fed(self) -> None:
        """Record that there is work, from any source."""
        self.waits = self.registers = not self._tries
        self.ask_at_s, self._is_halfway = None, False
        self._left, self._has_paused = self._tries, False

    def refused(self) -> None:
        """Record that the request brought nothing."""
        self.asked = None
        self._is_halfway = not self.victims.refused()
        if not (self._is_halfway or self.waits):
            self._left -= 1
            self.waits = self.registers = not self._left


class WorkSharing(Generic[I, R]):
    """One rank's part in sharing work: what it requests, gives, receives and returns.

    It gives parcels from the `queue`, and adds the proxies of its bundles to `joins`.
    """

    def __init__(
        self,
        place: Locality,
        settings: EngineSettings,
        queue: Queue[I],
        joins: Joins[I, R],
        rng: Random,
    ) -> None:
        self.activity: Activity = Activity()
        self.lifelines: Lifelines = Lifelines(place.rank, place.size)
        self.bundles: Bundles[I, R] = Bundles(place.rank, joins, settings.combine_s)
        # Requests are useful only if there are ranks other than the lifelines' neighbours.
        unlinked = place.size - 1 - len(self.lifelines.neighbours)
        tries = settings.tries if unlinked else 0
        self.thief: Thief = Thief(victims_of(settings.victims, place), tries, rng)
        self.refuses: bool = False  # has refused a request since it last had work
        self._queue = queue
        self._rng = rng
        self._split = SPLITS[settings.split]
        self._share_limit = parcels_per_message(settings.share_limit, place.size)
        self._max_share = max(self._share_limit, PARCELS_PER_RANK * place.size)
        self._receiver = 0  # the rank that is being served
        self._remaining = 0  # number of parcels of its share that are still to be sent
        self._announced: dict[int, int] = {}  # parcels that will follow, by sender

    @property
    def is_waited_for(self) -> bool:
        """Return whether another rank wants work from this rank.

        The answer is a hint: any thread may read this property, without a lock.
        """
        return self.refuses or self.is_serving

    @property
    def is_serving(self) -> bool:
        """Return whether a waiting rank must be sent work."""
        return self.lifelines.has_waiters or self._remaining > 0

    def seek(self, now_s: float, lost: Container[int]) -> Outgoing:
        """Request work for an idle worker or, once requests have failed, register as waiting.

        Work must not be requested before a worker is idle. Otherwise the last items of two ranks
        could travel back and forth between them while the workers are busy.
        """
        out: Outgoing = []
        self._announced.clear()
        self._remaining = 0
        request = self.thief.ask(now_s, lost)
        if request is not None:
            self.activity.asked += 1
            out.append(request)
        if self.thief.registers:
            out += [(neighbour, LifelineRequest()) for neighbour in self.lifelines.register(lost)]
        return out

    def answer(self, source: int, ask: StealRequest, works: bool, lost: Container[int]) -> Outgoing:
        """Answer another rank's request; `works` is false if this rank cannot have work."""
        thief = source if ask.thief is None else ask.thief
        if works and self._queue.stealable():
            share = self._split(len(self._queue), self._rng)
            return [self._give(thief, share, is_answer=True)]
        self.refuses = works
        outward = self.thief.victims.outward(self._rng) if works and ask.onward else None
        if outward is None or outward in lost:
            return [(thief, StealRefusal())]
        return [(outward, StealRequest(thief=thief))]

    def serve(self) -> Outgoing:
        """Push work to waiting ranks, half of the queue to each. Called while all workers are busy.

        A large share is sent in several messages. Parcels that another rank has announced count as
        present, so half of them are passed on as they arrive. A share is no larger than needed to
        keep all ranks busy for a while. The remaining parcels stay here, where they may be on disk.
        """
        out: Outgoing = []
        queue = self._queue
        while queue.stealable():
            total = len(queue) + sum(self._announced.values())
            self._remaining = min(self._remaining, total)
            if not self._remaining:
                if not self.lifelines.has_waiters:
                    break
                self._receiver = self.lifelines.newest()
                self._remaining = min(equal_share(total, self._rng), self._max_share)
            share = min(self._remaining, self._share_limit)
            if queue.gathers(share):
                break
            self._remaining -= min(share, queue.stealable())
            out.append(
                self._give(self._receiver, share, is_answer=False, remaining=self._remaining)
            )
        return out

    def _give(
        self, thief: int, count: int, *, is_answer: bool, remaining: int = 0
    ) -> tuple[int, Message]:
        self.activity.given += 1
        self.lifelines.gave(thief)
        parcels = self._queue.steal(min(count, self._share_limit))
        return thief, self.bundles.give(thief, parcels, is_answer=is_answer, remaining=remaining)

    def got(self, source: int, work: WorkTransfer[I, R]) -> None:
        """Record that work has arrived. The caller passes it to `bundles.take`."""
        self.lifelines.got(source)
        if work.remaining:
            self._announced[source] = work.remaining
        else:
            self._announced.pop(source, None)
        if work.is_answer:
            self.thief.served()
        self.activity.got += 1
        self.activity.parcels_got += sum(map(len, work.groups))

    def fed(self) -> None:
        """Record that there is work, from any source."""
        self.refuses = False
        self.thief.fed()

    def refused(self) -> None:
        """Record a refusal."""
        self.thief.refused()
        self.activity.refused += 1
