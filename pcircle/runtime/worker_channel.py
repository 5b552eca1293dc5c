"""The channel from worker threads to the engine, for everything except results of items.

Each call is passed to the main thread, where it becomes an engine event. Events occur in the order
of the calls, and all events of an item precede its end. Notices for rank 0 are added to the
engine's outbox instead. A worker that produces more notices than rank 0 can process is blocked, so
that the outboxes of thousands of ranks, and rank 0's inbox, stay small.

`PartedTask` is the base class of tasks with one part per worker thread. Each part has its own
counters, buffers and open directories, so that the hot loops need no lock. State that belongs to
the rank is shared with the first part.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import msgspec

from pcircle.circle import Engine, ProgressSums
from pcircle.circle.notices import PACK_BYTES
from pcircle.core.errors import Defect
from pcircle.runtime.task import Task
from pcircle.threads.thread_tuning import Work
from pcircle.threads.workers import WorkerPool

if TYPE_CHECKING:
    from typing_extensions import Self

I = TypeVar("I")  # noqa: E741 - item
R = TypeVar("R")  # result


class PartCounters(Protocol):
    """The counters of a part."""

    def sums(self) -> ProgressSums:
        """Return the counts for a progress round, with `ranks` set to 1."""
        ...

    def work(self) -> Work:
        """Return the amount of work done so far."""
        ...

    def figures(self, counts: tuple[int, ...]) -> Mapping[str, int]:
        """Return a rank's figures for a summary from its counts; see `Task.figures`."""
        ...


class PartedTask(Task[I, R]):
    """A task in parts. `parts` lists those created so far, beginning with the task itself."""

    def __init__(self) -> None:
        self.parts: list[Any] = [self]  # instances of the subclass

    @property
    @abstractmethod
    def counted(self) -> PartCounters:
        """The counters of this part."""

    @abstractmethod
    def beside(self, number: int) -> Self:
        """Create the part for worker thread `number` (not 0); called on that thread."""

    def part(self, number: int) -> Self:
        if not number:
            return self
        part = self.beside(number)
        self.parts.append(part)
        return part

    def measure(self) -> ProgressSums:
        if len(self.parts) == 1:
            return self.counted.sums()
        sums = sum((part.counted.sums() for part in self.parts), ProgressSums())
        return msgspec.structs.replace(sums, ranks=1)

    def figures(self, counts: tuple[int, ...]) -> Mapping[str, int]:
        return self.counted.figures(counts)

    def work(self) -> Work:
        amounts = [part.counted.work() for part in self.parts]
        return Work(sum(done.metadata for done in amounts), sum(done.data for done in amounts))


MAX_OUTBOX_BYTES = 4 * PACK_BYTES
"""The size of a rank's outbox above which its workers must wait."""
MAX_BACKLOG_ITEMS = 256
"""The number of spawned items not yet accepted by the engine above which workers must wait."""


class SpawnBacklog:
    """Counts the items that workers have spawned but the engine has not accepted yet.

    The engine accepts them at once unless the rank's main thread is busy, for example sorting on
    rank 0. A worker that lists millions of entries in the meantime would fill the memory. A long
    queue spills to disk, but items waiting to enter the queue do not.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._items = 0
        self._waiters = 0
        self._open = False

    def add(self, count: int) -> None:
        """Wait while there are too many items, then add `count`."""
        with self._changed:
            self._waiters += 1
            while self.is_full:
                self._changed.wait()
            self._waiters -= 1
            self._items += count

    @property
    def is_full(self) -> bool:
        """Return whether a worker that adds items must wait."""
        return self._items > MAX_BACKLOG_ITEMS and not self._open

    def taken(self, count: int) -> None:
        """Record that the engine has accepted `count` items."""
        with self._changed:
            self._items -= count
            if self._waiters:
                self._changed.notify_all()

    def let_go(self) -> None:
        """Release all waiting workers; from now on no worker waits."""
        with self._changed:
            self._open = True
            self._changed.notify_all()


class WorkerChannel(Generic[I, R]):
    """The `EngineChannel` of a rank. `perform` executes the engine's instructions.

    `line_of` returns the log line of a notice if the job has a log; `encode` encodes a notice
    together with its line.
    """

    def __init__(
        self,
        pool: WorkerPool,
        engine: Engine[I, R],
        perform: Callable[[], None],
        now_s: Callable[[], float],
        is_stopping: Callable[[], bool],
        line_of: Callable[[Any], bytes] | None,
        encode: Callable[[tuple[object, bytes]], bytes],
    ) -> None:
        self._pool = pool
        self._engine = engine
        self._perform = perform
        self._now_s = now_s
        self.is_stopping = is_stopping
        self._outbox = engine.outbox
        self._backlog = SpawnBacklog()
        self._line_of = line_of
        self._encode = encode
        self._main = threading.get_ident()
        self.has_idle_workers: Callable[[], bool] = engine.has_idle_workers

    def spawn(self, ticket: int, items: Sequence[I]) -> None:
        """Add items; wait while the engine still has too many to accept."""
        if threading.get_ident() != self._main:
            self._backlog.add(len(items))
            self._pool.post(self._take, ticket, items)
        else:
            self._pool.post(self._do, self._engine.spawned, ticket, items)

    def post(self, ticket: int, rank: int, items: Sequence[I]) -> None:
        self._pool.post(self._do, self._engine.posted, ticket, rank, items)

    def hold(self, ticket: int, epoch: int) -> None:
        self._pool.post(partial(self._do, self._engine.held, ticket, epoch=epoch))

    def resume(self, ticket: int, items: Sequence[I], value: object, epoch: int) -> None:
        self._pool.post(partial(self._do, self._engine.resumed, ticket, items, value, epoch=epoch))

    def note(self, notices: Sequence[object]) -> None:
        """Send notices to rank 0; wait while the outbox is full."""
        outbox = self._outbox
        for notice in notices:
            entry = notice, b"" if self._line_of is None else self._line_of(notice)
            data = self._encode(entry)
            before = outbox.add(entry if self._engine.rank == 0 else msgspec.Raw(data), len(data))
            if not before or before < PACK_BYTES <= before + len(data):
                self._pool.wake()  # a batch may be due
            if before > MAX_OUTBOX_BYTES and threading.get_ident() != self._main:
                self._await_room()

    def note_synced(self, notices: Sequence[object]) -> bool:
        """Send notices and wait until rank 0 has recorded them; return False if it never will."""
        if threading.get_ident() == self._main:
            raise Defect("only a worker can wait for a record")
        self.note(notices)
        return self._outbox.await_record(self._pool.wake)

    def _await_room(self) -> None:
        self._outbox.await_room(MAX_OUTBOX_BYTES)

    def let_go(self) -> None:
        """Release all waiting workers, and let none wait from now on, because the job is ending."""
        self._outbox.let_go()
        self._backlog.let_go()

    def _take(self, ticket: int, items: Sequence[I]) -> None:
        self._backlog.taken(len(items))
        self._do(self._engine.spawned, ticket, items)

    def _do(self, event: Callable[..., None], *arguments: object, **more: object) -> None:
        event(*arguments, self._now_s(), **more)
        self._perform()


class PerThreadTasks(Generic[I, R]):
    """The parts of a task, by worker thread."""

    def __init__(self, task: Task[I, R], pool: WorkerPool) -> None:
        self._task = task
        self._pool = pool
        self._parts: dict[int, Task[I, R]] = {}

    def context(self) -> Task[I, R]:
        """Return the part of the calling worker thread."""
        number = self._pool.number
        part = self._parts.get(number)
        if part is None:
            part = self._parts[number] = self._task.part(number)
        return part
