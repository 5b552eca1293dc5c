"""The plan of a change, and the change of one entry: its system calls, counts and reports.

Rank 0 makes the plan. The lines about changed entries have the wording of `chmod` and `chown`.

Rank 0 writes undo records (`--undo`) to disk before the entries are changed. A rank must wait for
that, so it sends the records of many entries together. Before a block of names is changed, the
current states of all its entries are recorded. If an entry has another state when it is changed,
for example because it was replaced, that state is recorded separately.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import msgspec

from pcircle.cli.listing import groups, users
from pcircle.core.encoding import show
from pcircle.core.errors import StoppedEarly
from pcircle.fs.attributes.modes import SET_ID
from pcircle.fs.directories import Directories, device_and_inode, inode_alone
from pcircle.fs.directories import join_path as joined
from pcircle.fs.entry_errors import Changed
from pcircle.fs.registry import FirstNames, Key
from pcircle.jobs.action_log import ActionLines
from pcircle.jobs.change_task import ChangeCounters, ChangePlan, ChangeTask
from pcircle.jobs.failures import Failure
from pcircle.jobs.plan_file import entry, split_mark
from pcircle.jobs.tree_task import EntryVisitor, TreeItem
from pcircle.runtime import Context
from pcircle.tools.fchmod.resolve import ChangeRequest, StateResolver
from pcircle.tools.fchmod.state import (
    EntryState,
    Target,
    apply,
    change_mode,
    held,
    mark_of,
    read_mark,
    state_of,
)
from pcircle.walk.attributes import LETTERS
from pcircle.walk.open_directory import Open
from pcircle.walk.roots import open_roots
from pcircle.walk.visitor import Where

_USERS, _GROUPS = users(), groups()


def user(uid: int) -> str:
    """Return the name of a user, or the number if the user has no name."""
    return show(_USERS[uid])


def group(gid: int) -> str:
    """Return the name of a group, or the number if the group has no name."""
    return show(_GROUPS[gid])


def lines(
    request: ChangeRequest,
    path: bytes,
    old: EntryState,
    new: EntryState,
    *,
    is_link: bool,
    dry: bool,
) -> bytes:
    """Return the lines that describe the requested changes of an entry."""
    name, said = f"'{show(path)}'", []
    with_user = request.uid is not None or bool(request.users) or new.uid != old.uid
    with_group = request.gid is not None or bool(request.groups) or new.gid != old.gid
    if with_user or with_group:
        before, after = (_owner(state, with_user, with_group) for state in (old, new))
        what = "ownership" if with_user else "group"
        if before == after:
            said.append(f"{what} of {name} retained as {before}")
        elif dry:
            said.append(f"{what} of {name} would change from {before} to {after}")
        else:
            said.append(f"changed {what} of {name} from {before} to {after}")
    modes = request.directory_mode is not None or request.other_mode is not None
    if is_link:
        if modes and not said:
            said.append(f"neither symbolic link {name} nor referent has been changed")
    elif modes or (not said and new.mode != old.mode):
        before, after = _mode(old.mode), _mode(new.mode)
        change = "would change" if dry else "changed"
        if new.mode == old.mode:
            said.append(f"mode of {name} retained as {before}")
        else:
            said.append(f"mode of {name} {change} from {before} to {after}")
    if (new.access, new.default) != (old.access, old.default):
        said.append(f"access control list of {name} {'would change' if dry else 'changed'}")
    return "".join(f"{line}\n" for line in said).encode()


def _mode(mode: int) -> str:
    return f"{mode:04o} ({stat.filemode(mode)[1:]})"


def _owner(state: EntryState, with_user: bool, with_group: bool) -> str:
    if not with_user:
        return group(state.gid)
    return f"{user(state.uid)}:{group(state.gid)}" if with_group else user(state.uid)


# ---- plan, counters and notices ------------------------------------------------------------------


class ModePlan(ChangePlan, frozen=True, kw_only=True):
    """The plan of a change.

    `tool` is the name of the command. If `recursive` is set, the contents of directories are also
    changed, and if `listed` is set, only the paths in a list. If `force` is set, calls are made
    even if nothing changes. `silent` is the number of `-f` options. `verbosity` is 1 to print
    changed entries and 2 to print all. If `undo` is set, old states are recorded.
    """

    tool: str = "fchmod"
    request: ChangeRequest = ChangeRequest()
    recursive: bool = False
    listed: bool = False
    force: bool = False
    silent: int = 0
    verbosity: int = 0
    undo: bool = False


class ModeCounters(ChangeCounters):
    """The counters of a change.

    `changed` counts the completed entries that were changed. Entries may also have `vanished`, or
    be additional names of hard-linked files (`linked`). With `-f -f`, entries that this process is
    not permitted to change are counted as `denied` rather than failed.
    """

    changed: int
    vanished: int
    linked: int
    denied: int

    @property
    def settled(self) -> int:
        ended = self.completed + self.failed + self.kept + self.vanished
        return ended + self.linked + self.denied


class Denied(msgspec.Struct, frozen=True, array_like=True, tag="x"):
    """A notice with the number of a user's entries that could not be changed (EPERM)."""

    uid: int
    count: int


