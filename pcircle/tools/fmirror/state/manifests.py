"""The jobs of a mirror that use a manifest of B: the survey and the renewal.

`--since-manifest` starts a survey before the copy. It walks the source, compares it with the
manifest instead of the target, and lists the entries that may have changed. A target directory is
read only if it may contain extraneous entries. A manifest lacks some attributes: modes, owners,
extended attributes and access control lists. The last complete run made these equal, and they still
are if the source entry's change time is older. Otherwise the entry is listed. All names of
hard-linked files are listed, because a manifest does not show which names belong to the same file.
Unreadable entries are listed, so that the copy reports them. The copy that follows is restricted to
the list, and compares its entries with the actual target. Thus a wrong manifest can make a run miss
a change, but cannot make it replace or remove correct data.

`--new-manifest` starts a renewal after the copy. It reads only those entries of B that the survey
has listed, takes all others from the old manifest, and writes a new manifest. So the next run does
not need a new signature of the whole of B.
"""

from __future__ import annotations

import io
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from pcircle.cli.program import TreeConsole, TreeProgram, run_tool
from pcircle.core.encoding import show, text_of
from pcircle.core.errors import EntriesFailed, StoppedEarly, UsageError, require, worst
from pcircle.core.writing import WholeFile, discard
from pcircle.fs.directories import Directories, Lease, bases, capacity_of, join_path
from pcircle.fs.lists import Lists, record_of, sort
from pcircle.fs.safe_open import create, replace
from pcircle.fs.scan import Block
from pcircle.fs.sorting import pieces
from pcircle.fs.stats import CAPACITY, Stats, StatusRow, divide
from pcircle.jobs.failures import Failure
from pcircle.jobs.tree_task import EntryVisitor, TreePlan, TreeTask, resolve
from pcircle.ops.checkpoint.plan import JournalPlan
from pcircle.ops.compare import fields
from pcircle.ops.compare.manifests import KNOWN, DigestComparer, entry_row, open_verified
from pcircle.ops.compare.statuses import StatusComparer
from pcircle.ops.digest.digests import get_algorithm
from pcircle.ops.digest.manifest import Manifest, ManifestEntry
from pcircle.ops.digest.manifest_update import ManifestUpdate
from pcircle.runtime import Context, Outcome
from pcircle.tools.fmirror.checks import refuse_inside
from pcircle.tools.fmirror.options import NO_OUTPUT, QUIET, MirrorOptions
from pcircle.tools.fmirror.plan import DeletionPolicy, compared
from pcircle.tools.fmirror.state import state
from pcircle.tools.fmirror.state.state import Lock
from pcircle.tools.fmirror.work.extraneous import (
    KINDS,
    ExtraneousFinder,
    ExtraneousPaths,
    Surplus,
    packed,
)
from pcircle.tools.fmirror.work.unchanged import MOVED, since_last
from pcircle.walk.attributes import ANY
from pcircle.walk.items import DirectoryIdentity, handed_back
from pcircle.walk.open_directory import ItemContext, Open
from pcircle.walk.roots import Root
from pcircle.walk.visitor import Names, Where

if TYPE_CHECKING:
    from pcircle.jobs.tree_task import TreeCounters, TreeItem
    from pcircle.runtime.task import TimeLimit
    from pcircle.walk.items import Batch, Tree

_TOGETHER = 256
_NO_SUCH = (FileNotFoundError, NotADirectoryError)


class SurveyPlan(TreePlan, frozen=True, kw_only=True):
    """The plan of a survey with a manifest of the `target`.

    `fields` are the compared fields of the manifest. `asks` is set if the run also compares fields
    that the manifest lacks. An entry may then differ unless its change time is older than
    `quiet_ns`. `links` means that hard links are preserved. If `manifest` is empty, nothing is
    surveyed.
    """

    manifest: bytes
    target: bytes
    fields: int
    window_ns: int | None
    asks: bool
    links: bool
    quiet_ns: int
    device: int
    deleting: DeletionPolicy
    token: bytes = b""
    journal: JournalPlan | None = None
    began_ns: int | None = None


