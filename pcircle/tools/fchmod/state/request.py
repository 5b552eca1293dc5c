"""The requested change of entries, as part of the plan."""

# Annotations are evaluated here, once: otherwise msgspec compiles each of them in every rank.
from typing import Literal

import msgspec

from pcircle.fs.attributes.owners import Rule
from pcircle.tools.fchmod.state.lists import Edit


class Wish(msgspec.Struct, frozen=True, array_like=True):
    """The request, independent of the present state of an entry.

    `directory_mode` and `other_mode` are modes as typed, or None to keep them, and `umask` applies
    to them. `uid` and `gid` are set unless None. `users` and `groups` map present ids. Only entries
    of `from_uid` and `from_gid` are changed. `edits` change access control lists, and `no_lists`
    removes them. `set_id` determines whether set-id bits of a file that changes owner are cleared
    or retained, or the bits of all files are cleared.
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
        """Return whether owners or groups may change."""
        return self.uid is not None or self.gid is not None or bool(self.users or self.groups)

    @property
    def sets_owner_alone(self) -> bool:
        """Return whether the request only sets the same owner or group for each entry."""
        modes = self.directory_mode is not None or self.other_mode is not None
        fixed = self.uid is not None or self.gid is not None
        maps = bool(self.users or self.groups)
        return fixed and not (modes or maps or self.lists) and self.set_id == "clear"

    @property
    def lists(self) -> bool:
        """Return whether access control lists may change."""
        return bool(self.edits) or self.no_lists
