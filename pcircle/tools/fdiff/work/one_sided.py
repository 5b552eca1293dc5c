"""Reports entries that exist on one side only, or records them as possible moves."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

import xxhash

from pcircle.core.buffers import aligned
from pcircle.core.units import timestamp
from pcircle.fs.directories import Lease, join_path
from pcircle.fs.entry_errors import Changed
from pcircle.fs.open_flags import OPEN_FILE
from pcircle.fs.scan import Block, encoded
from pcircle.jobs.failures import NoticeSink, failure_of
from pcircle.jobs.tree_task import EntryVisitor, TreeItem
from pcircle.runtime import Context
from pcircle.tools.fdiff.plan import ONLY_A, DiffCounters, DiffItem, DiffPlan, OneSidedFile
from pcircle.tools.fdiff.reporter import DiffReporter
from pcircle.walk.items import DirectoryIdentity, Tree
from pcircle.walk.open_directory import ItemContext, Open
from pcircle.walk.visitor import Names, Where

if TYPE_CHECKING:
    from pcircle.tools.fdiff.reporter import ComparisonTask

KINDS: Final = ("files", "links", "specials", "directories")
"""The names of a `Block`'s lists, one for each kind of entry."""
_MODES: Final = {"files": stat.S_IFREG, "links": stat.S_IFLNK, "directories": stat.S_IFDIR}
_READ_BYTES = 1 << 20

FailSide = Callable[[int, bytes, str, OSError, NoticeSink], None]
"""Reports a failure; called with the side, path, operation, error and context."""


class DirectoryRef(Protocol):
    """A directory that contains entries to report: an `Open`, `Batch` or `ExtraneousLookup`."""

    @property
    def path(self) -> bytes: ...
    @property
    def place(self) -> DirectoryIdentity: ...
    @property
    def slot(self) -> int: ...


class EntryContext(NoticeSink, Protocol):
    """The part of a `Context` that is needed to report entries and to walk their subtrees."""

    @property
    def stopping(self) -> bool: ...
    def spawn(self, items: Sequence[Tree], /) -> None: ...


class OneSidedReporter:
    """Reports entries that exist on one side only.

    Each thread has its own instance.
    """

    def __init__(
        self, plan: DiffPlan, counters: DiffCounters, reporter: DiffReporter, fail: FailSide
    ) -> None:
        self._plan = plan
        self._counters = counters
        self._reporter = reporter
        self._fail = fail
        self._buffer: memoryview | None = None

    def tell(
        self,
        side: int,
        within: DirectoryRef,
        found: Mapping[str, Sequence[bytes]],
        fd: int,
        context: EntryContext,
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
        context: EntryContext,
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
        if kind == "files":
            counters.files += 1
        elif kind == "links":
            counters.links += 1
        elif kind == "specials":
            counters.special += 1

    def _keep(
        self,
        side: int,
        path: bytes,
        name: bytes,
        fd: int,
        context: EntryContext,
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

    def _digest(self, name: bytes, directory_fd: int, context: EntryContext) -> bytes:
        if self._buffer is None:
            self._buffer = aligned(_READ_BYTES)
        digest = xxhash.xxh3_128()
        fd = os.open(name, OPEN_FILE, dir_fd=directory_fd)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise Changed("it is no longer a regular file")
            while (count := os.readv(fd, [self._buffer])) and not context.stopping:
                digest.update(self._buffer[:count])
                self._counters.bytes_found += count
                self._counters.bytes_done += count
        finally:
            os.close(fd)
        return digest.digest()

    def enter(
        self, side: int, within: DirectoryRef, names: Sequence[bytes], context: EntryContext
    ) -> None:
        """Spawn a walk of one-sided directories if the plan requires it; otherwise count them."""
        if not names:
            return
        if not self._plan.enters or (side and self._plan.one_sided):
            self._counters.directories += len(names)
            return
        place = within.place
        identity = place.target if side else place.source
        self._counters.scans_due += len(names)
        packed = b"\0".join(names)
        context.spawn(
            [
                Tree(
                    ONLY_A + side,
                    within.path,
                    0.0,
                    packed,
                    DirectoryIdentity(identity),
                    within.slot,
                )
            ]
        )


class OneSidedVisitor(EntryVisitor):
    """Visits directories that exist on one side only.

    Each thread has its own instance.
    """

    task: ComparisonTask
    counters: DiffCounters

    def __init__(self, task: ComparisonTask) -> None:
        super().__init__(task)
        self._reporter = task.reporter
        self._one_sided = OneSidedReporter(task.plan, self.counters, task.reporter, self._fail_side)

    in_place = True

    def send_reports(self, context: Context[DiffItem]) -> None:
        self._reporter.tell(context)

    def end(self, context: Context[DiffItem], opens: Sequence[Open[int]]) -> None:
        self.send_reports(context)

    def fail(
        self, root: int, path: bytes, doing: str, error: OSError, context: Context[TreeItem]
    ) -> None:
        """Report a failure on the side to which the root belongs."""
        self._fail_side(root - ONLY_A, path, doing, error, context)

    def _fail_side(
        self, side: int, path: bytes, doing: str, error: OSError, context: NoticeSink
    ) -> None:
        self.counters.failed += 1
        root = self.task.plan.roots[ONLY_A + side]
        context.note([failure_of(root, side, path, doing, error)])

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
