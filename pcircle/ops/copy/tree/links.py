"""Hard links: one copy of each inode, and a link for every additional name.

The names of an inode may be anywhere in the tree and may be found by any rank at any time.
Therefore the *home* of the inode, a rank determined by hashing, decides which name is copied.
Hard-linked names are claimed: their batch posts a `LinkClaim` to the home. Any rank may copy the
first name that arrives. Names that arrive before the copy is complete are held; their directories
stay incomplete, but no thread waits. When the copy is complete, all held names are linked to it; if
it failed, the next name is copied. The item that processes a claim itself copies and links for
about ten milliseconds. A separate item for each name took ten times as long as the link. With a
single source and without -L, the home forgets an inode when all `st_nlink` names have arrived.

A live source changes: when the link is created, the name may belong to another file, or the file
may have been modified. Therefore the copy is identified by the file that was opened, not by the
claim. A name becomes a link only if it had the identity and version of that file when it was
claimed, or has them when it is linked. Otherwise the name is claimed a second time under its
present identity. If that has changed again, the name is copied as a separate file. A name that is
being copied never waits for a claim, so no deadlock is possible.

An inode is identified by its number and by the number that the walk assigns to its file system,
because device numbers differ between nodes. On a single node, the file's own device number is used
if it differs from that of its directory, as on overlayfs, or if links are followed. Hard links to
names outside the copy are not preserved.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from pcircle.core.errors import require
from pcircle.fs.directories import join_path
from pcircle.fs.entry_errors import Changed, error_context
from pcircle.fs.registry import Key, Registry, home_of
from pcircle.ops.checkpoint.journal import InodeRecord as Journaled
from pcircle.ops.copy.entry import target
from pcircle.ops.copy.entry.counts import HARD_LINKS
from pcircle.ops.copy.entry.files import COPIED, LARGE
from pcircle.ops.copy.entry.links import add_hard_link, same_content
from pcircle.ops.copy.entry.overwrite import DestinationExistsError, is_copied_special
from pcircle.ops.copy.entry.settings import Stamp
from pcircle.ops.copy.tree.items import (
    NOTHING,
    ClaimedNames,
    CopyResult,
    FinishedCopy,
    FirstName,
    HardLinkedName,
    HardLinkItem,
    Item,
    LargeFileItem,
    LinkClaim,
    PartialResult,
)
from pcircle.ops.copy.tree.worker import Worker, WorkerPart
from pcircle.runtime import Context
from pcircle.walk.items import ANYWHERE, DirectoryIdentity, source_of, target_of
from pcircle.walk.visitor import Where

MAX_AT_HAND = 50_000  # inodes that a rank keeps in memory, about 25 MB


class CopiedInode(msgspec.Struct, frozen=True):
    """A complete copy of an inode, made under the name `first`."""

    first: HardLinkedName
    copy: FinishedCopy
    epoch: int = 0
    seal: bytes = b""


class Inode(msgspec.Struct):
    """The state of an inode at its home.

    `first` is the name that is copied first, and `copied` its copy when it is complete. `waiting`
    contains the held names with their tickets. `seen` is the number of names that have arrived, and
    `names` the highest link count among them.
    """

    seen: int = 0
    names: int = 0
    first: HardLinkedName | None = None
    copied: CopiedInode | None = None
    waiting: list[tuple[int, HardLinkedName]] = []

    @property
    def is_at_rest(self) -> bool:
        """Return whether nothing remains to be done until another name arrives."""
        return self.copied is not None and not self.waiting


def registry(most: int = MAX_AT_HAND) -> Registry[Inode]:
    """Return an empty registry of inodes."""
    return Registry(Inode, most, lambda inode: inode.is_at_rest)


_CLAIM_S = 0.01  # time limit of a claim; short, because no part of a claim can be stolen
_BY_DEVICE = 1 << 48
"""Added to a device number that is used as the number of a file system."""


class FoundLink(msgspec.Struct, frozen=True):
    """A name of a hard-linked inode in the source; `names` is the link count."""

    name: bytes
    stamp: Stamp
    names: int
    file_system: int


class _CopiedName(msgspec.Struct, frozen=True):
    """A first name that was copied by the current claim, its copy, and the result of the item."""

    first: FirstName
    copy: FinishedCopy
    done: CopyResult


Record: TypeAlias = "Callable[[Item, CopyResult, CopyResult | None], None]"
"""Records the results of an item and of its children."""


class HardLinks(WorkerPart):
    """Keeps a rank's part of the registry of inodes, and copies or links names."""

    def __init__(self, worker: Worker, beside: HardLinks | None = None) -> None:
        """Share the registry of `beside` (of another thread of the rank) if it is given."""
        super().__init__(worker)
        self._claims: dict[int, list[ClaimedNames]] = {}  # claims of the current item, by home
        self._made: dict[Key, _CopiedName] = {}  # copies of the current claim, not yet published
        self._inodes: Registry[Inode] = registry() if beside is None else beside._inodes
        self._lock: Lock = Lock() if beside is None else beside._lock

    def close(self) -> None:
        """Release the registry."""
        self._inodes.close()

    def linked(self, name: bytes, status: os.stat_result, place: DirectoryIdentity) -> FoundLink:
        """Describe a hard-linked name in a directory."""
        plan = self._plan
        number = place.file_system
        if plan.one_node and (plan.follow or status.st_dev != place.source[0]):
            number = _BY_DEVICE + status.st_dev
        return FoundLink(name, plan.stamp(status), status.st_nlink, number)

    def claim_later(
        self, where: Where, linked: Sequence[FoundLink], *, again: bool = False, ahead: bool = False
    ) -> None:
        """Queue names of a directory to be claimed when the item ends, before others if `ahead`."""
        by_home: dict[tuple[int, int], list[FoundLink]] = {}
        for linked_name in linked:
            number = linked_name.file_system
            home = home_of((number, linked_name.stamp.inode), self._size)
            by_home.setdefault((home, number), []).append(linked_name)
        for (home, number), names in by_home.items():
            claims = self._claims.setdefault(home, [])
            claimed = ClaimedNames(
                where.root,
                where.path,
                replace(where.place, file_system=number),
                b"\0".join(linked_name.name for linked_name in names),
                tuple(linked_name.stamp for linked_name in names),
                tuple(linked_name.names for linked_name in names),
                where.weight,
                again,
                where.slot,
                self._copier.names.expected,
            )
            claims.insert(0 if ahead else len(claims), claimed)

    def send_claims(self, context: Context[Item]) -> None:
        """Send all pending claims, one item for each home."""
        if self._claims:
            claims, self._claims = self._claims, {}
            for home, groups in claims.items():
                context.post(home, [LinkClaim(tuple(groups))])

    def claim(self, item: LinkClaim, context: Context[Item], record: Record) -> CopyResult:
        """Decide at the home whether each name is copied, linked or held, and copy and link names.

        `publish` makes the copies available to other ranks when it is known in which epoch they
        count.
        """
        slots: dict[int, PartialResult] = {}
        until_s = time.monotonic() + _CLAIM_S
        groups = list(item.groups)
        while groups:
            group = groups.pop(0)
            left = self._claim_group(group, until_s, slots, context, record)
            groups = groups if left is None else [left, *groups]
            if groups and time.monotonic() > until_s:
                context.post(self._rank, [LinkClaim(tuple(groups))])
                break
        return CopyResult(slots)

    def _claim_group(
        self,
        group: ClaimedNames,
        until_s: float,
        slots: dict[int, PartialResult],
        context: Context[Item],
        record: Record,
    ) -> ClaimedNames | None:
        """Process the claimed names of one directory; return those that remain when time is up."""
        all_names = group.names.split(b"\0")
        for number, name in enumerate(all_names):
            at_once = not (context.is_stopping() or context.has_idle_workers())
            if at_once and number and time.monotonic() > until_s:
                return replace(
                    group,
                    names=b"\0".join(all_names[number:]),
                    stamps=group.stamps[number:],
                    counts=group.counts[number:],
                )
            where, stamp = (group.root, group.path, name), group.stamps[number]
            one = HardLinkedName(
                *where, group.weight, group.place, stamp, group.again, group.slot, group.expected
            )
            with self._lock:
                due = self._claim(one, group.counts[number], context)
            if due is None:
                continue
            if at_once:
                part = self._do_now(due, context, record)
                known = slots.get(group.slot, NOTHING)
                slots[group.slot] = self._delta.merge(known, part)
            elif isinstance(due, FirstName):
                context.post(self._rank, [due])
            else:
                context.spawn([due])
        return None

    def _do_now(
        self, due: FirstName | HardLinkItem, context: Context[Item], record: Record
    ) -> PartialResult:
        """Copy or link a name; return the result, excluding spawned items."""
        spawned, delta = context.spawned, self._delta
        if self._limits is not None:
            self._limits.begin(due, context.is_stopping)
        if isinstance(due, HardLinkItem):
            linked = self.link(due, context)
            part = delta.take()
            if part is not NOTHING:
                part = replace(part, epoch=due.epoch)
            # If the job is stopping, the link may be incomplete.
            if linked is not None and context.spawned == spawned and not context.is_stopping():
                record(due, CopyResult({due.one.slot: part}), None)
            return part
        # With --verify, a copy cannot be linked to before it is verified.
        done = None if self._waiting is not None else self.one(due.one, context, large=False)
        if done is None:
            context.post(self._rank, [due])
            return NOTHING
        part = delta.take()
        if not context.is_stopping():
            record(due, CopyResult({due.one.slot: part}, done.cause), done)
        copy = copy_of(due.one, done)
        done = replace(done, slots={due.one.slot: part})
        if copy is not None:
            self._made[_key(due.one)] = _CopiedName(due, copy, done)
        else:
            self.first_ended(due, done, context)
        return part

    def publish(self, epoch: int, context: Context[Item]) -> None:
        """Link all waiting names to the copies of this claim, which count in `epoch`."""
        made, self._made = self._made, {}
        for copied in made.values():
            first, done = copied.first, copied.done
            part = replace(done.slots[first.one.slot], epoch=epoch)
            self.first_ended(first, replace(done, slots={first.one.slot: part}), context)

    def _claim(
        self, one: HardLinkedName, names: int, context: Context[Item]
    ) -> FirstName | HardLinkItem | None:
        """Return the item that copies or links a name, or None if the name waits."""
        key, due = _key(one), None
        known = self._inodes.get(key)
        inode = self._inode(one, names) if known is None else known
        inode.seen += not one.again
        # A name that was replaced by a rename is counted in `seen`, but not in later link counts.
        inode.names = max(inode.names, names)
        copied = inode.copied
        if one.again and copied is not None and copied.copy.source != one.stamp:
            # This is another version, or another file with a reused inode number. Both may have
            # more names.
            copied = inode.copied = inode.first = None
            self._counters.lose({HARD_LINKS})
        elif one.again and known is None and copied is None and names > 1:
            self._counters.lose({HARD_LINKS})  # links to names of a forgotten inode are lost
        if inode.first is None:
            inode.first = one
            return FirstName(names, one)
        made = self._made.get(key)
        if copied is not None:
            due = _link(copied, one)
        elif made is not None and made.copy.source == one.stamp:
            first = made.first.one
            seal = self._seal_of(made.done.slots[first.slot])
            due = _link(CopiedInode(first, made.copy, seal=seal), one)
        else:
            context.hold()
            inode.waiting.append((context.ticket, one))
        self._perhaps_forget(key, inode)
        return due

    def first(self, item: FirstName, context: Context[Item]) -> bool:
        """Spawn the copy of a first name; away from its home, forward the item and return False."""
        home = home_of(_key(item.one), self._size)
        if home != self._rank:
            context.post(home, [item])
            return False
        context.spawn([item.one])
        return True

    def first_ended(self, item: FirstName, merged: CopyResult, context: Context[Item]) -> None:
        """Continue with the waiting names after the copy was completed or failed."""
        with self._lock:
            self._end_first(item, merged, context)

    def _end_first(self, item: FirstName, merged: CopyResult, context: Context[Item]) -> None:
        key = _key(item.one)
        inode = require(self._inodes.get(key))
        waiting, inode.waiting = inode.waiting, []
        copy = copy_of(item.one, merged)
        if copy is not None:
            part = merged.slots.get(item.one.slot, NOTHING)
            copied = CopiedInode(inode.first or item.one, copy, part.epoch, self._seal_of(part))
            inode.copied = copied
            for ticket, one in waiting:
                context.resume(ticket, [_link(copied, one)], CopyResult())
        elif waiting:
            ticket, inode.first = waiting[0]
            inode.waiting = waiting[1:]
            context.resume(ticket, [FirstName(item.names, inode.first)], CopyResult())
        else:
            inode.first = None  # the next name to arrive becomes the first
        self._perhaps_forget(key, inode)

    def _inode(self, one: HardLinkedName, names: int) -> Inode:
        """Register an inode with this number of names; an earlier run may have copied it."""
        key, inode = _key(one), Inode()
        earlier = self._earlier
        records = [] if earlier is None else list(earlier.resumed.inodes(*key))
        for known in records:
            # The identities of its directories may have changed since then, so only the mark
            # counts.
            if known.source == one.stamp.version and self._stands(known):
                inode.first = HardLinkedName(
                    known.root, known.path, known.name, 0.0, ANYWHERE, one.stamp
                )
                copy = FinishedCopy(known.made, one.stamp)
                inode.copied = CopiedInode(inode.first, copy, seal=known.seal)
                break
        if records and inode.copied is None and names > 1:
            self._counters.lose({HARD_LINKS})  # links to names of the earlier run are lost
        self._inodes.add(key, inode)
        return inode

    def _stands(self, known: Journaled) -> bool:
        """Return whether the copy of an earlier run still exists, and is signed if required."""
        signer = self._signer
        if not 0 <= known.root < len(self._plan.roots):
            return False
        if signer is not None and not signer.is_digest(known.seal[1:]):
            return False
        try:
            name = self._sides.target_name(known.root, known.path, known.name)
            with self._sides.targets.lease(known.root, known.path) as lease:
                status = os.stat(name, dir_fd=lease.fd, follow_symlinks=False)
        except OSError:
            return False
        return target.mark_of(status) == known.made

    def _perhaps_forget(self, key: Key, inode: Inode) -> None:
        # A name may arrive twice if one source contains another, or if symbolic links are followed.
        alone = len(self._plan.roots) == 1 and not self._plan.follow
        if alone and inode.seen >= inode.names and inode.is_at_rest:
            self._inodes.forget(key)

    def _seal_of(self, part: PartialResult) -> bytes:
        return b"" if self._signer is None else self._signer.seal_of(part)

    # ---- the work --------------------------------------------------------------

    def one(
        self, item: HardLinkedName, context: Context[Item], *, large: bool = True
    ) -> CopyResult | None:
        """Copy one name of an inode; the result identifies the copy and its source.

        Return None, without any change, if the file is large and `large` is false.
        """
        before, skipped = self._counters.copied(), self._counters.skipped
        self._copier.names.expected = item.expected
        try:
            with self._sides.leases(item.root, item.path, item.place) as (source, lease):
                name = self._sides.target_name(item.root, item.path, item.name)
                names = (source.fd, item.name, lease.fd, name)
                self._worker.enter(item.root, item.path, item.place, lease.fd)
                if self._earlier is not None:
                    self._earlier.lift(lease.fd, [name])
                follow = self._plan.follow
                found = os.stat(item.name, dir_fd=source.fd, follow_symlinks=follow)
                if self._copy_name(names, found) == LARGE:
                    if not large:
                        return None
                    where = item.root, item.path, item.name, name, item.weight, item.place
                    more = LargeFileItem(
                        *where, linked=True, slot=item.slot, expected=item.expected
                    )
                    context.spawn([more])
                    return CopyResult()
                copied = self._copied(item, source.fd, found)
                self._sides.sync_holder(item.path, lease)
                made = os.stat(name, dir_fd=lease.fd, follow_symlinks=False)
                stayed = self._counters.skipped != skipped
                is_other_file = stayed and not self._is_copy(found, made, lease.fd)
                if self._signer is not None:
                    self._signer.add_entry_or_root(item.root, item.path, item.name)
        except OSError as error:
            self._counters.take_back(before)
            self._counters.weight += item.weight
            path = join_path(item.path, item.name)
            self._accounts.fail(item.root, path, None, error, context)
            return CopyResult(cause=self._accounts.failure(item.root, path, None, error))
        self._counters.weight += item.weight
        if is_other_file:
            return CopyResult()  # other names cannot be linked to a different file
        if self._waiting is not None:
            copied_again = self._waiting.copied(item, [item.name])
            if copied_again is not None:
                self._waiting.hold([copied_again], context)
        if copied is None:
            return CopyResult()
        return CopyResult(copy=FinishedCopy(target.mark_of(made), copied))

    def _copy_name(self, names: tuple[int, bytes, int, bytes], found: os.stat_result) -> int:
        """Copy an entry of any type except a directory; return the outcome as `Copier.file` does.

        Raises OSError.
        """
        if stat.S_ISREG(found.st_mode):
            return self._copier.file(*names, claimed=True)
        if stat.S_ISLNK(found.st_mode):
            self._copier.link(*names)
        elif self._plan.keep.special:
            self._worker.copy_special(*names)
        else:
            raise Changed("it is no longer a regular file")
        return COPIED

    def _copied(self, one: HardLinkedName, source_fd: int, found: os.stat_result) -> Stamp | None:
        """Return the stamp of the file that was copied under a name, or None if it is unknown."""
        copied: Stamp | None = self._plan.stamp(found)
        opened = self._copier.status if stat.S_ISREG(found.st_mode) else None
        if opened is not None:
            copied = self._plan.stamp(opened)
        elif not stat.S_ISREG(found.st_mode):  # such an entry was not opened
            now = os.stat(one.name, dir_fd=source_fd, follow_symlinks=self._plan.follow)
            copied = copied if self._plan.stamp(now) == copied else None
        if found.st_nlink > 1 and (copied is None or copied.identity != one.stamp.identity):
            self._counters.lose({HARD_LINKS})
        return copied

    def _is_copy(self, source: os.stat_result, old: os.stat_result, target_fd: int) -> bool:
        """Return whether an existing entry counts as a copy to which other names may be linked."""
        plan, keeper = self._plan, self._copier.names.keeper
        if keeper is not None:
            return not keeper.leaves(source, old)
        if not plan.existing.newer:
            return not plan.existing.stays
        if is_copied_special(source, old):
            return True
        return self._copier.context.target.is_alike(source, old, target_fd)

    def link(self, item: HardLinkItem, context: Context[Item]) -> CopyResult | None:
        """Link an additional name to a copy; copy again if the maximum link count is reached.

        Return None if the name was claimed again because it is no longer the copied file. If this
        happens a second time, the name is copied as a separate file.
        """
        one = item.one
        self._copier.names.expected = one.expected
        try:
            with error_context("reach"):
                still = self._still(item, context)
            if not isinstance(still, HardLinkItem):
                return still
            first_name = self._sides.target_name(item.first.root, item.first.path, item.first.name)
            name = self._sides.target_name(one.root, one.path, one.name)
            with (
                error_context("link the copy of"),
                self._sides.targets.lease(
                    item.first.root, item.first.path, target_of(item.first.place)
                ) as first,
                self._sides.targets.lease(one.root, one.path, one.place.target) as lease,
            ):
                self._worker.enter_names(one.root, one.path, made=one.place.made)
                stays = self._stays(one, lease.fd, name)
                names = (first.fd, first_name), (lease.fd, name)
                is_copy = partial(self._has_content, one, *names[0])
                mode = add_hard_link(self._copier.context, *names, item.made, is_copy)
                self._sides.sync_holder(one.path, lease)
                if stays:
                    raise DestinationExistsError
        except DestinationExistsError:
            self._counters.weight += one.weight
            self._skip(one, context)
            return CopyResult()
        except OSError as error:
            if error.errno == errno.EMLINK:
                context.spawn([one])
                return CopyResult()
            self._counters.weight += one.weight
            self._accounts.fail(one.root, join_path(one.path, one.name), None, error, context)
            return CopyResult()
        if self._signer is not None:
            self._signer.seal = item.seal
            self._signer.add_entry_or_root(one.root, one.path, one.name)
        self._counters.weight += one.weight
        self._counters.sized += 1
        if self._acting is not None:
            self._acting.at(one.root, one.path)
            self._acting.done("link", mode, one.name)
        if stat.S_ISREG(mode):
            self._counters.files += 1
        elif stat.S_ISLNK(mode):
            self._counters.links += 1
        else:
            self._counters.special += 1
        return CopyResult()

    def _has_content(self, one: HardLinkedName, directory_fd: int, name: bytes) -> bool:
        """Return whether a target file has the same content as a name in the source.

        Raises OSError.
        """
        with self._sides.sources.lease(one.root, one.path, source_of(one.place)) as source:
            files = (source.fd, one.name), (directory_fd, name)
            return same_content(*files, follow=self._plan.follow)

    def _still(
        self, item: HardLinkItem, context: Context[Item]
    ) -> HardLinkItem | CopyResult | None:
        """Return the item if its name is still the copied file, otherwise the result of `link`."""
        one = item.one
        if one.stamp == item.copied:
            return item
        with self._sides.sources.lease(one.root, one.path, source_of(one.place)) as source:
            follow = self._plan.follow
            status = os.stat(one.name, dir_fd=source.fd, follow_symlinks=follow)
        if self._plan.stamp(status) == item.copied:
            return item
        if one.again:
            self._counters.lose({HARD_LINKS})
            context.spawn([one])
            return CopyResult()
        self.claim_later(one, [self.linked(one.name, status, one.place)], again=True)
        self.send_claims(context)
        return None

    def _skip(self, one: HardLinkedName, context: Context[Item]) -> None:
        """Skip a link because its name exists in the target."""
        try:
            with self._sides.targets.lease(one.root, one.path, one.place.target) as lease:
                self._copier.skip(lease.fd, self._sides.target_name(one.root, one.path, one.name))
        except OSError as error:
            self._accounts.fail(one.root, join_path(one.path, one.name), None, error, context)
            return
        if self._signer is not None:
            self._signer.add_entry_or_root(one.root, one.path, one.name)

    def _stays(self, one: HardLinkedName, target_fd: int, name: bytes) -> bool:
        """Return whether the name counts as skipped, because an existing entry is a copy.

        The entry is nevertheless replaced by a link to the first copy. Raises
        DestinationExistsError for any other entry that must stay.
        """
        plan, keeper = self._plan, self._copier.names.keeper
        if keeper is None and not plan.existing.newer:
            return False  # -n is checked when the link is created
        with self._sides.sources.lease(one.root, one.path, one.place.source) as source:
            names = (source.fd, one.name, target_fd, name)
            found = os.stat(one.name, dir_fd=source.fd, follow_symlinks=plan.follow)
            old = None
            if keeper is None:
                old = self._copier.context.target.stays(*names)
            else:
                with suppress(FileNotFoundError):
                    old = os.stat(name, dir_fd=target_fd, follow_symlinks=False)
        if old is None or (keeper is not None and plan.is_ours(old)):
            return False
        if not self._is_copy(found, old, target_fd):
            raise DestinationExistsError
        return keeper is None


def _key(one: HardLinkedName) -> Key:
    return one.place.file_system, one.stamp.inode


def copy_of(one: HardLinkedName, done: CopyResult) -> FinishedCopy | None:
    """Return the copy of the claimed inode to which names may be linked, or None.

    A new version of the file qualifies; another file does not.
    """
    copy = done.copy
    return copy if copy is not None and copy.source.identity == one.stamp.identity else None


def _link(to: CopiedInode, one: HardLinkedName) -> HardLinkItem:
    """Return the item that links a name to a copy."""
    return HardLinkItem(one, to.first, to.copy.made, to.copy.source, to.epoch, to.seal)
