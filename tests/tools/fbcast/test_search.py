"""The search finds no broken promise in broadcasts, except those broken on purpose.

`python -m tests.tools.fbcast FIRST SEEDS` searches further.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from pcircle.core.errors import Defect
from pcircle.tools.fbcast.conductor import Conductor
from pcircle.tools.fbcast.forwarder import Chain, Exchange
from pcircle.tools.fbcast.messages import Parts, Staged, StreamChunk, StreamStart, Way
from pcircle.tools.fbcast.node import READER, BroadcastNode, Then
from pcircle.transport._sim import Conditions, Kill, Stall
from tests.sim.seeds import ONE_IN
from tests.tools.fbcast.playing import Play, Types, draw, moments, play, play_case, simple

_SEEDS = 2000 // ONE_IN
_BLOCKS = 4


@pytest.mark.parametrize("block", range(_BLOCKS))
def test_no_promise_is_broken(block: int) -> None:
    for seed in range(block * _SEEDS // _BLOCKS, (block + 1) * _SEEDS // _BLOCKS):
        play(seed)


def _kill_everywhere(
    way: Way, partial: bool, types: Types | None = None, one_in: int = 1
) -> Iterator[Play]:
    """Yield plays in which each rank dies at each step, with or without its last messages."""
    size, pieces = 4, 6
    times_s = moments(simple(way, partial, size, pieces))
    assert len(times_s) > 50
    for time_s in times_s[::one_in]:
        for rank in range(size):
            for lasts_s in (0.0, 0.01):
                kills = (Kill(rank, time_s + 1e-9, lasts_s=lasts_s),)
                conditions = Conditions(kills=kills, detect_s=1e-6)
                case = simple(way, partial, size, pieces)._replace(conditions=conditions)
                yield play_case(case, types)


@pytest.mark.parametrize("way", ["chain", "exchange"])
@pytest.mark.parametrize("partial", [False, True])
def test_each_node_may_die_at_each_step(way: Way, partial: bool) -> None:
    """These steps include each chunk, each vote, and both sides of the decision."""
    ends = set()
    for played in _kill_everywhere(way, partial, one_in=ONE_IN):
        if 0 in played.dead:
            ends.add("shown" if played.shown - {0} else "not shown")
        elif played.conductor is not None:
            ends.add(str(played.conductor.decided))
    if ONE_IN <= 2:
        expected = {"True", "shown", "not shown"}
        assert ends == expected | (set() if partial else {"False"})


def test_a_bad_node_that_forwards_data_and_then_leaves() -> None:
    """Its disk hangs, and then the reader does, for so long that all other nodes give it up."""
    case = simple("chain", True, 4, 30)
    for time_s in moments(case)[:: 6 * ONE_IN]:
        kills = (Kill(3, time_s + 1e-9),)
        stalls = (Stall(0, time_s + 0.0007, time_s + 8.0),)
        conditions = Conditions(stalls=stalls, kills=kills, detect_s=0.0001)
        for seed in range(4):
            play_case(case._replace(conditions=conditions, rng=Random(seed), stuck={1, 2}))


def test_cases_reach_the_intended_states() -> None:
    """Broadcasts end in every way, for every reason."""
    ends: set[bool | None] = set()
    reasons: set[str] = set()
    for seed in range(400):
        played = play(seed)
        conductor = played.conductor
        if conductor is None or 0 in played.dead:
            continue
        ends.add(conductor.decided)
        reasons.update(conductor.bad.values())
        reasons.add(conductor.reason)
    assert ends == {True, False, None}
    assert {
        "the process was lost: killed by the simulation",
        "no such directory",
        "No space left on device",
        "no response within 1 s",
        "no response from the file system within 1 s",
        "it changed while it was read",
        "not all of it is here",
    } <= reasons
    assert any("checksum mismatch" in reason for reason in reasons)


class Hasty(BroadcastNode):
    """The data is shown before all nodes have it."""

    def _staged_as(self, attempt: int) -> Then[bytes]:
        then = super()._staged_as(attempt)

        def shown(said: bytes | BaseException) -> None:
            disk: Any = self._disk
            if not isinstance(said, BaseException):
                disk.shown = disk._job, disk.temporary[disk._job]
            then(said)

        return shown


class Credulous(BroadcastNode):
    """Received data is not checked."""

    def _write(self, chunk: StreamChunk) -> None:
        self._disk.write(chunk.data)


class Mixing(BroadcastNode):
    """Chunks of any attempt are accepted."""

    def _parts(self, source: int, parts: Parts) -> None:
        if self.forwarder is not None:
            self.forwarder.received(source, parts)


class Deaf(BroadcastNode):
    """Data that precedes the reader's message is lost."""

    def _parts(self, source: int, parts: Parts) -> None:
        if self.forwarder is not None:
            super()._parts(source, parts)


