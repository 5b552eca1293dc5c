"""Simulate one job of a task from a seed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from random import Random
from typing import Any, Generic, TypeVar

import msgspec

from pcircle.circle import EngineSettings
from pcircle.core.errors import Defect, worst
from pcircle.runtime.task import I, Task
from pcircle.testing.fibers import CurrentFiber, RankFibers, virtual_time
from pcircle.testing.random_cases import draw_nasty, draw_nodes, draw_settings
from pcircle.testing.rank import RecordingObserver, SimRank
from pcircle.testing.state import SharedState
from pcircle.testing.watch import RuleViolationError, Violation, Watch, short
from pcircle.transport._sim import Conditions, Kill, Network, SimTransport, Wait

R = TypeVar("R")

MAX_ITEMS = 100_000
_LIMIT_S = 3600.0
_PATIENCE_S = 40.0  # of each level of the tree, for the worst delay of the network
_DETECT_S = 0.01


class Case(msgspec.Struct, frozen=True):
    """The input of a simulation: the same case of the same task is the same run.

    In it `lost` ranks die at random moments, and with `interrupt` all ranks get SIGINT.

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

    `code` is the exit code, `result` the job's result or None. `reasons` explain why the job
    stopped early. `items` is the number of items that each rank started, `notices` what rank 0
    received, and `seconds` the duration in virtual time. `lost` are the ranks that died before they
    had ended; `stopped_s` is the time of the first death or of the interrupt. `error` is the first
    exception that a method of the task raised.

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
    checked; Violation if the task breaks a rule.

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
    """One run. Raises `RuleViolationError` if the task breaks a rule."""

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
        """Run the job once."""
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
        # Two at least, or nothing is seen to be shared.
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
        ears, here = RecordingObserver[R](), CurrentFiber()
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
                crew = RankFibers(here, transport, self._rng(f"work of {rank}"), drawn.item_s)
                stack.callback(crew.close)

                def main() -> int:
                    hears = None if rank else ears
                    rng = self._rng(f"engine of {rank}")
                    ranks.append(SimRank(crew, tasks[rank], settings, hears, watch, rng))
                    return ranks[-1].play(stopped_s)

                return crew.play(main)

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
        run = self._run_of(network, codes, ears)
        moments = [kill.at_s for kill in kills] + ([] if stopped_s is None else [stopped_s])
        return msgspec.structs.replace(run, stopped_s=min(moments, default=None))

    def _rng(self, what: str) -> Random:
        return Random(f"{what} {self._case.seed} {self._case.ranks}")

    def _settings(self, tasks: Sequence[Task[I, R]], drawn: RandomMachine) -> EngineSettings:
        """Return the engine's settings, except those that the task determines."""
        first = tasks[0]
        for task in tasks:
            task.threads = task.threads or drawn.threads
        period_s = first.epoch_period_s
        if period_s is not None:
            period_s = self._rng("epochs").choice((0.0005, 0.005, 0.05, period_s))
        # Items may take minutes, and there would be nothing but rounds.
        period = drawn.settings.progress_period_s and max(0.2, drawn.settings.progress_period_s)
        return msgspec.structs.replace(
            drawn.settings,
            structured=first.structured,
            epoch_period_s=period_s,
            progress_period_s=period,
        )

    def _run_of(
        self, network: Network, codes: Sequence[int | None], ears: RecordingObserver[R]
    ) -> Run[R]:
        aborted = network.aborted
        lost = tuple(rank for rank, code in enumerate(codes) if code is None and not aborted)
        outcome = ears.outcome
        ended = [code for code in codes if code is not None]
        if aborted is not None:
            ended.append(aborted[1])
        return Run(
            case=self._case,
            code=worst(ended),
            result=None if outcome is None else outcome.result,
            reasons=() if outcome is None else tuple(outcome.reasons),
            items=tuple(self._watch.items),
            notices=tuple(ears.notices),
            seconds=network.now_s,
            lost=lost,
            error=self._watch.error,
        )


def _held(ranks: Sequence[SimRank[I, R]]) -> str:
    """Describe items that wait for a resume that never happens."""
    held = [short(item) for rank in ranks for item in rank.held()]
    return f": held and never resumed: {', '.join(held[:3])}" if held else ""
