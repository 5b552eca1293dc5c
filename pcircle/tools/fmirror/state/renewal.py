"""`--new-manifest`: the last job reads the updated entries of B and writes a new manifest.

The job reads only those entries of B that the survey has selected, and takes all others from the
old manifest. So the next run does not need a new signature of the whole of B.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from pcircle.cli.program import run_tool
from pcircle.cli.tree_program import TreeConsole, TreeProgram
from pcircle.core.encoding import show
from pcircle.core.errors import EntriesFailed, StoppedEarly, require, worst
from pcircle.core.writing import WholeFile
from pcircle.fs.directories import Lease, join_path
from pcircle.fs.lists import Lists, record_of, sort
from pcircle.fs.safe_open import create, replace
from pcircle.fs.stats import CAPACITY, Stats
from pcircle.jobs.failures import Failure
from pcircle.jobs.tree_task import EntryVisitor, TreePlan, TreeTask, resolve
from pcircle.ops.compare.manifests import DigestComparer
from pcircle.ops.digest.digests import get_algorithm
from pcircle.ops.digest.manifest import Manifest, ManifestEntry
from pcircle.ops.digest.manifest_update import ManifestUpdate
from pcircle.runtime import Context
from pcircle.tools.fmirror.options import NO_OUTPUT, QUIET, MirrorOptions
from pcircle.tools.fmirror.state.manifests import ManifestSurvey
from pcircle.walk.attributes import ANY
from pcircle.walk.items import handed_back
from pcircle.walk.open_directory import ItemContext, Open
from pcircle.walk.roots import Root
from pcircle.walk.visitor import Names, Where

if TYPE_CHECKING:
    from pcircle.jobs.tree_task import TreeItem

_TOGETHER = 256
_NO_SUCH = (FileNotFoundError, NotADirectoryError)


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
