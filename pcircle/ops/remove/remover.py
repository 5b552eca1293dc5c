"""Removes the entries that the walk finds.

Names are removed as they are listed, and a directory is removed when it is empty. Every entry is
removed relative to the open directory in which it was found. A symbolic link that replaces a
directory is therefore removed or rejected, but not followed. The result for a subtree states
whether any entry in it stays, because its directory must then stay too.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, compress
from typing import TYPE_CHECKING, ClassVar

import msgspec

from pcircle.core.encoding import text_of
from pcircle.fs import native
from pcircle.fs.directories import CLOSED, HOLDER, Directories, Lease, device_and_inode, inode_alone
from pcircle.fs.directories import join_path as joined
from pcircle.fs.entry_errors import BUSY, Changed, EntryError
from pcircle.fs.openat2 import opener
from pcircle.fs.scan import (
    Block,
    DirectoryBatch,
    StableListing,
    blocks,
    encoded,
    listed_first,
    rewound,
)
from pcircle.fs.write_access import Admissions, Obstacle, WriteAccess
from pcircle.jobs.change_task import ChangeItem, ChangeTask
from pcircle.jobs.plan_file import entry, mark_in, mark_of, sorted_by_kind, split_mark
from pcircle.jobs.tree_task import EntryVisitor, ItemState, TreeCounters, TreeItem
from pcircle.ops.remove.plan import (
    MAX_TRIES,
    NAMES_PER_CHECK,
    NOT_EMPTY,
    WHOLE,
    RemovalCounters,
    RemovalPlan,
)
from pcircle.ops.remove.trash import move_to_run
from pcircle.runtime import Context
from pcircle.threads.throttle import BURST_S
from pcircle.walk.attributes import LETTERS, test_of_directory
from pcircle.walk.globs import choosing
from pcircle.walk.items import ANYWHERE, UNREACHED, Batch, Tree
from pcircle.walk.open_directory import NO_PARENT, ItemContext, Open
from pcircle.walk.roots import open_roots
from pcircle.walk.visitor import DirectoryScan, Names, Where

if TYPE_CHECKING:
    from pcircle.jobs.access_times import AccessTimes
    from pcircle.ops.remove.removal_log import RemovalLog, ThreadLog

_SCAN = DirectoryScan(NAMES_PER_CHECK, 2 * NAMES_PER_CHECK, keep_open=True, any_device=True)
_NEVER = 1 << 62  # a time in the far future: these calls need no time limit
_MAX_LEVELS = 32  # maximum depth of directories created after the listing
_FIELDS = {"f": "files", "d": "directories", "l": "links"}
_GONE = "gone"
_OTHER = "it has changed since the plan was made"


class _DirectoryState:
    """The status of a directory when it was opened, and whether it contained selected entries.

    `is_selected` means that the filters select the directory itself. `access_times` is set if
    reading the directory may change its access time, which must then be remembered. `obstacle`
    contains the attributes to restore if the directory stays.
    """

    __slots__ = ("access_times", "held_some", "is_selected", "obstacle", "status")

    def __init__(self, status: os.stat_result, *, is_selected: bool) -> None:
        self.status = status
        self.is_selected = is_selected
        self.held_some = False
        self.access_times: AccessTimes | None = None
        self.obstacle: Obstacle | None = None

    def held(self, blocks: Iterable[Block]) -> Iterator[Block]:
        """Yield the blocks of the directory, and record whether any block contains an entry."""
        for block in blocks:
            self.held_some |= len(block) > 0
            yield block


class Remover(EntryVisitor):
    """Removes the entries that the walk finds, for one thread."""

    task: RemoveTask
    counters: RemovalCounters

    def __init__(self, task: RemoveTask, counters: RemovalCounters | None = None) -> None:
        """Create the visitor; if `counters` is given, it only counts the entries to remove."""
        super().__init__(task, counters)
        self._plan = plan = task.plan
        self._counts = counters is not None
        self._dry = plan.dry or self._counts
        self._acts = None if self._counts else task.action_log
        plain = (
            plan.recursive and plan.operations_per_s is None and not (plan.keep_times or plan.sized)
        )
        if plain and not self._dry and self._acts is None:
            self.scan: DirectoryScan = msgspec.structs.replace(
                _SCAN, one_mount=not plan.enter_mounts
            )
        # On one node the kernel serializes changes of a directory.
        self.in_place: bool = plan.one_node
        self._choose = choosing(plan.rules, plan.attribute_filter, plan.now_ns, tally=self.counters)
        selects = None if plan.applies else test_of_directory(plan.attribute_filter, plan.now_ns)
        self._selects = selects  # test of directories without selected entries
        self._steadiness = StableListing()
        self._stays = 0
        self._action = "move" if plan.trash else "delete"
        self._access = WriteAccess() if self._dry else task.access
        self._notes: ThreadLog | None = None
        self._is_ready = self._dry  # true if `_notes` is initialized

    def _intend(self, kind: str, root: int, path: bytes, names: Sequence[bytes]) -> None:
        """Log the names that will be removed next; see `RemovalLog`."""
        if not self._is_ready:
            self._is_ready, removal_log = True, (self.task.first or self.task).removal_log
            self._notes = None if removal_log is None else removal_log.thread_log(self.task.rank)
        if self._notes is not None:
            self._notes.write(self.counters, kind, root, path, names)

    def _goes(self, opened: Open[int]) -> bool:
        """Return whether a directory must be removed if no entry in it stays."""
        plan, kinds = self._plan, self._plan.attribute_filter.kinds
        if not opened.path and plan.keep_root:
            return False
        if plan.applies:
            return bool(mark_in(opened.only, self.task.lists))
        if opened.only is not None:
            from pcircle.fs.lists import names_itself  # imported late

            if not names_itself(opened.only, self.task.lists):
                return False
        return kinds is None or "d" in kinds

    # ---- directories -----------------------------------------------------------

    def enter(self, opened: Open[int], source: Lease, holder: Open[int] | None) -> Lease | None:
        super().enter(opened, source, holder)
        plan, status = self._plan, source.opened.status
        opened.entered = plan.recursive or plan.listed
        opened.own = self._seen(opened, source)
        times = self.task.access_times
        if times is not None and times.is_updated_by(source.fd):
            opened.own.access_times = times
        if plan.restores:
            opened.own.obstacle = self.task.access.obstacle(source.fd, status)
        if plan.applies:
            mark = mark_in(opened.only, self.task.lists)
            if mark and mark != mark_of(status):
                raise Changed(_OTHER)
        return None

    def process_directories(
        self, above: Open[int], batch: DirectoryBatch, context: ItemContext[int]
    ) -> list[bytes]:
        """Remove directories that contain only a few files; return the names that remain."""
        counters, names = self.counters, batch.names
        whole = list(map(b"%b\0%b".__mod__, zip(names, batch.texts(), strict=True)))
        self._intend(WHOLE, above.root, above.path, whole)
        removed = [
            _unlink_all(fd, batch.inside[begin:end])
            for fd, (begin, end) in zip(batch.fds, batch.ranges(), strict=True)
        ]
        batch.close()
        undone = {
            name: files
            for name, files, count in zip(names, removed, batch.counts, strict=True)
            if files < count
        }
        emptied = [name for name in names if name not in undone] if undone else names
        fd = above.leases[0].fd
        outcomes = native.numbers(native.unlink_names(fd, emptied, True, _NEVER))
        if any(outcomes):
            files_of = dict(zip(names, removed, strict=True))
            undone |= {name: files_of[name] for name in compress(emptied, outcomes)}
        files = sum(undone.values())
        counters.found += files
        counters.files += files
        counters.sized += files
        return list(undone)

    def meant(self, opened: Open[int], blocks: Iterable[Block], source: Lease) -> Iterable[Block]:
        if self._plan.applies:
            return map(sorted_by_kind, blocks)
        if self._selects is not None:
            blocks = opened.own.held(blocks)
        is_steady = self._steadiness.of(source.opened.status.st_dev)
        return blocks if is_steady else listed_first(blocks)

    def _seen(self, opened: Open[int], source: Lease) -> _DirectoryState:
        status, selects = self.task.with_original_atime(source.opened.status), self._selects
        return _DirectoryState(
            status, is_selected=selects is None or selects(opened.path, status, source.fd)
        )

    def _stays_empty(self, opened: Open[int], seen: _DirectoryState) -> bool:
        """Return whether a directory stays because neither it nor an entry in it is selected."""
        if seen.held_some or (opened.only is not None and opened.only.is_range):
            return False
        return not seen.is_selected

    def leave(self, opened: Open[int], context: Context[TreeItem]) -> int:
        counters, path = self.counters, opened.path
        state: _DirectoryState = opened.own
        counters.left_out += opened.left_out
        if state.access_times is not None and not state.held_some:
            state.access_times.remember(state.status)
        stays = opened.part or opened.left_out or not self._goes(opened)
        stays = stays or self._stays_empty(opened, state)
        doing = "remove directory"
        try:
            stays = stays or self._busy(opened, context)
            if stays:
                doing = "keep the times of"
                self._keep_times(opened)
            if stays or self._dry:
                restore(opened, self.task.directories)
            if stays:
                counters.kept += 1
                return 1
        except FileNotFoundError:
            counters.vanished += 1
            self._tell_vanished(opened.root, path, "d")
            return 0
        except OSError as error:
            self.fail(opened.root, path, doing, error, context)
            with suppress(OSError):  # the failure is already reported
                restore(opened, self.task.directories)
            return 1
        counters.directories += 1
        self._tell(opened.root, path, "d", context, state.status)
        return 0

    def _busy(self, opened: Open[int], context: Context[TreeItem]) -> bool:
        """Remove a directory; return whether an entry in it stays. Raises OSError.

        Entries that were created after the listing are also removed, in a limited number of
        attempts.
        """
        self.task.due(1, context.is_stopping)
        for _ in range(MAX_TRIES):
            try:
                self._remove_directory(opened)
            except OSError as error:
                if error.errno not in NOT_EMPTY or not self._plan.recursive:
                    raise
            else:
                return False
            identity = opened.place.source
            with self.task.directories.lease(opened.root, opened.path, identity) as lease:
                self._sweep(opened.root, opened.path, lease.fd, _MAX_LEVELS, context)
            if self.taken():
                return True
        try:
            self._remove_directory(opened)
        except OSError as error:
            if error.errno in NOT_EMPTY:
                raise EntryError(BUSY, "another process is creating entries here") from None
            raise
        return False

    def _remove_directory(self, opened: Open[int]) -> None:
        if self._dry:
            return
        above = opened.above
        leases = above.leases
        name = opened.path.rpartition(b"/")[2] or self._plan.roots[opened.root].within
        if leases is not CLOSED:
            self._rmdir(name, leases[0].fd, opened.root, opened.path)
        else:
            path, known = above.path if opened.path else HOLDER, above.place
            identity = self._holder(opened.root) if known == ANYWHERE else known.source
            with self.task.directories.lease(opened.root, path, identity) as lease:
                self._rmdir(name, lease.fd, opened.root, opened.path)
        self.task.directories.forget(opened.root, opened.path)

    def _rmdir(self, name: bytes, fd: int, root: int, path: bytes) -> None:
        """Remove a directory, given its path below a root.

        The attributes of a root's parent are never changed to permit the removal.
        """
        self._intend("d", root, path.rpartition(b"/")[0] if path else HOLDER, [name])
        remove = partial(os.rmdir, name, dir_fd=fd)
        try:
            remove()
        except OSError as error:
            if not (path and self._access.may_have_caused(error)):
                raise
            self._access.admit(fd)
            self._access.change(remove, name, fd)

    def _sweep(
        self, root: int, path: bytes, fd: int, levels: int, context: Context[TreeItem]
    ) -> bool:
        """Remove the current contents of a directory; return whether there were any."""
        where: Open[int] = Open(root, path, 0, NO_PARENT, 0)
        counters, held_some = self.counters, False
        for block in blocks(rewound(fd)):
            count = len(block)
            held_some |= count > 0
            self._choose(block, path, fd)
            self._stays |= len(block) < count
            counters.left_out += count - len(block)
            counters.found += len(block)
            counters.scans_due += len(block.directories)
            names = Names(encoded(block.files), encoded(block.links), encoded(block.specials))
            self.names(where, names, (fd, -1), context)
            for name in encoded(block.directories):
                counters.scans_done += 1
                below = joined(path, name)
                try:
                    inner = self.task.open_beneath(name, fd)
                    try:
                        status, selects = (
                            self.task.with_original_atime(os.fstat(inner)),
                            self._selects,
                        )
                        is_unselected = selects is not None and not selects(below, status, inner)
                        others_stay, self._stays = self._stays, 0
                        held = levels and self._sweep(root, below, inner, levels - 1, context)
                        stays = self._stays or (is_unselected and not held)
                        self._stays |= others_stay
                    finally:
                        os.close(inner)
                    if stays:
                        self._stays = 1
                        counters.kept += 1
                        continue
                    self._rmdir(name, fd, root, below)
                except OSError as error:
                    self._stays = 1
                    self.fail(root, below, "remove directory", error, context)
                else:
                    counters.directories += 1
                    self._tell(root, below, "d", context)
        return held_some

    def _keep_times(self, opened: Open[int]) -> None:
        if self._plan.keep_times and not self._dry and opened.place is not UNREACHED:
            status, identity = opened.own.status, opened.place.source
            times = status.st_atime_ns, status.st_mtime_ns
            with (
                self.task.directories.lease(opened.root, opened.path, identity) as lease,
                Admissions(self._access) as admissions,
            ):
                try:
                    os.utime(lease.fd, ns=times)
                except PermissionError as error:
                    if not (self._access.may_have_caused(error) and admissions.admit(lease.fd)):
                        raise
                    os.utime(lease.fd, ns=times)

    def failed(self, opened: Open[int], error: OSError, context: Context[TreeItem]) -> None:
        """Remove a directory that cannot be listed, if it is empty.

        A dry run assumes that it is.
        """
        if opened.place is UNREACHED:
            self.counters.scans_done += 1
            self.counters.sized += 1
        if error.errno == errno.ENOENT:
            self.counters.vanished += 1
            self._tell_vanished(opened.root, opened.path, "d")
            opened.own = _GONE
            return
        status = self._unlisted(opened, error)
        if status is not None:
            try:
                self._remove_directory(opened)
            except OSError:
                pass  # the original error is reported
            else:
                self.counters.directories += 1
                self._tell(opened.root, opened.path, "d", context, status)
                opened.own = _GONE
                return
        self.fail(opened.root, opened.path, "remove directory", error, context)

    def _unlisted(self, opened: Open[int], error: OSError) -> os.stat_result | None:
        """Return the status of an unreadable directory that must be removed if it is empty."""
        plan = self._plan
        if error.errno != errno.EACCES or opened.leases is CLOSED or not self._goes(opened):
            return None
        if plan.force_modes and self._dry:  # the real run would gain access and remove its contents
            return None
        source = opened.leases[0]
        status = source.opened.status
        try:
            if self._stays_empty(opened, self._seen(opened, source)):
                return None
        except EntryError:  # the answer is unknown
            return None
        if plan.applies:
            is_meant = mark_in(opened.only, self.task.lists) == mark_of(status)
        else:
            is_meant = plan.recursive
        return status if is_meant else None

    def lost(self, opened: Open[int]) -> int:
        with suppress(OSError):  # the failure is already reported
            restore(opened, self.task.directories)
        return int(opened.own is not _GONE)

    def stopped(self, opens: Sequence[Open[int]]) -> None:
        restore_all(opens, self.task.directories)

    # ---- names -----------------------------------------------------------------

    def names(
        self, where: Where, names: Names, fds: tuple[int, int], context: Context[TreeItem]
    ) -> None:
        """Remove names in a directory; a PATH that is not a directory is filtered first."""
        counters, fd = self.counters, fds[0]
        if where.path == HOLDER and not self._is_held(where, names, fd, context):
            return
        if self._plan.trash:
            self._move(where, names, fd, context)
            return
        if where.path == HOLDER:
            count = len(names)
            names = self._chosen(where.root, names, fd)
            counters.kept += count - len(names)
        counters.weight += where.weight * len(names)
        counters.sized += len(names)
        for kind, batch in (("f", names.files), ("l", names.links), ("s", names.specials)):
            if batch:
                self._remove(where, kind, batch, fd, context)

    def _holder(self, root: int) -> tuple[int, int] | None:
        """Return the known identity of a PATH's parent, in the form that `identify` returns."""
        known = self._plan.holders
        number = root % max(1, len(self._plan.roots))
        if not known:
            return None
        return known[number] if self._plan.one_node else (0, known[number][1])

    def _is_held(self, where: Where, names: Names, fd: int, context: Context[TreeItem]) -> bool:
        """Return whether the parent of a PATH is still the directory that rank 0 found."""
        known = self._holder(where.root)
        if known is None or known == self.task.identify(os.fstat(fd)):
            return True
        for name in names.all():
            error = Changed("the directory was replaced by another one")
            self.fail(where.root, name, self.task.doing, error, context)
        return False

    def _move(self, where: Where, names: Names, fd: int, context: Context[TreeItem]) -> None:
        """Move a PATH to the trash."""
        plan, counters = self._plan, self.counters
        for name in names.all():
            try:
                mode = os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode
                if not self._dry:
                    move_to_run(name, fd, plan.trash, where.root)
            except OSError as error:
                self.fail(where.root, name, "move to the trash", error, context)
                continue
            kind = LETTERS.get(stat.S_IFMT(mode), "?")
            field = _FIELDS.get(kind, "special")
            setattr(counters, field, getattr(counters, field) + 1)
            self._tell(where.root, name, kind, context)

    def _chosen(self, root: int, names: Names, fd: int) -> Names:
        block = Block()
        if self._plan.applies and not self._plan.marks[root]:  # this PATH is not in the plan
            return Names([], [], [])
        block.files, block.links, block.specials = (
            list(map(text_of, batch)) for batch in (names.files, names.links, names.specials)
        )
        self._choose(block, HOLDER, fd)
        return Names(encoded(block.files), encoded(block.links), encoded(block.specials))

    def _remove(
        self, where: Where, kind: str, names: Sequence[bytes], fd: int, context: Context[TreeItem]
    ) -> None:
        """Remove names in a directory, and count those that this call removed."""
        step = self.task.names_at_once
        for at in range(0, len(names), step):
            batch = names[at : at + step] if len(names) > step else names
            is_limited = self.task.due(len(batch), context.is_stopping)
            # If the job was stopped while it waited for the rate limit, nothing more is removed.
            if (is_limited or at) and context.is_stopping():
                break
            gone = self._remove_some(where, kind, batch, fd, context)
            field = _FIELDS.get(kind, "special")
            setattr(self.counters, field, getattr(self.counters, field) + gone)

    def _remove_some(
        self, where: Where, kind: str, names: Sequence[bytes], fd: int, context: Context[TreeItem]
    ) -> int:
        self._intend(kind, where.root, where.path, names)
        remove, tells, is_changed = self._way(where), self._acts is not None, False
        gone, remaining = len(names), iter(names)
        if remove is os.unlink and not tells:
            outcomes = native.numbers(native.unlink_names(fd, list(names), False, _NEVER))
            # The loop below retries the failed names and handles errors.
            remaining = iter(
                [name for name, outcome in zip(names, outcomes, strict=True) if outcome]
            )
        while True:
            try:
                for name in remaining:
                    status = remove(name, dir_fd=fd)
                    if status is not None and self._is_plan(status):
                        self._stays = 1
                        self.counters.kept += 1
                        gone -= 1
                    elif tells:
                        self._tell(where.root, _path(where, name), kind, context, status)
                return gone
            except FileNotFoundError:
                self.counters.vanished += 1
                gone -= 1
                self._tell_vanished(where.root, _path(where, name), kind)
            except OSError as error:
                if where.path != HOLDER and self._access.may_have_caused(error):
                    if self._access.admit(fd) is not None:
                        remaining = chain([name], remaining)
                        continue
                    if not is_changed and self._access.flags:
                        remove, is_changed = partial(self._change, remove), True
                        remaining = chain([name], remaining)
                        continue
                gone -= 1
                self._stays = 1
                self.fail(where.root, _path(where, name), "remove", error, context)

    def _change(
        self, remove: Callable[..., os.stat_result | None], name: bytes, *, dir_fd: int
    ) -> os.stat_result | None:
        """Remove a name with a function returned by `_way`, although inode flags may forbid that.

        Raises OSError.
        """
        act = partial(remove, name, dir_fd=dir_fd)
        return self._access.change(act, split_mark(name)[0], dir_fd)

    def _is_plan(self, status: os.stat_result) -> bool:
        """Return whether an entry is the file to which the plan is written."""
        written = self._plan.written
        if written is None:
            return False
        known = written if self._plan.one_node else (0, written[1])
        return bool(self.task.identify(status) == known)

    def _way(self, where: Where) -> Callable[..., os.stat_result | None]:
        """Return the function that removes, checks or skips a name."""
        plan = self._plan
        if plan.applies:
            known = plan.marks[where.root] if where.path == HOLDER else b""
            return partial(_unlink_marked, known, self._dry)
        if not self._dry:
            return partial(_unlink_sized, self.counters) if plan.sized else os.unlink
        return partial(os.stat, follow_symlinks=False) if plan.acts.plan else _remove_nothing

    def _tell(
        self,
        root: int,
        path: bytes,
        kind: str,
        context: Context[TreeItem],
        status: os.stat_result | None = None,
    ) -> None:
        acts = self._acts
        if acts is None:
            return
        path = b"" if self._plan.roots[root].name else path
        acts.done(self._action, root, path, kind)
        if self._plan.acts.plan and status is not None:
            acts.planned(entry(root, path, mark_of(status)))
        if acts.is_full:
            acts.tell(context)

    def _tell_vanished(self, root: int, path: bytes, kind: str) -> None:
        if self._acts is not None:
            path = b"" if self._plan.roots[root].name else path
            self._acts.vanished(self._action, root, path, kind)

    def fail(
        self, root: int, path: bytes, doing: str, error: OSError, context: Context[TreeItem]
    ) -> None:
        """Report a failure; a counting pass only counts it, and the removal will report it."""
        if self._counts:
            self.counters.failed += 1
        else:
            if self._acts is not None:
                logged = b"" if self._plan.roots[root].name else path
                self._acts.failed(self._action, root, logged, error.errno)
            super().fail(root, path, doing, error, context)

    def unreached(
        self, where: Where, name: bytes, error: OSError, context: Context[TreeItem]
    ) -> None:
        if error.errno == errno.ENOENT:
            self.counters.sized += 1
            self.counters.vanished += 1
            self._tell_vanished(where.root, _path(where, name), "")
        else:
            self._stays = 1
            super().unreached(where, split_mark(name)[0], error, context)

    def taken(self) -> int:
        stays, self._stays = self._stays, 0
        return stays

    def send_reports(self, context: Context[TreeItem]) -> None:
        if self._acts is not None:
            self._acts.tell(context)

    def end(self, context: Context[TreeItem], opens: Sequence[Open[int]]) -> None:
        self.send_reports(context)


