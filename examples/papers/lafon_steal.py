"""The distributed algorithms of LaFon et al. 2012: DRQS, DEQS, PA-DRQS and H-DRQS.

All four are variants of one loop (section 4 of the paper). A rank answers waiting requests. If it
has no work, it requests some from another rank, with one request at a time. Otherwise it visits an
element, which queues the elements below it. They differ in

- the share that a victim gives: uniformly random (DRQS), half (DEQS);
- the choice of the victim: random or, with PA-DRQS, from a list in turn; the first rank of each
  node asks other nodes first, the other ranks ask only their own node;
- the threads of a process (H-DRQS): in each round, each thread takes one element, and all wait for
  the longest of them.

A token on a ring detects the end. As in the paper, a rank that sends work to a lower rank turns
black. Safra's counts are kept in addition, because messages take time here.

Where the paper leaves the choice open, `Scheme` contains ours. The newest element is visited next,
and the oldest are given away (libcircle gives away the newest). The children of a directory are
queued in random order (`order`: "mixed"), as a hashed directory lists them; "files" visits the
files first, and "directories" the subdirectories. With `probe_directories` a rank checks for
messages only after each directory, not between files. With `in_place` the rank that reads a
directory visits its files at once, and only directories are queued and given away.

Files are equal, so a queue holds runs of them: a number >= 0 is a directory, and a negative number
is a run of that many files. A rank processes a run without an event for each file; a message cuts
the run at the next boundary between elements. So events are directories and messages, and ten
million files take a minute.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush
from math import ceil
from random import Random
from typing import TypeAlias

import msgspec

from examples.papers.lafon_cost import Answer, Costs, Result, Traffic, nodes_of
from examples.papers.lafon_tree import Tree

__all__ = ["DEQS", "DRQS", "H_DRQS", "PA_DRQS", "Scheme", "walk"]


class Scheme(msgspec.Struct, frozen=True):
    """The differences between the four algorithms, and the choices that the paper leaves open."""

    per_node: int = 2  # ranks
    threads: int = 1
    half: bool = False
    aware: bool = False
    give_newest: bool = False
    order: str = "mixed"
    probe_directories: bool = False
    in_place: bool = False


DRQS = Scheme()
DEQS = Scheme(half=True)
PA_DRQS = Scheme(aware=True)
H_DRQS = Scheme(per_node=1, threads=2)

_REQUEST, _REFUSAL, _WORK, _TOKEN = range(4)
_IDLE, _RUN, _ROUND = range(3)

# kind, source, the elements of work, their number or the token's count, the token's colour
_Message: TypeAlias = "tuple[int, int, deque[int] | None, int, bool]"
# time, tie breaker, rank, version of the rank's activity, message
_Event: TypeAlias = "tuple[float, int, int, int, _Message | None]"


def walk(tree: Tree, ranks: int, scheme: Scheme, seed: int, costs: Costs | None = None) -> Result:
    """Visit all elements of the tree with *ranks* ranks (for H-DRQS: processes)."""
    return _Walk(tree, ranks, scheme, seed, costs or Costs()).result()


class _Rank:
    """One process."""

    __slots__ = (
        "asking",
        "balance",
        "barrier_s",
        "black",
        "cut",
        "elements",
        "free_s",
        "idle_s",
        "idle_since_s",
        "inbox",
        "lstat_s",
        "queue",
        "readdir_s",
        "requested_s",
        "rng",
        "round",
        "serve_s",
        "size",
        "start_s",
        "state",
        "step_s",
        "steps",
        "token",
        "turn",
        "version",
        "victims",
    )

    def __init__(self, rng: Random, victims: list[int]) -> None:
        self.rng = rng
        self.victims = victims
        self.turn = 0
        self.queue: deque[int] = deque()
        self.size = 0  # elements in the queue
        self.state = _IDLE
        self.version = 0  # of its activity: events scheduled before a cut are stale
        self.start_s = self.step_s = 0.0  # start of a run, and duration of a step of all threads
        self.steps = 0
        self.cut = False
        self.round: list[int] = []  # of a round: the directories
        self.inbox: list[_Message] = []
        self.free_s = 0.0  # of an idle rank: when it has handled all earlier messages
        self.asking = False
        self.requested_s = 0.0
        self.token: tuple[int, bool] | None = None
        self.black = False
        self.balance = 0  # work sent less work received
        self.elements = 0
        self.lstat_s = self.readdir_s = self.serve_s = self.barrier_s = 0.0
        self.idle_s = self.idle_since_s = 0.0


class _Walk:
    def __init__(self, tree: Tree, ranks: int, scheme: Scheme, seed: int, costs: Costs) -> None:
        self._tree, self._scheme, self._costs = tree, scheme, costs
        nodes = nodes_of(ranks, scheme.per_node)
        self._net = Traffic(costs, nodes)
        self._lstat_s = costs.lstat_s + costs.neighbour_s * (scheme.per_node - 1)
        self._ranks = [
            _Rank(Random(f"lafon walk {seed} {rank}"), _victims(rank, nodes, scheme.aware))
            for rank in range(ranks)
        ]
        self._events: list[_Event] = []
        self._serial = 0
        self._token_out = False
        self._ended_s = -1.0
        self._requests = self._requests_before_last = 0
        self._first_requests = -1
        self._answers: list[Answer] = []

    def result(self) -> Result:
        """Play the walk to its end."""
        first = self._ranks[0]
        first.queue.append(0)
        first.size = 1
        for rank in range(len(self._ranks)):
            self._next(rank, 0.0)
        events = self._events
        while self._ended_s < 0:
            at_s, _, rank, version, message = heappop(events)
            if message is not None:
                self._arrived(rank, at_s, message)
            elif version == self._ranks[rank].version:
                self._boundary(rank, at_s)
        word = self._costs.word_bytes
        others = range(1, len(self._ranks))
        ends = [self._net.sent(0, rank, word, self._ended_s) for rank in others]
        time_s = max(ends, default=self._ended_s)
        for state in self._ranks:
            state.idle_s += time_s - state.idle_since_s
        return self._summed(time_s)

    def _summed(self, time_s: float) -> Result:
        return Result(
            time_s=time_s,
            messages=self._net.messages,
            pair_bytes=self._net.pair_bytes,
            elements=[state.elements for state in self._ranks],
            lstat_s=[state.lstat_s for state in self._ranks],
            readdir_s=[state.readdir_s for state in self._ranks],
            serve_s=[state.serve_s for state in self._ranks],
            idle_s=[state.idle_s for state in self._ranks],
            barrier_s=[state.barrier_s for state in self._ranks],
            requests=self._requests,
            first_requests=self._first_requests,
            last_requests=self._requests - self._requests_before_last,
            answers=self._answers,
        )

    # ---- events ----------------------------------------------------------------------------------

    def _push(self, at_s: float, rank: int, version: int, message: _Message | None) -> None:
        self._serial += 1
        heappush(self._events, (at_s, self._serial, rank, version, message))

    def _arrived(self, rank: int, now_s: float, message: _Message) -> None:
        state = self._ranks[rank]
        if state.state == _IDLE:
            free_s = state.free_s
            self._serve(rank, state, free_s if free_s > now_s else now_s, [message])
            return
        state.inbox.append(message)
        if state.state == _RUN and not state.cut and not self._scheme.probe_directories:
            # The message is answered between elements: at the next boundary of a step.
            steps = max(0, ceil((now_s - state.start_s) / state.step_s))
            state.cut = True
            if steps < state.steps:
                state.steps = steps
                state.version += 1
                self._push(state.start_s + steps * state.step_s, rank, state.version, None)

    def _boundary(self, rank: int, now_s: float) -> None:
        """Complete a rank's step: count it, queue the elements found, answer waiting messages."""
        state = self._ranks[rank]
        if self._first_requests < 0:
            self._first_requests = self._requests
        self._requests_before_last = self._requests
        probes = True
        if state.state == _RUN:
            files = state.steps * self._scheme.threads
            queue = state.queue
            left = -queue.pop() - files
            if left:
                queue.append(-left)
            state.size -= files
            state.elements += files
            state.lstat_s += files * self._lstat_s
            state.serve_s += state.steps * self._costs.poll_s
            probes = not (self._scheme.probe_directories and state.size)
        else:
            self._read(state)
        inbox = state.inbox
        if inbox and probes:
            state.inbox = []
            self._serve(rank, state, now_s, inbox)
        else:
            self._next(rank, now_s)

    def _read(self, state: _Rank) -> None:
        """Queue the children of the directories of a round."""
        queue = state.queue
        order = self._scheme.order
        for directory in state.round:
            files = 0 if self._scheme.in_place else self._tree.files[directory]
            below = self._tree.subdirectories[directory]
            state.size += files + len(below)
            if not files:
                queue.extend(below)
            elif not below:
                queue.append(-files)
            elif order == "mixed":
                _mix(queue, files, below, state.rng)
            elif order == "files":
                queue.extend(below)
                queue.append(-files)
            else:
                queue.append(-files)
                queue.extend(below)

    def _next(self, rank: int, now_s: float) -> None:
        """Visit the top of the queue, or become idle if it is empty."""
        state = self._ranks[rank]
        if not state.size:
            if state.state != _IDLE:
                state.state = _IDLE
                state.idle_since_s = now_s
            state.free_s = now_s
            self._idle(rank, state, now_s)
            return
        if state.state == _IDLE:
            state.idle_s += now_s - state.idle_since_s
        top = -state.queue[-1]
        threads = self._scheme.threads
        if top >= threads:
            state.state = _RUN
            state.start_s = now_s
            state.step_s = self._lstat_s + self._costs.poll_s
            state.steps = top // threads
            state.cut = False
            ends_s = now_s + state.steps * state.step_s
        else:
            state.state = _ROUND
            ends_s = now_s + self._round_s(state)
        state.version += 1
        self._push(ends_s, rank, state.version, None)

    def _round_s(self, state: _Rank) -> float:
        """Take one element for each thread; return the duration of the longest."""
        costs = self._costs
        queue = state.queue
        state.round = []
        taken = min(self._scheme.threads, state.size)
        longest_s = work_s = read_total_s = 0.0
        for _ in range(taken):
            top = queue.pop()
            element_s = self._lstat_s
            state.elements += 1
            if top < 0:
                if top < -1:
                    queue.append(top + 1)
            else:
                state.round.append(top)
                entries = self._tree.files[top] + len(self._tree.subdirectories[top])
                read_s = costs.readdir_s + entries * costs.entry_s
                element_s += read_s
                if self._scheme.in_place:
                    state.elements += self._tree.files[top]
                    element_s += self._tree.files[top] * self._lstat_s
                read_total_s += read_s
            work_s += element_s
            longest_s = max(longest_s, element_s)
        state.size -= taken
        state.readdir_s += read_total_s
        state.lstat_s += work_s - read_total_s
        state.serve_s += costs.poll_s
        state.barrier_s += longest_s * self._scheme.threads - work_s
        return longest_s + costs.poll_s

    # ---- messages --------------------------------------------------------------------------------

    def _serve(self, rank: int, state: _Rank, now_s: float, messages: list[_Message]) -> None:
        serve_s = self._costs.serve_s
        for kind, source, elements, number, black in messages:
            now_s += serve_s
            if state.state != _IDLE:
                state.serve_s += serve_s
            if kind == _REQUEST:
                self._answer(rank, state, source, now_s)
            elif kind == _REFUSAL:
                state.asking = False
                state.free_s = now_s
                now_s += self._costs.pause_s if not state.size else 0.0
            elif elements is not None:
                now_s += serve_s  # the second of two messages
                state.asking = False
                state.queue = elements
                state.size = number
                state.balance -= 1
                state.black = True
            else:
                state.token = (number, black)
        self._next(rank, now_s)

    def _answer(self, rank: int, state: _Rank, thief: int, now_s: float) -> None:
        costs = self._costs
        if state.size < 2:
            at_s = self._net.sent(rank, thief, costs.word_bytes, now_s)
            self._push(at_s, thief, 0, (_REFUSAL, rank, None, 0, False))
            return
        if self._scheme.half:
            share = state.size // 2
        else:
            share = 1 + int(state.rng.random() * (state.size - 1))
        elements = _taken(state.queue, share, self._scheme.give_newest)
        state.size -= share
        state.balance += 1
        state.black = state.black or thief < rank
        size_bytes = costs.word_bytes * (2 + share) + costs.path_bytes * share
        at_s = self._net.sent(rank, thief, size_bytes, now_s, messages=2)
        self._answers.append(Answer(size_bytes, self._ranks[thief].requested_s, now_s, at_s))
        self._push(at_s, thief, 0, (_WORK, rank, elements, share, False))

    def _idle(self, rank: int, state: _Rank, now_s: float) -> None:
        """Send a request unless an answer is awaited; pass the token on."""
        if not state.asking and state.victims:
            state.asking = True
            state.requested_s = now_s
            self._requests += 1
            if self._scheme.aware:
                victim = state.victims[state.turn]
                state.turn = (state.turn + 1) % len(state.victims)
            else:
                victim = state.victims[int(state.rng.random() * len(state.victims))]
            at_s = self._net.sent(rank, victim, self._costs.word_bytes, now_s)
            self._push(at_s, victim, 0, (_REQUEST, rank, None, 0, False))
        if state.token is not None:
            (count, black), state.token = state.token, None
            if rank:
                self._hand_on(rank, state, count + state.balance, black or state.black, now_s)
                return
            self._token_out = False
            if not black and not state.black and count + state.balance == 0:
                self._ended_s = now_s
                return
        if rank == 0 and not self._token_out:
            self._token_out = True
            if len(self._ranks) == 1:
                self._ended_s = now_s
            else:
                self._hand_on(0, state, 0, False, now_s)

    def _hand_on(self, rank: int, state: _Rank, count: int, black: bool, now_s: float) -> None:
        state.black = False
        after = (rank + 1) % len(self._ranks)
        at_s = self._net.sent(rank, after, self._costs.word_bytes, now_s)
        self._push(at_s, after, 0, (_TOKEN, rank, None, count, black))


