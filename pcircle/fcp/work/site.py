"""What the work on every kind of item shares on one rank: the plan, the directories, the counts."""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import xxhash

from pcircle.checkpoint.disk import Disk
from pcircle.checkpoint.journal import Counts, Names
from pcircle.checkpoint.mark import leave
from pcircle.checkpoint.recorder import Recorder
from pcircle.checkpoint.resumed import Listing, Partial, Resumed, Standing
from pcircle.copying.existing import Taken
from pcircle.copying.extras import Extras
from pcircle.copying.files import Copier
from pcircle.copying.hashing import Hasher
from pcircle.copying.observing import Signing
from pcircle.copying.special import copy_special
from pcircle.copying.target import Names as TemporaryNames
from pcircle.fcp.acting import Acting
from pcircle.fcp.counters import Counters
from pcircle.fcp.items import Item
from pcircle.fcp.plan import DIRECTORY, Plan, is_in_copy, open_sides
from pcircle.fcp.work.choose import siblings_of
from pcircle.fcp.work.limits import ItemLimits, limits_of
from pcircle.fcp.work.special import Skipper
from pcircle.fcp.work.takings import Takings
from pcircle.fcp.work.waiting import Waiting
from pcircle.fs.directories import HOLDER, Lease
from pcircle.fs.naming import sync_directory
from pcircle.fs.trouble import kind_of, told, tried, trying
from pcircle.fs.xattrs import generation, lift_flags
from pcircle.guards import require
from pcircle.runtime import Here
from pcircle.signature import Signer
from pcircle.tool.failures import Failure
from pcircle.walk.items import Place