def restore(opened: Open[int], directories: Directories) -> None:
    """Restore the attributes of a directory that was not removed. Raises OSError."""
    obstacle: Obstacle | None = getattr(opened.own, "obstacle", None)
    if obstacle is not None:
        opened.own.obstacle = None
        identity = opened.place.source
        with directories.lease(opened.root, opened.path, identity) as lease:
            obstacle.restore(lease.fd)


def restore_all(opens: Sequence[Open[int]], directories: Directories) -> None:
    """Restore the directories that a job has not completed, deepest first."""
    for opened in reversed(opens):
        with suppress(OSError):  # the job has already ended
            restore(opened, directories)


def _unlink_all(fd: int, names: list[bytes]) -> int:
    """Remove names from a directory; return the number of names that this call removed."""
    return native.numbers(native.unlink_names(fd, names, False, _NEVER)).count(0)


def _remove_nothing(name: bytes, *, dir_fd: int) -> None:
    """Remove nothing, because this is a dry run."""


def _unlink_sized(counters: RemovalCounters, name: bytes, *, dir_fd: int) -> None:
    """Remove a file and count its disk usage; concurrent changes of its link count are missed."""
    status = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    os.unlink(name, dir_fd=dir_fd)
    counters.named_bytes += status.st_blocks * 512
    counters.freed_bytes += status.st_blocks * 512 * (status.st_nlink == 1)


