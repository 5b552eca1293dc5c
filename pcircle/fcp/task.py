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
    Remark,
    Single,
    Tree,
    pack,
    unpack,
)
from pcircle.fcp.plain import SOURCE_FLAGS
from pcircle.fcp.plan import CHUNK_UNIT_BYTES, DIRECTORY, FILE, LINK, Plan, open_sides
from pcircle.fcp.scan import Block, blocks
from pcircle.fcp.target import Creation
from pcircle.fs.data import may_have_holes
from pcircle.fs.directories import HOLDER, Lease, join_path
from pcircle.fs.metadata import settle_name
from pcircle.runtime import Here, Task

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
        weight = 1.0 / len(self._plan.roots)
        for number, root in enumerate(self._plan.roots):
            self.counters.found += 1
            if root.kind == DIRECTORY:
                self.counters.scans_due += 1
                yield Tree(number, b"", weight)
            else:
                yield Single(number, weight)

    def process(self, item: Item, here: Here[Item]) -> Any:
        if isinstance(item, Batch):
            return self._batch(item, here)
        if isinstance(item, Tree):
            return self._tree(item, here)
        if isinstance(item, Chunk):
            return self._chunk(item, here)
        if isinstance(item, Large):
            return self._large(item, here)
        return self._single(item, here)

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
            with self._sources.lease(item.root, item.path) as source:
                status = os.fstat(source.fd)
                doing = "create the copy of directory"
                created = self._make_directory(item, status)
                with self._targets.lease(item.root, item.path) as lease:
                    own = _Directory(status, lease.identity, created)
                    doing = "read directory"
                    self._descend(item, source, lease, here)
        except OSError as error:
            self.counters.weight += 0.0 if here.spawned else item.weight
            self._fail(item.root, item.path, doing, error, here, sized=True)
            return Done()
        if here.spawned:
            return own
        self._complete_directory(item, own, here)
        return Done()

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
        with self._targets.lease(item.root, above, item.parent) as holder:
            try:
                os.mkdir(name, mode, dir_fd=holder.fd)
            except FileExistsError:
                return False
            except OSError as error:
                target.stop_if_full(error, holder.fd, self._copier.names)
                raise
        return True

    def _descend(self, item: Tree, source: Lease, lease: Lease, here: Here[Item]) -> None:
        """Scan the directory: spawn what is below, copy or spawn what is in it."""
        weight = item.weight
        for block in blocks(source.fd):
            # Of a directory whose end is not in sight nobody knows the share of a name.
            share = weight if block.last else weight / 2
            weight -= share
            self.counters.found += len(block)
            if not block:
                self.counters.weight += share
                continue
            each = share / len(block)
            self._spawn_directories(item, block, lease.identity, each, here)
            self._refuse_specials(item, block, each, here)
            if block.last and len(block.files) + len(block.links) <= _FEW_NAMES:
                batch = self._batch_of(item, block.files, block.links, each, lease.identity)
                self._names(batch, source.fd, lease.fd, here)
            else:
                self._spawn_batches(item, block, each, lease.identity, here)
            if here.stopping:
                return

    def _spawn_directories(
        self, item: Tree, block: Block, parent: tuple[int, int], each: float, here: Here[Item]
    ) -> None:
        if not block.directories:
            return
        self.counters.scans_due += len(block.directories)
        root, path = item.root, item.path
        names = unpack(pack(block.directories))
        here.spawn([Tree(root, join_path(path, name), each, parent) for name in names])

    def _batch_of(
        self,
        item: Tree,
        files: Sequence[str],
        links: Sequence[str],
        each: float,
        parent: tuple[int, int],
    ) -> Batch:
        return Batch(item.root, item.path, pack(files), pack(links), each, parent)

    def _spawn_batches(
        self, item: Tree, block: Block, each: float, parent: tuple[int, int], here: Here[Item]
    ) -> None:
        batches: list[Item] = []
        files, links = block.files, block.links
        for start in range(0, len(files), _BATCH_NAMES):
            some = files[start : start + _BATCH_NAMES]
            batches.append(self._batch_of(item, some, (), each, parent))
        for start in range(0, len(links), _BATCH_NAMES):
            some = links[start : start + _BATCH_NAMES]
            batches.append(self._batch_of(item, (), some, each, parent))
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
                    if missing and not keep.mode:
                        mode = stat.S_IMODE(os.fstat(lease.fd).st_mode) & ~missing
                        os.chmod(b".", mode, dir_fd=lease.fd)
                    settle_name(b".", lease.fd, own.source, keep)
        except OSError as error:
            doing = "set the attributes of the copy of"
            self._fail(item.root, item.path, doing, error, here, sized=True)
            return
        self.counters.directories += 1

    # ---- files and links -------------------------------------------------------

    def _batch(self, item: Batch, here: Here[Item]) -> Done:
        try:
            with (
                self._sources.lease(item.root, item.path) as source,
                self._targets.lease(item.root, item.path, item.parent) as lease,
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
        return Large(item.root, item.path, name, name, item.weight, item.parent)

    def _hand_back(self, item: Batch, files: Sequence[bytes], here: Here[Item]) -> None:
        """Spawn what a slow batch has left, in two parts."""
        half = (len(files) + 1) // 2
        parts = [part for part in (files[:half], files[half:]) if part]
        here.spawn(
            [
                Batch(item.root, item.path, b"\0".join(part), b"", item.weight, item.parent)
                for part in parts
            ]
        )

    def _single(self, item: Single, here: Here[Item]) -> Done:
        """Copy a root that is not a directory."""
        root = self._plan.roots[item.root]
        self._copier.doing = "reach"
        try:
            with (
                self._sources.lease(item.root, HOLDER) as source,
                self._targets.lease(item.root, HOLDER) as lease,
            ):
                names = (source.fd, root.source_name, lease.fd, root.target_name)
                if root.kind == LINK:
                    self._copier.link(*names)
                    here.note([Remark(root.source_shown, "is a symbolic link: copied as one")])
                elif root.kind != FILE:
                    self._copier.doing = "copy"
                    raise _special()
                elif not self._copier.file(*names):
                    name, new = root.source_name, root.target_name
                    here.spawn([Large(item.root, HOLDER, name, new, item.weight)])
                    return Done()
        except OSError as error:
            self._fail(item.root, b"", None, error, here)
        self.counters.weight += item.weight
        return Done()

    # ---- large files -----------------------------------------------------------

    def _large(self, item: Large, here: Here[Item]) -> Any:
        """Begin a file whose content is copied in chunks."""
        self._copier.doing = "reach"
        try:
            with (
                self._sources.lease(item.root, item.path) as source,
                self._targets.lease(item.root, item.path, item.parent) as lease,
            ):
                status, creation, identity = self._copier.begin(
                    source.fd, item.name, lease.fd, item.target_name
                )
                own = _File(status, creation, identity)
                self._spawn_chunks(item, own, source.fd, here)
        except OSError as error:
            self.counters.weight += item.weight
            self._fail(item.root, join_path(item.path, item.name), None, error, here)
            return Done()
        if here.spawned:
            return own
        self._complete_file(item, own, None, here)  # all of it is a hole
        return Done()

    def _spawn_chunks(self, item: Large, own: _File, source_fd: int, here: Here[Item]) -> None:
        size = own.source.st_size
        whole = self._chunk_bytes(size)
        chunks: list[Item] = []
        covered = 0
        sparse = may_have_holes(own.source)
        fd = os.open(item.name, SOURCE_FLAGS, dir_fd=source_fd)
        try:
            for offset, length in _grid(fd, size, whole, sparse=sparse):
                chunks.append(
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
                )
                covered += length
        finally:
            os.close(fd)
        self.counters.bytes_done += size - covered
        self.counters.weight += item.weight * (size - covered) / size
        here.spawn(chunks)

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
                self._sources.lease(item.root, item.path) as source,
                self._targets.lease(item.root, item.path, item.parent) as lease,
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
