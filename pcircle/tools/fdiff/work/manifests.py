"""Compares a tree with a manifest, and two manifests.

If one side is a tree, all ranks walk it and look up its entries in the manifest. If both sides are
manifests, rank 0 reads them side by side, directory by directory.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, ClassVar

from pcircle.fs.data import ReadEffects
from pcircle.fs.directories import Lease, join_path
from pcircle.fs.scan import Block, encoded
from pcircle.fs.stats import CAPACITY, StatusRow
from pcircle.jobs.failures import NoticeSink, report_effects, shown_below
from pcircle.jobs.tree_task import EntryVisitor, TreeItem
from pcircle.ops.compare.fields import KIND
from pcircle.ops.compare.manifests import (
    DigestComparer,
    compare_entries,
    entry_mode,
    entry_row,
)
from pcircle.ops.compare.statuses import StatusComparer
from pcircle.ops.digest.manifest import Manifest, ManifestEntry, pair_entries
from pcircle.runtime import Context
from pcircle.tools.fdiff.plan import DiffCounters, DiffItem, DiffPlan
from pcircle.tools.fdiff.reporter import DiffReporter
from pcircle.walk.globs import Chooser
from pcircle.walk.items import handed_back
from pcircle.walk.open_directory import BATCH_S, ItemContext, Open
from pcircle.walk.visitor import Names, Where

if TYPE_CHECKING:
    from pcircle.tools.fdiff.reporter import ComparisonTask


class ManifestOnlyReporter:
    """Reports entries that exist only in a manifest and, on request, the entries below them."""

    def __init__(
        self, book: Manifest, side: int, reporter: DiffReporter, counters: DiffCounters
    ) -> None:
        self._book = book
        self._side = side
        self._reporter = reporter
        self._counters = counters

    def tell(
        self, above: bytes, entry: ManifestEntry, *, reported: bool, enters: bool, reports_all: bool
    ) -> int:
        """Report an entry of the directory `above` if `reported` is set, and count it.

        If `enters` is set, do the same with all entries below it, which are reported if
        `reports_all` is set. Return the number of entries.
        """
        paths, count = [(above, entry, reported)], 0
        while paths:
            holder, entry, is_reported = paths.pop()
            path = join_path(holder, entry.name)
            self._reporter.alone(
                self._side, path, entry_mode(entry), entry.size, reported=is_reported
            )
            count += 1
            if enters and entry.kind == b"d":
                paths += [(path, below, reports_all) for below in self._book.entries(path)]
        return count

    def below(self, path: bytes, *, reports_all: bool) -> int:
        """Count all entries below a directory, and report them if `reports_all` is set.

        Return the number of entries.
        """
        entries = self._book.entries(path)
        return sum(
            self.tell(path, e, reported=reports_all, enters=True, reports_all=reports_all)
            for e in entries
        )


_TOGETHER = 256
_KINDS = ("files", "links", "specials", "directories")


class ManifestVisitor(EntryVisitor):
    """Compares a tree with a manifest.

    Each thread has its own instance. The tree is side `plan.tree_side`, and the manifest is the
    other side.
    """

    task: ComparisonTask
    counters: DiffCounters
    batch_names: ClassVar[int] = CAPACITY

    def __init__(self, task: ComparisonTask) -> None:
        super().__init__(task)
        plan = self._plan = task.plan
        self._side = plan.tree_side
        self._reporter = task.reporter
        self._stats = task.stats[0]
        manifest = Manifest(plan.manifest)
        self._book = manifest
        self._comparer = StatusComparer(plan.fields, plan.window_ns)
        self._effects = ReadEffects(self.counters, noatime=plan.noatime)
        self._digests = DigestComparer(manifest.algorithm, self.counters, self._effects.open)
        self._alone = ManifestOnlyReporter(
            self._book, 1 - self._side, self._reporter, self.counters
        )
        self._chooser = Chooser(plan.rules) if plan.rules else None
        self._ignores = plan.one_sided and self._side == 1  # entries that exist only in the tree
        self._ignores_book = plan.one_sided and self._side == 0

    def begin(self, item: object, context: Context[DiffItem]) -> None:
        super().begin(item, context)
        tree = self._plan.roots[0]
        report_effects(self._effects, lambda root, path: shown_below(tree, path), context)

    def resume(self, base: Open[int], context: Context[DiffItem]) -> None:
        self.begin(base, context)

    def send_reports(self, context: Context[DiffItem]) -> None:
        self._reporter.tell(context)

    def end(self, context: Context[DiffItem], opens: Sequence[Open[int]]) -> None:
        self.send_reports(context)

    def fail(
        self, root: int, path: bytes, doing: str, error: OSError, context: Context[TreeItem]
    ) -> None:
        self.task.fail_side(self._side, path, doing, error, context)

    # ---- directories -----------------------------------------------------------

    def enter(self, opened: Open[int], source: Lease, holder: Open[int] | None) -> Lease | None:
        """Look up a directory in the manifest, and compare or report it."""
        super().enter(opened, source, holder)
        entry = self._book.entry(opened.path)
        mode = source.opened.status.st_mode
        if entry is None:
            if not self._ignores:
                reported = not opened.path or self._plan.reports_all or self._is_first(opened.path)
                self._reporter.alone(self._side, opened.path, mode, reported=reported)
            opened.entered = opened.entered and self._plan.enters and not self._ignores
            return None
        found = self._compared(entry, source.opened.status)
        self._reporter.pair(opened.path, self._mode(entry, mode), 0, found)
        return None

    def _is_first(self, path: bytes) -> bool:
        """Return whether the manifest contains the parent directory of a path that it lacks."""
        above = self._book.entry(path.rpartition(b"/")[0])
        return above is not None and above.kind == b"d"

    def _compared(self, entry: ManifestEntry, status: os.stat_result | StatusRow) -> int:
        other = entry_row(entry)
        if self._side:
            return self._comparer.differences(other, status)
        return self._comparer.differences(status, other)

    def _mode(self, entry: ManifestEntry, mode: int) -> int:
        """Return the mode of A's entry."""
        return entry_mode(entry) if self._side else mode

    def meant(self, opened: Open[int], blocks: Iterable[Block], source: Lease) -> Iterator[Block]:
        """Report entries that exist only in the manifest, and yield all blocks."""
        found = iter(blocks)
        first = next(found)
        names = None
        if first.last:
            names = {name for kind in _KINDS for name in encoded(getattr(first, kind))}
        if not self._ignores_book:
            self._report_book(opened, names, source.fd)
        yield first
        yield from found

    def _report_book(self, opened: Open[int], names: set[bytes] | None, fd: int) -> None:
        """Report entries that exist only in the manifest.

        `names` are the names in the tree's directory, or None if the directory is large.
        """
        entries = self._book.entries(opened.path)
        while batch := list(islice(entries, CAPACITY)):
            if names is not None and self._chooser is None:
                missing = [entry for entry in batch if entry.name not in names]
            else:
                missing = self._missing(batch, fd)
            for entry in missing:
                path = join_path(opened.path, entry.name)
                if not self._chooses(path, entry):
                    continue
                enters, reports_all = self._plan.enters, self._plan.reports_all
                count = self._alone.tell(
                    opened.path, entry, reported=True, enters=enters, reports_all=reports_all
                )
                self.counters.found += count
                # Entries of all kinds count as files here, because none of them is walked.
                self.counters.files += count

    def _chooses(self, path: bytes, entry: ManifestEntry) -> bool:
        """Return whether the patterns select an entry of the manifest."""
        if self._chooser is None:
            return True
        asked = entry.name if self._chooser.by_name else path
        return self._chooser.chooses(asked, directory=entry.kind == b"d")

    def _missing(self, entries: Sequence[ManifestEntry], fd: int) -> list[ManifestEntry]:
        errors = self._stats.look_up(fd, [entry.name for entry in entries])
        return [entries[place] for place, e in errors.items() if e.errno == errno.ENOENT]

    # ---- names -----------------------------------------------------------------

    def names(
        self, where: Where, names: Names, fds: tuple[int, int], context: ItemContext[int]
    ) -> None:
        every, begun_s, at = names.all(), time.monotonic(), 0
        while at < len(every):
            part = every[at : at + CAPACITY]
            errors = self._stats.look_up(fds[0], part)
            known = self._book.finder(where.path)
            rows = list(self._stats.rows(len(part)))
            for place, name in enumerate(part):
                at += 1
                looked = errors.get(place), known(name), rows[place]
                self._done(where, name, looked, fds[0], context)
                if time.monotonic() - begun_s > BATCH_S or context.is_stopping():
                    context.spawn(list(handed_back(where, every[at:])))
                    return

    def _done(
        self,
        where: Where,
        name: bytes,
        looked: tuple[OSError | None, ManifestEntry | None, StatusRow],
        fd: int,
        context: ItemContext[int],
    ) -> None:
        error, entry, row = looked
        counters, path, mode = self.counters, join_path(where.path, name), row.st_mode
        counters.weight += where.weight
        counters.sized += 1
        try:
            if error is not None:
                raise error
            found = 0
            is_pair = entry is not None and self._chooses(path, entry)
            if entry is not None and is_pair:
                found = self._compared(entry, row)
                if not found & KIND:
                    fields = self._plan.fields
                    self._effects.place = 0, where.path
                    stop = context.is_stopping
                    found |= self._digests.differences(fields, entry, name, fd, row, stop)
        except OSError as failed:
            self.fail(0, path, "compare", failed, context)
            return
        if entry is not None:
            if is_pair:
                self._reporter.pair(path, self._mode(entry, mode), row.st_size, found)
            if found & KIND and entry.kind == b"d" and self._plan.enters:
                self._below(path)
        elif not self._ignores:
            reported = self._plan.reports_all or not where.path or self._is_first(path)
            self._reporter.alone(self._side, path, mode, row.st_size, reported=reported)
        counters.count(mode)

    def _below(self, path: bytes) -> None:
        """Report the entries below a manifest's directory that is not a directory in the tree."""
        if self._ignores_book:
            return
        count = self._alone.below(path, reports_all=self._plan.reports_all)
        self.counters.found += count
        self.counters.files += count


