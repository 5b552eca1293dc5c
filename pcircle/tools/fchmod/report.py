"""The lines about changed entries, and the plan of a change with its counters and notices.

Lines are worded as in `chmod` and `chown`, with names of users and groups. Rank 0 decides the plan.
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
    """Return a line for each requested change of an entry."""
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
    """The plan of the `tool` of this name. With `recursive`, directories include their contents.

    With `listed` only paths of a list are changed. With `force` calls are made even if nothing
    changes. `silent` is the number of `-f` options. `verbosity` selects entries to print: 1 for
    changed entries, 2 for all. With `undo` old states are recorded.
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
    """The counters of a change. `changed` counts the completed entries that were changed.

    Other entries have `vanished`, or are further names of completed files, `linked`. Entries of
    other users that were `denied` are failures, except with `-f -f`.
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
    """The number of entries of a user that could not be changed for lack of permission."""

    uid: int
    count: int


class Unmapped(msgspec.Struct, frozen=True, array_like=True, tag="u"):
    """A user or group id that the map does not contain, and its number of entries."""

    is_group: bool
    number: int
    count: int
