"""One rank of a simulated job, and detection of state that only simulated ranks share.

A simulated rank runs the runtime's own loop. Its worker pool and its channel to the engine run on
fibers in virtual time.

`SharedState` detects changes to state that the ranks of a real job would not share. A task may keep
state in a class, in a global, or in an object that is passed to all tasks. In a real job each rank
is a process with its own copy. In the simulator, only one copy exists. A task that relies on
changes to such state works in the simulator but fails in a real job.
"""

from __future__ import annotations

import pickle
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from math import inf
from random import Random
from signal import SIGINT
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any, TypeVar

from pcircle.circle import EngineSettings
from pcircle.circle.instructions import Send
from pcircle.core.errors import Defect
from pcircle.runtime.crash_report import TracebackReporter
from pcircle.runtime.loop import Rank
from pcircle.runtime.signals import Signals
from pcircle.runtime.task import Context, I, Observer, Outcome, R, Task
from pcircle.runtime.worker_channel import MAX_OUTBOX_BYTES, WorkerChannel
from pcircle.testing.fibers import Fiber, RankFibers, StopCall
from pcircle.testing.watch import Inspector, Watch, described, short
from pcircle.threads.workers import PoolFuture, WorkerPool
from pcircle.transport._sim import SimTransport
from pcircle.transport.contract import Delivery, LostRank

T = TypeVar("T")

_ROOM_S = 1e-4  # between checks for room in a full queue
_Call = tuple["PoolFuture[Any]", Callable[..., object], tuple[object, ...]]


class SimPool(WorkerPool):
    """A `pcircle.threads.workers.WorkerPool` whose calls take virtual time to begin and to end."""

    in_flight: int

    def __init__(self, rank_fibers: RankFibers, wake: Callable[[], None], threads: int = 1) -> None:
        super().__init__(wake, threads)
        self._rank_fibers = rank_fibers
        self._pending: deque[_Call] = deque()
        self._fibers: list[Fiber] = []
        self._idle: deque[Fiber] = deque()
        self._closing = False

    @property
    def number(self) -> int:
        """Return the number of the calling worker, from 0."""
        return self._rank_fibers.here.number

    @property
    def native_ids(self) -> list[int | None]:
        """Return an empty list, because the CPU time of fibers means nothing in virtual time."""
        return []

    def submit(self, function: Callable[..., T], *args: object) -> PoolFuture[T]:
        future: PoolFuture[T] = PoolFuture()
        self.in_flight += 1
        self._pending.append((future, function, args))
        if self._idle:
            self._rank_fibers.resume(self._idle.popleft())
        elif len(self._fibers) < self.threads:
            number = len(self._fibers)
            self._fibers.append(self._rank_fibers.begin(lambda: self._serve(number), number))
        return future

    def close(self, patience_s: float) -> bool:
        rank_fibers, until_s = self._rank_fibers, self._rank_fibers.now_s + patience_s
        self._closing = True
        while self._idle:
            rank_fibers.resume(self._idle.popleft())
        while (busy := self._busy()) and rank_fibers.now_s < until_s:
            rank_fibers.pause(until_s - rank_fibers.now_s)
        self._fibers.clear()
        self._closing = False
        return not busy

    def _busy(self) -> bool:
        return any(not fiber.ended for fiber in self._fibers)

    def _serve(self, number: int) -> None:
        rank_fibers = self._rank_fibers
        while True:
            while not self._pending:
                if self._closing:
                    self.wake()
                    return
                self._idle.append(self._fibers[number])
                rank_fibers.pause(inf)
            future, function, args = self._pending.popleft()
            rank_fibers.pause_randomly()
            value, error = None, None
            try:
                value = function(*args)
            except StopCall:
                raise
            except BaseException as caught:  # the owner handles it
                error = caught
            rank_fibers.pause_randomly()
            self.post(self._settle, future, value, error)


