"""Computes digests of whole files, for ``--format coreutils`` and to check checksum lists.

Directories are walked as for a signature. Ranks send digests to rank 0, which sorts them in bounded
memory and prints them at the end. For a check, files are opened by the paths in the list, as in
sha256sum, even if they are outside the root.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, TypeAlias

import msgspec

from pcircle.core.buffers import aligned
from pcircle.core.encoding import show
from pcircle.fs.data import ReadEffects
from pcircle.fs.directories import HOLDER, Lease, close_open, join_path
from pcircle.fs.entry_errors import SPECIAL, EntryError, errno_and_reason, kind_of, special_kind
from pcircle.fs.lists import Lists
from pcircle.fs.open_flags import OPEN_FILE
from pcircle.fs.scan import Block
from pcircle.jobs.action_log import ActionLines, ActionLog
from pcircle.jobs.failures import Failure, NoticeSink, RecallNotice, report_effects
from pcircle.jobs.tree_task import EntryVisitor, ItemState, TreeItem, TreeTask
from pcircle.ops.digest.checksums import ChecksumLine as Line
from pcircle.ops.digest.checksums import new_hasher
from pcircle.runtime import Context, PartedTask
from pcircle.tools.fsum.plan import LARGE_BYTES, Difference, Digest, SumCounters, SumPlan
from pcircle.tools.fsum.reader import check_same
from pcircle.walk.items import ANYWHERE, Batch, Portion, Tree, handed_back
from pcircle.walk.open_directory import BATCH_S, ItemContext, Open
from pcircle.walk.visitor import Names, Where

_PIECE_BYTES = 512 << 10
_AHEAD_BYTES = 8 << 20
_LISTED_NAMES = 256


class Expected(msgspec.Struct, frozen=True, array_like=True, tag="e", gc=False):
    """An item that compares files with the digests of a checksum list."""

    paths: tuple[bytes, ...]
    digests: tuple[bytes, ...]
    weight: float  # the share of each file


Notice: TypeAlias = Failure | RecallNotice | Digest | Difference | ActionLines


class WholeTask(  # pyright: ignore[reportGeneralTypeIssues]
    TreeTask, PartedTask[Tree | Portion | Batch | Expected, dict[int, int]]
):
    """The digest task of one rank or thread; on rank 0, `expected` is the list to check."""

    notice_type: ClassVar[object] = Notice
    counters_type: ClassVar[type[SumCounters]] = SumCounters
    counters: SumCounters
    plan: SumPlan

    def __init__(
        self,
        plan: SumPlan,
        rank: int,
        lists: Lists | None = None,
        first: TreeTask | None = None,
        *,
        expected: Sequence[Line] = (),
    ) -> None:
        super().__init__(plan, rank, lists, first)
        self._expected = expected

    def begin(self) -> None:
        self.digester: FileDigester = FileDigester(self.plan, self.counters)
        self.log: ActionLog | None = self.plan.action_log(self.rank)

    def seed(self) -> Iterator[Any]:
        if self.plan.listed:
            total = len(self._expected)
            self.counters.found += total
            for start in range(0, total, _LISTED_NAMES):
                batch = self._expected[start : start + _LISTED_NAMES]
                paths, digests = zip(*((entry.path, entry.digest) for entry in batch), strict=True)
                yield Expected(paths, digests, 1.0 / total)
            return
        weight = 1.0 / len(self.plan.roots)
        for number, root in enumerate(self.plan.roots):
            self.counters.found += 1
            if root.name:
                yield Batch(number, HOLDER, root.name, b"", weight, ANYWHERE)
            else:
                self.counters.scans_due += 1
                only = None if self.lists is None else self.lists.parts[number].listed
                yield Tree(number, b"", weight, only=only)

    def process(self, item: TreeItem | Expected, context: Context[Any]) -> ItemState:
        if not isinstance(item, Expected):
            return super().process(item, context)
        self._compare(item, context)
        return {}

    def _compare(self, item: Expected, context: Context[Expected]) -> None:
        until_s = time.monotonic() + BATCH_S
        here_dir = self.plan.roots[0].holder
        done = 0
        for path, digest in zip(item.paths, item.digests, strict=True):
            done += 1
            self.counters.weight += item.weight
            full = os.path.join(self.plan.directory, here_dir, path)
            self.digester.read_from_list(path, context)
            try:
                found = self.digester.digest(full, None, OPEN_FILE & ~os.O_NOFOLLOW)
            except FileNotFoundError:
                self.counters.sized += 1
                self.counters.special += 1
                self.counters.missing += 1
                context.note([Difference("missing", path)])
            except OSError as error:
                self.counters.sized += 1
                self.counters.failed += 1
                context.note([failure_in(self.plan, 0, path, "read", error)])
            else:
                self.counters.compared += 1
                if self.log is not None:
                    self.log.done("check", 0, path, "", said=f"checked '{show(path)}'\n".encode())
                if found != digest:
                    context.note([Difference("changed", path)])
            if context.stopping or time.monotonic() > until_s:
                break
        if self.log is not None:
            self.log.tell(context)
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


class FileDigester:
    """Computes the digests of files on one thread."""

    def __init__(self, plan: SumPlan, counters: SumCounters) -> None:
        self._plan = plan
        self._counters = counters
        self._piece = aligned(_PIECE_BYTES)
        self.effects: ReadEffects = ReadEffects(counters, follow=plan.listed, noatime=plan.noatime)

    def read_from_list(self, path: bytes, context: NoticeSink) -> None:
        """Set the listed path under which a recall of an offline file is reported."""
        report_effects(self.effects, lambda root, full: path, context)

    def digest(
        self, name: bytes, directory_fd: int | None, flags: int, max_bytes: int | None = None
    ) -> bytes | None:
        """Return the hexadecimal digest of a regular file, or None if it exceeds `max_bytes`.

        Raise OSError if the file cannot be read or has changed.
        """
        hasher = new_hasher(self._plan.algorithm)
        fd = self.effects.open(name, flags, dir_fd=directory_fd)
        try:
            before = os.fstat(fd)
            if not stat.S_ISREG(before.st_mode):
                what = special_kind(before.st_mode) or "directory"
                raise EntryError(SPECIAL, f"it is a {what}: only regular files have a checksum")
            if max_bytes is not None and before.st_size > max_bytes:
                return None
            self.effects.see(name, directory_fd, before)
            at = 0
            while True:
                if before.st_size > _PIECE_BYTES and not at % _AHEAD_BYTES:
                    os.posix_fadvise(fd, at, 2 * _AHEAD_BYTES, os.POSIX_FADV_WILLNEED)
                count = os.readv(fd, [self._piece])
                if not count:
                    break
                hasher.update(self._piece[:count])
                at += count
            if before.st_size:  # files in /proc have content although their size is 0
                check_same(before, os.fstat(fd))
        finally:
            close_open(fd)
        self._counters.bytes_found += at
        self._counters.bytes_done += at
        self._counters.sized += 1
        self._counters.files += 1
        return hasher.digest().hex().encode()


class WholeFiles(EntryVisitor):
    """The visitor that computes the digest of each file and ignores other entries."""

    task: WholeTask

    def __init__(self, task: WholeTask) -> None:
        super().__init__(task)
        self._found: list[Digest] = []  # the digests of the current item

    def begin(self, item: object, context: Context[object]) -> None:
        report_effects(self.task.digester.effects, self.task.plan.shown, context)

    def meant(self, opened: Open[int], blocks: Iterable[Block], source: Lease) -> Iterable[Block]:
        """Select files and directories, because other entries have no digests."""
        for block in blocks:
            block.links, block.specials = [], []
            yield block

    def end(self, context: Context[object], opens: Sequence[Open[int]]) -> None:
        found, self._found = self._found, []
        context.note(found)
        if self.task.log is not None:
            self.task.log.tell(context)

    def names(
        self, where: Where, names: Names, fds: tuple[int, int], context: ItemContext[int]
    ) -> None:
        """Compute digests; spawn the remaining names if the batch takes too long.

        A large file becomes a separate item, so that subdirectories need not wait for it.
        """
        until_s = time.monotonic() + BATCH_S
        files, weight = names.files, where.weight
        plan, digest_of = self.task.plan, self.task.digester.digest
        max_bytes = LARGE_BYTES if isinstance(where, Open) else None
        self.task.digester.effects.place = where.root, where.path
        for done, name in enumerate(files, 1):
            path = join_path(where.path, name)
            try:
                digest = digest_of(name, fds[0], OPEN_FILE, max_bytes)
            except OSError as error:
                self.counters.weight += weight
                self.counters.sized += 1
                self.fail(where.root, path, "read", error, context)
            else:
                if digest is None:
                    context.spawn(list(handed_back(where, [name])))
                else:
                    self.counters.weight += weight
                    self._found.append(Digest(plan.shown(where.root, path), digest))
                    if self.task.log is not None:
                        self.task.log.entry("read", where.root, where.path, name)
            if time.monotonic() > until_s or context.stopping:
                context.spawn(list(handed_back(where, files[done:])))
                break

    def fail(self, root: int, path: bytes, doing: str, error: OSError, context: NoticeSink) -> None:
        self.counters.failed += 1
        context.note([failure_in(self.task.plan, root, path, doing, error)])


WholeTask.visitor_type = WholeFiles


def failure_in(plan: SumPlan, root: int, path: bytes, doing: str, error: OSError) -> Failure:
    """Return the failure of an entry below a root or in a list."""
    shown = plan.shown(root, path)
    return Failure(shown, doing, *errno_and_reason(error), root, path, kind_of(error))
