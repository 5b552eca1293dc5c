"""Tasks that process the entries of trees one by one, and their counters.

A tool derives from `TreeTask` and overrides a method for each kind of entry that it processes. With
the help of `pcircle.walk`, the base class opens directories, applies filters, divides the work
among ranks and threads, and counts results and failures. A tool that combines results by directory
(digests, sums) defines its own `Visitor`; see `docs/new-tool.rst`.

The counters are used for progress reports, for tuning the number of threads, and for the final
report.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, Protocol, TypeAlias, TypeVar

import msgspec

from pcircle.circle import ProgressSums
from pcircle.core.counters import CounterSet
from pcircle.core.encoding import show
from pcircle.core.errors import NoSpace, operand_error, require_type
from pcircle.fs.directories import (
    Directories,
    Lease,
    device_and_inode,
    inode_alone,
    join_path,
)
from pcircle.fs.entry_errors import Changed
from pcircle.fs.file_system import is_read_only
from pcircle.fs.open_flags import OPEN_FILE
from pcircle.jobs.failures import failure_of, stop_reason
from pcircle.runtime import Context, Work
from pcircle.threads.throttle import TurnTaking
from pcircle.walk.attributes import ANY, AttributeFilter
from pcircle.walk.globs import Rule
from pcircle.walk.items import UNREACHED, Batch, DirectoryIdentity, Portion, Tree, handed_back
from pcircle.walk.open_directory import ItemContext, Open
from pcircle.walk.roots import Root, open_roots, root_of, seeds
from pcircle.walk.visitor import Names, Visitor, Where, paced
from pcircle.walk.walker import Scope, Walker, WalkTask

if TYPE_CHECKING:
    from pcircle.fs.lists import Lists


ENTRY_COST_BYTES = 256 << 10


class WorkCounts(msgspec.Struct, frozen=True):
    """The known work of a job: the numbers of entries found, of known size, and done.

    `scanned` means that the walk has found all entries. `weight` estimates the share of the tree
    that was visited. `earlier` and `earlier_bytes` count the work of an earlier run. Bytes that
    cost no time are not counted as found.
    """

    found: int
    sized: int
    done: int
    bytes_found: int
    bytes_done: int
    scanned: bool
    weight: float
    earlier: int = 0
    earlier_bytes: int = 0

    @property
    def complete(self) -> bool:
        """Return whether all entries and their sizes are known, so that percentages are exact."""
        return self.scanned and self.sized == self.found


class WalkCounts(Protocol):
    """The interface of a walk's counters, see `EntryCounters`."""

    found: int
    scans_due: int
    scans_done: int
    files: int
    directories: int
    links: int
    special: int
    failed: int
    offline: int
    weight: float

    def row(self) -> tuple[int, ...]: ...
    @property
    def completed(self) -> int: ...
    @property
    def settled(self) -> int: ...


class SizedWalkCounts(WalkCounts, Protocol):
    """The interface of the counters of a walk that reads the contents of files."""

    names: ClassVar[tuple[str, ...]]
    sized: int
    bytes_found: int
    bytes_done: int


class _ReadableRow(SizedWalkCounts, Protocol):
    """Counters that can be created from a row."""

    @classmethod
    def of(cls: type[S], row: Iterable[int]) -> S: ...


S = TypeVar("S")


