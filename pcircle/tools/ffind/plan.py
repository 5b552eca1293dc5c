"""The plan of a search, made on rank 0, with the tree of its expression, and the counters."""

# This module does not postpone the evaluation of annotations, because msgspec would then compile
# each of them on every rank.
from collections.abc import Iterator
from typing import Any

import msgspec

from pcircle.jobs.change_task import ChangeCounters, ChangePlan


class ExpressionNode(msgspec.Struct, frozen=True, array_like=True):
    """An operator with its operands, or a primary with its arguments.

    Operators are `and`, `or`, `not` and `comma`. Arguments are numbers, text and bytes. `at` and
    `count` are its position and length on the command line, in words.
    """

    name: str
    args: tuple[Any, ...] = ()
    children: "tuple[ExpressionNode, ...]" = ()
    at: int = 0
    count: int = 0


TRUE, FALSE = ExpressionNode("true"), ExpressionNode("false")


class Settings(msgspec.Struct, frozen=True):
    """Settings of the whole walk. `follow` is `P`, `H` or `L`."""

    follow: str = "P"
    depth: bool = False
    max_depth: int | None = None
    min_depth: int = 0
    one_file_system: bool = False
    warn: bool = True
    silent_race: bool = True


class ParsedExpression(msgspec.Struct, frozen=True):
    """A parsed expression. Entries that match `exclude` are neither evaluated nor entered.

    `files` lists the output files, numbered from 1; stream 0 is standard output.
    """

    expression: ExpressionNode
    exclude: ExpressionNode | None
    settings: Settings
    files: tuple[str, ...] = ()
    starts_from: str | None = None
    warnings: tuple[str, ...] = ()


def walk(node: ExpressionNode) -> Iterator[ExpressionNode]:
    """Yield the node and all nodes below it."""
    yield node
    for child in node.children:
        yield from walk(child)


def names_of(node: ExpressionNode) -> set[str]:
    """Return the names of all nodes."""
    return {inner.name for inner in walk(node)}


def all_of(children: tuple[ExpressionNode, ...]) -> ExpressionNode:
    """Return the conjunction of nodes."""
    return children[0] if len(children) == 1 else ExpressionNode("and", (), children)


# ---- plan and counters ---------------------------------------------------------------------------


class Sections(msgspec.Struct, frozen=True, array_like=True, tag="r"):
    """Search the sections of an index between two offsets for entries below a PATH."""

    start: int
    begin: int
    end: int
    weight: float


class IndexPath(msgspec.Struct, frozen=True, array_like=True):
    """A PATH in an index: the directory `path` below a root, or a `name` in it."""

    root: int
    path: bytes
    name: bytes = b""


class SearchedIndex(msgspec.Struct, frozen=True):
    """The index to search instead of the file system, identified by its path and digest."""

    path: bytes
    digest: bytes
    starts: tuple[IndexPath, ...]
    portions: tuple[Sections, ...]


class Order(msgspec.Struct, frozen=True, array_like=True):
    """The sort fields; a leading `-` means descending order, and `top` limits the output."""

    fields: tuple[str, ...]
    top: int | None = None


class FindPlan(ChangePlan, frozen=True, kw_only=True):
    """The plan of a search, with the files, users and dates of the expression resolved.

    `exclude` is as in `ParsedExpression`, `wide` as in `EvaluationContext`, and `quoted` as in
    `FindActions`. `midnight_ns` is the start of today. If `alone` is set, one thread of rank 0
    evaluates all entries in order. If `removes` is set, entries may be removed, and if `runs` is
    set, commands are run. `around_plan` contains the device and inode of each directory above the
    plan file; these directories must not be removed. If `index` is given, an index is searched
    instead of a tree.
    """

    expression: ExpressionNode
    exclude: ExpressionNode | None = None
    settings: Settings = Settings()
    midnight_ns: int = 0
    wide: bool = False
    quoted: bool = False
    order: Order | None = None
    alone: bool = False
    removes: bool = False
    runs: bool = False
    around_plan: tuple[tuple[int, int], ...] = ()
    index: SearchedIndex | None = None


class FindCounters(ChangeCounters):
    """The counters of a search.

    `matched` counts the entries of -count and -exists, and `blocks` the blocks of -du. `deleted`
    counts the entries that -delete removed or, in a dry run, would remove. `vanished` counts
    entries that vanished before they were looked up. `complaints` counts errors on directories;
    another counter includes these directories. `commands_failed` counts the threads on which an
    ``-exec … +`` command failed. `kept` counts entries that were found after the end of the search.
    """

    matched: int
    blocks: int
    deleted: int
    vanished: int
    commands_failed: int
    complaints: int

    @property
    def settled(self) -> int:
        return self.completed + self.failed + self.kept + self.vanished

    @property
    def troubles(self) -> int:
        return self.failed + self.complaints + self.commands_failed
