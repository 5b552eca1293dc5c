"""The program of fls, which interprets the options and runs the listing."""

from __future__ import annotations

import argparse
import os
import stat
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from pcircle.cli.arguments import columns
from pcircle.cli.json_output import check
from pcircle.cli.listing import FULL_ISO, RECENT, Times
from pcircle.cli.options import AllOptions
from pcircle.cli.output import MessageStream
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
from pcircle.tools.fls.plan import KEYS, TIMES, Form, Keys, ListCounters, ListPlan, ListRecords
from pcircle.tools.fls.printer import Printer
from pcircle.tools.fls.visitor import ListTask
from pcircle.walk.roots import Root

if TYPE_CHECKING:
    from pcircle.runtime.task import TimeLimit
    from pcircle.tools.fls.rows import RowResults

_WRITTEN_BYTES = 1 << 20
_FILES = ("json", "csv", "parquet")
_TIME_WORDS = {"modification": "mtime", "access": "atime", "use": "atime", "status": "ctime"}


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
    """The program of fls, which prints rows as JSON if a program has called it."""

    name = "fls"
    plan_type: ClassVar[type[ListPlan]] = ListPlan
    task_type: ClassVar[type[ListTask]] = ListTask
    console_type: ClassVar[type[ListConsole]] = ListConsole

    def __init__(self, args: argparse.Namespace, **more: object) -> None:
        paths = list(map(os.fsencode, args.operands)) or [b"."]
        super().__init__(AllOptions.of(args), paths, **more)
        self.args = args
        self.plan: ListPlan
        self._is_called = CALLER.get() is not None
        self.rows: tuple[str, rows.Pieces] | None = None
        self._keys = _keys_of(args)
        self._known: dict[Root, os.stat_result] = {}
        self.limit: TimeLimit | None = self.options.time_limit()
        Times(args.time_style or FULL_ISO, 0)  # raises UsageError for an invalid style
        for name in _FILES:
            where = getattr(args, name)
            if where is not None:
                self.rows = (where, getattr(rows, f"as_{name}"))

    @property
    def lists_whole(self) -> bool:
        return bool(self.args.recursive)

    def can_lose_ranks(self) -> bool:
        """Return whether the program prints nothing before the end of the walk."""
        return bool(self._keys) or self.is_rows

    def roots(self) -> tuple[Root, ...]:
        """Return the roots, with directories in the order of the listing."""
        if self.rows is not None:
            check(self.rows[0])
        if self.args.parquet is not None:
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
        args = self.args
        is_itself = args.directory or args.classify or _is_long(args) or self.is_rows
        try:
            status = os.lstat(path)
            if stat.S_ISLNK(status.st_mode) and not is_itself and os.path.isdir(path):
                status = os.stat(path)
        except OSError as error:
            raise UsageError(f"cannot list '{show(path)}': {error.strerror}") from None
        if stat.S_ISDIR(status.st_mode) and not args.directory:
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
        args = self.args
        directories = tuple(root.shown for root in roots if not root.name)
        listed = args.files_from is not None
        if listed and (len(roots) != 1 or not directories):
            raise UsageError("--files-from requires one PATH, a directory")
        return {
            "form": self._form(MessageStream(standard_output()).isatty()),
            "recursive": bool(args.recursive or args.total or listed) and not args.directory,
            "deep": bool(args.recursive or listed),
            "keys": self._keys,
            "directories_first": args.group_directories_first,
            "headed": args.recursive or listed or len(self.paths) > 1,
            "directories": directories if len(directories) < len(roots) else (),
            "acts": ActionOutput(args.json_lines is not None, list_end(self.options, roots)),
            "ranks": ranks,
        }

    def begin(self, roots: tuple[Root, ...]) -> None:
        super().begin(roots)
        args = self.args
        if args.json_lines is not None:
            self.actions: LogFile = LogFile(open_output(args.json_lines, "--json-lines"))
        if args.list_out is not None:
            self.listed: LogFile = LogFile(open_output(args.list_out, "--list-out"))

    def _form(self, is_terminal: bool) -> Form:
        args = self.args
        is_long = _is_long(args)
        is_plain = args.one or is_long or args.null or args.acl or args.xattr
        shape = "total" if args.total else "csv" if args.csv is not None else "json"
        colored, linked = (
            when == "always" or (when == "auto" and is_terminal)
            for when in (args.color, args.hyperlink)
        )
        is_full = args.full_time or (args.total and not is_terminal)  # other programs read sums
        return Form(
            shape=shape if args.total or self.is_rows else "lines",
            long=is_long,
            inode=args.inode,
            blocks=args.size,
            human=args.human_readable,
            numeric=args.numeric_uid_gid,
            owner=not args.no_owner,
            group=not args.no_group,
            time=_time_of(args),
            style=args.time_style or (FULL_ISO if is_full else RECENT),
            classify=args.classify,
            colors=(os.environ.get("LS_COLORS") or ":") if colored else "",
            host=os.uname().nodename if linked else "",
            context=args.context,
            acl=args.acl,
            xattr=args.xattr,
            digest=args.sum,
            hidden=2 if args.hidden == 2 and not self.is_rows else int(_sees_hidden(args)),
            columns=columns() if is_terminal and not is_plain else 0,
            escaped=is_terminal and not args.null,
            end=b"\0" if args.null else b"\n",
        )

    def observer(self, plan: bytes) -> Observer[Any]:
        self.plan = msgspec.msgpack.decode(plan, type=ListPlan)
        return super().observer(plan)


