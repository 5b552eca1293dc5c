"""The walk's view of a change of modes, owners and lists.

A name is looked up, and changed only if something about it changes. Where what it was decides about
what it gets (`--from`, maps, lists, a plan), or where others may exchange names meanwhile, it is
first opened for its path alone. A directory is changed where it is entered, or if that takes from
this process what it needs to get in, where it is left; one that can't be entered before it is
changed, is so when that is found out (`Changer.unlock`). Each file that has several names goes to
one rank, found by hashing it, and there the first name decides.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Sequence
from typing import Any

from pcircle.encoding import text_of
from pcircle.fchmod import telling
from pcircle.fchmod.calls import Target, access_of, by_name, held, ignores_modes, target_of
from pcircle.fchmod.plan import Counters, Denied, ModePlan, Unmapped
from pcircle.fchmod.state import State, apply, mark_of, read_mark, state_of
from pcircle.fchmod.wishing import Wisher
from pcircle.fs.directories import HOLDER, Lease
from pcircle.fs.directories import join_path as joined
from pcircle.fs.registry import home_of
from pcircle.fs.scan import Block, encoded
from pcircle.fs.trouble import Changed
from pcircle.guards import require
from pcircle.tool.planned import entry, mark_in, parted, sorted_out
from pcircle.tool.trees import EntryVisitor
from pcircle.walk.attributes import LETTERS, test_of_directory
from pcircle.walk.choosing import choosing
from pcircle.walk.items import Batch
from pcircle.walk.opened import Gathering, Open
from pcircle.walk.visitor import Names, Where
from pcircle.walk.walker import batches

_FEW, _MANY = 4, 256  # names between two looks at the clock, more if they take no longer than
_QUICK_S = 0.001
_PARTS = 4  # that what is left of a slow directory is handed back in
_BATCH_S = 0.1
_WAITED_FOR_S = 0.01  # of a batch, where somebody waits for work
_ENTER = 5  # to list and to search a directory
_FIELDS = {"f": "files", "d": "directories", "l": "links"}
_SET_ID = stat.S_ISUID | stat.S_ISGID
_OTHERS_EXCHANGE = stat.S_IWGRP | stat.S_IWOTH
_OTHER = "it is no longer what was planned"


class _Due:
    """A directory, from where it is entered to where it is left.

    `new` is None if it is not meant, `done` tells that it is what it is to be, `error` why not.
    """

    __slots__ = ("done", "error", "new", "old", "status")

    def __init__(self, status: os.stat_result, old: State, new: State | None) -> None:
        self.status = status
        self.old = old
        self.new = new
        self.done = False
        self.error: OSError | None = None


class Changer(EntryVisitor):
    """The walk's view of a change."""

    def __init__(self, task: Any, counters: Counters | None = None) -> None:
        super().__init__(task, counters)
        plan: ModePlan = task.plan
        self._plan = plan
        self._acts = task.acts
        self._wisher = Wisher(plan.wish, telling.user, telling.group, force=plan.force)
        self._choose = choosing(plan.rules, plan.wanted, plan.now_ns)
        self._is_wanted = None if plan.applies else test_of_directory(plan.wanted, plan.now_ns)
        self._chmod = by_name()
        self._lists = plan.wish.lists
        self._depends = self._wisher.depends or plan.applies
        self._owns = plan.wish.owns or plan.applies
        modes = (plan.wish.directory_mode, plan.wish.other_mode) != (None, None)
        self._forces_owner, self._forces_mode = plan.force and plan.wish.owns, plan.force and modes
        self._fast = not (
            plan.dry or self._owns or self._depends or plan.force or plan.acts.any or
            plan.operations_per_s is not None
        )  # fmt: skip
        self._enters_all = ignores_modes()
        self._entering: Open[int] | None = None
        self._unlocked: tuple[tuple[int, int], _Due] | None = None
        self._denied: dict[int, int] = {}
        self._is_stopping = task.never
        task.unlock = self.unlock

    def begin(self, item: Any, context: Any) -> None:
        """See `Visitor`."""
        self._is_stopping = context.is_stopping

    def resume(self, base: Open[int], context: Any) -> None:
        """See `Visitor`."""
        self._is_stopping = context.is_stopping

    # ---- directories -----------------------------------------------------------

    def known(self, opened: Open[int], context: Any) -> int | None:
        """See `Visitor`: which directory is opened next is of interest to `unlock`."""
        self._entering, self._unlocked = opened, None
        return None

    def unlock(self, path_fd: int) -> bool:
        """Change a directory that can't be entered as it is, if then it can; whether that was so.

        It is open for its path alone.
        """
        opened = self._entering
        if opened is None or self._plan.dry:
            return False
        try:
            status, target = os.fstat(path_fd), target_of(path_fd)
            due = self._due(opened, status, target)
            if due.new is None or self._access(due.new) & ~self._access(due.old) & _ENTER == 0:
                return False
            self._bring(opened.root, opened.path, status, target, due.old, due.new)
        except OSError:
            return False  # and that is why it can't be entered
        due.done = True
        self._unlocked = (status.st_dev, status.st_ino), due
        return True

    def enter(self, opened: Open[int], source: Lease, holder: Open[int] | None) -> Lease | None:
        """See `Visitor`."""
        super().enter(opened, source, holder)
        plan, status = self._plan, source.opened.status
        opened.entered = opened.entered and (plan.recursive or plan.listed)
        self._entering = None
        if self._unlocked is not None and self._unlocked[0] == (status.st_dev, status.st_ino):
            opened.own, self._unlocked = self._unlocked[1], None
            return None
        target: Target = source.fd if not source.searched else target_of(source.fd)
        opened.own = due = self._due(opened, status, target)
        if due.new is not None and not self._takes(due):
            self._try(opened, target)
        return None

    def _due(self, opened: Open[int], status: os.stat_result, target: Target) -> _Due:
        """A directory, with what it is to be. OSError, Changed."""
        if self._plan.applies:
            mark = mark_in(require(opened.only), self.task.lists)
            old = state_of(status, target)
            return _Due(status, old, _restored(mark, status, old) if mark else None)
        old = state_of(status, target if self._lists else None)
        if not self._is_meant(opened, status):
            return _Due(status, old, None)
        return _Due(status, old, self._wisher.of(stat.S_IFDIR, old))

    def _is_meant(self, opened: Open[int], status: os.stat_result) -> bool:
        kinds = self._plan.wanted.kinds
        if opened.only is not None:
            from pcircle.fs.lists import names_itself  # few runs have a list

            if not names_itself(opened.only, self.task.lists):
                return False
        if kinds is not None and "d" not in kinds:
            return False
        wanted = self._is_wanted is None or self._is_wanted(opened.path, status)
        return wanted and self._wisher.is_meant(status.st_uid, status.st_gid)

    def _access(self, state: State) -> int:
        return access_of(state.uid, state.gid, state.mode)

    def _takes(self, due: _Due) -> bool:
        """Whether a change takes from this process what it needs to work in the directory."""
        if self._enters_all:
            return False
        return self._access(due.old) & ~self._access(require(due.new)) & _ENTER != 0

    def _try(self, opened: Open[int], target: Target) -> None:
        due = opened.own
        try:
            self._bring(opened.root, opened.path, due.status, target, due.old, due.new)
        except OSError as error:
            due.error = error
        due.done = True

    def meant(self, opened: Open[int], blocks: Any, source: Lease) -> Any:
        """See `Visitor`."""
        return map(sorted_out, blocks) if self._plan.applies else blocks

    def leave(self, opened: Open[int], context: Any) -> int:
        """See `Visitor`."""
        counters, due = self.counters, opened.own
        counters.left_out += opened.left_out
        if due.new is None:
            counters.kept += 1
            return 0
        if not due.done:
            if opened.leases is not None:
                self._try(opened, opened.leases[0].fd)
            else:
                self._try_again(opened)
        if due.error is not None:
            self._refused(opened.root, opened.path, due.error, due.status, context)
            return 0
        counters.directories += 1
        self._told(opened.root, opened.path, due.status, due.old, due.new, context)
        return 0

    def _try_again(self, opened: Open[int]) -> None:
        identity = require(opened.place).source
        try:
            with self.task.directories.lease(opened.root, opened.path, identity) as lease:
                self._try(opened, lease.fd)
        except OSError as error:
            opened.own.error = error

    def failed(self, opened: Open[int], error: OSError, context: Any) -> None:
        """See `Visitor`. One that can't be listed is changed nonetheless."""
        if opened.place is None:
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
            if due is None and opened.leases is not None:
                lease = opened.leases[0]
                target = target_of(lease.fd) if lease.searched else lease.fd
                due = opened.own = self._due(opened, lease.opened.status, target)
                if due.new is not None:
                    self._try(opened, target)
        except OSError as another:
            error = another
        if due is not None and due.done and due.error is None:
            if self._plan.recursive:
                self.fail(opened.root, opened.path, "read directory", error, context)
            else:
                self.counters.directories += 1
            self._told(opened.root, opened.path, due.status, due.old, due.new, context)
        elif due is not None and due.error is not None:
            self._refused(opened.root, opened.path, due.error, due.status, context)
        else:
            self.fail(opened.root, opened.path, "read directory", error, context)

    def lost(self, opened: Open[int]) -> int:
        """See `Visitor`."""
        return 0

    # ---- names -----------------------------------------------------------------

    def names(
        self, where: Where, names: Names, fds: tuple[int, int], context: Gathering[int]
    ) -> None:
        """See `Visitor`: what takes too long is handed back."""
        fd = fds[0]
        if where.path == HOLDER:
            names = self._chosen(where, names, fd)
        every, at, some = names.all(), 0, _FEW
        do = self._quickly if self._fast and not self._may_exchange(where, fd) else self._each
        begun_s = last_s = time.monotonic()
        while at < len(every) and not (at and context.stopping):
            do(where, every[at : at + some], fd, context)
            at += some
            now_s = time.monotonic()
            took_s = now_s - begun_s
            if where.place is not None and (
                took_s > _BATCH_S or (took_s > _WAITED_FOR_S and context.is_hungry())
            ):
                rest = Names([], [], every[at:])
                context.spawn(list(batches(where, rest, -(-len(rest) // _PARTS) or 1)))
                return
            if now_s - last_s < _QUICK_S:
                some = min(2 * some, _MANY)
            last_s = now_s

    def _chosen(self, where: Where, names: Names, fd: int) -> Names:
        """Of a PATH that is no directory, or not to be entered, what filters want."""
        if self._plan.applies:
            return names if self._plan.marks[where.root] else Names([], [], [])
        block, every = Block(), names.all()
        block.files, block.links, block.specials = (
            list(map(text_of, some)) for some in (names.files, names.links, names.specials)
        )
        self._choose(block, HOLDER, fd)
        chosen = Names(encoded(block.files), encoded(block.links), encoded(block.specials))
        self.counters.kept += len(every) - len(chosen)
        self.counters.weight += where.weight * (len(every) - len(chosen))
        return chosen

    def _may_exchange(self, where: Where, fd: int) -> bool:
        """Whether others may put one file in the place of another one of somebody else."""
        mode = os.fstat(fd).st_mode
        return bool(mode & _OTHERS_EXCHANGE) and not mode & stat.S_ISVTX

    def _quickly(
        self, where: Where, names: Sequence[bytes], fd: int, context: Gathering[int]
    ) -> None:
        """Change the modes of names, where nobody is told and what they are is not exchanged."""
        look, change, mode_of, counters = os.stat, self._chmod, self._wisher.mode, self.counters
        files = changed = 0
        slow = []
        for name in names:
            try:
                status = look(name, dir_fd=fd, follow_symlinks=False)
                whole = status.st_mode
                if status.st_nlink > 1 or not stat.S_ISREG(whole):
                    slow.append(name)
                    continue
                new = mode_of(whole)
                if new != whole & 0o7777:
                    change(name, new, fd)
                    changed += 1
                files += 1
            except OSError:
                slow.append(name)  # where it may fail again, and is told
        done = len(names) - len(slow)
        counters.weight += where.weight * done
        counters.sized += done
        counters.files += files
        counters.changed += changed
        if slow:
            self._each(where, slow, fd, context)

    def _each(self, where: Where, names: Sequence[bytes], fd: int, context: Gathering[int]) -> None:
        careful = self._depends or self._may_exchange(where, fd)
        elsewhere: dict[int, list[bytes]] = {}
        for name in names:
            bare, mark = parted(name) if self._plan.applies else (name, b"")
            path = joined(where.path, bare)
            status = None
            try:
                status = os.stat(bare, dir_fd=fd, follow_symlinks=False)
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
            except FileNotFoundError:
                self._settle(where, "vanished")
                self._vanished(where.root, path, "")
            except OSError as error:
                self._settle(where, "")
                self._refused(where.root, path, error, status, context)
        for home, some in elsewhere.items():
            packed = b"\0".join(some)
            weight, place, slot = where.weight, where.place, where.slot
            context.wait(slot)
            batch = Batch(where.root, where.path, packed, b"", weight, place, b"", slot)
            context.post(home, [batch])

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
        context: Gathering[int],
    ) -> None:
        """Change an entry, whatever is asked. OSError."""
        if stat.S_ISDIR(status.st_mode) and where.path != HOLDER:
            raise Changed("it is a directory now")
        if careful:
            with held(name, fd) as (target, status):
                lists = self._lists or self._plan.applies
                old = state_of(status, target if lists else None)
                new = self._wanted(where, mark, status, old)
                if new is not None:
                    self._bring(where.root, path, status, target, old, new)
        else:
            old = state_of(status)
            new = self._wanted(where, mark, status, old)
            if new is not None:
                self._bring_by_name(where.root, path, status, name, fd, old, new)
        kind = LETTERS.get(stat.S_IFMT(status.st_mode), "?")
        self._settle(where, "kept" if new is None else _FIELDS.get(kind, "special"))
        if new is not None or (kind == "l" and self._plan.says > 1):
            self._told(where.root, path, status, old, new or old, context)

    def _wanted(
        self, where: Where, mark: bytes, status: os.stat_result, old: State
    ) -> State | None:
        if self._plan.applies:
            return _restored(mark or self._plan.marks[where.root], status, old)
        if not self._wisher.is_meant(status.st_uid, status.st_gid):
            return None
        if stat.S_ISLNK(status.st_mode) and not self._owns:
            return None  # a link has no mode, and what it leads to is not meant
        return self._wisher.of(stat.S_IFMT(status.st_mode), old)

    # ---- the change ------------------------------------------------------------

    def _begin(self, root: int, path: bytes, status: os.stat_result, old: State) -> None:
        self.counters.changed += 1
        if self._plan.dry:
            return
        self.task.due(1, self._is_stopping)
        if self._plan.undo and self._acts is not None:
            path = b"" if self._plan.roots[root].name else path
            self._acts.planned(entry(root, path, mark_of(status, old)))

    def _bring(
        self,
        root: int,
        path: bytes,
        status: os.stat_result,
        target: Target,
        old: State,
        new: State,
    ) -> None:
        """Have an entry that is open be what it is to be, unless it is. OSError."""
        if new == old and not self._plan.force:
            return
        self._begin(root, path, status, old)
        if self._plan.dry:
            return
        try:
            if stat.S_ISLNK(status.st_mode):
                os.chown(target, new.uid, new.gid)
            else:
                apply(target, old, new, owner=self._forces_owner, bits=self._forces_mode)
        except OSError:
            self.counters.changed -= 1
            raise

    def _bring_by_name(
        self,
        root: int,
        path: bytes,
        status: os.stat_result,
        name: bytes,
        fd: int,
        old: State,
        new: State,
    ) -> None:
        """The same by name, where what an entry was decides nothing. OSError."""
        force = self._plan.force
        if new == old and not force:
            return
        is_link = stat.S_ISLNK(status.st_mode)
        owns = (new.uid, new.gid) != (old.uid, old.gid) or self._forces_owner
        sets = new.mode != old.mode or self._forces_mode
        if owns and (sets or old.mode & _SET_ID) and not (is_link or self._plan.dry):
            with held(name, fd) as (target, now):
                if stat.S_ISLNK(now.st_mode):
                    raise Changed("it is a symbolic link now")
                self._bring(root, path, now, target, state_of(now), new)
            return
        self._begin(root, path, status, old)
        if self._plan.dry:
            return
        try:
            if owns:
                os.chown(name, new.uid, new.gid, dir_fd=fd, follow_symlinks=False)
            elif not is_link:
                self._chmod(name, new.mode, fd)
        except OSError:
            self.counters.changed -= 1
            raise

    # ---- reports ----------------------------------------------------------

    def _told(
        self,
        root: int,
        path: bytes,
        status: os.stat_result,
        old: State,
        new: State,
        context: Any,
    ) -> None:
        acts, plan = self._acts, self._plan
        if acts is None:
            return
        changes = new != old
        shown = plan.roots[root].shown
        path = b"" if plan.roots[root].name else path
        kind = LETTERS.get(stat.S_IFMT(status.st_mode), "?")
        said = b""
        if plan.says > (not changes):
            whole = os.path.join(shown, path) if path else shown
            said = telling.lines(plan, whole, old, new, is_link=kind == "l")
        if changes:
            owns = (new.uid, new.gid) != (old.uid, old.gid)
            action = "chown" if owns and new.mode == old.mode else "chmod"
            acts.done(action, root, path, kind, said=said)
        elif plan.acts.lines or said:
            acts.skipped(root, path, kind, said=said)
        if acts.is_full:
            acts.tell(context)

    def _vanished(self, root: int, path: bytes, kind: str) -> None:
        if self._acts is not None:
            path = b"" if self._plan.roots[root].name else path
            self._acts.vanished(self.task.action, root, path, kind)

    def _refused(
        self,
        root: int,
        path: bytes,
        error: OSError,
        status: os.stat_result | None,
        context: Any,
    ) -> None:
        """An entry could not be changed; of those of others it is counted whose they are."""
        if error.errno == errno.EPERM and status is not None:
            self._denied[status.st_uid] = self._denied.get(status.st_uid, 0) + 1
            if self._plan.silent > 1:
                self.counters.denied += 1
                return
        self.fail(root, path, self.task.tries, error, context)

    def fail(self, root: int, path: bytes, doing: str, error: OSError, context: Any) -> None:
        """See `EntryVisitor`."""
        super().fail(root, path, doing, error, context)
        if self._acts is not None:
            path = b"" if self._plan.roots[root].name else path
            self._acts.failed(self.task.action, root, path, error.errno)

    def unreached(self, where: Where, name: bytes, error: OSError, context: Any) -> None:
        """See `Visitor`."""
        name = parted(name)[0] if self._plan.applies else name
        if error.errno == errno.ENOENT:
            self.counters.sized += 1
            self.counters.vanished += 1
            self._vanished(where.root, joined(where.path, name), "")
        else:
            super().unreached(where, name, error, context)

    def end(self, context: Any, opens: Sequence[Open[int]]) -> None:
        """See `Visitor`."""
        if self._acts is not None:
            self._acts.tell(context)
        told: list[Any] = [Denied(uid, count) for uid, count in self._denied.items()]
        self._denied.clear()
        for is_group, ids in ((False, self._wisher.users), (True, self._wisher.groups)):
            told += [Unmapped(is_group, *each) for each in ids.unmapped.items()]
            ids.unmapped.clear()
        if told:
            context.note(told)


def _restored(mark: bytes, status: os.stat_result, old: State) -> State:
    """The state that a plan has for an entry. Changed if the entry is another one."""
    try:
        planned = read_mark(mark)
    except ValueError:
        raise Changed(_OTHER) from None
    kind = LETTERS.get(stat.S_IFMT(status.st_mode), "?")
    if (planned.kind, planned.inode) != (kind, status.st_ino):
        raise Changed(_OTHER)
    state = planned.state
    if state.with_lists:
        return state
    return state._replace(access=old.access, default=old.default, with_lists=old.with_lists)