class DerivedCounts:
    """A mixin with figures that are computed from counters."""

    __slots__ = ()

    @property
    def completed(self: WalkCounts) -> int:
        """Return the number of entries that succeeded."""
        return self.files + self.directories + self.links + self.special

    @property
    def settled(self: WalkCounts) -> int:
        """Return the number of entries that succeeded or failed."""
        return self.completed + self.failed

    @property
    def troubles(self: WalkCounts) -> int:
        """Return the number of entries that failed."""
        return self.failed

    def count(self: WalkCounts, mode: int) -> None:
        """Count an entry that succeeded, by its kind."""
        if stat.S_ISREG(mode):
            self.files += 1
        elif stat.S_ISLNK(mode):
            self.links += 1
        elif stat.S_ISDIR(mode):
            self.directories += 1
        else:
            self.special += 1

    def sums(self: WalkCounts) -> ProgressSums:
        """Return the counts for a progress round."""
        return ProgressSums(self.row(), self.weight, 1)

    def work(self: SizedWalkCounts) -> Work:
        """Return the work done so far, in which 256 KiB of data count as one name."""
        return Work(self.completed + self.scans_done, self.bytes_done / ENTRY_COST_BYTES)

    def done_at_once(self: SizedWalkCounts, directories: int, files: int, weight: float) -> None:
        """Count directories, each of this weight, that were completed together with their files.

        The caller must count the results of the files.
        """
        self.found += files
        if "sized" in self.names:
            self.sized += files + directories
        self.scans_done += directories
        self.directories += directories
        self.weight += weight * directories

    @classmethod
    def figures(cls: type[_ReadableRow], counts: tuple[int, ...]) -> dict[str, int]:
        """Return the figures of a rank with these counts for a summary of many ranks."""
        total = cls.of(counts)
        return {"entries": total.completed, "bytes": total.bytes_done}

    def known(self: SizedWalkCounts, weight: float) -> WorkCounts:
        """Return the known work, from which the remaining time is estimated."""
        return WorkCounts(
            found=self.found,
            sized=self.sized,
            done=self.settled,
            bytes_found=self.bytes_found,
            bytes_done=self.bytes_done,
            scanned=self.scans_due == self.scans_done,
            weight=weight,
        )


class EntryCounters(DerivedCounts, CounterSet):
    """The counters of a walk: the entries found, and the result of each.

    If the walk is completed, each entry that is `found` is counted exactly once as `files`,
    `directories`, `links`, `special` or `failed`. `scans_due` counts the directories found, and
    `scans_done` those that were read. `offline` counts the files that were excluded because their
    data is on tape.
    """

    found: int
    scans_due: int
    scans_done: int
    files: int
    directories: int
    links: int
    special: int
    failed: int
    offline: int


class NamedCounters(Protocol):
    """Counters with a tuple of their `names`."""

    names: ClassVar[tuple[str, ...]]


def reported(report: type[msgspec.Struct], total: NamedCounters) -> dict[str, int]:
    """Return the values of the counters that are fields of a report type, by name."""
    return {name: getattr(total, name) for name in report.__struct_fields__ if name in total.names}


_POLITE_THREADS = 16  # threads that take turns by default


class WalkPhase(msgspec.Struct, frozen=True, array_like=True, tag="a"):
    """The item that represents a whole walk; its join may begin another walk."""


TreeItem: TypeAlias = Tree | Batch | Portion
ItemState: TypeAlias = "dict[int, int] | list[Open[int]] | None"
"""An item's result, the directories that its join completes, or None if it was posted to rank 0."""


