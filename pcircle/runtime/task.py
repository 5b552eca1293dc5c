"""The interface between the engine and its users: tasks, contexts and observers.

A task defines the initial items of a job (`seed`), and how an item is processed and spawns further
items (`process`). It also defines how two results are merged (`merge`), and what to do when
everything that an item spawned is complete (`join`). The engine distributes the items and detects
completion. The library of LaFon et al. (2012) had create and process callbacks; joins are an
addition.

    class Walk(Task[bytes, int]):
        def seed(self): return [b"/usr"]
        def process(self, path, context): ...; context.spawn(subdirectories); return files
        def merge(self, a, b): return a + b
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    ForwardRef,
    Generic,
    Protocol,
    TypeVar,
    get_args,
)

import msgspec

from pcircle.circle import ProgressSums
from pcircle.core.writing import standard_error
from pcircle.threads.thread_tuning import Work
from pcircle.transport._exit import print_error

if TYPE_CHECKING:  # only very large jobs have a summary
    from pcircle.runtime.summary import Summary

I = TypeVar("I")  # noqa: E741 - item
I_contra = TypeVar("I_contra", contravariant=True)
R = TypeVar("R")  # result

_NAMELESS = (
    TypeVar,
    ForwardRef,
)  # arguments of a base class that do not declare a type


class EngineChannel(Protocol[I_contra]):
    """The connection of a context to the engine, used on the worker thread."""

    def spawn(self, ticket: int, items: Sequence[I_contra]) -> None:
        """Add the child items of an item."""

    def post(self, ticket: int, rank: int, items: Sequence[I_contra]) -> None:
        """Add child items, which only `rank` processes, to an item."""

    def hold(self, ticket: int, epoch: int) -> None:
        """Keep an item incomplete until `resume`; if `epoch` is not 0, it awaits that commit."""

    def resume(self, ticket: int, items: Sequence[I_contra], value: object, epoch: int) -> None:
        """End one hold of an item, with new items and a result; `epoch` is that of the hold."""

    def note(self, notices: Sequence[object]) -> None:
        """Send notices to rank 0."""

    def note_synced(self, notices: Sequence[object]) -> bool:
        """Send notices and wait until rank 0 has recorded them; return False if it never will."""
        ...

    def is_stopping(self) -> bool:
        """Return whether the job is stopping early."""
        ...

    def has_idle_workers(self) -> bool:
        """Return whether any worker seems to be waiting for work, and none is queued here."""
        ...


class Context(Generic[I_contra]):
    """The interface that `process` and `join` use on the worker thread to act on the job.

    `spawn` and `note` may be called any number of times. Early calls are better, because spawned
    items can be stolen at once. `ticket` identifies the item on this rank for `resume`.
    """

    __slots__ = ("has_idle_workers", "is_stopping", "line", "spawned", "ticket")

    def __init__(self, ticket: int, line: EngineChannel[I_contra]) -> None:
        self.ticket: int = ticket
        self.spawned: int = 0
        self.is_stopping: Callable[[], bool] = line.is_stopping
        self.has_idle_workers: Callable[[], bool] = line.has_idle_workers
        self.line: EngineChannel[I_contra] = line

    def spawn(self, items: Sequence[I_contra]) -> None:
        """Create child items of this item; `spawned` counts them."""
        if items:
            self.spawned += len(items)
            self.line.spawn(self.ticket, items)

    def post(self, rank: int, items: Sequence[I_contra]) -> None:
        """Create child items that only `rank` processes; they must not take long."""
        if items:
            self.spawned += len(items)
            self.line.post(self.ticket, rank, items)

    def hold(self, epoch: int = 0) -> None:
        """Keep this item incomplete until `resume` is called with its ticket, once for each hold.

        If `epoch` is given, the item is waiting for the commit of that epoch, so the engine commits
        sooner.
        """
        self.spawned += 1
        self.line.hold(self.ticket, epoch)

    def resume(self, ticket: int, items: Sequence[I_contra], value: object, epoch: int = 0) -> None:
        """End one hold of an item of this rank, with new `items` and a result.

        This may be called on any thread at any time; `epoch` must be that of the hold.
        """
        self.line.resume(ticket, items, value, epoch)

    def note(self, notices: Sequence[object]) -> None:
        """Send notices to rank 0, without waiting for the item to end."""
        if notices:
            self.line.note(notices)

    def note_synced(self, notices: Sequence[object]) -> bool:
        """Send notices to rank 0 and wait until `Observer.sync` has written them to disk.

        Return False if that fails or the job is stopping. In this case the actions that the notices
        announce must not be performed.
        """
        return not notices or self.line.note_synced(notices)

    @property
    def stopping(self) -> bool:
        """Return whether the job is stopping early.

        In this case leave a consistent state and return soon; the result will not be used.
        """
        return self.is_stopping()


class Task(ABC, Generic[I, R]):
    """The work of a job. Subclasses derive from `Task[Item, Result]`.

    The types Item and Result determine how these values are sent between ranks. Values of types
    that msgspec can encode (numbers, bytes, tuples, Structs, unions of tagged Structs) are compact
    and checked. Values of other types, or of undeclared types (`class Walk(Task)`), are pickled. So
    are notices, unless `notice_type` declares their type.

    With `structured`, each item that spawned is joined, so the completion of each item is known.
    Otherwise each rank merges the results of the items that it processed, so results of stolen
    items are not sent back. An exception that leaves a method ends the job: a `PcircleError` with
    its exit code, any other exception as a defect. The failure of a single entry must be a result,
    not an exception.
    """

    structured: ClassVar[bool] = True
    notice_type: ClassVar[object] = Any
    threads: int | None = 1
    """The number of worker threads that process items on a rank (None: adaptive).

    Several threads help if items wait for I/O. Each thread has its own part of the task, see
    `part`.
    """

    max_threads: int = 64
    """The maximum number of worker threads on a rank."""

    line_of: Callable[[Any], bytes] | None = None
    """Returns the line, possibly empty, of a notice in the job's log (None: the job has no log).

    It is called on the worker thread that sends the notice, so that each rank formats its own
    lines.
    """

    epoch_period_s: float | None = None
    """Seconds between epochs, see `pcircle.circle.rounds` (None: no epochs)."""

    @abstractmethod
    def seed(self) -> Iterable[I]:
        """On rank 0: return the initial items."""

    @abstractmethod
    def process(self, item: I, context: Context[I]) -> Any:
        """Process one item on a worker thread.

        Return the item's result. If the item spawned in a structured task, return any value
        instead; `join` receives it on the same rank.
        """

    def join(self, item: I, own: Any, merged: R, context: Context[I]) -> R:
        """Return the result of an item whose spawned items are complete.

        `own` is the value that `process` returned, and `merged` is the merged result of the
        children. This is called on a worker thread of the rank that processed the item, and may
        send notices and resume other items. If it spawns, it is called again with the results of
        the new children, and its return value becomes `own`.
        """
        return self.merge(own, merged)

    @abstractmethod
    def merge(self, a: R, b: R) -> R:
        """Merge two results; must be associative and commutative."""

    def portable(self, result: R) -> R:
        """Return a result for another rank, including data that is stored only on this rank.

        Such data may be in a file, for example. Called on the main thread before the result is
        sent.
        """
        return result

    def send_reports(self, context: Context[I]) -> None:
        """Send the pending notices of work that an item did before a PcircleError ended it."""

    def abandon(self, item: I, own: Any) -> None:
        """Undo what `item` began, because the job is stopping early and will not join it."""

    def seal(self, epoch: int) -> None:
        """Assign all work from now on to a later epoch; called on the main thread.

        An item that is being processed belongs to the epoch in which it ends.
        """

    def sync(self, epoch: int) -> None:
        """Flush this rank's work up to `epoch` to disk; called on a separate thread."""

    def commit(self, epoch: int) -> None:
        """Record that all ranks' work up to `epoch` is on disk; called on the thread of `sync`."""

    def part(self, number: int) -> Task[I, R]:
        """Return the part of this task for worker thread `number`.

        The thread calls the part's `process`, `join` and `abandon`; all other methods are called on
        the task, which is itself part 0. This is called once on each worker thread. The parts run
        at the same time, and an item may be joined by a different part from the one that processed
        it.
        """
        if number:
            raise NotImplementedError("this task has one part")
        return self

    def work(self) -> Work:
        """Return the work done on this rank so far.

        Called on the main thread while worker threads are running, to compare numbers of threads.
        """
        return Work()

    def finish(self) -> R | None:
        """Return this rank's last contribution to the result, after all work has succeeded.

        Called on the main thread before this rank sends its account. The value is merged into the
        job's result.
        """
        return None

    def measure(self) -> ProgressSums:
        """Return this rank's counters for progress rounds; called on the main thread."""
        return ProgressSums(ranks=1)

    def keep_for_restart(self) -> None:
        """When this task is closed, keep the resources that the next run of the plan needs."""

    def figures(self, counts: tuple[int, ...]) -> Mapping[str, int]:
        """Return the figures of a rank with these counts, by name, for the summary of many ranks.

        The engine adds its own figures. Names of times in microseconds end in `_us`.
        """
        return {}


