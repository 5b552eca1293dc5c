"""What is to be changed, decided once on rank 0; what is counted, and what else rank 0 learns."""

from __future__ import annotations

from typing import Literal

import msgspec

from pcircle.fchmod.lists import Edit
from pcircle.tool.changing import ChangeCounters, ChangePlan


class Rule(msgspec.Struct, frozen=True, array_like=True):
    """Ids from `low` to `high` become `to`; with a `pattern`, those whose name it matches."""

    low: int
    high: int
    to: int
    pattern: str = ""


class Wish(msgspec.Struct, frozen=True, array_like=True):
    """What an entry is to be, apart from what it was.

    `directory_mode` and `other_mode` are modes as they were typed, None where they are to stay, and
    `umask` counts for them. `uid` and `gid` are set unless they are None; `users` and `groups` map
    what is there. Only entries of `from_uid` and `from_gid` are meant. `edits` are of access
    control lists; `no_lists`: all of these go. `set_id` tells what becomes of the set-id bits of a
    file that gets another owner: they are cleared, kept, or cleared of all files.
    """

    directory_mode: str | None = None
    other_mode: str | None = None
    umask: int = 0
    uid: int | None = None
    gid: int | None = None
    from_uid: int | None = None
    from_gid: int | None = None
    users: tuple[Rule, ...] = ()
    groups: tuple[Rule, ...] = ()
    edits: tuple[Edit, ...] = ()
    no_lists: bool = False
    set_id: Literal["clear", "keep", "none"] = "clear"

    @property
    def owns(self) -> bool:
        """Whether owners or groups may change."""
        return self.uid is not None or self.gid is not None or bool(self.users or self.groups)

    @property
    def lists(self) -> bool:
        """Whether access control lists may change."""
        return bool(self.edits) or self.no_lists


class ModePlan(ChangePlan, frozen=True, kw_only=True):
    """For the `tool` of this name. With `recursive` what is in directories is meant, too.

    `listed`: only what a list names.
    `force`: calls are made also where nothing would change. `silent` is how often `-f` was
    typed, and `says` which entries are told of: 1 those that change, 2 all. With `undo` what
    entries were is kept.
    """

    tool: str = "fchmod"
    wish: Wish = Wish()
    recursive: bool = False
    listed: bool = False
    force: bool = False
    silent: int = 0
    says: int = 0
    undo: bool = False


class Counters(ChangeCounters):
    """Of the entries that are done some have `changed`.

    Others had `vanished`, or are further names of files that were done, which are `linked`. Those
    that are another user's and `denied` are failures, but for `-f -f`.
    """

    changed: int
    vanished: int
    linked: int
    denied: int

    @property
    def settled(self) -> int:
        """See `Measured`."""
        ended = self.completed + self.failed + self.kept + self.vanished
        return ended + self.linked + self.denied


class Denied(msgspec.Struct, frozen=True, array_like=True, tag="x"):
    """How many entries of a user could not be changed, for want of permission."""

    uid: int
    count: int


class Unmapped(msgspec.Struct, frozen=True, array_like=True, tag="u"):
    """A user, or a group, of whom no map says anything, and how many entries have it."""

    is_group: bool
    number: int
    count: int
