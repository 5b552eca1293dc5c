"""The task of one rank or thread that changes modes, owners and lists."""

from __future__ import annotations

import os
from collections.abc import Callable

from pcircle.fs.directories import Directories, device_and_inode, inode_alone
from pcircle.fs.registry import Firsts, Key
from pcircle.jobs.action_log import ActionLines
from pcircle.jobs.change_task import ChangeTask
from pcircle.jobs.failures import Failure
from pcircle.tools.fchmod.plan import Counters, Denied, ModePlan, Unmapped
from pcircle.tools.fchmod.visitor import Changer
from pcircle.walk.roots import open_roots

_MAX_AT_HAND = 100_000  # hard-linked inodes, some 20 MB


class ModeTask(ChangeTask):
    """A `ChangeTask` with the `unlock` of its visitor; all threads share `firsts`."""

    notice_type = Failure | ActionLines | Denied | Unmapped
    counters_type, visitor_type = Counters, Changer
    plan: ModePlan
    first: ModeTask | None
    unlock: Callable[[int], bool]

    def begin(self) -> None:
        plan = self.plan
        owner_alone = plan.wish.owns and plan.wish.other_mode is plan.wish.directory_mode is None
        self.tool = plan.tool
        self.action = "chown" if owner_alone else "chmod"
        self.tries = "change owner of" if owner_alone else "change mode of"
        super().begin()
        self.firsts: Firsts = Firsts(_MAX_AT_HAND) if self.first is None else self.first.firsts

    def close(self) -> None:
        super().close()
        self.firsts.close()

    def never(self) -> bool:
        """Return False: waiting is never interrupted."""
        return False

    def key_of(self, status: os.stat_result) -> Key:
        """Return the identity of a file.

        Nodes number file systems differently, so on several nodes a time of the file replaces the
        device.
        """
        apart = status.st_dev if self.plan.one_node else status.st_mtime_ns
        return apart, status.st_ino

    def identify(self, status: os.stat_result) -> tuple[int, int]:
        """Return the identity of a directory, valid on all nodes."""
        return (device_and_inode if self.plan.one_node else inode_alone)(status)

    def reach(self, *, is_first: bool) -> Directories:
        return open_roots(
            self.reached,
            self.plan.directory,
            self.identify,
            is_first=is_first,
            unlock=lambda fd: self.unlock(fd),
            written=True,
            follow=self.plan.follow,
        )
