"""Processes small directories that contain only files, in fewer steps than other directories.

If look-ups are slow, the status of several names is prefetched at once. A file system that answers
in milliseconds can usually answer many requests at once. On a fast file system nothing is
prefetched. An entry is then looked up when it is evaluated, and only if necessary.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from itertools import chain, repeat
from typing import TYPE_CHECKING

import msgspec

from pcircle.fs.directories import join_path
from pcircle.fs.scan import DirectoryBatch
from pcircle.fs.stats import CAPACITY, StatBlockError, StatusRow
from pcircle.threads.overlap import Overlap
from pcircle.tools.ffind.eval.bulk import DirectoryContext
from pcircle.tools.ffind.eval.compiler import CompiledExpression
from pcircle.tools.ffind.eval.evaluator import Evaluator, chosen, depth_of
from pcircle.walk.open_directory import ItemContext, Open
from pcircle.walk.visitor import DirectoryScan

if TYPE_CHECKING:
    from pcircle.tools.ffind.eval.evaluator import SearchTask
    from pcircle.tools.ffind.plan import FindCounters

_SLOW_S = 200e-6
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
        if self._count_since_probe >= _PROBE_PERIOD:  # see `pcircle.threads.overlap`
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


_FEW = 256  # entries
_ROOM = 8192  # entries of a batch if none is looked up


class SmallDirectoryEvaluator(Evaluator):
    """Processes batches of small directories."""

    def __init__(self, task: SearchTask, counters: FindCounters | None = None) -> None:
        super().__init__(task, counters)
        plan = self._of_kind["f"]
        self._is_together = plan.test is None and not (self._enters and self._of_several.test)
        # All names of a batch are looked up together unless filters may exclude some of them.
        self._looks = plan.by_columns and not plan.filters
        if self._deep or self._follows or self._counts or not (self._light or plan.by_columns):
            return
        room, keeps = _ROOM, False
        if not self._is_together:
            room, keeps = _FEW, True  # an action on one entry may change the next directory
        elif plan.by_columns:
            room, keeps = (2 * CAPACITY, False) if self._looks else (CAPACITY, True)
        looks = self._is_together and self._looks
        self.scan: DirectoryScan | None = DirectoryScan(
            _FEW, room, looks, keeps, any_device=not self._enters
        )

    def scan_of(self, above: Open[int]) -> DirectoryScan | None:
        depth = depth_of(above.path) + 2  # the depth of the entries in the directories
        if self.scan is None or self._halted() or (self._max is not None and depth > self._max):
            return None
        if not (self._is_together and self._of_kind["f"].by_columns):
            return self.scan
        if depth < self._min:
            return msgspec.structs.replace(
                self.scan, max_batch_entries=_ROOM, look_up=False, keep_open=False
            )
        # Slow look-ups overlap within one directory, so directories are not batched.
        return None if self.task.stats.is_slow else self.scan

    def process_directories(
        self, above: Open[int], batch: DirectoryBatch, context: ItemContext[int]
    ) -> list[bytes]:
        if not self._is_together:
            return self._one_by_one(above, batch)
        if self._enters:
            self._evaluate_own_entries(above, batch)
        if depth_of(above.path) + 2 >= self._min:
            self.counters.files -= self._files_together(above, batch)
        return []

    def _one_by_one(self, above: Open[int], batch: DirectoryBatch) -> list[bytes]:
        """Process open directories entry by entry; return unprocessed directories."""
        opened: Open[int] = Open(above.root, b"", 0, above, 0)
        opened.leases = above.leases
        count = len(batch.names)
        # The status was read before the directory. Reading a directory may update its access time.
        rows = list(batch.own.rows(count)) if self._enters else [None] * count
        found = zip(batch.names, batch.fds, batch.ranges(), rows, strict=True)
        for done, (name, fd, (begin, end), status) in enumerate(found):
            if done and self._halted():
                return batch.names[done:]
            if not self._plain(above, opened, name, fd, batch.inside[begin:end], status):
                batch.counts[done] = 0  # its entries are not evaluated
        return []

    def _evaluate_own_entries(self, above: Open[int], batch: DirectoryBatch) -> None:
        """Evaluate directories that have been looked up, without their contents."""
        plan, where = self._of_several, self._in(above, "d")
        if where.depth < self._min or not batch.names:
            return
        left = batch.names
        for choose in plan.filters:
            left = choose(left, where.prefix)
        remaining = set(left)
        places = [place for place, name in enumerate(batch.names) if name in remaining]
        self.task.stats.put(batch.own.data)
        self._process_rows(places, plan, where, batch.names)

    def _files_together(self, above: Open[int], batch: DirectoryBatch) -> int:
        """Evaluate all files in directories; return the number that failed or vanished."""
        where, plan = self._in(above, "f"), self._of_kind["f"]
        where = msgspec.structs.replace(where, depth=where.depth + 1)
        holders = [name + b"/" for name in batch.names]
        if plan.end is not None and not plan.filters and not self._looks:
            self._print_all(plan.end, where.prefix, holders, batch)
            return 0
        names, counts = batch.inside, batch.counts
        if plan.filters:
            names, counts = [], []
            for holder, (begin, end) in zip(holders, batch.ranges(), strict=True):
                left = batch.inside[begin:end]
                for choose in plan.filters:
                    left = choose(left, where.prefix + holder)
                names += left
                counts.append(len(left))
        if self._looks:
            self.task.stats.put(batch.table, batch.each_s)
        elif plan.by_columns:
            fds = list(chain.from_iterable(map(repeat, batch.fds, counts)))
            try:
                self.task.stats.look(fds, names)
            except StatBlockError:  # evaluate names one by one to report each error
                return self._files_apart(above, batch)
        if names:
            repeated = list(chain.from_iterable(map(repeat, holders, counts)))
            self._process_rows(
                range(len(names)), plan, msgspec.structs.replace(where, holders=repeated), names
            )
        return 0

    def _print_all(
        self, end: bytes, prefix: bytes, holders: Sequence[bytes], batch: DirectoryBatch
    ) -> None:
        """Print the paths of all files in directories."""
        pieces: list[bytes] = []
        for holder, text in zip(holders, batch.texts(), strict=True):
            if text:
                inside = prefix + holder
                pieces += (inside, text[:-1].replace(b"\0", end + inside), end)
        if pieces:
            self.task.output.add(0, b"".join(pieces))

    def _files_apart(self, above: Open[int], batch: DirectoryBatch) -> int:
        lost = 0
        opened: Open[int] = Open(above.root, b"", 0, above, 0)
        for name, fd, (begin, end) in zip(batch.names, batch.fds, batch.ranges(), strict=True):
            opened.path = join_path(above.path, name)
            lost += end - begin - self._evaluate_names(opened, batch.inside[begin:end], "f", fd)
        return lost

    def _process_rows(
        self,
        places: Sequence[int],
        plan: CompiledExpression,
        where: DirectoryContext,
        names: Sequence[bytes],
    ) -> None:
        """Process the names in these rows of the status table."""
        places = chosen(plan, self.task.stats, places)
        if not places:
            return
        if len(places) < len(names):
            names = [names[place] for place in places]
            if where.holders:
                where = msgspec.structs.replace(
                    where, holders=[where.holders[place] for place in places]
                )
        if plan.end is not None:
            between = plan.end + where.prefix
            text = where.prefix + between.join(where.inside(names)) + plan.end
            self.task.output.add(0, text)
        elif plan.counts:
            self.counters.matched += len(names)
        elif plan.bulk is not None:
            self.task.output.add(0, plan.bulk.text(where, names, self.task.stats, places))

    def _plain(
        self,
        above: Open[int],
        opened: Open[int],
        name: bytes,
        fd: int,
        files: list[bytes],
        status: StatusRow | None,
    ) -> bool:
        """Process a directory of files; return whether its files were evaluated."""
        opened.path = join_path(above.path, name)
        if status is not None and depth_of(opened.path) >= self._min:
            entry = self._entry_in(above, above.leases[0].fd, "d")
            entry.begin(name)
            entry.st = status
            self._evaluate_one(entry)
            self.counters.complaints += entry.bad
            if entry.pruned:
                return False
        if self._halted():
            return False
        self.counters.files -= len(files) - (
            self._evaluate_names(opened, files, "f", fd) if files else 0
        )
        return True