class SurveyRecords(msgspec.Struct, frozen=True, array_like=True, tag="t"):
    """List records of entries that may have changed."""

    records: tuple[bytes, ...]


class SurveyVisitor(EntryVisitor):
    """Compares entries with the manifest.

    Each thread has its own instance.
    """

    batch_names: ClassVar[int] = CAPACITY

    def __init__(self, task: SurveyTask) -> None:
        super().__init__(task)
        plan: SurveyPlan = task.plan
        self._plan = plan
        self._stats = task.stats
        self._comparer = StatusComparer(plan.fields, plan.window_ns)
        self._finder = ExtraneousFinder(plan) if plan.deleting.enabled else None
        self._targets = task.targets
        self._records: list[bytes] = []

    @cached_property
    def _book(self) -> Manifest:
        return Manifest(self._plan.manifest)

    @cached_property
    def _digests(self) -> DigestComparer:
        return DigestComparer(self._book.algorithm, self.counters)

    def end(self, context: Context[TreeItem], opens: Sequence[Open[int]]) -> None:
        """Send all findings to rank 0."""
        self._tell(context)

    def _list(self, path: bytes, context: Context[TreeItem], *, whole: bool = False) -> None:
        self._records.append(record_of(path or b".", whole=whole))
        if len(self._records) >= _TOGETHER:
            self._tell(context)

    def _tell(self, context: Context[TreeItem]) -> None:
        records, self._records = self._records, []
        if records:
            context.note([SurveyRecords(tuple(records))])

    def fail(
        self, root: int, path: bytes, doing: str, error: OSError, context: Context[TreeItem]
    ) -> None:
        """List an entry that cannot be read, so that the copy reports it."""
        self.counters.failed += 1
        self._list(path, context, whole=True)

    # ---- directories -----------------------------------------------------------

    def enter(self, opened: Open[int], source: Lease, holder: Open[int] | None) -> Lease | None:
        """Compare a directory with the manifest."""
        super().enter(opened, source, holder)
        status, context = source.opened.status, self._context
        since = since_last(
            None if holder is None else holder.place.since,
            is_known=status.st_dev == self._plan.device,
            is_quiet=status.st_ctime_ns < self._plan.quiet_ns,
        )
        opened.place = DirectoryIdentity(source.identity, since=since)
        entry = self._book.entry(opened.path)
        if entry is None or entry.kind != b"d":
            self._list(opened.path, context, whole=True)
            opened.entered = False
        elif self._comparer.differences(status, entry_row(entry)) or (self._plan.asks and since):
            self._list(opened.path, context)
        return None

    def meant(self, opened: Open[int], blocks: Iterable[Block], source: Lease) -> Iterator[Block]:
        """Find extraneous entries after the last block if the directory has lost any names."""
        finder = self._finder
        names: set[str] | None = None if self._plan.rules else set()  # rules omit names from blocks
        for block in blocks:
            if names is not None:
                names.update(*(getattr(block, kind) for kind in KINDS))
                if len(names) > CAPACITY:
                    names = None
            yield block
            if finder is not None and block.last and self._has_lost(opened.path, names, source.fd):
                self._find(finder, opened, names, source.fd)

    def _has_lost(self, path: bytes, names: set[str] | None, fd: int) -> bool:
        """Return whether the manifest contains an entry that the source directory lacks."""
        entries = self._book.entries(path)
        while batch := list(islice(entries, CAPACITY)):
            if names is None:
                errors = self._stats.look_up(fd, [entry.name for entry in batch])
                if any(isinstance(error, _NO_SUCH) for error in errors.values()):
                    return True
            elif any(text_of(entry.name) not in names for entry in batch):
                return True
        return False

    def _find(
        self,
        finder: ExtraneousFinder,
        opened: Open[int],
        names: set[str] | None,
        source_fd: int,
    ) -> None:
        """Report the entries that exist only in the target's directory."""
        context = self._context
        try:
            with self._targets.lease(0, opened.path, readable=True) as lease:
                for paths in finder.surplus(names, (source_fd, lease.fd), opened.path):
                    context.note([packed(0, paths)])
        except _NO_SUCH:
            pass  # the target lacks the directory, so it has no extraneous entries
        except OSError:
            self._list(opened.path, context, whole=True)

    # ---- names -----------------------------------------------------------------

    def names(
        self, where: Where, names: Names, fds: tuple[int, int], context: ItemContext[int]
    ) -> None:
        every = names.all()
        batch, remaining = every[:CAPACITY], every[CAPACITY:]
        errors = self._stats.look_up(fds[0], batch)
        known = self._book.finder(where.path)
        rows = zip(batch, self._stats.rows(len(batch)), strict=True)
        for place, (name, row) in enumerate(rows):
            entry = None if place in errors else known(name)
            if entry is None or self._differs(where, entry, row, fds[0], context):
                self._list(join_path(where.path, name), context)
        counters = self.counters
        counters.files += len(batch)  # entries of all kinds count as files here
        counters.sized += len(batch)
        counters.weight += where.weight * len(batch)
        if remaining:
            context.spawn(list(handed_back(where, remaining)))

    def _differs(
        self,
        where: Where,
        entry: ManifestEntry,
        row: StatusRow,
        fd: int,
        context: Context[TreeItem],
    ) -> bool:
        """Return whether an entry may differ from the manifest."""
        plan = self._plan
        if plan.links and row.st_nlink > 1:
            return True
        moved = where.place.since == MOVED
        if plan.asks and (moved or row.st_ctime_ns >= plan.quiet_ns):
            return True
        if self._comparer.differences(row, entry_row(entry)):
            return True
        stop = context.is_stopping
        try:
            return bool(self._digests.differences(plan.fields, entry, entry.name, fd, row, stop))
        except OSError:
            return True