def compare_manifests(
    old: Manifest,
    new: Manifest,
    plan: DiffPlan,
    reporter: DiffReporter,
    counters: DiffCounters,
    context: NoticeSink,
    check: Callable[[], None],
) -> None:
    """Compare two manifests.

    `check` is called at intervals and may raise an exception to stop the comparison.
    """
    comparer = StatusComparer(plan.fields, plan.window_ns)
    alone = [
        ManifestOnlyReporter(book, side, reporter, counters) for side, book in enumerate((old, new))
    ]
    counters.found += 1
    counters.directories += 1
    found = compare_entries(old.root, new.root, plan.fields, comparer)
    reporter.pair(b"", stat.S_IFDIR, 0, found)
    paths, compared = [b""], 0
    while paths:
        path = paths.pop()
        deeper = []
        for was, now in pair_entries(old.entries(path), new.entries(path)):
            compared += 1
            if was is not None and now is not None:
                inner = join_path(path, was.name)
                found = compare_entries(was, now, plan.fields, comparer)
                reporter.pair(inner, entry_mode(was), was.size, found)
                counters.found += 1
                counters.files += 1
                if was.kind == now.kind == b"d":
                    deeper.append(inner)
                elif found & KIND and plan.enters:
                    for side, known in enumerate((was, now)):
                        if known.kind == b"d" and not (side and plan.one_sided):
                            count = alone[side].below(inner, reports_all=plan.reports_all)
                            counters.found += count
                            counters.files += count
            else:
                enters, reports_all = plan.enters, plan.reports_all
                for side, entry in enumerate((was, now)):
                    if entry is not None and not (side and plan.one_sided):
                        count = alone[side].tell(
                            path, entry, reported=True, enters=enters, reports_all=reports_all
                        )
                        counters.found += count
                        counters.files += count
            if not compared % _TOGETHER:
                reporter.tell(context)
                check()
        paths += reversed(deeper)
