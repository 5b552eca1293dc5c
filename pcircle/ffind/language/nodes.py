"""The tree of an expression, as it travels to all ranks."""

# Annotations are evaluated here, once: otherwise msgspec compiles each of them in every rank.
from collections.abc import Iterator
from typing import Any

import msgspec


class Node(msgspec.Struct, frozen=True, array_like=True):
    """An operator (`and`, `or`, `not`, `comma`) with its operands, or a primary with its arguments,
    which are numbers, text and bytes.

    `at` and `count` say which words of the command line it is.
    """

    name: str
    args: tuple[Any, ...] = ()
    children: "tuple[Node, ...]" = ()
    at: int = 0
    count: int = 0


TRUE, FALSE = Node("true"), Node("false")


class Settings(msgspec.Struct, frozen=True):
    """What holds for the walk as a whole. `follow` is one of `P`, `H`, `L`."""

    follow: str = "P"
    depth: bool = False
    max_depth: int | None = None
    min_depth: int = 0
    one_file_system: bool = False
    warn: bool = True
    silent_race: bool = True


class Parsed(msgspec.Struct, frozen=True):
    """An expression. What `exclude` matches is neither evaluated nor entered.

    `files` are those that are written to, beginning with the second: the first is standard output.
    """

    expression: Node
    exclude: Node | None
    settings: Settings
    files: tuple[str, ...] = ()
    starts_from: str | None = None
    warnings: tuple[str, ...] = ()


def walk(node: Node) -> Iterator[Node]:
    """The node and all below it."""
    yield node
    for child in node.children:
        yield from walk(child)


def names_of(node: Node) -> set[str]:
    """The names of all nodes."""
    return {each.name for each in walk(node)}


def all_of(children: tuple[Node, ...]) -> Node:
    """Their conjunction."""
    return children[0] if len(children) == 1 else Node("and", (), children)
