"""The program of a search: interprets the command line, runs the search and writes its results.

Files, users and dates of the expression are looked up once, on rank 0. All ranks use the same
results, so *now* is the same moment on all of them. The console writes the results of all ranks,
sorted on request.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec.structs import replace

from pcircle.cli.change_program import ChangeConsole, ChangeProgram, refuse_twice
from pcircle.cli.option_values import date_ns, moment_of
from pcircle.cli.output import MessageStream
from pcircle.core.encoding import show
from pcircle.core.errors import IntegrityError, UsageError, require_type, worst
from pcircle.core.units import NS_PER_S, is_whole, plural, timestamp
from pcircle.core.writing import standard_error, standard_output, write_stream
from pcircle.fs.sorting import Sorter
from pcircle.fs.status import birth_ns
from pcircle.jobs.failures import LogFile, open_log
from pcircle.jobs.tree_task import TreeTask
from pcircle.runtime import Outcome
from pcircle.tools.ffind.eval.compiler import needs_status
from pcircle.tools.ffind.eval.entry import FIELDS, TIMES
from pcircle.tools.ffind.eval.output import (
    CSV_HEAD,
    QUIT,
    LinkedFiles,
    SortRecords,
    StreamText,
)
from pcircle.tools.ffind.language.formats import ends_of
from pcircle.tools.ffind.language.parser import parse
from pcircle.tools.ffind.language.words import refused
from pcircle.tools.ffind.options import OF_NAMES, FindOptions
from pcircle.tools.ffind.plan import (
    ExpressionNode,
    FindCounters,
    FindPlan,
    Order,
    ParsedExpression,
    SearchedIndex,
    names_of,
    walk,
)
from pcircle.tools.ffind.task import FindTask, listed_starts, start_of
from pcircle.walk.roots import Root

if TYPE_CHECKING:
    from pcircle.tools.ffind.apply import FindApplyProgram

_BLOCK_BYTES = 512
_DIGITS = 10


class FindConsole(ChangeConsole):
    """Reports a search."""

    _program: FindProgram

    def __init__(self, program: FindProgram, log: LogFile | None) -> None:
        super().__init__(program, log)
        expression = program.parsed.expression
        limits = [node for node in walk(expression) if node.name == "limit"]
        self._left: dict[int, int] = {int(n.args[1] or 0): int(n.args[0] or 0) for n in limits}
        self._ended = False
        self._sorter: Sorter | None = None
        self._top: list[tuple[bytes, bytes]] = []
        self._links: Sorter | None = None
        self._names = program.names
        self._files_failed: set[int] = set()
        if not program.has_head and any(
            node.name == "csv" and not node.args[0] for node in walk(expression)
        ):
            self._emit(CSV_HEAD)
        program.has_head = True

    # ---- notices ---------------------------------------------------------------

    def notice(self, source: int, values: Sequence[object]) -> None:
        texts: list[bytes] = []
        unhandled: list[object] = []
        if self._ended:
            self._halt()
        for value in values:
            if isinstance(value, StreamText):
                if self._ended:
                    continue
                if value.event:
                    self._handle_event(value.event)
                elif value.stream == 0:
                    texts.append(value.text)
                else:
                    self._write_stream(value.stream, self._unwritten(value.stream, value.text))
            elif isinstance(value, SortRecords):
                self._recorded(value.records)
            elif isinstance(value, LinkedFiles):
                self._linked(value.files)
            else:
                unhandled.append(value)
        if text := self._unwritten(0, b"".join(texts)):
            self._emit(text)
        if unhandled:
            super().notice(source, unhandled)

    def _unwritten(self, stream: int, text: bytes) -> bytes:
        """Return the part of `text` that no earlier run has written to the stream."""
        ends = self._program.ends or {}
        return self._fresh(f"stream {stream}", text, ends.get(stream, b"\n"))

    def _emit(self, text: bytes) -> None:
        self.results.text([text])
        if self.results.is_broken:
            self._halt()  # the reader of the output has exited

    def _halt(self) -> None:
        self._ended = True
        if self._program.first_task is not None:
            self._program.first_task.halted = True

    def _handle_event(self, event: int) -> None:
        """Handle an event: end the search, or count it towards a limit."""
        if event == QUIT:
            self._ended = True
        else:
            self._left[event] -= 1
            self._ended = self._left[event] <= 0
        if self._ended:
            self._halt()

    def _write_stream(self, stream: int, text: bytes) -> None:
        """Write to standard error, or to a file of -fprint."""
        if stream < 0:
            with suppress(OSError, ValueError):
                write_stream(standard_error(), text)
            return
        try:
            self._program.files[stream - 1].append(text)
        except OSError as error:
            if stream not in self._files_failed:
                self._files_failed.add(stream)
                name = self._program.parsed.files[stream - 1]
                self.note(f"{self.tool}: cannot write '{name}': {error.strerror}")

    def _recorded(self, records: Sequence[tuple[bytes, bytes]]) -> None:
        order = self._program.order
        if order is not None and order.top is not None:
            self._top += records
            self._top.sort()
            del self._top[order.top :]
            return
        if self._sorter is None:
            self._sorter = Sorter()
        for key, text in records:
            self._sorter.add(packed(key, text))

    def _linked(self, files: Sequence[tuple[int, int, int]]) -> None:
        if self._links is None:
            self._links = Sorter()
        for device, inode, blocks in files:
            self._links.add(b"%020d %020d %d" % (device, inode, blocks))

    # ---- end of the job --------------------------------------------------------

    def summary(self, total: FindCounters) -> str:
        parts = [f"{plural(total.found, 'entry', 'entries')} searched"]
        if "delete" in self._names:
            options = self._program.options
            dry = options.dry or options.plan is not None
            done = "would be removed" if dry else "removed"
            parts = [
                f"{plural(total.deleted, 'entry', 'entries')} {done}",
                f"{total.found:,} searched",
            ]
        if total.vanished:
            parts.append(f"{total.vanished:,} vanished")
        return ", ".join(parts)

    def end(self, outcome: Outcome[dict[int, int]]) -> tuple[int, list[str]]:
        total = FindCounters.total(outcome.counts)
        if not outcome.code:
            self._write_final_output(total)
        for sorter in (self._sorter, self._links):
            if sorter is not None:
                sorter.close()
        code, reasons = super().end(outcome)
        for file in self._program.files:
            try:
                file.close()
            except OSError as error:
                self._files_failed.add(0)
                self.note(f"{self.tool}: cannot write: {error.strerror}")
        if self._files_failed:
            self.log_failed = True
        if "exists" in self._names and not code and not total.matched:
            code = worst((code, IntegrityError.exit_code))
        return code, reasons

    def _write_final_output(self, total: FindCounters) -> None:
        """Write output that is known only at the end."""
        for _, text in self._top:
            self._emit(text)
        if self._sorter is not None:
            for record in self._sorter.sorted():
                self._emit(text_of(record))
        if "count" in self._names:
            self._emit(b"%d\n" % total.matched)
        if "du" in self._names:
            blocks = total.blocks + sum(self._linked_blocks())
            self._emit(b"%d\n" % (blocks * _BLOCK_BYTES))

    def _linked_blocks(self) -> Iterator[int]:
        """Yield the blocks of hard-linked files, once for each file."""
        last = b""
        for record in self._links.sorted() if self._links is not None else ():
            name, _, blocks = record.rpartition(b" ")
            if name != last:
                yield int(blocks)
            last = name


def packed(key: bytes, text: bytes) -> bytes:
    """Return a record of key and text that sorts by the key."""
    return b"%b%b%0*d" % (key, text, _DIGITS, len(text))


def text_of(record: bytes) -> bytes:
    """Return the text of a record."""
    end = len(record) - _DIGITS
    return record[end - int(record[end:]) : end]


def order_of(options: FindOptions) -> Order | None:
    """Return the order of --sort, --top and --by."""
    if options.top is None:
        return None if options.sort is None else Order(options.sort)
    # The largest and newest entries come first unless a dash reverses the order.
    turned = tuple(key[1:] if key.startswith("-") else f"-{key}" for key in options.by)
    return Order(turned, options.top)


_RUNNING = ("exec", "execplus")
_CHANGING = ("delete", *_RUNNING)
_CUTTING = ("quit", "limit", "exists")


class FindProgram(ChangeProgram):
    """The program of a search.

    `names` contains the names of all primaries. `ends` maps each stream to the terminator of its
    records, if all output consists of records. `has_head` is set once the CSV header has been
    written. `first_task` is the first task of this process.
    """

    name = "ffind"
    options: FindOptions
    plan_type: ClassVar[type[FindPlan]] = FindPlan
    task_type: ClassVar[type[FindTask]] = FindTask
    console_type: ClassVar[type[FindConsole]] = FindConsole

    def __init__(
        self, options: FindOptions, parsed: ParsedExpression, paths: Sequence[bytes]
    ) -> None:
        self.parsed = parsed
        self.names: set[str] = names_of(parsed.expression)
        self.order: Order | None = order_of(options)
        _refuse(options, parsed, self.names, self.order)
        self.said = "deleted" if "delete" in self.names else "listed"
        super().__init__(options.reporting(removes="delete" in self.names), paths or [b"."])
        self._has_paths = bool(paths)
        self.files: list[LogFile] = []
        self.first_task: FindTask | None = None
        self.has_head = False
        self.ends: dict[int, bytes] | None = None
        self.index: SearchedIndex | None = None  # on rank 0 only

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for ranks in new interpreters, without local objects."""
        return {**vars(self), "first_task": None}

    @property
    def known_paths(self) -> Sequence[bytes]:
        """The paths, unless they are in a file, or commands run, which may take any time."""
        elsewhere = self.options.within is not None or self.parsed.starts_from is not None
        runs = not self.names.isdisjoint(_RUNNING)
        return () if elsewhere or runs else super().known_paths

    def roots(self) -> tuple[Root, ...]:
        parsed = self.parsed
        paths = self.paths
        if parsed.starts_from is not None:
            if self._has_paths:
                raise UsageError("-files0-from cannot be combined with PATH")
            paths = tuple(listed_starts(parsed.starts_from, complete=self.lists_completely))
        if self.options.within is not None:
            return self._index_roots(self.options.within, paths)
        removes = "delete" in self.names
        follow = parsed.settings.follow
        roots = tuple(start_of(path, follow, removes=removes) for path in paths)
        if self.options.plan is not None:
            refuse_twice("--plan", roots)
        return roots

    def _index_roots(self, index: str, paths: tuple[bytes, ...]) -> tuple[Root, ...]:
        """Return the roots in an index.

        If subtrees may be skipped, one rank must read the index in order.
        """
        from pcircle.tools.ffind.index_search import index_of

        parsed = self.parsed
        named = self._has_paths or parsed.starts_from is not None
        in_order = (
            parsed.settings.one_file_system or parsed.exclude is not None or "prune" in self.names
        )
        self.index, roots = index_of(index, paths if named else (), in_order=in_order)
        return roots

    @property
    def lists_completely(self) -> bool:
        return not self.names.isdisjoint(_CHANGING)

    def can_lose_ranks(self) -> bool:
        """Return whether the search changes nothing and all output consists of records."""
        dry = self.options.dry or self.options.plan is not None
        acts = set(_RUNNING if dry else _CHANGING)
        self.ends = ends_of(self.parsed.expression)
        return self.ends is not None and self.names.isdisjoint({*acts, *_CUTTING})

    def decided(self, roots: tuple[Root, ...], ranks: int) -> dict[str, Any]:
        parsed = self.parsed
        now = time.time_ns()
        resolver = _Resolver(self.options.words, parsed.settings.follow, now)
        expression = resolver.resolved(parsed.expression)
        exclude = None if parsed.exclude is None else resolver.resolved(parsed.exclude)
        for warning in parsed.warnings:
            self.complain(f"warning: {warning}")
        cuts = not self.names.isdisjoint(_CUTTING)
        writes = bool(parsed.files) or not self.names.isdisjoint(_CHANGING)
        more: dict[str, object] = {
            "now_ns": now,
            "one_file_system": parsed.settings.one_file_system,
            "expression": expression,
            "exclude": exclude,
            "settings": parsed.settings,
            "midnight_ns": _midnight_ns(now),
            "wide": _is_wide(),
            "quoted": MessageStream(standard_output()).isatty(),
            "order": self.order,
            "alone": cuts and writes,
            "removes": "delete" in self.names,
            "index": self.index,
            "runs": not self.names.isdisjoint(_RUNNING),
        }
        return super().decided(roots, ranks) | more

    def opened(self) -> dict[str, Any]:
        name = self.options.plan
        around = () if name is None else _around(os.path.realpath(os.fsencode(name)))
        return super().opened() | {"around_plan": around}

    def task(self, plan: bytes, rank: int, size: int) -> TreeTask:
        task = self.first_task = require_type(FindTask, super().task(plan, rank, size))
        return task

    def begin(self, roots: tuple[Root, ...]) -> None:
        super().begin(roots)
        for path in self.parsed.files:
            self.files.append(LogFile(open_log(path, "-fprint")))


