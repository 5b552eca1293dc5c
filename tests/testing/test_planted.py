"""Tasks with a known bug, each of which `testing.check` must find and describe clearly.

The same task without the bug must pass.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Any, ClassVar

import pytest

from pcircle import testing
from pcircle.runtime import Context, Task
from tests.testing.sums import SIZE, TOTAL, Listed, Range, Sum, found


class Loose(Sum):
    structured = False


class Joined(Sum):
    """The number of items below each item, by joins that check their results."""

    def join(self, item: Range, own: int, merged: int, context: Context[Range]) -> int:
        numbers = range(*item)
        if merged != sum(numbers):
            raise AssertionError(f"{item} got {merged}")
        return own + merged


# ---- correct tasks --------------------------------------------------------------------


@pytest.mark.parametrize("task", [Sum, Loose, Joined])
def test_a_correct_task(task: type[Sum]) -> None:
    testing.check(task, expected=TOTAL, seeds=range(40))
    testing.check(task, expected=TOTAL, seeds=range(40), lost=1)
    testing.check(task, expected=TOTAL, seeds=range(20), ranks=(3, 8), lost=2, interrupt=True)


class Many(Task[int, int]):
    """Posts, holds that end at once or at a commit, notices, and results that stay on ranks."""

    epoch_period_s = 1.0
    threads = None

    def __init__(self) -> None:
        self.kept = 0

    def seed(self) -> range:
        return range(12)

    def process(self, item: int, context: Context[int]) -> int:
        if item < 6:
            context.post(item % 2, [item + 100])
        elif item < 9:
            context.hold()
            context.resume(context.ticket, [item + 100], 0)
        context.note([f"item {item}", "x" * 30_000])
        return item

    def part(self, number: int) -> Many:
        return self

    def merge(self, a: int, b: int) -> int:
        return a + b

    def finish(self) -> int:
        return self.kept


def test_correct_features_of_tasks() -> None:
    total = sum(range(12)) + sum(range(100, 109))
    testing.check(Many, expected=total, seeds=range(40), ranks=(2, 3, 5))
    run = testing.check_case(Many, testing.Case(5, ranks=3), expected=total)
    texts = [notice for notice in run.notices if notice.startswith("item")]
    assert sorted(texts) == sorted(f"item {item}" for item in [*range(12), *range(100, 109)])


class Flood(Sum):
    """More items and notices than a rank accepts at once."""

    def seed(self) -> list[Range]:
        return [(0, 1)]

    def process(self, item: Range, context: Context[Range]) -> int:
        if item == (0, 1):
            for number in range(4):
                context.spawn([(number, 300)] * 300)
                context.note(["x" * 200_000])
        return item[0]


def test_a_worker_waits_for_room() -> None:
    testing.check(Flood, expected=300 * (1 + 2 + 3), seeds=range(6))
    run = testing.play(Flood, 1, ranks=2)
    assert len(run.notices) == 4


# ---- results -------------------------------------------------------------------------


def test_the_order_of_results() -> None:
    violation = found(Listed, "the order of results matters: merge(a, b) is not merge(b, a)")
    assert "the result is [" in str(violation)
    testing.check(Listed, expected=list(range(12)), key=lambda r: sorted(r or []), seeds=range(40))


class Mean(Task[int, float]):
    """A mean of means."""

    def seed(self) -> range:
        return range(12)

    def process(self, item: int, context: Context[int]) -> float:
        return float(item)

    def merge(self, a: float, b: float) -> float:
        return (a + b) / 2


def test_the_grouping_of_results() -> None:
    found(Mean, "the grouping of results matters", expected=5.5)


class CountedTwice(Sum):
    """An item with children counts its children too."""

    def join(self, item: Range, own: int, merged: int, context: Context[Range]) -> int:
        return own + merged + (merged if item == (0, SIZE) else 0)


def test_a_result_that_is_counted_twice() -> None:
    found(CountedTwice, f"the result is {2 * TOTAL}, not {TOTAL}", expected=TOTAL)


class KeptTwice(Sum):
    """The result of an item is returned, and handed over again at the end."""

    kept = 0

    def process(self, item: Range, context: Context[Range]) -> int:
        number = super().process(item, context)
        self.kept += number
        return number

    def finish(self) -> int:
        return self.kept


def test_a_result_that_is_returned_twice() -> None:
    found(KeptTwice, f"the result is {2 * TOTAL}, not {TOTAL}", expected=TOTAL)


class OneList(Task[int, list[int]]):
    """All items return the same list, which `merge` modifies."""

    def __init__(self) -> None:
        self._list: list[int] = []

    def seed(self) -> range:
        return range(12)

    def process(self, item: int, context: Context[int]) -> list[int]:
        self._list.append(item)
        return self._list

    def merge(self, a: list[int], b: list[int]) -> list[int]:
        a.extend(b)
        return a


def test_one_result_of_several_items() -> None:
    found(
        OneList,
        "the same list is the result of several items",
        expected=list(range(12)),
        key=lambda result: sorted(result or []),
        ranks=(2, 3),
    )


class Overlapping(Sum):
    """Both halves contain the middle."""

    def process(self, item: Range, context: Context[Range]) -> int:
        first, last = item
        if last - first == 3:
            context.spawn([(first, first + 2), (first + 1, last), (first + 1, last)])
            return 0
        return super().process(item, context)


def test_an_item_that_is_spawned_twice() -> None:
    found(Overlapping, "two equal items were made: (", expected=TOTAL)


class Once(Sum):
    """Each rank skips what it has seen, but not what other ranks have seen."""

    def __init__(self) -> None:
        self.seen: set[int] = set()

    def seed(self) -> list[Range]:
        return [(0, SIZE), (0, SIZE)]

    def process(self, item: Range, context: Context[Range]) -> int:
        number = super().process(item, context)
        if number in self.seen:
            return 0
        self.seen.add(number)
        return number


def test_state_that_each_rank_has_for_itself() -> None:
    violation = found(Once, f"one rank alone comes to {TOTAL}")
    assert "1 rank:" not in str(violation)


# ---- state that is not shared between processes ---------------------------------------


class InClass(Sum):
    all_seen: ClassVar[set[Range]] = set()

    def process(self, item: Range, context: Context[Range]) -> int:
        self.all_seen.add(item)
        return super().process(item, context)


SEEN: set[int] = set()


def remember(number: int) -> bool:
    is_new = number not in SEEN
    SEEN.add(number)
    return is_new


class InModule(Sum):
    def process(self, item: Range, context: Context[Range]) -> int:
        number = super().process(item, context)
        return number if remember(number) else 0


class InDefault(Sum):
    def process(
        self,
        item: Range,
        context: Context[Range],
        seen: set[Any] = set(),  # noqa: B006 - that is the bug
    ) -> int:
        seen.add(item)
        return super().process(item, context)


def test_state_in_a_class() -> None:
    InClass.all_seen.clear()
    found(InClass, "the task changes InClass.all_seen, which all ranks share here")


def test_state_in_a_module() -> None:
    SEEN.clear()
    found(InModule, "the task changes SEEN, which all ranks share here")


def test_state_in_a_default_value() -> None:
    found(InDefault, "the task changes default 1 of InDefault.process, which")


def test_state_around_the_class() -> None:
    calls: list[Range] = []

    class Around(Sum):
        def process(self, item: Range, context: Context[Range]) -> int:
            calls.append(item)
            return super().process(item, context)

    found(Around, "the task changes calls, which all ranks share here")
    testing.check(Around, expected=TOTAL, seeds=range(3), may_change=["calls"])


def test_state_shared_by_all_tasks() -> None:
    seen: set[int] = set()

    class Given(Once):
        def __init__(self, given: set[int]) -> None:
            self.seen = given

    found(lambda: Given(seen), "the task changes self.seen, which all ranks share here")


def test_one_task_for_all_ranks() -> None:
    task = Sum()
    found(lambda: task, "make() returns one task for several ranks")


# ---- items ---------------------------------------------------------------------------


class Parts(Task[list[int], int]):
    """A list that is filled after it was spawned."""

    def seed(self) -> list[list[int]]:
        return [list(range(9))]

    def process(self, item: list[int], context: Context[list[int]]) -> int:
        if len(item) > 1:
            part: list[int] = []
            for number in item:
                part.append(number)
                if len(part) == 3:
                    context.spawn([part])
                    part.clear()
            return 0
        return sum(item)

    def merge(self, a: int, b: int) -> int:
        return a + b


def test_an_item_that_is_changed_after_it_was_spawned() -> None:
    found(Parts, "an item was changed after it was spawned: it was [")


class Locked(Task):  # type: ignore[type-arg]
    """Items, results or notices that cannot be sent to another process."""

    def __init__(self, what: str) -> None:
        self._what = what

    def seed(self) -> Iterable[Any]:
        return [lambda: 0] if self._what == "seed" else range(3)

    def process(self, item: Any, context: Context[Any]) -> Any:
        if self._what == "item" and item == 1:
            context.spawn([threading.Lock()])
        if self._what == "notice":
            context.note([threading.Lock()])
        return threading.Lock() if self._what == "result" else 0

    def merge(self, a: Any, b: Any) -> Any:
        return a


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("seed", "an item cannot be sent to another rank: <function"),
        ("item", "an item cannot be sent to another rank: <unlocked _thread.lock"),
        ("result", "a result cannot be sent to another rank: <unlocked _thread.lock"),
        ("notice", "cannot pickle '_thread.lock' object"),
    ],
)
def test_unpicklable_values_are_found(what: str, text: str) -> None:
    """They are found even with one rank, which sends nothing."""
    violation = found(lambda: Locked(what), text, ranks=(1,))
    assert isinstance(violation.__cause__, Exception)


class Mistyped(Sum):
    def process(self, item: Range, context: Context[Range]) -> Any:
        return str(super().process(item, context))


class Tuples(Task[dict[str, Any], int]):
    """The declared type is less precise than the items: a tuple arrives as a list."""

    def seed(self) -> list[dict[str, Any]]:
        return [{"place": (1, 2)}]

    def process(self, item: dict[str, Any], context: Context[dict[str, Any]]) -> int:
        return sum(item["place"])

    def merge(self, a: int, b: int) -> int:
        return a + b


def test_wrong_types() -> None:
    found(Mistyped, "a result is not of the type that the task says: '23': Expected `int`")
    found(Tuples, "an item changes on its way to another rank: {'place': (1, 2)} arrives as")


# ---- the course of a job -------------------------------------------------------------


class Alone(Task[Range, int]):
    """One item does all the work."""

    def seed(self) -> list[Range]:
        return [(0, SIZE)]

    def process(self, item: Range, context: Context[Range]) -> int:
        return sum(range(*item))

    def merge(self, a: int, b: int) -> int:
        return a + b


def test_a_task_that_shares_no_work() -> None:
    found(Alone, "no rank but the first got an item in ", expected=TOTAL)
    testing.check(Alone, expected=TOTAL, spreads=False)


class Forgetful(Sum):
    """An item is held and then forgotten."""

    def process(self, item: Range, context: Context[Range]) -> int:
        if item == (0, 3):
            context.hold()
        return super().process(item, context)


class Endless(Sum):
    """An item spawns itself."""

    def process(self, item: Range, context: Context[Range]) -> int:
        if item[1] - item[0] < 4:
            context.spawn([item])
            return 0
        return super().process(item, context)


class Circling(Sum):
    """An item waits for an event that never happens."""

    def process(self, item: Range, context: Context[Range]) -> int:
        while item[0] == 0 and not context.has_idle_workers():
            pass
        while item[0] == 0:
            time.sleep(0.001)
        return super().process(item, context)


def test_a_job_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pcircle.testing.simulated_job.MAX_ITEMS", 2000)
    monkeypatch.setattr("pcircle.testing.watch.MAX_STEPS", 20_000)
    violation = found(Forgetful, "the job does not end")
    assert "held and never resumed: (0, 3)" in str(violation)
    found(Endless, "more than 2,000 items: does an item spawn itself?")
    found(Circling, "the job does not end")


class Deaf(Sum):
    """An item takes minutes without checking whether the job stops."""

    looks = False

    def process(self, item: Range, context: Context[Range]) -> int:
        for _ in range(6 if item == (0, SIZE) else 0):
            if self.looks and context.stopping:
                return 0
            time.sleep(10)
        return super().process(item, context)


class Attentive(Deaf):
    looks = True


def test_an_item_that_does_not_stop() -> None:
    found(Deaf, "an item that takes long must check context.stopping", interrupt=True)
    testing.check(Attentive, expected=TOTAL, seeds=range(10), interrupt=True, lost=1)


class Raising(Sum):
    def process(self, item: Range, context: Context[Range]) -> int:
        return super().process(item, context) // (item[0] - 7 if item[1] == 8 else 1)


class Careless(Sum):
    """An item cannot undo an incomplete action."""

    def abandon(self, item: Range, own: int) -> None:
        raise RuntimeError("there is nothing to undo")


def test_exceptions() -> None:
    violation = found(Raising, "the job ended with 70: exception while processing (7, 8)")
    assert isinstance(violation.__cause__, ZeroDivisionError)
    testing.check(Careless, expected=TOTAL, seeds=range(20))
    violation = found(Careless, "there is nothing to undo", lost=1, ranks=(2, 3))
    assert isinstance(violation.__cause__, RuntimeError)


class Astray(Sum):
    """An item is posted to a rank that does not exist."""

    def seed(self) -> list[Range]:
        return [(number, number + 1) for number in range(SIZE)]

    def process(self, item: Range, context: Context[Range]) -> int:
        if item[0] == 20:
            context.post(9, [item])
        return item[0]


def test_an_item_for_a_missing_rank() -> None:
    """The reason is reported even if a part of the queue was on disk."""
    for seed in range(30):
        found(Astray, "no rank 9 in a job of 1", seeds=[seed], ranks=(1,))
