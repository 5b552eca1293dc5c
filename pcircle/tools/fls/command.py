"""The program of fls: interprets the options, runs the listing, and prints it on rank 0.

Rank 0 sorts records, on disk if necessary, and formats them.
"""

from __future__ import annotations

import argparse
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby, islice
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from pcircle.cli.json_output import check
from pcircle.cli.listing import FULL_ISO, RECENT, Times, human
from pcircle.cli.output import MessageStream, columns
from pcircle.cli.program import TreeConsole, TreeProgram
from pcircle.cli.results import list_end, open_output
from pcircle.core.encoding import show
from pcircle.core.errors import StoppedEarly, UsageError, worst
from pcircle.core.units import MIN_NS, plural
from pcircle.core.writing import CALLER, standard_output
from pcircle.fs.sorting import Sorter
from pcircle.jobs.action_log import ActionOutput
from pcircle.jobs.failures import LogFile
from pcircle.runtime import Observer, Outcome
from pcircle.tools.fls import rows
from pcircle.tools.fls.fields import ColumnFormatter, Widths
from pcircle.tools.fls.options import TIMES, ListOptions
from pcircle.tools.fls.plan import (
    DIRECTORY,
    OPERANDS,
    Form,
    Keys,
    ListCounters,
    ListPlan,
    ListRecords,
    Record,
    place_of,
    read,
    read_directories,
    tag_of,
)
from pcircle.tools.fls.visitor import ListTask
from pcircle.walk.roots import Root

if TYPE_CHECKING:
    from pcircle.runtime.task import TimeLimit
    from pcircle.tools.fls.rows import RowResults

_WRITTEN_BYTES = 1 << 20


_AT_ONCE = 64  # directories, each with at most tens of kilobytes of text
_TOGETHER = 4096
"""The number of lines formatted together. Directories with more are printed one name per line."""


class _Sums(msgspec.Struct, frozen=True):
    """The sums of a directory, including those subdirectories that are already added."""

    place: bytes
    shown: bytes
    entries: int = 0
    size: int = 0
    blocks: int = 0
    newest_ns: int = MIN_NS

    def plus(self, other: _Sums) -> _Sums:
        """Return the sum of two sums."""
        more = (self.entries + other.entries, self.size + other.size, self.blocks + other.blocks)
        return _Sums(self.place, self.shown, *more, max(self.newest_ns, other.newest_ns))