def _unlink_marked(known: bytes, is_dry: bool, name: bytes, *, dir_fd: int) -> None:
    """Remove an entry if it matches the plan; in a dry run, only check that.

    Raises OSError, or Changed if the entry differs from the plan.
    """
    bare, mark = split_mark(name)
    if mark_of(os.stat(bare, dir_fd=dir_fd, follow_symlinks=False)) != (mark or known):
        raise Changed(_OTHER)
    if not is_dry:
        os.unlink(bare, dir_fd=dir_fd)


def _path(where: Where, name: bytes) -> bytes:
    return joined(where.path, split_mark(name)[0])


class RemoveTask(ChangeTask):
    """One rank's or thread's share of a removal; subclasses set `tool`."""

    doing = "remove"
    counters_type: ClassVar[type[RemovalCounters]] = RemovalCounters
    visitor_type: ClassVar[type[Remover]] = Remover
    plan: RemovalPlan
    first: RemoveTask | None
    removal_log: RemovalLog | None = None  # set if the job can restart after the loss of a rank

    def begin(self) -> None:
        super().begin()
        plan, limit = self.plan, NAMES_PER_CHECK
        if plan.operations_per_s is not None:
            limit = min(limit, max(1, int(BURST_S * plan.operations_per_s / plan.ranks)))
        self.names_at_once: int = limit  # no larger than a burst of the rate limit

    def begun(self, counters: TreeCounters) -> Iterator[Tree | Batch]:
        """Yield the items for the roots that previous runs have not removed."""
        for item in super().begun(counters):
            if item.root in self.plan.gone:
                counters.found -= 1
                counters.scans_due -= isinstance(item, Tree)
            else:
                yield item

    @property
    def access(self) -> WriteAccess:
        """The obstacles to removal that this run may clear."""
        plan = self.plan
        acts = plan.restores or not plan.dry
        return WriteAccess(plan.force_modes and acts, plan.lifts_flags and acts)

    def abandon(self, item: ChangeItem, own: ItemState) -> None:
        if isinstance(own, list):
            restore_all(own, self.directories)

    def _admit(self, fd: int) -> bool:
        return self.access.admit(fd) is not None

    def reach(self, *, is_first: bool) -> Directories:
        plan = self.plan
        self.open_beneath: Callable[[bytes, int], int] = opener(
            cross=plan.enter_mounts, no_atime=self.walks_twice
        )
        self.identify: Callable[[os.stat_result], tuple[int, int]] = (
            device_and_inode if plan.one_node else inode_alone
        )
        unlock: Callable[[int], bool] | None = None
        if self.access.owner:
            unlock = self._admit
        below = self.open_beneath
        return open_roots(
            self.reached,
            plan.directory,
            self.identify,
            is_first=is_first,
            below=below,
            unlock=unlock,
            written=True,
            no_atime=self.walks_twice,
        )
