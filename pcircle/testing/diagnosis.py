"""Diagnoses a wrong result by repeating the run with additional checks of results."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Iterator
from typing import Any, TypeVar

from pcircle.runtime.task import I, R, Task
from pcircle.testing.simulated_job import MAX_ITEMS, Case, Job
from pcircle.testing.watch import RuleViolationError, Watch, short

T = TypeVar("T")

_SCALARS = (int, float, complex, str, bytes, tuple, frozenset, type(None))


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
