"""The program of a search, which interprets the command line and runs it."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from pcircle.cli.change_program import refuse_twice
from pcircle.cli.output import MessageStream
from pcircle.cli.tree_program import TreeOptions
from pcircle.core.encoding import show
from pcircle.core.errors import UsageError, require_type
from pcircle.core.units import NS_PER_S
from pcircle.core.writing import standard_output
from pcircle.jobs.failures import LogFile, open_log
from pcircle.jobs.tree_task import TreeTask
from pcircle.tools.ffind.console import FindConsole, SearchProgram, order_of
from pcircle.tools.ffind.eval.compiler import needs_status
from pcircle.tools.ffind.eval.resolver import Resolver
from pcircle.tools.ffind.language.formats import ends_of
from pcircle.tools.ffind.language.grammar import parse
from pcircle.tools.ffind.language.nodes import ExpressionNode, ParsedExpression, names_of, walk
from pcircle.tools.ffind.plan import FindPlan, SearchedIndex
from pcircle.tools.ffind.task import FindTask, listed_starts, start_of
from pcircle.walk.roots import Root

if TYPE_CHECKING:
    from pcircle.tools.ffind.apply import FindApplyProgram
    from pcircle.tools.ffind.plan import Order

_RUNNING = ("exec", "execplus")
_CHANGING = ("delete", *_RUNNING)
_CUTTING = ("quit", "limit", "exists")


class FindProgram(SearchProgram):
    """The program of a search."""

    name = "ffind"
    plan_type: ClassVar[type[FindPlan]] = FindPlan
    task_type: ClassVar[type[FindTask]] = FindTask
    console_type: ClassVar[type[FindConsole]] = FindConsole

    def __init__(self, args: argparse.Namespace, parsed: ParsedExpression) -> None:
        self.parsed = parsed
        self.names: set[str] = names_of(parsed.expression)
        paths = list(map(os.fsencode, args.operands)) or [b"."]
        self.order: Order | None = order_of(args.sort, args.top, args.by)
        _refuse(args, parsed, self.names)
        self.said = "deleted" if "delete" in self.names else "listed"
        # Only matching entries are printed by default; a dry run of -delete has only its summary.
        dry = "delete" in self.names and (args.dry_run or args.plan is not None)
        is_asked = args.verbose or args.progress == "always" or dry
        args.quiet = args.quiet or not is_asked
        super().__init__(TreeOptions.of(args), paths)
        self.args = args
        self.files: list[LogFile] = []
        self.first_task: FindTask | None = None
        self.has_head = False
        self.ends = None
        self.index: SearchedIndex | None = None  # on rank 0 only

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for ranks in fresh interpreters, without local objects."""
        return {**vars(self), "first_task": None}

    def roots(self) -> tuple[Root, ...]:
        parsed = self.parsed
        paths = self.paths
        if parsed.starts_from is not None:
            if self.args.operands:
                raise UsageError("-files0-from cannot be combined with PATH")
            paths = tuple(listed_starts(parsed.starts_from, complete=self.lists_completely))
        if self.args.within is not None:
            return self._index_roots(paths)
        removes = "delete" in self.names
        follow = parsed.settings.follow
        roots = tuple(start_of(path, follow, removes=removes) for path in paths)
        if self.args.plan is not None:
            refuse_twice("--plan", roots)
        return roots

    def _index_roots(self, paths: tuple[bytes, ...]) -> tuple[Root, ...]:
        """Return the roots in an index. Pruning makes the search sequential."""
        from pcircle.tools.ffind.index_search import index_of

        parsed = self.parsed
        named = bool(self.args.operands) or parsed.starts_from is not None
        in_order = (
            parsed.settings.one_file_system or parsed.exclude is not None or "prune" in self.names
        )
        self.index, roots = index_of(self.args.within, paths if named else (), in_order=in_order)
        return roots

    @property
    def lists_completely(self) -> bool:
        return not self.names.isdisjoint(_CHANGING)

    def can_lose_ranks(self) -> bool:
        """Return whether the search changes nothing and all output consists of records."""
        args = self.args
        dry = args.dry_run or args.plan is not None
        acts = set(_RUNNING if dry else _CHANGING)
        self.ends = ends_of(self.parsed.expression)
        return self.ends is not None and self.names.isdisjoint({*acts, *_CUTTING})

    def decided(self, roots: tuple[Root, ...], ranks: int) -> dict[str, Any]:
        parsed, args = self.parsed, self.args
        now = time.time_ns()
        resolver = Resolver(args.words, parsed.settings.follow, now)
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
            "quoted": _is_terminal(),
            "order": self.order,
            "alone": cuts and writes,
            "removes": "delete" in self.names,
            "index": self.index,
            "runs": not self.names.isdisjoint(_RUNNING),
        }
        return super().decided(roots, ranks) | more

    def opened(self) -> dict[str, Any]:
        name = self.args.plan
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


