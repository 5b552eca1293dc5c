"""The console of rank 0: failures as they happen, progress, and the end of the job.

All tools report these in the same way. A tool adds its own output in two methods: `remark`, for
notices that are not failures, and `conclude`, for its results.

`MessageLimiter` limits the failures that are printed. After the first failures, one line refers to
the error log, or to the option that writes it. If standard error is not a terminal and there is no
error log, all failures are printed, because standard error is the log.

For very many ranks, the report contains the distribution of each figure instead of a row per rank.
"""

from __future__ import annotations

import os
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TextIO, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from pcircle.circle import ProgressSums
from pcircle.cli import listing, progress
from pcircle.cli.options import CommonOptions
from pcircle.cli.output import MessageStream
from pcircle.cli.progress import Pace
from pcircle.cli.report import (
    ACCOUNTS,
    FAILURES_KEPT,
    FigureStatistics,
    RankShare,
    RankSummary,
    Sent,
    by_kind,
    failures_by_kind,
    messages_by_pair,
    shares,
)
from pcircle.cli.results import Results
from pcircle.core.encoding import show
from pcircle.core.errors import Defect, RankLost, StoppedEarly, worst
from pcircle.core.units import format_count, format_size, plural
from pcircle.core.writing import CALLER, standard_error
from pcircle.jobs.action_log import ActionLines
from pcircle.jobs.failures import FailedEntry, Failure, LogFile, RecallNotice
from pcircle.jobs.tree_task import WorkCounts, reported
from pcircle.runtime import Observer, Outcome, RankReport
from pcircle.runtime.crash_report import write_report

if TYPE_CHECKING:
    from pcircle.jobs.plan_output import PlanFile
    from pcircle.runtime.restart import OutputLog
    from pcircle.runtime.summary import Summary

_PLAIN = ("entries", "bytes", "threads")
_TIME = "_s"
_LABELS = {"message_bytes": "sent", "spilled_items": "spilled", "peak_rss_bytes": "peak memory"}


def render(summary: RankSummary, stats: int) -> str:
    """Return the main figures as a table, or all figures if `stats` is at least 2."""
    header = ["", "all", "mean", "min", "rank", "5 %", "median", "95 %", "max", "rank"]
    rows = []
    for name, figure in summary.figures.items():
        if stats < 2 and name not in _PLAIN:
            continue
        values = (figure.sum, figure.mean, figure.min, figure.p5, figure.median, figure.p95)
        row = [_shown(name, value) for value in (*values, figure.max)]
        row.insert(3, str(figure.min_rank))
        label = _LABELS.get(name, name.removesuffix(_TIME).replace("_", " "))
        rows.append([label, *row, str(figure.max_rank)])
    head = f"{format_count(summary.ranks)} processes\n"
    return head + listing.render(rows, align="l" + "r" * (len(header) - 1), header=header)


def _shown(name: str, value: float) -> str:
    if name.endswith(_TIME):
        return f"{value:.2f} s"
    if name == "bytes" or name.endswith("_bytes"):
        return format_size(round(value))
    return format_count(round(value))


SHOWN = 20


class MessageLimiter:
    """Limits messages about failures to `SHOWN` lines, unless they would be lost."""

    def __init__(self, tool: str, stream: TextIO | None, log: str | None) -> None:
        self._tool = tool
        self._everything = log is None and not MessageStream(stream).isatty()
        self._log = log
        self._seen = 0

    def take(self, lines: Sequence[str]) -> list[str]:
        """Return the lines to print; the first omitted line is replaced by the reason."""
        room = max(0, SHOWN - self._seen)
        before, self._seen = self._seen, self._seen + len(lines)
        if self._everything or self._seen <= SHOWN:
            return list(lines)
        said = list(lines[:room])
        if before <= SHOWN:
            listed = "add --error-log FILE to list them all"
            where = (
                listed if self._log is None else f"'{show(os.fsencode(self._log))}' lists them all"
            )
            said.append(f"{self._tool}: further failures are counted but not printed: {where}")
        return said


R = TypeVar("R")

_PERIOD_S = 0.2


