"""Broadcasts in the simulator: nodes are lost at any step, disks fail, chunks are damaged.

A seed draws a job, its network, and its faults; it is played and judged. Afterwards all nodes are
restarted, as in a rerun, and then all must show the same data and nothing else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf
from random import Random
from typing import Any, NamedTuple
from zlib import crc32

import msgspec

from pcircle.collective import Op
from pcircle.tools.fbcast.conductor import Conductor
from pcircle.tools.fbcast.messages import (
    BroadcastPlan,
    Finish,
    Parts,
    StopRequest,
    StreamChunk,
    Way,
)
from pcircle.tools.fbcast.node import BroadcastNode, Then
from pcircle.transport._sim import Conditions, Kill, Network, Program, SimTransport, Stall, Wait
from pcircle.transport.contract import Delivery
from tests.tools.fbcast.disks import Crashed, Disk, Pieces

PATIENCE_S = 1.0
END_S = 300.0
CALM = Conditions()


def digest(data: bytes) -> bytes:
    """Return a digest that detects damage."""
    return b"%d" % crc32(data)


class Case(NamedTuple):
    """The case of a seed. Of `damages`, a rank sends its n-th chunk damaged."""

    size: int
    conditions: Conditions
    pieces: list[bytes]
    way: Way
    update: bool
    partial: bool
    fails: dict[int, int]  # the n-th write of a rank
    refuses: set[int]
    absent: set[int]
    stuck: set[int]  # disks that never answer, starting with a certain call
    damages: dict[int, int]
    source_fails_at: int | None
    stops: tuple[int, float] | None
    unrecorded: float
    rng: Random

    @property
    def is_calm(self) -> bool:
        """Return whether there are no faults that could be blamed on nodes."""
        wrong = (self.conditions.kills, self.conditions.stalls, self.fails, self.refuses)
        more = (self.absent, self.stuck, self.damages, self.stops, self.unrecorded)
        return not any(wrong) and not any(more) and self.source_fails_at is None


def draw(seed: int) -> Case:
    """Return the case of a seed."""
    rng = Random(seed)
    size = rng.choice((1, 2, 3, 3, 4, 5, 6, 8, 13))
    number = rng.choice((1, 2, 3, 5, 9, 12, 30))
    pieces = [b"%d %d;" % (seed, piece) for piece in range(number)]

    def random_ranks(chance: float) -> set[int]:
        drawn = rng.random() < chance
        return set(rng.sample(range(size), min(size, rng.randint(1, 2)))) if drawn else set()

    return Case(
        size=size,
        conditions=_conditions(rng, size),
        pieces=pieces,
        way=rng.choice(("chain", "exchange")),
        update=rng.random() < 0.2,
        partial=rng.random() < 0.5,
        fails={rank: rng.randint(1, 2 * number) for rank in random_ranks(0.2)},
        refuses=random_ranks(0.05),
        absent=random_ranks(0.08),
        stuck=random_ranks(0.05),
        damages={rank: rng.randint(1, 2 * number) for rank in random_ranks(0.1)},
        source_fails_at=rng.randrange(number) if rng.random() < 0.04 else None,
        stops=(rng.randrange(size), 0.01 * rng.random()) if rng.random() < 0.05 else None,
        unrecorded=rng.choice((0.3, 1.0)) if rng.random() < 0.05 else 0.0,
        rng=rng,
    )


def _conditions(rng: Random, size: int) -> Conditions:
    nasty = rng.random()
    reach_s = rng.choice((0.0005, 0.002, 0.01, 0.05, 1.0))
    kills = [
        Kill(rank, reach_s * rng.random(), lasts_s=rng.choice((0.0, 0.0, 0.2)))
        for rank in rng.sample(range(size), min(size - 1, rng.choice((0, 1, 1, 1, 2, 4))))
    ]
    stalls = [
        Stall(
            rng.randrange(size),
            begin_s := reach_s * rng.random(),
            inf if rng.random() < 0.3 else begin_s + 8 * rng.random(),
        )
        for _ in range(rng.choice((0, 0, 0, 0, 1, 2)))
    ]
    return Conditions(
        tail=0.3 * (nasty > 0.5),
        tail_s=rng.choice((0.001, 0.1)),
        lame=0.3 * (nasty > 0.7),
        lame_s=rng.choice((0.01, 0.1)),
        detect_s=rng.choice((0.0001, 0.01, 0.5)),
        start_s=rng.choice((0.0, 0.01)),
        kills=tuple(kills),
        stalls=tuple(stalls),
    )


class Decisions:
    """The records; the first decision wins."""

    def __init__(self, unreached: Callable[[], bool]) -> None:
        self.made: dict[Op, bool] = {}
        self.unreached = unreached

    def settle(self, op: Op, commit: bool) -> bool | None:
        return None if self.unreached() else self.made.setdefault(op, commit)

    def forget(self, op: Op) -> None:
        self.made.pop(op, None)


class Worker:
    """The thread of a rank: runs one function at a time, each of which takes time."""

    def __init__(self, rng: Random, now_s: Callable[[], float], stuck_after: int | None) -> None:
        self.ready_s = inf
        self._calls: deque[tuple[Callable[[], Any], Then[Any]]] = deque()
        self._rng = rng
        self._now_s = now_s
        self._stuck_after = stuck_after

    def work(self, call: Callable[[], Any], then: Then[Any]) -> None:
        """Queue a function."""
        self._calls.append((call, then))
        if len(self._calls) == 1:
            self._begin()

    def _begin(self) -> None:
        self.ready_s = self._now_s() + self._rng.choice((0.0, 1e-5, 1e-4)) if self._calls else inf
        if self._stuck_after is not None:
            self._stuck_after -= 1
            if self._stuck_after < 0:
                self.ready_s = inf

    def turn(self) -> None:
        """Run the functions that are due."""
        while self.ready_s <= self._now_s():
            call, then = self._calls.popleft()
            try:
                result = call()
            except (Crashed, OSError) as caught:
                result = caught
            self._begin()
            then(result)


class Types(NamedTuple):
    """The classes to play: the real ones, or those with deliberate defects."""

    node: type[BroadcastNode] = BroadcastNode
    conductor: type[Conductor] = Conductor


class Play:
    """A case in progress: its disks, and the result of its reader."""

    def __init__(self, case: Case, types: Types, job: str, disks: list[Disk]) -> None:
        self.case = case
        self.disks = disks
        self.job = job
        self.codes: dict[int, int] = {}
        self.doubtful: set[int] = set()
        self.conductor: Conductor | None = None
        self.shown: set[int] = set()  # after it was judged
        self.unasked: set[int] = set(range(case.size))
        self.source = Pieces(case.pieces, case.way, case.source_fails_at)
        self.records = Decisions(lambda: case.rng.random() < case.unrecorded)
        self._types = types
        self.network = Network([0] * case.size, case.rng, case.conditions, limit_s=END_S)

    def run(self) -> Play:
        """Play it to its end. A Defect if it has none."""
        self.network.run([self._program(rank) for rank in range(self.case.size)])
        return self

    def _sender(self, transport: SimTransport) -> Callable[[int, Any], None]:
        left = self.case.damages.get(transport.rank, 0)

        def send(dest: int, message: Any) -> None:
            nonlocal left
            if isinstance(message, Parts) and left > 0:
                left -= len(message.chunks)
                if left <= 0:
                    chunks = tuple(map(_damaged, message.chunks))
                    message = msgspec.structs.replace(message, chunks=chunks)
            transport.send(dest, message)

        return send

    def _program(self, rank: int) -> Program:
        case = self.case

        def program(transport: SimTransport) -> Wait:
            def now_s() -> float:
                return transport.now_s

            stuck_after = case.rng.randrange(20) if rank in case.stuck else None
            writer, reader = Worker(case.rng, now_s, stuck_after), Worker(case.rng, now_s, None)
            send = self._sender(transport)
            number = int(self.job) << 20
            about = (rank, self.disks[rank], self.records, send, writer.work, digest, number)
            node = self._types.node(*about)
            conductor = None
            if not rank:
                conductor = self.conductor = self._conduct(node, send, reader)
                conductor.begin(now_s())
            stop_s = case.stops[1] if case.stops and case.stops[0] == rank else inf
            while not node.has_ended:
                if node.plan is not None:
                    self.unasked.discard(rank)
                next_s = min(node.next_s(), writer.ready_s, reader.ready_s, stop_s)
                if conductor is not None:
                    next_s = min(next_s, conductor.next_s())
                arrivals = yield None if next_s == inf else max(0.0, next_s - now_s())
                if stop_s <= now_s():
                    stop_s = inf
                    send(0, StopRequest(130))
                for arrival in arrivals:
                    self._arrive(node, conductor, arrival, now_s())
                for member in (node, conductor):
                    if member is not None:
                        member.now_s = now_s()
                writer.turn()
                reader.turn()
                node.tick(now_s())
                if conductor is not None:
                    conductor.tick(now_s())
            self.codes[rank] = node.code if conductor is None else conductor.code
            if node.in_doubt:
                self.doubtful.add(rank)
            return None

        return program

    def _conduct(
        self, node: BroadcastNode, send: Callable[[int, Any], None], reader: Worker
    ) -> Conductor:
        case = self.case
        plan = BroadcastPlan(
            self.job, "copy", b"", (b"name",), (True,), update=case.update, patience_s=PATIENCE_S
        )
        about = (node, plan, range(case.size), case.size, self.source, send, reader.work, digest)
        return self._types.conductor(*about, partial=case.partial)

    def _arrive(
        self, node: BroadcastNode, conductor: Conductor | None, arrival: Any, now_s: float
    ) -> None:
        if not isinstance(arrival, Delivery):
            if conductor is not None:
                conductor.lost(arrival.rank, arrival.reason, now_s)
            node.lost(arrival.rank, now_s)
            return
        message: Any = arrival.payload
        taken = conductor is not None and not isinstance(message, Finish)
        if taken and conductor is not None and conductor.received(arrival.source, message, now_s):
            return
        node.received(arrival.source, message, now_s)

    # ---- judging ---------------------------------------------------------------

    @property
    def dead(self) -> set[int]:
        """Return the ranks that were killed before they had ended, or that hang."""
        conditions = self.case.conditions
        stuck = {stall.rank for stall in conditions.stalls if stall.until_s == inf}
        return ({kill.rank for kill in conditions.kills} | stuck) - self.codes.keys()

    def judge(self) -> None:
        """Check that all promises were kept; AssertionError if not."""
        case = self.case
        alive = set(range(case.size)) - self.dead
        if 0 in self.dead:  # a rank that received no work can't know how long to wait
            alive -= self.unasked
        assert alive <= self.codes.keys(), f"{alive - self.codes.keys()} have not ended"
        shown = self.shown = {rank for rank in range(case.size) if self._shows(rank)}
        for rank in shown:
            found = self.disks[rank].shown
            assert found == (self.job, self.source.data), f"rank {rank} shows {found}"
        for rank in alive - self.doubtful - case.stuck:
            assert not self.disks[rank].temporary, f"rank {rank} has temporary files"
        sure = alive - self.doubtful
        conductor = self.conductor
        if not case.partial and not case.unrecorded:
            assert shown & sure in (set(), sure), f"{shown} of {sure} show it"
        if 0 in self.dead or conductor is None:
            return
        if case.is_calm:
            assert (conductor.code, conductor.decided) == (0, True), vars(conductor)
        if conductor.code == 0:
            assert shown == set(range(case.size)), f"success, and only {shown} show it"
        if conductor.decided:
            good = set(conductor.good)
            if case.update and not conductor.completed:
                needed = int.from_bytes(self.source.needed or b"", "little")
                assert all(37 * rank & ~needed == 0 for rank in good), "not all needs are met"
            assert good & sure <= shown, f"{good & sure - shown} do not show it"
            missing = set(range(case.size)) - shown
            assert missing <= conductor.bad.keys(), f"{missing} are not named: {conductor.bad}"
        elif conductor.decided is False:
            assert not shown, f"{shown} show what was not decided"
            assert conductor.bad or conductor.reason or case.stops, "no reason is given"

    def _shows(self, rank: int) -> bool:
        shown = self.disks[rank].shown
        return shown is not None and shown[0] == self.job


def _damaged(chunk: StreamChunk) -> StreamChunk:
    return msgspec.structs.replace(chunk, data=chunk.data[:-1] + b"!")


def play(seed: int, types: Types | None = None) -> Play:
    """Play and judge the case of a seed, then play and judge it again without faults."""
    return play_case(draw(seed), types)


def simple(way: Way, partial: bool, size: int, pieces: int) -> Case:
    """Return a case without faults; its delays are constant."""
    nothing: set[int] = set()
    data = [b"%d;" % number for number in range(pieces)]
    return Case(
        size=size, conditions=CALM, pieces=data, way=way, update=False, partial=partial, fails={},
        refuses=nothing, absent=nothing, stuck=nothing, damages={}, source_fails_at=None,
        stops=None, unrecorded=0.0, rng=Random(1),
    )  # fmt: skip


def moments(case: Case) -> list[float]:
    """Return the times of all steps of all ranks."""
    disks = [Disk(rank, 0) for rank in range(case.size)]
    played = Play(case, Types(), "1", disks)
    times: set[float] = set()
    # It shares the network, because random numbers for another one would change the delays.
    played.network._observe = lambda _: times.add(played.network.now_s)
    played.run()
    return sorted(times)


def play_case(case: Case, types: Types | None = None) -> Play:
    """Play a case, judge it, and repeat without faults, like `play`."""
    disks = [Disk(rank, 37 * rank) for rank in range(case.size)]
    for rank, number in case.fails.items():
        disks[rank].fails_at = number
    for rank in case.refuses:
        disks[rank].refuses = True
    for rank in case.absent:
        disks[rank].may_refuse_joining = True
    played = Play(case, types or Types(), "1", disks).run()
    played.judge()
    for disk in disks:
        disk.repair()
    nothing: set[int] = set()
    calm = case._replace(
        conditions=CALM, fails={}, refuses=nothing, absent=nothing, stuck=nothing, damages={},
        source_fails_at=None, stops=None, unrecorded=0.0, partial=False, rng=Random(1),
    )  # fmt: skip
    again = Play(calm, types or Types(), "2", disks)
    again.records.made = played.records.made
    again.run()
    assert again.conductor is not None
    assert again.conductor.code == 0, vars(again.conductor)
    assert len({disk.shown for disk in disks}) == 1, "not all show the same after a rerun"
    for disk in disks:
        assert disk.shown is not None
        assert disk.shown[1] == played.source.data
        assert not disk.temporary, "a rerun leaves temporary files"
        assert not disk.intents, "a rerun leaves intents"
    return played
