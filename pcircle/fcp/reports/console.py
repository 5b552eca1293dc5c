"""Rank 0's side of a copy that a person sees: failures as they come, progress, the summary."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from pcircle import __version__
from pcircle.checkpoint.resume import Kept
from pcircle.circle import Sums
from pcircle.errors import Defect, EntriesFailed, IntegrityError, StoppedEarly, worst
from pcircle.fcp.counters import Totals, totals
from pcircle.fcp.items import VERIFYING, Done, Remark, Skipped
from pcircle.fcp.reports.report import (
    SCHEMA,
    Report,
    Signed,
    account,
    add_up,
    describe_failure,
    describe_losses,
    described,
    failed_entry,
    rank_share,
    summary,
)
from pcircle.fcp.reports.signing import Signatures
from pcircle.fcp.resume import remarks_of
from pcircle.runtime import Observer, Outcome
from pcircle.tool.again import command
from pcircle.tool.failures import Failure
from pcircle.ui import jsonout, progress
from pcircle.ui.errorlog import LogFile
from pcircle.ui.names import show
from pcircle.ui.output import Output
from pcircle.ui.pace import Known, Pace
from pcircle.ui.progress import note_all
from pcircle.ui.report import FAILURES_KEPT, FailedEntry, failures_by_kind, shares
from pcircle.writing import write_stream

_PERIOD_S = 0.2


class Console(Observer[Done]):
    """Tells the user of a copy's failures, progress and end."""

    def __init__(
        self,
        *,
        quiet: bool,
        verbose: int,
        progress: progress.Mode,
        interval_s: float,
        json: str | None,
        log: LogFile | None,
        dry: bool,
        sources: Sequence[bytes],
        target: bytes,
        kept: Kept | None = None,
        signatures: Signatures | None = None,
        words: Sequence[str] = (),
    ) -> None:
        self._quiet = quiet
        self._verbose = verbose
        self._json = json
        self._log = log
        self._log_trouble: OSError | None = None
        self._by_kind: Counter[tuple[int | None, str]] = Counter()
        self._dry = dry
        self._differs = False
        self._skipped: set[str] = set()  # kinds of special files
        self._sources = sources
        self._target = target
        self._kept = kept
        self._signatures = signatures
        self._words = words
        self._signed: list[tuple[bytes, str | None]] = []
        self._began_s = time.monotonic()
        self._failures: list[FailedEntry] = []
        self._pace = Pace()
        self._progress = _make_progress(progress, quiet, interval_s)
        shown = progress == "always" or (progress == "auto" and not quiet)
        self.period_s = min(_PERIOD_S, interval_s) if shown else None
        if kept is not None:
            self.notice(0, remarks_of(kept))

    # ---- while it runs ---------------------------------------------------------

    def notice(self, source: int, values: Sequence[Any]) -> None:
        said: list[str] = []
        for value in values:
            if isinstance(value, Failure):
                self._by_kind[value.errno, value.kind] += 1
                self._differs = self._differs or value.doing == VERIFYING
                if self._signatures is not None:
                    self._signatures.failed(value)
                if len(self._failures) < FAILURES_KEPT:
                    self._failures.append(failed_entry(value))
                said.append(describe_failure(value))
            elif isinstance(value, Skipped):
                said += self._skip(value)
            elif isinstance(value, Remark) and not self._quiet:
                said.append(f"fcp: {described(value)}")
        note_all(self._progress, said)

    def _skip(self, skipped: Skipped) -> list[str]:
        """A special file was left out: the line for it, for the first of each kind."""
        if self._signatures is not None:
            self._signatures.skipped(skipped)
        kind = skipped.kind
        if kind and kind not in self._skipped and not self._quiet:
            self._skipped.add(kind)
            example = show(skipped.path)
            return [f"fcp: skipping {kind}s such as '{example}': add -a to copy them"]
        return []

    def log(self, lines: bytes) -> None:
        if self._log is None or self._log_trouble is not None:
            return
        try:
            self._log.append(lines)
        except OSError as error:
            self._log_trouble = error
            self._progress.note(f"fcp: cannot write the error log: {error.strerror}")

    def _close_log(self) -> None:
        if self._log is None:
            return
        try:
            self._log.close()
        except OSError as error:
            self._log_trouble = error
            self._progress.note(f"fcp: cannot write the error log: {error.strerror}")

    def show(self, sums: Sums) -> None:
        now = totals(sums.counts)
        known = Known(
            found=now.found,
            sized=now.sized,
            done=now.settled,
            bytes_found=now.bytes_found,
            bytes_done=now.bytes_done,
            scanned=now.scanned,
            weight=sums.weight,
            earlier=now.resumed,
            earlier_bytes=now.resumed_bytes,
        )
        elapsed_s = time.monotonic() - self._began_s
        view = self._pace.view(elapsed_s, known, stale_ranks=sums.stale, failed=now.failed)
        self._progress.update(view)

    # ---- the end ---------------------------------------------------------------

    def conclude(self, outcome: Outcome[Done]) -> int:
        self._progress.close()
        self._close_log()
        total = add_up(outcome.reports) if outcome.reports else Totals()
        code = outcome.code
        reasons = list(outcome.reasons)
        if outcome.silent:
            code = worst((code, StoppedEarly.exit_code))
            names = ", ".join(map(str, outcome.silent))
            reasons.append(f"not heard from at the end: rank {names} and its subtree")
        missing = None if code else account(total, outcome.reports, self._failures)
        if missing is not None:
            code = Defect.exit_code
            reasons.append(missing)
        if self._signatures is not None and code in (0, EntriesFailed.exit_code):
            try:
                settled = total.copied + total.skipped
                failures = total.failed + len(self._by_kind)
                self._signed = self._signatures.results(
                    outcome.result, failures=failures, entries=settled
                )
            except ValueError as error:
                code = Defect.exit_code
                reasons.append(str(error))
        if self._by_kind:
            self._progress.note(f"fcp: {failures_by_kind(self._by_kind)}")
        unsigned = self._signatures is not None and self._signatures.is_lacking
        if total.failed or unsigned or self._log_trouble is not None:
            code = worst((code, EntriesFailed.exit_code))
        if self._differs:
            code = worst((code, IntegrityError.exit_code))
        if any(" was lost" in reason for reason in reasons):
            reasons.append("temporary .fcp-* files may remain")
        self._end_checkpoint(code, total)
        report = self._report(code, total, tuple(reasons), outcome)
        for reason in reasons:
            kind = "internal error: " if code == Defect.exit_code else ""
            self._progress.note(f"fcp: {kind}{reason}")
        if not self._quiet:
            for line in describe_losses(report.not_kept):
                self._progress.note(line)
        return self._tell(report)

    def _end_checkpoint(self, code: int, total: Totals) -> None:
        """Remove the checkpoint if there is nothing to go on with; else say that it is there."""
        if self._kept is None:
            if code == StoppedEarly.exit_code and not self._quiet and not self._dry:
                self._progress.note(f"fcp: no checkpoint was kept; {self._next(None)}")
            return
        began = total.scans_done or total.sized or self._kept.plan.stale
        path = show(self._kept.checkpoint.path)
        if code in (0, EntriesFailed.exit_code, IntegrityError.exit_code) or not began:
            try:
                self._kept.remove()
            except OSError as error:
                self._progress.note(f"fcp: cannot remove the checkpoint '{path}': {error.strerror}")
        elif not self._quiet:
            self._progress.note(f"fcp: checkpoint kept in '{path}'; {self._next('--resume')}")
        self._kept.close()

    def _next(self, add: str | None) -> str:
        """What to do to go on, or to begin again."""
        if not self._words:  # not started by a command
            return (
                f"to {'continue, add' if add else 'start over, run it again'} {add or ''}".rstrip()
            )
        drop = ("--restart",) if add else ()
        # A time that has come is over for the next run.
        text = command("fcp", self._words, add=add, drop=drop, drop_valued=("--stop-at",))
        return f"to {'continue' if add else 'start over'}, run: {text}"

    def _report(
        self, code: int, total: Totals, reasons: tuple[str, ...], outcome: Outcome[Done]
    ) -> Report:
        elapsed_s = max(time.monotonic() - self._began_s, 1e-6)
        return Report(
            schema=SCHEMA,
            tool="fcp",
            version=__version__,
            exit_code=code,
            dry_run=self._dry,
            sources=tuple(map(show, self._sources)),
            target=show(self._target),
            entries=total.copied,
            files=total.files,
            directories=total.directories,
            links=total.links,
            special=total.special,
            bytes=total.bytes_done,
            found=total.found,
            failed=total.failed,
            not_kept=total.not_kept,
            skipped=total.skipped,
            special_skipped=total.special_skipped,
            elapsed_s=round(elapsed_s, 6),
            bytes_per_s=round((total.bytes_done - total.resumed_bytes) / elapsed_s, 3),
            entries_per_s=round(max(0, total.copied - total.resumed) / elapsed_s, 3),
            resumed=total.resumed,
            resumed_bytes=total.resumed_bytes,
            reasons=reasons,
            failures=tuple(self._failures),
            ranks=tuple(map(rank_share, outcome.reports)),
            signatures=tuple(Signed(show(path), text) for path, text in self._signed),
        )

    def _tell(self, report: Report) -> int:
        """Write what was asked for; a result that can't be written is a failure as well."""
        code = report.exit_code
        if self._json is not None:
            try:
                jsonout.write(report, self._json, getattr(sys.stdout, "buffer", None))
            except OSError as error:
                self._progress.note(f"fcp: cannot write '{self._json}': {error.strerror}")
                code = worst((code, EntriesFailed.exit_code))
        # Standard output carries the JSON document then.
        stream = sys.stderr if self._json == "-" else sys.stdout
        signed = [each for each in report.signatures if each.signature is not None]
        if signed:
            lines = "".join(f"{each.signature}  {each.path}\n" for each in signed)
            try:
                write_stream(stream, lines.encode())
            except OSError as error:
                self._progress.note(f"fcp: cannot write standard output: {error.strerror}")
                code = worst((code, EntriesFailed.exit_code))
        for root, each in enumerate(report.signatures):
            if each.signature is None:
                why = "" if self._signatures is None else self._signatures.why(root)
                self._progress.note(f"fcp: no signature of '{each.path}': {why}")
        if not self._quiet:
            text = summary(report) + "\n"
            if self._verbose:
                text = shares(report.ranks, report.entries, self._verbose) + text
            Output(stream).write(text)  # said about the copy: no result
        return code


def _make_progress(mode: progress.Mode, quiet: bool, interval_s: float) -> progress.Progress:
    return progress.make(mode, sys.stderr, quiet=quiet, interval_s=interval_s)
