"""Reports entries that exist on one side only, or records them as possible moves."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import xxhash

from pcircle.core.buffers import aligned
from pcircle.core.units import timestamp
from pcircle.fs.directories import Lease, closing_fd, join_path
from pcircle.fs.entry_errors import Changed
from pcircle.fs.open_flags import OPEN_FILE
from pcircle.fs.scan import Block, encoded
from pcircle.jobs.tree_task import EntryVisitor, TreeItem
from pcircle.runtime import Context
from pcircle.tools.fdiff.plan import (
    ONLY_A,
    DiffCounters,
    DiffItem,
    ExtraneousLookup,
    OneSidedFile,
)
from pcircle.walk.items import DirectoryIdentity, Tree
from pcircle.walk.open_directory import ItemContext, Open
from pcircle.walk.visitor import Names, Where

if TYPE_CHECKING:
    from pcircle.tools.fdiff.reporter import ComparisonTask

KINDS: Final = ("files", "links", "specials", "directories")
"""The names of a `Block`'s lists, one for each kind of entry."""
_MODES: Final = {"files": stat.S_IFREG, "links": stat.S_IFLNK, "directories": stat.S_IFDIR}
_READ_BYTES = 1 << 20


class OneSidedReporter:
    """Reports entries that exist on one side only.

    Each thread has its own instance.
    """

    def __init__(self, task: ComparisonTask) -> None:
        self._plan = task.plan
        self._counters: DiffCounters = task.counters
        self._reporter = task.reporter
        self._fail = task.fail_side
        self._buffer: memoryview | None = None

    def tell(
        self,
        side: int,
        within: Where | ExtraneousLookup,
        found: Mapping[str, Sequence[bytes]],
        fd: int,
        context: Context[DiffItem],
        *,
        inside: bool = False,
    ) -> None:
        """Report entries of an open directory that exist on one side only.

        `found` contains their names by kind. If `inside` is set, the directory itself exists on one
        side only. The walk that found them then enters the subdirectories itself; otherwise `tell`
        passes these to `enter`.
        """
        reported = self._plan.reports_all or not inside
        for kind, names in found.items():
            for name in names:
                path = join_path(within.path, name)
                try:
                    self._tell(side, path, kind, name, fd, context, reported=reported)
                except OSError as error:
                    self._counters.sized += 1
                    self._fail(side, path, "read", error, context)
        if not inside:
            self.enter(side, within, found.get("directories", ()), context)

    def _tell(
        self,
        side: int,
        path: bytes,
        kind: str,
        name: bytes,
        fd: int,
        context: Context[DiffItem],
        *,
        reported: bool,
    ) -> None:
        counters, mode = self._counters, _MODES.get(kind, 0)
        if not mode:
            mode = os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode
        if kind == "files" and self._plan.moves:
            self._keep(side, path, name, fd, context, reported=reported)
        else:
            self._reporter.alone(side, path, mode, reported=reported)
        counters.sized += 1
        if kind != "directories":
            counters.count(mode)

    def _keep(
        self,
        side: int,
        path: bytes,
        name: bytes,
        fd: int,
        context: Context[DiffItem],
        *,
        reported: bool,
    ) -> None:
        """Record a file that may have moved, so that rank 0 can pair it at the end."""
        status = os.stat(name, dir_fd=fd, follow_symlinks=False)
        digest = b""
        if self._plan.by_content and status.st_size:
            digest = self._digest(name, fd, context)
        size, mtime = status.st_size, timestamp(status.st_mtime_ns)
        context.note([OneSidedFile(side, path, size, mtime, digest, status.st_mode, reported)])

    def _digest(self, name: bytes, directory_fd: int, context: Context[DiffItem]) -> bytes:
        if self._buffer is None:
            self._buffer = aligned(_READ_BYTES)
        digest = xxhash.xxh3_128()
        with closing_fd(os.open(name, OPEN_FILE, dir_fd=directory_fd)) as fd:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise Changed("it is no longer a regular file")
            while (count := os.readv(fd, [self._buffer])) and not context.stopping:
                digest.update(self._buffer[:count])
                self._counters.bytes_found += count
                self._counters.bytes_done += count
        return digest.digest()

    def enter(
        self,
        side: int,
        within: Where | ExtraneousLookup,
        names: Sequence[bytes],
        context: Context[DiffItem],
    ) -> None:
        """Spawn a walk of one-sided directories if the plan requires it; otherwise count them."""
        if not names:
            return
        if not self._plan.enters or (side and self._plan.one_sided):
            self._counters.directories += len(names)
            return
        identity = within.place.target if side else within.place.source
        self._counters.scans_due += len(names)
        place, packed = DirectoryIdentity(identity), b"\0".join(names)
        context.spawn([Tree(ONLY_A + side, within.path, 0.0, packed, place, within.slot)])


class OneSidedVisitor(EntryVisitor):
    """Visits directories that exist on one side only.

    Each thread has its own instance.
    """

    task: ComparisonTask
    counters: DiffCounters
    in_place = True

    def __init__(self, task: ComparisonTask) -> None:
        super().__init__(task)
        self._one_sided = OneSidedReporter(task)

    def send_reports(self, context: Context[DiffItem]) -> None:
        self.task.reporter.tell(context)

    def end(self, context: Context[DiffItem], opens: Sequence[Open[int]]) -> None:
        self.send_reports(context)

    def fail(
        self, root: int, path: bytes, doing: str, error: OSError, context: Context[TreeItem]
    ) -> None:
        """Report a failure on the side to which the root belongs."""
        self.task.fail_side(root - ONLY_A, path, doing, error, context)

    def meant(self, opened: Open[int], blocks: Iterable[Block], source: Lease) -> Iterator[Block]:
        """Report subdirectories as they are found."""
        for block in blocks:
            found = {"directories": encoded(block.directories)}
            self._one_sided.tell(
                opened.root - ONLY_A, opened, found, source.fd, self._context, inside=True
            )
            # `tell` has counted these subdirectories in `sized`; undo that, because the walk counts
            # each one when it enters it.
            self.counters.sized -= len(block.directories)
            yield block

    def names(
        self, where: Where, names: Names, fds: tuple[int, int], context: ItemContext[int]
    ) -> None:
        found = {kind: getattr(names, kind) for kind in KINDS if kind != "directories"}
        self.counters.weight += where.weight * len(names)
        self._one_sided.tell(where.root - ONLY_A, where, found, fds[0], context, inside=True)