def wire_types(task: type[Task[I, R]]) -> tuple[object, object]:
    """Return the types Item and Result of a task class, or Any if it does not declare them."""
    for ancestor in task.__mro__:
        for base in getattr(ancestor, "__orig_bases__", ()):
            arguments = get_args(base)
            if len(arguments) == 2 and not all(isinstance(a, TypeVar) for a in arguments):
                item, result = (Any if isinstance(a, _NAMELESS) else a for a in arguments)
                return item, result
    return Any, Any


class RankReport(msgspec.Struct, frozen=True, array_like=True, tag="r"):
    """One rank's report at the end of a job.

    `rates` contains the work (`Task.work`) per second, on metadata or data, for each number of
    threads that was tried. `sent` contains the number and total size of messages by receiver. In a
    large job these are summed for blocks of `sent_block` ranks, identified by their first rank.
    """

    rank: int
    node: int
    counts: tuple[int, ...]
    items: int
    spawned: int
    steals_asked: int
    steals_got: int
    parcels_got: int
    messages: int
    message_bytes: int
    spilled: int
    cpu_s: float
    peak_rss_bytes: int
    threads: int = 1
    rates: tuple[tuple[str, int, float], ...] = ()
    sent: tuple[tuple[int, int, int], ...] = ()
    sent_block: int = 1

    def figures(self) -> dict[str, int]:
        """Return this rank's figures for a summary of many ranks, named as in `Task.figures`."""
        return {
            "threads": self.threads,
            "items": self.items,
            "steals_asked": self.steals_asked,
            "steals_got": self.steals_got,
            "messages": self.messages,
            "message_bytes": self.message_bytes,
            "spilled_items": self.spilled,
            "cpu_us": round(self.cpu_s * 1e6),
            "peak_rss_bytes": self.peak_rss_bytes,
        }


