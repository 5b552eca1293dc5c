"""The new state of an entry, computed from its current state without system calls.

The steps are owner and group, set-id bits as the change of owner leaves them, mode, and access
control lists. The result is the same as after `chown`, `chmod` and `setfacl`, in that order.
"""

from __future__ import annotations

import stat
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from pcircle.fs.attributes.acls import NOBODY, OTHER, OWNER, OWNING_GROUP, entries_of
from pcircle.fs.attributes.modes import SET_ID, ModeChange, parse_mode
from pcircle.fs.attributes.owners import IdMap, IdRule
from pcircle.fs.entry_errors import EntryError
from pcircle.tools.fchmod.state.lists import (
    Edit,
    Entries,
    as_access,
    as_default,
    bits_of,
    edited,
    entries,
    without_names,
)
from pcircle.tools.fchmod.state.state import EntryState, with_set_id_cleared


class ChangeRequest(msgspec.Struct, frozen=True, array_like=True):
    """The requested change, independent of the current state of an entry.

    `directory_mode` and `other_mode` are modes as typed, subject to `umask`, or None to keep the
    mode. `uid` and `gid` are the new ids unless they are None. `users` and `groups` map current
    ids. If `from_uid` or `from_gid` is given, entries with other ids are not changed. `edits`
    change access control lists, and `no_lists` removes them. When the owner of a file changes, its
    set-id bits are cleared if `set_id` is "clear" and kept if it is "keep". If it is "none", those
    of all files are cleared.
    """

    directory_mode: str | None = None
    other_mode: str | None = None
    umask: int = 0
    uid: int | None = None
    gid: int | None = None
    from_uid: int | None = None
    from_gid: int | None = None
    users: tuple[IdRule, ...] = ()
    groups: tuple[IdRule, ...] = ()
    edits: tuple[Edit, ...] = ()
    no_lists: bool = False
    set_id: Literal["clear", "keep", "none"] = "clear"

    @property
    def owns(self) -> bool:
        """Return whether owners or groups may change."""
        return self.uid is not None or self.gid is not None or bool(self.users or self.groups)

    @property
    def sets_owner_alone(self) -> bool:
        """Return whether the request only sets the same owner or group for all entries."""
        modes = self.directory_mode is not None or self.other_mode is not None
        fixed = self.uid is not None or self.gid is not None
        maps = bool(self.users or self.groups)
        return fixed and not (modes or maps or self.lists) and self.set_id == "clear"

    @property
    def lists(self) -> bool:
        """Return whether access control lists may change."""
        return bool(self.edits) or self.no_lists


NameOf = Callable[[int], str]


class CountingIdMap:
    """A map of ids; `unmapped` counts the ids for which there is no rule."""

    def __init__(self, rules: Sequence[IdRule], name_of: NameOf) -> None:
        self._rules = rules
        self._found = IdMap(rules, name_of)
        self.unmapped: Counter[int] = Counter()

    def __call__(self, number: int) -> int:
        """Return the new id."""
        if not self._rules:
            return number
        to = self._found(number)
        if to is None:
            self.unmapped[number] += 1
            return number
        return to


class StateResolver:
    """Computes the new states of entries, for one thread."""

    def __init__(
        self, request: ChangeRequest, user_of: NameOf, group_of: NameOf, *, force: bool = False
    ) -> None:
        self._request = request
        self._forces_owner = force and request.owns
        self._changes = {
            is_directory: None if text is None else parse_mode(text, request.umask)
            for is_directory, text in ((True, request.directory_mode), (False, request.other_mode))
        }
        self.users: CountingIdMap = CountingIdMap(request.users, user_of)
        self.groups: CountingIdMap = CountingIdMap(request.groups, group_of)
        self._modes: dict[int, int] = {}  # new permission bits by full mode, including the type
        # If so, the entry must not be replaced between the look-up and the change.
        self.depends: bool = bool(
            request.users or request.groups or request.lists or request.from_uid is not None or
            request.from_gid is not None
        )  # fmt: skip

        self.is_uniform: bool = _is_uniform(request)

    def selects(self, uid: int, gid: int) -> bool:
        """Return whether `--from` selects an entry."""
        request = self._request
        return request.from_uid in (None, uid) and request.from_gid in (None, gid)

    def mode(self, whole: int) -> int:
        """Return the new permission bits for a full mode if only the mode changes."""
        known = self._modes.get(whole)
        if known is None:
            is_directory = stat.S_ISDIR(whole)
            change = self._changes[is_directory]
            known = self._changed(stat.S_IMODE(whole), is_directory, change)
            if self._request.set_id == "none" and stat.S_ISREG(whole):
                known &= ~SET_ID
            self._modes[whole] = known
        return known

    @staticmethod
    def _changed(mode: int, is_directory: bool, change: ModeChange | None) -> int:
        return mode if change is None else change.of(mode, is_directory=is_directory)

    def of(self, kind: int, old: EntryState) -> EntryState:
        """Return the new state of an entry; raise EntryError if its new list would be invalid."""
        request = self._request
        uid = self.users(old.uid) if request.uid is None else request.uid
        gid = self.groups(old.gid) if request.gid is None else request.gid
        if kind == stat.S_IFLNK:
            return old._replace(uid=uid, gid=gid)
        mode = old.mode
        owns = (uid, gid) != (old.uid, old.gid) or self._forces_owner
        if owns and kind != stat.S_IFDIR and request.set_id != "keep":
            mode = with_set_id_cleared(mode)
        mode = self.mode(kind | mode)
        new = old._replace(uid=uid, gid=gid, mode=mode)
        return self._with_lists(kind, new) if request.lists else new

    def _with_lists(self, kind: int, new: EntryState) -> EntryState:
        is_directory = kind == stat.S_IFDIR
        found = entries(new.access, new.mode)
        default = None if new.default is None else _as_they_are(new.default)
        if self._request.no_lists:
            found, default = without_names(found), None
        edits = self._request.edits
        of_access = [edit for edit in edits if not edit.default]
        of_default = [edit for edit in edits if edit.default]
        try:
            if of_access:
                found = edited(found, of_access, is_directory=is_directory)
            if of_default and is_directory and not (default is None and _only_removes(of_default)):
                begun = {**_base(found), **(default or {})}
                default = edited(begun, of_default, is_directory=is_directory)
        except ValueError as error:
            raise EntryError("access control list", str(error)) from None
        return new._replace(
            mode=new.mode & ~0o777 | bits_of(found),
            access=as_access(found),
            default=None if default is None else as_default(default),
        )


def _is_uniform(request: ChangeRequest) -> bool:
    """Return whether all entries receive the same mode, or all keep their modes."""
    mode = request.other_mode
    if mode != request.directory_mode:
        return False
    return request.set_id != "none" if mode is None else mode.isdecimal()


def _only_removes(edits: Sequence[Edit]) -> bool:
    return all(edit.removes for edit in edits)


def _base(found: Entries) -> Entries:
    tags = (OWNER, OWNING_GROUP, OTHER)
    return {(tag, NOBODY): found[tag, NOBODY] for tag in tags}


def _as_they_are(value: bytes) -> Entries:
    """Return the entries of a default list, which does not depend on the mode."""
    return {(tag, number): right for tag, right, number in entries_of(value)}
