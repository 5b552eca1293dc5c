"""The copy as a task: how each kind of item is done, and what completes it.

A directory is scanned once. Its subdirectories become items at once; its
files are copied on the spot if they are few, else they become batches that
others can steal. A batch or a chunk that takes longer than a fraction of a
second hands the rest back to the queue, so items are sized by time and a slow
file system needs no setting. A directory gets its attributes when its last
child is done, wherever that was; a large file its name.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from pcircle.circle import Sums
from pcircle.errors import NoSpace
from pcircle.fcp import target
from pcircle.fcp.counters import Counters
from pcircle.fcp.files import Changed, Copier
from pcircle.fcp.items import (
    Batch,
    Chunk,
    Done,
    Failure,
    Item,
    Large,
    Notice,
    Place,
    Remark,
    Singles,
    Tree,
    pack,
    unpack,
)
from pcircle.fcp.plan import CHUNK_UNIT_BYTES, DIRECTORY, FILE, LINK, Plan, open_sides
from pcircle.fcp.scan import Block, blocks
from pcircle.fcp.target import Creation
from pcircle.fs.data import may_have_holes
from pcircle.fs.directories import HOLDER, Lease, join_path
from pcircle.fs.metadata import settle_file, settle_searched
from pcircle.runtime import Here, Task
from pcircle.ui.names import show

_FEW_NAMES = 64  # copied by the item that scanned them
_BATCH_NAMES = 512
_BATCH_S = 0.1
_SMALLEST_CHUNK_BYTES = 16 << 20
_LARGEST_CHUNK_BYTES = 1 << 30
_CHUNKS_PER_RANK = 4


class _Directory(NamedTuple):
    """A directory between its scan and its completion."""

    source: os.stat_result
    identity: tuple[int, int]
    created: bool


class _File(NamedTuple):
    """A large file between its first chunk and its last."""

    source: os.stat_result
    creation: Creation
    identity: tuple[int, int]


class CopyTask(Task[Item, Done]):
    """One rank's part of a copy."""

    notice_type = Notice

    def __init__(self, plan: Plan, rank: int, size: int) -> None:
        self.counters = Counters()
        self._plan = plan
        self._size = size
        self._sources, self._targets = open_sides(plan)
        self._copier = Copier(plan, self.counters, rank)

    # ---- the task --------------------------------------------------------------

    def seed(self) -> Iterator[Item]:
        roots = self._plan.roots
        weight = 1.0 / len(roots)
        self.counters.found += len(roots)
        singles = 0
        for number, root in enumerate(roots):
            if root.kind == DIRECTORY:
                self.counters.scans_due += 1
                yield Tree(number, b"", weight)
            else:
                singles += 1
            here_ends = root.kind == DIRECTORY or number == len(roots) - 1
            if singles and (here_ends or singles == _BATCH_NAMES):
                end = number if root.kind == DIRECTORY else number + 1
                yield Singles(end - singles, end, weight)
                singles = 0

    def process(self, item: Item, here: Here[Item]) -> Any:
        try:
            if isinstance(item, Batch):
                return self._batch(item, here)
            if isinstance(item, Tree):
                return self._tree(item, here)
            if isinstance(item, Chunk):
                return self._chunk(item, here)
            if isinstance(item, Large):
                return self._large(item, here)
            return self._singles(item, here)
        except NoSpace as error:
            number = item.first if isinstance(item, Singles) else item.root
            shown = show(self._plan.roots[number].target_shown)
            raise NoSpace(f"cannot write any more to '{shown}': {error}") from error

    def join(self, item: Item, own: Any, merged: Done, here: Here[Item]) -> Done:
        if isinstance(own, _Directory):
            assert isinstance(item, Tree)
            self._complete_directory(item, own, here)
            return Done()
        if isinstance(own, _File):
            assert isinstance(item, Large)
            self._complete_file(item, own, merged.cause, here)
            return Done()
        assert isinstance(own, Done)
        return self.merge(own, merged)

    def merge(self, a: Done, b: Done) -> Done:
        return b if a.cause is None else a

    def abandon(self, item: Item, own: Any) -> None:
        if isinstance(own, _File) and isinstance(item, Large):
            try:
                with self._targets.lease(item.root, item.path) as lease:
                    target.discard(own.creation.written, lease.fd)
            except OSError:
                return  # the directory is gone, and the file with it

    def measure(self) -> Sums:
        return self.counters.sums()

    # ---- directories -----------------------------------------------------------

    def _tree(self, item: Tree, here: Here[Item]) -> Any:
        self.counters.scans_done += 1
        self.counters.sized += 1
        doing = "open directory"
        try:
            with self._open_source(item) as source:
                status = os.fstat(source.fd)
                doing = "create the copy of directory"
                created = self._make_directory(item, status)
                with self._targets.lease(item.root, item.path) as lease:
                    own = _Directory(status, lease.identity, created)
                    doing = "read directory"
                    copy = lease.identity if item.above is None else item.above.copy
                    place = Place(source.identity, lease.identity, copy)
                    self._descend(item, place, source.fd, lease.fd, here)
        except OSError as error:
            self.counters.weight += 0.0 if here.spawned else item.weight
            self._fail(item.root, item.path, doing, error, here, sized=True)
            return Done()
        if here.spawned:
            return own
        self._complete_directory(item, own, here)
        return Done()

    def _open_source(self, item: Tree) -> Lease:
        """Lease the source directory, from the very directory that it was found in."""
        if item.above is None:
            return self._sources.lease(item.root, item.path, readable=True)
        parent = item.path.rpartition(b"/")[0]
        with self._sources.lease(item.root, parent, item.above.source):
            lease = self._sources.lease(item.root, item.path, readable=True)
        if lease.identity == item.above.copy:
            with lease:
                raise OSError(errno.ELOOP, "it is the copy that is being made")
        return lease

    def _make_directory(self, item: Tree, status: os.stat_result) -> bool:
        """Make the target directory; False if something with its name was there."""
        root = self._plan.roots[item.root]
        if item.path:
            above, _, name = item.path.rpartition(b"/")
        elif root.target_name:
            above, name = HOLDER, root.target_name
        else:
            return False
        mode = 0o700 if self._plan.keep.mode else (status.st_mode & 0o1777) | 0o700
        known = None if item.above is None else item.above.target
        with self._targets.lease(item.root, above, known) as holder:
            try:
                os.mkdir(name, mode, dir_fd=holder.fd)
            except FileExistsError:
                return False
            except OSError as error:
                target.stop_if_full(error, holder.fd, self._copier.names)
                raise
        return True

    def _descend(
        self, item: Tree, place: Place, source_fd: int, target_fd: int, here: Here[Item]
    ) -> None:
        """Scan the directory: spawn what is below, copy or spawn what is in it."""
        weight = item.weight
        for block in blocks(source_fd):
            # Of a directory whose end is not in sight nobody knows the share of a name.
            share = weight if block.last else weight / 2
            weight -= share
            self.counters.found += len(block)
            if not block:
                self.counters.weight += share
                continue
            each = share / len(block)
            self._spawn_directories(item, block, place, each, here)
            self._refuse_specials(item, block, each, here)
            if block.last and len(block.files) + len(block.links) <= _FEW_NAMES:
                batch = self._batch_of(item, block.files, block.links, each, place)
                self._names(batch, source_fd, target_fd, here)
            else:
                self._spawn_batches(item, block, each, place, here)
            if here.stopping:
                return

    def _spawn_directories(
        self, item: Tree, block: Block, place: Place, each: float, here: Here[Item]
    ) -> None:
        if not block.directories:
            return
        self.counters.scans_due += len(block.directories)
        root, path = item.root, item.path
        names = unpack(pack(block.directories))
        here.spawn([Tree(root, join_path(path, name), each, place) for name in names])

    def _batch_of(
        self,
        item: Tree,
        files: Sequence[str],
        links: Sequence[str],
        each: float,
        place: Place,
    ) -> Batch:
        return Batch(item.root, item.path, pack(files), pack(links), each, place)

    def _spawn_batches(
        self, item: Tree, block: Block, each: float, place: Place, here: Here[Item]
    ) -> None:
        batches: list[Item] = []
        files, links = block.files, block.links
        for start in range(0, len(files), _BATCH_NAMES):
            some = files[start : start + _BATCH_NAMES]
            batches.append(self._batch_of(item, some, (), each, place))
        for start in range(0, len(links), _BATCH_NAMES):
            some = links[start : start + _BATCH_NAMES]
            batches.append(self._batch_of(item, (), some, each, place))
        here.spawn(batches)

    def _refuse_specials(self, item: Tree, block: Block, each: float, here: Here[Item]) -> None:
        for name in unpack(pack(block.specials)):
            self.counters.weight += each
            self._fail(item.root, join_path(item.path, name), "copy", _special(), here)

    def _complete_directory(self, item: Tree, own: _Directory, here: Here[Item]) -> None:
        """All that is below is done: the directory gets its attributes."""
        keep = self._plan.keep
        missing = 0o700 & (~own.source.st_mode | self._plan.umask) if own.created else 0
        try:
            if keep.any or missing:
                with self._targets.lease(item.root, item.path, own.identity) as lease:
                    if lease.searched:
                        settle_searched(lease.fd, own.source, keep)
                    else:
                        settle_file(lease.fd, own.source, keep)
                    if missing and not keep.mode:
                        os.fchmod(lease.fd, stat.S_IMODE(os.fstat(lease.fd).st_mode) & ~missing)
        except OSError as error:
            doing = "set the attributes of the copy of"
            self._fail(item.root, item.path, doing, error, here, sized=True)
            return
        self.counters.directories += 1

    # ---- files and links -------------------------------------------------------

    def _batch(self, item: Batch, here: Here[Item]) -> Done:
        try:
            with (
                self._sources.lease(item.root, item.path, item.place.source) as source,
                self._targets.lease(item.root, item.path, item.place.target) as lease,
            ):
                self._names(item, source.fd, lease.fd, here)
        except OSError as error:
            names = unpack(item.files) + unpack(item.links)
            self.counters.weight += item.weight * len(names)
            for name in names:
                path = join_path(item.path, name)
                self._fail(item.root, path, "reach", error, here)
        return Done()

    def _names(self, item: Batch, source_fd: int, target_fd: int, here: Here[Item]) -> None:
        """Copy a batch's names; hand the rest back when it takes long."""
        until_s = time.monotonic() + _BATCH_S
        files, links = unpack(item.files), unpack(item.links)
        for name in links:
            try:
                self._copier.link(source_fd, name, target_fd, name)
            except OSError as error:
                self._fail(item.root, join_path(item.path, name), None, error, here)
        tried, tally = self._copier.files(files, source_fd, target_fd, here.is_stopping, until_s)
        for name, doing, trouble in tally.failed:
            self._fail(item.root, join_path(item.path, name), doing, trouble, here)
        self.counters.weight += item.weight * (tried + len(links) - len(tally.large))
        here.spawn([self._large_of(item, name) for name in tally.large])
        self._hand_back(item, files[tried:], here)

    def _large_of(self, item: Batch, name: bytes) -> Large:
        return Large(item.root, item.path, name, name, item.weight, item.place)

    def _hand_back(self, item: Batch, files: Sequence[bytes], here: Here[Item]) -> None:
        """Spawn what a slow batch has left, in two parts."""
        half = (len(files) + 1) // 2
        parts = [part for part in (files[:half], files[half:]) if part]
        here.spawn(
            [
                Batch(item.root, item.path, b"\0".join(part), b"", item.weight, item.place)
                for part in parts
            ]
        )

    def _singles(self, item: Singles, here: Here[Item]) -> Done:
        """Copy roots that are not directories; hand the rest back when it takes long."""
        until_s = time.monotonic() + _BATCH_S
        for number in range(item.first, item.end):
            self._copier.doing = "reach"
            finished = True
            try:
                finished = self._single(number, item.weight, here)
            except OSError as error:
                self._fail(number, b"", None, error, here)
            self.counters.weight += item.weight * finished
            after = number + 1
            if after < item.end and (here.stopping or time.monotonic() > until_s):
                middle = (after + item.end + 1) // 2
                parts = [(after, middle), (middle, item.end)]
                here.spawn([Singles(a, b, item.weight) for a, b in parts if a < b])
                break
        return Done()

    def _single(self, number: int, weight: float, here: Here[Item]) -> bool:
        """Copy a root that is not a directory; false if that goes on in chunks."""
        root = self._plan.roots[number]
        with (
            self._sources.lease(number, HOLDER) as source,
            self._targets.lease(number, HOLDER) as lease,
        ):
            names = (source.fd, root.source_name, lease.fd, root.target_name)
            if root.kind == LINK:
                self._copier.link(*names)
                here.note([Remark(root.source_shown, "is a symbolic link: copied as one")])
            elif root.kind != FILE:
                self._copier.doing = "copy"
                raise _special()
            elif not self._copier.file(*names):
                place = Place(source.identity, lease.identity, lease.identity)
                name, new = root.source_name, root.target_name
                here.spawn([Large(number, HOLDER, name, new, weight, place)])
                return False
        return True

    # ---- large files -----------------------------------------------------------

    def _large(self, item: Large, here: Here[Item]) -> Any:
        """Begin a file whose content is copied in chunks."""
        self._copier.doing = "reach"
        try:
            with (
                self._sources.lease(item.root, item.path, item.place.source) as source,
                self._targets.lease(item.root, item.path, item.place.target) as lease,
            ):
                names = (source.fd, item.name, lease.fd, item.target_name)
                status, creation, ranges = self._copier.begin(*names, self._grid)
                assert creation.identity is not None
                own = _File(status, creation, creation.identity)
                self._spawn_chunks(item, own, ranges, here)
        except OSError as error:
            self.counters.weight += item.weight
            self._fail(item.root, join_path(item.path, item.name), None, error, here)
            return Done()
        if here.spawned:
            return own
        self._complete_file(item, own, None, here)  # all of it is a hole
        return Done()

    def _spawn_chunks(
        self, item: Large, own: _File, ranges: Sequence[tuple[int, int]], here: Here[Item]
    ) -> None:
        size = own.source.st_size
        sparse = may_have_holes(own.source)
        chunks: list[Item] = [
            Chunk(
                item.root,
                item.path,
                item.name,
                own.creation.written,
                (own.source.st_dev, own.source.st_ino),
                own.identity,
                offset,
                length,
                item.weight * length / size,
                sparse,
            )
            for offset, length in ranges
        ]
        holes = size - sum(length for _, length in ranges)
        self.counters.bytes_done += holes
        self.counters.weight += item.weight * holes / size if size else item.weight
        here.spawn(chunks)

    def _grid(self, fd: int, status: os.stat_result) -> list[tuple[int, int]]:
        """The (offset, length) of a file's chunks."""
        whole = self._chunk_bytes(status.st_size)
        return list(_grid(fd, status.st_size, whole, sparse=may_have_holes(status)))

    def _chunk_bytes(self, size: int) -> int:
        if self._plan.chunk_bytes is not None:
            return self._plan.chunk_bytes
        wanted = size // (_CHUNKS_PER_RANK * self._size)
        bounded = max(_SMALLEST_CHUNK_BYTES, min(_LARGEST_CHUNK_BYTES, wanted))
        return -(-bounded // CHUNK_UNIT_BYTES) * CHUNK_UNIT_BYTES

    def _chunk(self, item: Chunk, here: Here[Item]) -> Done:
        self._copier.doing = "reach"
        reached = item.offset
        error: OSError | None = None
        try:
            with (
                self._sources.lease(item.root, item.path) as source,
                self._targets.lease(item.root, item.path) as lease,
            ):
                split = self._plan.chunk_bytes is None
                stop = here.is_stopping
                reached, error = self._copier.chunk(item, source.fd, lease.fd, split, stop)
        except OSError as unreached:
            error = unreached
        end = item.offset + item.length
        if error is not None:
            self.counters.weight += item.weight * (end - reached) / item.length
            path = join_path(item.path, item.name)
            return Done(self._failure(item.root, path, None, error))
        if reached < end and not here.stopping:
            self._share_rest(item, reached, end, here)
        return Done()

    def _share_rest(self, item: Chunk, offset: int, end: int, here: Here[Item]) -> None:
        """Spawn what a slow chunk has left, in two parts."""
        half = -(-(end - offset) // 2 // CHUNK_UNIT_BYTES) * CHUNK_UNIT_BYTES
        middle = min(end, offset + half)
        here.spawn(
            [
                Chunk(
                    item.root,
                    item.path,
                    item.name,
                    item.temporary,
                    item.source,
                    item.target,
                    start,
                    stop - start,
                    item.weight * (stop - start) / item.length,
                    item.sparse,
                )
                for start, stop in ((offset, middle), (middle, end))
                if stop > start
            ]
        )

    def _complete_file(
        self, item: Large, own: _File, cause: Failure | None, here: Here[Item]
    ) -> None:
        """All chunks are done: the file gets its attributes and its name, or goes."""
        self._copier.doing = "reach"
        try:
            with (
                self._sources.lease(item.root, item.path, item.place.source) as source,
                self._targets.lease(item.root, item.path, item.place.target) as lease,
            ):
                names = (source.fd, item.name, lease.fd)
                self._copier.finish(own.source, own.creation, own.identity, names, cause)
        except OSError as error:
            path = join_path(item.path, item.name)
            self._fail(item.root, path, None, error, here, sized=True)
            return
        if cause is not None:
            self.counters.failed += 1
            here.note([cause])
            return
        self.counters.files += 1

    # ---- failures --------------------------------------------------------------

    def _fail(
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
        here.note([self._failure(root, path, doing, error)])

    def _failure(self, root: int, path: bytes, doing: str | None, error: OSError) -> Failure:
        base = self._plan.roots[root]
        if base.kind != DIRECTORY:
            shown = base.source_shown
        else:
            shown = os.path.join(base.source_shown, path) if path else base.source_shown
        reason = error.strerror or str(error)
        return Failure(shown, doing or self._copier.doing, error.errno or 0, reason)


def _special() -> OSError:
    return Changed("it is neither a regular file, a directory nor a symbolic link")


def _grid(fd: int, size: int, whole: int, *, sparse: bool) -> Iterator[tuple[int, int]]:
    """The chunks of a file that have any data; those that are all hole are left out."""
    offset = 0
    while offset < size:
        data = offset
        try:
            if sparse:
                data = os.lseek(fd, offset, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return  # nothing but a hole is left
            # Else the file system knows nothing of holes.
        offset = max(offset, data // whole * whole)
        yield offset, min(whole, size - offset)
        offset += whole
