"""The program of a search: interprets the command line and runs the search."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from pcircle.cli.change_program import refuse_twice
from pcircle.cli.output import MessageStream
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
from pcircle.tools.ffind.language.nodes import ExpressionNode, ParsedExpression, names_of, walk
from pcircle.tools.ffind.language.parser import parse
from pcircle.tools.ffind.options import OF_NAMES, FindOptions
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
        self.ends = None
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
        resolver = Resolver(self.options.words, parsed.settings.follow, now)
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


def _is_terminal() -> bool:
    return MessageStream(standard_output()).isatty()


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
    return FindProgram(options, parsed, paths)


def find_typed(args: argparse.Namespace) -> int:
    """Run a parsed command line and return the exit code; raise UsageError if it is invalid."""
    return program_of(args).run()