class SimWorkerChannel(WorkerChannel[I, R]):
    """A `WorkerChannel` that lets virtual time pass when an item calls methods of its context."""

    rank_fibers: RankFibers
    spawned: Callable[[Sequence[I]], None]
    holds: Counter[int]

    def begin(
        self, rank_fibers: RankFibers, spawned: Callable[[Sequence[I]], None]
    ) -> SimWorkerChannel[I, R]:
        """Attach the channel to the rank's fibers and to the callback for spawned items.

        `holds` counts the holds that were not released, by ticket.
        """
        self.rank_fibers, self.spawned, self.holds = rank_fibers, spawned, Counter()
        self.is_stopping: Callable[[], bool] = self._asked(self.is_stopping)
        self.has_idle_workers: Callable[[], bool] = self._asked(self.has_idle_workers)
        return self

    def _asked(self, question: Callable[[], bool]) -> Callable[[], bool]:
        def asked() -> bool:
            self.rank_fibers.pause_randomly(0.25)
            return question()

        return asked

    def spawn(self, ticket: int, items: Sequence[I]) -> None:
        self.spawned(items)
        while self._backlog.is_full and not self.rank_fibers.here.is_main:
            self.rank_fibers.pause(_ROOM_S)
        super().spawn(ticket, items)
        self.rank_fibers.pause_randomly(0.5)

    def post(self, ticket: int, rank: int, items: Sequence[I]) -> None:
        self.spawned(items)
        super().post(ticket, rank, items)
        self.rank_fibers.pause_randomly(0.5)

    def hold(self, ticket: int, epoch: int) -> None:
        self.holds[ticket] += 1
        super().hold(ticket, epoch)
        self.rank_fibers.pause_randomly(0.5)

    def resume(self, ticket: int, items: Sequence[I], value: object, epoch: int) -> None:
        self.holds[ticket] -= 1
        self.spawned(items)
        super().resume(ticket, items, value, epoch)
        self.rank_fibers.pause_randomly(0.5)

    def _await_room(self) -> None:
        outbox = self._outbox
        while outbox.size_bytes > MAX_OUTBOX_BYTES and not self.is_stopping():
            self.rank_fibers.pause(_ROOM_S)


class RecordingObserver(Observer[R]):
    """An observer of rank 0 that records notices and the outcome."""

    def __init__(self) -> None:
        self.outcome: Outcome[R] | None = None
        self.notices: list[object] = []

    def notice(self, source: int, values: Sequence[object]) -> None:
        self.notices += values

    def conclude(self, outcome: Outcome[R]) -> int:
        self.outcome = outcome
        return outcome.code


class _Transport:
    """The simulated network for a fiber: `poll` suspends the fiber until messages arrive."""

    def __init__(self, rank_fibers: RankFibers) -> None:
        self._rank_fibers = rank_fibers
        self._inner: SimTransport = rank_fibers.transport
        self.rank = self._inner.rank
        self.size = self._inner.size
        self.nodes = self._inner.nodes

    def send(self, dest: int, payload: bytes) -> None:
        self._inner.send(dest, payload)

    def poll(self, timeout_s: float | None) -> list[Delivery | LostRank]:
        self._rank_fibers.wait(timeout_s)
        return self._rank_fibers.taken()

    def wake(self) -> None:
        self._rank_fibers.wake()

    def close(self) -> None:
        self._inner.close()

    def abort(self, exit_code: int) -> None:
        self._inner.abort(exit_code)


