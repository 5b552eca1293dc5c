"""Collective operations in the simulator: ranks are lost, stuck and slow, and everything is judged.

A seed draws a job: some names, each with its owner and the ranks that store it; requests to create
and remove them, in both shapes; a network; refusals; kills and their times; times at which records
can't be reached. Afterwards the dead ranks are restarted, as in a rerun, and then all ranks that
store a name must agree about it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from random import Random
from typing import Any, NamedTuple

from pcircle.collective import Answer, Member, Op, Refused, Request
from pcircle.transport._sim import Conditions, Kill, Network, Program, SimTransport, Stall, Wait
from pcircle.transport.contract import Delivery

PATIENCE_S = 1.0
END_S = 60.0


class Case(NamedTuple):
    """The case of a seed. `requests` are (rank, when, request, collective)."""

    size: int
    conditions: Conditions
    requests: list[tuple[int, float, Request, bool]]
    refusing: dict[tuple[int, int], str]  # the n-th that a rank must prepare
    unrecorded: float  # the chance that a record can't be reached
    rng: Random


def draw(seed: int) -> Case:
    """Return the case of a seed."""
    rng = Random(seed)
    size = rng.choice((1, 2, 3, 5, 8, 13, 20))
    keys: dict[bytes, tuple[int, tuple[int, ...]]] = {}
    for number in range(rng.randint(1, 3)):
        holders = rng.sample(range(size), rng.randint(1, size))
        keys[b"name %d" % number] = rng.choice(holders), tuple(holders)
    requests = []
    span_s = rng.choice((0.0, 0.001, 0.1, 3.0))
    for _ in range(rng.randint(1, 6)):
        key, (owner, members) = rng.choice(sorted(keys.items()))
        what = rng.choice((b"create ", b"create ", b"remove ")) + key
        request = Request(key, owner, members, what, waits=rng.random() < 0.5)
        requests.append((rng.randrange(size), span_s * rng.random(), request, rng.random() < 0.6))
    refusing = {}
    if rng.random() < 0.3:
        for _ in range(rng.randint(1, 3)):
            refusing[rng.randrange(size), rng.randint(1, 4)] = rng.choice(("full", "refused"))
    unrecorded = rng.choice((0.3, 1.0)) if rng.random() < 0.1 else 0.0
    return Case(size, _conditions(rng, size), requests, refusing, unrecorded, rng)


def _conditions(rng: Random, size: int) -> Conditions:
    nasty = rng.random()
    reach_s = rng.choice((0.0005, 0.01, 1.0, 4.0))
    kills = [
        Kill(rank, reach_s * rng.random(), lasts_s=rng.choice((0.0, 0.0, 0.2, 5.0)))
        for rank in rng.sample(range(size), min(size - 1, rng.choice((0, 0, 1, 1, 2, 4))))
    ]
    stalls = [
        Stall(rng.randrange(size), begin_s := reach_s * rng.random(), begin_s + 8 * rng.random())
        for _ in range(rng.choice((0, 0, 0, 1, 2)))
    ]
    return Conditions(
        tail=0.3 * (nasty > 0.3),
        tail_s=rng.choice((0.001, 0.1, 3.0)),
        lame=0.3 * (nasty > 0.6),
        lame_s=rng.choice((0.01, 1.0)),
        detect_s=rng.choice((0.0001, 0.01, 1.0)),
        start_s=rng.choice((0.0, 0.01)),
        kills=tuple(kills),
        stalls=tuple(stalls),
    )


class Disk:
    """One rank's store, which outlives it."""

    def __init__(self, rank: int, refusing: dict[tuple[int, int], str], owned: set[bytes]) -> None:
        self.rank = rank
        self.prepared: dict[Op, bytes] = {}
        self.names: dict[bytes, Op] = {}  # and by which operation they were created
        self.shown: set[Op] = set()
        self.undone: set[Op] = set()
        self.made = 0  # total number of prepared operations
        self._refusing = refusing
        self._owned = owned
        self._asked = 0

    def prepare(self, op: Op, coordinator: int, what: bytes) -> bytes:
        """Store an intent. The owner of a name checks whether it exists."""
        self._asked += 1
        why = self._refusing.get((self.rank, self._asked))
        if why == "full":
            raise OSError(28, "No space left on device")
        if why:
            raise Refused(why)
        verb, _, key = what.partition(b" ")
        if key in self._owned:
            if any(line.endswith(b" " + key) for line in self.prepared.values()):
                raise Refused("busy")
            if (verb == b"create") == (key in self.names):
                raise Refused("exists" if verb == b"create" else "there is none")
        self.prepared[op] = what
        self.made += 1
        return b"%d" % self.rank

    def look(self, what: bytes) -> bytes:
        """Return the operation that has created a name."""
        return b"%d-%d" % self.names[what]

    def commit(self, op: Op) -> None:
        """Make an operation visible."""
        what = self.prepared.pop(op, None)
        if what is None:
            assert op in self.shown, f"{op} was never prepared on {self.rank}"
            return
        assert op not in self.undone
        self.shown.add(op)
        verb, _, key = what.partition(b" ")
        if verb == b"create":
            self.names[key] = op
        else:
            self.names.pop(key, None)

    def undo(self, op: Op) -> None:
        """Drop an operation."""
        assert op not in self.shown, f"{op} was shown on {self.rank} and is now undone"
        self.prepared.pop(op, None)
        self.undone.add(op)

    def in_doubt(self) -> Iterable[Op]:
        """Return the operations that were neither committed nor undone."""
        return list(self.prepared)


