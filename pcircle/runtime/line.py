"""From a worker's thread to the engine: what an item does besides returning.

Each call is handed to the owner of the pool and becomes an engine event there,
in the order of the calls and before the item's end. What rank 0 is to be told
goes to the engine's outbox instead, and waits for room there: a worker that has
more to tell than rank 0 can take in waits, for an outbox on each of thousands
of ranks must stay small, and so must rank 0's inbox.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from pcircle.circle import Engine
from pcircle.circle.notices import PACK_BYTES
from pcircle.errors import Defect
from pcircle.workers.pool import WorkerPool

KEPT_BYTES = 4 * PACK_BYTES
"""What a rank may have to tell before its workers wait."""
KEPT_ITEMS = 256
"""What workers may have made that the engine has not taken in before they wait."""


class Made:
    """Items that workers have made and the engine has not taken in yet.

    It does so at once, except while the rank's main thread is at something else, such as sorting on
    rank 0. Who reads a directory of millions meanwhile would fill the memory: the queue
    goes to disk when it is long, and what waits to enter it does not.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._items = 0
        self._waiters = 0
        self._open = False

    def add(self, count: int) -> None:
        """So many more, once there is room: waits while there are many."""
        with self._changed:
            self._waiters += 1
            while self.is_full:
                self._changed.wait()
            self._waiters -= 1
            self._items += count

    @property
    def is_full(self) -> bool:
        """Who adds more has to wait."""
        return self._items > KEPT_ITEMS and not self._open

    def taken(self, count: int) -> None:
        """The engine has so many of them."""
        with self._changed:
            self._items -= count
            if self._waiters:
                self._changed.notify_all()

    def let_go(self) -> None:
        """Nobody is to wait from now on."""
        with self._changed:
            self._open = True
            self._changed.notify_all()


class WorkerLine:
    """The `Line` of one rank. `perform` carries out the engine's instructions.

    `encode` makes the bytes of a notice and its line.
    """

    def __init__(
        self,
        pool: WorkerPool,
        engine: Engine[Any, Any],
        perform: Callable[[], None],
        now_s: Callable[[], float],
        is_stopping: Callable[[], bool],
        line_of: Callable[[Any], bytes] | None,
        encode: Callable[[tuple[Any, bytes]], bytes],
    ) -> None:
        self._pool = pool
        self._engine = engine
        self._perform = perform
        self._now_s = now_s
        self.is_stopping = is_stopping
        self._outbox = engine.outbox
        self._made = Made()
        self._line_of = line_of
        self._encode = encode
        self._main = threading.get_ident()
        self.is_hungry = engine.is_hungry

    def spawn(self, ticket: int, items: Sequence[Any]) -> None:
        """The item has made these. Waits while the engine has many others to take in."""
        if threading.get_ident() != self._main:
            self._made.add(len(items))
            self._pool.post(self._take, ticket, items)
        else:
            self._pool.post(self._do, self._engine.spawned, ticket, items)

    def post(self, ticket: int, rank: int, items: Sequence[Any]) -> None:
        """The item has made these for that rank."""
        self._pool.post(self._do, self._engine.posted, ticket, rank, items)

    def hold(self, ticket: int, epoch: int) -> None:
        """The item is to be resumed before it is complete; with `epoch`, at its commit."""
        self._pool.post(partial(self._do, self._engine.held, ticket, epoch=epoch))

    def resume(self, ticket: int, items: Sequence[Any], value: Any, epoch: int) -> None:
        """The held item makes these and one hold, for that epoch, ends with this result."""
        self._pool.post(partial(self._do, self._engine.resumed, ticket, items, value, epoch=epoch))

    def note(self, notices: Sequence[Any]) -> None:
        """Rank 0 is to be told these. Waits while it has too much to hear."""
        outbox = self._outbox
        for notice in notices:
            told = notice, b"" if self._line_of is None else self._line_of(notice)
            data = self._encode(told)
            before = outbox.add(told if self._engine.rank == 0 else msgspec.Raw(data), len(data))
            if not before or before < PACK_BYTES <= before + len(data):
                self._pool.wake()  # it may be time to tell
            if before > KEPT_BYTES and threading.get_ident() != self._main:
                self._await_room()

    def note_synced(self, notices: Sequence[Any]) -> bool:
        """Rank 0 is to record these. Waits until they are on disk there; False: they never are."""
        if threading.get_ident() == self._main:
            raise Defect("only a worker can wait for a record")
        self.note(notices)
        return self._outbox.await_record(self._pool.wake)

    def _await_room(self) -> None:
        self._outbox.await_room(KEPT_BYTES)

    def let_go(self) -> None:
        """No worker is to wait for anything from now on: the job ends."""
        self._outbox.let_go()
        self._made.let_go()

    def _take(self, ticket: int, items: Sequence[Any]) -> None:
        self._made.taken(len(items))
        self._do(self._engine.spawned, ticket, items)

    def _do(self, event: Callable[..., None], *arguments: Any, **more: Any) -> None:
        event(*arguments, self._now_s(), **more)
        self._perform()
