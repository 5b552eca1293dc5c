"""The console of fprof: prints failures as they occur, progress, and the report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from pcircle.cli import console as base
from pcircle.core.errors import Defect, EntriesFailed, worst
from pcircle.jobs.failures import LogFile
from pcircle.runtime import Outcome
from pcircle.tools.fprof.options import ProfileOptions
from pcircle.tools.fprof.plan import (
    FileLines,
    ProfilePlan,
    ProfileResult,
    ProfileTotals,
    add_up,
    index_of,
    totals,
)
from pcircle.tools.fprof.profile.model import Profile, unpack
from pcircle.tools.fprof.reports import balance
from pcircle.tools.fprof.reports.outputs import write_outputs
from pcircle.tools.fprof.reports.report import ProfileRun, make, stopped
from pcircle.tools.fprof.reports.text import summary


class ProfileConsole(base.Console[ProfileResult]):
    """Prints failures and progress, and writes all outputs at the end."""

    tool = "fprof"
    has_result = True

    def __init__(
        self,
        plan: ProfilePlan,
        options: ProfileOptions,
        log: LogFile | None,
        lists: Mapping[str, LogFile],
    ) -> None:
        super().__init__(options, log)
        self._lists = lists
        self._plan = plan
        self._options = options

    def counted(self, counts: tuple[int, ...]) -> ProfileTotals:
        return totals(counts)

    def remark(self, notice: object) -> Iterable[str]:
        if isinstance(notice, FileLines):
            where = f"list, {notice.kind}"
            lines = self._fresh(where, notice.lines, self._plan.list_end)
            self._write(self._lists[notice.kind], lines, where)
            self._unlisted += notice.unlisted
        return ()

    def end(self, outcome: Outcome[ProfileResult]) -> tuple[int, list[str]]:
        for kind, log in self._lists.items():
            try:
                log.close()
            except OSError as error:
                self._fail_log(f"list, {kind}", error)
        return super().end(outcome)

    def bytes_shown(self, now: base.JobCounters) -> int:
        return now.bytes_done

    def conclude(self, outcome: Outcome[ProfileResult]) -> int:
        if self._plan.index is None:
            return self._concluded(outcome)
        from pcircle.tools.fprof.entries import clear

        try:
            return self._concluded(outcome)
        finally:
            clear(self._plan)

    def _concluded(self, outcome: Outcome[ProfileResult]) -> int:
        code, reasons = self.end(outcome)
        total = add_up(outcome.counts)
        profile = None if code else _profile_of(outcome)
        if not code:
            wrong = _account(total, profile)
            if wrong is not None:
                code = Defect.exit_code
                reasons.append(wrong)
        if total.troubles or self.log_failed:
            code = worst((code, EntriesFailed.exit_code))
        self.tell_failures()
        self.tell_reasons(code, reasons)
        run = ProfileRun(
            exit_code=code,
            elapsed_s=self.elapsed_s,
            reasons=tuple(reasons),
            failures=tuple(self.failures),
            failures_omitted=self.failures_omitted,
            reports=outcome.reports,
            rank_summary=self.rank_summary(outcome),
        )
        if profile is None:
            self.results.document(stopped([root.shown for root in self._plan.roots], run))
            return worst((code, self.results.code))
        report = make(profile, self._options, run)
        place, save = self._plan.index, self._options.save
        if place is not None and save is not None:
            from pcircle.tools.fprof.entries import publish

            write = partial(publish, self._plan, place, save, entry_count(profile))
            self.results.write(index_of(save), write)
        write_outputs(self._options, profile, report, run, self.results)
        entries = report.counts.entries
        table = balance.render(report.ranks, entries, self.stats) if self.stats else ""
        if tables := self.rank_tables(report, entries, table):
            self.note(tables.rstrip("\n"))
        if self.verbose:
            self.note(f"fprof: {summary(report)}")
        return worst((code, self.results.code))


def _profile_of(outcome: Outcome[ProfileResult]) -> Profile | None:
    packed = b"" if outcome.result is None else outcome.result.profile
    return unpack(packed) if packed else None


def entry_count(profile: Profile) -> int:
    """Return the number of entries in a profile."""
    return sum(tally[0] for tally in profile.kinds.values())


def _account(total: ProfileTotals, profile: Profile | None) -> str | None:
    """Return a message if the counts of a successful job disagree, or None if they agree."""
    profiled = 0 if profile is None else entry_count(profile)
    examined = total.settled - total.failed
    text = base.unsettled(total)
    if not text and profiled != examined:
        text = f"{examined} entries were examined, but {profiled} profiled"
    return base.miscounted(text, total) if text else None
