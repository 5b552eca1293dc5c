"""A simulated network: seeded randomness, virtual time, thousands of ranks.

A rank is a generator that yields where a real rank would wait. So one thread can run all ranks of a
job, in any order that a network permits, and repeat the run from the same seed. The guarantees of
the contract hold (whole, once, ordered per pair of ranks). Everything that the contract does not
guarantee is used against the program: any interleaving across pairs, and delays of any length.
Ranks may be slow, be stuck for a while or forever, or be killed at any moment.

The cost is about one event per message and one per wait, whatever the number of ranks.

This is not a model of the speed of real networks: latencies are chosen to be adversarial first and
plausible second.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from heapq import heappop, heappush
from math import inf
from random import Random
from typing import Any, NoReturn, TypeAlias

import msgspec

from pcircle.core.errors import Defect, require
from pcircle.transport.contract import Delivery, LostRank

Wait: TypeAlias = "Generator[float | None, list[Delivery | LostRank], object]"
Program: TypeAlias = "Callable[[SimTransport], Wait]"

_DELIVER, _RESUME, _LOST, _KILL = range(4)
# (virtual time, tie breaker, kind, rank, other rank, payload)
_Event: TypeAlias = "tuple[float, int, int, int, int, Any]"


class Stall(msgspec.Struct, frozen=True):
    """Rank `rank` makes no step from `from_s` until `until_s` (infinity: never again)."""

    rank: int
    from_s: float
    until_s: float = inf


class Kill(msgspec.Struct, frozen=True):
    """Rank `rank` dies at `at_s`; messages that it sent just before may be lost.

    Messages that arrive within `lasts_s` of the death are not lost. They precede the notice of the
    death, so a positive value makes the other ranks learn of it at different times.
    """

    rank: int
    at_s: float
    reason: str = "killed by the simulation"
    lasts_s: float = 0.0


class Conditions(msgspec.Struct, frozen=True):
    """How adverse the network and the machines are. Times are seconds of virtual time.

    A message takes `near_s` on its node, `far_s` between nodes, multiplied by one plus an
    exponential random variable with mean `jitter`. A share `tail` of the messages takes up to
    `tail_s` longer. With probability `burst` a message starts a burst: it and the next
    `burst_messages` messages of the job are each delayed by up to `burst_s`. A share `lame` of the
    ordered pairs of ranks is slower by up to `lame_s` per message, so that messages on other routes
    overtake theirs. Payloads whose type is named in `held` are delayed by up to `held_s`, as if by
    an adversary that can read messages. If the network is given `size_bytes`, each byte of a
    payload adds `byte_s`. A step of a rank takes `step_s`, or the time that `slow` lists for the
    rank as (rank, seconds). Ranks start within `start_s` of each other, and usually learn of a
    rank's death after one to two times `detect_s`.
    """

    near_s: float = 2e-6
    far_s: float = 2e-5
    byte_s: float = 0.0
    jitter: float = 0.5
    tail: float = 0.0
    tail_s: float = 0.01
    burst: float = 0.0
    burst_messages: int = 16
    burst_s: float = 0.2
    lame: float = 0.0
    lame_s: float = 0.05
    held: tuple[str, ...] = ()
    held_s: float = 0.05
    step_s: float = 1e-6
    start_s: float = 0.0
    detect_s: float = 0.001
    slow: tuple[tuple[int, float], ...] = ()
    stalls: tuple[Stall, ...] = ()
    kills: tuple[Kill, ...] = ()


class _JobAborted(BaseException):
    """Raised by `abort` to leave the program, because `abort` must not return."""


class _Rank:
    """The state of one rank."""

    __slots__ = (
        "alarm_s",
        "begun",
        "cut_s",
        "due_s",
        "ended",
        "inbox",
        "program",
        "ready_s",
        "result",
        "stalls",
        "step_s",
        "transport",
        "waiting",
        "woken",
    )

    def __init__(self, transport: SimTransport, step_s: float) -> None:
        self.transport = transport
        self.step_s = step_s
        self.program: Wait | None = None
        self.result: object = None
        self.inbox: list[Delivery | LostRank] = []
        self.waiting = False
        self.woken = False
        self.begun = False
        self.ended = False
        self.due_s = inf  # when it should resume even if nothing arrives
        self.alarm_s = inf  # the time of the earliest event that checks `due_s`
        self.ready_s = 0.0  # when its current step ends
        self.cut_s = inf  # after this rank's death: its messages that arrive later are lost
        self.stalls: list[Stall] = []

    def free_s(self, now_s: float) -> float:
        """Return the earliest time from `now_s` at which this rank can make a step."""
        free_s = max(now_s, self.ready_s)
        for stall in self.stalls:
            if stall.from_s <= free_s < stall.until_s:
                free_s = stall.until_s
        return free_s


class SimTransport:
    """One rank's end of the network; implements `contract.Transport`.

    A program waits by yielding: `arrivals = yield timeout_s` corresponds to `arrivals =
    transport.poll(timeout_s)` elsewhere. Payloads may be any objects; they must not change after
    they are sent.
    """

    __slots__ = ("_network", "closed", "nodes", "rank", "size")

    def __init__(self, network: Network, rank: int, nodes: tuple[int, ...]) -> None:
        self._network = network
        self.rank: int = rank
        self.size: int = len(nodes)
        self.nodes: tuple[int, ...] = nodes
        self.closed: bool = False

    @property
    def now_s(self) -> float:
        """The virtual time."""
        return self._network.now_s

    def send(self, dest: int, payload: object) -> None:
        self._network.send(self.rank, dest, payload)

    def poll(self, timeout_s: float | None) -> list[Delivery | LostRank]:
        """Return what has arrived; `timeout_s` must be 0, because a program waits by yielding."""
        if timeout_s != 0:
            raise ValueError("a simulated rank waits by yielding the timeout")
        return self._network.taken(self.rank)

    def wake(self) -> None:
        self._network.wake(self.rank)

    def close(self) -> None:
        """Drop all later arrivals; messages that were sent are still delivered."""
        self.closed = True

    def abort(self, exit_code: int) -> NoReturn:
        """End the whole job."""
        self._network.aborted = (self.rank, exit_code)
        raise _JobAborted


class Network:
    """The ranks of one job and the network between them.

    `observe` is called with a rank after each of its steps. If `decoder` is given, every payload is
    encoded with msgpack and decoded, as it would be between processes. A run that exceeds `limit_s`
    of virtual time raises Defect, and so does a run in which all ranks wait forever.

    `aborted` is (rank, exit code) if a rank called `abort`. `messages` counts the messages sent.
    `size_bytes` returns the size of a payload. If it is given, `pair_messages` and `pair_bytes`
    count messages and bytes by [source][dest].
    """

    conditions: Conditions

    def __init__(
        self,
        nodes: Sequence[int],
        rng: Random,
        conditions: Conditions | None = None,
        *,
        decoder: msgspec.msgpack.Decoder[object] | None = None,
        observe: Callable[[int], None] | None = None,
        size_bytes: Callable[[object], int] | None = None,
        limit_s: float = inf,
    ) -> None:
        self.conditions = conditions = conditions or Conditions()
        self.now_s: float = 0.0
        self.messages: int = 0
        self.far_messages: int = 0  # between nodes
        self.steps: int = 0
        self.aborted: tuple[int, int] | None = None
        self.dropped: list[tuple[int, int, object]] = []  # messages to ranks that had closed
        self._nodes = tuple(nodes)
        self._rng = rng
        self._salt = rng.getrandbits(32)
        self._decoder = decoder
        self._observe = observe
        self._size_bytes = size_bytes
        counted = len(self._nodes) if size_bytes is not None else 0
        self.pair_messages: list[list[int]] = [[0] * counted for _ in range(counted)]
        self.pair_bytes: list[list[int]] = [[0] * counted for _ in range(counted)]
        self._limit_s = limit_s
        self._events: list[_Event] = []
        self._serial = 0
        self._alive = 0
        self._burst_left = 0
        # When the last message of a pair arrives, for pairs with messages in flight.
        self._last_s: dict[tuple[int, int], float] = {}
        slow = dict(conditions.slow)
        self._ranks = [
            _Rank(SimTransport(self, rank, self._nodes), slow.get(rank, conditions.step_s))
            for rank in range(len(self._nodes))
        ]
        for stall in sorted(conditions.stalls, key=lambda stall: stall.from_s):
            self._ranks[stall.rank].stalls.append(stall)

    # ---- for the ranks' transports -----------------------------------------------------------

    def send(self, source: int, dest: int, payload: Any) -> None:
        """Draw the time at which `payload` arrives, and schedule it."""
        if not 0 <= dest < len(self._ranks):
            raise ValueError(f"no rank {dest} in a job of {len(self._ranks)}")
        if self._decoder is not None:
            payload = self._decoder.decode(msgspec.msgpack.encode(payload))
        self.messages += 1
        self.far_messages += self._nodes[source] != self._nodes[dest]
        size_s = 0.0
        if self._size_bytes is not None:
            size_bytes = self._size_bytes(payload)
            self.pair_messages[source][dest] += 1
            self.pair_bytes[source][dest] += size_bytes
            size_s = size_bytes * self.conditions.byte_s
        target = self._ranks[dest]
        if target.ended:
            if target.cut_s == inf:
                self.dropped.append((source, dest, payload))
            return
        if source == dest:
            target.inbox.append(Delivery(source, payload))  # for its next wait
            return
        extra_s = size_s
        if self.conditions.held and type(payload).__name__ in self.conditions.held:
            extra_s += self.conditions.held_s * self._rng.random()
        self._push(self._arrival_s(source, dest, extra_s), _DELIVER, dest, source, payload)

    def _arrival_s(self, source: int, dest: int, extra_s: float) -> float:
        conditions = self.conditions
        rng = self._rng
        near = self._nodes[source] == self._nodes[dest]
        delay_s = conditions.near_s if near else conditions.far_s
        delay_s *= 1.0 + conditions.jitter * rng.expovariate(1.0)
        if conditions.tail and rng.random() < conditions.tail:
            delay_s += conditions.tail_s * rng.random()
        if self._burst_left:
            self._burst_left -= 1
            delay_s += conditions.burst_s * rng.random()
        elif conditions.burst and rng.random() < conditions.burst:
            self._burst_left = conditions.burst_messages
            delay_s += conditions.burst_s * rng.random()
        # Unlike the hash of a string, the hash of integers is the same in every process.
        key = (self._salt, source, dest)
        if conditions.lame and hash(key) % 1000 < 1000 * conditions.lame:
            delay_s += conditions.lame_s * rng.random()
        arrival_s = self.now_s + delay_s + extra_s
        pair = (source, dest)
        last_s = self._last_s.get(pair)
        if last_s is not None and last_s > arrival_s:
            arrival_s = last_s
        self._last_s[pair] = arrival_s
        return arrival_s

    def taken(self, rank: int) -> list[Delivery | LostRank]:
        """Return the arrivals of `rank` and clear its inbox."""
        state = self._ranks[rank]
        arrivals, state.inbox = state.inbox, []
        state.woken = False
        return arrivals

    def wake(self, rank: int) -> None:
        """Let `rank` resume, now or when it next waits."""
        state = self._ranks[rank]
        state.woken = True
        if state.waiting:
            self._resume(rank, state, state.free_s(self.now_s))

    # ---- inspection ------------------------------------------------------------------------

    def in_flight(self) -> Iterator[tuple[int, int, Any]]:
        """Yield (source, dest, payload) of every message that was sent but not yet received."""
        for dest, state in enumerate(self._ranks):
            for arrival in state.inbox:
                if isinstance(arrival, Delivery):
                    yield arrival.source, dest, arrival.payload
        for event in self._events:
            if event[2] == _DELIVER:
                yield event[4], event[3], event[5]

    def left(self) -> list[tuple[int, int, object]]:
        """Return the messages that no rank received in a run, in flight or dropped."""
        return [*self.dropped, *self.in_flight()]

    # ---- running -----------------------------------------------------------------------------

    def run(self, programs: Sequence[Program]) -> list[Any]:
        """Run all ranks to their ends; return their results, None for ranks that were cut off.

        A rank is cut off if it is killed, if another rank calls `abort`, or if no event is left
        because this rank, or a rank that it is waiting for, is stalled forever.
        """
        self._begin(programs)
        events = self._events
        while self._alive and self.aborted is None:
            if not events:
                if any(stall.until_s == inf for stall in self.conditions.stalls):
                    break
                raise Defect(f"ranks {self._unfinished()} wait forever")
            time_s, _, kind, rank, other, payload = heappop(events)
            if time_s > self._limit_s:
                raise Defect(f"ranks {self._unfinished()} have not ended after {self._limit_s} s")
            self.now_s = time_s
            state = self._ranks[rank]
            if kind == _DELIVER:
                self._deliver(rank, state, other, payload)
            elif kind == _RESUME:
                self._alarm(rank, state)
            elif kind == _LOST:
                self._arrived(rank, state, LostRank(other, payload))
            else:
                self._kill(rank, state, payload)
        for state in self._ranks:
            if state.program is not None:
                state.program.close()
        return [state.result for state in self._ranks]

    def _begin(self, programs: Sequence[Program]) -> None:
        if len(programs) != len(self._ranks):
            raise ValueError(f"{len(programs)} programs for {len(self._ranks)} ranks")
        self._alive = len(programs)
        for rank, (state, program) in enumerate(zip(self._ranks, programs, strict=True)):
            state.program = program(state.transport)
            state.waiting = True
            self._resume(rank, state, self.conditions.start_s * self._rng.random())
        for kill in self.conditions.kills:
            self._push(kill.at_s, _KILL, kill.rank, 0, kill)

    def _unfinished(self) -> str:
        ranks = [rank for rank, state in enumerate(self._ranks) if not state.ended]
        return ", ".join(map(str, ranks[:8])) + (" ..." if len(ranks) > 8 else "")

    def _push(self, time_s: float, kind: int, rank: int, other: int, payload: object) -> None:
        self._serial += 1
        heappush(self._events, (time_s, self._serial, kind, rank, other, payload))

    def _deliver(self, dest: int, state: _Rank, source: int, payload: Any) -> None:
        pair = (source, dest)
        if self._last_s.get(pair) == self.now_s:
            del self._last_s[pair]  # a later message at this time has a higher serial number
        if self.now_s > self._ranks[source].cut_s:
            return
        if state.ended or state.transport.closed:
            if state.cut_s == inf:
                self.dropped.append((source, dest, payload))
            return
        self._arrived(dest, state, Delivery(source, payload))

    def _arrived(self, rank: int, state: _Rank, arrival: Delivery | LostRank) -> None:
        if state.ended:
            return
        state.inbox.append(arrival)
        if state.waiting and state.begun:
            self._attempt(rank, state)

    def _alarm(self, rank: int, state: _Rank) -> None:
        if self.now_s != state.alarm_s:
            return  # an earlier alarm has been set since
        state.alarm_s = inf
        if not state.waiting:
            return
        if state.due_s <= self.now_s:
            self._attempt(rank, state)
        else:
            self._resume(rank, state, state.due_s)

    def _attempt(self, rank: int, state: _Rank) -> None:
        """Let a waiting rank make a step now, or as soon as it can."""
        free_s = state.free_s(self.now_s) if state.stalls else state.ready_s
        if free_s <= self.now_s:
            self._step(rank, state)
        else:
            state.due_s = inf
            self._resume(rank, state, free_s)

    def _resume(self, rank: int, state: _Rank, due_s: float) -> None:
        """Schedule a step of a waiting rank at `due_s`; each rank has at most one alarm."""
        state.due_s = min(state.due_s, due_s)
        if state.due_s < state.alarm_s:
            state.alarm_s = state.due_s
            self._push(state.due_s, _RESUME, rank, 0, None)

    def _step(self, rank: int, state: _Rank) -> None:
        program = require(state.program)
        state.waiting = state.woken = False
        self.steps += 1
        try:
            if state.begun:
                arrivals, state.inbox = state.inbox, []
                timeout_s = program.send(arrivals)
            else:
                # Earlier arrivals are delivered at its first wait.
                state.begun = True
                timeout_s = next(program)
        except StopIteration as stop:
            state.result = stop.value
            self._end(state)
        except _JobAborted:
            self._end(state)
        else:
            state.waiting = True
            state.ready_s = self.now_s + state.step_s
            state.due_s = inf
            if state.woken or state.inbox:
                timeout_s = 0.0
            if timeout_s is not None:
                self._resume(rank, state, max(state.ready_s, self.now_s + timeout_s))
        if self._observe is not None:
            self._observe(rank)

    def _end(self, state: _Rank) -> None:
        state.ended = True
        state.waiting = False
        self._alive -= 1

    def _kill(self, rank: int, state: _Rank, kill: Kill) -> None:
        if state.ended:
            return
        require(state.program).close()
        self._end(state)
        detect_s = self.conditions.detect_s
        state.cut_s = self.now_s + max(kill.lasts_s, detect_s * self._rng.random())
        for other, survivor in enumerate(self._ranks):
            if survivor.ended:
                continue
            heard_s = self.now_s + detect_s * (1.0 + self._rng.random())
            # The notice must follow every message of the dead rank that is not lost.
            last_s = self._last_s.get((rank, other), 0.0)
            if heard_s <= last_s <= state.cut_s:
                heard_s = last_s
            self._push(heard_s, _LOST, other, rank, kill.reason)
