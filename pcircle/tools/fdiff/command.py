"""The program of fdiff and its console: runs the comparison and prints the differences.

Differences in hard links and moved files become known on rank 0 at the end. They are computed from
records that are sorted in temporary files (`pcircle.fs.sorting`), so the memory use is bounded. The
fields of a record contain no NUL.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from pcircle.cli.arguments import require_operands
from pcircle.cli.inputs import lists_of
from pcircle.cli.listing import cell_width
from pcircle.cli.output import terminal_of
from pcircle.cli.program import TreeConsole, TreeProgram
from pcircle.cli.results import open_output
from pcircle.core.encoding import show
from pcircle.core.errors import IntegrityError, StoppedEarly, UsageError, worst
from pcircle.core.units import plural
from pcircle.core.writing import standard_error, standard_output
from pcircle.fs.lists import Lists
from pcircle.fs.sorting import Sorter
from pcircle.jobs.action_log import ActionOutput
from pcircle.jobs.failures import LogFile, NoticeSink, open_log
from pcircle.jobs.tree_task import resolve
from pcircle.ops.compare.fields import (
    CONTENT,
    DEFAULT,
    LINKS,
    NAMES,
    QUICK,
    RDEV,
    TARGET,
    field_names,
    parse_fields,
)
from pcircle.ops.compare.manifests import (
    KNOWN,
    MoveMatcher,
    open_verified,
    pack_candidate,
    unpack_candidate,
)
from pcircle.ops.digest.manifest import is_manifest
from pcircle.runtime import Observer, Outcome
from pcircle.tools.fdiff.options import DiffOptions
from pcircle.tools.fdiff.plan import (
    DiffCounters,
    DiffPlan,
    Labels,
    LinkedPair,
    MatchedPaths,
    OneSidedFile,
)
from pcircle.tools.fdiff.reporter import (
    DiffReporter,
    Expression,
    FirstDifferenceError,
    fields_in,
    parse,
)
from pcircle.tools.fdiff.work.manifests import compare_manifests
from pcircle.tools.fdiff.work.task import DiffTask
from pcircle.walk.roots import Root

if TYPE_CHECKING:
    from pcircle.ops.digest.manifest import Manifest
    from pcircle.runtime.task import TimeLimit

_TABLE = (
    ("exist in both directories", ("common", "common")),
    ("exist only in one directory", ("only_a", "only_b")),
    ("exist in both directories and have the same type", ("same_kind", "same_kind")),
    ("exist in both directories and have different types", ("different_kind", "different_kind")),
    ("exist in both directories and have the same content", ("same_content", "same_content")),
    ("exist in both directories and have different contents", ("unlike", "unlike")),
)
_MAX_LABEL_CELLS = 16
_REPORTED_AT_ONCE = 256


class DiffConsole(TreeConsole):
    """Reports a comparison."""

    _program: DiffProgram

    def __init__(self, program: DiffProgram, log: LogFile | None) -> None:
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


class DiffProgram(TreeProgram):
    """The program of a comparison."""

    name = "fdiff"
    reads_only = True
    plan_type: ClassVar[type[DiffPlan]] = DiffPlan
    task_type: ClassVar[type[DiffTask]] = DiffTask
    console_type: ClassVar[type[DiffConsole]] = DiffConsole
    options: DiffOptions

    def __init__(self, args: argparse.Namespace) -> None:
        paths = list(map(os.fsencode, args.operands))
        require_operands(paths, "A", "B")
        super().__init__(DiffOptions.of(args), paths)
        self.limit: TimeLimit | None = self.options.time_limit()
        self.table: bool = self.options.format == "dcmp"
        self.manifests: list[Manifest] = []
        self._against: dict[str, object] = {}
        self.lists: list[LogFile] = []
        self.outputs: list[tuple[Expression, str]] = [
            _output(text) for text in self.options.outputs
        ]
        self._expressions = tuple(expression for expression, _ in self.outputs)
        self._fields = _fields(self.options) | fields_in(self._expressions)
        if self.table:
            self._fields |= CONTENT

    def roots(self) -> tuple[Root, ...]:
        """Return the roots in the order of `PAIRS`, `ONLY_A` and `ONLY_B`."""
        a, b = resolve(self.paths)
        are = tuple(map(is_manifest, self.paths))
        if any(are) and (all(are) or not (a, b)[are.index(False)].name):
            return self._with_manifests((a, b), are)
        if bool(a.name) != bool(b.name):
            directory, other = (b, a) if a.name else (a, b)
            raise UsageError(
                f"'{show(directory.shown)}' is a directory, and '{show(other.shown)}' is not"
            )
        return a, a, b

    def _with_manifests(self, roots: tuple[Root, Root], are: tuple[bool, ...]) -> tuple[Root, ...]:
        """Return the roots of a comparison with one or two manifests.

        Raise UsageError if an option or a field is not possible with a manifest.
        """
        options = self.options
        for name, given in (
            ("--files-from", options.files_from),
            ("--moved", options.moved),
            ("--by-hash", options.by_content),
            ("filters by attributes", options.selects_by_attribute),
        ):
            if given:
                raise UsageError(f"{name} cannot be combined with a manifest")
        unknown = self._fields & ~KNOWN
        if options.fields is not None and options.fields != "all" and unknown:
            words = ", ".join(field_names(unknown))
            raise UsageError(f"--fields: manifests do not record {words}")
        self._fields &= KNOWN
        self.manifests = [
            open_verified(path) for path, is_one in zip(self.paths, are, strict=True) if is_one
        ]
        algorithms = {manifest.algorithm.name for manifest in self.manifests}
        if len(algorithms) > 1 and self._fields & (CONTENT | TARGET | RDEV):
            names = " and ".join(sorted(algorithms))
            raise UsageError(f"digests of {names} cannot be compared: --fields=kind,size,mtime")
        tree = are.index(False) if not all(are) else 0
        path = b"" if all(are) else os.path.abspath(self.paths[1 - tree])
        self._against = {"manifest": path, "tree_side": tree, "walks": not all(are)}
        return roots[tree], *roots

    @property
    def lists_whole(self) -> bool:
        return bool(self.options.recursive)

    def listing(self, roots: tuple[Root, ...]) -> Lists | None:
        if self.options.files_from is None:
            return None
        return lists_of(self.options, roots[:1], self.complain, whole=self.lists_whole)

    def decided(self, roots: tuple[Root, ...], ranks: int) -> dict[str, Any]:
        options = self.options
        moves = options.moved or options.by_content
        if options.list_out is not None and roots[0].name:
            raise UsageError("--list-out requires directories")
        end = b"\0" if options.null else b"\n"
        return {
            "fields": self._fields,
            "by_names": options.ids == "names",
            "reports_all": options.itemize,
            "enters": options.itemize or moves or self.table or bool(self.outputs),
            "quiet": options.quiet or self.table,
            "labels": _labels(self.paths) if self._in_words() else None,
            "moves": moves,
            "acts": ActionOutput(options.json_lines is not None, end if options.list_out else b""),
            "matches": self._expressions,
            "end": end,
            "ranks": ranks,
            **self._against,
        }

    def _in_words(self) -> bool:
        """Return whether lines are in words: the default on a terminal, unless -i is given."""
        options = self.options
        if options.format is None and not options.itemize:
            stream = standard_error() if options.json == "-" else standard_output()
            return terminal_of(stream) is not None
        return options.format == "words"

    def begin(self, roots: tuple[Root, ...]) -> None:
        super().begin(roots)
        options = self.options
        if options.json_lines is not None:
            self.actions: LogFile = LogFile(open_output(options.json_lines, "--json-lines"))
        if options.list_out is not None:
            self.listed: LogFile = LogFile(open_output(options.list_out, "--list-out"))
        self.lists = [LogFile(open_log(name, "--output")) for _, name in self.outputs]

    def observer(self, plan: bytes) -> Observer[Any]:
        self.plan: DiffPlan = msgspec.msgpack.decode(plan, type=DiffPlan)
        return super().observer(plan)


def _labels(paths: Sequence[bytes]) -> Labels:
    """Return the words before paths, padded to equal width; short names of A and B are included."""
    names = list(map(show, paths))
    if names[0] == names[1] or max(map(cell_width, names)) > _MAX_LABEL_CELLS:
        names = ["A", "B"]
    words = [*(f"only in {name}" for name in names), "differs", "moved"]
    width = max(map(cell_width, words)) + 2
    return Labels(*(word + " " * (width - cell_width(word)) for word in words))


def _fields(options: DiffOptions) -> int:
    """Return the fields to compare. Raise UsageError if an option is invalid."""
    fields = DEFAULT
    if options.quick:
        fields = QUICK
    if options.fields is not None:
        fields = _list_of("--fields", options.fields)
    if options.contents:
        fields |= CONTENT
    if options.ignore is not None:
        fields &= ~_list_of("--ignore", options.ignore)
    if not fields:
        raise UsageError("no fields are left to compare")
    return fields


def _list_of(option: str, text: str) -> int:
    fields = 0
    for word in text.split(","):
        try:
            fields |= parse_fields([word])
        except KeyError:
            known = ", ".join((*NAMES, "default", "all"))
            shown = show(os.fsencode(word))
            raise UsageError(f"{option}: unknown field '{shown}'; choose from {known}") from None
    return fields


def _output(text: str) -> tuple[Expression, str]:
    expression, colon, name = text.partition(":")
    if not colon or not name:
        raise UsageError(f"--output: invalid value '{show(os.fsencode(text))}': must be EXPR:FILE")
    return parse(expression), name


def compare_typed(args: argparse.Namespace) -> int:
    """Run fdiff with parsed arguments and return the exit code.

    Raise UsageError if an option is invalid.
    """
    return DiffProgram(args).run()