class _RecordingReporter(TracebackReporter):
    """Reports exceptions of the task as a real job does, and records the first."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def explain(self, error: BaseException, doing: str) -> str:
        self._watch.error = self._watch.error or error
        return super().explain(error, doing)

    def late(self, rank: int, reason: str, code: int) -> None:
        """Ignore a late failure, because the outcome already has a reason."""


class SimRank(Rank[I, R]):
    """A `Rank` in the simulator."""

    def __init__(
        self,
        rank_fibers: RankFibers,
        task: Task[I, R],
        settings: EngineSettings,
        observer: RecordingObserver[R] | None,
        watch: Watch,
        rng: Random,
    ) -> None:
        self._rank_fibers, self._watch, self._rng = rank_fibers, watch, rng
        self._items: dict[int, I] = {}  # by ticket
        super().__init__(
            _Transport(rank_fibers), task, settings, observer, mishaps=_RecordingReporter(watch)
        )
        self._inspector = Inspector(watch, self._codec)

    def play(self, stopped_s: float | None) -> int:
        """Run the rank's loop on the main thread; return the exit code.

        The rank receives SIGINT at `stopped_s`, unless that is None.
        """
        rank_fibers = self._rank_fibers
        signals = Signals(rank_fibers.wake)

        def interrupt() -> None:
            rank_fibers.pause(stopped_s or 0.0)
            signals.pending = SIGINT
            self._trace("is interrupted")
            rank_fibers.wake()

        if stopped_s is not None:
            rank_fibers.begin(interrupt)
        try:
            code = self.run(signals)
        except Defect as error:
            self._watch.error = self._watch.error or error.__cause__
            code = error.exit_code
            rank_fibers.transport.abort(code)
        self._trace(f"ends with {code}")
        rank_fibers.transport.close()
        return code

    def _trace(self, text: str) -> None:
        if self._watch.trace is not None:
            self._watch.tell(self._rank_fibers.transport.now_s, self._transport.rank, text)

    # ---- parts of a rank ---------------------------------------------------------

    def _workers(self, threads: int) -> WorkerPool:
        return SimPool(self._rank_fibers, self._transport.wake, threads)

    def _random(self) -> Random:
        return self._rng

    def _new_line(self) -> WorkerChannel[I, R]:
        pool, engine = self._pool, self._engine
        formatters = self._task.line_of, self._codec.encode_notice
        stops = self._is_stopping
        line = SimWorkerChannel(pool, engine, self._perform, time.monotonic, stops, *formatters)
        self._sim_line = line.begin(self._rank_fibers, self._spawned)
        return line

    def held(self) -> list[I]:
        """Return the items that are held."""
        holds = self._sim_line.holds
        return [self._items[ticket] for ticket, count in holds.items() if count > 0]

    # ---- actions -------------------------------------------------------------------

    def _spawned(self, items: Sequence[I]) -> None:
        if self._watch.trace is not None:
            self._trace(f"spawns {', '.join(map(short, items))}")
        self._inspector.made(items)

    def _process(self, item: I, context: Context[I]) -> object:
        if self._stopping:
            return None
        self._watch.done(self._transport.rank)
        self._items[context.ticket] = item
        self._inspector.begun(item)
        self._trace(f"processes {short(item)}")
        value = super()._process(item, context)
        self._trace(f"has processed {short(item)}: {short(value)}")
        # If an item has spawned others, its own value is passed only to its join.
        if not (self._is_stopping() or (context.spawned and self._task.structured)):
            self._inspector.ended(value)
        return value

    def _join(self, item: I, own: object, merged: R, context: Context[I]) -> R:
        self._trace(f"joins {short(item)}: {short(own)} and {short(merged)}")
        spawned = context.spawned
        value = super()._join(item, own, merged, context)
        if context.spawned == spawned:
            self._inspector.ended(value)
        return value

    def _undo(self, item: I, own: object) -> None:
        self._trace(f"abandons {short(item)}")
        super()._undo(item, own)

    def _merge(self, a: R, b: R) -> R:
        self._watch.merging(self._task, a, b)
        return super()._merge(a, b)

    def _send(self, send: Send) -> None:
        if self._watch.trace is not None:
            self._trace(f"{described(send.message)} -> rank {send.dest}")
        super()._send(send)

    def _arrived(self, arrival: Delivery | LostRank) -> None:
        if isinstance(arrival, LostRank):
            self._trace(f"hears that rank {arrival.rank} is lost")
        super()._arrived(arrival)


_IMMUTABLE = (int, float, complex, bool, str, bytes, tuple, frozenset, type(None), type, range)
_CODE = (FunctionType, ModuleType, staticmethod, classmethod, property, type)
_Look = Callable[[], object]


class SharedState:
    """A snapshot of the state that the tasks of a job share."""

    def __init__(self, tasks: Sequence[Task[I, R]], may_change: Collection[str]) -> None:
        self._looks = dict(_of_instances(tasks))
        for task in tasks[:1]:
            self._looks.update(_of_class(type(task)))
        for name in list(self._looks):
            if name in may_change or name.rpartition(".")[2] in may_change:
                del self._looks[name]
        self._before = {name: _fingerprint(look) for name, look in self._looks.items()}

    def changed(self) -> list[str]:
        """Return the names of the state that differs from the snapshot."""
        return sorted(
            name
            for name, look in self._looks.items()
            if self._before[name] is not None and _fingerprint(look) != self._before[name]
        )


def _fingerprint(look: _Look) -> bytes | None:
    try:
        return pickle.dumps(look())
    except Exception:
        return None  # cannot be compared


def _of_instances(tasks: Sequence[Task[I, R]]) -> Iterator[tuple[str, _Look]]:
    """Yield the mutable objects that the first two tasks share as attributes."""
    if len(tasks) < 2:
        return
    first, other = vars(tasks[0]), vars(tasks[1])
    for name, value in first.items():
        if value is other.get(name) and not isinstance(value, (*_IMMUTABLE, *_CODE)):
            yield f"self.{name}", _same(value)


def _of_class(kind: type) -> Iterator[tuple[str, _Look]]:
    for base in kind.__mro__:
        if base.__module__.partition(".")[0] in ("pcircle", "builtins", "typing", "abc"):
            continue
        for name, value in list(vars(base).items()):
            if isinstance(value, FunctionType):
                yield from _of_function(value, set())
            elif not (name.startswith(("__", "_abc_")) or isinstance(value, _CODE)):
                yield f"{base.__name__}.{name}", _attribute(base, name)


def _of_function(function: FunctionType, seen: set[CodeType]) -> Iterator[tuple[str, _Look]]:
    """Yield the state that a function and the functions that it uses can change.

    These are globals, closure variables and mutable default values.
    """
    if function.__code__ in seen:
        return
    seen.add(function.__code__)
    for number, value in enumerate(function.__defaults__ or ()):
        if not isinstance(value, (*_IMMUTABLE, *_CODE)):
            yield f"default {number + 1} of {function.__qualname__}", _same(value)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            value = cell.cell_contents
        except ValueError:
            continue  # the variable is not assigned yet
        yield from _of_value(name, value, _content(cell), seen)
    module = function.__globals__
    for name in _names(function.__code__):
        if name in module:
            look = _entry(module, name)
            yield from _of_value(name, module[name], look, seen)


def _of_value(
    name: str, value: object, look: _Look, seen: set[CodeType]
) -> Iterator[tuple[str, _Look]]:
    if isinstance(value, FunctionType):
        if _is_users(value):
            yield from _of_function(value, seen)
    elif not isinstance(value, _CODE) and not isinstance(value, Task):
        yield name, look


def _is_users(function: FunctionType) -> bool:
    top = (function.__module__ or "").partition(".")[0]
    return top != "pcircle" and top not in sys.stdlib_module_names


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _same(value: object) -> _Look:
    return lambda: value


def _content(cell: CellType) -> _Look:
    return lambda: cell.cell_contents


def _attribute(owner: type, name: str) -> _Look:
    return lambda: vars(owner).get(name)


def _entry(module: dict[str, object], name: str) -> _Look:
    return lambda: module.get(name)
