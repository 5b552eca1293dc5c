"""The console of a comparison: prints differences, including those known only at the end.

Differences in hard links and moved files become known on rank 0 at the end. They are computed from
records that are sorted in temporary files (`pcircle.fs.sorting`), so the memory use is bounded. The
fields of a record contain no NUL.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pcircle.cli.tree_program import TreeConsole, TreeProgram
from pcircle.core.errors import IntegrityError, StoppedEarly, worst
from pcircle.core.units import plural
from pcircle.fs.sorting import Sorter
from pcircle.jobs.failures import LogFile, NoticeSink
from pcircle.ops.compare.fields import LINKS
from pcircle.ops.compare.manifests import MoveMatcher, pack_candidate, unpack_candidate
from pcircle.runtime import Outcome
from pcircle.tools.fdiff.plan import DiffCounters, LinkedPair, MatchedPaths, OneSidedFile
from pcircle.tools.fdiff.reporter import DiffReporter, FirstDifferenceError
from pcircle.tools.fdiff.work.manifests import compare_manifests

if TYPE_CHECKING:
    from pcircle.ops.digest.manifest import Manifest
    from pcircle.tools.fdiff.plan import DiffPlan
    from pcircle.tools.fdiff.reporter import Expression

_TABLE = (
    ("exist in both directories", ("common", "common")),
    ("exist only in one directory", ("only_a", "only_b")),
    ("exist in both directories and have the same type", ("same_kind", "same_kind")),
    ("exist in both directories and have different types", ("different_kind", "different_kind")),
    ("exist in both directories and have the same content", ("same_content", "same_content")),
    ("exist in both directories and have different contents", ("unlike", "unlike")),
)


class ComparisonProgram(TreeProgram):
    """The part of a comparison program that its console uses."""

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
        self._own = DiffCounters()
        self._reporter = DiffReporter(self._plan, self._own, 0)
        self._groups = LinkGroups()
        self._moves = MovedFiles(by_content=self._plan.by_content)
        self._missing = 0  # number of entries missing from lists
        self._no_space: OSError | None = None  # an error in the temporary directory
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
        """Store an entry whose result is known only at the end, unless disk space has run out."""
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
        self.log_failed: bool = True
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
        self.quiet: bool = self.quiet or not self._says_end
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
        """Raise StoppedEarly after the time limit; nothing else enforces it at this point."""
        limit = self._program.limit
        if limit is not None and time.monotonic() >= limit.at_s:
            raise StoppedEarly(limit.reason)

    def total(self, outcome: Outcome[dict[int, int]]) -> DiffCounters:
        """Return the totals, including the results that rank 0 found at the end."""
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
            # Entries of different kinds count as having different contents.
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
    """Passes reports that rank 0 has created itself to its console."""

    def __init__(self, console: DiffConsole) -> None:
        self._console = console

    def note(self, notices: Sequence[object]) -> None:
        self._console.notice(0, notices)


# ---- hard links and moved files ------------------------------------------------------------------

_REPORTED_AT_ONCE = 256


class LinkGroups:
    """Groups hard-linked names by their files on each side, to find differences in hard links.

    The first name of each file in path order is the reference. Another name of that file differs
    if, on the other side, it belongs to a different file than the reference.
    """

    def __init__(self) -> None:
        self._by_a = Sorter()

    def add(self, pair: LinkedPair) -> None:
        """Add a name. Raise OSError if the disk is full."""
        payload = b"%x:%x %d %d %d" % (*pair.b, pair.different, pair.mode, pair.size)
        self._by_a.add(pack_candidate(b"%020x:%020x" % pair.a, pair.path, payload))

    def pairs(self) -> Iterator[tuple[bytes, int, int, int]]:
        """Yield all names with their differences, and A's mode and size.

        Raise OSError if the disk is full.
        """
        by_b = Sorter()
        try:
            first = b"", b""
            for record in self._by_a.sorted():
                a, path, payload = unpack_candidate(record)
                b, different, mode, size = payload.split(b" ")
                first = (a, b) if a != first[0] else first
                bits = int(different) | LINKS * (b != first[1])
                device, _, inode = b.partition(b":")
                key = b"%020x:%020x" % (int(device, 16), int(inode, 16))
                by_b.add(pack_candidate(key, path, b"%b %d %b %b" % (a, bits, mode, size)))
            first = b"", b""
            for record in by_b.sorted():
                b, path, payload = unpack_candidate(record)
                a, different, mode, size = payload.split(b" ")
                first = (b, a) if b != first[0] else first
                yield path, int(different) | LINKS * (a != first[1]), int(mode), int(size)
        finally:
            by_b.close()

    def close(self) -> None:
        """Delete the temporary files."""
        self._by_a.close()


class MovedFiles:
    """Pairs files that exist only in A with equal files that exist only in B.

    Two files are equal if they have the same size, and the same modification time or digest. They
    are paired in path order. Empty files are never paired.
    """

    def __init__(self, *, by_content: bool) -> None:
        self._by_content = by_content
        self._pairing = MoveMatcher()

    def add(self, file: OneSidedFile) -> None:
        """Add a file. Raise OSError if the disk is full."""
        what = file.digest.hex().encode() if self._by_content else b"%021d" % file.mtime.ns
        size = b"%20d" % file.size if not file.size else b"%020d" % file.size
        payload = b"%d %d %d" % (file.mode, file.size, file.reported)
        self._pairing.add(file.side, size + b" " + what, file.path, payload)

    def tell(self, reporter: DiffReporter, context: NoticeSink) -> None:
        """Report each file as moved or as missing on one side.

        Raise OSError if the disk is full.
        """
        for count, (a, b) in enumerate(self._pairing.pairs(), 1):
            if a is not None and b is not None:
                mode, size, _ = map(int, a.extra.split(b" "))
                reporter.moved(a.path, b.path, mode, size)
            for side, one in enumerate((a, b)):
                if one is not None and (a is None or b is None):
                    mode, size, said = map(int, one.extra.split(b" "))
                    reporter.alone(side, one.path, mode, size, reported=bool(said))
            if not count % _REPORTED_AT_ONCE:
                reporter.tell(context)

    def close(self) -> None:
        """Delete the temporary files."""
        self._pairing.close()


def report_groups(groups: LinkGroups, reporter: DiffReporter, context: NoticeSink) -> None:
    """Report all names of hard-linked files. Raise OSError if the disk is full."""
    for count, pair in enumerate(groups.pairs(), 1):
        path, different, mode, size = pair
        reporter.pair(path, mode, size, different)
        if not count % _REPORTED_AT_ONCE:
            reporter.tell(context)
