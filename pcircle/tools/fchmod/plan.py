"""The plan of a change, decided on rank 0; its counters and notices."""

# Annotations are evaluated here, once: otherwise msgspec compiles each of them in every rank.
import msgspec

from pcircle.jobs.change_task import ChangeCounters, ChangePlan
from pcircle.tools.fchmod.state.resolve import ChangeRequest


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
