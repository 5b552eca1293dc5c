"""The visitor of a change of modes, owners and access control lists.

A name is looked up, and the entry is changed only if its state differs or `--force` is given. The
entry is first opened with O_PATH if other users may exchange names, or if the change depends on the
old state (`--from`, maps, access control lists, a plan). A directory is changed when the walk
enters it or, if the change would deny this process access, when the walk leaves it. A directory
that can be entered only after its change is changed as soon as that is detected
(`ModeVisitor.unlock`). All names of a hard-linked file are sent to one rank, chosen by a hash of
the file's identity. That rank changes the file under the first name that arrives.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from bisect import bisect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar

import msgspec

from pcircle.core.encoding import text_of
from pcircle.core.errors import require
from pcircle.fs.directories import CLOSED, HOLDER, Lease
from pcircle.fs.directories import join_path as joined
from pcircle.fs.entry_errors import Changed
from pcircle.fs.registry import Key, home_of
from pcircle.fs.safe_open import PseudoDirectories, Untrusted
from pcircle.fs.scan import Block, DirectoryBatch, encoded
from pcircle.fs.stats import CAPACITY, Table
from pcircle.jobs.plan_file import mark_in, sorted_by_kind, split_mark
from pcircle.tools.fchmod.entry_changer import (
    ChangingTask,
    EntryChanger,
    ModeCounters,
    resolver_of,
    restored,
)
from pcircle.tools.fchmod.resolve import StateResolver
from pcircle.tools.fchmod.state import (
    BulkChanger,
    EntryState,
    Target,
    access_of,
    held,
    ignores_modes,
    is_link,
    state_of,
    target_of,
)
from pcircle.walk.attributes import LETTERS, test_of_directory
from pcircle.walk.globs import choosing, descent
from pcircle.walk.items import UNREACHED, Batch, DirectoryIdentity
from pcircle.walk.open_directory import NO_PARENT, ItemContext, Open
from pcircle.walk.visitor import DirectoryScan, Names, Where, batches

if TYPE_CHECKING:
    from pcircle.jobs.tree_task import TreeItem
    from pcircle.runtime import Context

_FEW = 4  # the initial and smallest batch size; a slow batch halves the size, others double it
_QUICK_S = 0.002
_SMALL = 256  # the maximum number of files in a directory that is processed together with others
_PARTS = 4  # the number of items into which the remaining names of a slow directory are divided
_ENTER = 5  # permission to list and to search a directory
_FIELDS = {"f": "files", "d": "directories", "l": "links"}
_OTHERS_EXCHANGE = stat.S_IWGRP | stat.S_IWOTH


class _PendingDirectory(msgspec.Struct):
    """The old and new state of a directory that the walk has entered but not left.

    `new` is None if the directory is not selected. `done` means that the change was attempted, and
    `error` is the reason if it failed.
    """

    status: os.stat_result
    old: EntryState
    new: EntryState | None
    done: bool = False
    error: OSError | None = None


class ModeVisitor(EntryChanger):
    """The visitor of a change in one worker thread."""

    def __init__(self, task: ChangingTask, counters: ModeCounters | None = None) -> None:
        super().__init__(task, counters)
        plan = self._plan
        self._choose = choosing(
            plan.rules, plan.attribute_filter, plan.now_ns, follow=plan.follow, tally=self.counters
        )
        self._selects = (
            None if plan.applies else test_of_directory(plan.attribute_filter, plan.now_ns)
        )
        self._lists = plan.request.lists
        self._depends = self._resolver.depends or plan.applies or plan.follow
        self._enters_all = ignores_modes()
        # Directories of these users are safe unless other users may write to them. If all entries
        # receive the same mode, exchanged names do not matter.
        self._trusted = 0, os.geteuid()
        self._is_uniform = self._resolver.is_uniform and not self._depends
        # A second resolver computes states for undo records, so that unmapped ids are counted once.
        self._undo_resolver = resolver_of(plan) if plan.undo else None
        self._entering: Open[int] | None = None
        self._unlocked: tuple[tuple[int, int], _PendingDirectory] | None = None
        request = plan.request
        self._sets_owner_only = request.sets_owner_alone and not plan.applies
        self._bulk = BulkChanger(
            self._resolver.mode, (request.uid, request.gid) if self._sets_owner_only else None
        )
        options = (
            (self._owns and not self._sets_owner_only)
            or plan.dry
            or self._depends
            or plan.force
            or plan.acts.any
        )
        self._fast = self._bulk.is_able and not options and plan.operations_per_s is None
        if self._fast and plan.recursive and not plan.listed:
            self.scan: DirectoryScan = DirectoryScan(_SMALL, CAPACITY, look_up=True, keep_open=True)
        self._batch_size = _FEW if self._records is None else CAPACITY
        self._pseudo = PseudoDirectories()
        task.unlock = self.unlock

    # ---- directories -----------------------------------------------------------

    def known(self, opened: Open[int], context: Context[TreeItem]) -> int | None:
        """Store the directory that is entered next, for `unlock`."""
        self._entering, self._unlocked = opened, None
        return None

    def unlock(self, path_fd: int) -> bool:
        """Change a directory that cannot be entered; return whether the change made it accessible.

        `path_fd` is the directory, opened with O_PATH.
        """
        opened = self._entering
        if opened is None or self._plan.dry:
            return False
        try:
            status, target = os.fstat(path_fd), target_of(path_fd)
            due = self._due(opened, status, target, path_fd)
            if due.new is None or self._access(due.new) & ~self._access(due.old) & _ENTER == 0:
                return False
            self._apply_state(opened.root, opened.path, status, target, due.old, due.new)
        except OSError:
            return False  # the walk reports why it cannot be entered
        due.done = True
        self._unlocked = (status.st_dev, status.st_ino), due
        return True

    def enter(self, opened: Open[int], source: Lease, holder: Open[int] | None) -> Lease | None:
        super().enter(opened, source, holder)
        plan, status = self._plan, source.opened.status
        if plan.follow:
            above = b"" if holder is None else holder.ancestors
            opened.ancestors = descent(above, source.identity)
        opened.entered = opened.entered and (plan.recursive or plan.listed)
        self._entering = None
        if self._unlocked is not None and self._unlocked[0] == (status.st_dev, status.st_ino):
            opened.own, self._unlocked = self._unlocked[1], None
            return None
        target: Target = source.fd if not source.searched else target_of(source.fd)
        opened.own = due = self._due(opened, status, target, source.fd)
        if due.new is not None and not self._loses_access(due.old, due.new):
            self._try(opened, target)
        return None

    def _due(
        self, opened: Open[int], status: os.stat_result, target: Target, fd: int
    ) -> _PendingDirectory:
        """Return the pending change of a directory.

        Raise OSError if its state cannot be read, and Changed if a plan records another directory.
        """
        if self._plan.applies:
            mark = mark_in(opened.only, self.task.lists)
            old = state_of(status, target)
            return _PendingDirectory(status, old, restored(mark, status, old) if mark else None)
        old = state_of(status, target if self._lists else None)
        if not self._is_selected(opened, status, fd):
            return _PendingDirectory(status, old, None)
        return _PendingDirectory(status, old, self._resolver.of(stat.S_IFDIR, old))

    def _is_selected(self, opened: Open[int], status: os.stat_result, fd: int) -> bool:
        kinds = self._plan.attribute_filter.kinds
        if opened.only is not None:
            from pcircle.fs.lists import names_itself  # few runs use a list

            if not (opened.path or opened.only.is_range):
                return False  # the list is empty
            if not names_itself(opened.only, self.task.lists):
                return False
        if kinds is not None and "d" not in kinds:
            return False
        is_selected = self._selects is None or self._selects(opened.path, status, fd)
        return is_selected and self._resolver.selects(status.st_uid, status.st_gid)

    def _access(self, state: EntryState) -> int:
        return access_of(state.uid, state.gid, state.mode)

    def _loses_access(self, old: EntryState, new: EntryState) -> bool:
        """Return whether a change removes permissions that the walk needs in the directory."""
        if self._enters_all:
            return False
        return self._access(old) & ~self._access(new) & _ENTER != 0

    def _try(self, opened: Open[int], target: Target) -> None:
        due = opened.own
        try:
            self._apply_state(opened.root, opened.path, due.status, target, due.old, due.new)
        except OSError as error:
            due.error = error
        due.done = True

    def process_directories(
        self, above: Open[int], batch: DirectoryBatch, context: ItemContext[int]
    ) -> list[bytes]:
        """Change small directories and their files; return the names that the walk must enter."""
        count, ranges = len(batch.names), batch.ranges()
        columns = [batch.own.column(name, 0, count) for name in ("uid", "gid", "mode")]
        owners = list(zip(*columns, strict=True))
        kinds = set(owners)
        lost = {kind for kind in kinds if not self._keeps_access(*kind)}
        held = {kind for kind in kinds - lost if self._exchangeable(kind[0], kind[2])}
        changed, apart = 0, set[int]()
        left: dict[int, list[bytes]] = {}  # by the place of the directory
        for place, kind in enumerate(owners) if held or lost else ():
            if kind in held or kind in lost:
                apart.update(range(*ranges[place]))
            if kind in held:
                number, left[place] = self._change_held(batch, place, *ranges[place])
                changed += number
        if len(apart) < len(batch.kinds):
            number, failed = self._bulk.change_all(batch, apart)
            changed += number
            ends = [end for _, end in ranges]
            for place in failed:
                left.setdefault(bisect(ends, place), []).append(batch.inside[place])
        self.counters.changed += changed
        done = [place for place, kind in enumerate(owners) if kind not in lost]
        undone = sum(map(len, left.values()))  # `_change_singly` counts these files
        self.counters.files -= undone
        self.counters.sized -= undone
        for place, names in left.items():
            path = joined(above.path, batch.names[place])
            # Use the slot of the parent directory, which waits for items spawned here.
            where: Open[int] = Open(above.root, path, above.slot, NO_PARENT, 0)
            where.place = DirectoryIdentity(self.task.identify(os.fstat(batch.fds[place])))
            self._change_singly(where, names, batch.fds[place], context)
        changes = {kind: self._change_of(EntryState(*kind)) for kind in kinds - lost}
        for place in done:
            change, fd = changes[owners[place]], batch.fds[place]
            if change is None:
                continue
            try:
                change(fd)
                self.counters.changed += 1
            except OSError as error:
                self.counters.directories -= 1
                path = joined(above.path, batch.names[place])
                self._refused(above.root, path, error, os.fstat(fd), context)
        return [name for name, kind in zip(batch.names, owners, strict=True) if kind in lost]

    def _change_held(
        self, batch: DirectoryBatch, place: int, begin: int, end: int
    ) -> tuple[int, list[bytes]]:
        """Change the files in a directory in which other users may exchange names."""
        names, table = batch.inside[begin:end], Table(batch.table)
        if not table.has_single_names(begin, end):
            return 0, names
        return self._bulk.change_held(batch.fds[place], names, table.column("mode", begin, end))

    def _keeps_access(self, uid: int, gid: int, mode: int) -> bool:
        """Return whether a change certainly leaves this process the same access to a directory."""
        if self._enters_all:
            return True
        if self._sets_owner_only:
            return False
        return access_of(uid, gid, mode) == access_of(uid, gid, self._resolver.mode(mode))

    def _change_of(self, old: EntryState) -> Callable[[int], None] | None:
        """Return the function that changes a directory of this state, or None if none is needed."""
        if self._sets_owner_only:
            old = old._replace(mode=stat.S_IMODE(old.mode))
            new = self._resolver.of(stat.S_IFDIR, old)
            return None if new == old else lambda fd: os.fchown(fd, new.uid, new.gid)
        mode = self._resolver.mode(old.mode)
        return None if mode == old.mode & 0o7777 else lambda fd: os.fchmod(fd, mode)

    def meant(self, opened: Open[int], blocks: Iterable[Block], source: Lease) -> Iterable[Block]:
        return map(sorted_by_kind, blocks) if self._plan.applies else blocks

    def leave(self, opened: Open[int], context: Context[TreeItem]) -> int:
        counters, due = self.counters, opened.own
        counters.left_out += opened.left_out
        if due.new is None:
            counters.kept += 1
            return 0
        if not due.done:
            if opened.leases is not CLOSED:
                self._try(opened, opened.leases[0].fd)
            else:
                self._try_again(opened)
        if due.error is not None:
            self._refused(opened.root, opened.path, due.error, due.status, context)
            return 0
        counters.directories += 1
        self._report(opened.root, opened.path, due.status, due.old, due.new, context)
        return 0

    def _try_again(self, opened: Open[int]) -> None:
        identity = opened.place.source
        try:
            with self.task.directories.lease(opened.root, opened.path, identity) as lease:
                self._try(opened, lease.fd)
        except OSError as error:
            opened.own.error = error

    def failed(self, opened: Open[int], error: OSError, context: Context[TreeItem]) -> None:
        """Report a directory that failed; if it was reached, change it nonetheless."""
        if opened.place is UNREACHED:
            self.counters.scans_done += 1
            self.counters.sized += 1
        self._entering = None
        if error.errno == errno.ENOENT:
            self.counters.vanished += 1
            self._vanished(opened.root, opened.path, "d")
            return
        due = opened.own
        if due is None and self._unlocked is not None:
            due = self._unlocked[1]
        try:
            if due is None and opened.leases is not CLOSED:
                lease = opened.leases[0]
                target = target_of(lease.fd) if lease.searched else lease.fd
                due = opened.own = self._due(opened, lease.opened.status, target, lease.fd)
                if due.new is not None:
                    self._try(opened, target)
        except OSError as second_error:
            error = second_error
        if due is not None and due.done and due.error is None:
            if self._plan.recursive:
                self.fail(opened.root, opened.path, "read directory", error, context)
            else:
                self.counters.directories += 1
            new = require(due.new)  # `done` implies that the directory is selected
            self._report(opened.root, opened.path, due.status, due.old, new, context)
        elif due is not None and due.error is not None:
            self._refused(opened.root, opened.path, due.error, due.status, context)
        else:
            self.fail(opened.root, opened.path, "read directory", error, context)

    def lost(self, opened: Open[int]) -> int:
        return 0

    # ---- names -----------------------------------------------------------------

    def names(
        self, where: Where, names: Names, fds: tuple[int, int], context: ItemContext[int]
    ) -> None:
        """Change the entries with these names; spawn the remaining names as items if time is up."""
        fd = fds[0]
        if where.path == HOLDER:
            names = self._chosen(where, names, fd)
        every, at = names.all(), 0
        do = self._change_singly
        if self._fast:
            do = self._change_batch_held if self._may_exchange(where, fd) else self._change_batch
        begun_s = last_s = time.monotonic()
        while at < len(every) and not (at and context.stopping):
            batch = every[at : at + self._batch_size]
            do(where, batch, fd, context)
            at += len(batch)
            now_s = time.monotonic()
            if where.path != HOLDER and context.is_time_up(now_s - begun_s):
                remaining = Names([], [], every[at:])
                context.spawn(list(batches(where, remaining, -(-len(remaining) // _PARTS) or 1)))
                return
            if self._records is not None:
                pass  # a large batch waits only once for its undo records
            elif now_s - last_s > _QUICK_S:
                self._batch_size = max(_FEW, self._batch_size // 2)
            elif len(batch) == self._batch_size:
                self._batch_size = min(2 * self._batch_size, CAPACITY)
            last_s = now_s

    def _chosen(self, where: Where, names: Names, fd: int) -> Names:
        """Apply the filters to a PATH that is not entered."""
        if self._plan.applies:
            return names if self._plan.marks[where.root] else Names([], [], [])
        block, every = Block(), names.all()
        block.files, block.links, block.specials = (
            list(map(text_of, encoded_names))
            for encoded_names in (names.files, names.links, names.specials)
        )
        self._choose(block, HOLDER, fd)
        chosen = Names(encoded(block.files), encoded(block.links), encoded(block.specials))
        self.counters.kept += len(every) - len(chosen)
        self.counters.weight += where.weight * (len(every) - len(chosen))
        return chosen

    def _may_exchange(self, where: Where, fd: int) -> bool:
        """Return whether other users may exchange names in a directory during the change."""
        try:
            status = os.fstat(fd)
            return self._exchangeable(status.st_uid, status.st_mode)
        except OSError:
            return True  # opening each name reports its failure

    def _exchangeable(self, uid: int, mode: int) -> bool:
        # A sticky bit does not prevent the owner of a file from replacing it.
        exchangeable = mode & _OTHERS_EXCHANGE or uid not in self._trusted
        return bool(exchangeable) and not self._is_uniform

    def _change_batch(
        self, where: Where, names: Sequence[bytes], fd: int, context: ItemContext[int]
    ) -> None:
        """Change a batch of files by name; exchanged names are impossible or harmless here."""
        several, special = self._bulk.odd(fd, names)
        odd = {*several, *special}
        changed, failed = self._bulk.change(fd, names, odd)
        left = [names[place] for place in (*several, *special, *failed)]
        self._count(where, names, changed, left, fd, context)

    def _change_batch_held(
        self, where: Where, names: Sequence[bytes], fd: int, context: ItemContext[int]
    ) -> None:
        """Change the modes of files by descriptor, because other users may exchange the names."""
        self._count(where, names, *self._bulk.change_held(fd, names), fd, context)

    def _count(
        self,
        where: Where,
        names: Sequence[bytes],
        changed: int,
        failed: list[bytes],
        fd: int,
        context: ItemContext[int],
    ) -> None:
        """Count the names in a batch, and retry those that failed one by one."""
        counters, done = self.counters, len(names) - len(failed)
        counters.weight += where.weight * done
        counters.sized += done
        counters.files += done
        counters.changed += changed
        if failed:
            self._change_singly(where, failed, fd, context)

    def _change_singly(
        self, where: Where, names: Sequence[bytes], fd: int, context: ItemContext[int]
    ) -> None:
        careful = self._depends or self._may_exchange(where, fd)
        if self._records is not None:
            self._records.add(self._foreseen(where, names, fd, careful=careful))
        elsewhere: dict[int, list[bytes]] = {}
        for name in names:
            bare, mark = split_mark(name) if self._plan.applies else (name, b"")
            path = joined(where.path, bare)
            status = key = None
            try:
                status = os.stat(bare, dir_fd=fd, follow_symlinks=self._plan.follow)
                if self._plan.follow:
                    self._refuse_devices(bare, fd, status)
                if status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode):
                    key = self.task.key_of(status)
                    home = home_of(key, self._plan.ranks)
                    if home != self.task.rank:
                        elsewhere.setdefault(home, []).append(name)
                        continue
                    if not self.task.firsts.is_first(key, status.st_nlink):
                        self._settle(where, "linked")
                        continue
                self._one(where, bare, path, mark, status, fd, careful, context)
            except FileNotFoundError as error:
                self._take_back(key)
                if self._plan.follow and is_link(bare, fd):
                    self._settle(where, "")
                    self._refused(where.root, path, error, None, context)
                    continue
                self._settle(where, "vanished")
                self._vanished(where.root, path, "")
            except OSError as error:
                self._settle(where, "")
                self._refused(where.root, path, error, status, context)
                if isinstance(error, Changed):
                    self._take_back(key)
        for home, batch_names in elsewhere.items():
            packed = b"\0".join(batch_names)
            weight, place, slot = where.weight, where.place, where.slot
            context.wait(slot)
            batch = Batch(where.root, where.path, packed, b"", weight, place, b"", slot)
            context.post(home, [batch])

    def _foreseen(
        self, where: Where, names: Sequence[bytes], fd: int, *, careful: bool
    ) -> Iterator[bytes]:
        """Yield an undo record for each name before it is changed; skip unreadable names."""
        for name in names:
            with suppress(OSError):
                bare, mark = split_mark(name) if self._plan.applies else (name, b"")
                status = os.stat(bare, dir_fd=fd, follow_symlinks=self._plan.follow)
                if careful:
                    with held(bare, fd, follow=self._plan.follow) as (target, status):
                        lists = self._lists or self._plan.applies
                        old = state_of(status, target if lists else None)
                else:
                    old = state_of(status)
                new = self._new_state(where, mark, status, old, self._undo_resolver)
                if new is None or (new == old and not self._plan.force):
                    continue
                # Check this after the look-up, so that the recorded state precedes any change.
                if status.st_nlink == 1 or self._is_first(status):
                    yield self._record_of(where.root, joined(where.path, bare), status, old)

    def _is_first(self, status: os.stat_result) -> bool:
        """Return whether this rank must still change a hard-linked file."""
        key = self.task.key_of(status)
        is_here = home_of(key, self._plan.ranks) == self.task.rank
        return is_here and not self.task.firsts.is_known(key)

    def _refuse_devices(self, name: bytes, fd: int, status: os.stat_result) -> None:
        """Raise Untrusted if a link leads to a device or into a pseudo file system."""
        self._pseudo.refuse(status)
        if stat.S_IFMT(status.st_mode) in (stat.S_IFCHR, stat.S_IFBLK) and is_link(name, fd):
            raise Untrusted("the link leads to a device")

    def _take_back(self, key: Key | None) -> None:
        """Let another name of a hard-linked file be tried, because this name failed."""
        if key is not None:
            self.task.firsts.take_back(key)

    def _settle(self, where: Where, counter: str) -> None:
        counters = self.counters
        counters.weight += where.weight
        counters.sized += 1
        if counter:
            setattr(counters, counter, getattr(counters, counter) + 1)

    def _one(
        self,
        where: Where,
        name: bytes,
        path: bytes,
        mark: bytes,
        status: os.stat_result,
        fd: int,
        careful: bool,
        context: ItemContext[int],
    ) -> None:
        """Change one entry as requested; raise OSError if that fails."""
        if stat.S_ISDIR(status.st_mode) and where.path != HOLDER:
            raise Changed("it is now a directory")
        if careful:
            with held(name, fd, follow=self._plan.follow) as (target, held_status):
                status = held_status
                lists = self._lists or self._plan.applies
                old = state_of(status, target if lists else None)
                new = self._new_state(where, mark, status, old)
                if new is not None:
                    self._apply_state(where.root, path, status, target, old, new)
        else:
            old = state_of(status)
            new = self._new_state(where, mark, status, old)
            if new is not None:
                self._apply_state_by_name(where.root, path, status, name, fd, old, new)
        kind = LETTERS.get(stat.S_IFMT(status.st_mode), "?")
        self._settle(where, "kept" if new is None else _FIELDS.get(kind, "special"))
        if new is not None or (kind == "l" and self._plan.verbosity > 1):
            self._report(where.root, path, status, old, new or old, context)

    def _new_state(
        self,
        where: Where,
        mark: bytes,
        status: os.stat_result,
        old: EntryState,
        resolver: StateResolver | None = None,
    ) -> EntryState | None:
        resolver = resolver or self._resolver
        if self._plan.applies:
            return restored(mark or self._plan.marks[where.root], status, old)
        if not resolver.selects(status.st_uid, status.st_gid):
            return None
        if stat.S_ISLNK(status.st_mode) and not self._owns:
            return None  # a link has no mode, and its target is not selected
        return resolver.of(stat.S_IFMT(status.st_mode), old)


class ModeTask(ChangingTask):
    """The task of a change, with its visitor."""

    visitor_type: ClassVar[type[ModeVisitor]] = ModeVisitor