class SurveyTask(TreeTask):
    """The survey on one rank or thread."""

    notice_type: ClassVar[Any] = Failure | SurveyRecords | Surplus
    visitor_type: ClassVar[type[SurveyVisitor]] = SurveyVisitor
    plan: SurveyPlan

    def begin(self) -> None:
        """Divide the threads between workers and helpers for the workers' look-ups."""
        division = divide(self.plan.threads)
        self.threads: int | None = division.workers
        self.max_threads: int = division.max_workers
        number = 0 if self.first is None else len(self.first.parts)
        self.stats: Stats = Stats(division.helped_of(number))
        top = bases([(self.plan.target, b"")], self.plan.directory)
        self.targets: Directories = Directories(top, capacity_of(is_first=self.first is None))

    def begun(self, counters: TreeCounters) -> Iterator[Tree | Batch]:
        return super().begun(counters) if self.plan.manifest else iter(())

    def close(self) -> None:
        for part in self.parts:
            part.stats.close()
            part.targets.close()
        super().close()


class ManifestSurveyConsole(TreeConsole):
    """Collects the selected entries on rank 0."""

    _program: ManifestSurvey

    def notice(self, source: int, values: Sequence[object]) -> None:
        for value in values:
            if isinstance(value, SurveyRecords):
                self._program.add(value)
            elif isinstance(value, Surplus):
                self._program.found.add(value)

    def conclude(self, outcome: Outcome[dict[int, int]]) -> int:
        self._program.entries = self.total(outcome).found
        return super().conclude(outcome)