def _victims(rank: int, nodes: list[int], aware: bool) -> list[int]:
    """Return the victims of a rank, in order if `aware`; the list begins after the rank."""
    others = [*range(rank + 1, len(nodes)), *range(rank)]
    if not aware:
        return others
    own = sorted(other for other in others if nodes[other] == nodes[rank])
    if own and own[0] < rank:
        return own
    return [other for other in others if nodes[other] != nodes[rank]] + own


def _mix(queue: deque[int], files: int, below: Sequence[int], rng: Random) -> None:
    """Queue files and directories in random order; the files between two directories form a run."""
    places = sorted(int(rng.random() * (files + 1)) for _ in below)
    before = 0
    for place, directory in zip(places, below, strict=True):
        if place > before:
            queue.append(before - place)
            before = place
        queue.append(directory)
    if files > before:
        queue.append(before - files)


def _taken(queue: deque[int], share: int, newest: bool) -> deque[int]:
    """Take a number of elements from one end of a queue, in order; split a run if necessary."""
    taken: deque[int] = deque()
    pop, push = (queue.pop, queue.append) if newest else (queue.popleft, queue.appendleft)
    keep = taken.appendleft if newest else taken.append
    while share:
        top = pop()
        if top >= 0:
            share -= 1
            keep(top)
        elif -top <= share:
            share += top
            keep(top)
        else:
            push(top + share)
            keep(-share)
            share = 0
    return taken