def _around(path: bytes) -> tuple[tuple[int, int], ...]:
    """Return the device and inode of each directory above a file."""
    found = []
    while path != b"/":
        path = os.path.dirname(path)
        status = os.stat(path)
        found.append((status.st_dev, status.st_ino))
    return tuple(found)


def _midnight_ns(now: int) -> int:
    """Return the start of the current day in local time."""
    second = now // NS_PER_S
    today = time.localtime(second)
    return (second - today.tm_sec - today.tm_min * 60 - today.tm_hour * 3600) * NS_PER_S


def _is_wide() -> bool:
    """Return whether patterns match characters instead of bytes in the user's locale."""
    for variable in ("LC_ALL", "LC_CTYPE", "LANG"):
        if os.environ.get(variable):
            return os.environ[variable].lower().replace("-", "").endswith("utf8")
    return False


def _refuse(
    options: FindOptions, parsed: ParsedExpression, names: set[str], order: Order | None
) -> None:
    """Raise UsageError for options and primaries that cannot be combined."""
    if options.within is not None:
        _refuse_with_index(options.words, parsed)
    for field in ("max_delete", "plan"):
        if getattr(options, field) is None:
            continue
        shown = options.declared[field].name
        if "delete" not in names:
            raise UsageError(f"{shown} requires -delete")
        if not names.isdisjoint(_RUNNING):
            raise UsageError(f"{shown} cannot be combined with -exec")
    if options.max_delete is not None and not names.isdisjoint(_CUTTING):
        raise UsageError("--max-delete cannot be combined with -quit, -limit and -exists")
    if order is not None and not names.isdisjoint(_CUTTING):
        raise UsageError("--sort and --top cannot be combined with -quit, -limit and -exists")
    if "delete" in names and options.op_timeout_s is not None:
        # A removal that timed out would count as a failure, although the kernel might still
        # complete it.
        raise UsageError("-delete cannot be combined with --op-timeout")
    if "delete" in names and parsed.settings.follow == "L":
        raise UsageError("-delete cannot be combined with -L: links would be followed")
    if options.stat == "never":
        for node in walk(parsed.expression):
            if needs_status(node):
                shown = _said(options.words, node)
                raise UsageError(f"--stat=never: {shown} requires a lookup")
        if order is not None and any(key.lstrip("-") not in OF_NAMES for key in order.fields):
            raise UsageError("--stat=never: the sort order requires lookups")


