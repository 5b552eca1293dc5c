"""The visitor of ffind: evaluates the expression for each entry that the walk finds.

Names that need no look-ups are evaluated by the item that reads their directory. Other names may be
handed to other ranks. If the name of a directory suffices, the directory is evaluated before it is
opened, so that a pruned directory is not opened. If its status is needed, it is opened first,
because an open directory yields its status (`_enters`). With -depth it is evaluated when the walk
leaves it. Small directories that contain only files are processed in batches.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import TYPE_CHECKING

import msgspec

from pcircle.core.encoding import text_of
from pcircle.fs.directories import CLOSED, HOLDER, Lease, join_path
from pcircle.fs.entry_errors import EntryError
from pcircle.fs.scan import Block, DirectoryBatch, encoded
from pcircle.fs.stats import CAPACITY, StatBlockError, StatusRow
from pcircle.jobs.tree_task import TreeItem
from pcircle.runtime import Context
from pcircle.tools.ffind.eval.bulk import DirectoryContext
from pcircle.tools.ffind.eval.compiler import CompiledExpression, Filter
from pcircle.tools.ffind.eval.entry import FindEntry, Test
from pcircle.tools.ffind.eval.evaluator import Evaluator, chosen, depth_of
from pcircle.walk.globs import descent
from pcircle.walk.items import UNREACHED, DirectoryIdentity, handed_back, source_of
from pcircle.walk.open_directory import ItemContext, Open
from pcircle.walk.visitor import DirectoryScan, Names, Where

if TYPE_CHECKING:
    from pcircle.tools.ffind.eval.actions import SearchTask
    from pcircle.tools.ffind.plan import FindCounters

_FEW = 256  # entries
_ROOM = 8192  # entries of a batch if none is looked up
_BROKEN = (errno.ENOENT, errno.ENOTDIR)
_HERE = b"."


class _OpenState(msgspec.Struct):
    """The state of an open directory: its status, and whether it has been evaluated."""

    status: os.stat_result | None
    is_done: bool = False


class FindVisitor(Evaluator):
    """The visitor of a search."""

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

    # ---- names -----------------------------------------------------------------

    def names(
        self, where: Where, names: Names, fds: tuple[int, int], context: ItemContext[int]
    ) -> None:
        """Evaluate names; hand back the remaining names if the batch takes too long."""
        counters, count = self.counters, len(names)
        if self._halted():
            counters.weight += where.weight * count
            counters.kept += count
            return
        if where.path == HOLDER:
            self._starts(where, names, fds[0])
            return
        self._evaluate_and_count(where, names.links, "l", fds[0])
        self._evaluate_and_count(where, names.specials, "", fds[0])
        files, batch_size = names.files, self._batch_size
        begun_s = time.monotonic()
        for at in range(0, len(files), batch_size):
            self._evaluate_and_count(where, files[at : at + batch_size], "f", fds[0])
            enough = context.is_time_up(time.monotonic() - begun_s)
            if (enough or context.stopping) and at + batch_size < len(files):
                remaining = files[at + batch_size :]
                count -= len(remaining)
                context.spawn(list(handed_back(where, remaining)))
                break
        counters.weight += where.weight * count
        counters.sized += count

    def _starts(self, where: Where, names: Names, fd: int) -> None:
        """Evaluate a PATH that is not a directory."""
        counters = self.counters
        for name in names.all():
            entry = self._start_entry(where.root, fd, name, "")
            counters.weight += where.weight
            counters.sized += 1
            entry.look()
            if not entry.bad and not self._min:
                self._evaluate_one(entry)
            if entry.bad:
                self._settle(entry)
            elif entry.kind == "l":
                counters.links += 1
            else:
                counters.files += 1

    # ---- directories -----------------------------------------------------------

    def known(self, opened: Open[int], context: Context[TreeItem]) -> int | None:
        """Return a result if the search has ended, so that the directory is not entered."""
        if not self._halted():
            return None
        self.counters.scans_done += 1
        self.counters.sized += 1
        self.counters.kept += 1
        return 0

    def enter(self, opened: Open[int], source: Lease, holder: Open[int] | None) -> Lease | None:
        self.counters.scans_done += 1
        self.counters.sized += 1
        opened.place = DirectoryIdentity(source.identity)
        status = self.task.with_original_atime(source.opened.status)
        opened.own = own = _OpenState(status)
        times = self.task.access_times
        if times is not None and self._updates_directories and times.is_updated_by(source.fd):
            times.remember(status)
        if self._follows:
            self._refuse_loop(opened, holder, source)
        if holder is None or self._enters:
            self._before(opened, own, source, holder)
        return None

    def _refuse_loop(self, opened: Open[int], holder: Open[int] | None, source: Lease) -> None:
        above = b"" if holder is None else holder.ancestors
        try:
            opened.ancestors = descent(above, source.identity)
        except OSError:
            opened.own = None
            raise

    def _before(
        self, opened: Open[int], own: _OpenState, source: Lease, holder: Open[int] | None
    ) -> None:
        """Evaluate an open directory before it is read."""
        if self._halted():
            opened.entered = False
            return
        depth = depth_of(opened.path)
        if not self._deep and depth >= self._min:
            entry = self._of_opened(opened, own, source, holder)
            self._evaluate_one(entry)
            self.counters.complaints += entry.bad
            if entry.pruned:
                opened.entered = False
            own.is_done = True
        elif self._excludes is not None:
            entry = self._of_opened(opened, own, source, holder)
            if self._excludes(entry):
                opened.entered = False
                own.is_done = True
        if self._max is not None and depth >= self._max:
            opened.entered = False

    def _of_opened(
        self, opened: Open[int], own: _OpenState, source: Lease | None, holder: Open[int] | None
    ) -> FindEntry:
        """Return the entry of an open directory, while its parent is open."""
        if not opened.path:
            fd = (source or opened.leases[0]).fd
            entry = self._start_entry(opened.root, fd, _HERE, "d")
        else:
            above = opened.above
            entry = self._entry_in(above, above.leases[0].fd, "d")
            entry.begin(opened.path.rpartition(b"/")[2])
        entry.st = own.status
        return entry

    def meant(self, opened: Open[int], blocks: Iterable[Block], source: Lease) -> Iterator[Block]:
        """Evaluate names that need no look-up; yield blocks of the remaining names."""
        at_bottom = self._max is not None and depth_of(opened.path) + 1 >= self._max
        for block in blocks:
            if self._halted():
                block.files, block.links, block.specials, block.directories = [], [], [], []
                yield block
                continue
            if self._follows and block.links:
                self._follow(opened, block, source.fd)
            if self._light:
                self._at_once(opened, block, source.fd)
            if block.directories and (not self._enters or (at_bottom and not self._follows)):
                self._directories(opened, block, source.fd, at_bottom=at_bottom)
            yield block

    def _at_once(self, opened: Open[int], block: Block, fd: int) -> None:
        counters = self.counters
        for kind, names in (("f", block.files), ("l", block.links), ("", block.specials)):
            if not names:
                continue
            counters.found += len(names)
            counters.sized += len(names)
            self._evaluate_and_count(opened, encoded(names), kind, fd)
        block.files, block.links, block.specials = [], [], []

    def _directories(self, opened: Open[int], block: Block, fd: int, *, at_bottom: bool) -> None:
        """Evaluate subdirectories, and count the directories that will not be entered."""
        names = encoded(block.directories)
        plan = self._of_kind["d"]
        entered: list[bytes] = []
        depth = depth_of(opened.path) + 1
        late = self._deep and not at_bottom
        excludes = self._excludes
        if late and excludes is None:
            return
        if depth < self._min or (plan.test is None and excludes is None):
            if not late:
                self._evaluate_names(opened, names, "d", fd)
            if not at_bottom:
                return
        elif late and excludes is not None:
            entry = self._entry_in(opened, fd, "d")
            entered = [name for name in names if not _is_excluded(excludes, entry, name)]
        elif plan.test is not None:
            entered = self._pruning(opened, plan.filters, plan.test, names, fd)
        else:
            entered = names
        if at_bottom:
            entered = []
        done = len(names) - len(entered)
        self.counters.found += done
        self.counters.sized += done
        self.counters.directories += done
        block.directories = list(map(text_of, entered))

    def _pruning(
        self,
        opened: Open[int],
        filters: Sequence[Filter],
        test: Test,
        names: list[bytes],
        fd: int,
    ) -> list[bytes]:
        """Evaluate directories; return directories that are not pruned."""
        chosen, prefix = names, self._prefix(opened.root, opened.path)
        for choose in filters:
            chosen = choose(chosen, prefix)
        pruned: set[bytes] = set()
        entry = self._entry_in(opened, fd, "d")
        for name in chosen:
            entry.begin(name)
            self._evaluate(test, entry)
            self.counters.complaints += entry.bad
            if entry.pruned:
                pruned.add(name)
            if self._halted():
                break
        if self._gathers:
            self.task.commands.end(dirs_only=True)
        return [name for name in names if name not in pruned] if pruned else names

    def _follow(self, opened: Open[int], block: Block, fd: int) -> None:
        """Sort links by the kinds of their targets; a dangling link stands for itself."""
        links, block.links = block.links, []
        for name in links:
            try:
                mode = os.stat(name, dir_fd=fd).st_mode
            except OSError as error:
                if error.errno in _BROKEN:
                    block.links.append(name)
                else:
                    self._unfollowed(opened, name, error)
                continue
            block.add_target(name, mode)

    def _unfollowed(self, opened: Open[int], name: str, error: OSError) -> None:
        self.counters.found += 1
        self.counters.sized += 1
        entry = self._entry_in(opened, -1, "l")
        entry.begin(os.fsencode(name))
        self._report(entry, "follow link", error)
        self._settle(entry)

    def leave(self, opened: Open[int], context: Context[TreeItem]) -> int:
        own = opened.own
        self.counters.left_out += opened.left_out
        if self._deep and not (own is not None and own.is_done) and not self._halted():
            entry = self._after(opened, own)
            if entry is not None and (entry.bad or entry.gone):
                self._settle(entry)
                return 0
        self.counters.directories += 1
        return 0

    def _after(self, opened: Open[int], own: _OpenState | None) -> FindEntry | None:
        """Evaluate a completed directory; return None if it is above the minimum depth."""
        if depth_of(opened.path) < self._min:
            return None
        directories = self.task.directories
        own = own or _OpenState(None)
        lease = None
        try:
            if opened.path:
                above = opened.above
                if above.leases is CLOSED:
                    where = opened.root, above.path
                    lease = directories.lease(*where, source_of(above.place))
                    entry = self._entry_in(above, lease.fd, "d")
                else:
                    entry = self._entry_in(above, above.leases[0].fd, "d")
                entry.begin(opened.path.rpartition(b"/")[2])
            else:
                start = self._plan.roots[opened.root % len(self._plan.roots)]
                lease = directories.lease(opened.root, HOLDER if start.within else b"")
                entry = self._start_entry(opened.root, lease.fd, start.within or _HERE, "d")
            entry.st = own.status
            self._evaluate_one(entry)
        except OSError as error:
            entry = self._entry_in(opened, -1, "d")
            self._report(entry, "reach", error)
        finally:
            if lease is not None:
                lease.end()
        return entry

    def failed(self, opened: Open[int], error: OSError, context: Context[TreeItem]) -> None:
        """Report an unreadable directory, and evaluate it nonetheless."""
        if opened.place is UNREACHED:
            self.counters.scans_done += 1
            self.counters.sized += 1
        if error.errno == errno.ENOENT and self._silent and opened.path:
            self.counters.vanished += 1
            return
        if error.errno == errno.ENOENT and not opened.path and opened.leases is CLOSED:
            self.fail(opened.root, b"", "look up", error, context)
            return
        is_loop = isinstance(error, EntryError)
        own = opened.own
        depth = depth_of(opened.path)
        if own is None:
            status = None
            if opened.leases is not CLOSED:
                status = self.task.with_original_atime(opened.leases[0].opened.status)
            opened.own = own = _OpenState(status)
        is_at_end = self._max is not None and depth >= self._max
        is_due = not is_loop and not own.is_done and depth >= self._min
        if is_due and not self._deep and (not opened.path or self._enters):
            own.is_done = True
            is_at_end = self._evaluated_late(opened, own) or is_at_end
        if is_at_end and not is_loop and opened.leases is not CLOSED:
            self.counters.directories += 1
            return
        self.fail(opened.root, opened.path, "read directory", error, context)
        if self._deep and not is_loop and not own.is_done and depth >= self._min:
            self._after(opened, own)

    def _evaluated_late(self, opened: Open[int], own: _OpenState) -> bool:
        """Evaluate a directory that could not be read; return whether it is pruned."""
        lease = None
        try:
            above = opened.above
            if opened.path and above.leases is CLOSED:
                where = opened.root, above.path
                lease = self.task.directories.lease(*where, source_of(above.place))
                entry = self._entry_in(above, lease.fd, "d")
                entry.begin(opened.path.rpartition(b"/")[2])
                entry.st = own.status
            elif not opened.path and opened.leases is CLOSED:
                entry = self._start_entry(opened.root, -1, _HERE, "d")
                entry.st = own.status
            else:
                entry = self._of_opened(opened, own, None, above)
            self._evaluate_one(entry)
            self.counters.complaints += entry.bad
        except OSError:
            return False
        finally:
            if lease is not None:
                lease.end()
        return entry.pruned

    def lost(self, opened: Open[int]) -> int:
        return 0

    # ---- small directories that contain only files, in fewer steps -------------

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


def _is_excluded(excludes: Test, entry: FindEntry, name: bytes) -> bool:
    entry.begin(name)
    return bool(excludes(entry))
