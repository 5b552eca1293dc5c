"""The console of fsum: failures as they happen, progress, and signatures."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pcircle import __version__
from pcircle.cli import console as base
from pcircle.cli import json_output as jsonout
from pcircle.cli.options import CommonOptions
from pcircle.cli.output import MessageStream
from pcircle.cli.report import RootSignature
from pcircle.cli.results import Results
from pcircle.core.errors import Defect, EntriesFailed, IntegrityError, StoppedEarly, worst
from pcircle.core.names import show
from pcircle.jobs.failures import Failure, LogFile
from pcircle.ops.digest import format_signature, get_algorithm, iter_entries
from pcircle.ops.digest.digests import TRAILER_BYTES
from pcircle.runtime import Outcome
from pcircle.tools.fsum.plan import Difference, Digest, SumCounters, SumPlan, SumResult
from pcircle.tools.fsum.report import (
    SCHEMA,
    Differences,
    ManifestComparison,
    ReportedDifference,
    SumReport,
    bad_lines,
    summary,
    verdict,
)

if TYPE_CHECKING:
    from pcircle.fs.sorting import Sorter


class SumConsole(base.Console[SumResult]):
    """Reports failures, progress and the signatures."""

    tool = "fsum"

    def __init__(
        self,
        plan: SumPlan,
        options: CommonOptions,
        log: LogFile | None,
        *,
        output: bytes | None,
        bad_lines: int,
        first_bad: Sequence[str],
    ) -> None:
        super().__init__(options, log)
        self._plan = plan
        self._json = options.json is not None
        self._output = output
        self._bad_lines = bad_lines  # invalid lines of a checksum list
        self._first_bad = first_bad
        self._digests: Sorter | None = None  # digests of whole files
        if plan.whole:
            from pcircle.fs.sorting import Sorter  # most runs sign without digests of whole files

            self._digests = Sorter()
        self._signs = not plan.whole and (plan.against is None or plan.mode == "update")
        self._differences = Differences()
        self._failed_roots: set[int] = set()

    def counted(self, counts: tuple[int, ...]) -> SumCounters:
        return SumCounters.of(counts)

    def remark(self, notice: object) -> Iterable[str]:
        try:
            if isinstance(notice, Failure):
                self._failed_roots.add(notice.root)
            elif isinstance(notice, Difference):
                self._differences.add([notice])
            elif isinstance(notice, Digest) and self._digests is not None:
                key = notice.path.replace(b"/", b"\0")
                self._digests.add(key + b"\0\0" + notice.digest)
        except OSError as error:
            raise _unsorted(error) from error
        return ()

    # ---- end of the job --------------------------------------------------------

    def conclude(self, outcome: Outcome[SumResult]) -> int:
        code, reasons = self.end(outcome)
        total = SumCounters.total(outcome.counts)
        texts: dict[int, str] = {}
        if not code:
            wrong = None if self._plan.whole else _account(total, outcome)
            if wrong is not None:
                code = Defect.exit_code
                reasons.append(wrong)
            else:
                texts = self._texts(outcome.result)
        if self._plan.detailed:
            code = self._end_manifests(code, total, outcome, reasons)
        elif self._differences:
            code = worst((code, IntegrityError.exit_code))
        for reason in self._first_bad:
            self.note(f"fsum: {reason}")
        if self._bad_lines:
            self.note(f"fsum: {bad_lines(self._bad_lines)}")
        if total.failed or self.log_failed or self._bad_lines:
            code = worst((code, EntriesFailed.exit_code))
        self.tell_failures()
        self.tell_reasons(code, reasons)
        return self._tell(self._report(code, total, tuple(reasons), texts, outcome))

    def _end_manifests(
        self, code: int, total: SumCounters, outcome: Outcome[SumResult], reasons: list[str]
    ) -> int:
        """Write the manifest, or compare the root with the old manifest; return the exit code."""
        from pcircle.tools.fsum.publishing import against_root, publish, root_of

        plan = self._plan
        root = None if code or outcome.result is None else root_of(plan, outcome.result)
        if plan.parts is not None and self._output is not None:
            complete = root is not None and not total.failed
            try:
                published = root if complete else None
                publish(plan, plan.parts, self._output, published, total.completed)
            except OSError as error:
                reasons.append(f"cannot write the manifest: {error.strerror}")
                return worst((code, StoppedEarly.exit_code))
            if not complete and not code:
                self.note("fsum: no manifest was written: some entries could not be read")
        elif plan.against is not None and root is not None and not total.failed:
            reported = bool(self._differences)
            self._differences.add(against_root(plan, plan.against, root, reported=reported))
            # A root that is a file belongs to no counted directory.
            total.compared += root.kind == b"f"
        return worst((code, IntegrityError.exit_code)) if self._differences else code

    def _texts(self, result: SumResult | None) -> dict[int, str]:
        """Return the signatures of the roots that have one."""
        if result is None or not self._signs:
            return {}
        chosen = get_algorithm(self._plan.algorithm)
        beside = TRAILER_BYTES if self._plan.detailed else 0
        entries = iter_entries(b"".join(result.roots.runs), chosen.size + beside)
        found = {}
        for name, entry in entries:
            if int(name) not in self._failed_roots:
                end = len(entry) - beside
                found[int(name)] = format_signature(chosen, entry[end - chosen.size : end])
        return found

    def _report(
        self,
        code: int,
        total: SumCounters,
        reasons: tuple[str, ...],
        texts: dict[int, str],
        outcome: Outcome[SumResult],
    ) -> SumReport:
        signatures = tuple(
            RootSignature(show(root.shown), texts.get(number))
            for number, root in enumerate(self._plan.roots)
        )
        return SumReport(
            schema=SCHEMA,
            tool="fsum",
            version=__version__,
            exit_code=code,
            algorithm=self._plan.algorithm,
            signatures=signatures,
            reasons=tuple(dict.fromkeys(reasons)),
            **self.fields(SumReport, total, outcome),
            differences=tuple(self._differences.reported()) if self._json else (),
            bad_lines=self._bad_lines,
            checked=total.compared - total.unchecked,
        )

    def _tell(self, report: SumReport) -> int:
        """Write the requested results; a result that cannot be written is a failure."""
        self.results.document(report)
        self.results.text(self._lines(report))
        self._differences.close()
        if self._digests is not None:
            self._digests.close()
        for signed in report.signatures if self._signs else ():
            if signed.signature is None and report.exit_code in (0, EntriesFailed.exit_code):
                reason = "some entries could not be read"
                self.note(f"fsum: no signature of '{signed.path}': {reason}")
        checked = self._plan.listed or (self._plan.against is not None and not self._signs)
        if checked and not self.quiet:
            self.note(f"fsum: {verdict(self._differences.kinds, report, self._plan.mode)}")
        if self.verbose:
            self.note(self.shown_shares(report, report.entries).rstrip("\n"))
            self.note(f"fsum: {summary(report)}")
        return worst((report.exit_code, self.results.code))

    def _lines(self, report: SumReport) -> Iterator[bytes]:
        """Yield the lines of the output."""
        yield from _difference_lines(
            report.differences if self._json else self._differences.reported()
        )
        if self._digests is not None:
            from pcircle.ops.digest.checksums import format_line

            for record in self._digests.sorted():
                path, _, digest = record.rpartition(b"\0\0")
                yield format_line(digest, path.replace(b"\0", b"/")) + b"\n"
        for signed in report.signatures if self._signs else ():
            if signed.signature is not None:
                yield f"{signed.signature}  {signed.path}\n".encode()


def tell_differences(differences: Iterable[Difference], json: str | None) -> int:
    """Report the differences of two manifests; return the exit code. StoppedEarly without space."""
    found = Differences()
    try:
        found.add(differences)
    except OSError as error:
        raise _unsorted(error) from error
    code = IntegrityError.exit_code if found else 0
    results = Results("fsum", json, MessageStream(sys.stderr).line)
    records: Iterable[ReportedDifference] = found.reported()
    if json is not None:
        jsonout.check(json)
        records = tuple(records)
        results.document(ManifestComparison(SCHEMA, "fsum", __version__, code, records))
    results.text(_difference_lines(records))
    found.close()
    return worst((code, results.code))


def _unsorted(error: OSError) -> StoppedEarly:
    """Return the error for results that fit neither into memory nor into temporary files."""
    return StoppedEarly(f"cannot write temporary files: {error.strerror}")


def _difference_lines(differences: Iterable[ReportedDifference]) -> Iterator[bytes]:
    return (f"{difference.what}  {difference.path}\n".encode() for difference in differences)


def _account(total: SumCounters, outcome: Outcome[SumResult]) -> str | None:
    """Return an error if the counts of a successful job disagree; otherwise None."""
    signed = 0 if outcome.result is None else outcome.result.roots.signed
    text = base.unsettled(total)
    if not text and not total.failed and total.completed != signed:
        text = f"{total.completed} entries were read, but {signed} signed"
    return base.miscounted(text, total) if text else None
