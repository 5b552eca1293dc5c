"""Hard links: one copy of each inode, and a link for every further name, wherever it is found.

The names of an inode may be anywhere in the tree and come to any rank at any
time. So who copies is decided in one place: the inode's *home*, a rank found
by hashing it. A name of an inode with several is not copied but claimed: its
batch posts a `Claim` to the home. There the first name to come is copied (by
whoever is free), and those that come before that is done are held: their
directories are not complete, but nobody waits for them. When the copy is
made, links to it are spawned for all of them; if it could not be made, the
next name takes its place. When all `st_nlink` names of an inode have come,
the home forgets it, if there is but one source.

An inode is known by a number that the walk gives its file system, because
device numbers differ from node to node. Links to names outside of what is
copied are no links in the copy.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any, NamedTuple

import xxhash

from pcircle.fcp import target
from pcircle.fcp.existing import Existing, Taken
from pcircle.fcp.files import LARGE, Changed, special
from pcircle.fcp.items import (
    ANYWHERE,
    Claim,
    Done,
    First,
    Item,
    Large,
    Links,
    One,
    Place,
    target_of,
)
from pcircle.fcp.journal import Inode as Journaled
from pcircle.fcp.registry import Inode, Key, Registry
from pcircle.fcp.site import Site
from pcircle.fs.directories import join_path
from pcircle.fs.xattrs import FORBIDDING, give_flags, read_flags
from pcircle.runtime import Here

_FLAG_ATTEMPTS = 100
_MIX = 0x9E3779B97F4A7C15


class Linked(NamedTuple):
    """A name in the source of an inode that has several."""

    name: bytes
    inode: int
    names: int


def linked(name: bytes, status: os.stat_result) -> Linked:
    """A name of an inode, which goes by its content's size and time as well.

    Numbers of inodes are given again when files are removed, between two runs
    or within one.
    """
    stamp = struct.pack("<QQq", status.st_ino, status.st_size, status.st_mtime_ns)
    return Linked(name, xxhash.xxh3_64_intdigest(stamp) >> 1, status.st_nlink)


class HardLinks:
    """A rank's part of the registry, and the work on the names that are in it."""

    def __init__(self, site: Site, beside: HardLinks | None = None) -> None:
        """With `beside` the registry is that one's: it is of the same rank."""
        self._site = site
        self._inodes: Registry = Registry() if beside is None else beside._inodes
        self._lock: Any = Lock() if beside is None else beside._lock

    def close(self) -> None:
        """Give the space back."""
        self._inodes.close()

    def home(self, file_system: int, inode: int) -> int:
        """The rank that keeps an inode."""
        return ((file_system * 31 + inode) * _MIX >> 32) % self._site.size

    def post(
        self,
        place: tuple[int, bytes, Place],
        linked: Sequence[Linked],
        weight: float,
        here: Here[Item],
    ) -> None:
        """Claim names of one directory, given as root, path and identities."""
        root, path, where = place
        by_home: dict[int, list[Linked]] = {}
        for each in linked:
            by_home.setdefault(self.home(where.file_system, each.inode), []).append(each)
        for home, some in by_home.items():
            names = b"\0".join(each.name for each in some)
            inodes = tuple(each.inode for each in some)
            counts = tuple(each.names for each in some)
            here.post(home, [Claim(root, path, where, names, inodes, counts, weight)])

    def claim(self, item: Claim, here: Here[Item]) -> Done:
        """At home: decide for each name whether it is copied, linked, or waits."""
        for name, number, names in zip(
            item.names.split(b"\0"), item.inodes, item.counts, strict=True
        ):
            key = (item.place.file_system, number)
            one = One(item.root, item.path, name, item.weight, item.place)
            with self._lock:
                self._claim(key, one, names, here)
        return Done()

    def _claim(self, key: Key, one: One, names: int, here: Here[Item]) -> None:
        inode = self._inodes.get(key) or self._inode(key, one)
        inode.seen += 1
        if inode.first is None:
            inode.first = one
            here.post(self._site.rank, [First(key[1], names, one)])
        elif inode.made is not None:
            here.spawn([self._link(inode, one)])
        else:
            here.hold()
            inode.waiting.append((here.ticket, one))
        self._perhaps_forget(key, inode, names)

    def first(self, item: First, here: Here[Item]) -> bool:
        """Have the copy made that the other names will be links to; false if not at home."""
        home = self.home(item.one.place.file_system, item.inode)
        if home != self._site.rank:
            here.post(home, [item])
            return False
        here.spawn([item.one])
        return True

    def first_ended(self, item: First, merged: Done, here: Here[Item]) -> None:
        """The copy is made, or could not be: go on with the names that wait for it."""
        with self._lock:
            self._go_on(item, merged, here)

    def _go_on(self, item: First, merged: Done, here: Here[Item]) -> None:
        key = (item.one.place.file_system, item.inode)
        inode = self._inodes.get(key)
        assert inode is not None
        waiting, inode.waiting = inode.waiting, []
        if merged.made is not None:
            inode.made, inode.epoch = merged.made, merged.epoch
            if self._site.signer is not None:
                inode.seal = self._site.signer.seal_of(merged)
            for ticket, one in waiting:
                here.resume(ticket, [self._link(inode, one)], Done())
        elif waiting:
            ticket, inode.first = waiting[0]
            inode.waiting = waiting[1:]
            here.resume(ticket, [First(item.inode, item.names, inode.first)], Done())
        else:
            inode.first = None  # whoever comes next is the first
        self._perhaps_forget(key, inode, item.names)

    def _inode(self, key: Key, one: One) -> Inode:
        """A new inode, or one that an earlier run has made a copy of."""
        inode = Inode(key[1])
        resumed = self._site.resumed
        for known in () if resumed is None else resumed.inodes(*key):
            # How its directories are known may have changed since: its mark alone is held to.
            if self._stands(known):
                inode.first = One(known.root, known.path, known.name, 0.0, ANYWHERE)
                inode.made, inode.seal = known.made, known.seal
                break
        self._inodes.add(key, inode)
        return inode

    def _stands(self, known: Journaled) -> bool:
        """Whether the copy that an earlier run has made is there, and signed if it must be."""
        signer = self._site.signer
        if not 0 <= known.root < len(self._site.plan.roots):
            return False
        if signer is not None and not signer.is_digest(known.seal[1:]):
            return False
        try:
            name = self._site.target_name(known.root, known.path, known.name)
            with self._site.targets.lease(known.root, known.path) as lease:
                status = os.stat(name, dir_fd=lease.fd, follow_symlinks=False)
        except OSError:
            return False
        return target.mark_of(status) == known.made

    def _perhaps_forget(self, key: Key, inode: Inode, names: int) -> None:
        # Among several sources one may hold another, and a name come twice; so it may
        # and where links are followed.
        alone = len(self._site.plan.roots) == 1 and not self._site.plan.follow
        if alone and inode.seen >= names and inode.made is not None and not inode.waiting:
            self._inodes.forget(key)

    def _link(self, inode: Inode, one: One) -> Links:
        assert inode.first is not None
        assert inode.made is not None
        return Links(one, inode.first, inode.made, inode.epoch, inode.number, inode.seal)

    # ---- the work --------------------------------------------------------------

    def one(self, item: One, here: Here[Item]) -> Done:
        """Copy a name of an inode as such; the result says which inode its copy is."""
        site = self._site
        site.copier.doing = "reach"
        before, skipped = site.counters.copied(), site.counters.skipped
        try:
            with (
                site.sources.lease(item.root, item.path, item.place.source) as source,
                site.targets.lease(item.root, item.path, item.place.target) as lease,
            ):
                name = site.target_name(item.root, item.path, item.name)
                names = (source.fd, item.name, lease.fd, name)
                site.extras.enter(lease.fd)
                site.lift(lease.fd, [name])
                follow = site.plan.follow
                mode = os.stat(item.name, dir_fd=source.fd, follow_symlinks=follow).st_mode
                if stat.S_ISLNK(mode):
                    site.copier.link(*names)
                elif not stat.S_ISREG(mode):
                    if not site.plan.keep.special:
                        raise special()
                    site.special(*names)
                elif site.copier.file(*names, claimed=True) == LARGE:
                    where = item.root, item.path, item.name, name
                    here.spawn([Large(*where, item.weight, item.place, linked=True)])
                    return Done()
                site.sync_holder(item.path, lease)
                made = target.mark_of(os.stat(name, dir_fd=lease.fd, follow_symlinks=False))
                if site.signer is not None:
                    site.signer.add_at(item.root, item.path, item.name)
        except OSError as error:
            site.counters.take_back(before)
            site.counters.weight += item.weight
            path = join_path(item.path, item.name)
            site.fail(item.root, path, None, error, here)
            return Done(site.failure(item.root, path, None, error))
        site.counters.weight += item.weight
        others = site.plan.existing.stays or site.plan.existing.newer
        if others and site.counters.skipped != skipped:
            return Done()  # somebody else's file, which is nothing to link to
        if site.waiting is not None:
            site.waiting.names((item.root, item.path, item.place), [item.name], (), b"", here)
        return Done(made=made)

    def link(self, item: Links, here: Here[Item]) -> Done:
        """Make one more name for a copy; where it can have no more, copy once more."""
        site, one = self._site, item.one
        site.copier.doing = "link the copy of"
        try:
            first_name = site.target_name(item.first.root, item.first.path, item.first.name)
            name = site.target_name(one.root, one.path, one.name)
            with (
                site.targets.lease(
                    item.first.root, item.first.path, target_of(item.first.place)
                ) as first,
                site.targets.lease(one.root, one.path, one.place.target) as lease,
            ):
                self._refuse_taken(one, lease.fd, name)
                names = (first.fd, first_name), (lease.fd, name)
                mode = self._make_link_anyway(*names, item.made)
                site.sync_holder(one.path, lease)
        except Taken:
            site.counters.weight += one.weight
            self._skip(one, here)
            return Done()
        except OSError as error:
            if error.errno == errno.EMLINK:
                here.spawn([one])
                return Done()
            site.counters.weight += one.weight
            site.fail(one.root, join_path(one.path, one.name), None, error, here)
            return Done()
        if site.signer is not None:
            site.signer.seal = item.seal
            site.signer.add_at(one.root, one.path, one.name)
        site.counters.weight += one.weight
        site.counters.sized += 1
        if stat.S_ISREG(mode):
            site.counters.files += 1
        elif stat.S_ISLNK(mode):
            site.counters.links += 1
        else:
            site.counters.special += 1
        return Done()

    def _skip(self, one: One, here: Here[Item]) -> None:
        """Something stands in a link's place, and stays."""
        site = self._site
        try:
            with site.targets.lease(one.root, one.path, one.place.target) as lease:
                site.copier.skip(lease.fd, site.target_name(one.root, one.path, one.name))
        except OSError as error:
            site.fail(one.root, join_path(one.path, one.name), None, error, here)
            return
        if site.signer is not None:
            site.signer.add_at(one.root, one.path, one.name)

    def _refuse_taken(self, one: One, target_fd: int, name: bytes) -> None:
        """Taken if what has a link's name is newer than the source, and that matters."""
        site = self._site
        if site.plan.existing.newer:
            with site.sources.lease(one.root, one.path, one.place.source) as source:
                if target.stays(site.plan, source.fd, one.name, target_fd, name) is not None:
                    raise Taken

    def _make_link_anyway(self, first: tuple[int, bytes], new: tuple[int, bytes], made: int) -> int:
        """As `_make_link`, also of a file whose inode flags forbid it: these are lifted for it."""
        try:
            return self._make_link(first, new, made)
        except PermissionError as error:
            if error.errno != errno.EPERM or not self._site.plan.keep.flags:
                raise
            # A device must not be opened.
            if not stat.S_ISREG(os.stat(first[1], dir_fd=first[0], follow_symlinks=False).st_mode):
                raise
        for attempt in range(_FLAG_ATTEMPTS):
            with _lifted_flags(*first, made):
                try:
                    return self._make_link(first, new, made)
                except PermissionError:  # another rank has just put the flags back
                    if attempt == _FLAG_ATTEMPTS - 1:
                        raise
        raise AssertionError  # the last attempt returned or raised

    def _make_link(self, first: tuple[int, bytes], new: tuple[int, bytes], made: int) -> int:
        """Link, and return the mode of what is linked."""
        (first_fd, first_name), (fd, name) = first, new
        written = name
        try:
            _link(first_fd, first_name, fd, name)
        except FileExistsError:
            existing = self._site.plan.existing
            old = os.stat(name, dir_fd=fd, follow_symlinks=False)
            if self._site.plan.is_ours(old):
                existing = Existing()
            if existing.stays:
                raise Taken from None
            if target.mark_of(old) == made:
                if existing.decides:
                    raise Taken from None
                return old.st_mode  # of an earlier run
            first_status = os.stat(first_name, dir_fd=first_fd, follow_symlinks=False)
            if not _is_same_special(first_status, old):
                target.replaceable(fd, name)
            written = self._site.copier.names.next()
            _link(first_fd, first_name, fd, written)
        except OSError as error:
            target.stop_if_full(error, fd, self._site.copier.names)
            raise
        try:
            status = os.stat(written, dir_fd=fd, follow_symlinks=False)
            if target.mark_of(status) != made:
                raise Changed("its copy was replaced while it was made")
            if written != name:
                os.rename(written, name, src_dir_fd=fd, dst_dir_fd=fd)
        except OSError:
            target.discard(written, fd)
            raise
        return status.st_mode