class Site:
    """The means of a rank, `rank` of `size`; each of its threads has some of its own.

    With `beside` they are those of thread `number`, beside those of the first.
    """

    def __init__(
        self, plan: Plan, rank: int, size: int, beside: Site | None = None, number: int = 0
    ) -> None:
        self.plan = plan
        self.rank = rank
        self.size = size
        self.counters = Counters()
        journal = plan.journal
        first: Recorder | None = None if beside is None else beside.recorder
        self.recorder: Recorder | None = None
        if journal is not None:
            self.recorder = Recorder(journal, rank, first)
        self.resumed: Resumed | None = None
        if journal is not None and self.recorder is not None and journal.stale:
            self.resumed = Resumed(journal, self.recorder.keys)
        shared: Disk | None = None if beside is None else beside.disk
        self.disk: Disk | None = self.recorder or (Disk(shared) if plan.verify else None)
        opened = None if self.disk is None else self.disk.opened
        self.sources, self.targets = open_sides(plan, opened, beside is None)
        self.skipper = Skipper(plan, self.counters)
        # The number tells temporary names apart, of all threads of all ranks.
        temporary = TemporaryNames(plan, rank + size * number, siblings_of(plan))
        self.extras = Extras(plan.keep, self.counters, temporary)
        self.limits: ItemLimits | None = limits_of(plan, size) if beside is None else beside.limits
        self.signer: Signer | None = None
        if plan.sign is not None:
            of_first = None if beside is None else beside.signer
            self.signer = Signer(plan.sign, HOLDER, first=of_first)
        hasher = Hasher() if plan.verify else None
        signing = None if self.signer is None else Signing(self.signer)
        self.acting: Acting | None = None
        if plan.acts:
            self.acting = Acting(rank, None if beside is None else beside.acting)
        wanted = (hasher, signing, self.limits, self.acting)
        observers = [each for each in wanted if each is not None]
        self.copier = Copier(plan, self.counters, self.extras, observers)
        self.takings = Takings(self.counters, self.signer, counted=journal is not None)
        self.waiting: Waiting | None = None
        if self.disk is not None and hasher is not None:
            with_first: Waiting | None = None if beside is None else beside.waiting
            self.waiting = Waiting(self.disk, hasher, with_first)

    @property
    def epoch(self) -> int:
        """The epoch that this rank is in, 0 where there are none."""
        return 0 if self.disk is None else self.disk.epoch

    def begin(self, here: Here[Any]) -> Counts:
        """An item begins: what the last one left is not its own. The counts so far."""
        self.copier.is_stopping = here.is_stopping
        if self.limits is not None:
            self.limits.is_stopping = here.is_stopping
        if self.waiting is not None:
            self.waiting.begin()
        if self.recorder is not None:
            self.recorder.begin()
        return self.takings.begin()

    def enter(self, root: int, path: bytes, place: Place, target_fd: int) -> None:
        """What follows is made in the copy of this directory, which is open."""
        self.extras.enter(target_fd, bare=place.bare)
        self.enter_names(root, path, made=place.made)

    def enter_names(self, root: int, path: bytes, *, made: bool) -> None:
        """Names that follow are in the copy of this directory, which this run has `made` or not."""
        self.copier.names.collisions.enter(self.sources, root, path, made=made)
        if self.acting is not None:
            self.acting.at(root, path)

    def partial(self, root: int, path: bytes, listing: Listing | None = None) -> Partial | None:
        """What an earlier run has done of a directory; if it is signed, its entries are the item's.

        With a `listing` of the copy, what is not there is not done. NoSpace if entries can't be
        kept.
        """
        if self.resumed is None:
            return None
        made = self.copy_mark(root, path)

        def trust(record: Names) -> bool:
            # In a directory that was made anew nothing of what was in the old one is done.
            same = bool(made) and record.made == made
            same = same and (listing is None or listing.has(record.hashes))
            return same and (self.signer is None or self._keep_entries(record))

        return self.resumed.partial(root, path, trust)

    def copy_mark(self, root: int, path: bytes) -> int:
        """What a directory's copy is known again by: 63 bits of its inode; 0 if there is none."""
        try:
            with self.targets.lease(root, path) as lease:
                inode = struct.pack("<QQ", lease.identity[1], generation(lease.fd))
        except OSError:
            return 0
        return xxhash.xxh3_64_intdigest(inode) >> 1

    def copy_status(
        self, root: int, path: bytes, identity: tuple[int, int] | None = None
    ) -> os.stat_result | None:
        """The status of a directory's copy, of that very one if wanted; None if there is none."""
        try:
            with self.targets.lease(root, path, identity) as lease:
                return os.fstat(lease.fd)
        except OSError:
            return None

    def standing(self, root: int, path: bytes) -> Standing:
        """What an earlier run has done of a directory and its subtree, and is still so."""
        records = [] if self.resumed is None else self.resumed.subtrees(root, path)
        if not records:
            return Standing()
        now = self.copy_status(root, path)  # it is opened: over NFS a mere `stat` may be old
        if now is not None:
            for record in records:
                if (record.made, record.changed) == (now.st_ino, now.st_ctime_ns):
                    return Standing(record)
        return Standing(spoiled=True)

    def leave_mark(self, root: int) -> None:
        """Before anything is recorded of a root, see to it that its target will be known again."""
        journal = self.plan.journal
        if journal is not None:
            path = b"" if is_in_copy(self.plan.roots) else HOLDER
            with suppress(OSError), self.targets.lease(root, path) as lease:
                leave(journal.mark, lease.fd)

    def _keep_entries(self, record: Names) -> bool:
        """Take over the entries of a record; false if they are not what it tells of."""
        keys, signer = require(self.recorder).keys, require(self.signer)
        try:
            signer.keep(record.entries, lambda names: keys.are_of(names, record.hashes))
        except ValueError:
            return False
        return True

    def lift(self, target_fd: int, names: Sequence[bytes]) -> None:
        """Where an earlier run may have finished files, let them be replaced."""
        if self.resumed is not None and self.plan.keep.flags:
            for name in names:
                with suppress(OSError):  # it is not there
                    # Others' files stay as protected as they are.
                    if self.plan.is_ours(os.stat(name, dir_fd=target_fd, follow_symlinks=False)):
                        lift_flags(target_fd, name)

    def target_is(self, root: int, path: bytes, kind: int) -> bool:
        """Whether the copy of what has this path is there, and of this kind of `st_mode`."""
        base = self.plan.roots[root]
        above, _, name = path.rpartition(b"/") if path else (HOLDER, b"", base.target_name)
        try:
            with self.targets.lease(root, above) as lease:
                status = os.stat(name or b".", dir_fd=lease.fd, follow_symlinks=not name)
        except OSError:
            return False
        return stat.S_IFMT(status.st_mode) == kind

    def target_name(self, root: int, path: bytes, name: bytes) -> bytes:
        """The name of an entry's copy: only roots that are no directories may have another."""
        return self.plan.roots[root].target_name if path == HOLDER else name

    def special(
        self, source_fd: int, source: bytes, target_fd: int, name: bytes, *, claimed: bool = True
    ) -> os.stat_result | None:
        """Copy a FIFO, a socket or a device, and count it; see `copy_special`."""
        names = (source_fd, source, target_fd, name)
        self.copier.means.watch.attempt(0)
        try:
            status = copy_special(self.copier.means, names, claimed=claimed)
        except Taken:
            self.copier.skip(target_fd, name)
            return None
        if status is None:
            if self.signer is not None:
                with trying("read the existing copy of"):
                    made = os.stat(name, dir_fd=target_fd, follow_symlinks=False)
                self.signer.node(made.st_mode, made.st_rdev)
            self.counters.special += 1
            self.counters.sized += 1
            if self.acting is not None:
                self.acting.special(target_fd, name)
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
        self.note_failure(self.failure(root, path, doing, error), here)

    def note_failure(self, failure: Failure, here: Here[Any]) -> None:
        """Have a failure told."""
        if self.acting is not None:
            self.acting.failed(failure)
        here.note([failure])

    def tell_actions(self, here: Here[Any]) -> None:
        """Have rank 0 told of what was done."""
        if self.acting is not None:
            self.acting.actions.tell(here)

    def sync_holder(self, path: bytes, lease: Lease) -> None:
        """With --fsync, bring to disk the name of a root; directories see to what is in them."""
        if path == HOLDER and self.plan.existing.sync:
            with trying("flush the name of the copy of"):
                sync_directory(lease.fd, searched=lease.searched)

    def failure(self, root: int, path: bytes, doing: str | None, error: OSError) -> Failure:
        """An entry's failure, as data."""
        base = self.plan.roots[root]
        entry = path if base.kind == DIRECTORY else b""
        shown = os.path.join(base.source_shown, entry) if entry else base.source_shown
        doing = doing or tried(error, self.copier.doing)
        return Failure(shown, doing, *told(error), root, entry, kind_of(error))
