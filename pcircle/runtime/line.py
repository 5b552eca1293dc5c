"""From a worker's thread to the engine: what an item does besides returning.

Each call is handed to the owner of the pool and becomes an engine event there,
in the order of the calls and before the item's end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from pcircle.circle import Engine
from pcircle.workers.pool import Pool


class WorkerLine:
    """The `Line` of one rank. `perform` carries out the engine's instructions."""

    def __init__(
        self,
        pool: Pool,
        engine: Engine[Any, Any],
        perform: Callable[[], None],
        now_s: Callable[[], float],
        is_stopping: Callable[[], bool],
    ) -> None:
        self._pool = pool
        self._engine = engine
        self._perform = perform
        self._now_s = now_s
        self.is_stopping = is_stopping

    def spawn(self, ticket: int, items: Sequence[Any]) -> None:
        """The item has made these."""
        self._pool.say(self._do, self._engine.spawned, ticket, items)

    def post(self, ticket: int, rank: int, items: Sequence[Any]) -> None:
        """The item has made these for that rank."""
        self._pool.say(self._do, self._engine.posted, ticket, rank, items)

    def hold(self, ticket: int, epoch: int) -> None:
        """The item is to be resumed before it is complete; with `epoch`, at its commit."""
        self._pool.say(partial(self._do, self._engine.held, ticket, epoch=epoch))

    def resume(self, ticket: int, items: Sequence[Any], value: Any, epoch: int) -> None:
        """The held item makes these and one hold, for that epoch, ends with this result."""
        self._pool.say(partial(self._do, self._engine.resumed, ticket, items, value, epoch=epoch))

    def note(self, notices: Sequence[Any]) -> None:
        """Rank 0 is to be told these."""
        self._pool.say(self._tell, notices)

    def _do(self, event: Callable[..., None], *arguments: Any, **more: Any) -> None:
        event(*arguments, self._now_s(), **more)
        self._perform()

    def _tell(self, notices: Sequence[Any]) -> None:
        self._engine.notify(notices)
        self._perform()
