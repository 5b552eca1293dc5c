"""Reports of a mirror: those of a copy, extended with updates and removals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import msgspec

from pcircle.core.errors import EntriesFailed, StoppedEarly, worst
from pcircle.core.units import format_size, plural
from pcircle.jobs.failures import FailedEntry, Failure
from pcircle.ops.copy.tree.counters import CopyCounters
from pcircle.ops.copy.tree.items import CopyResult
from pcircle.runtime import Outcome
from pcircle.tools.common.copy_console import CopyConsole, CopyReport, summary
from pcircle.tools.fmirror.plan import MirrorPlan
from pcircle.tools.fmirror.work.extraneous import ExtraneousPaths, Surplus
from pcircle.tools.fmirror.work.itemize import LinkedNameGroups, LinkedRecords, count
from pcircle.tools.fmirror.work.listing import KnownTimes, ListingTimes
from pcircle.tools.fmirror.work.rename_pairs import (
    MissingFiles,
    PathHashes,
    RenameCandidates,
    RenameResult,
)
from pcircle.walk.globs import Rule

_UNREAD = ("open directory", "read directory", "reach")


class MirrorReport(CopyReport, frozen=True, kw_only=True):
    """The result of a mirror.

    `touched` counts the `skipped` entries whose attributes were updated, and `linked` the entries
    that were linked from a tree of `--link-dest`. `nearby` counts the `files` whose content came
    from `--copy-dest` or `--reflink-dest`. `surplus` counts the extraneous paths, and `removed` the
    entries that were removed or moved to the backup. `moved` and `moved_bytes` count the files that
    `--moved` has renamed, and their bytes. `cleared` counts the entries that were removed from the
    source. `withheld` is the reason why nothing was removed. `expired` lists the removed snapshots.
    """

    touched: int
    linked: int = 0
    nearby: int = 0
    moved: int = 0
    moved_bytes: int = 0
    surplus: int = 0
    removed: int = 0
    cleared: int = 0
    withheld: str | None = None
    expired: tuple[str, ...] = ()
    not_removed: tuple[FailedEntry, ...] = ()


class RemovalResult(msgspec.Struct, frozen=True):
    """The result of the removals: the number of entries, and the reason if they were withheld.

    `planned` counts the entries that were added to a plan. `not_moved` lists the failures to move
    entries to the backup, and the directories whose missing entries may have moved within the
    source.
    """

    entries: int = 0
    withheld: str = ""
    failures: Iterable[FailedEntry] = ()
    planned: int = 0
    not_moved: Sequence[FailedEntry] = ()


class MirrorConsole(CopyConsole):
    """Reports the copy, and collects extraneous paths and other notices for later jobs."""

    decision: MirrorPlan

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.found: ExtraneousPaths = ExtraneousPaths()
        # Extraneous unless they moved within the source.
        self.doubtful: ExtraneousPaths = ExtraneousPaths()
        self.times: KnownTimes = KnownTimes()
        self.rules: tuple[Rule, ...] = ()  # excluded entries are not removed
        self._groups = LinkedNameGroups()
        self.applies = False  # the run carries out a plan
        self.place: str | None = None  # the final path of B if it differs during the run
        self.expired: tuple[str, ...] = ()
        self.unread: int = 0
        self.report: MirrorReport | None = None
        self._moved = 0, 0
        # Old paths of planned renames, which are not extraneous.
        self.renamed: PathHashes = PathHashes(b"")
        self.entries: int = 0
        self.removed: int = 0
        self._total = CopyCounters()
        self._has_changed = True
        super().__init__(*arguments, **named)  # last, because it may report something

    @cached_property
    def candidates(self) -> RenameCandidates:
        """Return the collected files that exist on one side only."""
        return RenameCandidates()

    def close(self) -> None:
        """Release the disk space of the collected paths."""
        self.found.close()
        self.doubtful.close()

    def notice(self, source: int, values: Sequence[object]) -> None:
        reports = []
        for value in values:
            if isinstance(value, Surplus):
                value = value.without(self.renamed) if len(self.renamed) else value
                (self.doubtful if value.doubtful else self.found).add(value)
            elif isinstance(value, ListingTimes):
                self.times.add(value)
            elif isinstance(value, LinkedRecords):
                self._groups.add(value)
            elif isinstance(value, MissingFiles):
                self.candidates.add_all(value)
            else:
                self.unread += isinstance(value, Failure) and value.doing in _UNREAD
                reports.append(value)
        super().notice(source, reports)

    def conclude(self, outcome: Outcome[CopyResult]) -> int:
        linked = CopyCounters()
        unplanned: StoppedEarly | None = None
        plan = self.decision
        look, keeps_times = plan.upkeep.look, plan.keep.timestamps
        for change in self._groups.changes(look, keeps_times=keeps_times):
            if plan.acts.plan and unplanned is None:
                try:
                    self.add_to_plan(change.planned)
                except StoppedEarly as error:
                    unplanned = error
            if plan.itemize and change.line:
                self.results.text([change.line])
            if self._options.dry and change.touches and change.line:
                linked.touched += 1
            elif self._options.dry and change.line:
                count(linked, change.name.mode, change.size_bytes)
                linked.nearby += change.name.near and not change.linked
        if unplanned is not None:
            code, reasons = worst((outcome.code, unplanned.exit_code)), outcome.reasons
            reasons = (*reasons, str(unplanned))
            outcome = msgspec.structs.replace(outcome, code=code, reasons=reasons)
        if linked.completed or linked.touched:
            outcome = _with(outcome, linked)
        total = self._total = CopyCounters.total(outcome.counts)
        self.entries, self.removed = total.found, total.removed
        done = total.files, total.links, total.special, total.touched, total.linked, total.removed
        directories = total.directories_created, total.directories_touched
        self._has_changed = any(done) or any(directories)
        return super().conclude(outcome)

    def made(self, report: CopyReport) -> MirrorReport:
        """Return the report of a mirror with the counts of the copy."""
        fields = {name: getattr(report, name) for name in report.__struct_fields__}
        return MirrorReport(
            **fields,
            touched=self._total.touched,
            linked=self._total.linked,
            nearby=self._total.nearby,
            surplus=self._surplus,
        )

    @property
    def _surplus(self) -> int:
        """The number of extraneous paths, including those that the copy has handled itself."""
        return self.found.count + self._total.surplus

    def summary(self, report: CopyReport) -> str:
        """Return the last line of the output, counting updated attributes as work."""
        removes = self.removed or self.found.count or self.doubtful.count or len(self.renamed)
        idle = "nothing to copy" if removes else "nothing to do"
        there = self.place or self._shown_target()
        text = summary(report, there, self._total.touched, idle, resumes=self._resumes)
        removed = f"; {plural(self.removed, 'entry', 'entries')} removed"
        return text + removed if self.removed else text

    def document(self, report: CopyReport) -> None:
        """Keep the report, because `tell` writes it after all jobs."""
        self.report = self.made(report)

    def tell(self, code: int, removed: RemovalResult, cleared: int = 0) -> int:
        """Write the report after all jobs, and return the exit code."""
        if self.report is None:
            return code
        self.report = msgspec.structs.replace(
            self.report,
            exit_code=code,
            moved=self._moved[0],
            moved_bytes=self._moved[1],
            target=self.place or self.report.target,
            removed=removed.entries,
            cleared=cleared,
            withheld=removed.withheld or None,
            failures=(*self.report.failures, *removed.not_moved),
            surplus=self._surplus,
            not_removed=tuple(removed.failures),
            expired=self.expired,
        )
        self.results.document(self.report)
        return worst((code, self.results.code))

    @property
    def has_changed_target(self) -> bool:
        """Return whether the run has changed the target."""
        report = self.report
        return self._has_changed or report is None or bool(report.removed or report.moved)

    def tell_moved(self, moved: RenameResult, json_lines: str | None, list_out: str | None) -> int:
        """Report the files that were renamed before the copy, and return an exit code."""
        self._moved = moved.files, moved.size
        if moved.files and not self.quiet:
            files, size = plural(moved.files, "file", "files"), format_size(moved.size)
            would = "would be " if self._options.dry else ""
            self.note(f"{self.tool}: {files} {would}renamed instead of copied ({size})")
        try:
            moved.log(json_lines, list_out)
        except OSError as error:
            self.note(f"{self.tool}: cannot write the actions: {error.strerror}")
            return EntriesFailed.exit_code
        return 0

    def next(self, code: int, reasons: Sequence[str], is_resumable: bool) -> Iterator[str]:
        """Yield hints on how to resume, or how to retry failed entries."""
        if is_resumable or not self.by_kind or code == StoppedEarly.exit_code:
            yield from super().next(code, reasons, is_resumable)
        elif self.applies:
            yield "for entries that have changed, make a new plan"
        else:
            yield "to retry failed entries, run the same command"

    def withheld(self, *, ignore: bool) -> str:
        """Return why nothing may be removed, or an empty string."""
        if self.unread and not ignore:
            count = plural(self.unread, "directory", "directories")
            return f"{count} of the source could not be read"
        return ""


class ClearConsole(MirrorConsole):
    """Reports the entries that were removed from the source."""

    cleared: int = 0

    def conclude(self, outcome: Outcome[CopyResult]) -> int:
        total = CopyCounters.total(outcome.counts)
        self.cleared = total.files + total.links + total.special
        return super().conclude(outcome)

    def summary(self, report: CopyReport) -> str:
        text = f"{plural(self.cleared, 'entry', 'entries')} removed from the source"
        if report.skipped:
            stay = plural(report.skipped, "entry stays", "entries stay")
            text = f"{text}, {stay}: the copies differ"
        return text


def _with(outcome: Outcome[CopyResult], linked: CopyCounters) -> Outcome[CopyResult]:
    """Return the outcome of a dry run with corrected counts of hard-linked names.

    The ranks have counted these names as skipped.
    """
    linked.skipped = -linked.completed
    if outcome.summary is not None:
        total = CopyCounters.total((outcome.summary.counts, linked.row()))
        summary = msgspec.structs.replace(outcome.summary, counts=total.row())
        return msgspec.structs.replace(outcome, summary=summary)
    first, *later = outcome.reports
    total = CopyCounters.total((first.counts, linked.row()))
    first = msgspec.structs.replace(first, counts=total.row())
    return msgspec.structs.replace(outcome, reports=(first, *later))
