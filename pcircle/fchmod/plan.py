"""What is to be changed, decided once on rank 0; what is counted, and what else rank 0 learns."""

# Annotations are evaluated here, once: otherwise msgspec compiles each of them in every rank.
import msgspec

from pcircle.fchmod.entries.wish import Wish
from pcircle.tool.changing import ChangeCounters, ChangePlan


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
