"""Simulates a job of a task on a random machine that is drawn from a seed.

A machine consists of engine settings, the placement of ranks, network conditions, the duration of
items and a number of threads. `pcircle.testing.check` and the engine's own tests draw their
machines here. The order of the draws defines the meaning of a seed and must not change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from itertools import product
from random import Random
from typing import Any, Generic, TypeVar

import msgspec

from pcircle.circle import EngineSettings
from pcircle.core.errors import Defect, worst
from pcircle.runtime.task import I, Task
from pcircle.testing.fibers import CurrentFiber, RankFibers, virtual_time
from pcircle.testing.rank import RecordingObserver, SharedState, SimRank
from pcircle.testing.watch import RuleViolationError, Violation, Watch, short
from pcircle.transport._sim import Conditions, Kill, Network, SimTransport, Stall, Wait

R = TypeVar("R")

MAX_ITEMS = 100_000
_LIMIT_S = 3600.0
_PATIENCE_S = 40.0  # per level of the tree, enough for the network's longest delays
_DETECT_S = 0.01


class Case(msgspec.Struct, frozen=True):
    """The input of a simulation: the same case of the same task produces the same run.

    During the run `lost` ranks die at random moments, and if `interrupt` is set, all ranks receive
    SIGINT.

        >>> from pcircle import testing
        >>> testing.Case(17, ranks=7, lost=1)
        Case(seed=17, ranks=7, lost=1, interrupt=False)
        >>> print(testing.Case(17, ranks=7, lost=1))
        seed 17, 7 ranks, 1 lost
    """

    seed: int
    ranks: int = 4
    lost: int = 0
    interrupt: bool = False

    def __str__(self) -> str:
        parts = [f"seed {self.seed}", f"{self.ranks} rank{'s' * (self.ranks != 1)}"]
        if self.lost:
            parts.append(f"{self.lost} lost")
        if self.interrupt:
            parts.append("interrupted")
        return ", ".join(parts)


class Run(msgspec.Struct, Generic[R], frozen=True):
    """The outcome of a case.

    `code` is the exit code, `result` the job's result or None. `reasons` explains why the job
    stopped early. `items` is the number of items that each rank started, `notices` contains the
    notices that rank 0 received, and `seconds` is the duration in virtual time. `lost` lists the
    ranks that died before they had ended, and `stopped_s` is the time of the first death or of the
    interrupt. `error` is the first exception that a method of the task raised.

        >>> from pcircle import testing
        >>> from examples.word_lengths import Lengths
        >>> run = testing.play(lambda: Lengths(["a", "bb", "cc"]), 17, ranks=2)
        >>> run.code, run.result, sum(run.items)
        (0, {1: 1, 2: 2}, 3)
    """

    case: Case
    code: int
    result: R | None
    reasons: tuple[str, ...]
    items: tuple[int, ...]
    notices: tuple[Any, ...]
    seconds: float
    lost: tuple[int, ...] = ()
    stopped_s: float | None = None
    error: BaseException | None = None


class RandomMachine(msgspec.Struct, frozen=True):
    """The machine that is drawn for a case."""

    nodes: tuple[int, ...]
    settings: EngineSettings
    conditions: Conditions
    item_s: float
    threads: int


def machine(case: Case) -> RandomMachine:
    """Draw the machine for a case; the network of one seed in eight has hardly any delay."""
    rng, ranks = Random(f"task {case.seed} {case.ranks}"), case.ranks
    nodes = draw_nodes(rng, ranks)
    settings = draw_settings(rng, rng.randrange(1000), ranks)
    is_calm = rng.random() < 0.125
    conditions = Conditions() if is_calm else draw_nasty(rng, ranks)
    return RandomMachine(
        nodes=nodes,
        settings=msgspec.structs.replace(settings, final_deadline_s=_PATIENCE_S),
        conditions=msgspec.structs.replace(conditions, detect_s=_DETECT_S),
        item_s=rng.choice((0.0001, 0.001, 0.01)),
        threads=rng.choice((1, 2, 3)),
    )


def play(
    make: Callable[[], Task[I, R]],
    seed: int,
    *,
    ranks: int = 4,
    lost: int = 0,
    interrupt: bool = False,
    trace: Callable[[str], None] | None = None,
    may_change: Collection[str] = (),
) -> Run[R]:
    r"""Run a task once in the simulator; `make` creates the task of a rank.

    With `trace=print` each step of each rank is printed with its virtual time. The result is not
    checked. Raises Violation if the task breaks a rule.

        >>> from pcircle import testing
        >>> from examples.word_lengths import Lengths
        >>> lines = []
        >>> run = testing.play(lambda: Lengths(["a", "bb"]), 3, ranks=2, trace=lines.append)
        >>> print(*(line[11:] for line in lines if "process" in line), sep="\n")
        rank 0: processes ('a', 'bb')
        rank 0: has processed ('a', 'bb'): {1: 1, 2: 1}
    """
    case = Case(seed, ranks, lost, interrupt)
    try:
        return Job(make, case, may_change, trace=trace).run()
    except RuleViolationError as found:
        raise Violation(f"{case}: {found}") from found.__cause__


class Job(Generic[I, R]):
    """One run of a case."""

    def __init__(
        self,
        make: Callable[[], Task[I, R]],
        case: Case,
        may_change: Collection[str] = (),
        *,
        trace: Callable[[str], None] | None = None,
        watch: Watch | None = None,
    ) -> None:
        self._make, self._case, self._may_change = make, case, may_change
        self._watch = watch or Watch(case.ranks, MAX_ITEMS, trace)

    def run(self) -> Run[R]:
        """Run the case; if it has faults, first run it without them to determine when they occur.

        Raises RuleViolationError if the task breaks a rule.
        """
        case = self._case
        if not (case.lost or case.interrupt):
            return self._play((), None)
        calm = Case(case.seed, case.ranks)
        whole = Job(self._make, calm, self._may_change)._play((), None)
        rng = Random(f"faults {case.seed} {case.ranks} {case.lost} {case.interrupt}")
        lost = rng.sample(range(case.ranks), min(case.lost, case.ranks - 1))
        kills = tuple(Kill(rank, whole.seconds * rng.random()) for rank in lost)
        return self._play(kills, whole.seconds * rng.random() if case.interrupt else None)

    def _tasks(self) -> list[Task[I, R]]:
        # At least two, because `SharedState` compares two tasks.
        tasks = [self._make() for _ in range(max(2, self._case.ranks))]
        if len({id(task) for task in tasks}) < len(tasks):
            raise RuleViolationError(
                "make() returns one task for several ranks; have it make a new one"
            )
        return tasks

    def _play(self, kills: tuple[Kill, ...], stopped_s: float | None) -> Run[R]:
        case, watch, drawn = self._case, self._watch, machine(self._case)
        tasks = self._tasks()
        state = SharedState(tasks, self._may_change)
        observer, here = RecordingObserver[R](), CurrentFiber()
        network = Network(
            drawn.nodes,
            self._rng("network"),
            msgspec.structs.replace(drawn.conditions, kills=kills),
            observe=watch.check,
            limit_s=_LIMIT_S,
        )
        ranks: list[SimRank[I, R]] = []
        with ExitStack() as stack:
            stack.enter_context(virtual_time(here))

            def program(transport: SimTransport) -> Wait:
                rank = transport.rank
                rank_fibers = RankFibers(
                    here, transport, self._rng(f"work of {rank}"), drawn.item_s
                )
                stack.callback(rank_fibers.close)

                def main() -> int:
                    own_observer = None if rank else observer
                    rng = self._rng(f"engine of {rank}")
                    ranks.append(
                        SimRank(rank_fibers, tasks[rank], settings, own_observer, watch, rng)
                    )
                    return ranks[-1].play(stopped_s)

                return rank_fibers.play(main)

            settings = self._settings(tasks, drawn)
            try:
                codes = network.run([program] * case.ranks)
            except Defect as error:
                raise RuleViolationError(
                    f"the job does not end: {error}{_held(ranks)}"
                ) from watch.error
        if watch.error is None and (held := _held(ranks)) and set(codes) == {Defect.exit_code}:
            raise RuleViolationError(f"the job does not end{held}")
        if changed := state.changed():
            raise RuleViolationError(
                f"the task changes {' and '.join(changed)}, which all ranks share here. In a real "
                "job each rank is a process with its own copy: keep it in the task, return it as "
                "a result, or name it in may_change if that is what you want"
            )
        run = self._run_of(network, codes, observer)
        moments = [kill.at_s for kill in kills] + ([] if stopped_s is None else [stopped_s])
        return msgspec.structs.replace(run, stopped_s=min(moments, default=None))

    def _rng(self, what: str) -> Random:
        return Random(f"{what} {self._case.seed} {self._case.ranks}")

    def _settings(self, tasks: Sequence[Task[I, R]], drawn: RandomMachine) -> EngineSettings:
        """Return the drawn settings of the engine, adapted to the task."""
        first = tasks[0]
        for task in tasks:
            task.threads = task.threads or drawn.threads
        period_s = first.epoch_period_s
        if period_s is not None:
            period_s = self._rng("epochs").choice((0.0005, 0.005, 0.05, period_s))
        # Items may take minutes, and with a shorter period most events would be progress rounds.
        period = drawn.settings.progress_period_s and max(0.2, drawn.settings.progress_period_s)
        return msgspec.structs.replace(
            drawn.settings,
            structured=first.structured,
            epoch_period_s=period_s,
            progress_period_s=period,
        )

    def _run_of(
        self, network: Network, codes: Sequence[int | None], observer: RecordingObserver[R]
    ) -> Run[R]:
        aborted = network.aborted
        lost = tuple(rank for rank, code in enumerate(codes) if code is None and not aborted)
        outcome = observer.outcome
        ended = [code for code in codes if code is not None]
        if aborted is not None:
            ended.append(aborted[1])
        return Run(
            case=self._case,
            code=worst(ended),
            result=None if outcome is None else outcome.result,
            reasons=() if outcome is None else tuple(outcome.reasons),
            items=tuple(self._watch.items),
            notices=tuple(observer.notices),
            seconds=network.now_s,
            lost=lost,
            error=self._watch.error,
        )


def _held(ranks: Sequence[SimRank[I, R]]) -> str:
    """Describe the items that were held and never resumed."""
    held = [short(item) for rank in ranks for item in rank.held()]
    return f": held and never resumed: {', '.join(held[:3])}" if held else ""


# All combinations of the engine's choices; seed n selects combination n, modulo their count.
POLICIES = tuple(
    product(
        ("random", "nearest"), ("random", "equal"), ("counters", "ring"), (True, False), (1, 2, 8)
    )
)


def draw_nodes(rng: Random, ranks: int) -> tuple[int, ...]:
    """Draw the node of each rank: in blocks, or round robin."""
    per_node = rng.choice((1, 2, 4, ranks))
    if rng.random() < 0.5:
        return tuple(rank // per_node for rank in range(ranks))
    count = -(-ranks // per_node)  # round robin, as some launchers place ranks
    return tuple(rank % count for rank in range(ranks))


def draw_settings(rng: Random, seed: int, ranks: int) -> EngineSettings:
    """Draw the engine's settings; `seed` selects the policies, cycling through all combinations."""
    victims, split, termination, structured, arity = POLICIES[seed % len(POLICIES)]
    return EngineSettings(
        workers=rng.choice((1, 1, 2, 3)),
        ahead=rng.choice((0, 1, 1, 2)),
        structured=structured,
        victims=victims,
        split=split,
        termination=termination,
        arity=max(arity, 1 if ranks <= 8 else 2),
        queue_high=rng.choice((4, 4, 5, 9, 16, 64, 2048)),
        share_limit=rng.choice((1, 2, 8, 1024)),
        tries=rng.choice((1, 3)),
        # With many ranks, frequent rounds would fill all links and delay all other messages.
        progress_period_s=rng.choice((None, None, 0.005 if ranks <= 8 else 0.2, 0.2)),
    )