class Unmapped(msgspec.Struct, frozen=True, array_like=True, tag="u"):
    """A notice with a user or group id that the map does not contain, and how often it occurs."""

    is_group: bool
    number: int
    count: int


_TOGETHER = 256  # the maximum number of lines in a notice
_MAX_AT_HAND = 100_000  # hard-linked inodes to keep in memory: about 20 MB


class UndoRecords:
    """The undo records of one thread."""

    def __init__(self) -> None:
        self.context: Context[TreeItem] | None = None
        self._recorded: set[bytes] = set()

    def add(self, lines: Iterable[bytes]) -> None:
        """Record entries before they are changed; raise StoppedEarly if that fails."""
        self._recorded = set(lines)
        self._record(sorted(self._recorded))

    def demand(self, line: bytes) -> None:
        """Record an entry unless `add` has recorded it; raise StoppedEarly if that fails."""
        if line not in self._recorded:
            self._record([line])

    def _record(self, lines: list[bytes]) -> None:
        parts = (lines[at : at + _TOGETHER] for at in range(0, len(lines), _TOGETHER))
        notices = [ActionLines(b"", planned=b"".join(part)) for part in parts]
        if self.context is None or not self.context.note_synced(notices):
            raise StoppedEarly("entries that are not recorded were not changed")


_OTHER = "it has changed since the plan was made"


class ChangingTask(ChangeTask):
    """The task of one rank or thread that changes modes, owners and access control lists.

    `unlock` is a method of its visitor. All threads of a rank share `firsts`.
    """

    notice_type: ClassVar[Any] = Failure | ActionLines | Denied | Unmapped
    counters_type: ClassVar[type[ModeCounters]] = ModeCounters
    plan: ModePlan
    first: ChangingTask | None
    unlock: Callable[[int], bool]

    def begin(self) -> None:
        plan = self.plan
        owner_alone = (
            plan.request.owns and plan.request.other_mode is plan.request.directory_mode is None
        )
        self.tool: str = plan.tool
        self.action = "chown" if owner_alone else "chmod"
        self.tries = "change owner of" if owner_alone else "change mode of"
        super().begin()
        self.firsts: FirstNames = (
            FirstNames(_MAX_AT_HAND) if self.first is None else self.first.firsts
        )

    def close(self) -> None:
        super().close()
        self.firsts.close()

    def never(self) -> bool:
        """Return False, so that waiting is never interrupted."""
        return False

    def key_of(self, status: os.stat_result) -> Key:
        """Return the identity of a file.

        Device numbers of file systems differ between nodes, so in a job on several nodes the
        modification time of the file replaces the device.
        """
        apart = status.st_dev if self.plan.one_node else status.st_mtime_ns
        return apart, status.st_ino

    def identify(self, status: os.stat_result) -> tuple[int, int]:
        """Return the identity of a directory that is valid on all nodes of the job."""
        return (device_and_inode if self.plan.one_node else inode_alone)(status)

    def reach(self, *, is_first: bool) -> Directories:
        return open_roots(
            self.reached,
            self.plan.directory,
            self.identify,
            is_first=is_first,
            unlock=lambda fd: self.unlock(fd),  # noqa: PLW0108 - it is set later
            written=True,
            follow=self.plan.follow,
        )