def _is_long(args: argparse.Namespace) -> bool:
    words = ("long", "numeric_uid_gid", "no_owner", "no_group", "full_time")
    return any(getattr(args, word) for word in words)


def _sees_hidden(args: argparse.Namespace) -> bool:
    return bool(args.hidden or args.total or args.files_from is not None)


def _time_of(args: argparse.Namespace) -> str:
    word = _TIME_WORDS.get(args.time, args.time) or "mtime"
    if word not in TIMES:
        shown = show(os.fsencode(word))
        raise UsageError(f"--time: unknown '{shown}'; choose from {', '.join(TIMES)}")
    return word


def _keys_of(args: argparse.Namespace) -> tuple[tuple[str, bool], ...]:
    """Return the sort fields, each with a flag for descending order.

    Raise UsageError if a field is unknown.
    """
    time = _time_of(args)
    # As in ls, --time selects the sort order if the time is not displayed.
    by = args.by or ("-time" if args.time is not None and not _is_long(args) else "name")
    if by == "none":
        return ()
    keys = []
    for word in by.split(","):
        key, descends = word.removeprefix("-"), word.startswith("-")
        key = time if key == "time" else key
        if key not in KEYS:
            known = ", ".join((*KEYS, "none"))
            raise UsageError(f"--sort: unknown '{show(os.fsencode(key))}'; choose from {known}")
        keys.append((key, descends != args.reverse))
    if all(key != "name" for key, _ in keys):
        keys.append(("name", args.reverse))
    return tuple(keys)


def program_of(args: argparse.Namespace) -> ListProgram:
    """Return the program for a command line; raise UsageError if options cannot be combined."""
    given = [f"--{name}" for name in _FILES if getattr(args, name) is not None]
    given += ["--total"] * args.total
    if len(given) > 1:
        raise UsageError(f"{given[0]} cannot be combined with {given[1]}")
    if args.sum and (args.total or not (given or CALLER.get())):
        raise UsageError("--sum requires --json, --csv or --parquet")
    if args.total and args.by is not None:
        raise UsageError("--total cannot be combined with a sort order")
    for option in ("list_out", "json_lines"):
        if args.total and getattr(args, option) is not None:
            raise UsageError(f"--total cannot be combined with --{option.replace('_', '-')}")
    if args.list_out == "-":
        raise UsageError("--list-out: standard output is used for the listing; specify a file")
    written = (args.list_out, args.json_lines, args.error_log, args.files_from)
    named = [name for name in (*written, args.json, args.csv, args.parquet) if name is not None]
    for name in written:
        if name is not None and named.count(name) > 1:
            raise UsageError(f"'{show(os.fsencode(name))}' is used by two options")
    for option in ("total", "files_from"):
        if args.directory and getattr(args, option):
            raise UsageError(f"-d cannot be combined with --{option.replace('_', '-')}")
    return ListProgram(args)


def list_typed(args: argparse.Namespace) -> int:
    """Run a parsed command line and return the exit code; raise UsageError if it is invalid."""
    return program_of(args).run()
