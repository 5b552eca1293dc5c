"""The invariants of the protocol, as functions that raise AssertionError.

`check_rank` examines one engine. `check_job` examines all engines of a job and the messages between
them; only a simulator can see all of these.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pcircle.circle import messages
from pcircle.circle.engine import DRAINING, STOPPED, WORKING, Engine
from pcircle.circle.joins import ROOT
from pcircle.circle.messages import I, R


def check_rank(engine: Engine[I, R]) -> None:
    """Check the invariants of one rank."""
    engine.queue.check()
    engine.joins.check()
    settings = engine.settings
    assert engine.sharing.thief.asked != engine.rank, "a rank asked itself"
    if engine.phase == WORKING:
        for number, join in engine.joins.items():
            if number != ROOT.number:
                assert join.processed or number in engine.running, f"join {number} is an orphan"
                assert not join.complete, f"join {number} is complete, but open"
        assert not engine.pinned or engine.running, "pinned parcels wait although nothing runs"
        idle = not engine.running and not engine.queue.fetching
        assert not (idle and len(engine.queue)), "parcels wait although nothing runs"
    if engine.phase >= DRAINING:
        assert not len(engine.queue), "a rank drains with work in its queue"
        assert not engine.pinned, "a rank drains with work for itself"
    assert settings.workers > 0


def check_job(
    engines: Sequence[Engine[I, R]],
    in_flight: Iterable[tuple[int, int, messages.Message]],
) -> None:
    """Check the invariants across ranks, such as balanced counters and answered requests.

    `in_flight` yields (source, destination, message) for each message sent but not yet received.
    """
    flying = list(in_flight)
    loose = sum(not isinstance(message, messages.TREE) for _, _, message in flying)
    sent = sum(engine.shutdown.drain.counted.sent for engine in engines)
    received = sum(engine.shutdown.drain.counted.received for engine in engines)
    assert sent - received == loose, f"{sent} sent, {received} received, {loose} in flight"
    owed: dict[int, int] = {}
    for source, dest, message in flying:
        if isinstance(message, messages.StealRequest):
            thief = source if message.thief is None else message.thief
            owed[thief] = owed.get(thief, 0) + 1
        elif isinstance(message, messages.StealRefusal) or (
            isinstance(message, messages.WorkTransfer) and message.is_answer
        ):
            owed[dest] = owed.get(dest, 0) + 1
    for engine in engines:
        expected = 1 if engine.sharing.thief.asked is not None else 0
        assert owed.get(engine.rank, 0) == expected, f"rank {engine.rank}'s request is lost"
    if not any(engine.reasons for engine in engines):
        _check_bundles(engines, flying)
        _check_lifelines(engines, flying)
    if engines[0].phase >= DRAINING and not engines[0].reasons:
        assert all(engine.passive or engine.reasons for engine in engines), "ended early"
        basic = [m for _, _, m in flying if isinstance(m, messages.BASIC)]
        assert not basic or any(engine.reasons for engine in engines), "ended with work in flight"
    if all(engine.phase == STOPPED for engine in engines):
        assert not loose, "messages are left in the network"


def _check_bundles(
    engines: Sequence[Engine[I, R]],
    flying: Sequence[tuple[int, int, messages.Message]],
) -> None:
    """Check that as many slots were given as are in flight, taken, or on their way back."""
    given = sum(engine.sharing.bundles.given for engine in engines)
    taken = sum(engine.sharing.bundles.taken for engine in engines)
    for _, _, message in flying:
        if isinstance(message, messages.WorkTransfer) and message.bundle:
            taken += len(message.groups)
        elif isinstance(message, messages.BundleResults):
            taken += len(message.results)
    assert given == taken, f"{given} slots are given, {taken} are taken"


def _check_lifelines(
    engines: Sequence[Engine[I, R]],
    flying: Sequence[tuple[int, int, messages.Message]],
) -> None:
    """Check that each waiting rank is registered, about to be registered, or being sent work."""
    coming = {
        (source, dest)
        for source, dest, message in flying
        if isinstance(message, messages.LifelineRequest)
    }
    coming |= {
        (dest, source)
        for source, dest, message in flying
        if isinstance(message, messages.WorkTransfer)
    }
    for engine in engines:
        for neighbour in engine.sharing.lifelines.waits_at:
            is_waiter = engine.rank in engines[neighbour].sharing.lifelines.waiters
            is_registered = is_waiter or (engine.rank, neighbour) in coming
            assert is_registered, (
                f"rank {engine.rank} waits at rank {neighbour}, which does not know"
            )
