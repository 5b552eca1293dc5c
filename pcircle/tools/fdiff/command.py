"""The program of fdiff: interprets the options and runs the comparison."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from pcircle.cli.arguments import require_operands
from pcircle.cli.inputs import lists_of
from pcircle.cli.listing import cell_width
from pcircle.cli.output import terminal_of
from pcircle.cli.results import open_output
from pcircle.core.encoding import show
from pcircle.core.errors import UsageError
from pcircle.core.writing import standard_error, standard_output
from pcircle.fs.lists import Lists
from pcircle.jobs.action_log import ActionOutput
from pcircle.jobs.failures import LogFile, open_log
from pcircle.jobs.tree_task import resolve
from pcircle.ops.compare.fields import (
    CONTENT,
    DEFAULT,
    NAMES,
    QUICK,
    RDEV,
    TARGET,
    field_names,
    parse_fields,
)
from pcircle.ops.compare.manifests import KNOWN, open_verified
from pcircle.ops.digest.manifest import is_manifest
from pcircle.runtime import Observer
from pcircle.tools.fdiff import reporter
from pcircle.tools.fdiff.console import ComparisonProgram, DiffConsole
from pcircle.tools.fdiff.options import DiffOptions
from pcircle.tools.fdiff.plan import DiffPlan, Labels
from pcircle.tools.fdiff.work.task import DiffTask
from pcircle.walk.roots import Root

if TYPE_CHECKING:
    from pcircle.ops.digest.manifest import Manifest
    from pcircle.runtime.task import TimeLimit
    from pcircle.tools.fdiff.reporter import Expression

_MAX_LABEL_CELLS = 16


class DiffProgram(ComparisonProgram):
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
        self._fields = _fields(self.options) | reporter.fields_in(self._expressions)
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


def _output(text: str) -> tuple[reporter.Expression, str]:
    expression, colon, name = text.partition(":")
    if not colon or not name:
        raise UsageError(f"--output: invalid value '{show(os.fsencode(text))}': must be EXPR:FILE")
    return reporter.parse(expression), name


def compare_typed(args: argparse.Namespace) -> int:
    """Run fdiff with parsed arguments and return the exit code.

    Raise UsageError if an option is invalid.
    """
    return DiffProgram(args).run()
