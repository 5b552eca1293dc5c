"""The plan of a removal, which rank 0 decides once, and its counters."""

from __future__ import annotations

import errno

from pcircle.jobs.change_task import ChangeCounters, ChangePlan

NAMES_PER_CHECK = 256
"""The number of names between two checks whether the job stops."""

MAX_TRIES = 3
"""The number of times that a directory is emptied while entries are created in it."""

NOT_EMPTY = (errno.ENOTEMPTY, errno.EEXIST)

WHOLE = "w"
"""Kind of a log entry (`RemovalLog`): directories, each followed by all its files."""


class RemovalPlan(ChangePlan, frozen=True, kw_only=True):
    """The options of a removal.

    With `recursive` the contents of directories are removed too, with `enter_mounts` also on other
    mounts. `listed` removes only what a list names. `keep_root` keeps each PATH itself.
    `keep_times` preserves the times of remaining directories. `force_modes` gives the owner access
    to directories, with `restores` only until they are complete. `lifts_flags` clears inode flags
    that forbid removal. With `trash` each PATH is moved to this directory of the run. `sized` looks
    up the sizes of files. `holders` has device and inode of the parent of each PATH, where known.
    `gone` has the numbers of the PATHs that previous runs of this job have removed.
    """

    recursive: bool = False
    keep_root: bool = False
    keep_times: bool = False
    force_modes: bool = False
    restores: bool = False
    lifts_flags: bool = False
    listed: bool = False
    sized: bool = False
    holders: tuple[tuple[int, int], ...] = ()
    trash: bytes = b""
    enter_mounts: bool = False
    gone: tuple[int, ...] = ()


class RemovalCounters(ChangeCounters):
    """Counters of a removal; `vanished` entries disappeared before they could be removed.

    `named_bytes` is the disk usage of files, counted for each name, and `freed_bytes` that of files
    whose last name was removed.
    """

    vanished: int
    named_bytes: int
    freed_bytes: int

    @property
    def settled(self) -> int:
        return self.completed + self.failed + self.kept + self.vanished
