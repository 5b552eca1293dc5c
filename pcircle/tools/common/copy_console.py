"""The console of a copy: prints failures, progress and the result, and creates the report.

With `--signature`, data is digested as it is being copied, so that it is read only once. For this
purpose the process itself must read all data, so nothing is cloned or copied by the kernel. The
data passes through the rank's signer (`pcircle.ops.digest.signer`), and the digests are sent to
rank 0 with the results.

The signature covers the entries of the source as they exist in the target. If an entry was left
unchanged, it was not read in the source, so it is read in the target. Failed entries are missing
from the digests, and rank 0 identifies them by their failure notices. A checkpoint contains the
digests of completed work, so a resumed copy does not read completed files again.

This module contains only the part of rank 0. The signer of each rank belongs to its worker
(`pcircle.ops.copy.tree.worker`), and exists only with this option.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from pcircle import __version__
from pcircle.cli import console as base
from pcircle.cli.console import miscounted, unsettled
from pcircle.cli.output import MessageStream
from pcircle.cli.report import ReadReport, RootSignature, only_signature
from pcircle.core.encoding import show
from pcircle.core.errors import Defect, EntriesFailed, IntegrityError, RankLost, StoppedEarly, worst
from pcircle.core.units import format_duration, format_rates, format_size, plural
from pcircle.fs.file_system import NO_INODES
from pcircle.jobs.failures import FailedEntry, Failure, LogFile
from pcircle.ops.checkpoint.resume import CheckpointSession
from pcircle.ops.copy.entry.counts import HARD_LINKS
from pcircle.ops.copy.tree.counters import CopyCounters, totals
from pcircle.ops.copy.tree.items import VERIFYING, CopyResult, CopyRoot, Remark, SkippedSpecial
from pcircle.ops.copy.tree.resume import remarks_of
from pcircle.runtime import Outcome, RankReport

if TYPE_CHECKING:
    from pcircle.jobs.plan_output import PlanFile
    from pcircle.runtime.restart import OutputLog
    from pcircle.tools.common.copy_options import CopyOptions


SCHEMA = 1
_NOT_HELD = "destination does not support them, or they cannot be read"


class Signatures:
    """Computes the signatures of the roots on rank 0.

    `shown` are the paths of the copies as shown in messages.
    """

    def __init__(self, name: str, shown: tuple[bytes, ...]) -> None:
        from pcircle.ops.digest import get_algorithm  # few runs sign

        self._algorithm = get_algorithm(name)
        self._shown = shown
        self._failed: set[int] = set()
        self._lacking: set[int] = set()

    def failed(self, failure: Failure) -> None:
        """Record a failed entry."""
        self._failed.add(failure.root)

    def skipped(self, skipped: SkippedSpecial) -> None:
        """Record that a special file of a tree was skipped."""
        self._lacking.add(skipped.root)

    @property
    def is_lacking(self) -> bool:
        """Return whether a signature cannot be computed because special files were skipped."""
        return bool(self._lacking)

    def why(self, root: int) -> str:
        """Return why a root has no signature."""
        if root in self._lacking and root not in self._failed:
            return "special files in it were skipped: add -a to copy and sign them"
        return "some entries could not be copied"

    def results(
        self, result: CopyResult | None, *, failures: int, entries: int
    ) -> list[tuple[bytes, str | None]]:
        """Return the path of each root with its signature, or None if it has no signature.

        `failures` and `entries` are the totals of the job. Raise ValueError if the number of signed
        entries is not `entries`, although nothing has failed.
        """
        from pcircle.ops.digest import format_signature, iter_entries

        if result is None or (failures and not self._failed):
            return [(shown, None) for shown in self._shown]
        if not failures and result.roots.signed != entries:
            signed = result.roots.signed
            raise ValueError(f"{entries} entries were completed, but {signed} were signed")
        size = self._algorithm.size
        entries_found = iter_entries(b"".join(result.roots.runs), size)
        texts = {
            int(name): format_signature(self._algorithm, e[-size:]) for name, e in entries_found
        }
        return [
            (shown, None if root in self._failed | self._lacking else texts.get(root))
            for root, shown in enumerate(self._shown)
        ]


class CopyReport(ReadReport, frozen=True):
    """The result of a copy.

    `entries` counts the copied entries. `not_kept` counts the entries for each kind of attribute
    that could not be preserved. `special_skipped` counts the special files that were skipped
    because -a was not given. They are not included in `skipped`. `directories` includes
    `directories_created` and `directories_touched`. The latter counts existing directories whose
    attributes were updated. In a resumed run, both include directories that an earlier run started
    but did not complete. `resumed` counts the entries of an earlier run. These and their bytes are
    included in the counts, but not in the rates.
    """

    dry_run: bool
    sources: tuple[str, ...]
    target: str
    found: int
    not_kept: dict[str, int]
    skipped: int
    special_skipped: int
    resumed: int
    resumed_bytes: int
    directories_created: int = 0
    directories_touched: int = 0
    signatures: tuple[RootSignature, ...] = ()

    @property
    def signature(self) -> str:
        """Return the signature of the only copy, if it was requested.

        Raises EntriesFailed if entries could not be read, and ValueError if there are several,
        or none.
        """
        return only_signature(self.signatures)


def described(remark: Remark) -> str:
    """Return the text of a remark, including its path."""
    path = f"'{show(remark.path)}'"
    if "{}" in remark.text:
        return remark.text.replace("{}", path, 1)
    return f"{path} {remark.text}"


def describe_losses(not_kept: dict[str, int]) -> list[str]:
    """Return a line for each kind of attribute that could not be preserved."""
    return [
        f"{kind} of {plural(count, 'entry', 'entries')} were not kept: "
        + ("each became a separate file" if kind == HARD_LINKS else _NOT_HELD)
        for kind, count in not_kept.items()
    ]


def account(
    total: CopyCounters, reports: Sequence[RankReport], failures: Sequence[FailedEntry]
) -> str | None:
    """Return an error if the counts of a successful job are inconsistent, or None.

    Entries and bytes are counted as found when the source is read, and as settled when the target
    is written. Bytes can be compared only if no entry has failed. The error names a file that
    contains all counts.
    """
    text = unsettled(total)
    if not text and not total.failed and total.bytes_found != total.bytes_done:
        text = f"{total.bytes_found} bytes were found, but {total.bytes_done} accounted for"
    known = [f"all ranks: {total}"]
    known += [f"rank {report.rank}: {totals(report.counts)}" for report in reports]
    known += [f"failed: {failure}" for failure in failures]
    return miscounted(text, "\n".join(known)) if text else None


def summary(
    report: CopyReport,
    target: str | None = None,
    touched: int = 0,
    idle: str = "nothing to do",
    *,
    resumes: bool = False,
) -> str:
    """Return the last line of a run: entries, bytes, destination, time and rates.

    `touched` counts entries, other than directories, whose attributes alone were updated. If
    nothing was done, the line contains `idle`. In a run that `resumes`, all directories count as
    copied, because an earlier run may have created them.
    """
    resumes = resumes or report.resumed > 0
    made = report.directories if resumes else report.directories_created
    touched += 0 if resumes else report.directories_touched
    checked = report.directories - made
    there = report.target if target is None else target
    took = f"in {format_duration(report.elapsed_s)}"
    stay = [f"{plural(report.skipped, 'entry', 'entries')} skipped"] if report.skipped else []
    stay += [f"{plural(checked, 'directory', 'directories')} checked"] if checked else []
    special = []
    if report.special_skipped:
        special = [f"{plural(report.special_skipped, 'special file', 'special files')} skipped"]
    touched_entries = plural(touched, "entry", "entries")
    is_set = (
        f"would update attributes of {touched_entries}"
        if report.dry_run
        else f"attributes of {touched_entries} updated"
    )
    if _was_idle(report):
        done = is_set if touched else idle
        stay = special + stay
        done = f"{done}: {', '.join(stay)} in '{there}' {took}" if stay else f"{done} {took}"
    else:
        done = f"{_copied(report, made)} to '{there}' {took}"
        if not report.dry_run:
            share = 1 - checked / report.entries if report.entries else 1.0
            rates = format_rates(report.bytes_per_s, report.entries_per_s * share)
            done = f"{done}: {rates}" if rates else done
        if report.resumed:
            size = format_size(report.resumed_bytes)
            earlier = plural(report.resumed, "entry", "entries")
            done = f"{done}, including {earlier} ({size}) from an earlier run"
        stay += [is_set] if touched else []
        stay += special
        done = f"{done}; {', '.join(stay)}" if stay else done
    if report.failed:
        done = f"{plural(report.failed, 'entry', 'entries')} failed; {done}"
    return done


def _copied(report: CopyReport, made: int) -> str:
    """Describe what was copied or would be copied, including `made` directories."""
    kinds = [
        plural(report.files, "file", "files"),
        plural(made, "directory", "directories"),
        plural(report.links, "link", "links"),
    ]
    if report.special:
        kinds.append(plural(report.special, "special file", "special files"))
    verb = "would copy" if report.dry_run else "copied"
    entries = plural(report.entries - report.directories + made, "entry", "entries")
    return f"{verb} {entries} ({', '.join(kinds)}), {format_size(report.bytes)}"


def _was_idle(report: CopyReport) -> bool:
    """Return whether the run succeeded and did not copy any entry."""
    if report.failed or report.exit_code:
        return False
    return not (report.files or report.links or report.special or report.directories_created)


class RankLoss(msgspec.Struct, frozen=True):
    """The ranks that were lost, and whether there is a checkpoint to resume from."""

    ranks: tuple[int, ...]
    resumes: bool


class CopyConsole(base.Console[CopyResult]):
    """Reports the failures, the progress and the result of a copy.

    If ranks are lost and `can_restart` is set, the job continues, and `loss` describes the loss.
    """

    acts = "copies"

    def __init__(
        self,
        options: CopyOptions,
        log: LogFile | None,
        *,
        roots: Sequence[CopyRoot],
        session: CheckpointSession | None,
        signatures: Signatures | None,
        actions: LogFile | None,
        listed: LogFile | None,
        planned: PlanFile | None,
    ) -> None:
        self.tool: str = options.tool
        super().__init__(options, log, actions, listed, planned)
        self._options = options
        self._differs = False
        self._last_failure: Failure | None = None
        self._skipped: set[str] = set()  # kinds of special files that were skipped
        self._roots = roots
        self._checkpoint_session = session
        self._signatures = signatures
        self._signed: list[tuple[bytes, str | None]] = []
        self.can_restart = False
        self.loss: RankLoss | None = None
        self.final_code: int | None = None  # the exit code, set at the end of the job
        if session is not None:
            self.notice(0, remarks_of(session))

    # ---- while it runs ---------------------------------------------------------

    def counted(self, counts: tuple[int, ...]) -> CopyCounters:
        return totals(counts)

    def refused(self, failure: Failure) -> Failure:
        from pcircle.tools.common.copy_error_log import with_path  # few runs have failures

        return with_path(failure, self._roots)

    def notice(self, source: int, values: Sequence[object]) -> None:
        """Handle notices. Skip a repeated failure: several ranks may report the same large file."""
        fresh = []
        for value in values:
            if isinstance(value, Failure):
                if value == self._last_failure:
                    continue
                self._last_failure = value
            fresh.append(value)
        super().notice(source, fresh)

    def remark(self, notice: object) -> Iterable[str]:
        if isinstance(notice, Failure):
            self._differs = self._differs or notice.doing == VERIFYING
            if self._signatures is not None:
                self._signatures.failed(notice)
        elif isinstance(notice, SkippedSpecial):
            return self._skip(notice)
        elif isinstance(notice, Remark) and not self.quiet:
            return [f"{self.tool}: {described(notice)}"]
        return ()

    def _skip(self, skipped: SkippedSpecial) -> list[str]:
        """Return the message for the first skipped special file of each kind."""
        if self._signatures is not None:
            self._signatures.skipped(skipped)
        kind = skipped.kind
        if kind and kind not in self._skipped and not self.quiet:
            self._skipped.add(kind)
            example = show(skipped.path)
            return [f"{self.tool}: skipping {kind}s such as '{example}': add -a to copy them"]
        return []

    # ---- the end ---------------------------------------------------------------

    def conclude(self, outcome: Outcome[CopyResult]) -> int:
        total = CopyCounters.total(outcome.counts)
        lost = RankLost.only(outcome.reasons)
        if self.can_restart and lost and (self._output_log is None or self._output_log.is_whole):
            return self._prepare_restart(outcome.code, lost, outcome.reasons, total)
        code, reasons = self.end(outcome)
        missing = None if code else account(total, outcome.reports, self.failures)
        if missing is not None:
            code = Defect.exit_code
            reasons.append(missing)
        if self._signatures is not None and code in (0, EntriesFailed.exit_code):
            try:
                settled = total.completed + total.skipped
                failures = total.failed + len(self.by_kind)
                self._signed = self._signatures.results(
                    outcome.result, failures=failures, entries=settled
                )
            except ValueError as error:
                code = Defect.exit_code
                reasons.append(str(error))
        self.tell_failures()
        unsigned = self._signatures is not None and self._signatures.is_lacking
        if total.failed or unsigned or self.log_failed:
            code = worst((code, EntriesFailed.exit_code))
        if self._differs:
            code = worst((code, IntegrityError.exit_code))
        if any(" was lost" in reason for reason in reasons):
            reasons.append("temporary .fcp-* files may remain")
        report = self._report(code, total, tuple(reasons), outcome)
        self.tell_reasons(code, reasons)
        is_resumable = self._end_checkpoint(code, total)
        if not self.quiet:
            for line in describe_losses(report.not_kept):
                self.note(f"{self.tool}: {line}")
        final_code = self.final_code = self._write_results(report)
        if not (self.quiet or self._options.dry):
            for line in self.next(code, reasons, is_resumable):
                self.note(f"{self.tool}: {line}")
        return final_code

    def follow(self, output_log: OutputLog, former: base.Console[CopyResult] | None) -> None:
        """Take over the output of a former console. Its checkpointed work is not repeated."""
        super().follow(output_log, former)
        self._unlisted = 0 if former is None else former._unlisted

    def _prepare_restart(
        self, code: int, lost: tuple[int, ...], reasons: Sequence[str], total: CopyCounters
    ) -> int:
        """Prepare to continue without the lost ranks."""
        self._progress.close()
        for reason in reasons:
            self.note(f"{self.tool}: {reason}; continuing without it")
        self.quiet = True  # the job continues, so the checkpoint needs no message
        self.loss = RankLoss(lost, self._end_checkpoint(code, total))
        return code

    def _end_checkpoint(self, code: int, total: CopyCounters) -> bool:
        """Remove the checkpoint if it is no longer useful, and return whether it still exists."""
        if self._checkpoint_session is None:
            return False
        began = total.scans_done or total.sized or self._checkpoint_session.plan.stale
        path = show(self._checkpoint_session.checkpoint.path)
        complete = code in (0, EntriesFailed.exit_code, IntegrityError.exit_code)
        is_resumable = not complete and bool(began)
        if not is_resumable:
            try:
                self._checkpoint_session.remove()
            except OSError as error:
                self.note(f"{self.tool}: cannot remove the checkpoint '{path}': {error.strerror}")
        elif not self.quiet:
            self.note(f"{self.tool}: checkpoint kept in '{path}'")
        self._checkpoint_session.close()
        return is_resumable

    def next(self, code: int, reasons: Sequence[str], is_resumable: bool) -> Iterator[str]:
        """Yield the next step for the user: to continue, to start over or to retry failures."""
        first = _remedy(reasons)
        if is_resumable:
            # The next run cannot reuse the time of --stop-at, which will have passed.
            resume = self._command("--resume", ("--restart",), ("--stop-at",))
            yield f"to continue, {first}run: {resume}" if resume else "to continue, add --resume"
        elif code == StoppedEarly.exit_code and self._checkpoint_session is None:
            again = self._command(None, (), ("--stop-at",))
            text = "no checkpoint was kept; to start over, "
            yield f"{text}{first}run: {again}" if again else f"{text}{first}run it again"
        elif self.by_kind and code == EntriesFailed.exit_code:
            retry = None
            log = self._options.error_log
            if log is not None and self._signatures is None:
                # The retry reads this log, so it cannot also write to it. It needs no other list.
                listed = ("--error-log", "--retry-from", "--files-from", "--stop-at")
                wanted = f"--retry-from={log}"
                retry = self._command(wanted, ("--resume", "--restart"), listed)
            text = "to retry only the failed entries, "
            how = "use --error-log FILE and then --retry-from FILE"
            yield f"{text}run: {retry}" if retry else f"{text}{how}"

    def _command(
        self, add: str | None, drop: Collection[str], drop_valued: Collection[str]
    ) -> str | None:
        """Return the command to run next, or None if the copy was not started by a command line."""
        if not self._options.words:
            return None
        from pcircle.cli.arguments import command

        return command(self.tool, self._options.words, add=add, drop=drop, drop_valued=drop_valued)

    def _report(
        self, code: int, total: CopyCounters, reasons: tuple[str, ...], outcome: Outcome[CopyResult]
    ) -> CopyReport:
        return CopyReport(
            schema=SCHEMA,
            tool=self.tool,
            version=__version__,
            exit_code=code,
            dry_run=self._options.dry,
            sources=tuple(map(show, self._options.sources)),
            target=show(self._options.target),
            not_kept=total.not_kept,
            reasons=reasons,
            signatures=tuple(RootSignature(show(path), text) for path, text in self._signed),
            **self.fields(CopyReport, total, outcome, earlier=(total.resumed, total.resumed_bytes)),
        )

    def _shown_target(self) -> str:
        """Return the path of the copy, or of the directory that contains several copies."""
        roots = self._roots
        return show(roots[0].target_shown if len(roots) == 1 else self._options.target)

    def summary(self, report: CopyReport) -> str:
        """Return the last line of the run."""
        return summary(report, self._shown_target(), resumes=self._resumes)

    @property
    def _resumes(self) -> bool:
        return (
            self._checkpoint_session is not None
            and self._checkpoint_session.state.counts is not None
        )

    def document(self, report: CopyReport) -> None:
        """Write the JSON document, if requested."""
        self.results.document(report)

    def _write_results(self, report: CopyReport) -> int:
        """Write the requested results. Return the exit code, taking failed writes into account."""
        self.document(report)
        signed = [item for item in report.signatures if item.signature is not None]
        if signed:
            self.results.text(f"{item.signature}  {item.path}\n".encode() for item in signed)
        for root, item in enumerate(report.signatures):
            if item.signature is None:
                why = "" if self._signatures is None else self._signatures.why(root)
                self.note(f"{self.tool}: no signature of '{item.path}': {why}")
        if not self.quiet:
            text = self.rank_tables(report, report.entries) + self.summary(report) + "\n"
            MessageStream(self.results.summary_stream).write(text)  # a message, not a result
        return worst((report.exit_code, self.results.code))


def _remedy(reasons: Sequence[str]) -> str:
    """Return what the user must do before the job can continue, or an empty string."""
    if any(NO_INODES in reason for reason in reasons):
        return "remove some files and "
    cures = {
        errno.ENOSPC: "free some space and ",
        errno.EDQUOT: "free some space and ",
        errno.EROFS: "make the file system writable and ",
    }
    said = (
        cure for number, cure in cures.items() if any(os.strerror(number) in why for why in reasons)
    )
    return next(said, "")
