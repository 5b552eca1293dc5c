"""Engines with one premise taken away, each of which the search must find.

Every premise in the argument of `pcircle.circle.termination` has a mutant here that drops it, and
so have the joins and the drain. A search that does not find them would not find a defect either.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from pcircle.circle import Engine
from pcircle.circle.engine import GATHERING
from pcircle.circle.messages import (
    DRAIN,
    EPOCH,
    QUIESCE,
    BundleResults,
    LifelineRequest,
    Message,
    MessageCounts,
    MovedSlot,
    Parcel,
    StealRequest,
    TreeBroadcast,
    TreeReduction,
    WorkTransfer,
)
from pcircle.circle.notices import NoticeSender
from pcircle.circle.rounds import EpochRounds
from pcircle.circle.termination import DrainWaves, FourCounter, Outgoing, TokenRing
from pcircle.circle.topology import TreePosition


class IdleFlags(FourCounter):
    """Two waves that all ranks answered, regardless of the counters."""

    def _closed(self, total: MessageCounts, now_s: float) -> None:
        self.terminated = self._previous is not None
        self._previous = total
        self._backoff.reset()


class StaleReports(FourCounter):
    """A wave is answered with the rank's last idle report, even one from before the wave."""

    _stale: MessageCounts | None = None

    def advance(self, passive: bool, now_s: float) -> Outgoing:
        if self._open and self._stale is not None and not self._waiting:
            counted, self.counted = self.counted, self._stale
            out = super().advance(True, now_s)
            self.counted = counted
        else:
            out = super().advance(passive, now_s)
        if passive:
            self._stale = self.counted
        return out


class OverlappingWaves(FourCounter):
    """The second wave opens with the first: no moment lies between their reports."""

    def __init__(self, tree: TreePosition, kind: int) -> None:
        super().__init__(tree, kind)
        # For each open wave: the children that have not answered, and the sums of those that have.
        self._both: dict[int, tuple[set[int], list[MessageCounts]]] = {}

    def handle(self, source: int, message: Message) -> Outgoing:
        if isinstance(message, TreeBroadcast):
            return self._opened(message.number)
        if isinstance(message, TreeReduction) and message.counted is not None:
            waiting, counts = self._both[message.number]
            waiting.discard(source)
            counts.append(message.counted)
        return []

    def _opened(self, number: int) -> Outgoing:
        self._number = number
        self._both[number] = (set(self._tree.children), [])
        return [(child, TreeBroadcast(QUIESCE, number)) for child in self._tree.children]

    def advance(self, passive: bool, now_s: float) -> Outgoing:
        out: Outgoing = []
        parent = self._tree.parent
        if parent is None and not self._both and passive and self._backoff.is_due(now_s):
            self._previous = None
            out += self._opened(self._number + 1) + self._opened(self._number + 1)
        for number, (waiting, counts) in sorted(self._both.items()):
            if waiting or not passive or self.terminated:
                break
            del self._both[number]
            total = sum(counts, self.counted)
            if parent is None:
                self._closed(total, now_s)
            else:
                out.append((parent, TreeReduction(QUIESCE, number, counted=total)))
        return out

    def wakeup_s(self) -> float | None:
        return None if self._both or self.terminated else self._backoff.due_s


class NoCounts(TokenRing):
    """The token goes round without counting."""

    def sent(self) -> None:
        pass

    def received(self) -> None:
        self._black = True


class NoBlackening(TokenRing):
    """A rank that was woken behind the token does not report it, so nothing is ever black."""

    def __init__(self, rank: int, size: int) -> None:
        super().__init__(rank, size)
        self._black = False

    def received(self) -> None:
        self._count -= 1


class WithoutCounters(Engine[Any, Any]):
    """Termination by idle flags only."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.detector = IdleFlags(self.tree, QUIESCE)


class WithStaleReports(Engine[Any, Any]):
    """Termination where a report may be older than its wave."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.detector = StaleReports(self.tree, QUIESCE)


class WithOverlappingWaves(Engine[Any, Any]):
    """Termination where the two waves overlap."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.detector = OverlappingWaves(self.tree, QUIESCE)


class WithForgottenItems(Engine[Any, Any]):
    """Termination where a rank with an empty queue counts as idle, even while items run."""

    @property
    def passive(self) -> bool:
        return self._seeded and not len(self.queue)


class RingWithoutCounts(Engine[Any, Any]):
    """The token ring of 1983, designed for messages that take no time."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.detector = NoCounts(self.rank, self.size)


class RingWithoutBlackening(Engine[Any, Any]):
    """The token ring with counts alone."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.detector = NoBlackening(self.rank, self.size)


class WithForgottenChild(Engine[Any, Any]):
    """A join forgets a child when a thief takes it."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.sharing.bundles.give = self._give  # type: ignore[method-assign]

    def _give(
        self, thief: int, parcels: Iterable[Parcel[Any]], **named: Any
    ) -> WorkTransfer[Any, Any]:
        parcels = list(parcels)
        for parcel in parcels:
            if parcel.parent is not None and parcel.parent.number:
                self.joins.peek(parcel.parent.number).pending -= 1
        bundles = self.sharing.bundles
        return type(bundles).give(bundles, thief, parcels, **named)


