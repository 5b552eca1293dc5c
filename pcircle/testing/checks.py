"""Checks a task in many simulated runs, and diagnoses a wrong result.

For the diagnosis, a wrong run is repeated on one rank, and then with additional checks of results:
merging must be commutative and associative, and items and results must be distinct.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msgspec import UNSET, UnsetType

from pcircle.circle import EngineSettings
from pcircle.core.errors import Interrupted, StoppedEarly
from pcircle.runtime.task import I, R, Task
from pcircle.testing.simulated_job import MAX_ITEMS, Case, Job, Run
from pcircle.testing.watch import RuleViolationError, Violation, Watch, short

if TYPE_CHECKING:
    import pytest

T = TypeVar("T")

_ENOUGH = 10  # in at least this many runs of several ranks, some item should reach a second rank
_SCALARS = (int, float, complex, str, bytes, tuple, frozenset, type(None))


def cases(
    seeds: Iterable[int] = range(200),
    ranks: Sequence[int] = (1, 2, 7),
    *,
    lost: int = 0,
    interrupt: bool = False,
) -> list[Case]:
    r"""Return a case for each seed; the seed also selects the number of ranks.

    >>> from pcircle import testing
    >>> print(*testing.cases(range(3), ranks=(2, 5), lost=1), sep="\n")
    seed 0, 5 ranks, 1 lost
    seed 1, 2 ranks, 1 lost
    seed 2, 5 ranks, 1 lost
    """
    return [
        Case(seed, Random(f"ranks {seed}").choice(tuple(ranks)), lost, interrupt) for seed in seeds
    ]


def each(
    seeds: Iterable[int] = range(20),
    ranks: Sequence[int] = (1, 2, 7),
    *,
    lost: int = 0,
    interrupt: bool = False,
) -> pytest.MarkDecorator:
    """Return a pytest decorator that runs a test for each case, passed as the argument `case`.

    >>> from pcircle import testing
    >>> from examples.word_lengths import Lengths
    >>> @testing.each(range(5), lost=1)
    ... def test_lengths(case: testing.Case) -> None:
    ...     testing.check_case(lambda: Lengths(["a", "bb"]), case, expected={1: 1, 2: 1})
    """
    import pytest

    drawn = cases(seeds, ranks, lost=lost, interrupt=interrupt)
    return pytest.mark.parametrize("case", drawn, ids=str)


def check(
    make: Callable[[], Task[I, R]],
    *,
    expected: R | UnsetType | None = UNSET,
    key: Callable[[R | None], object] | None = None,
    seeds: Iterable[int] = range(200),
    ranks: Sequence[int] = (1, 2, 7),
    lost: int = 0,
    interrupt: bool = False,
    may_change: Collection[str] = (),
    spreads: bool = True,
) -> None:
    """Run a task once per seed and raise Violation at the first run that is wrong.

    `make` creates the task of a rank. Without faults, each run must succeed with the result
    `expected`, or, if that is not given, with the result of a run on the fewest ranks. If equal
    results may differ in representation, such as lists in any order, `key` maps a result to the
    value to compare.

    In each run `lost` ranks die at random moments, but at least one survives. If `interrupt` is
    set, all ranks receive SIGINT. Such a job must end with code 4 or 130 as documented, or succeed
    if it was complete before. State that all ranks share must not change, unless `may_change` names
    it. If `spreads` is set, a rank other than the first must receive an item in some run. This is
    checked if there are at least ten fault-free runs of several ranks.

        >>> from pcircle import testing
        >>> from examples.word_lengths import Lengths
        >>> words = ["to", "be", "or", "not", "to", "be"]
        >>> testing.check(lambda: Lengths(words), expected={2: 5, 3: 1}, seeds=range(20))
        >>> testing.check(lambda: Lengths(words), seeds=range(20), lost=1)
    """
    drawn = cases(seeds, ranks, lost=lost, interrupt=interrupt)
    if not drawn:
        raise ValueError("no seeds")
    checker = _CaseChecker(make, key, may_change)
    if isinstance(expected, UnsetType):
        expected = checker.run_reference(Case(drawn[0].seed, min(ranks))).result
    runs = [checker.run(case, expected) for case in drawn]
    calm = not (lost or interrupt)
    several = [run for run in runs if calm and run.case.ranks > 1 and any(run.items)]
    if spreads and len(several) >= _ENOUGH and not any(any(run.items[1:]) for run in several):
        text = (
            f"no rank but the first got an item in {len(several)} runs of several ranks, with up "
            f"to {max(run.items[0] for run in several):,} items in a run: have process() spawn "
            "parts of a large item; or pass spreads=False"
        )
        raise Violation(text)


def check_case(
    make: Callable[[], Task[I, R]],
    case: Case,
    *,
    expected: R | UnsetType | None = UNSET,
    key: Callable[[R | None], object] | None = None,
    may_change: Collection[str] = (),
) -> Run[R]:
    """Run and check a single case like `check`, and return the run.

    >>> from pcircle import testing
    >>> from examples.word_lengths import Lengths
    >>> run = testing.check_case(lambda: Lengths(["a", "bb"]), testing.Case(17, ranks=2))
    >>> run.result
    {1: 1, 2: 1}
    """
    checker = _CaseChecker(make, key, may_change)
    if isinstance(expected, UnsetType):
        expected = checker.run_reference(Case(case.seed, 1)).result
    return checker.run(case, expected)


class _CaseChecker(Generic[I, R]):
    """Checks runs of one task."""

    def __init__(
        self,
        make: Callable[[], Task[I, R]],
        key: Callable[[R | None], object] | None,
        may_change: Collection[str],
    ) -> None:
        self._make, self._may_change = make, may_change
        self._key: Callable[[R | None], object] = key or (lambda result: result)

    def run_reference(self, case: Case) -> Run[R]:
        """Run a case without faults, as the reference for other runs."""
        run = self._played(case)
        if run.code:
            self._wrong(run.case, self._why(run), run.error)
        return run

    def run(self, case: Case, expected: R | None) -> Run[R]:
        """Run a case and check its outcome."""
        run = self._played(case)
        if not (case.lost or case.interrupt):
            self._ended_well(run, expected)
            return run
        allowed = {0}
        if case.lost:
            allowed.add(StoppedEarly.exit_code)
        if case.interrupt:
            allowed.add(Interrupted.exit_code)
        if run.code not in allowed:
            self._wrong(run.case, self._why(run), run.error)
        if not run.code:
            self._ended_well(run, expected)
        late_s = run.seconds - (run.stopped_s or 0.0)
        if late_s > EngineSettings().final_deadline_s:
            text = (
                f"the job took {late_s:.0f} s to stop: an item that takes long must check "
                "context.stopping regularly and return"
            )
            self._wrong(run.case, text)
        return run

    def _played(self, case: Case) -> Run[R]:
        try:
            return Job(self._make, case, self._may_change).run()
        except RuleViolationError as found:
            self._wrong(case, str(found), found.__cause__)
            raise

    def _ended_well(self, run: Run[R], expected: R | None) -> None:
        if run.code:
            self._wrong(run.case, self._why(run), run.error)
        if self._key(run.result) != self._key(expected):
            text = f"the result is {short(run.result)}, not {short(expected)}"
            found = diagnosed(self._make, run.case, self._key, self._may_change)
            self._wrong(run.case, "\n  ".join((text, *found)))

    def _why(self, run: Run[R]) -> str:
        reasons = "; ".join(run.reasons) or f"{type(run.error).__name__}: {run.error}"
        return f"the job ended with {run.code}: {reasons}"

    def _wrong(self, case: Case, text: str, cause: BaseException | None = None) -> None:
        raise Violation(f"{case}: {text}\nreplay it with: {self._again(case)}") from cause

    def _again(self, case: Case) -> str:
        name = getattr(self._make, "__qualname__", "make")
        options = "".join(_options(case))
        make = "make" if "<" in name else name
        return f"pcircle.testing.play({make}, {case.seed}{options}, trace=print)"


def _options(case: Case) -> Iterator[str]:
    yield f", ranks={case.ranks}"
    if case.lost:
        yield f", lost={case.lost}"
    if case.interrupt:
        yield ", interrupt=True"


class _ResultChecker(Watch):
    """Tries each merge in the opposite order too, and detects repeated items and results."""

    def __init__(self, ranks: int, key: Callable[[Any], object]) -> None:
        super().__init__(ranks, MAX_ITEMS, None)
        self._key = key
        self.findings: dict[str, str] = {}
        self._spawned: set[bytes] = set()
        self._returned: dict[int, object] = {}
        self._last: dict[int, tuple[Any, Any]] = {}  # the last merge of each task

    def made(self, data: bytes, item: object) -> None:
        if data in self._spawned:
            self.findings.setdefault("twice", f"two equal items were made: {short(item)}")
        self._spawned.add(data)

    def returned(self, value: object) -> None:
        if isinstance(value, _SCALARS):
            return
        if self._returned.get(id(value)) is value:
            text = f"the same {type(value).__name__} is the result of several items: {short(value)}"
            self.findings.setdefault("same", text)
        self._returned[id(value)] = value

    def merging(self, task: Task[I, R], a: R, b: R) -> None:
        try:
            left, right = self._merged(task, a, b), self._merged(task, b, a)
        except Exception:
            return  # the job ends with this error, or the values cannot be compared
        if left != right:
            self.findings.setdefault(
                "order",
                "the order of results matters: merge(a, b) is not merge(b, a)\n"
                f"    merge({short(a)}, {short(b)}) = {short(left)}\n"
                f"    merge({short(b)}, {short(a)}) = {short(right)}",
            )
        else:
            self._grouped(task, a, b)

    def _grouped(self, task: Task[I, R], a: R, b: R) -> None:
        """Combine this merge with the previous one to check that merging is associative."""
        c = self._last.get(id(task))
        self._last[id(task)] = _copy((a, b))
        if c is None:
            return
        try:
            left = self._merged(task, task.merge(*_copy((a, b))), c[0])
            right = self._merged(task, a, task.merge(*_copy((b, c[0]))))
        except Exception:
            return
        if left != right:
            self.findings.setdefault(
                "groups",
                "the grouping of results matters: merge(merge(a, b), c) is not "
                "merge(a, merge(b, c))\n"
                f"    a = {short(a)}, b = {short(b)}, c = {short(c[0])}",
            )

    def _merged(self, task: Task[I, R], a: R, b: R) -> object:
        return self._key(task.merge(*_copy((a, b))))


def _copy(values: T) -> T:
    copy: T = pickle.loads(pickle.dumps(values))
    return copy


def diagnosed(
    make: Callable[[], Task[I, R]],
    case: Case,
    key: Callable[[R | None], object],
    may_change: Collection[str],
) -> Iterator[str]:
    """Yield findings that may explain a wrong result; some span several lines."""
    try:
        if case.ranks > 1 and not (alone := Job(make, Case(case.seed, 1), may_change).run()).code:
            yield f"one rank alone comes to {short(alone.result)}"
        checker = _ResultChecker(case.ranks, key)
        Job(make, case, may_change, watch=checker).run()
        yield from checker.findings.values()
    except RuleViolationError as found:
        yield str(found)
