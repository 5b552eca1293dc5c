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
from pcircle.tools.fbench.cases import Stopped
from pcircle.tools.fbench.papers import Papers
from pcircle.tools.fbench.plan import Measured, Plan

_AHEAD_S = 0.1


class Case(msgspec.Struct, frozen=True, array_like=True, tag="c"):
    """Starts the case with this number in the plan on all clients. Later cases follow it."""

    number: int


class Turn(msgspec.Struct, frozen=True, array_like=True, tag="t"):
    """One client's part of a case, which begins at a given wall-clock time."""

    number: int
    begin_s: float


class Ended(msgspec.Struct, frozen=True, array_like=True, tag="e"):
    """A note to rank 0 that another client has finished a case."""

    number: int


Item: TypeAlias = Case | Turn | Ended


class BenchTask(Task[Item, Measured]):
    """Runs the cases in order, each on all ranks at once."""

    def __init__(self, plan: Plan, rank: int, size: int) -> None:
        self._plan = plan
        self._client = Papers(plan, rank)
        self._size = size
        self._running = size

    def seed(self) -> Iterable[Item]:
        return [Case(0)]

    def process(self, item: Item, context: Context[Item]) -> Measured:
        if isinstance(item, Ended):
            self._running -= 1
            if not self._running and item.number + 1 < len(self._plan.cases):
                self._running = self._size
                context.spawn([Case(item.number + 1)])
            return Measured()
        if isinstance(item, Case):
            begin_s = time.time() + _AHEAD_S
            for rank in range(self._size):
                context.post(rank, [Turn(item.number, begin_s)])
            return Measured()
        time.sleep(max(0.0, min(_AHEAD_S, item.begin_s - time.time())))
        case = self._plan.cases[item.number]
        try:
            return Measured(tuple(self._client.measure(case, context.is_stopping)))
        except Stopped:
            return Measured()
        except OSError as error:
            return Measured(trouble=(f"{case.partition('/')[0]}: {error}",))
        finally:
            context.post(0, [Ended(item.number)])

    def merge(self, a: Measured, b: Measured) -> Measured:
        return Measured(a.figures + b.figures, a.trouble + b.trouble)