class WithUncountedWaits(Engine[Any, Any]):
    """The drain at the end does not wait for ranks that announce that they wait."""

    def _send(self, dest: int, message: Message) -> None:
        super()._send(dest, message)
        if isinstance(message, LifelineRequest):
            self.shutdown.drain.counted = self.shutdown.drain.counted + MessageCounts(-1, 0)

    def receive(self, source: int, message: Message, now_s: float) -> None:
        if isinstance(message, LifelineRequest):
            self.shutdown.drain.counted = self.shutdown.drain.counted + MessageCounts(0, -1)
        super().receive(source, message, now_s)


class WithDeafAccounts(Engine[Any, Any]):
    """Aborts are ignored once the accounts are gathered, although they could still count."""

    def abort(self, code: int, reason: str, now_s: float) -> None:
        if self.phase != GATHERING:
            super().abort(code, reason, now_s)


class EagerRounds(EpochRounds):
    """Commits when rank 0 itself is through."""

    def advance(self, idle: bool, heard: int, now_s: float) -> Outgoing:
        if self._tree.parent is None:
            self._waiting.clear()
        return super().advance(idle, heard, now_s)


class BlindRounds(EpochRounds):
    """Answers before the work is on disk."""

    def advance(self, idle: bool, heard: int, now_s: float) -> Outgoing:
        self._on_disk = 0
        return super().advance(idle, heard, now_s)


class HastyRounds(EpochRounds):
    """Answers before rank 0 has received the notices of the work on disk."""

    def advance(self, idle: bool, heard: int, now_s: float) -> Outgoing:
        if self._on_disk is not None:
            self._on_disk = 0
        return super().advance(idle, heard, now_s)


class LateRounds(EpochRounds):
    """Notices only at the next event that rank 0 has received a notice."""

    _heard = 0

    def advance(self, idle: bool, heard: int, now_s: float) -> Outgoing:
        before, self._heard = self._heard, heard
        return super().advance(idle, before, now_s)


class OverlappingRounds(EpochRounds):
    """Opens a round while the previous one is open, and accepts any answer for it."""

    def handle(self, source: int, message: TreeBroadcast | TreeReduction[Any]) -> Outgoing:
        if isinstance(message, TreeReduction) and message.kind == EPOCH:
            message = TreeReduction(EPOCH, self.sealed)
        return super().handle(source, message)

    def advance(self, idle: bool, heard: int, now_s: float) -> Outgoing:
        due = self._due_s is not None and now_s >= self._due_s
        if due and self._tree.parent is None and self.sealed and self._open:
            assert self._period_s is not None
            self._due_s = now_s + self._period_s
            return self._seal(self.sealed + 1)
        return super().advance(idle, heard, now_s)


class _Epochs(Engine[Any, Any]):
    """An engine with other rounds."""

    rounds: type[EpochRounds]

    def __init__(self, *arguments: Any, **choices: Any) -> None:
        super().__init__(*arguments, **choices)
        self.epochs = self.rounds(self.tree, self.settings.epoch_period_s)


class WithEagerCommits(_Epochs):
    """Root commits without waiting for all."""

    rounds = EagerRounds


class WithBlindAnswers(_Epochs):
    """Ranks answer before they have synced."""

    rounds = BlindRounds


class WithHastyAnswers(_Epochs):
    """Ranks answer before rank 0 has received their notices."""

    rounds = HastyRounds


class WithLateAnswers(_Epochs):
    """Ranks answer one event after rank 0 has received their notices."""

    rounds = LateRounds


class WithOverlappingEpochs(_Epochs):
    """Rounds overlap, and stale answers count."""

    rounds = OverlappingRounds


class WithHastyDrain(Engine[Any, Any]):
    """The drain at the end does not wait for notices that have not been sent yet."""

    def __init__(self, *arguments: Any, **choices: Any) -> None:
        super().__init__(*arguments, **choices)
        self.notices = HastyFlow(self.outbox, self.rank, self.size)


class WithHastyAccounts(Engine[Any, Any]):
    """Accounts are given before rank 0 has received all notices."""

    def __init__(self, *arguments: Any, **choices: Any) -> None:
        super().__init__(*arguments, **choices)
        self.notices = FlowHastyAtLast(self)


class FlowHastyAtLast(NoticeSender):
    """Claims that all notices were delivered as soon as its engine's accounts are gathered."""

    def __init__(self, engine: Engine[Any, Any]) -> None:
        super().__init__(engine.outbox, engine.rank, engine.size)
        self._engine = engine

    @property
    def settled(self) -> bool:
        return self._engine.phase == GATHERING or super().settled


