"""What is to be removed, decided once on rank 0, and what is counted."""

from __future__ import annotations

from pcircle.tool.changing import ChangeCounters, ChangePlan

WHOLE = "w"
"""Of what is about to be removed (`Intents`): directories, each behind all of its files."""


class RemovalPlan(ChangePlan, frozen=True, kw_only=True):
    """With `recursive` what is in directories goes, too. `enter_mounts`: also on other mounts.

    `listed`: only what a list names goes. `keep_root`: each PATH itself stays. `keep_times`:
    directories that stay keep their times. `force_modes`: the owner gets access to directories,
    with `restores` only until they are complete. `lifts_flags`: inode flags that forbid to remove
    entries are taken away. With `trash` each PATH is moved to that directory of this run. `sized`:
    files are looked up.
    `holders` are device and inode of what each PATH is in, where that is known. `gone` are the
    numbers of PATHs that a run of this job has removed which was not the last one.
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


class Counters(ChangeCounters):
    """Entries that had `vanished` before they were to be removed.

    On disk files have `named_bytes` by each of their names, and `freed_bytes` by the last one.
    """

    vanished: int
    named_bytes: int
    freed_bytes: int

    @property
    def settled(self) -> int:
        """See `Measured`."""
        return self.completed + self.failed + self.kept + self.vanished
