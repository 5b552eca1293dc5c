"""Tasks: what a user of the engine writes.

A task defines the initial items of a job (`seed`), the processing of one item, which may spawn
further items (`process`), the merging of two results (`merge`), and what to do when everything that
an item spawned is complete (`join`). The engine decides where items run and how they travel, and
detects completion. The library of LaFon et al. 2012 had create and process callbacks; joins are an
addition.

    class Walk(Task[bytes, int]):
        def seed(self): return [b"/usr"]
        def process(self, path, context): ...; context.spawn(subdirectories); return files
        def merge(self, a, b): return a + b
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    ForwardRef,
    Generic,
    NamedTuple,
    Protocol,
    TypeVar,
    get_args,
)

import msgspec

from pcircle.circle import ProgressSums
from pcircle.transport._exit import print_error

if TYPE_CHECKING:  # only very large jobs have one
    from pcircle.runtime.summary import Summary

I = TypeVar("I")  # noqa: E741 - item
I_contra = TypeVar("I_contra", contravariant=True)
R = TypeVar("R")  # result

_NAMELESS = (
    TypeVar,
    ForwardRef,
)  # of these a class declares no type yet


class Work(NamedTuple):
    """The amount of work done on names and on contents, in one unit of the task's choice."""

    metadata: float = 0.0
    data: float = 0.0

    @property
    def all(self) -> float:
        """The sum of both."""
        return self.metadata + self.data


class EngineChannel(Protocol[I_contra]):
    """The connection of a context to the engine, used on the worker thread."""

    def spawn(self, ticket: int, items: Sequence[I_contra]) -> None:
        """Add items that the item has created."""

    def post(self, ticket: int, rank: int, items: Sequence[I_contra]) -> None:
        """Add items that the item has created for one rank."""

    def hold(self, ticket: int, epoch: int) -> None:
        """Hold the item open until `resume`; with `epoch`, until that epoch is committed."""

    def resume(self, ticket: int, items: Sequence[I_contra], value: object, epoch: int) -> None:
        """End one hold of an item, with new items and a result; `epoch` as for the hold."""

    def note(self, notices: Sequence[object]) -> None:
        """Send notices to rank 0."""

    def note_synced(self, notices: Sequence[object]) -> bool:
        """Send notices and wait until rank 0 has recorded them; False if it never will."""
        ...

    def is_stopping(self) -> bool:
        """Return whether the job stops early."""
        ...

    def has_idle_workers(self) -> bool:
        """Return whether another worker waits for work that this rank could give."""
        ...


class Context(Generic[I_contra]):
    """The interface of an item to its job while it is processed; used on the worker thread.

    `spawn` and `note` may be called any number of times. Early calls are better: spawned items can
    be stolen at once. `ticket` identifies the item on this rank, for `resume`.
    """

    __slots__ = ("has_idle_workers", "is_stopping", "line", "spawned", "ticket")

    def __init__(self, ticket: int, line: EngineChannel[I_contra]) -> None:
        self.ticket = ticket
        self.spawned = 0
        self.is_stopping = line.is_stopping
        self.has_idle_workers = line.has_idle_workers
        self.line = line

    def spawn(self, items: Sequence[I_contra]) -> None:
        """Create child items of this item. `spawned` counts them."""
        if items:
            self.spawned += len(items)
            self.line.spawn(self.ticket, items)

    def post(self, rank: int, items: Sequence[I_contra]) -> None:
        """Create child items that only `rank` can process; keep them short."""
        if items:
            self.spawned += len(items)
            self.line.post(self.ticket, rank, items)

    def hold(self, epoch: int = 0) -> None:
        """Don't complete this item before `resume` is called with its ticket, once per hold.

        With `epoch` the item waits for the commit of that epoch, which is then accelerated.
        """
        self.spawned += 1
        self.line.hold(self.ticket, epoch)

    def resume(self, ticket: int, items: Sequence[I_contra], value: object, epoch: int = 0) -> None:
        """End one hold of an item of this rank, with new `items` and a result.

        May be called on any thread and at any time; `epoch` must be that of the hold.
        """
        self.line.resume(ticket, items, value, epoch)

    def note(self, notices: Sequence[object]) -> None:
        """Send notices to rank 0 without delay."""
        if notices:
            self.line.note(notices)

    def note_synced(self, notices: Sequence[object]) -> bool:
        """Send notices to rank 0 and wait until `Observer.sync` has written them to disk.

        Returns False if that fails or the job stops; then the actions that they announce must not
        be done.
        """
        return not notices or self.line.note_synced(notices)

    @property
    def stopping(self) -> bool:
        """Return whether the job stops early.

        Then leave a consistent state and return soon; the result is not used.
        """
        return self.is_stopping()


