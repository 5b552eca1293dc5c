"""The task of a benchmark: every rank is a client, and all clients begin a case together.

The runtime shares out work by stealing, which a benchmark must not use: the items are posted to
fixed ranks.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TypeAlias

import msgspec

from pcircle.runtime import Context, Task
from pcircle.tools.fbench.cases import StopCase
from pcircle.tools.fbench.papers import Papers
from pcircle.tools.fbench.plan import BenchPlan, BenchResult

_AHEAD_S = 0.1


class BenchCase(msgspec.Struct, frozen=True, array_like=True, tag="c"):
    """Starts the case with this number in the plan on all clients. Later cases follow it."""

    number: int


class Turn(msgspec.Struct, frozen=True, array_like=True, tag="t"):
    """One client's part of a case, which begins at a given wall-clock time."""

    number: int
    begin_s: float


class CaseEnd(msgspec.Struct, frozen=True, array_like=True, tag="e"):
    """A note to rank 0 that another client has finished a case."""

    number: int


Item: TypeAlias = BenchCase | Turn | CaseEnd


class BenchTask(Task[Item, BenchResult]):
    """Runs the cases in order, each on all ranks at once."""

    def __init__(self, plan: BenchPlan, rank: int, size: int) -> None:
        self._plan = plan
        self._client = Papers(plan, rank)
        self._size = size
        self._running = size

    def seed(self) -> Iterable[Item]:
        return [BenchCase(0)]

    def process(self, item: Item, context: Context[Item]) -> BenchResult:
        if isinstance(item, CaseEnd):
            self._running -= 1
            if not self._running and item.number + 1 < len(self._plan.cases):
                self._running = self._size
                context.spawn([BenchCase(item.number + 1)])
            return BenchResult()
        if isinstance(item, BenchCase):
            begin_s = time.time() + _AHEAD_S
            for rank in range(self._size):
                context.post(rank, [Turn(item.number, begin_s)])
            return BenchResult()
        time.sleep(max(0.0, min(_AHEAD_S, item.begin_s - time.time())))
        case = self._plan.cases[item.number]
        try:
            return BenchResult(tuple(self._client.measure(case, context.is_stopping)))
        except StopCase:
            return BenchResult()
        except OSError as error:
            return BenchResult(trouble=(f"{case.partition('/')[0]}: {error}",))
        finally:
            context.post(0, [CaseEnd(item.number)])

    def merge(self, a: BenchResult, b: BenchResult) -> BenchResult:
        return BenchResult(a.figures + b.figures, a.trouble + b.trouble)