def _refuse_with_index(words: Sequence[str], parsed: ParsedExpression) -> None:
    """Raise UsageError for options and primaries that require more than an index."""
    from pcircle.tools.ffind.index_search import is_live

    if parsed.settings.follow != "P":
        raise UsageError(f"--in: -{parsed.settings.follow} requires the file system")
    nodes = [*walk(parsed.expression), *(() if parsed.exclude is None else walk(parsed.exclude))]
    for node in nodes:
        if is_live(node):
            said = "-delete" if node.name == "delete" else _said(words, node)
            raise UsageError(f"--in: {said} requires the file system")


def _said(words: Sequence[str], node: ExpressionNode) -> str:
    return show(os.fsencode(words[node.at])) if node.count else "an action"


def program_of(args: argparse.Namespace) -> FindProgram | FindApplyProgram:
    """Return the program for a parsed command line. Raise UsageError if it is invalid."""
    options = FindOptions.of(args)
    paths = list(map(os.fsencode, args.operands))
    if options.apply is not None:
        if args.tokens:
            raise UsageError("--apply takes no expression")
        from pcircle.tools.ffind.apply import FindApplyProgram  # few runs carry out a plan

        options = options.reporting(removes=True)
        return FindApplyProgram(options, paths, listed=True, enter_mounts=True)
    listed = options.list_out is not None
    parsed = parse(options.words, args.tokens, listed=listed)
    if listed:
        listing = ExpressionNode("and", (), (parsed.expression, ExpressionNode("listed")))
        parsed = replace(parsed, expression=listing)
    return FindProgram(options, parsed, paths)


