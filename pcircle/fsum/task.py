"""Signing as a task: which work each kind of item is, and how digests come together.

A directory is scanned once. Its subdirectories become items at once; its files
are read on the spot if they are few, else they become batches that others can
steal; large files become chunks. A directory's digest is made when all that is
in it is done, on the rank that scanned it.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from pcircle.fs.choosing import choosing
from pcircle.fs.data import may_have_holes
from pcircle.fs.directories import HOLDER, Lease, affordable_threads, join_path
from pcircle.fs.listed import Listed
from pcircle.fs.roots import open_roots
from pcircle.fs.scan import Block, blocks
from pcircle.fs.trouble import Changed, kind_of, told
from pcircle.fsum.counters import Counters
from pcircle.fsum.items import (
    Batch,
    Chunk,
    Done,
    Failure,
    Identity,
    Item,
    Large,
    Notice,
    Portion,
    Tree,
)
from pcircle.fsum.plan import BLOCK_BYTES, Plan
from pcircle.fsum.reader import FLAGS, Reader, check_same
from pcircle.guards import require, require_type
from pcircle.runtime import Here, PartedTask
from pcircle.signature import Signer
from pcircle.signature.digests import BESIDE, FAILED

if TYPE_CHECKING:
    from pcircle.fs.lists import Lists
    from pcircle.fsum.ledger import Ledger

_BATCH_S = 0.1
_BATCH_NAMES = 512
_FEW_NAMES = 64  # read by the item that scanned them
_SMALLEST_CHUNK_BYTES = 16 << 20
_LARGEST_CHUNK_BYTES = 256 << 20
_CHUNKS_PER_RANK = 32


class Scanned(NamedTuple):
    """A directory between its scan and its digest: what its own item has signed of it."""

    done: Done
    status: os.stat_result


class Forwarded(NamedTuple):
    """In place of the result of an item that another rank does."""


class LargeFile(NamedTuple):
    """A large file between its first chunk and its last; how many blocks are no mere holes."""

    status: os.stat_result
    blocks: int


class SumTask(PartedTask[Item, Done]):
    """One rank's part of a signature. `lists` say what is meant of the roots; rank 0 has them.

    With `first` it is that task's part for another worker thread.
    """

    notice_type = Notice

    def __init__(
        self,
        plan: Plan,
        rank: int,
        size: int,
        lists: Lists | None = None,
        first: SumTask | None = None,
    ) -> None:
        super().__init__()
        self.most_threads = affordable_threads()
        self.threads = None if plan.threads is None else min(plan.threads, self.most_threads)
        self.counters = Counters()
        self._plan = plan
        self._rank = rank
        self._lists = lists
        self._size = size
        beside_bytes = BESIDE.size if plan.detailed else 0
        of_first: Signer | None = None if first is None else first._signer
        self._signer: Signer = Signer(plan.algorithm, HOLDER, beside_bytes, of_first)
        self._ledger: Ledger | None = None
        if plan.detailed:
            from pcircle.fsum.ledger import Ledger  # most runs need none

            books: Ledger | None = None if first is None else first._ledger
            self._ledger = Ledger(plan, rank, self._signer, books)
        self._reader = Reader(plan, self.counters, self._signer)
        self._directories = open_roots(
            plan.roots, plan.directory, plan.identify, is_first=first is None
        )
        self._choose = choosing(plan.rules)

    @property
    def counted(self) -> Counters:
        return self.counters

    def beside(self, number: int) -> SumTask:
        return SumTask(self._plan, self._rank, self._size, self._lists, self)

    def close(self) -> None:
        """The job has ended: let the directories go."""
        for part in self.parts:
            part._directories.close()

    def finish(self) -> None:
        if self._ledger is not None:
            self._ledger.close()

    def seed(self) -> Iterator[Item]:
        weight = 1.0 / len(self._plan.roots)
        self.counters.found += len(self._plan.roots)
        for number, root in enumerate(self._plan.roots):
            if root.name:
                yield self._single(number, root.name, weight)
            else:
                self.counters.scans_due += 1
                only = None if self._lists is None else self._lists.parts[number].listed
                yield Tree(number, b"", weight, None, only)

    def _single(self, number: int, name: bytes, weight: float) -> Batch:
        holder = self._plan.roots[number].holder
        try:
            mode = os.stat(os.path.join(holder, name), follow_symlinks=False).st_mode
        except OSError:
            mode = stat.S_IFREG  # to read it will say what is wrong
        files = name if stat.S_ISREG(mode) else b""
        links = name if stat.S_ISLNK(mode) else b""
        specials = b"" if files or links else name
        return Batch(number, HOLDER, files, links, specials, weight, None)

    # ---- one item --------------------------------------------------------------

    def process(self, item: Item, here: Here[Item]) -> Any:
        self._signer.clear()
        if isinstance(item, Batch):
            own: Any = self._batch(item, here)
        elif isinstance(item, Tree):
            if item.only is not None and item.only.is_range and self._lists is None:
                here.post(0, [item])
                return Forwarded()
            own = self._tree(item, here)
        elif isinstance(item, Portion):
            own = self._portion(item, here)
        elif isinstance(item, Chunk):
            own = self._chunk(item, here)
        else:
            own = self._large(item, here)
        return self._signer.take(own) if isinstance(own, Done) else own

    def merge(self, a: Done, b: Done) -> Done:
        return self._signer.gather(Done(a.cause or b.cause), a, b)

    def join(self, item: Item, own: Any, merged: Done, here: Here[Item]) -> Done:
        if isinstance(own, Forwarded):
            return merged
        if isinstance(own, Scanned):
            gathered = self._signer.gather(Done(), own.done, merged)
            return self._end_directory(require_type(Tree, item), own.status, gathered, here)
        if isinstance(own, LargeFile):
            return self._end_large(require_type(Large, item), own, merged, here)
        done = require_type(Done, own)
        if isinstance(item, Tree):  # it has failed: what is in it is nobody's entry
            return done
        return self.merge(done, merged)

    # ---- directories -----------------------------------------------------------

    def _tree(self, item: Tree, here: Here[Item]) -> Scanned | Done:
        self.counters.scans_done += 1
        self.counters.sized += 1
        try:
            with self._open(item) as lease:
                status = os.fstat(lease.fd)
                entered = not self._is_left_empty(item, lease)
                if entered:
                    self._scan(item, lease, here)
                else:
                    self.counters.weight += item.weight
        except OSError as error:
            self.counters.weight += 0.0 if here.spawned else item.weight
            self._signer.clear()
            self._fail(item.root, item.path, "read directory", error, here, sized=True)
            return Done()
        done = self._signer.take(Done())
        if here.spawned:
            return Scanned(done, status)
        return self._end_directory(item, status, done, here, entered=entered)

    def _open(self, item: Tree) -> Lease:
        """Lease a directory from the very directory that it was found in."""
        if item.above is None:
            return self._directories.lease(item.root, item.path, readable=True)
        parent = item.path.rpartition(b"/")[0]
        with self._directories.lease(item.root, parent, item.above):
            return self._directories.lease(item.root, item.path, readable=True)

    def _scan(self, item: Tree, lease: Lease, here: Here[Item]) -> None:
        weight = item.weight
        if item.only is not None and item.only.is_range:
            self._divide(item, item.only, lease, here)
            return
        for block in self._blocks(item, lease):
            # Of a directory whose end is not in sight nobody knows the share of a name.
            share = weight if block.last else weight / 2
            weight -= share
            self.counters.found += len(block)
            if not block:
                self.counters.weight += share
                continue
            each = share / len(block)
            self._spawn_directories(item.root, item.path, block, lease.identity, each, here)
            names = len(block) - len(block.directories)
            if block.last and names <= _FEW_NAMES:
                files, links, specials = map(_pack, (block.files, block.links, block.specials))
                where = item.root, item.path
                batch = Batch(*where, files, links, specials, each, lease.identity)
                self._names(batch, lease.fd, here)
            else:
                here.spawn(list(_batches(item, block, each, lease.identity)))
            if here.stopping:
                return

    def _is_left_empty(self, item: Tree, lease: Lease) -> bool:
        """Whether a directory is not entered, being on another file system than what it is in."""
        if item.above is None or not self._plan.one_file_system:
            return False
        with self._directories.lease(item.root, item.path.rpartition(b"/")[0]) as holder:
            return os.fstat(holder.fd).st_dev != os.fstat(lease.fd).st_dev

    def _blocks(self, item: Tree, lease: Lease) -> Iterator[Block]:
        """The names that are to be signed, in blocks."""
        if item.only is not None:
            yield self._picked(item.path, item.only.text, lease)
            return
        for block in blocks(lease.fd):
            self._leave_out(block, item.path)
            yield block

    def _leave_out(self, block: Block, path: bytes) -> None:
        """Forget what is not meant of a directory's names."""
        self._choose(block, path)
        for own in self._plan.own:
            if own.directory == path:
                block.files = [n for n in block.files if not own.names(os.fsencode(n))]

    def _picked(self, path: bytes, text: bytes, lease: Lease) -> Block:
        from pcircle.fs.lists import Picked

        block: Block = Picked(lease.fd, text, follow=False)
        self._leave_out(block, path)
        if self._ledger is not None:
            self._ledger.leave_missing(block, path, lease.fd)
        return block

    def _divide(self, item: Tree, only: Listed, lease: Lease, here: Here[Item]) -> None:
        """Of a directory of which much is listed: spawn what is below, and what is in it."""
        for weight, part in require(self._lists).shares(only, item.weight):
            if here.stopping:
                return
            if isinstance(part, bytes):
                here.spawn([Portion(item.root, item.path, part, weight, lease.identity)])
                continue
            block = Block()
            block.add_directory(part.name)
            self._choose(block, item.path)
            if self._ledger is not None:
                self._ledger.leave_missing(block, item.path, lease.fd)
            if not block:
                self.counters.weight += weight
                continue
            self.counters.found += 1
            self.counters.scans_due += 1
            path = join_path(item.path, part.name)
            here.post(self._rank, [Tree(item.root, path, weight, lease.identity, part.listed())])

    def _portion(self, item: Portion, here: Here[Item]) -> Done:
        """Sign what a part of a list names in one directory."""
        try:
            with self._directories.lease(item.root, item.path, item.directory) as lease:
                block = self._picked(item.path, item.text, lease)
                self.counters.found += len(block)
                each = item.weight / max(1, len(block))
                self.counters.weight += 0.0 if block else item.weight
                where = item.root, item.path
                self._spawn_directories(*where, block, item.directory, each, here)
                files, links, specials = map(_pack, (block.files, block.links, block.specials))
                batch = Batch(*where, files, links, specials, each, item.directory)
                self._names(batch, lease.fd, here)
        except OSError as error:
            self.counters.weight += item.weight
            from pcircle.fs.lists import groups

            for group in groups(item.text, 0, len(item.text)):
                self.counters.found += 1
                self._fail(item.root, join_path(item.path, group.name), "reach", error, here)
        return Done()

    def _spawn_directories(
        self,
        root: int,
        path: bytes,
        block: Block,
        identity: Identity,
        each: float,
        here: Here[Item],
    ) -> None:
        self.counters.scans_due += len(block.directories)
        only = block.below
        here.spawn(
            [
                Tree(root, join_path(path, os.fsencode(name)), each, identity, only.get(name))
                for name in block.directories
            ]
        )

    def _meant(self, only: Listed | None) -> Iterable[bytes] | None:
        """The names that are meant of a directory, in their order; None: all."""
        if only is None:
            return None
        if not only.is_range:
            from pcircle.fs.lists import groups

            return (group.name for group in groups(only.text, 0, len(only.text)))
        return (group.name for group in require(self._lists).below(only))

    def _end_directory(
        self,
        item: Tree,
        status: os.stat_result,
        merged: Done,
        here: Here[Item],
        *,
        entered: bool = True,
    ) -> Done:
        try:
            if self._ledger is None:
                done = self._signer.directory(item.root, item.path, Done(), merged)
            else:
                meant = self._meant(item.only) if entered else ()
                with self._ledger.page(item.path, status, here.note, meant) as page:
                    done = self._signer.directory(item.root, item.path, Done(), merged, page.see)
                    page.close(self._signer.digest_of(done))
        except ValueError as why:
            self._fail(item.root, item.path, "sign directory", Changed(str(why)), here, sized=True)
            return Done()
        self.counters.directories += 1
        return done

    # ---- names -----------------------------------------------------------------

    def _batch(self, item: Batch, here: Here[Item]) -> Done:
        try:
            with self._directories.lease(item.root, item.path, item.directory) as lease:
                self._names(item, lease.fd, here)
        except OSError as error:
            for name in _split(item.files) + _split(item.links) + _split(item.specials):
                self.counters.weight += item.weight
                self._fail(item.root, join_path(item.path, name), "reach", error, here)
        return Done()

    def _names(self, item: Batch, directory_fd: int, here: Here[Item]) -> None:
        """Sign a batch's names; hand the rest back when it takes long."""
        for name in _split(item.links):
            if self._one(item, name, self._reader.link, directory_fd, here):
                self.counters.links += 1
                self.counters.sized += 1
        for name in _split(item.specials):
            if self._one(item, name, self._reader.node, directory_fd, here):
                self.counters.special += 1
                self.counters.sized += 1
        files = _split(item.files)
        until_s = time.monotonic() + _BATCH_S
        if not self._plan.detailed and item.path != HOLDER:
            tried, others = self._reader.small(files, directory_fd, until_s)
            self.counters.weight += item.weight * (tried - len(others))
            files = others + files[tried:]
        large: list[Item] = []
        read, add, stop = self._reader.file, self._signer.add_at, here.is_stopping
        root, path = item.root, item.path
        spares = None if self._ledger is None else self._ledger.sparing(path)
        for done, name in enumerate(files, 1):
            try:
                if spares is not None and spares(name, directory_fd):
                    self.counters.sized += 1
                    whole = True
                else:
                    whole = read(name, directory_fd, stop)
            except OSError as error:
                self._fail(root, join_path(path, name), None, error, here)
            else:
                if whole:
                    add(root, path, name)
                    self.counters.files += 1
                else:
                    large.append(Large(root, path, name, item.weight, item.directory))
                    self.counters.weight -= item.weight
            self.counters.weight += item.weight
            if time.monotonic() > until_s or stop():
                self._hand_back(item, files[done:], here)
                break
        here.spawn(large)

    def _one(
        self, item: Batch, name: bytes, read: Any, directory_fd: int, here: Here[Item]
    ) -> bool:
        self.counters.weight += item.weight
        try:
            read(name, directory_fd)
        except OSError as error:
            self._fail(item.root, join_path(item.path, name), None, error, here)
            return False
        self._signer.add_at(item.root, item.path, name)
        return True

    def _hand_back(self, item: Batch, files: Sequence[bytes], here: Here[Item]) -> None:
        """Spawn what a slow batch has left, in two parts."""
        half = (len(files) + 1) // 2
        parts = [part for part in (files[:half], files[half:]) if part]
        change = msgspec.structs.replace
        here.spawn(
            [change(item, files=b"\0".join(part), links=b"", specials=b"") for part in parts]
        )

    # ---- large files -----------------------------------------------------------

    def _large(self, item: Large, here: Here[Item]) -> LargeFile | Done:
        self._reader.doing = "open"
        try:
            with self._directories.lease(item.root, item.path, item.directory) as lease:
                fd = os.open(item.name, FLAGS, dir_fd=lease.fd)
                try:
                    status = os.fstat(fd)
                    if not stat.S_ISREG(status.st_mode):
                        raise Changed("it is not a regular file any more")
                    sparse = may_have_holes(status)
                    grid = list(self._grid(fd, status.st_size, sparse=sparse))
                finally:
                    os.close(fd)
        except OSError as error:
            self.counters.weight += item.weight
            self._fail(item.root, join_path(item.path, item.name), None, error, here)
            return Done()
        size = status.st_size
        self.counters.sized += 1
        self.counters.bytes_found += size
        where = item.root, item.path, item.name, self._plan.identify(status)
        here.spawn(
            [
                Chunk(*where, offset, length, item.weight * length / size, sparse)
                for offset, length in grid
            ]
        )
        holes = size - sum(length for _, length in grid)
        self.counters.bytes_done += holes
        self.counters.weight += item.weight * holes / size if size else item.weight
        own = LargeFile(status, sum(-(-length // BLOCK_BYTES) for _, length in grid))
        return own if here.spawned else self._end_large(item, own, Done(), here)

    def _grid(self, fd: int, size: int, *, sparse: bool) -> Iterator[tuple[int, int]]:
        """The chunks of a file that have any data."""
        wanted = size // (_CHUNKS_PER_RANK * self._size)
        wanted = max(_SMALLEST_CHUNK_BYTES, min(_LARGEST_CHUNK_BYTES, wanted))
        whole = self._plan.chunk_bytes or -(-wanted // BLOCK_BYTES) * BLOCK_BYTES
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

    def _chunk(self, item: Chunk, here: Here[Item]) -> Done:
        reached, end = item.offset, item.offset + item.length
        self._reader.doing = "reach"
        split = self._plan.chunk_bytes is None
        try:
            with self._directories.lease(item.root, item.path) as lease:
                reached = self._reader.chunk(item, lease.fd, here.is_stopping, split=split)
        except OSError as error:
            self.counters.weight += item.weight
            path = join_path(item.path, item.name)
            return Done(self._failure(item.root, path, None, error))
        self.counters.weight += item.weight * (reached - item.offset) / item.length
        if reached < end and not here.stopping:
            half = -(-(end - reached) // 2 // BLOCK_BYTES) * BLOCK_BYTES
            middle = min(end, reached + half)
            change = msgspec.structs.replace
            parts = [(a, b) for a, b in ((reached, middle), (middle, end)) if b > a]
            weight = item.weight / item.length
            here.spawn(
                [change(item, offset=a, length=b - a, weight=weight * (b - a)) for a, b in parts]
            )
        return Done()

    def _end_large(self, item: Large, own: LargeFile, merged: Done, here: Here[Item]) -> Done:
        self._reader.doing = "read"
        cause = merged.cause
        if cause is None:
            try:
                with self._directories.lease(item.root, item.path, item.directory) as lease:
                    now = os.stat(item.name, dir_fd=lease.fd, follow_symlinks=False)
                check_same(own.status, now)
            except OSError as error:
                cause = self._failure(item.root, join_path(item.path, item.name), None, error)
        if cause is not None:
            self.counters.failed += 1
            here.note([cause])
            self._signer.clear()
            self._sign_failed(item.root, join_path(item.path, item.name))
            return self._signer.take(Done())
        self._signer.clear()
        self._reader.note(own.status, own.status.st_size)
        self._signer.large(own.status.st_size, own.blocks, merged.blocks)
        self._signer.add_at(item.root, item.path, item.name)
        self.counters.files += 1
        return self._signer.take(Done())

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
        """Account for an entry that has no digest; `doing` None is what the reader did."""
        self.counters.failed += 1
        if not sized:
            self.counters.sized += 1
        here.note([self._failure(root, path, doing, error)])
        self._sign_failed(root, path)

    def _sign_failed(self, root: int, path: bytes) -> None:
        """Where a manifest is compared with, a failed entry is not a missing one."""
        if self._plan.against is not None:
            self._signer.seal = FAILED + bytes(self._signer.algorithm.size)
            self._signer.beside = bytes(BESIDE.size)
            name = path.rpartition(b"/")[2]
            self._signer.add(name if path and not self._plan.roots[root].name else b"%d" % root)

    def _failure(self, root: int, path: bytes, doing: str | None, error: OSError) -> Failure:
        base = self._plan.roots[root]
        entry = b"" if base.name else path
        shown = os.path.join(base.shown, entry) if entry else base.shown
        what = doing or self._reader.doing
        return Failure(shown, what, *told(error), root, entry, kind_of(error))


def _split(packed: bytes) -> list[bytes]:
    return packed.split(b"\0") if packed else []


def _pack(names: Sequence[str]) -> bytes:
    return os.fsencode("\0".join(names))


def _batches(item: Tree, block: Block, each: float, identity: Identity) -> Iterator[Batch]:
    """The names of a block, by the hundred."""
    for kind in ("files", "links", "specials"):
        names = getattr(block, kind)
        for start in range(0, len(names), _BATCH_NAMES):
            batch = Batch(item.root, item.path, b"", b"", b"", each, identity)
            packed = _pack(names[start : start + _BATCH_NAMES])
            yield msgspec.structs.replace(batch, **{kind: packed})