class Unsettled(BroadcastNode):
    """The intent is undone after the loss of the reader, whatever the record contains."""

    def _finish(self, code: int) -> None:
        for op in list(self._disk.in_doubt()):
            self._disk.undo(op)
        super()._finish(code)


class Blocking(BroadcastNode):
    """A node that can't write blocks the nodes behind it."""

    def _fail(self, why: str, attempt: int | None = None) -> None:
        if not self._problem and not self._leaving:
            self._problem = why
            self._send(READER, Staged(self._attempt(), why))


class Littering(BroadcastNode):
    """Invisible data is left behind."""

    def _finish(self, code: int) -> None:
        super()._finish(code)
        self.has_ended = True


class Silent(Conductor):
    """The nodes lost at the end are not named."""

    def _hear_answer(self, answer: Any) -> None:
        super()._hear_answer(answer)
        self.bad.clear()


class Eager(Conductor):
    """The slowest node is not waited for."""

    def _look(self) -> None:
        if self._staged and self.phase == 2:
            self._show()
        else:
            super()._look()


class Stubborn(Conductor):
    """Data that a lost node should have forwarded is not sent again."""

    def _stream(self) -> None:
        if not self._attempt:
            super()._stream()


class Patient(Conductor):
    """The wait never ends."""

    def _waited_for(self) -> list[int]:
        return []


@pytest.mark.parametrize(
    ("mutant", "first"),
    [
        (Hasty, 0),
        (Credulous, 0),
        (Mixing, 0),
        (Deaf, 0),
        (Unsettled, None),  # by kills at each step
        (Blocking, 500),
        (Littering, 0),
    ],
)
def test_search_finds_broken_nodes(mutant: type[BroadcastNode], first: int | None) -> None:
    assert _found(Types(node=mutant), first)


@pytest.mark.parametrize("mutant", [Silent, Eager, Stubborn, Patient])
def test_search_finds_broken_conductors(mutant: type[Conductor]) -> None:
    assert _found(Types(conductor=mutant))


def test_search_finds_a_chain_without_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Chain, "_tell", lambda _: None)
    assert _found(Types())


def test_search_finds_an_exchange_that_skips_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def _part(self: Exchange, place: int, chunks: Any, more: Any = ()) -> None:
        if len(chunks) != 2:
            self._send(self._route[place], Parts(self.attempt, tuple(chunks), more))

    monkeypatch.setattr(Exchange, "_part", _part)
    assert _found(Types())


def _found(types: Types, first: int | None = 0) -> bool:
    """Return whether some seeds, kills at each step, or more seeds find a defect."""
    first_seeds = range(0) if first is None else range(first, first + 300)
    plays = (
        (play(seed, types) for seed in first_seeds),
        _kill_everywhere("chain", False, types),
        _kill_everywhere("chain", True, types),
        (play(seed, types) for seed in range(300, 3000)),
    )
    for number, played in enumerate(plays):
        try:
            for _ in played:
                pass
        except (AssertionError, Defect, ValueError, KeyError) as error:
            print(f"found by {number}: {error}")
            return True
    return False


@pytest.mark.parametrize("nodes", [1, 2, 3, 4, 5, 7, 8, 13, 32])
@pytest.mark.parametrize("way", ["chain", "exchange"])
def test_amount_of_data_that_each_node_sends(way: Way, nodes: int) -> None:
    """In a chain each link carries the data once; in an exchange no node sends it more than twice.

    Every node receives all data, in order; the reader sends at most twice the amount of the model.
    """
    number = 4 * nodes
    written: list[list[int]] = [[] for _ in range(nodes)]
    kind = Chain if way == "chain" else Exchange
    start = StreamStart(1, tuple(range(nodes)), way)
    queue: list[tuple[int, int, Any]] = []
    sent = [0] * nodes

    def sender(rank: int) -> Any:
        def send(dest: int, message: Any) -> None:
            queue.append((rank, dest, message))
            if isinstance(message, Parts):
                sent[rank] += sum(1 for chunk in message.chunks if chunk.data)

        return send

    spreads: list[Any] = []
    for rank in range(nodes):

        def deliver(chunk: StreamChunk, rank: int = rank) -> None:
            written[rank].append(chunk.number)
            queue.append((rank, rank, None))

        spreads.append(kind(start, rank, sender(rank), deliver))
    offered = 0
    while queue or offered < number:
        while offered < number and spreads[0].has_room():
            spreads[0].offer(StreamChunk(offered, b"x", b"d", offered == number - 1))
            offered += 1
        source, dest, message = queue.pop(0)
        if message is None:
            spreads[dest].chunk_written()
        elif isinstance(message, Parts):
            spreads[dest].received(source, message)
        else:
            spreads[dest].acknowledged(source, message.below)
    assert written == [list(range(number))] * nodes
    assert max(sent) <= (number if way == "chain" else 2 * number)
    if way == "chain":
        assert sent == [number] * (nodes - 1) + [0]


def test_the_same_seed_is_the_same_case() -> None:
    assert draw(7)[:-1] == draw(7)[:-1]