def find_typed(args: argparse.Namespace) -> int:
    """Run a parsed command line and return the exit code; raise UsageError if it is invalid."""
    return program_of(args).run()


_MAX_ID = (1 << 32) - 1


def _newer_node(field: str, than_ns: int) -> ExpressionNode:
    return ExpressionNode("newer", (field, *timestamp(than_ns)))


class _Resolver:
    """Looks up references.

    If `follow` is P, a symbolic link stands for itself, otherwise (H, L) for its target. Errors
    refer to positions in `words`.
    """

    def __init__(self, words: Sequence[str], follow: str, now_ns: int) -> None:
        self._words = words
        self._follows = follow != "P"
        self._now_ns = now_ns

    def resolved(self, node: ExpressionNode) -> ExpressionNode:
        """Return the node with all references resolved. Raise UsageError if that fails."""
        if node.children:
            return ExpressionNode(node.name, node.args, tuple(map(self.resolved, node.children)))
        look = _LOOKS.get(node.name)
        if look is None:
            return node
        try:
            return look(self, *node.args)
        except (ValueError, OSError, UsageError) as error:
            text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise refused(self._words, node.at, node.count, text) from None

    def _status(self, path: bytes) -> os.stat_result:
        try:
            if self._follows:
                try:
                    return os.stat(path)
                except (FileNotFoundError, NotADirectoryError):
                    # A dangling link stands for itself, even if its target would be below a file.
                    return os.lstat(path)
            return os.lstat(path)
        except OSError as error:
            raise ValueError(f"cannot look up '{show(path)}': {error.strerror}") from None

    def _newer_than_file(self, field: str, other: str, path: bytes) -> ExpressionNode:
        status = self._status(path)
        if other == "B":
            born_ns = birth_ns(path, None, follow=self._follows)
            if born_ns is None:
                raise ValueError(f"the birth time of '{show(path)}' is unknown")
            return _newer_node(field, born_ns)
        return _newer_node(field, FIELDS[TIMES[other]](status))

    def _newer_than_date(self, field: str, text: bytes) -> ExpressionNode:
        try:
            return _newer_node(field, date_ns("date", os.fsdecode(text)))
        except UsageError:
            return _newer_node(field, _by_date(text))

    def _since_moment(self, text: bytes) -> ExpressionNode:
        return _newer_node("m", self._moment_ns("-since", text))

    def _until_moment(self, text: bytes) -> ExpressionNode:
        return ExpressionNode("not", (), (_newer_node("m", self._moment_ns("-until", text)),))

    def _moment_ns(self, option: str, text: bytes) -> int:
        return moment_of(option, os.fsdecode(text)).at_ns(self._now_ns)

    def _samefile(self, path: bytes) -> ExpressionNode:
        status = self._status(path)
        return ExpressionNode("samefile", (status.st_dev, status.st_ino))

    def _user(self, text: bytes) -> ExpressionNode:
        import pwd  # few expressions name a user

        return _owner("uid", text, lambda name: pwd.getpwnam(name).pw_uid)

    def _group(self, text: bytes) -> ExpressionNode:
        import grp  # few expressions name a group

        return _owner("gid", text, lambda name: grp.getgrnam(name).gr_gid)


def _owner(field: str, text: bytes, number_of: Callable[[str], int]) -> ExpressionNode:
    """Return the test for an owner, given as a name or number."""
    name = os.fsdecode(text)
    try:
        return ExpressionNode("number", (field, "=", number_of(name)))
    except (KeyError, ValueError):
        if is_whole(name) and int(name) <= _MAX_ID:
            return ExpressionNode("number", (field, "=", int(name)))
    raise ValueError(f"unknown name '{show(text)}'")


def _by_date(text: bytes) -> int:
    """Return a time such as `yesterday` or `2 hours ago`, as date(1) reads it."""
    import subprocess  # few expressions contain a date

    command: list[str | bytes] = ["date", b"--date=" + text, "+%s%N"]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=10
        )
        return int(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        raise ValueError(f"'{show(text)}' is not a date") from None


_LOOKS: dict[str, Callable[..., ExpressionNode]] = {
    "newer_than_file": _Resolver._newer_than_file,
    "newer_than_date": _Resolver._newer_than_date,
    "since_moment": _Resolver._since_moment,
    "until_moment": _Resolver._until_moment,
    "samefile": _Resolver._samefile,
    "user": _Resolver._user,
    "group": _Resolver._group,
}