def draw_slow(rng: Random, ranks: int) -> tuple[tuple[int, float], ...]:
    """Draw a rank whose steps are slow, or none; see `Conditions.slow`."""
    if rng.random() < 0.7:
        return ()
    return ((rng.randrange(ranks), rng.choice((1e-4, 1e-3, 5e-3))),)


def _stalls(rng: Random, ranks: int, longest_s: float) -> tuple[Stall, ...]:
    stalls = []
    for _ in range(rng.choice((0, 0, 1, 2))):
        begin_s = rng.random() * rng.choice((0.001, 0.02, 0.2))
        length_s = longest_s * rng.random()
        stalls.append(Stall(rng.randrange(ranks), begin_s, begin_s + length_s))
    return tuple(stalls)


def draw_nasty(rng: Random, ranks: int) -> Conditions:
    """Draw a network with uneven delays, bursts, and slow or temporarily stuck ranks."""
    return Conditions(
        near_s=rng.choice((1e-6, 1e-5, 1e-4)),
        far_s=rng.choice((1e-5, 1e-4, 1e-3)),
        jitter=rng.choice((0.0, 1.0, 10.0, 100.0)),
        tail=rng.choice((0.0, 0.02, 0.3)),
        tail_s=rng.choice((0.001, 0.01, 0.1)),
        burst=rng.choice((0.0, 0.0, 0.005)),
        burst_s=rng.choice((0.01, 0.3)),
        step_s=rng.choice((0.0, 1e-6, 1e-4)),
        start_s=rng.choice((0.0, 0.001, 0.05)),
        slow=draw_slow(rng, ranks),
        stalls=_stalls(rng, ranks, 0.3),
    )