class JobCounters(Protocol):
    """The counters of a job: entries found, completed and failed, and their bytes."""

    names: ClassVar[tuple[str, ...]]

    @property
    def found(self) -> int: ...
    @property
    def completed(self) -> int: ...
    @property
    def bytes_done(self) -> int: ...
    @property
    def settled(self) -> int: ...
    @property
    def troubles(self) -> int: ...
    def known(self, weight: float) -> WorkCounts:
        """Return the known work, from which the remaining time is estimated."""
        ...


class RankedReport(Protocol):
    """A report with statistics of the ranks."""

    @property
    def ranks(self) -> tuple[RankShare, ...]: ...
    @property
    def rank_summary(self) -> RankSummary | UnsetType: ...


class Console(Observer[R]):
    """Reports failures, progress and the end of a run of `tool`."""

    tool: str
    acts = "actions"
    """The name of the action log in an `OutputLog`."""
    has_result = False
    """True if standard output has the result of the job, so that `-v` writes to standard error."""
    has_bytes = True
    """True if bytes are part of the work."""
    account: str = "entries"
    """The name of the job's entries in the system log; empty if they are not logged."""

    def __init__(
        self,
        options: CommonOptions,
        log: LogFile | None,
        actions: LogFile | None = None,
        listed: LogFile | None = None,
        planned: PlanFile | None = None,
    ) -> None:
        self.quiet: bool = options.quiet
        self.verbose: int = options.verbose
        self.stats: int = options.stats
        self.failures: list[FailedEntry] = []  # at most FAILURES_KEPT
        self.by_kind: Counter[tuple[int | None, str]] = Counter()
        self.log_failed: bool = False
        self._unwritable: set[str] = set()  # the logs to which a write has failed
        self._log = log
        self._actions = actions
        self._is_silent = options.silent
        stream = None if options.silent else standard_error()
        self._capped = MessageLimiter(self.tool, stream, options.error_log)
        self._listed = listed
        self._planned = planned
        self.planned: int = 0  # entries
        self._unlisted = 0  # entries
        self._is_warned = False  # about offline files
        self._is_warned_of_atime = False
        self._output_log: OutputLog | None = None  # if the job can restart
        self._end = b"\0" if options.null else b"\n"  # the terminator of paths in the list
        self.began_s: float = time.monotonic()
        self._pace = Pace()
        mode, interval_s = options.progress, options.interval_s
        self._progress = progress.make(mode, stream, quiet=self.quiet, interval_s=interval_s)
        self.note: Callable[[str], None] = self._progress.note
        self.results: Results = Results(self.tool, options.json, self.note)
        caller = CALLER.get()
        if caller is None:
            shown = mode == "always" or (mode == "auto" and not self.quiet)
        else:
            shown = mode != "never" and caller.has_progress
        self.period_s: float | None = min(_PERIOD_S, interval_s) if shown else None

    @property
    def elapsed_s(self) -> float:
        """Return the time since the start, always more than 0."""
        return max(time.monotonic() - self.began_s, 1e-6)

    @property
    def failures_omitted(self) -> int:
        """Return the number of failures that the report does not list."""
        return self.by_kind.total() - len(self.failures)

    # ---- while it runs ---------------------------------------------------------

    @abstractmethod
    def counted(self, counts: tuple[int, ...]) -> JobCounters:
        """Return the counts of a progress round by name."""

    def bytes_shown(self, now: JobCounters) -> int | None:
        """Return the bytes to show if bytes do not measure the job's work; otherwise None."""
        return None

    def refused(self, failure: Failure) -> Failure:
        """Return the failure with the path that the system refused, if that is a different path."""
        return failure

    def is_silent(self, failure: Failure) -> bool:
        """Return whether a failure is counted and logged, but not printed."""
        return False

    def remark(self, notice: object) -> Iterable[str]:
        """Return the lines to print for a notice, in addition to the message of a failure."""
        return ()

    def notice(self, source: int, values: Sequence[object]) -> None:
        said: list[str] = []
        failed: list[str] = []
        planned: list[bytes] = []
        for value in values:
            if isinstance(value, Failure):
                self.by_kind[value.errno, value.kind] += 1
                failure = self.refused(value)
                if len(self.failures) < FAILURES_KEPT:
                    self.failures.append(failure.reported())
                if not self.is_silent(value):
                    failed.append(failure.said(self.tool))
            if isinstance(value, ActionLines):
                self._write(self._actions, self._fresh(self.acts, value.text), "actions")
                self._write(self._listed, self._fresh("list", value.paths, self._end), "list")
                self._unlisted += value.unlisted
                planned.append(value.planned)
                if value.said and self.has_result:
                    said += value.said.decode().splitlines()
                elif value.said:
                    self.tell_found(value.said)
            elif isinstance(value, RecallNotice):
                said += self._recalled(value)
            else:
                said += self.remark(value)
        if self._output_log is not None:
            failed, said = (
                self._output_log.fresh_lines("standard error", e) for e in (failed, said)
            )
        progress.note_all(self._progress, [*self._capped.take(failed), *said])
        self.add_to_plan(b"".join(planned))  # last, because it may raise StoppedEarly

    def add_to_plan(self, lines: bytes) -> None:
        """Append entries to the plan. Raises StoppedEarly."""
        if self._planned is not None and lines:
            self.planned += lines.count(b"\n")
            self._planned.append(self._fresh("plan", lines))

    def sync(self) -> None:
        """Flush the plan or undo record to disk. Raises StoppedEarly."""
        if self._planned is not None:
            self._planned.sync()

    def _recalled(self, file: RecallNotice) -> Iterable[str]:
        """Yield a warning for the first recalled file and for the first changed access time."""
        if file.atime:
            if not (self._is_warned_of_atime or self.quiet):
                self._is_warned_of_atime = True
                what = f"the access time of '{show(file.path)}' will change"
                yield f"{self.tool}: warning: {what}: only its owner and root can prevent this"
            return
        if not (self._is_warned or self.quiet):
            self._is_warned = True
            what = f"'{show(file.path)}' is offline and will be recalled from its archive"
            yield f"{self.tool}: warning: {what}; --skip-offline skips such files"

    def log(self, lines: bytes) -> None:
        self._write(self._log, self._fresh("error log", lines), "error log")

    def tell_found(self, text: bytes) -> None:
        """Write lines to standard output as they are found."""
        if text := self._fresh("standard output", text):
            self.results.text([text])

    def _fresh(self, stream: str, text: bytes, end: bytes = b"\n") -> bytes:
        """Return the lines that no earlier run of this job has written."""
        return (
            text
            if self._output_log is None or not text
            else self._output_log.fresh(stream, text, end)
        )

    def follow(self, output_log: OutputLog, former: Console[R] | None) -> None:
        """Record all output, because the job may restart; continue from a `former` console.

        Counts start at zero. Output that was written before is not written again.
        """
        self._output_log = output_log
        if former is not None:
            self.began_s = former.began_s
            self.log_failed, self._unwritable = former.log_failed, former._unwritable
            self._is_warned, self._capped = former._is_warned, former._capped
            self._is_warned_of_atime = former._is_warned_of_atime
            self.results.follow(former.results)

    def leave(self, reasons: Iterable[str]) -> None:
        """Report that the job restarts, with the reasons."""
        self._progress.close()
        for reason in reasons:
            self.note(f"{self.tool}: {reason}; restarting without it")

    def _write(self, log: LogFile | None, lines: bytes, what: str) -> None:
        """Append lines to one of the logs, until the first error."""
        if log is not None and what not in self._unwritable:
            try:
                log.append(lines)
            except OSError as error:
                self._fail_log(what, error)

    def end_plan(self, last: bytes) -> str:
        """Write the last line of the plan; return the error message, or an empty string."""
        if self._planned is None or self._planned.is_broken:
            return ""  # the error has been reported
        try:
            self._planned.end(last)
        except StoppedEarly as error:
            return str(error)
        return ""

    def _fail_log(self, what: str, error: OSError) -> None:
        self._unwritable.add(what)
        self.log_failed = True
        self.note(f"{self.tool}: cannot write the {what}: {error.strerror}")

    def show(self, sums: ProgressSums) -> None:
        self._progress.update(self._view(sums))

    def status(self, sums: ProgressSums) -> None:
        self.note(f"{self.tool}: {progress.line(self._view(sums))}")

    def suspend(self) -> None:
        self._progress.suspend()

    def resume(self, stopped_s: float) -> None:
        self.began_s += stopped_s

    def _view(self, sums: ProgressSums) -> progress.ProgressView:
        """Return the state of the job for the progress display."""
        now = self.counted(sums.counts)
        return self._pace.view(
            self.elapsed_s,
            now.known(sums.weight),
            stale_ranks=sums.stale,
            failed=now.troubles,
            bytes_shown=self.bytes_shown(now),
            has_bytes=self.has_bytes,
        )

    # ---- the end ---------------------------------------------------------------

    def end(self, outcome: Outcome[R]) -> tuple[int, list[str]]:
        """Remove the progress display and close the logs; return the exit code and its reasons."""
        caller = CALLER.get()
        if caller is not None and caller.has_progress and not outcome.code:
            self.show(ProgressSums(tuple(map(sum, zip(*outcome.counts, strict=True))), 1.0))
        self._progress.close()
        if self._unlisted:
            self.log_failed = True
            missing = plural(self._unlisted, "entry is", "entries are")
            why = "missing from the list: newline in the path; add --null"
            self.note(f"{self.tool}: --list-out: {missing} {why}")
        logs = {"error log": self._log, "actions": self._actions, "list": self._listed}
        for what, log in logs.items():
            if log is not None:
                try:
                    log.close()
                except OSError as error:
                    self._fail_log(what, error)
        counted = [self.counted(counts) for counts in outcome.counts]
        for name, what in (("offline", "left out"), ("recalled", "read")):
            # Not every tool reads files.
            count = sum(getattr(counters, name, 0) for counters in counted)
            if count and not self.quiet:
                self.note(f"{self.tool}: {plural(count, 'offline file', 'offline files')} {what}")
        count = sum(getattr(counters, "atime_not_kept", 0) for counters in counted)
        if count and not self.quiet:
            files = plural(count, "file", "files")
            self.note(f"{self.tool}: access times of {files} of other users changed")
        if self.account and not self._is_silent:
            self._note_account(counted)
        code, reasons = outcome.code, list(outcome.reasons)
        try:
            if self._planned is not None:
                self._planned.close()
        except StoppedEarly as error:
            code = worst((code, error.exit_code))
            reasons.append(str(error))
        if outcome.silent:
            code = worst((code, StoppedEarly.exit_code))
            names = ", ".join(map(str, outcome.silent))
            reasons.append(f"no final response from rank {names} and its subtree")
        if outcome.silent or RankLost.only(reasons):
            reasons.append("the counts exclude the work of these processes")
        return code, reasons

    def _note_account(self, counted: Sequence[JobCounters]) -> None:
        """Record the totals, if the command is logged."""
        accounts = ACCOUNTS.get()
        if accounts is not None:
            sizes = [self.bytes_shown(counters) for counters in counted]
            size = sum(
                counters.bytes_done if shown is None else shown
                for shown, counters in zip(sizes, counted, strict=True)
            )
            entries = sum(counters.completed for counters in counted)
            failed = sum(counters.troubles for counters in counted)
            accounts(self.account, entries, size, failed)

    def shares(self, outcome: Outcome[R]) -> tuple[RankShare, ...]:
        """Return the statistics of each rank."""
        counts = [self.counted(report.counts) for report in outcome.reports]
        return tuple(
            rank_share(report, counters.completed, counters.bytes_done)
            for report, counters in zip(outcome.reports, counts, strict=True)
        )

    def rank_summary(self, outcome: Outcome[R]) -> RankSummary | UnsetType:
        """Return the statistics of all ranks, if there are too many to list each."""
        return UNSET if outcome.summary is None else _rank_summary(outcome.summary)

    def share_table(self, report: RankedReport) -> str:
        """Return a table of statistics over many ranks; it is empty if each rank has a row."""
        if isinstance(report.rank_summary, UnsetType):
            return ""
        return render(report.rank_summary, self.stats)

    def rank_tables(self, report: RankedReport, entries: int, table: str = "") -> str:
        """Return the requested tables of the processes: statistics, and messages by pair.

        `table` replaces the default table of statistics, if each rank has a row.
        """
        text = ""
        if self.stats:
            default = table or shares(report.ranks, entries, self.stats)
            text = self.share_table(report) or default
        if max(self.stats, self.verbose) > 1 and len(report.ranks) > 1:
            text += messages_by_pair(report.ranks)
        return text

    def fields(
        self,
        kind: type[msgspec.Struct],
        total: JobCounters,
        outcome: Outcome[R],
        *,
        earlier: tuple[int, int] = (0, 0),
    ) -> dict[str, Any]:
        """Return the fields of a report of a tool that reads files.

        `earlier` contains the entry and byte counts of an earlier run; rates exclude them.
        """
        elapsed_s = self.elapsed_s
        done = max(0, total.completed - earlier[0]), total.bytes_done - earlier[1]
        return reported(kind, total) | {
            "entries": total.completed,
            "bytes": total.bytes_done,
            "elapsed_s": round(elapsed_s, 6),
            "entries_per_s": round(done[0] / elapsed_s, 3),
            "bytes_per_s": round(done[1] / elapsed_s, 3),
            "failures": tuple(self.failures),
            "failures_omitted": self.failures_omitted,
            "ranks": self.shares(outcome),
            "rank_summary": self.rank_summary(outcome),
        }

    def tell_failures(self) -> None:
        """Print the number of failed entries by kind."""
        if self.by_kind:
            self.note(f"{self.tool}: {failures_by_kind(self.by_kind)}")

    def tell_reasons(self, code: int, reasons: Iterable[str]) -> None:
        """Print why the job ended as it did."""
        kind = "internal error: " if code == Defect.exit_code else ""
        for reason in dict.fromkeys(reasons):
            self.note(f"{self.tool}: {kind}{reason}")


