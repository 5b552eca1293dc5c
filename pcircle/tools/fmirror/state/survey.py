"""The survey of `--since-manifest` on each rank: lists source entries that may have changed.

The source is walked and compared with the manifest instead of the target. A target directory is
read only if it may contain extraneous entries. A manifest lacks some attributes: modes, owners,
extended attributes and access control lists. The last complete run made these equal, and they still
are if the source entry's change time is older. Otherwise the entry is listed. All names of
hard-linked files are listed, because a manifest does not show which names belong to the same file.
Unreadable entries are listed, so that the copy reports them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from pcircle.core.encoding import text_of
from pcircle.fs.directories import Directories, Lease, bases, capacity_of, join_path
from pcircle.fs.lists import record_of
from pcircle.fs.scan import Block
from pcircle.fs.stats import CAPACITY, Stats, StatusRow, divide
from pcircle.jobs.failures import Failure
from pcircle.jobs.tree_task import EntryVisitor, TreePlan, TreeTask
from pcircle.ops.checkpoint.plan import JournalPlan
from pcircle.ops.compare.manifests import DigestComparer, entry_row
from pcircle.ops.compare.statuses import StatusComparer
from pcircle.ops.digest.manifest import Manifest, ManifestEntry
from pcircle.runtime import Context
from pcircle.tools.fmirror.plan import DeletionPolicy
from pcircle.tools.fmirror.work.extraneous import KINDS, ExtraneousFinder, Surplus, packed
from pcircle.tools.fmirror.work.unchanged import MOVED, since_last
from pcircle.walk.items import DirectoryIdentity, handed_back
from pcircle.walk.open_directory import ItemContext, Open
from pcircle.walk.visitor import Names, Where

if TYPE_CHECKING:
    from pcircle.jobs.tree_task import TreeCounters, TreeItem
    from pcircle.walk.items import Batch, Tree

_TOGETHER = 256
_NO_SUCH = (FileNotFoundError, NotADirectoryError)


class SurveyPlan(TreePlan, frozen=True, kw_only=True):
    """The plan of a survey with a manifest of the `target`.

    `fields` are the compared fields of the manifest. `asks` is set if the run also compares fields
    that the manifest lacks. An entry may then differ unless its change time is older than
    `quiet_ns`. `links` means that hard links are preserved. If `manifest` is empty, nothing is
    surveyed.
    """

    manifest: bytes
    target: bytes
    fields: int
    window_ns: int | None
    asks: bool
    links: bool
    quiet_ns: int
    device: int
    deleting: DeletionPolicy
    token: bytes = b""
    journal: JournalPlan | None = None
    began_ns: int | None = None


class SurveyRecords(msgspec.Struct, frozen=True, array_like=True, tag="t"):
    """List records of entries that may have changed."""

    records: tuple[bytes, ...]


class SurveyVisitor(EntryVisitor):
    """Compares entries with the manifest.

    Each thread has its own instance.
    """

    batch_names: ClassVar[int] = CAPACITY

    def __init__(self, task: SurveyTask) -> None:
        super().__init__(task)
        plan: SurveyPlan = task.plan
        self._plan = plan
        self._stats = task.stats
        self._comparer = StatusComparer(plan.fields, plan.window_ns)
        self._finder = ExtraneousFinder(plan) if plan.deleting.enabled else None
        self._targets = task.targets
        self._records: list[bytes] = []

    @cached_property
    def _book(self) -> Manifest:
        return Manifest(self._plan.manifest)

    @cached_property
    def _digests(self) -> DigestComparer:
        return DigestComparer(self._book.algorithm, self.counters)

    def end(self, context: Context[TreeItem], opens: Sequence[Open[int]]) -> None:
        """Send all findings to rank 0."""
        self._tell(context)

    def _list(self, path: bytes, context: Context[TreeItem], *, whole: bool = False) -> None:
        self._records.append(record_of(path or b".", whole=whole))
        if len(self._records) >= _TOGETHER:
            self._tell(context)

    def _tell(self, context: Context[TreeItem]) -> None:
        records, self._records = self._records, []
        if records:
            context.note([SurveyRecords(tuple(records))])

    def fail(
        self, root: int, path: bytes, doing: str, error: OSError, context: Context[TreeItem]
    ) -> None:
        """List an entry that cannot be read, so that the copy reports it."""
        self.counters.failed += 1
        self._list(path, context, whole=True)

    # ---- directories -----------------------------------------------------------

    def enter(self, opened: Open[int], source: Lease, holder: Open[int] | None) -> Lease | None:
        """Compare a directory with the manifest."""
        super().enter(opened, source, holder)
        status, context = source.opened.status, self._context
        since = since_last(
            None if holder is None else holder.place.since,
            is_known=status.st_dev == self._plan.device,
            is_quiet=status.st_ctime_ns < self._plan.quiet_ns,
        )
        opened.place = DirectoryIdentity(source.identity, since=since)
        entry = self._book.entry(opened.path)
        if entry is None or entry.kind != b"d":
            self._list(opened.path, context, whole=True)
            opened.entered = False
        elif self._comparer.differences(status, entry_row(entry)) or (self._plan.asks and since):
            self._list(opened.path, context)
        return None

    def meant(self, opened: Open[int], blocks: Iterable[Block], source: Lease) -> Iterator[Block]:
        """Find extraneous entries after the last block if the directory has lost any names."""
        finder = self._finder
        names: set[str] | None = None if self._plan.rules else set()  # rules omit names from blocks
        for block in blocks:
            if names is not None:
                names.update(*(getattr(block, kind) for kind in KINDS))
                if len(names) > CAPACITY:
                    names = None
            yield block
            if finder is not None and block.last and self._has_lost(opened.path, names, source.fd):
                self._find(finder, opened, names, source.fd)

    def _has_lost(self, path: bytes, names: set[str] | None, fd: int) -> bool:
        """Return whether the manifest contains an entry that the source directory lacks."""
        entries = self._book.entries(path)
        while batch := list(islice(entries, CAPACITY)):
            if names is None:
                errors = self._stats.look_up(fd, [entry.name for entry in batch])
                if any(isinstance(error, _NO_SUCH) for error in errors.values()):
                    return True
            elif any(text_of(entry.name) not in names for entry in batch):
                return True
        return False

    def _find(
        self,
        finder: ExtraneousFinder,
        opened: Open[int],
        names: set[str] | None,
        source_fd: int,
    ) -> None:
        """Report the entries that exist only in the target's directory."""
        context = self._context
        try:
            with self._targets.lease(0, opened.path, readable=True) as lease:
                for paths in finder.surplus(names, (source_fd, lease.fd), opened.path):
                    context.note([packed(0, paths)])
        except _NO_SUCH:
            pass  # the target lacks the directory, so it has no extraneous entries
        except OSError:
            self._list(opened.path, context, whole=True)

    # ---- names -----------------------------------------------------------------

    def names(
        self, where: Where, names: Names, fds: tuple[int, int], context: ItemContext[int]
    ) -> None:
        every = names.all()
        batch, remaining = every[:CAPACITY], every[CAPACITY:]
        errors = self._stats.look_up(fds[0], batch)
        known = self._book.finder(where.path)
        rows = zip(batch, self._stats.rows(len(batch)), strict=True)
        for place, (name, row) in enumerate(rows):
            entry = None if place in errors else known(name)
            if entry is None or self._differs(where, entry, row, fds[0], context):
                self._list(join_path(where.path, name), context)
        counters = self.counters
        counters.files += len(batch)  # entries of all kinds count as files here
        counters.sized += len(batch)
        counters.weight += where.weight * len(batch)
        if remaining:
            context.spawn(list(handed_back(where, remaining)))

    def _differs(
        self,
        where: Where,
        entry: ManifestEntry,
        row: StatusRow,
        fd: int,
        context: Context[TreeItem],
    ) -> bool:
        """Return whether an entry may differ from the manifest."""
        plan = self._plan
        if plan.links and row.st_nlink > 1:
            return True
        moved = where.place.since == MOVED
        if plan.asks and (moved or row.st_ctime_ns >= plan.quiet_ns):
            return True
        if self._comparer.differences(row, entry_row(entry)):
            return True
        stop = context.is_stopping
        try:
            return bool(self._digests.differences(plan.fields, entry, entry.name, fd, row, stop))
        except OSError:
            return True


class SurveyTask(TreeTask):
    """The survey on one rank or thread."""

    notice_type: ClassVar[Any] = Failure | SurveyRecords | Surplus
    visitor_type: ClassVar[type[SurveyVisitor]] = SurveyVisitor
    plan: SurveyPlan

    def begin(self) -> None:
        """Divide the threads between workers and helpers for the workers' look-ups."""
        division = divide(self.plan.threads)
        self.threads: int | None = division.workers
        self.max_threads: int = division.max_workers
        number = 0 if self.first is None else len(self.first.parts)
        self.stats: Stats = Stats(division.helped_of(number))
        top = bases([(self.plan.target, b"")], self.plan.directory)
        self.targets: Directories = Directories(top, capacity_of(is_first=self.first is None))

    def begun(self, counters: TreeCounters) -> Iterator[Tree | Batch]:
        return super().begun(counters) if self.plan.manifest else iter(())

    def close(self) -> None:
        for part in self.parts:
            part.stats.close()
            part.targets.close()
        super().close()
