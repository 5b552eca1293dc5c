"""The plan of a removal, made on rank 0, and the counters."""

from __future__ import annotations

import errno

from pcircle.jobs.change_task import ChangeCounters, ChangePlan

NAMES_PER_CHECK = 256
"""How many names are removed between checks for a stop of the job."""

MAX_TRIES = 3
"""The maximum number of times that a directory is emptied again if new entries appear in it."""

NOT_EMPTY = (errno.ENOTEMPTY, errno.EEXIST)

WHOLE = "w"
"""The type of a log entry (`RemovalLog`) that lists directories, each followed by its files."""


class RemovalPlan(ChangePlan, frozen=True, kw_only=True):
    """The options of a removal.

    `recursive` means that the contents of directories are removed too, and `enter_mounts` that this
    includes other mounts. `listed` limits the removal to the entries in a list. `keep_root` keeps
    each PATH itself, and `keep_times` the times of directories that stay. `force_modes` gives the
    owner access to directories, and `restores` restores the old attributes of directories that
    stay. `lifts_flags` clears inode flags that forbid removal. If `trash` is set, each PATH is
    moved to that directory. `sized` requests the disk usage of removed files. `holders` contains
    the device and inode of the parent of each PATH, or is empty if they are unknown. `gone`
    contains the numbers of the PATHs that previous runs of this job have removed.
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
    """The counters of a removal; `vanished` counts entries that other processes removed first.

    `named_bytes` is the disk usage of the removed files, counted once per name. `freed_bytes` is
    that of the files whose last name was removed.
    """

    vanished: int
    named_bytes: int
    freed_bytes: int

    @property
    def settled(self) -> int:
        return self.completed + self.failed + self.kept + self.vanished
