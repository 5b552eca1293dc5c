"""The tree of an expression, in the form that is sent to all ranks."""

# This module does not postpone the evaluation of annotations, because msgspec would then compile
# each of them on every rank.
from collections.abc import Callable, Iterator
from typing import Any

import msgspec


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


def compared(compare: str, limit: int) -> Callable[[int], bool]:
    """Return a comparison with a number: greater (`+`), less (`-`) or equal."""
    if compare == "+":
        return lambda number: number > limit
    if compare == "-":
        return lambda number: number < limit
    return lambda number: number == limit