class ManifestSurvey(TreeProgram):
    """The program of the survey job.

    On rank 0, its results are `lists`, the extraneous paths `found` and the number of `entries`.
    If the manifest cannot be used, `used` is false, and everything is compared. `is_first` is true
    on rank 0.
    """

    name = "fmirror"
    again = True
    plan_type: ClassVar[type[SurveyPlan]] = SurveyPlan
    task_type: ClassVar[type[SurveyTask]] = SurveyTask
    console_type: ClassVar[type[ManifestSurveyConsole]] = ManifestSurveyConsole

    def __init__(self, options: MirrorOptions, lock: Lock, manifest: str) -> None:
        super().__init__(
            options.replace(**NO_OUTPUT, **QUIET, attribute_filter=ANY), options.sources
        )
        self._mirror, self._lock = options, lock
        self.manifest: bytes = os.fsencode(manifest)
        self.limit: TimeLimit | None = options.time_limit()
        self.used: bool = False
        self.is_first: bool = False
        self.entries = 0
        self.found: ExtraneousPaths = ExtraneousPaths()
        self._records = tempfile.TemporaryFile(prefix="pcircle-list-")  # noqa: SIM115

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for ranks in new interpreters, without what only rank 0 uses."""
        return {**vars(self), "found": None, "_records": None, "_lock": None}

    def add(self, notice: SurveyRecords) -> None:
        """Add selected entries. Raise StoppedEarly if there is no space for them."""
        try:
            self._records.write(b"".join(record + b"/" for record in notice.records))
        except OSError as error:
            text = "cannot write the list to the temporary directory"
            raise StoppedEarly(f"{text}: {error.strerror}") from error

    def lists(self) -> Lists | None:
        """Return the selected entries, or None if everything is compared."""
        if not self.used:
            return None
        self._records.seek(0)
        return sort([(0, pieces(self._records, b"/"))])

    def changed(self) -> Iterator[tuple[bytes, bool]]:
        """Yield each path that may have changed, and whether this includes everything below it."""
        self._records.seek(0)
        for record in pieces(self._records, b"/"):
            yield record.rstrip(b"\0").replace(b"\0", b"/"), record.endswith(b"\0")
        for path in self.found.paths():
            yield path, True

    def close_all(self) -> None:
        """Release the disk space of the list."""
        discard(self._records)

    def decided(self, roots: tuple[Root, ...], ranks: int) -> dict[str, Any]:
        """Return the fields of the plan. If the manifest cannot be used, nothing is surveyed."""
        self.is_first = True
        options, upkeep = self._mirror, self._mirror.upkeep
        source, target = options.sources[0], options.target
        if roots[0].name:
            raise UsageError(f"'{show(source)}' is not a directory")
        refuse_inside(source, target)
        if not options.dry:
            self._lock.take(options.kept_at, options.state_dir)
        path = os.path.abspath(self.manifest)
        manifest = open_verified(path)
        self._refuse(manifest)
        known = state.read(state.place_of(options.kept_at, options.state_dir))
        why, quiet_ns = self._unfit(known, path)
        self._say(why)
        self.used = not why
        compared_fields = compared(options.keep, privileged=not os.geteuid())
        asks = upkeep.ctime or bool(compared_fields & ~KNOWN)
        compared_fields |= fields.MTIME * (upkeep.look == "time")
        compared_fields |= fields.CONTENT * (upkeep.look == "content")
        return {
            "manifest": path if self.used else b"",
            "target": target,
            "fields": compared_fields & KNOWN,
            "window_ns": upkeep.window_ns,
            "asks": asks,
            "links": options.keep.links,
            "quiet_ns": quiet_ns,
            "device": os.stat(source).st_dev,
            "deleting": options.deleting,
        }

    def _refuse(self, manifest: Manifest) -> None:
        """Raise UsageError if the manifest describes another tree, or cannot be renewed."""
        if manifest.checksum and self._mirror.new_manifest is not None:
            text = (
                f"'{show(self.manifest)}' records checksums of whole files, which are not computed "
                "here; omit --new-manifest, and update it with fsum --update"
            )
            raise UsageError(f"--new-manifest: {text}")
        options, of = self._mirror, manifest.root.name
        paths = os.path.abspath(options.target), os.path.realpath(options.target)
        if options.allow_foreign or of in paths:
            return
        raise UsageError(
            f"'{show(self.manifest)}' is a manifest of "
            f"'{show(of)}', not of '{show(options.target)}'; if that is the same tree, add "
            "--allow-foreign"
        )

    def _unfit(self, known: state.MirrorState | None, path: bytes) -> tuple[str, int]:
        """Return why the manifest cannot replace the target, or an empty string.

        The second value is a time: source entries whose change times are older are unchanged.
        """
        options = self._mirror
        if known is None:
            return "there was no earlier complete run", 0
        why = state.overdue(options, known) or state.other_target(options, known)
        identity = state.identity_if_readable(options.sources[0])
        quiet_ns = state.source_quiet_ns(options, known, identity)
        if not why and quiet_ns is None:
            why = "the last complete run did not record the source, or ran without --ctime"
        if not why and os.stat(path).st_mtime_ns <= known.touched_ns:
            why = "the target may have been changed by a run since the manifest was made"
        return why, 0 if quiet_ns is None else quiet_ns

    def _say(self, why: str) -> None:
        options = self._mirror
        if options.quiet:
            return
        if why:
            self.remark(f"examining the entire target: {why}")
            return
        path = self.manifest
        made = time.strftime("%Y-%m-%d %H:%M", time.localtime(os.stat(path).st_mtime))
        self.remark(
            f"the target is not read: '{show(path)}' of {made} lists its entries; other attributes "
            "are assumed to be as the last complete run left them"
        )

    def remark(self, text: str) -> None:
        """Print a line even though the job is quiet."""
        if not self._mirror.silent:
            super(TreeProgram, self).complain(text)

    def complain(self, text: str) -> None:
        """Print a refusal even though the job is quiet."""
        self.remark(text)


class RenewalPlan(TreePlan, frozen=True, kw_only=True):
    """The plan of a renewal; `algorithm` is the name of the algorithm for its digests."""

    algorithm: str


class RenewedEntries(msgspec.Struct, frozen=True, array_like=True, tag="n"):
    """The current state of the target's changed entries.

    `directories` contains paths with modification and change times, and `entries` contains entries,
    each with the path of its directory.
    """

    directories: tuple[tuple[bytes, int, int], ...]
    entries: tuple[tuple[bytes, ManifestEntry], ...]


class RenewalVisitor(EntryVisitor):
    """Reads entries of the target.

    Each thread has its own instance.
    """

    batch_names: ClassVar[int] = CAPACITY

    def __init__(self, task: RenewalTask) -> None:
        super().__init__(task)
        self._algorithm = task.plan.algorithm
        self._stats = task.stats
        self._directories: list[tuple[bytes, int, int]] = []
        self._entries: list[tuple[bytes, ManifestEntry]] = []

    @cached_property
    def _digests(self) -> DigestComparer:
        return DigestComparer(get_algorithm(self._algorithm), self.counters)

    def end(self, context: Context[TreeItem], opens: Sequence[Open[int]]) -> None:
        """Send all findings to rank 0."""
        self._tell(context)

    def _tell(self, context: Context[TreeItem]) -> None:
        directories, self._directories = self._directories, []
        entries, self._entries = self._entries, []
        if directories or entries:
            context.note([RenewedEntries(tuple(directories), tuple(entries))])

    def enter(self, opened: Open[int], source: Lease, holder: Open[int] | None) -> Lease | None:
        status = source.opened.status
        self._directories.append((opened.path, status.st_mtime_ns, status.st_ctime_ns))
        return super().enter(opened, source, holder)

    def fail(
        self, root: int, path: bytes, doing: str, error: OSError, context: Context[TreeItem]
    ) -> None:
        """Ignore a missing entry, and report other failures."""
        if isinstance(error, _NO_SUCH):
            self.counters.files += 1
        else:
            super().fail(root, path, doing, error, context)

    def names(
        self, where: Where, names: Names, fds: tuple[int, int], context: ItemContext[int]
    ) -> None:
        every = names.all()
        batch, remaining = every[:CAPACITY], every[CAPACITY:]
        errors = self._stats.look_up(fds[0], batch)
        rows = zip(batch, self._stats.rows(len(batch)), strict=True)
        counters = self.counters
        for place, (name, row) in enumerate(rows):
            counters.weight += where.weight
            counters.sized += 1
            try:
                if place in errors:
                    raise errors[place]
                entry = self._digests.entry(name, fds[0], row, context.is_stopping)
            except OSError as error:
                self.fail(where.root, join_path(where.path, name), "read", error, context)
                continue
            counters.files += 1  # entries of all kinds count as files here
            self._entries.append((where.path, entry))
        if len(self._entries) >= _TOGETHER:
            self._tell(context)
        if remaining:
            context.spawn(list(handed_back(where, remaining)))


class RenewalTask(TreeTask):
    """The renewal on one rank or thread."""

    notice_type: ClassVar[Any] = Failure | RenewedEntries
    visitor_type: ClassVar[type[RenewalVisitor]] = RenewalVisitor
    plan: RenewalPlan

    def begin(self) -> None:
        self.stats: Stats = Stats()

    def close(self) -> None:
        for part in self.parts:
            part.stats.close()
        super().close()


class RenewalConsole(TreeConsole):
    """Collects the entries on rank 0."""

    _program: RenewalProgram

    def notice(self, source: int, values: Sequence[object]) -> None:
        renewal = require(self._program.renewal)
        for value in values:
            if isinstance(value, RenewedEntries):
                for directory in value.directories:
                    renewal.add_directory(*directory)
                for above, entry in value.entries:
                    renewal.add_entry(above, entry)


class RenewalProgram(TreeProgram):
    """The program of the renewal job. Without a usable survey, the job does nothing."""

    name = "fmirror"
    plan_type: ClassVar[type[RenewalPlan]] = RenewalPlan
    task_type: ClassVar[type[RenewalTask]] = RenewalTask
    console_type: ClassVar[type[RenewalConsole]] = RenewalConsole

    def __init__(self, options: MirrorOptions, survey: ManifestSurvey | None) -> None:
        options = options.replace(**NO_OUTPUT, **QUIET, filters=(), attribute_filter=ANY)
        super().__init__(options, [options.target])
        self._survey, self._algorithm = survey, ""
        self.renewal: ManifestUpdate | None = None
        if survey is not None:
            old = Manifest(survey.manifest)
            self.renewal, self._algorithm = ManifestUpdate(old), old.algorithm.name

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for ranks in new interpreters, without what only rank 0 uses."""
        return {**vars(self), "_survey": None, "renewal": None}

    def roots(self) -> tuple[Root, ...]:
        return () if self._survey is None else resolve(self.paths)

    def listing(self, roots: tuple[Root, ...]) -> Lists | None:
        if self._survey is None or self.renewal is None:
            return sort([])
        return sort([(0, self._records(self._survey, self.renewal))])

    def _records(self, survey: ManifestSurvey, renewal: ManifestUpdate) -> Iterator[bytes]:
        """Yield the entries that may differ from the manifest, and invalidate them there."""
        for path, whole in survey.changed():
            renewal.invalidate(path, whole=whole)
            yield record_of(path or b".", whole=whole)

    def decided(self, roots: tuple[Root, ...], ranks: int) -> dict[str, Any]:
        return {"algorithm": self._algorithm}