class Outcome(msgspec.Struct, Generic[R], frozen=True):
    """The outcome of a job, on rank 0.

    `code` is the exit code that the engine determined, and `reasons` explain why the job stopped
    early. `silent` are the ranks that did not answer at the end, and `result` is the merged result
    or None. A job of more than `EngineSettings.rank_rows` ranks has a `summary` instead of
    `reports`.
    """

    code: int
    reasons: tuple[str, ...]
    silent: tuple[int, ...]
    reports: tuple[RankReport, ...]
    result: R | None
    summary: Summary | None = None

    @property
    def counts(self) -> tuple[tuple[int, ...], ...]:
        """Rows of counts; their sum covers all ranks that answered."""
        if self.summary is not None:
            return (self.summary.counts,)
        return tuple(report.counts for report in self.reports)


class TimeLimit(msgspec.Struct, frozen=True):
    """The time at which rank 0 stops a job early, as if by a signal, and the reason to report.

    `at_s` is a time on the monotonic clock.
    """

    at_s: float
    reason: str


class Observer(Generic[R]):
    """Rank 0's view of a job: receives its progress, notices and outcome.

    By default, notices and the reasons why a job stopped early are printed on standard error.
    """

    period_s: float | None = None
    """Seconds between progress rounds (None: no rounds)."""

    def show(self, sums: ProgressSums) -> None:
        """Display the result of a progress round."""

    def status(self, sums: ProgressSums) -> None:
        """Print the job's progress, because a signal requested it."""

    def suspend(self) -> None:
        """Restore the terminal, because the process is about to be suspended."""

    def resume(self, stopped_s: float) -> None:
        """Continue after a suspension of `stopped_s` seconds."""

    def log(self, lines: bytes) -> None:
        """Write the lines of notices (`Task.line_of`) to the job's log; called before `notice`."""

    def notice(self, source: int, values: Sequence[Any]) -> None:
        """Process notices from a rank."""
        for value in values:
            print(value, file=standard_error())

    def sync(self) -> None:
        """Flush records of notices to disk. Ranks may be waiting for this."""

    def conclude(self, outcome: Outcome[R]) -> int:
        """Report the end of the job; return the exit code for all ranks."""
        for reason in outcome.reasons:
            print_error(reason)
        if outcome.silent:
            names = ", ".join(map(str, outcome.silent))
            print_error(f"no final response from rank {names} and its subtree")
        return outcome.code
