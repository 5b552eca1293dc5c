"""What the work on every kind of item shares on one rank: the plan, the directories, the counts."""

from __future__ import annotations

import os

from pcircle.fcp.counters import Counters
from pcircle.fcp.existing import Taken
from pcircle.fcp.extras import Extras
from pcircle.fcp.files import Copier
from pcircle.fcp.items import Failure, Item
from pcircle.fcp.plan import DIRECTORY, Plan, open_sides
from pcircle.fcp.special import copy_special
from pcircle.fs.directories import HOLDER, Lease
from pcircle.fs.naming import sync_directory
from pcircle.runtime import Here


class Site:
    """A rank's means: `rank` of `size` ranks."""

    def __init__(self, plan: Plan, rank: int, size: int) -> None:
        self.plan = plan
        self.rank = rank
        self.size = size
        self.counters = Counters()
        self.sources, self.targets = open_sides(plan)
        self.extras = Extras(plan.keep, self.counters)
        self.copier = Copier(plan, self.counters, rank, self.extras)

    def target_name(self, root: int, path: bytes, name: bytes) -> bytes:
        """The name of an entry's copy: only roots that are no directories may have another."""
        return self.plan.roots[root].target_name if path == HOLDER else name

    def special(
        self, source_fd: int, source: bytes, target_fd: int, name: bytes, *, claimed: bool = True
    ) -> os.stat_result | None:
        """Copy a FIFO, a socket or a device, and count it; see `copy_special`."""
        names = (source_fd, source, target_fd, name)
        try:
            status = copy_special(self.copier, self.plan, self.extras, names, claimed=claimed)
        except Taken:
            self.copier.skip()
            return None
        if status is None:
            self.counters.special += 1
            self.counters.sized += 1
        return status

    def fail(
        self,
        root: int,
        path: bytes,
        doing: str | None,
        error: OSError,
        here: Here[Item],
        *,
        sized: bool = False,
    ) -> None:
        """Account for an entry that could not be copied; `doing` None is what the copier did."""
        self.counters.failed += 1
        if not sized:
            self.counters.sized += 1
        here.note([self.failure(root, path, doing, error)])

    def sync_holder(self, path: bytes, lease: Lease) -> None:
        """With --fsync, bring to disk the name of a root; directories see to what is in them."""
        if path == HOLDER and self.plan.existing.sync:
            self.copier.doing = "bring to disk the name of the copy of"
            sync_directory(lease.fd, searched=lease.searched)

    def failure(self, root: int, path: bytes, doing: str | None, error: OSError) -> Failure:
        """An entry's failure, as data."""
        base = self.plan.roots[root]
        entry = path if base.kind == DIRECTORY else b""
        shown = os.path.join(base.source_shown, entry) if entry else base.source_shown
        reason = error.strerror or str(error)
        return Failure(shown, doing or self.copier.doing, error.errno or 0, reason, root, entry)