def renew(
    options: MirrorOptions,
    survey: ManifestSurvey,
    path: str,
    code: int,
    complain: Callable[[str], None],
) -> int:
    """Write a manifest of the updated target if all phases succeeded, and return the exit code."""
    whole = survey.used and not code
    program = RenewalProgram(options, survey if whole else None)
    done = run_tool(program, options)
    if survey.is_first and not survey.used and not options.quiet:
        hint = "to create one, run fsum -o"
        complain(f"no new manifest was written because the entire target was examined: {hint}")
    elif (survey.is_first and not whole) or done == EntriesFailed.exit_code:
        complain("no new manifest was written because some entries failed")
    if program.renewal is None:
        return worst((code, done))
    try:
        if not done:
            _write(program.renewal, os.fsencode(path))
    except OSError as error:
        complain(f"cannot write the manifest '{show(os.fsencode(path))}': {error.strerror}")
        is_wrong = isinstance(error, FileNotFoundError | NotADirectoryError | PermissionError)
        # A full disk may have space later, but an unusable path stays unusable.
        done = (EntriesFailed if is_wrong else StoppedEarly).exit_code
    finally:
        program.renewal.close()
    return worst((code, done))


def _write(renewal: ManifestUpdate, path: bytes) -> None:
    """Write the manifest under a temporary name, and then rename it. Raise OSError on failure."""
    temporary = path + b".%d" % os.getpid()
    fd = create(temporary, 0o666)
    try:
        with io.BufferedWriter(WholeFile(fd, "wb")) as stream:
            renewal.write(stream)
            stream.flush()
            os.fsync(stream.fileno())
        replace(temporary, path)
    except OSError:
        with suppress(OSError):
            os.unlink(temporary)
        raise
