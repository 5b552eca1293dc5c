"""What a user of the engine writes: a task.

A task says what the work begins with (`seed`), what one item comes to and
which further items it makes (`process`), how two results become one
(`merge`), and what is to be done when all that an item spawned is complete
(`join`). Where items run, how they travel and when all is done is the
engine's affair. After LaFon et al. 2012, whose library had create and
process callbacks; joins are ours.

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
from pcircle.transport._exit import say

if TYPE_CHECKING:  # only jobs of very many ranks have one
    from pcircle.runtime.summary import Summary

I = TypeVar("I")  # noqa: E741 - item
R = TypeVar("R")  # result

_NAMELESS = (TypeVar, ForwardRef)  # for these a class says no type, or none that exists yet


class Work(NamedTuple):
    """How much was done, on names and on their content, in one unit, whatever it is."""

    metadata: float = 0.0
    data: float = 0.0

    @property
    def all(self) -> float:
        """Both together."""
        return self.metadata + self.data


class Line(Protocol):
    """What a rank's worker can have said to its engine, from the worker's thread."""

    def spawn(self, ticket: int, items: Sequence[Any]) -> None:
        """The item has made these."""

    def post(self, ticket: int, rank: int, items: Sequence[Any]) -> None:
        """The item has made these for that rank."""

    def hold(self, ticket: int, epoch: int) -> None:
        """The item is to be resumed before it is complete; with `epoch`, at its commit."""

    def resume(self, ticket: int, items: Sequence[Any], value: Any, epoch: int) -> None:
        """The held item makes these and one hold, for that epoch, ends with this result."""

    def note(self, notices: Sequence[Any]) -> None:
        """Rank 0 is to be told these."""

    def note_synced(self, notices: Sequence[Any]) -> bool:
        """Rank 0 is to record these; waits until that is done. False if it never will be."""

    def is_stopping(self) -> bool:
        """The job stops early."""

    def is_hungry(self) -> bool:
        """Somebody waits for work that this rank could give."""


class Context(Generic[I]):
    """An item's surroundings while it is processed; used on the worker thread.

    `spawn` and `note` may be called any number of times, the sooner the
    better: what is spawned can be stolen at once. `ticket` is the item's name
    on this rank, as `resume` wants it.
    """

    __slots__ = ("is_hungry", "is_stopping", "line", "spawned", "ticket")

    def __init__(self, ticket: int, line: Line) -> None:
        self.ticket = ticket
        self.spawned = 0
        self.is_stopping = line.is_stopping
        self.is_hungry = line.is_hungry
        self.line = line

    def spawn(self, items: Sequence[I]) -> None:
        """Make more items: children of this one. `spawned` counts them."""
        if items:
            self.spawned += len(items)
            self.line.spawn(self.ticket, items)

    def post(self, rank: int, items: Sequence[I]) -> None:
        """Make more items, which that rank alone can process; keep them short."""
        if items:
            self.spawned += len(items)
            self.line.post(self.ticket, rank, items)

    def hold(self, epoch: int = 0) -> None:
        """Don't complete before `resume` is called with this ticket: once for each hold.

        With `epoch` that will be when it is committed, which is then hurried on.
        """
        self.spawned += 1
        self.line.hold(self.ticket, epoch)

    def resume(self, ticket: int, items: Sequence[I], value: Any, epoch: int = 0) -> None:
        """End a hold of an item of this rank: it makes `items`, and gets a result.

        From any thread and at any time; `epoch` as the hold was given.
        """
        self.line.resume(ticket, items, value, epoch)

    def note(self, notices: Sequence[Any]) -> None:
        """Have rank 0 told something now."""
        if notices:
            self.line.note(notices)

    def note_synced(self, notices: Sequence[Any]) -> bool:
        """Have rank 0 told something, and wait until `Observer.sync` has brought it to disk.

        False if that can't be done or the job stops: then what was told of must not be done.
        """
        return not notices or self.line.note_synced(notices)

    @property
    def stopping(self) -> bool:
        """The job stops early: leave things tidy and return soon; the result is not used."""
        return self.is_stopping()


class Task(ABC, Generic[I, R]):
    """The work of a job. Subclass as `Task[Item, Result]`.

    Item and Result say how these travel between ranks: types that msgspec can
    encode (numbers, bytes, tuples, Structs, unions of tagged Structs) are
    short on the way, and checked. What is of another type, or of a class that
    says none (`class Walk(Task)`), is pickled. So are notices, unless
    `notice_type` says what they are.

    With `structured` each item has a
    join, so completion is known item by item; without, results merge rank by
    rank, which saves a message for every stolen item. An exception that
    leaves one of the methods ends the job: a `PcircleError` with its exit
    code, any other as a defect. What concerns one entry alone is a result.
    """

    structured: ClassVar[bool] = True
    notice_type: ClassVar[Any] = Any
    threads: int | None = 1
    """How many worker threads process items at once on a rank; None: adaptive.

    More than one is for tasks whose items wait; each has a part of the task, see `part`.
    """

    max_threads: int = 64
    """How many there may be at the most."""

    line_of: Callable[[Any], bytes] | None = None
    """What the job's log has of a notice, perhaps nothing; None: there is no log.

    Called on the worker thread that tells, so that each rank makes the lines of its own notices.
    """

    epoch_period_s: float | None = None
    """Seconds between epochs, see `pcircle.circle.epochs`; None: there are none."""

    @abstractmethod
    def seed(self) -> Iterable[I]:
        """On rank 0: the items to begin with."""

    @abstractmethod
    def process(self, item: I, context: Context[I]) -> Any:
        """Do one item, on a worker thread of whichever rank has it.

        Returns the item's result; or, if it spawned in a structured task,
        anything at all: `join` gets it on the same rank.
        """

    def join(self, item: I, own: Any, merged: R, context: Context[I]) -> R:
        """All that `item` spawned is complete: its result, of its `own` and its children's.

        Runs on a worker thread of the rank that processed the item; may note and resume
        other items. If it spawns, what it returns is `own` of another call, with the results
        of what it spawned, and the item is complete after that.
        """
        return self.merge(own, merged)

    @abstractmethod
    def merge(self, a: R, b: R) -> R:
        """Two results as one; associative and commutative."""

    def portable(self, result: R) -> R:
        """A result for another rank, with all of it that is kept on this one, as in a file.

        Called on the main thread, before it is sent.
        """
        return result

    def abandon(self, item: I, own: Any) -> None:
        """The job stops early: undo what `item` began and its `join` would have ended."""

    def seal(self, epoch: int) -> None:
        """What is done from now on is of a later epoch; called on the main thread.

        An item that is at work is of the epoch in which it ends.
        """

    def sync(self, epoch: int) -> None:
        """Bring to disk what was done here in `epoch` and before; on a thread of its own."""

    def commit(self, epoch: int) -> None:
        """All that was done in `epoch` and before is on disk, on all ranks; as of `sync`."""

    def part(self, number: int) -> Task[I, R]:
        """What worker thread `number` calls `process`, `join` and `abandon` of; 0 is the task.

        Called on the worker thread, once. Parts are called at the same time, each by its own
        thread, and items pass from one to the other. Everything else is asked of the task.
        """
        if number:
            raise NotImplementedError("this task has one part")
        return self

    def work(self) -> Work:
        """How much was done on this rank so far; what pays is judged by it.

        Called on the main thread while threads are at work.
        """
        return Work()

    def finish(self) -> R | None:
        """All work of the job has ended, and ended well: hand over what this rank has kept.

        Called on the main thread, before this rank's account is taken. What it
        returns is merged, up the tree, into the job's result.
        """
        return None

    def measure(self) -> ProgressSums:
        """This rank's counters for the progress rounds; called on the main thread."""
        return ProgressSums(ranks=1)

    def figures(self, counts: tuple[int, ...]) -> Mapping[str, int]:
        """What a summary of many ranks tells of one that has counted this, by name.

        Besides what the engine counts of itself; names of times in microseconds end with `_us`.
        """
        return {}