class EntryChanger(EntryVisitor):
    """The part of the visitor that changes single entries."""

    task: ChangingTask
    counters: ModeCounters

    def __init__(self, task: ChangingTask, counters: ModeCounters | None = None) -> None:
        super().__init__(task, counters)
        plan = self._plan = task.plan
        self._acts = task.action_log
        self._resolver = resolver_of(plan)
        self._owns = plan.request.owns or plan.applies
        modes = (plan.request.directory_mode, plan.request.other_mode) != (None, None)
        self._forces_owner, self._forces_mode = (
            plan.force and plan.request.owns,
            plan.force and modes,
        )
        self._denied: dict[int, int] = {}
        self._is_stopping = task.never
        self._records = UndoRecords() if plan.undo else None

    def begin(self, item: object, context: Context[TreeItem]) -> None:
        self._work_in(context)

    def resume(self, base: Open[int], context: Context[TreeItem]) -> None:
        self._work_in(context)

    def _work_in(self, context: Context[TreeItem]) -> None:
        self._is_stopping = context.is_stopping
        if self._records is not None:
            self._records.context = context

    def _carry_out(
        self,
        root: int,
        path: bytes,
        status: os.stat_result,
        old: EntryState,
        change: Callable[[], None],
    ) -> None:
        """Record, make and count a change; only count it if this is a dry run.

        Raise OSError if the change fails.
        """
        if not self._plan.dry:
            self.task.due(1, self._is_stopping)
            if self._records is not None:
                self._records.demand(self._record_of(root, path, status, old))
            change()
        self.counters.changed += 1

    def _record_of(self, root: int, path: bytes, status: os.stat_result, old: EntryState) -> bytes:
        path = b"" if self._plan.roots[root].name else path
        return entry(root, path, mark_of(status, old))

    def _apply_state(
        self,
        root: int,
        path: bytes,
        status: os.stat_result,
        target: Target,
        old: EntryState,
        new: EntryState,
    ) -> None:
        """Change an open entry to its new state if that differs, or with --force in any case.

        Raise OSError if that fails.
        """
        if new == old and not self._plan.force:
            return

        def change() -> None:
            if stat.S_ISLNK(status.st_mode):
                os.chown(target, new.uid, new.gid)
            else:
                apply(target, old, new, owner=self._forces_owner, bits=self._forces_mode)

        self._carry_out(root, path, status, old, change)

    def _apply_state_by_name(
        self,
        root: int,
        path: bytes,
        status: os.stat_result,
        name: bytes,
        fd: int,
        old: EntryState,
        new: EntryState,
    ) -> None:
        """Change an entry to its new state, by name if a single call suffices.

        Raise OSError if that fails.
        """
        force = self._plan.force
        if new == old and not force:
            return
        is_link = stat.S_ISLNK(status.st_mode)
        owns = (new.uid, new.gid) != (old.uid, old.gid) or self._forces_owner
        sets = new.mode != old.mode or self._forces_mode
        if owns and (sets or old.mode & SET_ID) and not (is_link or self._plan.dry):
            with held(name, fd) as (target, now):
                if stat.S_ISLNK(now.st_mode):
                    raise Changed("it is now a symbolic link")
                # Another process may have replaced the file after the look-up.
                old = state_of(now)
                new = self._resolver.of(stat.S_IFMT(now.st_mode), old)
                self._apply_state(root, path, now, target, old, new)
            return

        def change() -> None:
            if owns:
                os.chown(name, new.uid, new.gid, dir_fd=fd, follow_symlinks=False)
            elif not is_link:
                change_mode(name, new.mode, fd)

        self._carry_out(root, path, status, old, change)

    # ---- reports ----------------------------------------------------------

    def _report(
        self,
        root: int,
        path: bytes,
        status: os.stat_result,
        old: EntryState,
        new: EntryState,
        context: Context[TreeItem],
    ) -> None:
        acts, plan = self._acts, self._plan
        if acts is None:
            return
        changes = new != old
        shown = plan.roots[root].shown
        path = b"" if plan.roots[root].name else path
        kind = LETTERS.get(stat.S_IFMT(status.st_mode), "?")
        said = b""
        if plan.verbosity > (not changes):
            whole = os.path.join(shown, path) if path else shown
            said = lines(plan.request, whole, old, new, is_link=kind == "l", dry=plan.dry)
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
        context: Context[TreeItem],
    ) -> None:
        """Report an entry that could not be changed; count denied entries by owner."""
        if error.errno == errno.EPERM and status is not None:
            self._denied[status.st_uid] = self._denied.get(status.st_uid, 0) + 1
            if self._plan.silent > 1:
                self.counters.denied += 1
                return
        self.fail(root, path, self.task.tries, error, context)

    def fail(
        self, root: int, path: bytes, doing: str, error: OSError, context: Context[TreeItem]
    ) -> None:
        if self._acts is not None:
            logged = b"" if self._plan.roots[root].name else path
            self._acts.failed(self.task.action, root, logged, error.errno)
        super().fail(root, path, doing, error, context)

    def unreached(
        self, where: Where, name: bytes, error: OSError, context: Context[TreeItem]
    ) -> None:
        name = split_mark(name)[0] if self._plan.applies else name
        if error.errno == errno.ENOENT:
            self.counters.sized += 1
            self.counters.vanished += 1
            self._vanished(where.root, joined(where.path, name), "")
        else:
            super().unreached(where, name, error, context)

    def send_reports(self, context: Context[TreeItem]) -> None:
        if self._acts is not None:
            self._acts.tell(context)

    def end(self, context: Context[TreeItem], opens: Sequence[Open[int]]) -> None:
        self.send_reports(context)
        notices: list[object] = [Denied(uid, count) for uid, count in self._denied.items()]
        self._denied.clear()
        for is_group, ids in ((False, self._resolver.users), (True, self._resolver.groups)):
            notices += [Unmapped(is_group, *item) for item in ids.unmapped.items()]
            ids.unmapped.clear()
        if notices:
            context.note(notices)


def resolver_of(plan: ModePlan) -> StateResolver:
    """Return the resolver of new states for the request of a plan."""
    return StateResolver(plan.request, user, group, force=plan.force)


def restored(mark: bytes, status: os.stat_result, old: EntryState) -> EntryState:
    """Return the state that a mark records for an entry; raise Changed if it was replaced."""
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