class WithOneSidedDrain(Engine[Any, Any]):
    """The drain treats the first wave as the end, regardless of the counters."""

    def __init__(self, *arguments: Any, **choices: Any) -> None:
        super().__init__(*arguments, **choices)
        self.shutdown.drain = OneSidedDrain(self.tree, DRAIN)


class OneSidedDrain(DrainWaves):
    """All answers together are treated as sufficient."""

    def _closed(self, total: MessageCounts, now_s: float) -> None:
        self.terminated = True


class WithBusyDrain(Engine[Any, Any]):
    """Ranks give their accounts and continue to request work."""

    def _advance(self, now_s: float) -> None:
        super()._advance(now_s)
        if self.phase == GATHERING and not self._aborted and self.size > 1:
            self._send_all(self.sharing.seek(now_s, self.lost))


class WithUndrainedEnd(Engine[Any, Any]):
    """The job ends with the accounts, even if messages are left."""

    def __init__(self, *arguments: Any, **choices: Any) -> None:
        super().__init__(*arguments, **choices)
        self.shutdown.is_drained = lambda *_: True  # type: ignore[method-assign]


class HastyFlow(NoticeSender):
    """Claims that all notices were delivered, and delays the remaining ones for more."""

    @property
    def settled(self) -> bool:
        return True

    def packs(self, now_s: float, *, hurry: bool) -> Iterator[tuple[Any, ...]]:
        return super().packs(now_s, hurry=False)


class WithoutAnswers(Engine[Any, Any]):
    """Packs of notices are sent whether or not rank 0 has processed the previous one."""

    def __init__(self, *arguments: Any, **choices: Any) -> None:
        super().__init__(*arguments, **choices)
        self.notices = EagerFlow(self.outbox, self.rank, self.size)


class EagerFlow(NoticeSender):
    """Treats every pack as answered."""

    def packs(self, now_s: float, *, hurry: bool) -> Iterator[tuple[Any, ...]]:
        self.answered()
        return super().packs(now_s, hurry=hurry)


class WithForgottenLines(Engine[Any, Any]):
    """A waiting rank is forgotten when another rank sends a request."""

    def receive(self, source: int, message: Message, now_s: float) -> None:
        if isinstance(message, StealRequest):
            for waiter in self.sharing.lifelines.waiters:
                self.sharing.lifelines._waiters.pop(waiter)
        super().receive(source, message, now_s)


class WithHastyProxies(Engine[Any, Any]):
    """A proxy is complete when all but one of its results have arrived."""

    def _complete_if_done(self, number: int) -> None:
        join = self.joins.peek(number)
        if join.parcel is None and number and join.pending == 1 and join.merged is not None:
            join.pending = 0
        super()._complete_if_done(number)


class WithDoubledReturns(Engine[Any, Any]):
    """The result of a part of a bundle is sent again with the remaining parts."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._returned: dict[tuple[int, int], tuple[tuple[int, Any], ...]] = {}

    def _send(self, dest: int, message: Message) -> None:
        if isinstance(message, BundleResults):
            before = self._returned.get((dest, message.bundle), ())
            message = BundleResults(message.bundle, before + message.results)
            self._returned[dest, message.bundle] = message.results
        super()._send(dest, message)


class _Moving(Engine[Any, Any]):
    """Slots move by a method of the subclass."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.sharing.bundles._move = self._move  # type: ignore[method-assign]

    def _move(self, proxy: int, place: int) -> MovedSlot[Any]:
        bundles = self.sharing.bundles
        return type(bundles)._move(bundles, proxy, place)


class WithLostValues(_Moving):
    """A slot moves without its results."""

    def _move(self, proxy: int, place: int) -> MovedSlot[Any]:
        return msgspec.structs.replace(super()._move(proxy, place), came=())


class WithDoubledValues(_Moving):
    """The results of a slot move along with it, and are returned as well."""

    def _move(self, proxy: int, place: int) -> MovedSlot[Any]:
        bundles = self.sharing.bundles
        taken, slot = bundles._slots[proxy]
        moved = super()._move(proxy, place)
        if moved.came:
            taken.done.append((slot, moved.came[0]))
            bundles._unsent[id(taken)] = taken
        return moved


class WithHastyMoves(Engine[Any, Any]):
    """A slot moves although other ranks still have some of its items."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.sharing.bundles._is_all = self._is_all  # type: ignore[method-assign]

    def _is_all(self, join: int, items: int, thief: int) -> bool:
        found = self.sharing.bundles._slots.get(join)
        return found is not None and found[0].victim != thief


class WithUnansweredBundles(Engine[Any, Any]):
    """A complete slot waits for the other slots of its bundle for ever."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.sharing.bundles._combine_s = 1e9


class WithIdleOwers(Engine[Any, Any]):
    """A rank that still owes results reports itself as passive."""

    @property
    def passive(self) -> bool:
        return self._idle and not self.epochs.awaited