def wire_types(task: type[Task[Any, Any]]) -> tuple[Any, Any]:
    """The Item and the Result that a task class was subclassed with; Any where it does not say."""
    for ancestor in task.__mro__:
        for base in getattr(ancestor, "__orig_bases__", ()):
            arguments = get_args(base)
            if len(arguments) == 2 and not all(isinstance(a, TypeVar) for a in arguments):
                item, result = (Any if isinstance(a, _NAMELESS) else a for a in arguments)
                return item, result
    return Any, Any


class RankReport(msgspec.Struct, frozen=True, array_like=True, tag="r"):
    """What one rank tells of itself at the end.

    `rates` say how much work (`Task.work`) per second was done, on metadata or data, with each
    number of threads that was tried. `sent` are the messages and their bytes by receiver, the first
    rank of a block of `sent_block` ranks: where there are many ranks, they are summed by block.
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
        """What a summary of many ranks tells of this one, as of `Task.figures`."""
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
    """How a job ended, as rank 0 knows it.

    `code` is the exit code as far as the engine can tell; `reasons` say why
    it stopped early; `silent` are ranks that could not be heard at the end;
    `result` is the merged result, None if there is none. Of more than
    `Settings.rank_rows` ranks there are no `reports`, but a `summary`.
    """

    code: int
    reasons: tuple[str, ...]
    silent: tuple[int, ...]
    reports: tuple[RankReport, ...]
    result: R | None
    summary: Summary | None = None

    @property
    def counts(self) -> tuple[tuple[int, ...], ...]:
        """Rows of counts, which together are those of all ranks that were heard."""
        if self.summary is not None:
            return (self.summary.counts,)
        return tuple(report.counts for report in self.reports)


class Observer(Generic[R]):
    """Rank 0's ears: what a front end does with a job's news.

    The default says notices, and why a job stopped early, on standard error.
    """

    period_s: float | None = None
    """Seconds between progress rounds; None: none are held."""

    def show(self, sums: ProgressSums) -> None:
        """A progress round has ended."""

    def status(self, sums: ProgressSums) -> None:
        """Somebody has asked how far the job is; this is the round that was held for that."""

    def suspend(self) -> None:
        """The process is about to be stopped: leave the terminal to others."""

    def resume(self, stopped_s: float) -> None:
        """It goes on, after so long."""

    def log(self, lines: bytes) -> None:
        """What the job's log has of the notices that come next, see `Task.line_of`."""

    def notice(self, source: int, values: Sequence[Any]) -> None:
        """Notices of a rank have come."""
        for value in values:
            print(value, file=sys.stderr)

    def sync(self) -> None:
        """Bring to disk what was made of notices, since ranks wait until theirs are recorded."""

    def conclude(self, outcome: Outcome[R]) -> int:
        """The job has ended: report, and say the exit code that all ranks end with."""
        for reason in outcome.reasons:
            say(reason)
        if outcome.silent:
            names = ", ".join(map(str, outcome.silent))
            say(f"not heard from at the end: rank {names} and its subtree")
        return outcome.code