def _is_terminal() -> bool:
    return MessageStream(standard_output()).isatty()


def _refuse(args: argparse.Namespace, parsed: ParsedExpression, names: set[str]) -> None:
    """Raise UsageError for combinations of options that are not permitted."""
    if args.within is not None:
        _refuse_with_index(args, parsed)
    for option in ("max_delete", "plan"):
        if getattr(args, option) is None:
            continue
        shown = f"--{option.replace('_', '-')}"
        if "delete" not in names:
            raise UsageError(f"{shown} requires -delete")
        if not names.isdisjoint(_RUNNING):
            raise UsageError(f"{shown} cannot be combined with -exec")
    if args.max_delete is not None and not names.isdisjoint(_CUTTING):
        raise UsageError("--max-delete cannot be combined with -quit, -limit and -exists")
    ordered = args.sort is not None or args.top is not None
    if ordered and not names.isdisjoint(_CUTTING):
        raise UsageError("--sort and --top cannot be combined with -quit, -limit and -exists")
    if "delete" in names and args.op_timeout is not None:
        # A removal that timed out would count as a failure, although the kernel might still
        # complete it.
        raise UsageError("-delete cannot be combined with --op-timeout")
    if "delete" in names and parsed.settings.follow == "L":
        raise UsageError("-delete cannot be combined with -L: links would be followed")
    if args.stat == "never":
        for node in walk(parsed.expression):
            if needs_status(node):
                raise UsageError(f"--stat=never: {_said(args.words, node)} requires a lookup")
        if ordered and needs_order(args):
            raise UsageError("--stat=never: the sort order requires lookups")
        if args.skip_offline:
            raise UsageError("--stat=never cannot be combined with --skip-offline")


def _refuse_with_index(args: argparse.Namespace, parsed: ParsedExpression) -> None:
    """Raise UsageError for primaries that an index cannot answer, or that would have no effect."""
    from pcircle.tools.ffind.index_search import is_live

    if parsed.settings.follow != "P":
        raise UsageError(f"--in: -{parsed.settings.follow} requires the file system")
    nodes = [*walk(parsed.expression), *(() if parsed.exclude is None else walk(parsed.exclude))]
    for node in nodes:
        if is_live(node):
            said = "-delete" if node.name == "delete" else _said(args.words, node)
            raise UsageError(f"--in: {said} requires the file system")
    if args.filters:
        raise UsageError("--in cannot be combined with filters; see -exclude")
    for option in ("polite", "strict_operands", "skip_offline"):
        if getattr(args, option):
            raise UsageError(f"--in cannot be combined with --{option.replace('_', '-')}")


def needs_order(args: argparse.Namespace) -> bool:
    """Return whether the sort order needs more than names."""
    text = args.by or "size" if args.top is not None else args.sort
    return any(key.lstrip("-") not in ("path", "name", "ext", "depth") for key in text.split(","))


def _said(words: Sequence[str], node: ExpressionNode) -> str:
    return show(os.fsencode(words[node.at])) if node.count else "an action"


def program_of(args: argparse.Namespace) -> FindProgram | FindApplyProgram:
    """Return the program for a parsed command line. Raises UsageError."""
    if args.apply is not None:
        from pcircle.tools.ffind.apply import FindApplyProgram  # few runs carry out a plan

        return FindApplyProgram(args)
    listed = args.list_out is not None
    parsed = parse(args.words, args.tokens, listed=listed)
    if listed:
        silent = parsed.expression
        listing = ExpressionNode("and", (), (silent, ExpressionNode("listed")))
        parsed = ParsedExpression(
            listing,
            parsed.exclude,
            parsed.settings,
            parsed.files,
            parsed.starts_from,
            parsed.warnings,
        )
    return FindProgram(args, parsed)


def find_typed(args: argparse.Namespace) -> int:
    """Carry out a parsed command line and return the exit code. Raises UsageError."""
    return program_of(args).run()