class Decisions:
    """The records, which take effect at once and are read by all."""

    def __init__(self, unreached: Callable[[], bool]) -> None:
        self.made: dict[Op, bool] = {}
        self._unreached = unreached

    def settle(self, op: Op, commit: bool) -> bool | None:
        """Record a decision; the first one wins."""
        return None if self._unreached() else self.made.setdefault(op, commit)

    def make_reachable(self) -> None:
        """Make the records reachable from now on."""
        self._unreached = bool

    def forget(self, op: Op) -> None:
        """Remove a decision that all have applied."""
        self.made.pop(op, None)


class Play:
    """A case in progress, and its results."""

    def __init__(self, case: Case, member_type: type[Member] = Member) -> None:
        self.case = case
        self.records = Decisions(lambda: case.rng.random() < case.unrecorded)
        owned: dict[int, set[bytes]] = {}
        for _, _, request, _ in case.requests:
            owned.setdefault(request.owner, set()).add(request.key)
        self.disks = [
            Disk(rank, case.refusing, owned.get(rank, set())) for rank in range(case.size)
        ]
        self.members: list[Member | None] = [None] * case.size
        self.asked: dict[Op, Request] = {}
        self._member_type = member_type
        self.network = Network([0] * case.size, case.rng, case.conditions, limit_s=END_S + 10)

    def run(self) -> Play:
        """Play it to its end."""
        self.network.run([self._program(rank) for rank in range(self.case.size)])
        return self

    def _program(self, rank: int) -> Program:
        due = sorted(
            (when_s, number)
            for number, (who, when_s, *_) in enumerate(self.case.requests)
            if who == rank
        )

        def program(transport: SimTransport) -> Wait:
            member = self._member_type(
                rank, self.disks[rank], self.records, transport.send, patience_s=PATIENCE_S
            )
            self.members[rank] = member
            while transport.now_s < END_S:
                while due and due[0][0] <= transport.now_s:
                    _, _, request, collective = self.case.requests[due.pop(0)[1]]
                    op = member.request(request, transport.now_s, collective=collective)
                    self.asked[op] = request
                next_s = min(member.next_s(), due[0][0] if due else inf, END_S)
                arrivals: list[Any] = yield max(0.0, next_s - transport.now_s)
                for arrival in arrivals:
                    if isinstance(arrival, Delivery):
                        message: Any = arrival.payload
                        member.received(arrival.source, message, transport.now_s)
                    else:
                        member.lost(arrival.rank, transport.now_s)
                member.tick(transport.now_s)
            return None

        return program

    # ---- judging ---------------------------------------------------------------

    def judge(self) -> None:
        """Check that all promises were kept; AssertionError if not."""
        dead = {kill.rank for kill in self.case.conditions.kills if kill.at_s < END_S}
        alive = [rank for rank in range(self.case.size) if rank not in dead]
        answers: dict[Op, Answer] = {}
        for rank in alive:
            member = self.members[rank]
            assert member is not None
            if not self.case.unrecorded:  # otherwise something may be in doubt
                assert member.is_idle, f"rank {rank} is not idle: {vars(member)}"
                assert not self.disks[rank].prepared, f"{rank}: {self.disks[rank].prepared}"
            for answer in member.answers:
                assert answer.op not in answers, f"two answers to {answer.op}"
                answers[answer.op] = answer
        for op, request in self.asked.items():
            assert op[0] in dead or op in answers, f"no answer to {op}"
            if not self.case.unrecorded:
                self._judge_one(op, request, answers.get(op), alive)
        self.records.make_reachable()
        for rank in range(self.case.size):  # started again
            Member(rank, self.disks[rank], self.records, lambda *_: None).recover()
            assert not self.disks[rank].prepared
        for op, request in self.asked.items():
            self._judge_one(op, request, answers.get(op), range(self.case.size))
        self._judge_names()

    def _judge_one(
        self, op: Op, request: Request, answer: Answer | None, ranks: Iterable[int]
    ) -> None:
        whole = [rank for rank in request.members if rank in ranks]
        shown = [rank for rank in whole if op in self.disks[rank].shown]
        assert not shown or shown == whole, f"{op} is shown by {shown} of {whole}"
        for rank in range(self.case.size):
            assert op not in self.disks[rank].shown or rank in request.members
        if answer is not None:
            if answer.decided is None:
                assert self.case.unrecorded
                return
            if whole:
                assert answer.decided == bool(shown), f"{op}: {answer}, shown by {shown}"
            if not answer.decided:
                assert any(reply.refusal for reply in answer.said), answer

    def _judge_names(self) -> None:
        """Check that all ranks that store a name agree on the operation that created it, if any."""
        for request in self.asked.values():
            found = {self.disks[rank].names.get(request.key) for rank in request.members}
            assert len(found) == 1, f"{request.key!r} was created by {found}"


def play(seed: int, member_type: type[Member] = Member) -> Play:
    """Play the case of a seed and judge it."""
    played = Play(draw(seed), member_type).run()
    played.judge()
    return played