class TreePlan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of a job, made on rank 0. Tools add their own fields.

    `directory` is the working directory; `one_node` means that all ranks are running on one node.
    `rules` and `attribute_filter` select entries below the roots; ages are relative to `now_ns`.
    With `one_file_system`, mount points are not entered. With `follow`, symbolic links stand for
    their targets. `polite` is the maximum share of time, from 0 to 1, in which a rank may have an
    operation in progress.
    """

    roots: tuple[Root, ...]
    directory: bytes
    one_node: bool = True
    rules: tuple[Rule, ...] = ()
    attribute_filter: AttributeFilter = ANY
    now_ns: int = 0
    one_file_system: bool = False
    follow: bool = False
    threads: int | None = None
    polite: float | None = None


def resolve(paths: Sequence[bytes], doing: str = "read") -> tuple[Root, ...]:
    """Return the roots for paths, following symbolic links.

    Raises UsageError or EntriesFailed if a path cannot be reached.
    """
    return tuple(resolve_root(path, doing)[0] for path in paths)


def resolve_root(path: bytes, doing: str) -> tuple[Root, os.stat_result]:
    """Return a root and its status.

    Raises UsageError, or EntriesFailed if the file system fails, with a message that names the
    operation `doing`.
    """
    try:
        return root_of(path)
    except OSError as error:
        raise operand_error(f"cannot {doing} '{show(path)}': {error.strerror}", error) from None


class TreeCounters(EntryCounters):
    """The counters of a thread, a rank or a job. Tools add their own counters as annotations.

    `sized` counts the entries of known size.
    """

    sized: int
    bytes_found: int
    bytes_done: int


class Entry(msgspec.Struct, frozen=True):
    """An entry other than a directory, called `name` in the directory `path` below a root.

    The entry must be accessed through `directory_fd`, the descriptor of its directory.
    """

    root: Root
    path: bytes
    name: bytes
    directory_fd: int
    counters: TreeCounters

    @property
    def shown(self) -> bytes:
        """Return the path of the entry, beginning with the operand as typed."""
        if self.root.name:
            return self.root.shown
        return os.path.join(self.root.shown, join_path(self.path, self.name))

    def open(self) -> BinaryIO:
        """Open a regular file for reading, and count its bytes. Raises OSError for other kinds."""
        fd = os.open(self.name, OPEN_FILE, dir_fd=self.directory_fd)
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise Changed("it is no longer a regular file")
            self.counters.bytes_found += status.st_size
            return open(fd, "rb")
        except BaseException:
            os.close(fd)
            raise


class TreeTask(WalkTask[TreeItem, dict[int, int]]):
    """A rank's task in a job over trees, or the part of one worker thread.

    The methods that tools override are called on the worker thread. An OSError that leaves such a
    method is reported as a failure of its entry; `doing` names the failed operation.
    """

    counters_type: ClassVar[type[TreeCounters]] = TreeCounters
    doing: ClassVar[str] = "read"
    visitor_type: ClassVar[type[EntryVisitor]]
    plan: TreePlan
    first: TreeTask | None

    def begin(self) -> None:
        """Create the state of a part; called by the constructor."""

    def file(self, entry: Entry, context: Context[TreeItem]) -> None:
        """Process a regular file."""

    def link(self, entry: Entry, context: Context[TreeItem]) -> None:
        """Process a symbolic link."""

    def special(self, entry: Entry, context: Context[TreeItem]) -> None:
        """Process a device, FIFO or socket."""

    def directory(self, opened: Open[int], context: Context[TreeItem]) -> None:
        """Process a directory after all its entries."""

    def stop_if_read_only(self, root: int, error: OSError) -> None:
        """Raise NoSpace if all roots are read-only, and not just a mount point in one of them."""
        plan = self.plan
        paths = (os.path.join(plan.directory, r.holder, r.name or r.within) for r in plan.roots)
        if all(map(is_read_only, paths)):
            raise NoSpace(stop_reason(plan.roots[root].shown, error))

    def reach(self, *, is_first: bool) -> Directories:
        """Return this part's cache of open directories."""
        identify = device_and_inode if self.plan.one_node else inode_alone
        return open_roots(self.plan.roots, self.plan.directory, identify, is_first=is_first)

    def __init__(
        self,
        plan: TreePlan,
        rank: int,
        lists: Lists | None = None,
        first: TreeTask | None = None,
    ) -> None:
        super().__init__(rank, lists, plan.threads)
        self.plan = plan
        self.first = first  # the part of the rank's first thread; None for that part
        self.counters: Any = self.counters_type()
        self.turns: TurnTaking | None = None
        if plan.polite is not None:
            self.threads: int | None = min(self.threads or _POLITE_THREADS, self.max_threads)
            self.turns = TurnTaking(plan.polite, self.threads) if first is None else first.turns
        self.begin()
        self.directories: Directories = self.reach(is_first=first is None)
        self._walker = self.walker(self.visitor_type(self))

    def walker(self, visitor: EntryVisitor) -> Walker[int]:
        """Return a walker for this part's thread with this visitor."""
        plan = self.plan
        chosen = (plan.rules, plan.one_file_system, plan.follow, plan.attribute_filter, plan.now_ns)
        counters, rank = visitor.counters, self.rank
        goes = visitor if self.is_at_will else paced(visitor, self.turns, self.pace)
        return Walker(goes, Scope(*chosen), self.directories, None, counters, rank, self.lists)

    @property
    def is_at_will(self) -> bool:
        """Return whether the walk runs at full speed."""
        return self.turns is None

    def pace(self, count: int, stop: Callable[[], bool]) -> None:
        """Wait for as long as a limit requires after `count` entries."""

    def beside(self, number: int) -> TreeTask:
        return type(self)(self.plan, self.rank, self.lists, self)

    def seed(self) -> Iterable[Any]:
        return self.begun(self.counters)

    def begun(self, counters: TreeCounters) -> Iterator[Tree | Batch]:
        """Return the initial items of a walk."""
        only = None if self.lists is None else [part.listed for part in self.lists.parts]
        return seeds(self.plan.roots, counters, only)

    def process(self, item: TreeItem, context: Context[TreeItem]) -> ItemState:
        walked = self.walked(item, context)
        return walked if walked is None or isinstance(walked, list) else {item.slot: walked}

    def merge(self, a: dict[int, int], b: dict[int, int]) -> dict[int, int]:
        return {slot: a.get(slot, 0) + b.get(slot, 0) for slot in (*a, *b)}

    def join(
        self, item: TreeItem, own: ItemState, merged: dict[int, int], context: Context[TreeItem]
    ) -> dict[int, int]:
        if isinstance(own, list):
            walker = self.walker_of(require_type(Tree, item))
            return {item.slot: walker.join(own, merged, context)}
        return merged if own is None else self.merge(own, merged)


