"""Rank 0's side of a run that a person sees: failures as they come, progress, signatures."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, TextIO

from pcircle import __version__
from pcircle.circle import Sums
from pcircle.errors import Defect, EntriesFailed, IntegrityError, StoppedEarly, worst
from pcircle.fsum.counters import Totals, totals
from pcircle.fsum.items import Difference, Digest, Done
from pcircle.fsum.plan import Plan
from pcircle.fsum.report import (
    SCHEMA,
    Comparison,
    Report,
    Signed,
    Told,
    bad_lines,
    describe,
    describe_failure,
    failed_entry,
    rank_share,
    summary,
    verdict,
)
from pcircle.guards import require
from pcircle.runtime import Observer, Outcome
from pcircle.runtime.defect import write_report
from pcircle.signature import algorithm, entries_of, text_of
from pcircle.signature.digests import BESIDE
from pcircle.tool.failures import Failure
from pcircle.ui import jsonout, progress
from pcircle.ui.errorlog import LogFile
from pcircle.ui.names import show
from pcircle.ui.output import Output
from pcircle.ui.pace import Known, Pace
from pcircle.ui.progress import note_all
from pcircle.ui.report import FAILURES_KEPT, FailedEntry, failures_by_kind, shares
from pcircle.writing import write_stream

if TYPE_CHECKING:
    from pcircle.fs.sorting import Sorter

_PERIOD_S = 0.2
_TOGETHER = 4096  # lines that are written at once


class Console(Observer[Done]):
    """Tells the user of failures, progress and the signatures."""

    def __init__(
        self,
        plan: Plan,
        *,
        quiet: bool,
        verbose: int,
        progress_mode: progress.Mode,
        interval_s: float,
        json: str | None,
        log: LogFile | None,
        output: bytes | None = None,
        bad_lines: int = 0,
        strict: bool = False,
    ) -> None:
        self._plan = plan
        self._output = output
        self._bad_lines = bad_lines  # of a checksum list
        self._strict = strict
        self._digests: Sorter | None = None  # of whole files
        if plan.whole:
            from pcircle.fs.sorting import Sorter  # most runs need none

            self._digests = Sorter()
        self._signs = not plan.whole and (plan.against is None or plan.mode == "update")
        self._differences: list[Difference] = []
        self._quiet = quiet
        self._verbose = verbose
        self._json = json
        self._log = log
        self._trouble = False  # of the log
        self._by_kind: Counter[tuple[int | None, str]] = Counter()
        self._failed_roots: set[int] = set()
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
        if self._digests is not None:
            for value in values:
                if isinstance(value, Digest):
                    key = value.path.replace(b"/", b"\0")
                    self._digests.add(key + b"\0\0" + value.digest)
        self._differences += [value for value in values if isinstance(value, Difference)]
        failures = [value for value in values if isinstance(value, Failure)]
        for failure in failures:
            self._by_kind[failure.errno, failure.kind] += 1
            self._failed_roots.add(failure.root)
            if len(self._failures) < FAILURES_KEPT:
                self._failures.append(failed_entry(failure))
        note_all(self._progress, map(describe_failure, failures))

    def log(self, lines: bytes) -> None:
        if self._log is not None and not self._trouble:
            try:
                self._log.append(lines)
            except OSError as error:
                self._log_failed(error)

    def _log_failed(self, error: OSError) -> None:
        self._trouble = True
        self._progress.note(f"fsum: cannot write the error log: {error.strerror}")

    def show(self, sums: Sums) -> None:
        now = totals(sums.counts)
        known = Known(
            found=now.found,
            sized=now.sized,
            done=now.settled,
            bytes_found=now.bytes_found,
            bytes_done=now.bytes_done,
            scanned=now.scans_due == now.scans_done,
            weight=sums.weight,
        )
        elapsed_s = time.monotonic() - self._began_s
        view = self._pace.view(elapsed_s, known, stale_ranks=sums.stale, failed=now.failed)
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
        texts: dict[int, str] = {}
        if not code:
            wrong = None if self._plan.whole else self._account(total, outcome)
            if wrong is not None:
                code = Defect.exit_code
                reasons.append(wrong)
            else:
                texts = self._texts(outcome.result)
        if self._plan.detailed:
            code = self._end_manifests(code, total, outcome, reasons)
        elif self._differences:
            code = worst((code, IntegrityError.exit_code))
        if self._bad_lines and (self._strict or not self._quiet):
            self._progress.note(f"fsum: {bad_lines(self._bad_lines)}")
        if total.failed or self._trouble or (self._bad_lines and self._strict):
            code = worst((code, EntriesFailed.exit_code))
        if self._by_kind:
            self._progress.note(f"fsum: {failures_by_kind(self._by_kind)}")
        for reason in dict.fromkeys(reasons):
            kind = "internal error: " if code == Defect.exit_code else ""
            self._progress.note(f"fsum: {kind}{reason}")
        return self._tell(self._report(code, total, tuple(reasons), texts, outcome))

    def _end_manifests(
        self, code: int, total: Totals, outcome: Outcome[Done], reasons: list[str]
    ) -> int:
        """Write the manifest that was asked for, or hold the root against the other one."""
        from pcircle.fsum.publishing import against_root, publish, root_of

        plan = self._plan
        root = None if code or outcome.result is None else root_of(plan, outcome.result)
        if plan.parts is not None:
            complete = root is not None and not total.failed
            try:
                publish(plan, require(self._output), root if complete else None, total.signed)
            except OSError as error:
                reasons.append(f"cannot write the manifest: {error.strerror}")
                return worst((code, StoppedEarly.exit_code))
            if not complete and not code:
                self._progress.note("fsum: no manifest was written: some entries could not be read")
        elif root is not None and not total.failed:
            self._differences += against_root(plan, root, told=bool(self._differences))
        return worst((code, IntegrityError.exit_code)) if self._differences else code

    def _account(self, total: Totals, outcome: Outcome[Done]) -> str | None:
        """What is wrong with the counts of a job that ended well; None if nothing is."""
        signed = 0 if outcome.result is None else outcome.result.roots.signed
        if total.found != total.settled:
            text = f"{total.found} entries were found, but {total.settled} accounted for"
        elif not total.failed and total.signed != signed:
            text = f"{total.signed} entries were read, but {signed} signed"
        else:
            return None
        told = write_report(Defect(text), f"adding up the accounts\n\n{total}")
        return told.removeprefix("Defect: ")

    def _texts(self, result: Done | None) -> dict[int, str]:
        """The signatures of the roots that have one."""
        if result is None or not self._signs:
            return {}
        chosen = algorithm(self._plan.algorithm)
        beside = BESIDE.size if self._plan.detailed else 0
        entries = entries_of(b"".join(result.roots.runs), chosen.size + beside)
        found = {}
        for name, entry in entries:
            if int(name) not in self._failed_roots:
                end = len(entry) - beside
                found[int(name)] = text_of(chosen, entry[end - chosen.size : end])
        return found

    def _report(
        self,
        code: int,
        total: Totals,
        reasons: tuple[str, ...],
        texts: dict[int, str],
        outcome: Outcome[Done],
    ) -> Report:
        elapsed_s = max(time.monotonic() - self._began_s, 1e-6)
        signatures = tuple(
            Signed(show(root.shown), texts.get(number))
            for number, root in enumerate(self._plan.roots)
        )
        return Report(
            schema=SCHEMA,
            tool="fsum",
            version=__version__,
            exit_code=code,
            algorithm=self._plan.algorithm,
            signatures=signatures,
            entries=total.signed,
            files=total.files,
            directories=total.directories,
            links=total.links,
            special=total.special,
            bytes=total.bytes_done,
            failed=total.failed,
            elapsed_s=round(elapsed_s, 6),
            bytes_per_s=round(total.bytes_done / elapsed_s, 3),
            entries_per_s=round(total.signed / elapsed_s, 3),
            reasons=tuple(dict.fromkeys(reasons)),
            failures=tuple(self._failures),
            ranks=tuple(map(rank_share, outcome.reports)),
            differences=describe(self._differences),
            bad_lines=self._bad_lines,
        )

    def _tell(self, report: Report) -> int:
        """Write what was asked for; a result that can't be written is a failure as well."""
        code = report.exit_code
        if self._json is not None:
            try:
                jsonout.write(report, self._json, getattr(sys.stdout, "buffer", None))
            except OSError as error:
                self._progress.note(f"fsum: cannot write '{self._json}': {error.strerror}")
                code = worst((code, EntriesFailed.exit_code))
        try:
            # Standard output carries the JSON document then.
            _write(sys.stderr if self._json == "-" else sys.stdout, self._results(report))
        except OSError as error:
            self._progress.note(f"fsum: cannot write standard output: {error.strerror}")
            code = worst((code, EntriesFailed.exit_code))
        if self._digests is not None:
            self._digests.close()
        for signed in report.signatures if self._signs else ():
            if signed.signature is None and report.exit_code in (0, EntriesFailed.exit_code):
                reason = "some entries could not be read"
                self._progress.note(f"fsum: no signature of '{signed.path}': {reason}")
        checked = self._plan.listed or (self._plan.against is not None and not self._signs)
        if checked and not self._quiet:
            self._progress.note(f"fsum: {verdict(report.differences, report.failed)}")
        if self._verbose:
            self._progress.note(shares(report.ranks, report.entries, self._verbose).rstrip("\n"))
            self._progress.note(summary(report))
        return code

    def _results(self, report: Report) -> Iterator[bytes]:
        """The lines that were asked for."""
        yield from _lines(report.differences)
        if self._digests is not None:
            from pcircle.signature.checksums import line_of

            for record in self._digests.sorted():
                path, _, digest = record.rpartition(b"\0\0")
                yield line_of(digest, path.replace(b"\0", b"/")) + b"\n"
        for signed in report.signatures if self._signs else ():
            if signed.signature is not None:
                yield f"{signed.signature}  {signed.path}\n".encode()


def tell_differences(found: Iterable[Difference], json: str | None) -> int:
    """Say how two manifests differ; returns the exit code."""
    told = describe(sorted(found, key=lambda each: each.path))
    code = IntegrityError.exit_code if told else 0
    if json is not None:
        jsonout.check(json)
        document = Comparison(SCHEMA, "fsum", __version__, code, told)
        try:
            jsonout.write(document, json, getattr(sys.stdout, "buffer", None))
        except OSError as error:
            Output(sys.stderr).line(f"fsum: cannot write '{json}': {error.strerror}")
            code = worst((code, EntriesFailed.exit_code))
    try:
        _write(sys.stderr if json == "-" else sys.stdout, _lines(told))
    except OSError as error:
        Output(sys.stderr).line(f"fsum: cannot write standard output: {error.strerror}")
        code = worst((code, EntriesFailed.exit_code))
    return code


def _lines(differences: Iterable[Told]) -> Iterator[bytes]:
    return (f"{each.what}  {each.path}\n".encode() for each in differences)


def _write(stream: TextIO | None, lines: Iterator[bytes]) -> None:
    """Write results. OSError if that can't be done."""
    while some := b"".join(islice(lines, _TOGETHER)):
        write_stream(stream, some)
