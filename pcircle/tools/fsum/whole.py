"""`--format coreutils`: the digest of each whole file, many files at a time.

Directories are walked as for a signature. Digests go to rank 0, which sorts them in bounded memory
and prints them at the end. For a check, the files of a list are looked up by name, as in sha256sum,
even outside the root.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, TypeAlias

import msgspec

from pcircle.core.buffers import aligned
from pcircle.core.guards import require_type
from pcircle.fs.data import Recalls, close_read
from pcircle.fs.directories import HOLDER, Lease, join_path
from pcircle.fs.entry_errors import SPECIAL, EntryError, errno_and_reason, kind_of, special_kind
from pcircle.fs.lists import Lists
from pcircle.fs.open_flags import OPEN_FILE
from pcircle.fs.scan import Block
from pcircle.jobs.failures import Failure, FailureReporter, RecallNotice, tell_recalls
from pcircle.ops.digest.checksums import ChecksumLine as Line
from pcircle.ops.digest.checksums import new_hasher
from pcircle.runtime import Context
from pcircle.tools.fsum.plan import LARGE_BYTES, Counters, Difference, Digest, Plan
from pcircle.tools.fsum.reader import check_same
from pcircle.walk.items import Batch, DirectoryIdentity, Portion, Tree, handed_back
from pcircle.walk.open_directory import ItemContext, Open
from pcircle.walk.tasks import WalkTask
from pcircle.walk.visitor import Names, Visitor, Where
from pcircle.walk.walker import Walker

_PIECE_BYTES = 512 << 10
_AHEAD_BYTES = 8 << 20
_LISTED_NAMES = 256
_BATCH_S = 0.1


class Expected(msgspec.Struct, frozen=True, array_like=True, tag="e", gc=False):
    """Compute and compare the digests of listed files."""

    paths: tuple[bytes, ...]
    digests: tuple[bytes, ...]
    weight: float  # the share of each file


Item: TypeAlias = Tree | Portion | Batch | Expected
Notice: TypeAlias = Failure | RecallNotice | Digest | Difference


class WholeTask(WalkTask[Item, bool]):
    """The digest task of one rank. Rank 0 has `expected`, a list to check, and `lists`.

    With `first` it is the task of another worker thread of that rank.
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
        super().__init__(rank, lists, plan.threads)
        self.counters = Counters()
        self._plan = plan
        self._expected = expected
        self.directories = plan.reach(is_first=first is None)
        self._files = WholeFiles(plan, self.counters)
        self._walker = Walker(
            self._files, plan.scope, self.directories, None, self.counters, rank, lists
        )

    def beside(self, number: int) -> WholeTask:
        return WholeTask(self._plan, self.rank, (), self.lists, self)

    def seed(self) -> Iterator[Item]:
        if self._plan.listed:
            total = len(self._expected)
            self.counters.found += total
            for start in range(0, total, _LISTED_NAMES):
                batch = self._expected[start : start + _LISTED_NAMES]
                paths, digests = zip(*((entry.path, entry.digest) for entry in batch), strict=True)
                yield Expected(paths, digests, 1.0 / total)
            return
        weight = 1.0 / len(self._plan.roots)
        for number, root in enumerate(self._plan.roots):
            self.counters.found += 1
            if root.name:
                yield Batch(number, HOLDER, root.name, b"", weight, None)
            else:
                self.counters.scans_due += 1
                only = None if self.lists is None else self.lists.parts[number].listed
                yield Tree(number, b"", weight, only=only)

    def process(self, item: Item, context: Context[Item]) -> Any:
        if not isinstance(item, Expected):
            return self.walked(item, context)
        self._compare(item, context)
        return True

    def merge(self, a: bool, b: bool) -> bool:
        return a and b

    def join(self, item: Item, own: Any, merged: bool, context: Context[Item]) -> bool:
        if isinstance(own, list):
            complete: bool = self._walker.join(own, {}, context)
            return complete
        return merged if own is None else self.merge(require_type(bool, own), merged)

    def _compare(self, item: Expected, context: Context[Item]) -> None:
        until_s = time.monotonic() + _BATCH_S
        here_dir = self._plan.roots[0].holder
        done = 0
        for path, digest in zip(item.paths, item.digests, strict=True):
            done += 1
            self.counters.weight += item.weight
            full = os.path.join(self._plan.directory, here_dir, path)
            self._files.read_from_list(path, context)
            try:
                found = self._files.digest(full, None, OPEN_FILE & ~os.O_NOFOLLOW)
            except FileNotFoundError:
                self.counters.sized += 1
                self.counters.special += 1
                self.counters.missing += 1
                context.note([Difference("missing", path)])
            except OSError as error:
                self._files.accounts.fail(0, path, "read", error, context)
            else:
                self.counters.compared += 1
                if found != digest:
                    context.note([Difference("changed", path)])
            if context.stopping or time.monotonic() > until_s:
                break
        middle = (done + len(item.paths) + 1) // 2
        change = msgspec.structs.replace
        parts = ((done, middle), (middle, len(item.paths)))
        context.spawn(
            [
                change(item, paths=item.paths[a:b], digests=item.digests[a:b])
                for a, b in parts
                if a < b
            ]
        )


