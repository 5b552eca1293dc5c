"""The search finds no broken promise, except those that are broken on purpose.

`python -m tests.collective FIRST SEEDS` searches further.
"""

from __future__ import annotations

import pytest

from pcircle.collective import Member, Op
from pcircle.collective.coordinator import ResponseCollector, Shares
from pcircle.collective.operation import Answer, DecisionReport, Heard, Message, Prepare, Votes
from tests.collective.playing import play
from tests.sim.seeds import ONE_IN

_SEEDS = 2000 // ONE_IN
_BLOCKS = 4


@pytest.mark.parametrize("block", range(_BLOCKS))
def test_no_promise_is_broken(block: int) -> None:
    for seed in range(block * _SEEDS // _BLOCKS, (block + 1) * _SEEDS // _BLOCKS):
        play(seed)


def test_cases_reach_the_intended_states() -> None:
    """Operations end in every way: done, nothing, in doubt; refused, lost, late."""
    seen = set()
    for seed in range(600):
        played = play(seed)
        for member in filter(None, played.members):
            for answer in member.answers:
                seen.add({True: "done", False: "nothing", None: "in doubt"}[answer.decided])
                seen.update(reply.refusal.partition(",")[0] for reply in answer.said)
    assert {
        "done",
        "nothing",
        "in doubt",
        "exists",
        "there is none",
        "refused",
        "No space left on device",
        "another operation on it is under way",
        "the rank is lost",
        "no answer in time",
    } <= seen


class Forgetful(Member):
    """The store does not remember undone operations."""

    def _prepare(self, source: int, message: Prepare) -> None:
        self._undone.clear()
        super()._prepare(source, message)


class Hasty(Member):
    """The operations of a lost coordinator are undone, whatever it had decided."""

    def _settle(self, op: Op) -> None:
        del self._prepared[op]
        self.finish(op, False)


class Trusting(Member):
    """A silent coordinator is assumed to have done nothing."""

    def _resolve(self, op: Op) -> None:
        records, self._records = self._records, _Nothing()
        try:
            super()._resolve(op)
        finally:
            self._records = records


class _Nothing:
    def settle(self, op: Op, commit: bool) -> bool | None:
        return False

    def forget(self, op: Op) -> None:
        pass


class Sequential(Member):
    """An operation is accepted while another one with its key is still open."""

    def received(self, source: int, message: object, now_s: float) -> None:
        self._busy.clear()
        super().received(source, message, now_s)  # type: ignore[arg-type]


class Late(Member):
    """An operation is prepared for a lost coordinator."""

    def _prepare(self, source: int, message: Prepare) -> None:
        gone, self._gone = self._gone, set()
        super()._prepare(source, message)
        self._gone = gone


class Once(Member):
    """An answer counts for one of the waves of a rank, not for all."""

    def _done(self, source: int, message: DecisionReport) -> None:
        for key, (_, _, _, gathering) in list(self._finished.items()):
            if key[0] == message.op and source in gathering.waiting:
                gathering.hear(source, message.said)
                self._tell_done(key)
                return
        self._coordinator.done(source, message.op, message.said)


class Twice(Member):
    """Each response is received twice."""

    def received(self, source: int, message: Message, now_s: float) -> None:
        super().received(source, message, now_s)
        if isinstance(message, Answer | DecisionReport | Heard | Votes):
            super().received(source, message, now_s)


def test_a_repeated_response_changes_nothing() -> None:
    for seed in range(_SEEDS):
        play(seed, Twice)


def _give_up(
    self: ResponseCollector, rank: int, shares: Shares
) -> list[tuple[int, tuple[int, ...]]]:
    """Notify no rank behind a lost one."""
    self.waiting.pop(rank, None)
    return []


@pytest.mark.parametrize(
    ("mutant", "first"),
    [(Forgetful, 4000), (Hasty, 0), (Trusting, 0), (Sequential, 0), (Late, 0), (Once, 0)],
)
def test_search_finds(mutant: type[Member], first: int) -> None:
    assert _found(mutant, first)


def test_search_finds_missing_detours_around_lost_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ResponseCollector, "bypass", _give_up)
    assert _found(Member)


def _found(member_type: type[Member], first: int = 0) -> bool:
    for seed in range(first, first + 20_000):
        try:
            play(seed, member_type)
        except AssertionError:
            print(f"found by seed {seed}")
            return True
    return False
