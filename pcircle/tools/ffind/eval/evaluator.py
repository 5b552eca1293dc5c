"""Evaluates the expression for names and entries of a walk or an index, and counts them.

If look-ups are slow, the status of several names is prefetched at once. A file system that answers
in milliseconds can usually answer many requests at once. On a fast file system nothing is
prefetched. An entry is then looked up when it is evaluated, and only if necessary.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Sequence

from pcircle.fs.stats import CAPACITY, StatBlockError
from pcircle.jobs.failures import failure_of
from pcircle.jobs.tree_task import EntryVisitor, TreeItem
from pcircle.runtime import Context
from pcircle.threads.workers import Overlap
from pcircle.tools.ffind.eval.actions import CountingActions, SearchTask
from pcircle.tools.ffind.eval.bulk import BulkFormat, DirectoryContext, Prefetch, StatusColumns
from pcircle.tools.ffind.eval.compiler import (
    CompiledExpression,
    compiled,
    function,
)
from pcircle.tools.ffind.eval.entry import CountedEntry, FindEntry, StopSearch, Test
from pcircle.tools.ffind.plan import ExpressionNode, FindCounters, walk
from pcircle.walk.open_directory import Open
from pcircle.walk.visitor import Where

_FIRST = 8  # names on which the time of a look-up is measured
_UNSEEN = 16  # blocks between two measurements of how many names pass the columns
_BATCH_SIZE = 32  # names between two readings of the clock
_PRUNE = ExpressionNode("prune")
_SLOW_S = 200e-6  # a look-up that takes longer is worth prefetching
_PROBE_PERIOD = 16  # prefetches between two timed look-ups
_WORTH_IT = 4  # names; for fewer names waking threads costs more than it saves


class StatPrefetch:
    """Prefetches the status of names for one thread, following links if `follow` is set."""

    def __init__(self, threads: int, *, follow: bool) -> None:
        self._overlap = Overlap(threads)
        self._follow = follow
        self._look_up_s = 0.0  # measured on the names evaluated last
        self._began_s = 0.0
        self._shared = 1
        self._count_since_probe = 0

    @property
    def is_known(self) -> bool:
        """Return whether the time of a look-up is known."""
        return self._look_up_s > 0

    def look(self, directory_fd: int, names: Sequence[bytes]) -> list[os.stat_result | None]:
        """Return the status of names; None if it is not prefetched or the look-up failed."""
        self._began_s = time.perf_counter()
        found: list[os.stat_result | None] = [None] * len(names)
        self._shared = 1
        if self._look_up_s < _SLOW_S or len(names) < _WORTH_IT:
            return found
        follow = self._follow

        def look(start: int, stop: int) -> None:
            for place in range(start, stop):
                try:
                    found[place] = os.stat(
                        names[place], dir_fd=directory_fd, follow_symlinks=follow
                    )
                except OSError:
                    continue  # the evaluation repeats the look-up and reports the error

        self._count_since_probe += 1
        if self._count_since_probe >= _PROBE_PERIOD:  # see `pcircle.threads.workers`
            self._count_since_probe = 0
            look(0, 1)
            if time.perf_counter() - self._began_s < _SLOW_S:
                return found
        self._shared = min(self._overlap.threads, len(names))
        self._overlap.run(look, 0, len(names))
        return found

    def done(self, count: int) -> None:
        """Record that `count` entries were evaluated since the look-up."""
        took_s = time.perf_counter() - self._began_s
        self._look_up_s = took_s * self._shared / max(1, count)

    def close(self) -> None:
        """End the threads."""
        self._overlap.close()


class Evaluator(EntryVisitor):
    """Evaluates names and entries of a walk or an index."""

    task: SearchTask
    counters: FindCounters
    _context: Context[TreeItem]  # of the current item

    def __init__(self, task: SearchTask, counters: FindCounters | None = None) -> None:
        """Compile the expression; if `counters` is given, only count entries to be removed."""
        super().__init__(task, counters)
        plan = task.plan
        settings = plan.settings
        self._plan = plan
        self._stats: StatusColumns = task.stats
        self._prefetch: Prefetch = task.prefetch
        self._counts = counters is not None
        self._deep = settings.depth
        self._min, self._max = settings.min_depth, settings.max_depth
        self._follows = settings.follow == "L"
        self._silent = settings.silent_race
        actions = task.actions if counters is None else CountingActions(self.counters)
        node = plan.expression
        self._excludes: Test | None = None
        if plan.exclude is not None:
            if self._deep:
                self._excludes = function(plan.exclude, task.evaluation, actions)
                node = ExpressionNode("or", (), (plan.exclude, node))
            else:
                node = ExpressionNode(
                    "or", (), (ExpressionNode("and", (), (plan.exclude, _PRUNE)), node)
                )
        times = task.access_times
        in_bulk = plan.order is None and not plan.quoted and not self._counts and times is None

        def made(kind: str, looked_up: str = "fl") -> CompiledExpression:
            return compiled(
                *(node, kind, task.evaluation, actions),
                in_bulk=in_bulk,
                prunes=not self._deep,
                looked_up=looked_up,
            )

        self._of_kind = {kind: made(kind) for kind in ("f", "d", "l", "")}
        self._of_several = made("d", "d")
        self._whole = function(node, task.evaluation, actions)
        overlaps = self._of_kind["f"].by_columns
        self._batch_size = CAPACITY if overlaps else _BATCH_SIZE
        self._light = not any(self._of_kind[kind].heavy for kind in ("f", "l", ""))
        # Directories are opened anyway, so their status is read from the open directory.
        self._enters = self._follows or self._of_kind["d"].heavy
        self._entry = FindEntry(self._report, follow=self._follows)
        self._updates_directories = times is not None and task.updates_directories
        if times is not None:
            self._entry = CountedEntry(
                self._report, times, follow=self._follows, updates_links=task.updates_links
            )
        self._blocks_without_columns = 0  # blocks still to be evaluated without columns
        self._gathers = any(
            primary.name == "execplus" and primary.args[0] for primary in walk(node)
        )

    # ---- items -----------------------------------------------------------------

    def begin(self, item: object, context: Context[TreeItem]) -> None:
        self._context = self.task.context = context

    def resume(self, base: Open[int], context: Context[TreeItem]) -> None:
        self._context = self.task.context = context

    def send_reports(self, context: Context[TreeItem]) -> None:
        self.task.flush()
        if self.task.action_log is not None:
            self.task.action_log.tell(context)

    def end(self, context: Context[TreeItem], opens: Sequence[Open[int]]) -> None:
        self.send_reports(context)
        self.task.halt(context)
        self.task.context = None

    def _halted(self) -> bool:
        return bool(self.task.rank_part.halted) and not self._counts

    def _evaluate(self, test: Test, entry: FindEntry) -> None:
        """Evaluate the expression for an entry, and complete its output."""
        try:
            test(entry)
        except StopSearch:
            self.task.rank_part.halted = True
        if not self._counts:
            self.task.output.entry_done(entry)

    def _evaluate_one(self, entry: FindEntry) -> None:
        """Evaluate the expression for an entry whose directory was opened for it."""
        self._evaluate(self._whole, entry)
        if self._gathers:
            self.task.commands.end(dirs_only=True)

    def _report(self, entry: FindEntry, doing: str, error: OSError) -> None:
        """Report a failed operation on an entry, or record that the entry has vanished."""
        is_gone = error.errno == errno.ENOENT and self._silent and not entry.fixed
        if is_gone and doing == "look up":
            entry.gone = True
            return
        entry.bad = True
        if not self._counts:
            self.tell(entry.root, entry.below, doing, error)
            if error.errno == errno.EROFS:
                self.counters.failed += 1
                self.task.stop_if_read_only(entry.root, error)
                self.counters.failed -= 1  # it is counted with the entry

    def tell(self, root: int, path: bytes, doing: str, error: OSError) -> None:
        """Report a failure that is counted separately."""
        self._context.note([failure_of(self._plan.roots[root], root, path, doing, error)])

    def fail(
        self, root: int, path: bytes, doing: str, error: OSError, context: Context[TreeItem]
    ) -> None:
        if self._counts:
            self.counters.failed += 1
        else:
            super().fail(root % len(self._plan.roots), path, doing, error, context)

    # ---- entries ---------------------------------------------------------------

    def _prefix(self, root: int, path: bytes) -> bytes:
        """Return the printed path that precedes the names in a directory."""
        shown: bytes = self._plan.roots[root % len(self._plan.roots)].shown
        if not shown.endswith(b"/"):
            shown += b"/"
        return shown + path + b"/" if path else shown

    def _entry_in(self, where: Where, fd: int, kind: str) -> FindEntry:
        """Return the shared entry object, set to an open directory and a kind."""
        entry = self._entry
        entry.fixed = entry.base = b""
        entry.fd, entry.kind = fd, kind
        entry.root = where.root % len(self._plan.roots)
        entry.start = self._plan.roots[entry.root].shown
        entry.path_below = where.path
        entry.prefix = self._prefix(where.root, where.path)
        entry.depth = depth_of(where.path) + 1
        entry.follow = self._follows
        return entry

    def _start_entry(self, root: int, fd: int, name: bytes, kind: str) -> FindEntry:
        """Return the shared entry object, set to a PATH itself."""
        entry = self._entry
        start = self._plan.roots[root % len(self._plan.roots)]
        entry.fd, entry.kind, entry.root = fd, kind, root % len(self._plan.roots)
        entry.fixed = entry.start = start.shown
        stripped = start.shown.rstrip(b"/")
        entry.base = stripped[stripped.rfind(b"/") + 1 :] or b"/"
        entry.depth = 0
        entry.path_below = entry.prefix = b""
        entry.follow = self._plan.settings.follow != "P"
        entry.begin(name)
        return entry

    def _evaluate_names(self, where: Where, names: list[bytes], kind: str, fd: int) -> int:
        """Evaluate names of one kind in one directory; return how many succeeded."""
        plan = self._of_kind[kind]
        count = len(names)
        if depth_of(where.path) + 1 < self._min:
            return count
        prefix = self._prefix(where.root, where.path) if plan.filters or plan.end else b""
        for choose in plan.filters:
            names = choose(names, prefix)
        if plan.by_columns:
            return count - self._by_columns(where, plan, names, kind, fd)
        return count - self._process_selected(where, plan, names, kind, fd) if names else count

    def _evaluate_and_count(self, where: Where, names: list[bytes], kind: str, fd: int) -> None:
        """Evaluate names of one kind that is not `d`, and count those that succeeded."""
        done = self._evaluate_names(where, names, kind, fd)
        if kind == "f":
            self.counters.files += done
        elif kind == "l":
            self.counters.links += done
        else:
            self.counters.special += done

    def _process_selected(
        self, where: Where, plan: CompiledExpression, names: list[bytes], kind: str, fd: int
    ) -> int:
        """Process names that passed the filters; return the number that failed or vanished."""
        if plan.end is not None:
            prefix = self._prefix(where.root, where.path)
            between = plan.end + prefix
            self.task.output.add(0, prefix + between.join(names) + plan.end)
        elif plan.counts:
            self.counters.matched += len(names)
        elif plan.bulk is not None:
            self._in_bulk(where, plan.bulk, names, kind, range(len(names)))
        elif plan.test is not None:
            return self._evaluate_each(
                self._entry_in(where, fd, kind), plan.test, names, looks=plan.looks
            )
        return 0

    def _by_columns(
        self, where: Where, plan: CompiledExpression, names: list[bytes], kind: str, fd: int
    ) -> int:
        """Select names by status and process them; return the number that failed or vanished."""
        stats, lost = self._stats, 0
        for at in range(0, len(names), CAPACITY):
            batch = names[at : at + CAPACITY]
            if plan.looks and self._blocks_without_columns:
                # Most names passed, so selection by columns would look them up twice. It is retried
                # after some blocks.
                self._blocks_without_columns -= 1
                entry = self._entry_in(where, fd, kind)
                lost += self._evaluate_each(entry, plan.slow, batch, looks=True)
                continue
            try:
                stats.look(fd, batch)
            except StatBlockError:  # evaluate names one by one to report each error
                lost += self._evaluate_each(self._entry_in(where, fd, kind), plan.slow, batch)
                continue
            places = chosen(plan, stats, range(len(batch)))
            if len(places) > len(batch) // 2:
                self._blocks_without_columns = _UNSEEN
            if places:
                left = [batch[place] for place in places]
                if plan.bulk is not None:
                    self._in_bulk(where, plan.bulk, left, kind, places)
                else:
                    lost += self._process_selected(where, plan, left, kind, fd)
            if self._halted():
                break
        return lost

    def _in_bulk(
        self,
        where: Where,
        bulk: BulkFormat,
        names: list[bytes],
        kind: str,
        places: Sequence[int],
    ) -> None:
        """Format all names at once; `places` are their rows if they were looked up."""
        self.task.output.add(0, bulk.text(self._in(where, kind), names, self._stats, places))

    def _in(self, where: Where, kind: str) -> DirectoryContext:
        """Return the directory for bulk formats."""
        shown = self._plan.roots[where.root % len(self._plan.roots)].shown
        prefix = self._prefix(where.root, where.path)
        return DirectoryContext(prefix, where.path, shown, depth_of(where.path) + 1, kind)

    def _evaluate_each(
        self, entry: FindEntry, test: Test, names: Sequence[bytes], *, looks: bool = False
    ) -> int:
        """Evaluate names one by one; return the number that failed or vanished.

        If `looks` is set, all names are looked up first.
        """
        if looks and len(names) > 2 * _FIRST and not self._prefetch.is_known:
            # Measure the time of a look-up on a few names first.
            lost = self._evaluate_each(entry, test, names[:_FIRST], looks=True)
            return lost + self._evaluate_each(entry, test, names[_FIRST:], looks=True)
        lost, kind, status = 0, entry.kind, None
        ahead = self._prefetch.look(entry.fd, names) if looks else None
        for place, name in enumerate(names):
            entry.kind = kind
            entry.begin(name)
            if ahead is not None:
                status = ahead[place]
                if status is not None:
                    entry.use(status)
            self._evaluate(test, entry)
            if entry.bad or entry.gone:
                lost += 1
                self._settle(entry)
            if self._halted():
                break
        if ahead is not None:
            self._prefetch.done(len(names))
        if self._gathers:
            self.task.commands.end(dirs_only=True)  # while the directory is still open
        return lost

    def _settle(self, entry: FindEntry) -> None:
        """Count an entry that failed or vanished."""
        if entry.bad:
            self.counters.failed += 1
        else:
            self.counters.vanished += 1


def chosen(plan: CompiledExpression, stats: StatusColumns, places: Sequence[int]) -> Sequence[int]:
    """Return the rows that pass the column tests of a compiled expression."""
    for choose in plan.columns:
        if not places:
            break
        places = choose(stats, places)
    return places


def depth_of(path: bytes) -> int:
    """Return how many levels a directory is below its PATH."""
    return path.count(b"/") + 1 if path else 0