class Task(ABC, Generic[I, R]):
    """The work of a job. Subclass as `Task[Item, Result]`.

    Item and Result declare how these values travel between ranks. Types that msgspec can encode
    (numbers, bytes, tuples, Structs, unions of tagged Structs) are compact and checked. Values of
    other types, or of a class that declares none (`class Walk(Task)`), are pickled. So are notices,
    unless `notice_type` declares their type.

    With `structured` each item has a join, so completion is known item by item. Otherwise results
    are merged rank by rank, which saves a message per stolen item. An exception that leaves a
    method ends the job: a `PcircleError` with its exit code, any other exception as a defect. A
    failure of a single entry is a result, not an exception.
    """

    structured: ClassVar[bool] = True
    notice_type: ClassVar[object] = Any
    threads: int | None = 1
    """The number of worker threads that process items on a rank; None: adaptive.

    Several threads are for tasks whose items wait; each has a part of the task, see `part`.
    """

    max_threads: int = 64
    """The maximum number of worker threads."""

    line_of: Callable[[Any], bytes] | None = None
    """Returns the line of a notice in the job's log, possibly empty; None: there is no log.

    Called on the worker thread that sends the notice, so that each rank formats its own lines.
    """

    epoch_period_s: float | None = None
    """Seconds between epochs, see `pcircle.circle.epochs`; None: no epochs."""

    @abstractmethod
    def seed(self) -> Iterable[I]:
        """On rank 0: return the initial items."""

    @abstractmethod
    def process(self, item: I, context: Context[I]) -> Any:
        """Process one item, on a worker thread of the rank that has it.

        Returns the item's result; or, if it spawned in a structured task, any value, which `join`
        receives on the same rank.
        """

    def join(self, item: I, own: Any, merged: R, context: Context[I]) -> R:
        """Return the result of an item whose spawned items are complete.

        `own` is what `process` returned, `merged` the merged result of the children. Runs on a
        worker thread of the rank that processed the item; may send notices and resume other items.
        If it spawns, what it returns is `own` of another call, with the results of the new
        children, and the item is complete after that.
        """
        return self.merge(own, merged)

    @abstractmethod
    def merge(self, a: R, b: R) -> R:
        """Merge two results; must be associative and commutative."""

    def portable(self, result: R) -> R:
        """Return a result for another rank, including everything that is stored on this rank.

        That may be in a file, for example. Called on the main thread, before the result is sent.
        """
        return result

    def abandon(self, item: I, own: Any) -> None:
        """Undo what `item` began and its `join` would have finished; the job stops early."""

    def seal(self, epoch: int) -> None:
        """Assign work that is done from now on to a later epoch; called on the main thread.

        An item that is running belongs to the epoch in which it ends.
        """

    def sync(self, epoch: int) -> None:
        """Flush this rank's work up to `epoch` to disk; called on a thread of its own."""

    def commit(self, epoch: int) -> None:
        """Note that all ranks' work up to `epoch` is on disk; called on the thread of `sync`."""

    def part(self, number: int) -> Task[I, R]:
        """Return the object whose `process`, `join` and `abandon` worker thread `number` calls.

        Number 0 is the task itself. Called once on each worker thread. The parts run at the same
        time, each on its own thread, and items pass between them. All other methods are called on
        the task.
        """
        if number:
            raise NotImplementedError("this task has one part")
        return self

    def work(self) -> Work:
        """Return the amount of work done on this rank so far, to compare numbers of threads.

        Called on the main thread while worker threads run.
        """
        return Work()

    def finish(self) -> R | None:
        """Return a last contribution of this rank to the result, after all work has ended well.

        Called on the main thread, before this rank gives its account. The value is merged, up the
        tree, into the job's result.
        """
        return None

    def measure(self) -> ProgressSums:
        """Return this rank's counters for progress rounds; called on the main thread."""
        return ProgressSums(ranks=1)

    def keep_for_restart(self) -> None:
        """Keep what the next run of the same plan needs when this one is closed."""

    def figures(self, counts: tuple[int, ...]) -> Mapping[str, int]:
        """Return figures by name, for the summary of many ranks, of a rank that has these counts.

        They are in addition to the engine's own. Names of times in microseconds end in `_us`.
        """
        return {}


