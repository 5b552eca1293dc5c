"""Directories: made, scanned, and finished when all that is in them is done.

A directory is scanned once. Its subdirectories become items at once; its
files are copied on the spot if they are few, else they become batches that
others can steal.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pcircle.checkpoint.resumed import Partial, Standing, remaining, still, without_checkpoint
from pcircle.copying import target
from pcircle.copying.extras import path_of
from pcircle.fcp.batches import Batches
from pcircle.fcp.choose import chosen_blocks, is_left_empty
from pcircle.fcp.counters import totals
from pcircle.fcp.follow import below, refuse_cycle
from pcircle.fcp.items import Batch, Done, Item, Place, Portion, Tree, pack, unpack
from pcircle.fcp.site import Site
from pcircle.fcp.takeup import open_again, sweep, sweep_all
from pcircle.fs.choosing import choosing
from pcircle.fs.directories import HOLDER, Lease, join_path
from pcircle.fs.listed import Listed
from pcircle.fs.lists import Lists, Picked, groups
from pcircle.fs.metadata import settle_file, settle_searched
from pcircle.fs.naming import sync_directory
from pcircle.fs.scan import Block
from pcircle.fs.trouble import LOOP, Changed, Trouble
from pcircle.fs.xattrs import Held
from pcircle.guards import require
from pcircle.runtime import Here

_FEW_NAMES = 64  # copied by the item that scanned them
BATCH_NAMES = 512


class Directory(NamedTuple):
    """A directory between its scan and its completion."""

    source: os.stat_result
    identity: tuple[int, int]
    created: bool
    held: Held | None = None
    begun: bool = False  # by an earlier run: something in it that was not finished
    finished_ns: int = 0  # when an earlier run changed it last, which has done it
    layout: bytes | None = None  # that it hands down
    done: Done = Done()  # what its own item has done for it


class Trees:
    """The work on directories of one rank."""

    def __init__(self, site: Site, batches: Batches, lists: Lists | None) -> None:
        self._site = site
        self._batches = batches
        self._lists = lists  # on rank 0, if anything is listed
        self._blocks = chosen_blocks(site.plan)
        self._choose = choosing(site.plan.rules)

    def begin(self, item: Tree, here: Here[Item]) -> Directory | Done:
        """Make and scan a directory; it is `Done` at once if nothing had to be spawned for it."""
        self._site.counters.scans_done += 1
        self._site.counters.sized += 1
        doing = "open directory"
        try:
            with self._open_source(item) as source:
                status = os.fstat(source.fd)
                doing = "create the copy of directory"
                standing = self._site.standing(item.root, item.path)
                created = self._make_directory(item, status)
                if not item.path:
                    self._site.leave_mark(item.root)
                with self._site.targets.lease(item.root, item.path) as lease:
                    own = self._between(source.fd, status, lease, created)
                    partial = None
                    if not created:
                        own, partial = self._take_up(item, lease, own, standing)
                    if not created and self._is_made(item):
                        own = own._replace(created=True)
                    doing = "read directory"
                    place = self._place(item, source, lease, made=created)
                    self._descend(item, place, source.fd, lease.fd, here, partial)
        except OSError as error:
            self._site.counters.weight += 0.0 if here.spawned else item.weight
            self._site.fail(item.root, item.path, doing, error, here, sized=True)
            return Done()
        signer = self._site.signer
        if signer is not None:
            own = own._replace(done=signer.take(Done()))
        if here.spawned:
            return own
        return self.complete(item, own, Done(), here)

    def _between(
        self, source_fd: int, status: os.stat_result, lease: Lease, created: bool
    ) -> Directory:
        extras = self._site.extras
        layout = self._site.copier.layouts.of_directory(source_fd)
        if not extras.any:
            return Directory(status, lease.identity, created, layout=layout)
        inherited = created and extras.made_directory(lease.fd)
        held = extras.of_directory(source_fd, alone=inherited or not created)
        return Directory(status, lease.identity, created, held, layout=layout)

    def _open_source(self, item: Tree) -> Lease:
        """Lease the source directory, from the very directory that it was found in."""
        if item.above is None:
            return self._site.sources.lease(item.root, item.path, readable=True)
        parent = item.path.rpartition(b"/")[0]
        with self._site.sources.lease(item.root, parent, item.above.source):
            lease = self._site.sources.lease(item.root, item.path, readable=True)
        if lease.identity == item.above.copy:
            with lease:
                raise Trouble(LOOP, "it is the copy that is being made")
        if self._site.plan.follow:
            try:
                refuse_cycle(item, lease, self._site.sources, self._site.targets)
            except OSError:
                with lease:
                    raise
        return lease

    def _file_system(self, item: Tree, source: Lease) -> int:
        """The walk's number of the file system that a directory is on."""
        if item.above is None:
            return self._site.plan.roots[item.root].file_system
        if not self._site.plan.keep.links:
            return 0  # nobody asks
        parent = item.path.rpartition(b"/")[0]
        with self._site.sources.lease(item.root, parent, item.above.source) as above:
            if os.fstat(above.fd).st_dev == os.fstat(source.fd).st_dev:
                return item.above.file_system
        # A mount point: its path is the same on every node, its device number may not be.
        from zlib import crc32

        return crc32(b"%d %s" % (item.root, item.path))

    def _make_directory(self, item: Tree, status: os.stat_result) -> bool:
        """Make the target directory; False if something with its name was there."""
        root = self._site.plan.roots[item.root]
        if item.path:
            above, _, name = item.path.rpartition(b"/")
        elif root.target_name:
            above, name = HOLDER, root.target_name
        else:
            return False
        # As with cp, the umask is for writing of others also where a default list is handed down.
        mode = status.st_mode & 0o1777 & ~(self._site.plan.umask & 0o022) | 0o700
        if self._site.plan.keep.mode:
            mode = 0o700
        known = None if item.above is None else item.above.target
        with self._site.targets.lease(item.root, above, known) as holder:
            self._announce(item, status, name, holder.fd)
            try:
                os.mkdir(name, mode, dir_fd=holder.fd)
            except FileExistsError:
                made = item.above is not None and item.above.made
                self._site.enter_names(item.root, above, made=made)
                self._site.copier.names.collisions.check(holder.fd, name)
                if self._site.resumed is not None and self._is_ours(holder.fd, name):
                    open_again(holder.fd, name, flags=self._site.plan.keep.flags)
                return False
            except OSError as error:
                target.stop_if_full(error, holder.fd, self._site.copier.names)
                raise
        return True

    def _place(self, item: Tree, source: Lease, lease: Lease, *, made: bool) -> Place:
        number = self._file_system(item, source)
        copy, epoch = lease.identity, self._site.epoch
        if item.above is not None:
            copy, epoch = item.above.copy, max(epoch, item.above.epoch)
        return Place(source.identity, lease.identity, copy, number, epoch, made)

    def _is_ours(self, holder_fd: int, name: bytes) -> bool:
        """Whether a directory that is there was changed by this job, rather than by others."""
        status = os.stat(name, dir_fd=holder_fd, follow_symlinks=False)
        return self._site.plan.is_ours(status)

    def _is_made(self, item: Tree) -> bool:
        """Whether an earlier run has made the directory, and should it matter."""
        resumed = self._site.resumed
        return resumed is not None and resumed.is_made(item.root, item.path)

    def _take_up(
        self, item: Tree, lease: Lease, own: Directory, standing: Standing
    ) -> tuple[Directory, Partial | None]:
        """Of a directory that an earlier run has begun: what is done of it, the litter removed."""
        resumed = self._site.resumed
        if resumed is None:
            return own, None
        if standing.record is not None:  # all that it had by then is there
            # What could not be kept of it must be counted again.
            if not totals(standing.record.counts).not_kept:
                own = own._replace(finished_ns=standing.record.changed)
            return own, self._site.partial(item.root, item.path)
        if lease.searched:
            return own, None  # nobody can tell what is there
        begun, listing = sweep(resumed, item.root, item.path, lease.fd)
        own = own._replace(begun=begun)
        if standing.spoiled:
            return own, None
        return own, self._site.partial(item.root, item.path, listing)

    def _announce(self, item: Tree, status: os.stat_result, name: bytes, holder_fd: int) -> None:
        """Have it known to a later run that a directory was made by us, should it matter."""
        recorder = self._site.recorder
        if recorder is None or not _missing(status, self._site.plan.umask):
            return
        try:
            os.stat(name, dir_fd=holder_fd, follow_symlinks=False)
        except FileNotFoundError:
            recorder.making(item.root, item.path)

    def _descend(
        self,
        item: Tree,
        place: Place,
        source_fd: int,
        target_fd: int,
        here: Here[Item],
        partial: Partial | None,
    ) -> None:
        """Scan the directory: spawn what is below, copy or spawn what is in it."""
        weight = item.weight
        if is_left_empty(self._site.plan, item, source_fd, self._site.sources):
            self._site.counters.weight += weight
            return
        if item.only is not None and item.only.is_range:
            self._divide(item, item.only, place, here, partial)
            return
        for block in self._blocks_of(item, source_fd, partial):
            # Of a directory whose end is not in sight nobody knows the share of a name.
            share = weight if block.last else weight / 2
            weight -= share
            self._site.counters.found += len(block)
            if not block:
                self._site.counters.weight += share
                continue
            each = share / len(block)
            self._spawn_directories(item, block, place, each, here)
            if not self._site.plan.keep.special:
                self._skip_specials(item, block, each, source_fd, here)
            names = len(block) - len(block.directories)
            if block.last and names <= _FEW_NAMES:
                self._copy(item, block, each, place, (source_fd, target_fd), here)
            else:
                self._spawn_batches(item, block, each, place, here)
            if here.stopping:
                return

    def _copy(
        self,
        item: Tree,
        block: Block,
        each: float,
        place: Place,
        directories: tuple[int, int],
        here: Here[Item],
    ) -> None:
        some = (block.files, block.links, block.specials)
        batch = self._batch_of(item, some, each, place)
        self._batches.names(batch, *directories, here)

    def _divide(
        self, item: Tree, only: Listed, place: Place, here: Here[Item], partial: Partial | None
    ) -> None:
        """Of a directory of which much is listed: spawn what is below, and what is in it."""
        site = self._site
        keys = None if site.recorder is None else site.recorder.keys
        if partial is not None:
            site.counters.resume(partial.counts)
        line = below(item, place) if site.plan.follow else b""
        bare = Tree(item.root, item.path, 0.0, item.above, None, item.ancestors)
        for weight, part in require(self._lists).shares(only, item.weight):
            if here.stopping:
                return
            if isinstance(part, bytes):
                text = part if partial is None or keys is None else still(part, partial, keys)
                here.spawn([Portion(bare, text, weight, place)])
                continue
            block = Block()
            block.add_directory(part.name)
            self._choose(block, item.path)
            if not block:
                site.counters.weight += weight
                continue
            site.counters.found += 1
            site.counters.scans_due += 1
            path = join_path(item.path, part.name)
            here.post(site.rank, [Tree(item.root, path, weight, place, part.listed(), line)])

    def portion(self, item: Portion, here: Here[Item]) -> Done:
        """Copy what a part of a list names in one directory."""
        tree, place = item.tree, item.place
        try:
            with (
                self._site.sources.lease(tree.root, tree.path, place.source) as source,
                self._site.targets.lease(tree.root, tree.path, place.target) as lease,
            ):
                block = self._picked(tree, source.fd, item.text)
                self._site.counters.found += len(block)
                each = item.weight / max(1, len(block))
                self._spawn_directories(tree, block, place, each, here)
                if not self._site.plan.keep.special:
                    self._skip_specials(tree, block, each, source.fd, here)
                self._copy(tree, block, each, place, (source.fd, lease.fd), here)
        except OSError as error:
            self._site.counters.weight += item.weight
            for group in groups(item.text, 0, len(item.text)):
                self._site.counters.found += 1
                self._site.fail(tree.root, join_path(tree.path, group.name), "reach", error, here)
        return Done()

    def _picked(self, item: Tree, source_fd: int, text: bytes) -> Picked:
        block = Picked(source_fd, text, follow=self._site.plan.follow)
        self._choose(block, item.path)
        return block

    def _blocks_of(self, item: Tree, source_fd: int, partial: Partial | None) -> Iterable[Block]:
        """The names that are to be copied, in blocks."""
        blocks: Iterable[Block]
        if item.only is not None:
            blocks = [self._picked(item, source_fd, item.only.text)]
        else:
            blocks = self._blocks(item.path, source_fd)
        if self._site.plan.journal is not None:
            blocks = without_checkpoint(blocks, source_fd, self._site.plan.journal.path)
        if partial is None or self._site.recorder is None:
            return blocks
        self._site.counters.resume(partial.counts)
        return remaining(blocks, partial, self._site.recorder.keys)

    def _spawn_directories(
        self, item: Tree, block: Block, place: Place, each: float, here: Here[Item]
    ) -> None:
        if not block.directories:
            return
        self._site.counters.scans_due += len(block.directories)
        root, path = item.root, item.path
        only = block.below if isinstance(block, Picked) else {}
        names = zip(unpack(pack(block.directories)), block.directories, strict=True)
        line = below(item, place) if self._site.plan.follow else b""
        here.spawn(
            [
                Tree(root, join_path(path, name), each, place, only.get(text), line)
                for name, text in names
            ]
        )

    def _batch_of(
        self,
        item: Tree,
        names: tuple[Sequence[str], Sequence[str], Sequence[str]],
        each: float,
        place: Place,
    ) -> Batch:
        """A batch of files, links and special files."""
        files, links, specials = map(pack, names)
        return Batch(item.root, item.path, files, links, each, place, specials)

    def _spawn_batches(
        self, item: Tree, block: Block, each: float, place: Place, here: Here[Item]
    ) -> None:
        batches: list[Item] = []
        files, links, specials = block.files, block.links, block.specials
        for start in range(0, len(files), BATCH_NAMES):
            some = files[start : start + BATCH_NAMES]
            batches.append(self._batch_of(item, (some, (), ()), each, place))
        for start in range(0, len(links), BATCH_NAMES):
            some = links[start : start + BATCH_NAMES]
            batches.append(self._batch_of(item, ((), some, ()), each, place))
        for start in range(0, len(specials), BATCH_NAMES):
            some = specials[start : start + BATCH_NAMES]
            batches.append(self._batch_of(item, ((), (), some), each, place))
        here.spawn(batches)

    def _skip_specials(
        self, item: Tree, block: Block, each: float, source_fd: int, here: Here[Item]
    ) -> None:
        for name in unpack(pack(block.specials)):
            self._site.counters.weight += each
            try:
                self._site.skipper.skip(item.root, item.path, name, source_fd, here)
            except OSError as error:
                self._site.fail(item.root, join_path(item.path, name), "copy", error, here)
        block.specials.clear()

    def complete(self, item: Tree, own: Directory, merged: Done, here: Here[Item]) -> Done:
        """All that is below is done: the directory gets its attributes."""
        self._site.copier.doing = "set the attributes of the copy of"
        try:
            self._finish(item, own)
        except OSError as error:
            self._site.fail(item.root, item.path, None, error, here, sized=True)
            return Done()
        done = Done()
        signer = self._site.signer
        if signer is not None:
            try:
                done = signer.directory(
                    item.root, item.path, done, signer.gather(done, own.done, merged)
                )
            except ValueError as twice:
                why = Changed(str(twice))
                self._site.fail(item.root, item.path, "sign directory", why, here, sized=True)
                return done
        self._site.counters.directories += 1
        return done

    def _finish(self, item: Tree, own: Directory) -> None:
        """Give a directory its attributes, and have it on disk if that is wanted. OSError."""
        keep = self._site.plan.keep
        missing = _missing(own.source, self._site.plan.umask) if own.created else 0
        sync = self._site.plan.existing.sync
        own_work = keep.any or missing or sync or own.begun or own.layout is not None
        if not (own_work or own.finished_ns):
            return
        with self._site.targets.lease(item.root, item.path, own.identity) as lease:
            if own.finished_ns and os.fstat(lease.fd).st_ctime_ns == own.finished_ns:
                self._site.counters.resumed += 1
                return  # an earlier run has finished it, and nothing was changed since
            if own.begun and self._site.resumed is not None:
                sweep_all(self._site.resumed, lease.fd)
            if own.layout is not None:
                self._site.copier.layouts.give_directory(lease, own.layout)
            self._settle(lease, own)
            if missing and not keep.mode:
                os.fchmod(lease.fd, stat.S_IMODE(os.fstat(lease.fd).st_mode) & ~missing)
            self._site.extras.protect(lease.fd, own.held)
            if sync:
                self._site.copier.doing = "bring to disk the copy of"
                sync_directory(lease.fd, searched=lease.searched)
                self._sync_root(item, own)

    def _settle(self, lease: Lease, own: Directory) -> None:
        keep = self._site.plan.keep
        if lease.searched and own.held is None:
            settle_searched(lease.fd, own.source, keep)
            return
        target = path_of(lease.fd) if lease.searched else lease.fd
        refused = settle_file(target, own.source, keep, own.held)
        if refused:
            try:
                self._site.extras.account(refused, lease.fd)
            finally:
                if keep.timestamps:  # a probe for room has moved them
                    times = own.source.st_atime_ns, own.source.st_mtime_ns
                    os.utime(target, ns=times)

    def _sync_root(self, item: Tree, own: Directory) -> None:
        """Bring to disk the name of a root that was made."""
        if not item.path and own.created:
            with self._site.targets.lease(item.root, HOLDER) as holder:
                self._site.sync_holder(HOLDER, holder)


def _missing(source: os.stat_result, umask: int) -> int:
    """The bits of its owner that a directory is made with, but is not to have in the end."""
    return 0o700 & (~source.st_mode | umask)
