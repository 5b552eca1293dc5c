"""Play a case and report what is wrong with it.

A run is watched after every step (the engine's invariants) and judged at its end: every item
exactly once, results, sums and notices exact, no message and no segment left behind, all ranks
stopped with one code, and in time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import ExitStack
from math import inf
from random import Random
from typing import Any

import msgspec

from pcircle.circle import Engine
from pcircle.circle.invariants import check_job, check_rank
from pcircle.core.errors import PcircleError, worst
from pcircle.testing.watch import Violation
from pcircle.transport._sim import Network
from pcircle.walk.walker import Walker
from tests.sim.cases import Case, draw
from tests.sim.disks import Disks
from tests.sim.driver import WIRE, Outcome, Player, Record
from tests.sim.grove import Clock, Grove, simulated
from tests.sim.walking import WIRE as WALK_WIRE
from tests.sim.walking import WalkerType, WalkPlayer
from tests.sim.work import Result, expected

EngineType = type[Engine[Any, Any]]


class Run:
    """One played case."""

    def __init__(
        self,
        case: Case,
        engine_type: EngineType = Engine,
        *,
        watch: bool = True,
        trace: Callable[[str], None] | None = None,
        walker_type: WalkerType = Walker,
    ) -> None:
        self.case = case
        rng = Random(f"disks of {case.family} {case.seed}")
        self.record = Record(case.forest.size, Disks(case.nodes, rng))
        self.grove = None if case.walk is None else Grove(case.forest, case.walk)
        self._clock = Clock()
        self.players = [self._player(rank, engine_type, walker_type) for rank in range(case.ranks)]
        for player in self.players:
            player.trace = trace
        self.engines = [player.engine for player in self.players]
        wire: Any = WIRE if self.grove is None else WALK_WIRE
        self.network = Network(
            case.nodes,
            Random(f"network of {case.family} {case.seed}"),
            case.conditions,
            decoder=msgspec.msgpack.Decoder(wire) if case.codec else None,
            observe=self._watch if watch else None,
            limit_s=case.limit_s,
        )
        self.outcomes: list[Outcome | None] = []
        # With few ranks the job is checked after every step, with many only after some.
        self._stride = 1 if case.ranks <= 4 else case.ranks // 2
        # Messages vanish with a dead rank, and an unagreed end leaves some.
        self._whole = not case.conditions.kills and not self.stuck

    @property
    def stuck(self) -> set[int]:
        """Return the ranks that hang until the end."""
        return {stall.rank for stall in self.case.conditions.stalls if stall.until_s == inf}

    def play(self) -> Run:
        """Run the case to its end."""
        with ExitStack() as stack:
            if self.grove is not None:
                stack.enter_context(simulated(self.grove, self._clock))
            for player in self.players:
                stack.callback(player.close)
            self.outcomes = self.network.run([player.play for player in self.players])
        return self

    def _player(self, rank: int, engine_type: EngineType, walker_type: WalkerType) -> Player:
        if self.grove is None:
            return Player(rank, self.case, self.record, engine_type)
        sides = walker_type, self.grove, self._clock
        return WalkPlayer(rank, self.case, self.record, engine_type, *sides)

    @property
    def numbers(self) -> Collection[int]:
        """Return the numbers that must be processed."""
        return range(self.case.forest.size) if self.grove is None else self.grove.numbers

    @property
    def total(self) -> Result | None:
        """Return the expected result of the job."""
        if not self.case.forest.size:
            return None
        return expected(0, self.case.forest.size) if self.grove is None else self.grove.whole[0]

    def _watch(self, rank: int) -> None:
        check_rank(self.engines[rank])
        if self._whole and self.network.steps % self._stride == 0:
            check_job(self.engines, self.network.in_flight())

    # ---- the verdict -----------------------------------------------------------------------------

    def judge(self) -> None:
        """Raise AssertionError if anything is wrong."""
        record = self.record
        assert max(record.processed, default=0) <= 1, "an item was processed twice"
        self._judge_shows()
        self._judge_notices()
        if self._whole:
            self._judge_agreement()
            if record.abort_codes:
                self._judge_abort()
            else:
                self._judge_success()
        elif self.stuck:
            self._judge_stuck()
        else:
            self._judge_kills()

    def _judge_shows(self) -> None:
        before = (0, 0)
        most = expected(0, self.case.forest.size)
        for _, sums in self.record.shows:
            counts = (sums.counts[0], sums.counts[1])
            assert all(a <= b for a, b in zip(before, counts, strict=True)), "progress fell"
            assert counts[0] <= most[0], f"progress shows {counts[0]} of {most[0]} items"
            assert counts[1] <= most[1], "progress shows more than there is"
            assert sums.weight == counts[0]
            assert 1 <= sums.ranks <= self.case.ranks
            assert 0 <= sums.stale < sums.ranks
            before = counts

    def _judge_notices(self) -> None:
        """Check that rank 0 receives a prefix of the notices of each rank, in order."""
        for rank in range(self.case.ranks):
            heard = [value for source, value in self.record.notices if source == rank]
            noted = [value for source, value in self.record.noted if source == rank]
            assert heard == noted[: len(heard)], f"the notices of rank {rank} came as {heard}"

    def _judge_agreement(self) -> None:
        outcomes = [outcome for outcome in self.outcomes if outcome is not None]
        assert len(outcomes) == self.case.ranks, "not all ranks stopped"
        assert all(outcome.agreed for outcome in outcomes), "a rank stopped on its own"
        codes = {outcome.code for outcome in outcomes}
        assert codes == {worst(self.record.abort_codes)}, f"the ranks stopped with {codes}"
        left = self.network.left()
        assert not left, f"{len(left)} messages are left, the first is {left[0]}"
        account = self.record.account
        assert account is not None
        assert not account.silent, f"ranks {account.silent} are called silent, but none was"
        reports = sum(int(report) for report in account.reports)
        assert len(account.reports) == self.case.ranks
        assert reports == sum(self.record.processed), f"the accounts have {reports} items"

    def _judge_success(self) -> None:
        record, case = self.record, self.case
        size = len(self.numbers)
        assert sum(record.processed) == size, f"{sum(record.processed)} of {size} items were run"
        assert record.account is not None
        total = record.result if case.settings.structured else record.account.value
        assert total == self.total, f"the result is {total}"
        every = case.notice_every
        notices = [number for number in sorted(self.numbers) if every and not number % every]
        items = sorted(value for _, value in record.notices if value >= 0)
        assert items == notices, "notices lost or doubled"
        assert len(record.notices) == len(record.noted), "notices of epochs are lost"
        assert record.account.open_joins == 0
        assert set(record.begun.values()) <= {1}, "a join ended twice, or never"
        assert not any(player.store for player in self.players), "segments are left"
        if self.grove is not None:
            self._judge_walk(self.grove)

    def _judge_walk(self, grove: Grove) -> None:
        record = self.record
        assert record.failed == grove.whole[1], f"{record.failed} directories failed"
        if self.case.settings.epoch_period_s is not None:
            again = {number for number in grove.numbers if grove.is_verified(number)}
            assert record.verified == again, "not all was verified"
        weight = sum(
            player.tally.weight for player in self.players if isinstance(player, WalkPlayer)
        )
        assert abs(weight - bool(grove.roots)) < 1e-6, f"the weight of all is {weight}"

    def _judge_abort(self) -> None:
        record = self.record
        assert record.account is not None
        assert record.account.reasons
        cut_short = set(record.cut_short)
        for item, times in record.begun.items():
            assert times == 1 or item in cut_short, f"the join of {item} ended {times} times"
        assert not any(player.store for player in self.players), "segments are left"
        if self.case.settings.epoch_period_s is not None and not cut_short:
            disks = record.disks
            assert disks.latest <= disks.committed, "a job was stopped, and its work not committed"
        assert record.aborted_s is not None
        took_s = max(outcome.at_s for outcome in self.outcomes if outcome) - record.aborted_s
        assert took_s <= self.case.settings.final_deadline_s, f"an abort took {took_s} s"

    def _judge_stuck(self) -> None:
        """Check a job in which a rank hangs for ever while another rank aborts."""
        record, settings = self.record, self.case.settings
        silent = record.account.silent if record.account else ()
        assert set(silent) <= self.stuck, f"ranks {silent} are called silent, {self.stuck} are"
        if self.network.aborted is None:  # the job had ended before
            left = [rank for rank, outcome in enumerate(self.outcomes) if outcome is None]
            tree = {rank: {rank, *self.engines[rank].tree.ancestors} for rank in left}
            assert all(tree[rank] & self.stuck for rank in left), f"ranks {left} did not stop"
            codes = {outcome.code for outcome in self.outcomes if outcome}
            assert codes <= {worst(record.abort_codes)}, f"the ranks stopped with {codes}"
            return
        assert record.aborted_s is not None
        took_s = self.network.now_s - record.aborted_s
        # Rank 0 decides within the deadline, or twice that where the stuck rank keeps messages from
        # it.
        assert took_s <= 2 * settings.final_deadline_s + 1, f"an abort took {took_s} s"
        if self.network.aborted[0] == 0 and 0 not in self.stuck:
            assert silent, "rank 0 gave up, but named nobody"
            assert took_s <= settings.final_deadline_s + 1, f"an abort took {took_s} s"
        assert self.network.aborted[1] != 0, "a job with a silent rank ended well"

    def _judge_kills(self) -> None:
        outcomes = [outcome for outcome in self.outcomes if outcome is not None]
        dead = {kill.rank for kill in self.case.conditions.kills}
        if self.network.aborted is not None:
            # Accounts reported the loss to rank 0 before the transport did.
            assert self.record.account is not None
            assert 0 < len(self.record.account.silent) <= len(dead)
            assert set(self.record.account.silent) <= dead
            return
        assert len(outcomes) >= self.case.ranks - len(dead), "a survivor did not stop"
        if not outcomes:
            return
        codes = {outcome.code for outcome in outcomes}
        if codes == {0}:  # the job was over in all that matters
            account = self.record.account
            assert account is not None
            assert not account.silent
            assert sum(self.record.processed) == len(self.numbers)
        killed_s = min(kill.at_s for kill in self.case.conditions.kills)
        took_s = max(outcome.at_s for outcome in outcomes) - killed_s
        if 0 not in codes:
            assert took_s <= 2 * self.case.settings.final_deadline_s + 1, f"it took {took_s} s"


def play(
    case: Case,
    engine_type: EngineType = Engine,
    *,
    watch: bool = True,
    walker_type: WalkerType = Walker,
) -> Run:
    """Play and judge a case; raise Violation with the command that replays it."""
    try:
        run = Run(case, engine_type, watch=watch, walker_type=walker_type).play()
        run.judge()
    except (AssertionError, PcircleError, LookupError, ValueError) as error:
        kind = type(error).__name__
        raise Violation(f"{kind}: {error}\nreplay it with: {case.replay}") from error
    return run


def search(family: str, seeds: range, engine_type: EngineType = Engine) -> None:
    """Play the cases of a family and a range of seeds; raise the first Violation."""
    for seed in seeds:
        play(draw(family, seed), engine_type)