def wire_types(task: type[Task[I, R]]) -> tuple[object, object]:
    """Return Item and Result of a task class; Any where it does not declare them."""
    for ancestor in task.__mro__:
        for base in getattr(ancestor, "__orig_bases__", ()):
            arguments = get_args(base)
            if len(arguments) == 2 and not all(isinstance(a, TypeVar) for a in arguments):
                item, result = (Any if isinstance(a, _NAMELESS) else a for a in arguments)
                return item, result
    return Any, Any


class RankReport(msgspec.Struct, frozen=True, array_like=True, tag="r"):
    """One rank's report at the end of a job.

    `rates` has the work (`Task.work`) per second, on metadata or data, for each number of threads
    that was tried. `sent` has the number and bytes of messages by receiver, as the first rank of a
    block of `sent_block` ranks: in a large job they are summed by block.
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
        """Return this rank's figures for a summary of many ranks, as in `Task.figures`."""
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

    `code` is the exit code as known to the engine; `reasons` explain why the job stopped early;
    `silent` are ranks that did not answer at the end; `result` is the merged result, or None. In a
    job of more than `EngineSettings.rank_rows` ranks there are no `reports`, but a `summary`.
    """

    code: int
    reasons: tuple[str, ...]
    silent: tuple[int, ...]
    reports: tuple[RankReport, ...]
    result: R | None
    summary: Summary | None = None

    @property
    def counts(self) -> tuple[tuple[int, ...], ...]:
        """Rows of counts that together cover all ranks that answered."""
        if self.summary is not None:
            return (self.summary.counts,)
        return tuple(report.counts for report in self.reports)


class TimeLimit(NamedTuple):
    """The time at which rank 0 stops a job early, as a signal would, and the reason to report.

    `at_s` is a time of the monotonic clock.
    """

    at_s: float
    reason: str


class Observer(Generic[R]):
    """Rank 0's view of a job: receives its progress, notices and outcome.

    By default notices, and the reasons why a job stopped early, are printed on standard error.
    """

    period_s: float | None = None
    """Seconds between progress rounds; None: no rounds."""

    def show(self, sums: ProgressSums) -> None:
        """Display the result of a progress round."""

    def status(self, sums: ProgressSums) -> None:
        """Print the job's progress on request; a round was held for this."""

    def suspend(self) -> None:
        """Restore the terminal, because the process is about to be suspended."""

    def resume(self, stopped_s: float) -> None:
        """Continue after a suspension of `stopped_s` seconds."""

    def log(self, lines: bytes) -> None:
        """Write lines to the job's log, before `notice` with the same notices (`Task.line_of`)."""

    def notice(self, source: int, values: Sequence[Any]) -> None:
        """Process notices of a rank."""
        for value in values:
            print(value, file=sys.stderr)

    def sync(self) -> None:
        """Flush records of notices to disk: ranks wait for this."""

    def conclude(self, outcome: Outcome[R]) -> int:
        """Report the end of the job and return the exit code of all ranks."""
        for reason in outcome.reasons:
            print_error(reason)
        if outcome.silent:
            names = ", ".join(map(str, outcome.silent))
            print_error(f"not heard from at the end: rank {names} and its subtree")
        return outcome.code