class WholeFiles(Visitor[bool]):
    """The visitor that computes the digest of each file, and ignores other entries.

    The result of a directory is only that it is complete.
    """

    nothing: ClassVar[bool] = True

    def __init__(self, plan: Plan, counters: Counters) -> None:
        self._plan = plan
        self._counters = counters
        self.accounts = WholeAccounts(plan, counters)
        self._piece = aligned(_PIECE_BYTES)
        self._found: list[Digest] = []  # digests of the current item
        self._recalls = Recalls(counters, follow=plan.listed)

    def begin(self, item: Any, context: Context[Any]) -> None:
        tell_recalls(self._recalls, self._plan.shown, context)

    def read_from_list(self, path: bytes, context: Context[Any]) -> None:
        """Set the next file of a list."""
        tell_recalls(self._recalls, lambda root, full: path, context)

    # ---- directories -----------------------------------------------------------

    def enter(self, opened: Open[bool], source: Lease, holder: Open[bool] | None) -> Lease | None:
        self._reached()
        opened.place = DirectoryIdentity(source.identity)
        return None

    def _reached(self) -> None:
        self._counters.scans_done += 1
        self._counters.sized += 1

    def meant(self, opened: Open[bool], blocks: Iterable[Block], source: Lease) -> Iterable[Block]:
        """Select files and directories: other entries have no digests."""
        for block in blocks:
            block.links, block.specials = [], []
            yield block

    def leave(self, opened: Open[bool], context: Context[Any]) -> bool:
        self._counters.directories += 1
        return True

    def failed(self, opened: Open[bool], error: OSError, context: Context[Any]) -> None:
        if opened.place is None:
            self._reached()
        where = opened.root, opened.path
        self.accounts.fail(*where, "read directory", error, context, sized=True)

    def lost(self, opened: Open[bool]) -> bool:
        return True

    def merge(self, a: bool, b: bool) -> bool:
        return True

    def end(self, context: Context[Any], opens: Sequence[Open[bool]]) -> None:
        found, self._found = self._found, []
        context.note(found)

    def taken(self) -> bool:
        return True

    # ---- files -----------------------------------------------------------------

    def names(
        self, where: Where, names: Names, fds: tuple[int, int], context: ItemContext[bool]
    ) -> None:
        """Compute digests; hand back the remaining names if the batch takes too long.

        A large file is an item of its own, so that subdirectories need not wait for it.
        """
        until_s = time.monotonic() + _BATCH_S
        files, weight = names.files, where.weight
        max_bytes = LARGE_BYTES if isinstance(where, Open) else None
        self._recalls.place = where.root, where.path
        for done, name in enumerate(files, 1):
            path = join_path(where.path, name)
            try:
                digest = self.digest(name, fds[0], OPEN_FILE, max_bytes)
            except OSError as error:
                self._counters.weight += weight
                self.accounts.fail(where.root, path, "read", error, context)
            else:
                if digest is None:
                    context.spawn(list(handed_back(where, [name])))
                else:
                    self._counters.weight += weight
                    self._found.append(Digest(self._plan.shown(where.root, path), digest))
            if time.monotonic() > until_s or context.stopping:
                context.spawn(list(handed_back(where, files[done:])))
                break

    def digest(
        self, name: bytes, directory_fd: int | None, flags: int, max_bytes: int | None = None
    ) -> bytes | None:
        """Return the digest of a regular file in hexadecimal; None if it is too large. OSError."""
        hasher = new_hasher(self._plan.algorithm)
        fd = os.open(name, flags, dir_fd=directory_fd)
        try:
            before = os.fstat(fd)
            if not stat.S_ISREG(before.st_mode):
                what = special_kind(before.st_mode) or "directory"
                raise EntryError(SPECIAL, f"it is a {what}: only regular files have a checksum")
            if max_bytes is not None and before.st_size > max_bytes:
                return None
            self._recalls.see(name, directory_fd, before)
            at = 0
            while True:
                if before.st_size > _PIECE_BYTES and not at % _AHEAD_BYTES:
                    os.posix_fadvise(fd, at, 2 * _AHEAD_BYTES, os.POSIX_FADV_WILLNEED)
                count = os.readv(fd, [self._piece])
                if not count:
                    break
                hasher.update(self._piece[:count])
                at += count
            if before.st_size:  # files in /proc have content but size 0
                check_same(before, os.fstat(fd))
        finally:
            close_read(fd)
        self._counters.bytes_found += at
        self._counters.bytes_done += at
        self._counters.sized += 1
        self._counters.files += 1
        return hasher.digest().hex().encode()

    # ---- failures --------------------------------------------------------------

    def unreached(self, where: Where, name: bytes, error: OSError, context: Context[Any]) -> None:
        self.accounts.fail(where.root, join_path(where.path, name), "reach", error, context)


class WholeAccounts(FailureReporter):
    """Counts and reports the failures of one worker thread."""

    def __init__(self, plan: Plan, counters: Counters) -> None:
        super().__init__(counters)
        self._plan = plan

    def failure(self, root: int, path: bytes, doing: str | None, error: OSError) -> Failure:
        shown = self._plan.shown(root, path)
        return Failure(shown, doing or "read", *errno_and_reason(error), root, path, kind_of(error))