class _Printer:
    """Stores records until the walk has ended, or formats them at once if nothing is sorted."""

    def __init__(self, plan: ListPlan) -> None:
        self._plan, self._form = plan, plan.form
        self._fields = ColumnFormatter(plan.form, plan.now_ns)
        self._times = Times(plan.form.style, plan.now_ns)
        is_file = plan.form.is_rows and CALLER.get() is None  # a program takes rows at once
        self._sorter = Sorter() if plan.keys or is_file else None
        self._is_first = True

    def add(self, packed: Sequence[bytes]) -> bytes:
        """Store records, and return the text that can be printed already.

        Raise StoppedEarly if temporary files cannot be written.
        """
        if self._sorter is None:
            if self._form.is_rows:
                return b"".join(map(_row_text, packed))
            return b"".join([self._gap(record) + read_directories([record]) for record in packed])
        try:
            self._sorter.extend(packed)
        except OSError as error:
            raise _unsorted(error) from error
        return b""

    def remaining(self) -> Iterator[bytes]:
        """Yield the text of all stored records in order.

        Raise StoppedEarly if temporary files cannot be written or read.
        """
        if self._sorter is None:
            return
        try:
            records = self._sorter.sorted()
            if self._form.shape == "total":
                yield from self._totals(map(read, records))
            elif self._form.is_rows:
                yield from map(_row_text, records)
            else:
                yield from self._directories(records)
        except OSError as error:
            raise _unsorted(error) from error

    def close(self) -> None:
        """Delete the temporary files."""
        if self._sorter is not None:
            self._sorter.close()

    def _gap(self, packed: bytes) -> bytes:
        """Return the empty line above a directory, or nothing for the first one."""
        is_first, self._is_first = self._is_first, False
        return b"\n" * (self._plan.headed and not is_first and not packed.startswith(OPERANDS))

    def _directories(self, records: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the text of all directories and PATHs."""
        between = b"\n" * self._plan.headed
        for tag, group in groupby(records, tag_of):
            if tag == DIRECTORY:
                while batch := list(islice(group, _AT_ONCE)):
                    yield self._gap(batch[0]) + read_directories(batch, between)
            else:
                for place, entries in groupby(group, place_of):
                    yield from self._wide(place, entries)

    def _wide(self, place: bytes, entries: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the text of a large directory, or of PATHs. Each of their entries is a record."""
        widths = Widths([])
        for packed in entries:
            found = read(packed)
            if found.key:
                entries = chain((packed,), entries)
                break
            widths.add(msgspec.msgpack.decode(found.text, type=Widths))
        rows = (read(packed).text.split(b"\0") for packed in entries)
        batch = list(islice(rows, _TOGETHER))
        lines = self._fields.lines(batch, widths)
        above = self._gap(place) + widths.heading
        if place != OPERANDS:
            above += self._fields.total(widths.blocks)
        if len(batch) < _TOGETHER:
            yield above + self._fields.text(lines)
            return
        yield above
        while lines:
            yield self._form.end.join([*lines, b""])
            lines = self._fields.lines(list(islice(rows, _TOGETHER)), widths)

    # ---- sums ------------------------------------------------------------------

    def _totals(self, records: Iterable[Record]) -> Iterator[bytes]:
        """Yield a line for each directory, after the lines of its subdirectories, like du."""
        above: list[_Sums] = []
        for found in records:
            numbers, shown = found.text.split(b" ", 4)[:4], found.text.split(b" ", 4)[4]
            sums = _Sums(found.place, shown, *map(int, numbers))
            if found.place == OPERANDS:
                yield self._sum(sums)
                continue
            while above and not _is_below(found.place, above[-1].place):
                yield from self._left(above)
            if above and above[-1].place == found.place:
                above[-1] = above[-1].plus(sums)
            else:
                above.append(sums)
        while above:
            yield from self._left(above)

    def _left(self, above: list[_Sums]) -> Iterator[bytes]:
        done = above.pop()
        if above:
            above[-1] = above[-1].plus(done)
        if self._plan.deep or not above:
            yield self._sum(done)

    def _sum(self, sums: _Sums) -> bytes:
        size = human(sums.size) if self._form.human else b"%d" % sums.size
        (shown,) = self._fields.shown([sums.shown])
        newest = self._times.text(sums.newest_ns)
        columns = (b"%d" % sums.entries, size, self._fields.space(sums.blocks), newest, shown)
        return b"\t".join(columns) + self._form.end


def _row_text(packed: bytes) -> bytes:
    return read_directories([packed]) if tag_of(packed) == DIRECTORY else read(packed).text


def _is_below(place: bytes, above: bytes) -> bool:
    return place == above or place.startswith(above + b"\0")


def _unsorted(error: OSError) -> StoppedEarly:
    """Return the error to raise when a temporary file for sorting cannot be used."""
    return StoppedEarly(f"cannot write temporary files: {error.strerror}")


class ListConsole(TreeConsole):
    """Prints entries as they are found, or sorted at the end of the walk."""

    has_bytes = False
    _program: ListProgram

    def __init__(self, program: ListProgram, log: LogFile | None) -> None:
        super().__init__(program, log)
        self._says_end = bool(self.verbose)
        self._printer = _Printer(program.plan)
        if program.rows is not None:
            self.results: RowResults = rows.RowResults(
                self.note, *program.rows, self._remaining_bytes
            )

    def text(self, notice: object) -> bytes:
        return self._printer.add(notice.packed) if isinstance(notice, ListRecords) else b""

    def _remaining_bytes(self) -> Iterator[bytes]:
        return rows.together(self._printer.remaining(), _WRITTEN_BYTES)

    def end(self, outcome: Outcome[dict[int, int]]) -> tuple[int, list[str]]:
        code, reasons = super().end(outcome)
        self.quiet: bool = self.quiet or not self._says_end
        if self._program.rows is None and code in (0, StoppedEarly.exit_code):
            try:
                for text in self._remaining_bytes():
                    self.results.text([text])
                    if self.results.failed:
                        break
            except StoppedEarly as error:
                return worst((code, error.exit_code)), [*reasons, str(error)]
        return code, reasons

    def conclude(self, outcome: Outcome[dict[int, int]]) -> int:
        try:
            return super().conclude(outcome)
        finally:
            self._printer.close()

    def summary(self, total: ListCounters) -> str:
        return f"{plural(total.completed, 'entry', 'entries')} listed"


class ListProgram(TreeProgram):
    """The program of fls. If a program has called it, it prints rows as JSON."""

    name = "fls"
    plan_type: ClassVar[type[ListPlan]] = ListPlan
    task_type: ClassVar[type[ListTask]] = ListTask
    console_type: ClassVar[type[ListConsole]] = ListConsole
    options: ListOptions

    def __init__(self, options: ListOptions, paths: Sequence[bytes]) -> None:
        super().__init__(options, paths)
        self.plan: ListPlan
        self._is_called = CALLER.get() is not None
        self.rows: tuple[str, rows.Pieces] | None = None
        self._keys = options.keys
        self._known: dict[Root, os.stat_result] = {}
        self.limit: TimeLimit | None = options.time_limit()
        if options.rows is not None:
            form, where = options.rows
            self.rows = (where, getattr(rows, f"as_{form}"))

    @property
    def lists_whole(self) -> bool:
        return self.options.recursive

    def can_lose_ranks(self) -> bool:
        """Return whether the program prints nothing before the end of the walk."""
        return bool(self._keys) or self.is_rows

    def roots(self) -> tuple[Root, ...]:
        """Return the roots, with directories in the order of the listing."""
        if self.rows is not None:
            check(self.rows[0])
        if self.options.parquet is not None:
            rows.check_arrow()
        keys = Keys(self._keys, directories_first=False)
        given = tuple(map(self._root, self.paths))  # a PATH given twice is listed twice
        if not self._keys:
            return given
        found = sorted(given, key=lambda root: keys.of_directory(root.shown, self._known[root]))
        return tuple(found)

    def _root(self, path: bytes) -> Root:
        """Return the root of a PATH; follow a link to a directory in the same cases as ls.

        Raise UsageError if the PATH cannot be looked up.
        """
        options = self.options
        is_itself = options.directory or options.classify or options.is_long or self.is_rows
        try:
            status = os.lstat(path)
            if stat.S_ISLNK(status.st_mode) and not is_itself and os.path.isdir(path):
                status = os.stat(path)
        except OSError as error:
            raise UsageError(f"cannot list '{show(path)}': {error.strerror}") from None
        if stat.S_ISDIR(status.st_mode) and not options.directory:
            root = Root(path, b"", path)
        else:
            holder, name = os.path.split(path)
            root = Root(holder or b".", name or b".", path)
        self._known[root] = status
        return root

    @property
    def is_rows(self) -> bool:
        """Return whether the listing consists of rows for programs."""
        return self.rows is not None or self._is_called

    def decided(self, roots: tuple[Root, ...], ranks: int) -> dict[str, Any]:
        options = self.options
        directories = tuple(root.shown for root in roots if not root.name)
        listed = options.files_from is not None
        if listed and (len(roots) != 1 or not directories):
            raise UsageError("--files-from requires one PATH, a directory")
        deep = options.recursive or listed
        return {
            "form": self._form(MessageStream(standard_output()).isatty()),
            "recursive": (deep or options.total) and not options.directory,
            "deep": deep,
            "keys": self._keys,
            "headed": deep or len(self.paths) > 1,
            "directories": directories if len(directories) < len(roots) else (),
            "acts": ActionOutput(options.json_lines is not None, list_end(options, roots)),
            "ranks": ranks,
        }

    def begin(self, roots: tuple[Root, ...]) -> None:
        super().begin(roots)
        lines, listed = self.options.json_lines, self.options.list_out
        if lines is not None:
            self.actions: LogFile = LogFile(open_output(lines, "--json-lines"))
        if listed is not None:
            self.listed: LogFile = LogFile(open_output(listed, "--list-out"))

    def _form(self, is_terminal: bool) -> Form:
        options = self.options
        is_long = options.is_long
        is_plain = options.one or is_long or options.null or options.acl or options.xattr
        shape = "total" if options.total else "csv" if options.csv is not None else "json"
        colored, linked = (
            when == "always" or (when == "auto" and is_terminal)
            for when in (options.color, options.hyperlink)
        )
        # Sums that are not printed on a terminal are read by programs, so times are shown in full.
        is_full = options.full_time or (options.total and not is_terminal)
        decided = {
            "shape": shape if options.total or self.is_rows else "lines",
            "long": is_long,
            "owner": not options.no_owner,
            "group": not options.no_group,
            "time": options.time or TIMES[0],
            "style": options.style or (FULL_ISO if is_full else RECENT),
            "colors": (os.environ.get("LS_COLORS") or ":") if colored else "",
            "host": os.uname().nodename if linked else "",
            "hidden": 2 if options.hidden == 2 and not self.is_rows else int(options.sees_hidden),
            "columns": columns() if is_terminal and not is_plain else 0,
            "escaped": is_terminal and not options.null,
            "end": b"\0" if options.null else b"\n",
        }
        return Form(**(options.planned(Form) | decided))

    def observer(self, plan: bytes) -> Observer[Any]:
        self.plan = msgspec.msgpack.decode(plan, type=ListPlan)
        return super().observer(plan)


def list_typed(args: argparse.Namespace) -> int:
    """Run a parsed command line and return the exit code; raise UsageError if it is invalid."""
    paths = list(map(os.fsencode, args.operands)) or [b"."]
    return ListProgram(ListOptions.of(args), paths).run()
