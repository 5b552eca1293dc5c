"""The lines about changed entries, and the plan of a change with its counters and notices.

The lines have the wording of `chmod` and `chown`. Rank 0 makes the plan.
"""

from __future__ import annotations

import stat

import msgspec

from pcircle.cli.listing import groups, users
from pcircle.core.encoding import show
from pcircle.jobs.change_task import ChangeCounters, ChangePlan
from pcircle.tools.fchmod.state.resolve import ChangeRequest
from pcircle.tools.fchmod.state.state import EntryState

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
