"""The visitor of ffind: evaluates the expression for each entry that the walk finds.

Names that need no look-ups are evaluated by the item that reads their directory. Other names may be
handed to other ranks. If the name of a directory suffices, the directory is evaluated before it is
opened, so that a pruned directory is not opened. If its status is needed, it is opened first,
because an open directory yields its status (`_enters`). With -depth it is evaluated when the walk
leaves it.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterable, Iterator, Sequence

from pcircle.core.encoding import text_of
from pcircle.fs.directories import CLOSED, HOLDER, Lease
from pcircle.fs.entry_errors import EntryError
from pcircle.fs.open_flags import OPEN_DIRECTORY
from pcircle.fs.scan import Block, encoded
from pcircle.jobs.tree_task import TreeItem
from pcircle.runtime import Context
from pcircle.tools.ffind.eval.compiler import Filter
from pcircle.tools.ffind.eval.entry import FindEntry, Test
from pcircle.tools.ffind.eval.evaluator import depth_of
from pcircle.tools.ffind.eval.small import SmallDirectoryEvaluator
from pcircle.walk.globs import descent
from pcircle.walk.items import UNREACHED, DirectoryIdentity, handed_back, source_of
from pcircle.walk.open_directory import ItemContext, Open
from pcircle.walk.visitor import Names, Where

_BROKEN = (errno.ENOENT, errno.ENOTDIR)
_HERE = b"."
_FEW = 256  # entries
_DIRECTORY = OPEN_DIRECTORY | os.O_NONBLOCK


class _OpenState:
    """The state of an open directory: its status, and whether it has been evaluated."""

    __slots__ = ("is_done", "status")

    def __init__(self, status: os.stat_result | None) -> None:
        self.status = status
        self.is_done = False


class FindVisitor(SmallDirectoryEvaluator):
    """The visitor of a search."""

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
        done = self._evaluate_names(where, names.links, "l", fds[0])
        counters.links += done
        counters.special += self._evaluate_names(where, names.specials, "", fds[0])
        files, batch_size = names.files, self._batch_size
        begun_s = time.monotonic()
        for at in range(0, len(files), batch_size):
            counters.files += self._evaluate_names(where, files[at : at + batch_size], "f", fds[0])
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
                yield _emptied(block)
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
            count = len(names)
            done = self._evaluate_names(opened, encoded(names), kind, fd)
            counters.found += count
            counters.sized += count
            if kind == "f":
                counters.files += done
            elif kind == "l":
                counters.links += done
            else:
                counters.special += done
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
            if stat.S_ISDIR(mode):
                block.directories.append(name)
            elif stat.S_ISREG(mode):
                block.files.append(name)
            else:
                block.specials.append(name)

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


def _emptied(block: Block) -> Block:
    """Remove all entries from a block, and return it."""
    block.files, block.links, block.specials, block.directories = [], [], [], []
    return block


def _is_excluded(excludes: Test, entry: FindEntry, name: bytes) -> bool:
    entry.begin(name)
    return bool(excludes(entry))
