"""`--moved`: before the copy, renames files that only have a different path in the source.

There are three jobs. The first compares both sides like a dry run, finds the files that the target
lacks, and refuses to start in the same cases as a mirror. The second walks the extraneous entries
without removing them, and reports the size and time of each file. Rank 0 pairs missing files with
extraneous files of the same size and time. The third job reads both files of each pair. If their
bytes are equal, it renames the target's file to the source's path. It never replaces an entry, and
skips a pair that has changed or cannot be renamed.

The mirror that follows finds the renamed files at their new paths, and compares everything again.
Files that were not renamed are copied and removed as usual. If removals are withheld, nothing is
renamed.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, nullcontext, suppress
from itertools import islice
from typing import IO, TYPE_CHECKING, Any, ClassVar
from zlib import compress, decompress

import msgspec

from pcircle.cli.program import ToolProgram, run_tool
from pcircle.cli.results import Results
from pcircle.core.encoding import show
from pcircle.core.errors import EntriesFailed, UsageError
from pcircle.core.units import Timestamp, timestamp
from pcircle.fs.directories import (
    Directories,
    Lease,
    bases,
    capacity_of,
    join_path,
    working_directory,
)
from pcircle.fs.naming import rename_to_free
from pcircle.fs.stats import CAPACITY, Stats
from pcircle.fs.write_access import Admissions, WriteAccess
from pcircle.jobs.action_log import ActionLines, ActionLog, ActionOutput
from pcircle.jobs.failures import decode
from pcircle.ops.compare.content import ContentComparer
from pcircle.ops.compare.statuses import Fds, open_files
from pcircle.ops.copy.tree.dry_run import DryVisitor
from pcircle.ops.copy.tree.items import Notice
from pcircle.runtime import Context, Observer, Outcome, Task
from pcircle.threads.throttle import BURST_S, Throttle
from pcircle.tools.fmirror.options import NO_OUTPUT, QUIET, MirrorOptions
from pcircle.tools.fmirror.plan import MirrorPlan, RenamedPaths
from pcircle.tools.fmirror.removal import DeletionConsole, DeletionProgram
from pcircle.tools.fmirror.report import MirrorConsole
from pcircle.tools.fmirror.work.dry import DryMirrorTask, DryMirrorVisitor
from pcircle.tools.fmirror.work.extraneous import ExtraneousPaths, Surplus
from pcircle.tools.fmirror.work.itemize import LinkedRecords
from pcircle.tools.fmirror.work.listing import ListingTimes
from pcircle.tools.fmirror.work.rename_pairs import (
    MissingFiles,
    RenameCandidates,
    RenamePair,
    RenameResult,
    ordered,
    packed,
)
from pcircle.walk.open_directory import Open
from pcircle.walk.visitor import Names, Where

if TYPE_CHECKING:
    from pcircle.ops.copy.tree.items import Item
    from pcircle.walk.roots import Root

_TOGETHER = 256
_NO_SUCH = (FileNotFoundError, NotADirectoryError)
MOVING = "*moving     "
_OPERATIONS = 8  # file operations per pair, for the limit of operations


class MissingFilesVisitor(DryMirrorVisitor):
    """Finds entries that exist on one side only, and does not compare any others."""

    def _begin_run(self, plan: MirrorPlan) -> None:
        self._looks = Stats(), Stats()
        self._missing: list[tuple[bytes, int, Timestamp]] = []
        self._links = plan.keep.links

    def enter(self, opened: Open[None], source: Lease, holder: Open[None] | None) -> Lease | None:
        return DryVisitor.enter(self, opened, source, holder)

    def _all(
        self, where: Where, names: Names, source_fd: int, target_fd: int, context: Context[Item]
    ) -> None:
        count = len(names)
        self.counters.skipped += count
        self.counters.sized += count
        self.counters.weight += where.weight * count
        for at in range(0, len(names.files), CAPACITY):
            batch = names.files[at : at + CAPACITY]
            missing = batch
            if target_fd >= 0:
                errors = self._looks[1].look_up(target_fd, batch)
                missing = [batch[place] for place, e in errors.items() if isinstance(e, _NO_SUCH)]
            self._find(where.path, missing, source_fd)
        if len(self._missing) >= _TOGETHER:
            self.tell(context)

    def _find(self, path: bytes, names: list[bytes], fd: int) -> None:
        """Record which of these missing files may exist under another path in the target."""
        if not names:
            return
        look = self._looks[0]
        gone = look.look_up(fd, names)  # the copy will encounter and report these errors
        for place, (name, row) in enumerate(zip(names, look.rows(len(names)), strict=True)):
            if place in gone or not stat.S_ISREG(row.st_mode) or not row.st_size:
                continue
            if not (self._links and row.st_nlink > 1):
                self._missing.append(
                    (join_path(path, name), row.st_size, timestamp(row.st_mtime_ns))
                )

    def tell(self, context: Context[Item]) -> None:
        """Send all findings to rank 0 at the end of an item."""
        alone, self._missing = self._missing, []
        for at in range(0, len(alone), _TOGETHER):
            context.note([MissingFiles(tuple(alone[at : at + _TOGETHER]))])
        super().tell(context)


class MissingFilesTask(DryMirrorTask):
    """The search of one rank for files that the target lacks."""

    notice_type: ClassVar[Any] = Notice | Surplus | LinkedRecords | ListingTimes | MissingFiles
    visitor_type: ClassVar[type[MissingFilesVisitor]] = MissingFilesVisitor


class MovePlan(msgspec.Struct, frozen=True):
    """The plan of the renames. Rates are per rank.

    If `dry` is set, nothing is renamed. If `flags` is set, immutable and append-only files are also
    renamed.
    """

    source: bytes
    target: bytes
    directory: bytes
    links: bool
    acts: ActionOutput
    dry: bool = False
    flags: bool = False
    bytes_per_s: float | None = None
    operations_per_s: float | None = None


class MoveTask(Task[bytes, tuple[int, int]]):
    """The renames on one rank.

    The result is the number of renamed files and the number of their bytes. Only rank 0 has any
    `items` at the start.
    """

    structured = False
    notice_type: ClassVar[Any] = ActionLines | RenamedPaths

    def __init__(self, plan: MovePlan, rank: int, items: Iterable[bytes]) -> None:
        self._items = items
        self._actions = ActionLog("fmirror", plan.acts, rank, planned=plan.dry)
        self._dry = plan.dry
        sides = bases([(plan.source, b""), (plan.target, b"")], plan.directory)
        self._directories = Directories(sides, capacity_of(is_first=True), written=True)
        self._links = plan.links
        self._access = WriteAccess(owner=True, flags=plan.flags)
        rates = plan.bytes_per_s, plan.operations_per_s
        limits = [None if rate is None else Throttle(rate, BURST_S) for rate in rates]
        self._read, self._done = limits
        self._stop: Callable[[], bool] = bool
        self._contents = ContentComparer(self._count)

    def _count(self, size: int) -> None:
        if self._read is not None:
            self._read.take(size, self._stop)

    def seed(self) -> Iterable[bytes]:
        return self._items

    def merge(self, a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
        return a[0] + b[0], a[1] + b[1]

    def close(self) -> None:
        """Release the directories."""
        self._directories.close()

    def process(self, item: bytes, context: Context[bytes]) -> tuple[int, int]:
        self._stop = context.is_stopping
        files = size = 0
        renamed = []
        for pair in msgspec.msgpack.decode(decompress(item), type=tuple[RenamePair, ...]):
            if context.stopping:
                break
            if self._done is not None:
                self._done.take(_OPERATIONS, context.is_stopping)
            try:
                moved = self._move(pair)
            except OSError:  # the copy and the deletions will encounter and report it
                continue
            if moved:
                files, size = files + 1, size + pair.size
                renamed.append(pair)
                said = f"{MOVING}{show(pair.old)} => {show(pair.new)}\n".encode()
                why = ("moved", f"from {show(pair.old)}")
                self._actions.done("move", 0, pair.new, "f", pair.size, said=said, why=why)
        self._actions.tell(context)
        if self._dry and renamed:
            new = b"".join(packed(pair.new) for pair in renamed)
            context.note([RenamedPaths(new, b"".join(packed(pair.old) for pair in renamed))])
        return files, size

    def _move(self, pair: RenamePair) -> bool:
        """Rename the target's file if it equals the source's. Return whether it was renamed.

        Raise OSError if the files cannot be compared or renamed.
        """
        above, name = os.path.split(pair.new)
        old_above, old_name = os.path.split(pair.old)
        if self._source_has(old_above, old_name):
            return False
        lease = self._directories.lease
        with (
            lease(0, above) as source,
            lease(1, old_above) as target,
            open_files(name, (source.fd, target.fd), old_name) as (fds, statuses),
        ):
            if not self._is_equal_pair(pair, fds, statuses):
                return False
            now = os.stat(old_name, dir_fd=target.fd, follow_symlinks=False)
            if not os.path.samestat(now, statuses[1]):
                return False
            if self._dry:
                return self._is_free(above, name)
            with (
                Admissions(self._access) as admissions,
                self._lease_or_create(above, admissions) as there,
            ):
                try:
                    rename_to_free(old_name, name, target.fd, there.fd)
                except PermissionError:
                    found = [admissions.admit(fd) for fd in (target.fd, there.fd, fds[1])]
                    if True not in found:
                        raise
                    rename_to_free(old_name, name, target.fd, there.fd)
                if os.fstat(fds[1]).st_ctime_ns == statuses[1].st_ctime_ns:
                    # A new change time makes the copy compare attributes.
                    os.utime(fds[1], ns=(statuses[1].st_atime_ns, statuses[1].st_mtime_ns))
        return True

    def _is_equal_pair(
        self, pair: RenamePair, fds: Fds, statuses: tuple[os.stat_result, os.stat_result]
    ) -> bool:
        """Return whether two open files are unchanged and equal, without other names that matter.

        Other names of the source's file matter only if hard links are preserved.
        """
        known = pair.size, pair.mtime.ns
        if any((status.st_size, status.st_mtime_ns) != known for status in statuses):
            return False
        if statuses[1].st_nlink > 1 or (self._links and statuses[0].st_nlink > 1):
            return False
        if not self._contents.same(fds, 0, pair.size):
            return False
        # An equal change time shows that the file was neither modified nor linked meanwhile.
        return all(
            os.fstat(fd).st_ctime_ns == status.st_ctime_ns
            for fd, status in zip(fds, statuses, strict=True)
        )

    def _source_has(self, above: bytes, name: bytes) -> bool:
        """Return whether an extraneous path has reappeared in the source.

        Raise OSError if that is unknown.
        """
        try:
            with self._directories.lease(0, above) as lease:
                os.stat(name, dir_fd=lease.fd, follow_symlinks=False)
        except _NO_SUCH:
            return False
        return True

    def _is_free(self, path: bytes, name: bytes) -> bool:
        """Return whether a file could be renamed to this name.

        Raise OSError if the name or its parent directory cannot be examined.
        """
        with suppress(FileNotFoundError), self._directories.lease(1, path) as lease:
            os.stat(name, dir_fd=lease.fd, follow_symlinks=False)
            return False
        while path:
            path = path.rpartition(b"/")[0]
            with suppress(FileNotFoundError), self._directories.lease(1, path):
                break
        return True

    def _lease_or_create(self, path: bytes, admissions: Admissions) -> Lease:
        """Lease a directory of the target, and create it and its parents if necessary.

        Raise OSError on failure.
        """
        missing: list[bytes] = []
        while True:
            try:
                lease = self._directories.lease(1, path)
                break
            except FileNotFoundError:
                if not path:
                    raise
                path, _, name = path.rpartition(b"/")
                missing.append(name)
        for name in reversed(missing):
            with lease, suppress(FileExistsError):  # another rank may have created it
                try:
                    os.mkdir(name, 0o700, dir_fd=lease.fd)
                except PermissionError:
                    if not admissions.admit(lease.fd):
                        raise
                    os.mkdir(name, 0o700, dir_fd=lease.fd)
            path = join_path(path, name)
            lease = self._directories.lease(1, path)
        return lease


_PAIRS_TOGETHER = 64
_LINE = msgspec.json.Decoder(tuple[int, str, str])


class ExtraneousFilesConsole(DeletionConsole):
    """Collects the files that would be removed, with their sizes and times."""

    _program: ExtraneousFilesProgram

    def notice(self, source: int, values: Sequence[object]) -> None:
        for value in values:
            for line in value.planned.splitlines() if isinstance(value, ActionLines) else ():
                _, path, mark = _LINE.decode(line)
                if mark.startswith("f,"):
                    _, size, mtime_ns = map(int, mark[2:].split(","))
                    if size:
                        self._program.candidates.add(1, decode(path), size, mtime_ns)


class ExtraneousFilesProgram(DeletionProgram):
    """The second job: finds the files that would be removed."""

    console_type: ClassVar[type[ExtraneousFilesConsole]] = ExtraneousFilesConsole

    def __init__(
        self,
        options: MirrorOptions,
        target: bytes,
        console: MirrorConsole | None,
        found: ExtraneousPaths,
    ) -> None:
        rules = () if console is None else console.rules
        options = options.replace(**NO_OUTPUT, **QUIET, max_delete=None, itemize=False)
        super().__init__(options, target, found, 0, dry=True, keeps=False, rules=rules)
        self.candidates: RenameCandidates = (
            RenameCandidates() if console is None else console.candidates
        )
        self.again = True

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "candidates": None}

    def decided(self, roots: tuple[Root, ...], ranks: int) -> dict[str, Any]:
        return super().decided(roots, ranks) | {"acts": ActionOutput(plan=True)}

    def complain(self, text: str) -> None:
        """Print nothing, because the mirror will report the same refusal."""


class _MoveObserver(Observer[tuple[int, int]]):
    """Collects the results of the renames on rank 0."""

    def __init__(self, options: MirrorOptions, lines: IO[bytes], paths: IO[bytes]) -> None:
        self._results = Results("fmirror", options.json, lambda text: None)
        self._said = options.itemize and not options.silent
        self._new, self._old = bytearray(), bytearray()
        self._lines, self._paths = lines, paths
        self.result: tuple[int, int] = 0, 0

    def notice(self, source: int, values: Sequence[object]) -> None:
        for value in values:
            if isinstance(value, RenamedPaths):
                self._new += value.new
                self._old += value.old
            elif isinstance(value, ActionLines):
                self._lines.write(value.text)
                self._paths.write(value.paths)
                if self._said:
                    self._results.text([value.said])

    def renamed(self) -> RenamedPaths:
        """Return the paths that a dry run would rename. This method can be called only once."""
        return RenamedPaths(ordered(self._new), ordered(self._old))

    def conclude(self, outcome: Outcome[tuple[int, int]]) -> int:
        self.result = outcome.result or (0, 0)
        return outcome.code


class MoveProgram(ToolProgram):
    """The third job: renames the files of the pairs."""

    name = "fmirror"
    again = True

    def __init__(self, options: MirrorOptions, pairs: Iterable[RenamePair]) -> None:
        super().__init__()
        self._options = options
        self._pairs = pairs
        self._streams = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115
        self.listener: _MoveObserver = _MoveObserver(options, *self._streams)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_pairs": (), "_streams": (), "listener": None}

    def prepare(self, nodes: Sequence[int]) -> bytes:
        options, ranks = self._options, len(nodes)
        end = b"" if options.list_out is None else b"\0" if options.null else b"\n"
        rates = options.bytes_per_s, options.operations_per_s
        shares = (None if rate is None else rate / ranks for rate in rates)
        where = options.sources[0], options.target, working_directory()
        acts = ActionOutput(options.json_lines is not None, end)
        keep = options.keep
        plan = MovePlan(*where, keep.links, acts, options.dry, keep.flags, *shares)
        return msgspec.msgpack.encode(plan)

    def task(self, plan: bytes, rank: int, size: int) -> Task[Any, Any]:
        decided = msgspec.msgpack.decode(plan, type=MovePlan)
        task = MoveTask(decided, rank, _items(self._pairs))
        self.close: Callable[[], None] = task.close
        return task

    def observer(self, plan: bytes) -> Observer[Any]:
        return self.listener

    def moved(self) -> RenameResult:
        """Return the result of the renames, on rank 0."""
        return RenameResult(*self.listener.result, *self._streams, self.listener.renamed())


def _items(pairs: Iterable[RenamePair]) -> Iterator[bytes]:
    """Yield pairs as items, compressed because rank 0 holds all items in memory at first."""
    remaining = iter(pairs)
    while batch := tuple(islice(remaining, _PAIRS_TOGETHER)):
        yield compress(msgspec.msgpack.encode(batch), 1)


def move(
    options: MirrorOptions,
    looked: Callable[[MirrorOptions], tuple[int, MirrorConsole | None]],
) -> tuple[int, RenameResult]:
    """Rename moved files, and return an exit code and the result.

    The run must end if the exit code is not 0. `looked` runs the first job with the given options.
    It returns the exit code of that job and, on rank 0, its console with the findings.
    """
    code, console = looked(options.comparison(**QUIET, looks="moves", moved=not options.dry))
    with nullcontext() if console is None else closing(console):
        if code == UsageError.exit_code:
            return 0, RenameResult()  # the mirror will report the same error
        if code not in (0, EntriesFailed.exit_code):
            return code, RenameResult()
        found = ExtraneousPaths()
        if console is not None and not console.withheld(ignore=options.ignore_errors):
            found = console.found
        survey = ExtraneousFilesProgram(options, options.target, console, found)
        code = run_tool(survey, options)
    if code not in (0, EntriesFailed.exit_code):
        return code, RenameResult()
    renaming = MoveProgram(options, survey.candidates.pairs())
    code = run_tool(renaming, options)
    return code, renaming.moved()
