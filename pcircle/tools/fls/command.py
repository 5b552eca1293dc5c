"""The program of fls: interprets the options and runs the listing."""

from __future__ import annotations

import argparse
import os
import stat
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from pcircle.cli.json_output import check
from pcircle.cli.listing import FULL_ISO, RECENT
from pcircle.cli.output import MessageStream, columns
from pcircle.cli.results import list_end, open_output
from pcircle.cli.tree_program import TreeConsole, TreeProgram
from pcircle.core.encoding import show
from pcircle.core.errors import StoppedEarly, UsageError, worst
from pcircle.core.units import plural
from pcircle.core.writing import CALLER, standard_output
from pcircle.jobs.action_log import ActionOutput
from pcircle.jobs.failures import LogFile
from pcircle.runtime import Observer, Outcome
from pcircle.tools.fls import rows
from pcircle.tools.fls.options import TIMES, ListOptions
from pcircle.tools.fls.plan import Form, Keys, ListCounters, ListPlan, ListRecords
from pcircle.tools.fls.printer import Printer
from pcircle.tools.fls.visitor import ListTask
from pcircle.walk.roots import Root

if TYPE_CHECKING:
    from pcircle.runtime.task import TimeLimit
    from pcircle.tools.fls.rows import RowResults

_WRITTEN_BYTES = 1 << 20


class ListConsole(TreeConsole):
    """Prints entries as they are found, or sorted at the end of the walk."""

    has_bytes = False
    _program: ListProgram

    def __init__(self, program: ListProgram, log: LogFile | None) -> None:
        super().__init__(program, log)
        self._says_end = bool(self.verbose)
        self._printer = Printer(program.plan)
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
