"""Rank 0's side of a run that a person sees: failures as they come, progress, the profile."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from pcircle.circle import Sums
from pcircle.errors import Defect, EntriesFailed, StoppedEarly, worst
from pcircle.fprof.counters import Totals, totals
from pcircle.fprof.items import Done
from pcircle.fprof.plan import Plan
from pcircle.fprof.profile.model import Profile
from pcircle.fprof.profile.packing import unpack
from pcircle.fprof.reports import balance
from pcircle.fprof.reports.outputs import Outputs, tell
from pcircle.fprof.reports.report import Run, make, stopped
from pcircle.fprof.reports.text import summary
from pcircle.fprof.reports.wishes import Wishes
from pcircle.runtime import Observer, Outcome
from pcircle.runtime.defect import write_report
from pcircle.tool.failures import Failure
from pcircle.ui import progress
from pcircle.ui.errorlog import LogFile
from pcircle.ui.names import show
from pcircle.ui.pace import Known, Pace
from pcircle.ui.progress import note_all
from pcircle.ui.report import FAILURES_KEPT, FailedEntry, error_name, failures_by_kind

_PERIOD_S = 0.2


class Console(Observer[Done]):
    """Tells the user of failures, progress and the profile."""

    def __init__(
        self,
        plan: Plan,
        wishes: Wishes,
        *,
        quiet: bool,
        verbose: int,
        progress_mode: progress.Mode,
        interval_s: float,
        outputs: Outputs,
        log: LogFile | None,
    ) -> None:
        self._plan = plan
        self._wishes = wishes
        self._quiet = quiet
        self._verbose = verbose
        self._outputs = outputs
        self._log = log
        self._trouble = False  # of the log
        self._by_kind: Counter[tuple[int | None, str]] = Counter()
        self._failures: list[FailedEntry] = []
        self._began_s = time.monotonic()
        self._pace = Pace()
        self._progress = progress.make(
            progress_mode, sys.stderr, quiet=quiet, interval_s=interval_s
        )
        shown = progress_mode == "always" or (progress_mode == "auto" and not quiet)
        self.period_s = min(_PERIOD_S, interval_s) if shown else None

    # ---- while it runs ---------------------------------------------------------

    def notice(self, source: int, values: Sequence[Any]) -> None:
        failures = [value for value in values if isinstance(value, Failure)]
        said: list[str] = []
        for failure in failures:
            self._by_kind[failure.errno, failure.kind] += 1
            path = show(failure.path)
            if len(self._failures) < FAILURES_KEPT:
                error = error_name(failure.errno, failure.kind)
                kept = FailedEntry(path, failure.doing, failure.errno, failure.reason, error)
                self._failures.append(kept)
            said.append(f"fprof: cannot {failure.doing} '{path}': {failure.reason}")
        note_all(self._progress, said)

    def log(self, lines: bytes) -> None:
        if self._log is not None and not self._trouble:
            try:
                self._log.append(lines)
            except OSError as error:
                self._log_failed(error)

    def _log_failed(self, error: OSError) -> None:
        self._trouble = True
        self._progress.note(f"fprof: cannot write the error log: {error.strerror}")

    def show(self, sums: Sums) -> None:
        now = totals(sums.counts)
        known = Known(
            found=now.found,
            sized=now.found,
            done=now.settled,
            bytes_found=0,
            bytes_done=0,
            scanned=now.walked,
            weight=sums.weight,
        )
        elapsed_s = time.monotonic() - self._began_s
        view = self._pace.view(
            elapsed_s,
            known,
            stale_ranks=sums.stale,
            failed=now.failed + now.unreadable,
            bytes_shown=now.bytes,
        )
        self._progress.update(view)

    # ---- the end ---------------------------------------------------------------

    def conclude(self, outcome: Outcome[Done]) -> int:
        self._progress.close()
        if self._log is not None:
            try:
                self._log.close()
            except OSError as error:
                self._log_failed(error)
        columns = zip(*(report.counts for report in outcome.reports), strict=True)
        total = totals(tuple(map(sum, columns))) if outcome.reports else Totals()
        code, reasons = outcome.code, list(outcome.reasons)
        if outcome.silent:
            code = worst((code, StoppedEarly.exit_code))
            names = ", ".join(map(str, outcome.silent))
            reasons.append(f"not heard from at the end: rank {names} and its subtree")
        profile = None if code else _profile_of(outcome)
        if not code:
            wrong = _account(total, profile)
            if wrong is not None:
                code = Defect.exit_code
                reasons.append(wrong)
        if total.failed or total.unreadable or self._trouble:
            code = worst((code, EntriesFailed.exit_code))
        if self._by_kind:
            self._progress.note(f"fprof: {failures_by_kind(self._by_kind)}")
        for reason in reasons:
            kind = "internal error: " if code == Defect.exit_code else ""
            self._progress.note(f"fprof: {kind}{reason}")
        run = Run(
            exit_code=code,
            elapsed_s=max(time.monotonic() - self._began_s, 1e-6),
            reasons=tuple(reasons),
            failures=tuple(self._failures),
            reports=outcome.reports,
        )
        if profile is None:
            ended = stopped([root.shown for root in self._plan.roots], run)
            return tell(ended, None, self._outputs.json, self._progress.note)
        report = make(profile, self._wishes, run)
        code = self._outputs.tell(profile, report, run, self._progress.note, quiet=self._quiet)
        if self._verbose:
            shares = balance.render(report.ranks, report.counts.entries, self._verbose)
            self._progress.note(shares.rstrip("\n"))
            self._progress.note(f"fprof: {summary(report)}")
        return code


def _profile_of(outcome: Outcome[Done]) -> Profile | None:
    packed = b"" if outcome.result is None else outcome.result.profile
    return unpack(packed) if packed else None


def _account(total: Totals, profile: Profile | None) -> str | None:
    """What is wrong with the counts of a job that ended well; None if nothing is."""
    told = 0 if profile is None else sum(tally[0] for tally in profile.kinds.values())
    if total.found != total.settled:
        text = f"{total.found} entries were found, but {total.settled} accounted for"
    elif told != total.settled - total.failed:
        text = f"{total.settled - total.failed} entries were examined, but {told} profiled"
    else:
        return None
    report = write_report(Defect(text), f"adding up the accounts\n\n{total}")
    return report.removeprefix("Defect: ")