def _is_same_special(a: os.stat_result, b: os.stat_result) -> bool:
    """Whether two files are both the same FIFO, socket or device but for their names."""
    kind = stat.S_IFMT(a.st_mode)
    plain = stat.S_ISREG(a.st_mode) or stat.S_ISLNK(a.st_mode) or stat.S_ISDIR(a.st_mode)
    return not plain and (kind, a.st_rdev) == (stat.S_IFMT(b.st_mode), b.st_rdev)


@contextmanager
def _lifted_flags(directory_fd: int, name: bytes, made: int) -> Iterator[None]:
    """Take the flags that forbid links from a finished copy, and give them back."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    fd = os.open(name, flags, dir_fd=directory_fd)
    try:
        if target.mark_of(os.fstat(fd)) != made:
            raise Changed("its copy was replaced while it was made")
        present = read_flags(fd)
        lifted = present & FORBIDDING
        if lifted:
            give_flags(fd, present & ~FORBIDDING)
        try:
            yield
        finally:
            # What others have lifted meanwhile they give back themselves.
            if lifted:
                give_flags(fd, read_flags(fd) | lifted)
    finally:
        os.close(fd)


def _link(first_fd: int, first_name: bytes, fd: int, name: bytes) -> None:
    os.link(first_name, name, src_dir_fd=first_fd, dst_dir_fd=fd, follow_symlinks=False)
