"""Compiles an expression into functions, one for each kind of entry, once per thread of a rank.

First, tests with the same result for all entries of a kind are replaced by constants, such as
`-type f` for regular files. Adjacent tests are sorted by cost, but actions keep their positions.
The value of the whole expression is unused, so leading tests of names become *filters*. Filters
select from all names of a directory at once, and the excluded names never become entries. If only
-print remains, the paths are also formatted at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec.structs import replace

from pcircle.tools.ffind.eval.bulk import Choose, chosen_by_column
from pcircle.tools.ffind.eval.checks import (
    COSTS,
    EvaluationContext,
    cheapest_first,
    checked,
    name_test,
    pattern_match,
)
from pcircle.tools.ffind.eval.entry import Test
from pcircle.tools.ffind.language.formats import parse_format
from pcircle.tools.ffind.plan import FALSE, TRUE, ExpressionNode, all_of, walk

if TYPE_CHECKING:
    from pcircle.tools.ffind.eval.bulk import BulkFormat
    from pcircle.tools.ffind.eval.entry import FindEntry

Filter = Callable[[list[bytes], bytes], list[bytes]]
"""A function from names, and the path before them, to the names that pass."""

_LISTED_KINDS = "fdl"  # kinds that a directory listing identifies
_ACTIONS = frozenset(
    (
        "print", "print0", "printf", "ls", "json", "csv", "delete", "prune", "quit", "limit",
        "exec", "execplus", "count", "du", "exists", "listed",
    )
)  # fmt: skip
_HEAVY_ACTIONS = frozenset(("ls", "json", "csv", "delete", "exec", "execplus", "du"))
_LIGHT_LETTERS = frozenset("pPfhHdy")


class ActionCompiler(Protocol):
    """Compiles actions into functions."""

    quoted: bool

    def action(self, node: ExpressionNode) -> Test: ...
    def bulk(self, node: ExpressionNode) -> BulkFormat | None: ...


def _pass(entry: FindEntry) -> bool:
    return True


class CompiledExpression(msgspec.Struct, frozen=True):
    """The work for entries of one kind.

    Names that pass the `filters`, and then the `columns` of their status, are passed to `test`.
    Alternatively, they are printed with the terminator `end`, counted if `counts` is set, or
    formatted at once by `bulk`. If none of these fields is set, nothing is done. If `heavy` is set,
    the expression needs at least a look-up. If `looks` is set, `test` looks up every entry. Names
    whose look-up failed are passed to `slow` after the filters.
    """

    filters: Sequence[Filter] = ()
    columns: Sequence[Choose] = ()
    test: Test | None = None
    end: bytes | None = None
    counts: bool = False
    heavy: bool = False
    slow: Test = _pass
    looks: bool = False
    bulk: BulkFormat | None = None

    @property
    def by_columns(self) -> bool:
        """Return whether names are looked up as columns."""
        return bool(self.columns) or (self.bulk is not None and self.bulk.looks)


def compiled(
    node: ExpressionNode,
    kind: str,
    context: EvaluationContext,
    actions: ActionCompiler,
    *,
    in_bulk: bool,
    prunes: bool,
    looked_up: str = "fl",
) -> CompiledExpression:
    """Compile the expression for entries of a kind, a letter of `-type`.

    If `in_bulk` is set, filters and simple actions apply to all names at once. The kinds in
    `looked_up` may also be tested by columns. If `prunes` is set, -prune has an effect.
    """
    node = _ordered(_folded(node, kind, prunes=prunes))
    filters, remaining = _split(node, context) if in_bulk else ([], node)
    is_heavy = heavy(remaining)
    # A heavy expression without effect is still evaluated, because failed look-ups are reported.
    if not is_heavy and not any(primary.name in _ACTIONS for primary in walk(remaining)):
        return CompiledExpression()
    whole = function(remaining, context, actions)
    has_columns = in_bulk and kind and kind in looked_up and context.follow != "L"
    columns, remaining = _by_columns(remaining, kind, context) if has_columns else ([], remaining)
    found = CompiledExpression(filters, columns, heavy=is_heavy, slow=whole)
    is_print = remaining.name in ("print", "print0") and remaining.args[0] == 0
    if in_bulk and is_print and not actions.quoted:
        return replace(found, end=b"\n" if remaining.name == "print" else b"\0")
    if in_bulk and remaining.name == "count":
        return replace(found, counts=True)
    if has_columns:
        bulk = actions.bulk(remaining)
        if bulk is not None:
            return replace(found, bulk=bulk)
    return replace(found, test=function(remaining, context, actions), looks=_looks(remaining))


def _looks(node: ExpressionNode) -> bool:
    """Return whether the first test, which every entry reaches, needs a look-up."""
    while node.children:
        node = node.children[0]
    return needs_status(node)


def _by_columns(
    node: ExpressionNode, kind: str, context: EvaluationContext
) -> tuple[list[Choose], ExpressionNode]:
    """Split off leading tests of columns; return them and the remaining node."""
    found: list[Choose] = []
    if node.name != "and":
        return found, node
    for place, child in enumerate(node.children):
        choose = chosen_by_column(child, kind, context)
        if choose is None:
            return found, all_of(node.children[place:])
        found.append(choose)
    return found, TRUE


def heavy(node: ExpressionNode) -> bool:
    """Return whether a node needs look-ups, or more expensive operations."""
    return any(map(_is_heavy, walk(node)))


def _is_heavy(node: ExpressionNode) -> bool:
    if node.children:
        return False
    if node.name == "printf":
        return needs_status(node)
    if node.name in _ACTIONS:
        return node.name in _HEAVY_ACTIONS
    return COSTS.get(node.name, 3) > 1


def needs_status(node: ExpressionNode) -> bool:
    """Return whether a primary needs more than the directory entry."""
    if node.name == "printf":
        pieces, _ = parse_format(bytes(node.args[1]), [])
        letters = {piece.letter for piece in pieces if piece.letter}
        return not letters <= _LIGHT_LETTERS
    if node.name in _ACTIONS:
        return node.name in ("ls", "json", "csv", "du")
    return COSTS.get(node.name, 3) > 1 and not node.children


def tests_access_time(node: ExpressionNode, kind: str) -> bool:
    """Return whether the result of an expression for a kind depends on access times."""
    return any(
        primary.name == "used" or (primary.name in ("time", "newer") and primary.args[0] == "a")
        for primary in _deciding(_folded(node, kind, prunes=True))
    )


def reads_links(node: ExpressionNode) -> bool:
    """Return whether a test of an expression may read or follow links."""
    return any(
        not primary.children and primary.name not in (*COSTS, *_ACTIONS, "empty")
        for primary in walk(_folded(node, "l", prunes=True))
    )


def _deciding(node: ExpressionNode) -> Iterator[ExpressionNode]:
    """Yield the node and all nodes below it, except conjunctions that are always false."""
    if node.name == "and" and FALSE in node.children and not _acts(node):
        return
    yield node
    for child in node.children:
        yield from _deciding(child)


# ---- constant folding --------------------------------------------------------------


def _folded(node: ExpressionNode, kind: str, *, prunes: bool) -> ExpressionNode:
    """Return the expression simplified for entries of a kind."""
    if node.name == "not":
        inner = _folded(node.children[0], kind, prunes=prunes)
        if inner in (TRUE, FALSE):
            return FALSE if inner == TRUE else TRUE
        return ExpressionNode("not", (), (inner,))
    if node.name in ("and", "or"):
        return _folded_row(node, kind, prunes=prunes)
    if node.name == "comma":
        *before, last = (_folded(child, kind, prunes=prunes) for child in node.children)
        operands = [child for child in before if child not in (TRUE, FALSE)]
        return last if not operands else ExpressionNode("comma", (), (*operands, last))
    return _known(node, kind, prunes=prunes)


def _folded_row(node: ExpressionNode, kind: str, *, prunes: bool) -> ExpressionNode:
    """Simplify `and` and `or`: a deciding constant ends the row; other constants are removed."""
    neutral, final = (TRUE, FALSE) if node.name == "and" else (FALSE, TRUE)
    operands: list[ExpressionNode] = []
    for child in node.children:
        found = _folded(child, kind, prunes=prunes)
        if found.name == node.name:
            operands += found.children
        elif found == final:
            operands.append(found)
            break
        elif found != neutral:
            operands.append(found)
    if not operands:
        return neutral
    if operands[-1] == final and not any(
        heavy(operand) or _acts(operand) for operand in operands[:-1]
    ):
        return final
    return operands[0] if len(operands) == 1 else ExpressionNode(node.name, (), tuple(operands))


def _acts(node: ExpressionNode) -> bool:
    return any(primary.name in _ACTIONS for primary in walk(node))


def _known(node: ExpressionNode, kind: str, *, prunes: bool) -> ExpressionNode:
    """Return a primary, or its value if it is constant for all entries of a kind."""
    name = node.name
    if name in ("true", "false"):
        return TRUE if name == "true" else FALSE
    if name == "prune" and (not prunes or (kind and kind != "d")):
        return TRUE
    if name == "type":
        letters = str(node.args[0])
        if kind:
            return TRUE if kind in letters else FALSE
        return FALSE if set(letters) <= set(_LISTED_KINDS) else node
    if kind and name == "lname" and kind != "l":
        return FALSE
    if name == "empty" and kind == "l":
        return FALSE
    return node


# ---- order, and filters ------------------------------------------------------------


def _ordered(node: ExpressionNode) -> ExpressionNode:
    """Sort adjacent tests by cost, never across an action."""
    if not node.children:
        return node
    children = [_ordered(child) for child in node.children]
    if node.name not in ("and", "or"):
        return ExpressionNode(node.name, node.args, tuple(children))
    done: list[ExpressionNode] = []
    run: list[ExpressionNode] = []
    for child in children:
        if _acts(child) or child in (TRUE, FALSE):
            done += [*cheapest_first(run), child]
            run = []
        else:
            run.append(child)
    return ExpressionNode(node.name, node.args, (*done, *cheapest_first(run)))


def _split(node: ExpressionNode, context: EvaluationContext) -> tuple[list[Filter], ExpressionNode]:
    """Split off leading tests of names as filters; return them and the remaining node."""
    if node.name == "or":
        # The value of the whole expression is unused, so the last operand is evaluated if no
        # leading operand is true.
        leading = node.children[:-1]
        if all(map(_is_of_names, leading)):
            filters = [_filter(operand, context, outcome=False) for operand in leading]
            more, remaining = _split(node.children[-1], context)
            return [*filters, *more], remaining
        return [], node
    if node.name != "and":
        if _is_of_names(node):
            return [], TRUE
        return [], node
    filters = []
    for place, child in enumerate(node.children):
        if not _is_of_names(child):
            if place + 1 < len(node.children):
                return filters, ExpressionNode("and", (), node.children[place:])
            more, last = _split(child, context)
            return [*filters, *more], last
        filters.append(_filter(child, context, outcome=True))
    return [], TRUE


def _is_of_names(node: ExpressionNode) -> bool:
    """Return whether a node depends only on names."""
    if node.children:
        return node.name in ("and", "or", "not") and all(map(_is_of_names, node.children))
    return node.name in ("name", "path", "regex")


def _filter(node: ExpressionNode, context: EvaluationContext, *, outcome: bool) -> Filter:
    if node.name == "not":
        return _filter(node.children[0], context, outcome=not outcome)
    if node.name == "name":
        match = pattern_match(context, *node.args)
        if outcome:
            return lambda names, prefix: [name for name in names if match(name)]
        return lambda names, prefix: [name for name in names if not match(name)]
    test = _of_names(node, context)
    if outcome:
        return lambda names, prefix: [name for name in names if test(name, prefix)]
    return lambda names, prefix: [name for name in names if not test(name, prefix)]


def _of_names(node: ExpressionNode, context: EvaluationContext) -> Callable[[bytes, bytes], object]:
    """Return a function for an expression that tests only names."""
    if node.name == "not":
        inner = _of_names(node.children[0], context)
        return lambda name, prefix: not inner(name, prefix)
    if node.children:
        tests = [_of_names(child, context) for child in node.children]
        decide = all if node.name == "and" else any
        return lambda name, prefix: decide(test(name, prefix) for test in tests)
    return name_test(node, context)


# ---- functions ---------------------------------------------------------------------


def function(node: ExpressionNode, context: EvaluationContext, actions: ActionCompiler) -> Test:
    """Return the expression as a function of an entry."""
    if node.children:
        tests = [function(child, context, actions) for child in node.children]
        return _joined(node.name, tests)
    if node.name in _ACTIONS:
        return actions.action(node)
    return checked(node, context)


def _joined(name: str, tests: list[Test]) -> Test:
    first = tests[0]
    if name == "not":
        return lambda entry: not first(entry)
    if len(tests) == 2:
        second = tests[1]
        if name == "and":
            return lambda entry: first(entry) and second(entry)
        if name == "or":
            return lambda entry: first(entry) or second(entry)
    if name == "and":
        return lambda entry: all(test(entry) for test in tests)
    if name == "or":
        return lambda entry: any(test(entry) for test in tests)
    *before, last = tests

    def comma(entry: FindEntry) -> object:
        for test in before:
            test(entry)
        return last(entry)

    return comma
