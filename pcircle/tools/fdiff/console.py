"""The console of a comparison: prints differences, including those known only at the end."""

from __future__ import annotations

import time
from collections.abc import Sequence

from pcircle.cli.tree_program import TreeConsole, TreeProgram
from pcircle.core.errors import IntegrityError, StoppedEarly, worst
from pcircle.core.units import plural
from pcircle.jobs.failures import LogFile
from pcircle.ops.digest.manifest import Manifest
from pcircle.runtime import Outcome
from pcircle.tools.fdiff.expressions import Expression
from pcircle.tools.fdiff.hard_links_and_moves import LinkGroups, MovedFiles, report_groups
from pcircle.tools.fdiff.plan import DiffCounters, DiffPlan, LinkedPair, MatchedPaths, OneSidedFile
from pcircle.tools.fdiff.reporter import DiffReporter, FirstDifferenceError
from pcircle.tools.fdiff.work.manifests import compare_manifests

_TABLE = (
    ("exist in both directories", ("common", "common")),
    ("exist only in one directory", ("only_a", "only_b")),
    ("exist in both directories and have the same type", ("same_kind", "same_kind")),
    ("exist in both directories and have different types", ("different_kind", "different_kind")),
    ("exist in both directories and have the same content", ("same_content", "same_content")),
    ("exist in both directories and have different contents", ("unlike", "unlike")),
)


class ComparisonProgram(TreeProgram):
    """The part of the program that its console uses."""

    plan: DiffPlan
    table: bool
    manifests: list[Manifest]
    lists: list[LogFile]
    outputs: list[tuple[Expression, str]]


class DiffConsole(TreeConsole):
    """Reports a comparison."""

    _program: ComparisonProgram

    def __init__(self, program: ComparisonProgram, log: LogFile | None) -> None:
        super().__init__(program, log)
        self._plan = program.plan
        self._says_end = bool(self.verbose)
        self.verbose = max(0, self.verbose - 1)
        self._own = DiffCounters()
        self._reporter = DiffReporter(self._plan, self._own, 0)
        self._groups = LinkGroups()
        self._moves = MovedFiles(by_content=self._plan.by_content)
        self._missing = 0  # entries missing from lists
        self._no_space: OSError | None = None  # an error of the temporary directory
        self._broken: set[int] = set()

    # ---- notices ---------------------------------------------------------------

    def notice(self, source: int, values: Sequence[object]) -> None:
        unhandled: list[object] = []
        for value in values:
            if isinstance(value, LinkedPair | OneSidedFile):
                self._defer(value)
            elif isinstance(value, MatchedPaths):
                self._list(value)
            else:
                unhandled.append(value)
        if unhandled:
            super().notice(source, unhandled)

    def _defer(self, value: LinkedPair | OneSidedFile) -> None:
        """Store entries that are decided at the end, while there is disk space."""
        if self._no_space is None:
            try:
                if isinstance(value, LinkedPair):
                    self._groups.add(value)
                else:
                    self._moves.add(value)
            except OSError as error:
                self._no_space = error

    def _list(self, matched: MatchedPaths) -> None:
        self._missing += matched.unlisted
        if matched.number not in self._broken:
            paths = self._fresh(f"output {matched.number}", matched.paths, self._plan.end)
            try:
                self._program.lists[matched.number].append(paths)
            except OSError as error:
                self._fail_list(matched.number, error)

    def _fail_list(self, number: int, error: OSError) -> None:
        self._broken.add(number)
        self.log_failed = True
        name = self._program.outputs[number][1]
        self.note(f"{self.tool}: cannot write '{name}': {error.strerror}")

    # ---- end of the job --------------------------------------------------------

    def end(self, outcome: Outcome[dict[int, int]]) -> tuple[int, list[str]]:
        reasons: list[str] = []
        code = 0
        if not outcome.code:
            try:
                code = self._report_last()
            except OSError as error:
                code = StoppedEarly.exit_code
                reasons.append(f"cannot sort in the temporary directory: {error.strerror}")
            except StoppedEarly as early:
                code = early.exit_code
                reasons.append(str(early))
        self._groups.close()
        self._moves.close()
        for number, log in enumerate(self._program.lists):
            try:
                log.close()
            except OSError as error:
                self._fail_list(number, error)
        if self._missing:
            self.log_failed = True
            missing = plural(self._missing, "entry is", "entries are")
            self.note(f"{self.tool}: -o: {missing} missing: newline in the path; add --null")
        ended, why = super().end(outcome)
        total = self.total(outcome)
        if total.different or total.only_a or total.only_b or total.moved:
            code = worst((code, IntegrityError.exit_code))
        self.quiet = self.quiet or not self._says_end
        if ended == FirstDifferenceError.exit_code and self._plan.first:
            why = []
        code = worst((ended, code))
        if self._program.table and code in (0, IntegrityError.exit_code):
            self._print_table(total)
        return code, [*why, *reasons]

    def _report_last(self) -> int:
        context = _ConsoleSink(self)
        if self._no_space is not None:
            raise self._no_space
        try:
            if not self._plan.walks:
                old, new = self._program.manifests
                tell = self._reporter, self._own, context
                compare_manifests(old, new, self._plan, *tell, self._check_time)
            report_groups(self._groups, self._reporter, context)
            self._moves.tell(self._reporter, context)
            self._reporter.tell(context)
        except FirstDifferenceError as found:
            return found.exit_code
        return 0

    def _check_time(self) -> None:
        """Raise StoppedEarly after the time limit, because no rank supervises the end of a job."""
        limit = self._program.limit
        if limit is not None and time.monotonic() >= limit.at_s:
            raise StoppedEarly(limit.reason)

    def total(self, outcome: Outcome[dict[int, int]]) -> DiffCounters:
        """Return the totals, including the results that rank 0 finds at the end."""
        return DiffCounters.total([*outcome.counts, self._own.row()])

    def _print_table(self, total: DiffCounters) -> None:
        """Print the table in the format of dcmp."""
        pairs = total.completed - total.only_a - total.only_b - total.moved * 2 - total.beside
        counts = {
            "common": pairs,
            "only_a": total.only_a + total.moved,
            "only_b": total.only_b + total.moved,
            "same_kind": pairs - total.different_kind,
            "different_kind": total.different_kind,
            # Entries of different kinds have different content.
            "unlike": total.different_content + total.different_kind,
            "same_content": pairs - total.different_content - total.different_kind,
        }
        for text, (a, b) in _TABLE:
            count = counts[a] if counts[a] == counts[b] else "N/A"
            line = f"Number of items that {text}: {count} (Src: {counts[a]} Dest: {counts[b]})"
            self.results.text([f"{line}\n".encode()])

    def summary(self, total: DiffCounters) -> str:
        parts = [f"{plural(total.completed, 'entry', 'entries')} compared"]
        names = {
            "different": total.different,
            "only in A": total.only_a,
            "only in B": total.only_b,
            "moved": total.moved,
        }
        parts += [f"{count:,} {what}" for what, count in names.items() if count]
        return ", ".join(parts if len(parts) > 1 else [*parts, "no difference"])


class _ConsoleSink:
    """Passes the reports of rank 0 itself to its console."""

    def __init__(self, console: DiffConsole) -> None:
        self._console = console

    def note(self, notices: Sequence[object]) -> None:
        self._console.notice(0, notices)
