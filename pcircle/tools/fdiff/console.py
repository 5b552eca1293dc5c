"""The console of a comparison: prints differences, including those known only at the end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from pcircle.cli.tree_program import TreeConsole
from pcircle.core.errors import IntegrityError, StoppedEarly, worst
from pcircle.core.units import plural
from pcircle.jobs.failures import LogFile
from pcircle.runtime import Outcome
from pcircle.tools.fdiff.hard_links_and_moves import Groups, Moves, tell_groups
from pcircle.tools.fdiff.plan import Alone, Counters, DiffPlan, Linked, Matched
from pcircle.tools.fdiff.telling import FirstFound, Telling
from pcircle.tools.fdiff.work.manifests import compare_manifests

_TABLE = (
    ("exist in both directories", ("common", "common")),
    ("exist only in one directory", ("only_a", "only_b")),
    ("exist in both directories and have the same type", ("same_kind", "same_kind")),
    ("exist in both directories and have different types", ("different_kind", "different_kind")),
    ("exist in both directories and have the same content", ("same_content", "same_content")),
    ("exist in both directories and have different contents", ("unlike", "unlike")),
)


class Console(TreeConsole):
    """Reports a comparison."""

    _program: Any

    def __init__(self, program: Any, log: LogFile | None) -> None:
        super().__init__(program, log)
        self._plan: DiffPlan = program.plan
        self._says_end = bool(self.verbose)
        self.verbose = max(0, self.verbose - 1)
        self._own = Counters()
        self._telling = Telling(self._plan, self._own, 0)
        self._groups = Groups()
        self._moves = Moves(by_content=self._plan.by_content)
        self._missing = 0  # entries missing from lists
        self._no_space: OSError | None = None  # an error of the temporary directory
        self._broken: set[int] = set()

    # ---- notices ---------------------------------------------------------------

    def notice(self, source: int, values: Sequence[Any]) -> None:
        unhandled: list[Any] = []
        for value in values:
            if isinstance(value, Linked | Alone):
                self._defer(value)
            elif isinstance(value, Matched):
                self._list(value)
            else:
                unhandled.append(value)
        if unhandled:
            super().notice(source, unhandled)

    def _defer(self, value: Linked | Alone) -> None:
        """Store entries that are decided at the end, while there is disk space."""
        if self._no_space is None:
            try:
                if isinstance(value, Linked):
                    self._groups.add(value)
                else:
                    self._moves.add(value)
            except OSError as error:
                self._no_space = error

    def _list(self, matched: Matched) -> None:
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
                code = self._tell_last()
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
        if ended == FirstFound.exit_code and self._plan.first:
            why = []
        code = worst((ended, code))
        if self._program.table and code in (0, IntegrityError.exit_code):
            self._print_table(total)
        return code, [*why, *reasons]

    def _tell_last(self) -> int:
        context: Any = _Direct(self)
        if self._no_space is not None:
            raise self._no_space
        try:
            if not self._plan.walks:
                old, new = self._program.manifests
                tell = self._telling, self._own, context
                compare_manifests(old, new, self._plan, *tell, self._check_time)
            tell_groups(self._groups, self._telling, context)
            self._moves.tell(self._telling, context)
            self._telling.tell(context)
        except FirstFound as found:
            return found.exit_code
        return 0

    def _check_time(self) -> None:
        """Raise StoppedEarly after the time limit, because no rank supervises the end of a job."""
        limit = self._program.limit
        if limit is not None and time.monotonic() >= limit.at_s:
            raise StoppedEarly(limit.reason)

    def total(self, outcome: Outcome[dict[int, int]]) -> Any:
        """Return the totals, including the results that rank 0 finds at the end."""
        return self.counters_type.total([*outcome.counts, self._own.row()])

    def _print_table(self, total: Counters) -> None:
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

    def summary(self, total: Counters) -> str:
        parts = [f"{plural(total.completed, 'entry', 'entries')} compared"]
        names = {
            "different": total.different,
            "only in A": total.only_a,
            "only in B": total.only_b,
            "moved": total.moved,
        }
        parts += [f"{count:,} {what}" for what, count in names.items() if count]
        return ", ".join(parts if len(parts) > 1 else [*parts, "no difference"])


class _Direct:
    """A context for reports of rank 0 itself."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def note(self, notices: Sequence[Any]) -> None:
        self._console.notice(0, notices)
