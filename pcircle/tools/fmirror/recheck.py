"""A job between the copy and the deletions: finds directories of A changed since their listing.

If an entry has left a directory of A since the run began, it may have moved to a directory that had
already been listed. The change time of that directory then differs from that at its listing.
Therefore, this job reads the change times of all directories of A. If no directory has changed
since its listing, no move was missed, and the doubtful entries are extraneous. Otherwise they stay
in B, and each of their directories is reported as a failure.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from pcircle.cli.program import TreeConsole, TreeProgram
from pcircle.core.errors import EntriesFailed
from pcircle.fs.directories import Lease
from pcircle.fs.scan import Block
from pcircle.fs.status import refreshed
from pcircle.jobs.failures import Failure, failure_of, line_of
from pcircle.jobs.tree_task import EntryVisitor, TreePlan, TreeTask, resolve
from pcircle.runtime import Context, Outcome
from pcircle.tools.fmirror.options import QUIET, MirrorOptions
from pcircle.tools.fmirror.plan import MirrorPlan
from pcircle.tools.fmirror.removal import WITHOUT_SELECTION, append_log
from pcircle.tools.fmirror.work.extraneous import MOVING, ExtraneousPaths, moved_away
from pcircle.tools.fmirror.work.listing import (
    UNSTEADY_NS,
    ChangeTimes,
    KnownTimes,
    ListingTimes,
    packed_times,
)
from pcircle.walk.open_directory import Open
from pcircle.walk.roots import Root

if TYPE_CHECKING:
    from pcircle.jobs.failures import LogFile
    from pcircle.jobs.tree_task import TreeItem


class RecheckPlan(TreePlan, frozen=True, kw_only=True):
    """The plan of a recheck; `began_ns` is the start time of the mirror."""

    began_ns: int | None = None


class RecheckVisitor(EntryVisitor):
    """Reports the change times of directories that may have changed.

    Each thread has its own instance.
    """

    def __init__(self, task: RecheckTask) -> None:
        super().__init__(task)
        self._change_times = ChangeTimes(task.plan.began_ns)

    def enter(self, opened: Open[int], source: Lease, holder: Open[int] | None) -> Lease | None:
        self._report(opened.path, source.fd)
        return super().enter(opened, source, holder)

    def meant(self, opened: Open[int], blocks: Iterable[Block], source: Lease) -> Iterable[Block]:
        """Yield blocks that contain only directories."""
        for block in blocks:
            block.files, block.links, block.specials = [], [], []
            # A subdirectory may have moved away before this listing, so check the directory again.
            if block.last:
                self._report(opened.path, source.fd)
            yield block

    def _report(self, path: bytes, fd: int) -> None:
        status = refreshed(fd)
        if self._change_times.is_recent(fd, status):
            self._context.note([packed_times([path], [status.st_ctime_ns])])

    def fail(
        self, root: int, path: bytes, doing: str, error: OSError, context: Context[TreeItem]
    ) -> None:
        """Report that the change time of a directory is unknown."""
        self.counters.failed += 1
        context.note([packed_times([path], [UNSTEADY_NS])])


class RecheckTask(TreeTask):
    """The recheck on one rank or thread."""

    notice_type: ClassVar[Any] = Failure | ListingTimes
    visitor_type: ClassVar[type[RecheckVisitor]] = RecheckVisitor
    plan: RecheckPlan


class RecheckConsole(TreeConsole):
    """Compares change times on rank 0, and reports the entries that stay in B."""

    _program: RecheckProgram

    def notice(self, source: int, values: Sequence[object]) -> None:
        reports = []
        for value in values:
            if isinstance(value, ListingTimes):
                self._program.compare(value)
            else:
                reports.append(value)
        super().notice(source, reports)

    def conclude(self, outcome: Outcome[dict[int, int]]) -> int:
        program = self._program
        if not outcome.code:
            found = list(program.failures())
            super().notice(0, found)
            self.log(b"".join(map(line_of, found)))
        code = super().conclude(outcome)
        if code in (0, EntriesFailed.exit_code):
            return 0 if program.is_steady else EntriesFailed.exit_code
        return code


class RecheckProgram(TreeProgram):
    """The recheck job.

    On rank 0, `is_steady` means that the `doubtful` entries may be removed. `times` are the change
    times of the directories at their listings. If the copy did not list all of A, `walks` is false:
    the times then prove nothing, and no directory is read.
    """

    name = "fmirror"
    again = True
    plan_type: ClassVar[type[RecheckPlan]] = RecheckPlan
    task_type: ClassVar[type[RecheckTask]] = RecheckTask
    console_type: ClassVar[type[RecheckConsole]] = RecheckConsole

    def __init__(
        self,
        options: MirrorOptions,
        source: bytes,
        doubtful: ExtraneousPaths,
        times: KnownTimes,
        *,
        decision: MirrorPlan | None,
        known: tuple[int, int] | None,
        walks: bool,
    ) -> None:
        # Quiet, but directories whose entries stay are reported.
        more = {"silent": options.silent, "json_lines": None, "max_delete": None}
        super().__init__(options.replace(**WITHOUT_SELECTION | QUIET | more), [source])
        self._error_log = options.error_log
        self._doubtful, self._times = doubtful, times
        self._decision, self._known = decision, known
        has_doubts = bool(doubtful.count)
        self.is_steady: bool = not has_doubts or (walks and times.is_complete)
        self._walks = has_doubts and self.is_steady

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for ranks in new interpreters, without what only rank 0 uses."""
        empty = {"_doubtful": ExtraneousPaths(), "_times": KnownTimes(), "_decision": None}
        return {**vars(self), **empty}

    def compare(self, notice: ListingTimes) -> None:
        """Compare change times of directories with those at their listings."""
        self.is_steady = self.is_steady and self._times.agree(notice)

    def failures(self) -> Iterable[Failure]:
        """Yield a failure for each directory whose entries stay in B."""
        if self.is_steady:
            return
        counts = Counter(map(os.path.dirname, self._doubtful.paths()))
        (root,) = resolve(self.paths)
        for path, count in counts.items():
            yield failure_of(root, 0, path, MOVING, moved_away(count))

    def roots(self) -> tuple[Root, ...]:
        """Return the root, or nothing if there is nothing to check."""
        if not self._walks:
            return ()
        (root,) = resolve(self.paths)
        return (msgspec.structs.replace(root, known=self._known),)

    def decided(self, roots: tuple[Root, ...], ranks: int) -> dict[str, Any]:
        decision = self._decision
        if decision is None:
            return {}
        scope = {"rules": decision.rules, "one_file_system": decision.one_file_system}
        return scope | {"began_ns": decision.began_ns}

    def begin(self, roots: tuple[Root, ...]) -> None:
        """Append to the error log of the copy."""
        self.log: LogFile | None = append_log(self._error_log)
