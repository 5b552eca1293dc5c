"""`--format coreutils`: the digest of each whole file, many files at a time.

Directories are walked as for a signature; what is found is told to rank 0,
which sorts it, in bounded memory, and prints it at the end. Or a list is
checked: its files are looked up by name, wherever they are, as sha256sum does.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import msgspec

from pcircle.buffers import aligned
from pcircle.fs.choosing import choosing
from pcircle.fs.directories import HOLDER, affordable_threads, join_path
from pcircle.fs.listed import Listed
from pcircle.fs.lists import Lists, Picked
from pcircle.fs.roots import open_roots
from pcircle.fs.scan import Block, blocks
from pcircle.fs.trouble import SPECIAL, Trouble, kind_of, special_kind, told
from pcircle.fsum.coreutils import Listed as Line
from pcircle.fsum.coreutils import new_hasher
from pcircle.fsum.counters import Counters
from pcircle.fsum.items import Difference, Digest, Failure
from pcircle.fsum.plan import Plan
from pcircle.fsum.reader import FLAGS, check_same
from pcircle.guards import require
from pcircle.runtime import Here, PartedTask
from pcircle.walk.items import Identity

_PIECE_BYTES = 512 << 10
_AHEAD_BYTES = 8 << 20
_BATCH_NAMES = 256
_BATCH_S = 0.1


class Folder(msgspec.Struct, frozen=True, array_like=True, tag="d", gc=False):
    """Digest the files of a directory and of all below it.

    With `only` no others than that names, of which it may be but a `portion`.
    """

    root: int
    path: bytes
    weight: float
    above: Identity | None = None
    only: Listed | None = None
    portion: bool = False


class Files(msgspec.Struct, frozen=True, array_like=True, tag="b", gc=False):
    """Digest some files of one directory; names are joined by NUL."""

    root: int
    path: bytes
    names: bytes
    weight: float  # of each
    directory: Identity | None


class Expected(msgspec.Struct, frozen=True, array_like=True, tag="e", gc=False):
    """Digest files that a list names by their paths, and compare."""

    paths: tuple[bytes, ...]
    digests: tuple[bytes, ...]
    weight: float  # of each


Item: TypeAlias = Folder | Files | Expected
Notice: TypeAlias = Failure | Digest | Difference


class WholeTask(PartedTask[Item, bool]):
    """One rank's part of many digests. Rank 0 has `expected`, a list to be checked, and `lists`.

    With `first` it is that task's part for another worker thread.
    """

    notice_type = Notice

    def __init__(
        self,
        plan: Plan,
        rank: int,
        expected: Sequence[Line],
        lists: Lists | None,
        first: WholeTask | None = None,
    ) -> None:
        super().__init__()
        self.most_threads = affordable_threads()
        self.threads = None if plan.threads is None else min(plan.threads, self.most_threads)
        self.counters = Counters()
        self._plan = plan
        self._rank = rank
        self._lists = lists
        self._expected = expected
        self._directories = open_roots(
            plan.roots, plan.directory, plan.identify, is_first=first is None
        )
        self._choose = choosing(plan.rules)
        self._piece = aligned(_PIECE_BYTES)

    @property
    def counted(self) -> Counters:
        return self.counters

    def beside(self, number: int) -> WholeTask:
        return WholeTask(self._plan, self._rank, (), self._lists, self)

    def close(self) -> None:
        """The job has ended: let the directories go."""
        for part in self.parts:
            part._directories.close()

    def seed(self) -> Iterator[Item]:
        if self._plan.listed:
            total = len(self._expected)
            self.counters.found += total
            for start in range(0, total, _BATCH_NAMES):
                some = self._expected[start : start + _BATCH_NAMES]
                paths, digests = zip(*((each.path, each.digest) for each in some), strict=True)
                yield Expected(paths, digests, 1.0 / total)
            return
        weight = 1.0 / len(self._plan.roots)
        for number, root in enumerate(self._plan.roots):
            self.counters.found += 1
            if root.name:
                yield Files(number, HOLDER, root.name, weight, None)
            else:
                self.counters.scans_due += 1
                only = None if self._lists is None else self._lists.parts[number].listed
                yield Folder(number, b"", weight, None, only)

    def process(self, item: Item, here: Here[Item]) -> bool:
        if isinstance(item, Folder):
            self._folder(item, here)
        elif isinstance(item, Files):
            self._files(item, here)
        else:
            self._compare(item, here)
        return True

    def merge(self, a: bool, b: bool) -> bool:
        return a and b

    # ---- walking ---------------------------------------------------------------

    def _folder(self, item: Folder, here: Here[Item]) -> None:
        if item.only is not None and item.only.is_range and self._lists is None:
            here.post(0, [item])
            return
        self.counters.scans_done += 1
        self.counters.sized += not item.portion
        parent = item.path.rpartition(b"/")[0]
        try:
            if item.above is not None:
                with self._directories.lease(item.root, parent, item.above) as above:
                    device = os.fstat(above.fd).st_dev
            with self._directories.lease(item.root, item.path, readable=True) as lease:
                apart = item.above is not None and device != os.fstat(lease.fd).st_dev
                if apart and self._plan.one_file_system:
                    self.counters.weight += item.weight
                elif item.only is not None and item.only.is_range:
                    self._divide(item, item.only, lease.identity, here)
                else:
                    self._scan(item, lease.fd, lease.identity, here)
        except OSError as error:
            self.counters.weight += 0.0 if here.spawned else item.weight
            self._fail(item.root, item.path, "read directory", error, here, sized=True)
            return
        self.counters.directories += not item.portion

    def _divide(self, item: Folder, only: Listed, identity: Identity, here: Here[Item]) -> None:
        """Of a directory of which much is listed: spawn what is below, and what is in it."""
        for weight, part in require(self._lists).shares(only, item.weight):
            self.counters.scans_due += 1
            if isinstance(part, bytes):
                change = msgspec.structs.replace
                text = Listed(part)
                here.spawn([change(item, weight=weight, only=text, portion=True)])
                continue
            block = Block()
            block.add_directory(part.name)
            self._choose(block, item.path)
            if not block:
                self.counters.scans_done += 1
                self.counters.weight += weight
                continue
            self.counters.found += 1
            path = join_path(item.path, part.name)
            here.post(self._rank, [Folder(item.root, path, weight, identity, part.listed())])

    def _blocks(self, item: Folder, fd: int) -> Iterator[Block]:
        if item.only is None:
            yield from blocks(fd)
        else:
            yield Picked(fd, item.only.text, follow=False)

    def _scan(self, item: Folder, fd: int, identity: Identity, here: Here[Item]) -> None:
        weight = item.weight
        for block in self._blocks(item, fd):
            self._choose(block, item.path)
            only = block.below
            files = [os.fsencode(name) for name in block.files]
            folders = [(os.fsencode(name), only.get(name)) for name in block.directories]
            share = weight if block.last else weight / 2
            weight -= share
            each = share / max(1, len(files) + len(folders))
            self.counters.found += len(files) + len(folders)
            self.counters.scans_due += len(folders)
            self.counters.weight += share if not files and not folders else 0.0
            root, path = item.root, item.path
            here.spawn([Folder(root, join_path(path, n), each, identity, o) for n, o in folders])
            parts = [files[at : at + _BATCH_NAMES] for at in range(0, len(files), _BATCH_NAMES)]
            here.spawn([Files(root, path, b"\0".join(part), each, identity) for part in parts])

    # ---- reading ---------------------------------------------------------------

    def _files(self, item: Files, here: Here[Item]) -> None:
        names = item.names.split(b"\0")
        until_s = time.monotonic() + _BATCH_S
        found: list[Digest] = []
        try:
            with self._directories.lease(item.root, item.path, item.directory) as lease:
                while names and not here.stopping:
                    name = names.pop()
                    path = join_path(item.path, name)
                    self.counters.weight += item.weight
                    try:
                        digest = self._digest(name, lease.fd, FLAGS)
                    except OSError as error:
                        self._fail(item.root, path, "read", error, here)
                    else:
                        found.append(Digest(self._shown(item.root, path), digest))
                    if time.monotonic() > until_s:
                        break
        except OSError as error:
            for name in names:
                self._fail(item.root, join_path(item.path, name), "reach", error, here)
            names = []
        here.note(found)
        half = (len(names) + 1) // 2
        parts = [part for part in (names[:half], names[half:]) if part]
        here.spawn([msgspec.structs.replace(item, names=b"\0".join(part)) for part in parts])

    def _compare(self, item: Expected, here: Here[Item]) -> None:
        until_s = time.monotonic() + _BATCH_S
        here_dir = self._plan.roots[0].holder
        done = 0
        for path, digest in zip(item.paths, item.digests, strict=True):
            done += 1
            self.counters.weight += item.weight
            full = os.path.join(self._plan.directory, here_dir, path)
            try:
                found = self._digest(full, None, FLAGS & ~os.O_NOFOLLOW)
            except FileNotFoundError:
                self.counters.sized += 1
                self.counters.special += 1
                here.note([Difference("missing", path)])
            except OSError as error:
                self._fail(0, path, "read", error, here)
            else:
                if found != digest:
                    here.note([Difference("changed", path)])
            if here.stopping or time.monotonic() > until_s:
                break
        middle = (done + len(item.paths) + 1) // 2
        change = msgspec.structs.replace
        parts = ((done, middle), (middle, len(item.paths)))
        here.spawn(
            [
                change(item, paths=item.paths[a:b], digests=item.digests[a:b])
                for a, b in parts
                if a < b
            ]
        )

    def _digest(self, name: bytes, directory_fd: int | None, flags: int) -> bytes:
        """The digest of a regular file, in hexadecimal. OSError."""
        hasher = new_hasher(self._plan.algorithm)
        fd = os.open(name, flags, dir_fd=directory_fd)
        try:
            before = os.fstat(fd)
            if not stat.S_ISREG(before.st_mode):
                what = special_kind(before.st_mode) or "directory"
                raise Trouble(SPECIAL, f"it is a {what}: only regular files have a checksum")
            at = 0
            while True:
                if before.st_size > _PIECE_BYTES and not at % _AHEAD_BYTES:
                    os.posix_fadvise(fd, at, 2 * _AHEAD_BYTES, os.POSIX_FADV_WILLNEED)
                count = os.readv(fd, [self._piece])
                if not count:
                    break
                hasher.update(self._piece[:count])
                at += count
            if before.st_size:  # files of /proc have content, and no size
                check_same(before, os.fstat(fd))
        finally:
            os.close(fd)
        self.counters.bytes_found += at
        self.counters.bytes_done += at
        self.counters.sized += 1
        self.counters.files += 1
        return hasher.digest().hex().encode()

    # ---- failures --------------------------------------------------------------

    def _shown(self, root: int, path: bytes) -> bytes:
        base = self._plan.roots[root]
        if base.name or self._plan.listed:
            return path if self._plan.listed else base.shown
        return os.path.join(base.shown, path) if path else base.shown

    def _fail(
        self,
        root: int,
        path: bytes,
        doing: str,
        error: OSError,
        here: Here[Item],
        *,
        sized: bool = False,
    ) -> None:
        self.counters.failed += 1
        if not sized:
            self.counters.sized += 1
        shown = self._shown(root, path)
        here.note([Failure(shown, doing, *told(error), root, path, kind_of(error))])