def miscounted(text: str, known: object) -> str:
    """Return the error for a job whose counts disagree; write the `known` counts to a report."""
    message = write_report(Defect(text), f"adding up the accounts\n\n{known}")
    return message.removeprefix("Defect: ")


def unsettled(total: JobCounters) -> str:
    """Return an error if entries were found but not completed, or an empty string."""
    if total.found == total.settled:
        return ""
    return f"{total.found} entries were found, but {total.settled} accounted for"


def rank_share(report: RankReport, entries: int, size: int) -> RankShare:
    """Return a rank's statistics, from its report and its entry and byte counts."""
    return RankShare(
        rank=report.rank,
        node=report.node,
        entries=entries,
        bytes=size,
        items=report.items,
        steals_asked=report.steals_asked,
        steals_got=report.steals_got,
        messages=report.messages,
        message_bytes=report.message_bytes,
        spilled_items=report.spilled,
        cpu_s=round(report.cpu_s, 3),
        peak_rss_bytes=report.peak_rss_bytes,
        threads=report.threads,
        work_per_s=by_kind(report.rates),
        sent=tuple(Sent(*row) for row in report.sent),
        sent_block=report.sent_block,
    )


def _rank_summary(summary: Summary) -> RankSummary:
    """Return a summary for the report, with times in seconds."""
    figures = {}
    for name, spread in summary.figures.items():
        is_time = name.endswith("_us")

        def shown(value: float, is_time: bool = is_time) -> float:
            return round(value / 1e6, 3) if is_time else value

        figures[name.removesuffix("_us") + "_s" if is_time else name] = FigureStatistics(
            sum=shown(spread.total),
            mean=round(shown(spread.total) / summary.ranks, 3),
            min=shown(spread.minimum),
            min_rank=spread.min_rank,
            p5=shown(spread.quantile(0.05)),
            median=shown(spread.quantile(0.5)),
            p95=shown(spread.quantile(0.95)),
            max=shown(spread.maximum),
            max_rank=spread.max_rank,
            bins=tuple((shown(edge), ranks) for edge, ranks in spread.edges()),
        )
    return RankSummary(summary.ranks, figures)