class EntryVisitor(Visitor[int]):
    """The visitor that calls the methods of a `TreeTask` for each entry. Its results are empty.

    Tools that process names in batches have their own visitors.
    """

    nothing: ClassVar[int] = 0
    _context: Context[Any]  # of the current item

    def __init__(self, task: TreeTask, counters: TreeCounters | None = None) -> None:
        """`counters` are given for a walk other than the task's main walk."""
        self.task = task
        self.counters: Any = task.counters if counters is None else counters

    def begin(self, item: object, context: Context[Any]) -> None:
        self._context = context

    def resume(self, base: Open[int], context: Context[Any]) -> None:
        self._context = context

    # ---- directories -----------------------------------------------------------

    def enter(self, opened: Open[int], source: Lease, holder: Open[int] | None) -> Lease | None:
        self.counters.scans_done += 1
        self.counters.sized += 1
        opened.place = DirectoryIdentity(source.identity)
        return None

    def leave(self, opened: Open[int], context: Context[TreeItem]) -> int:
        try:
            self.task.directory(opened, context)
        except OSError as error:
            self.fail(opened.root, opened.path, self.task.doing, error, context)
        else:
            self.counters.directories += 1
        return 0

    def failed(self, opened: Open[int], error: OSError, context: Context[TreeItem]) -> None:
        if opened.place is UNREACHED:  # the directory was not opened
            self.counters.scans_done += 1
            self.counters.sized += 1
        self.fail(opened.root, opened.path, "read directory", error, context)

    def lost(self, opened: Open[int]) -> int:
        return 0

    def merge(self, a: int, b: int) -> int:
        return a + b

    def taken(self) -> int:
        return 0

    # ---- names -----------------------------------------------------------------

    def names(
        self, where: Where, names: Names, fds: tuple[int, int], context: ItemContext[int]
    ) -> None:
        """Process names; hand back the remaining files if the batch takes too long."""
        begun_s = time.monotonic()
        task, counters, files = self.task, self.counters, names.files
        for name in names.links:
            counters.links += self._look(task.link, where, name, fds[0], context)
        for name in names.specials:
            counters.special += self._look(task.special, where, name, fds[0], context)
        for done, name in enumerate(files, 1):
            found = counters.bytes_found
            counters.files += self._look(task.file, where, name, fds[0], context)
            counters.bytes_done += counters.bytes_found - found
            if context.is_time_up(time.monotonic() - begun_s) or context.stopping:
                context.spawn(list(handed_back(where, files[done:])))
                break

    def _look(
        self,
        look: Callable[[Entry, Context[TreeItem]], None],
        where: Where,
        name: bytes,
        directory_fd: int,
        context: ItemContext[int],
    ) -> bool:
        """Process an entry; return whether that succeeded."""
        counters = self.counters
        counters.weight += where.weight
        try:
            root = self.task.plan.roots[where.root]
            look(Entry(root, where.path, name, directory_fd, counters), context)
        except OSError as error:
            self.fail(where.root, join_path(where.path, name), self.task.doing, error, context)
            return False
        finally:
            counters.sized += 1
        return True

    def unreached(
        self, where: Where, name: bytes, error: OSError, context: Context[TreeItem]
    ) -> None:
        self.counters.sized += 1
        self.fail(where.root, join_path(where.path, name), "reach", error, context)

    def fail(
        self, root: int, path: bytes, doing: str, error: OSError, context: Context[TreeItem]
    ) -> None:
        """Count and report a failed entry. Raises NoSpace if all roots are read-only."""
        self.counters.failed += 1
        context.note([failure_of(self.task.plan.roots[root], root, path, doing, error)])
        if error.errno == errno.EROFS:
            self.task.stop_if_read_only(root, error)


TreeTask.visitor_type = EntryVisitor
