"""The grammar of expressions: tokens become a tree, with the same meaning as in GNU find.

Operators in order of increasing precedence are `,`, `-o`, `-a` or adjacency, and `!`. A final
-print is implied, unless an action such as -delete or -ls suppresses it.
"""

from __future__ import annotations

from collections.abc import Sequence

from pcircle.core.errors import UsageError
from pcircle.core.writing import CALLER
from pcircle.tools.ffind.language.nodes import ExpressionNode, ParsedExpression, all_of, names_of
from pcircle.tools.ffind.language.reader import ExpressionReader
from pcircle.tools.ffind.language.words import Token, is_setting, refused

_PRINT = ExpressionNode("print", (0,))
_PRINT0 = ExpressionNode("print0", (0,))  # for a program that splits the output
_SILENT = {  # actions that suppress the implicit -print
    "print", "print0", "printf", "ls", "delete", "exec", "execplus", "json", "csv", "count", "du",
    "exists",
}  # fmt: skip


def parse(
    words: Sequence[str], tokens: Sequence[Token], *, listed: bool = False
) -> ParsedExpression:
    """Parse the expression of a command line. Raise UsageError with the position underlined.

    If `listed` is set, matching entries are listed instead of printed by the implicit -print.
    """
    return _Parser(words, tokens).parsed(listed=listed)


class _Parser:
    """The parser of one expression."""

    def __init__(self, words: Sequence[str], tokens: Sequence[Token]) -> None:
        self._words = words
        self._tokens = tokens
        self._place = 0
        self._reader = ExpressionReader()
        self._exclude: list[ExpressionNode] = []
        self._depth = 0
        self._items: list[Token | ExpressionNode] = []

    def parsed(self, *, listed: bool) -> ParsedExpression:
        """Return the parsed expression; see `parse`."""
        for token in self._tokens:
            if token.is_operator:
                self._items.append(token)
                continue
            node = self._read(token)
            if not is_setting(token.name):
                self._items.append(node)
        expression = None if not self._items else self._comma()
        if self._place < len(self._items):
            raise self._wrong("too many ')'")
        if expression is None:
            expression = ExpressionNode("true")
        is_quiet = listed or names_of(expression) & _SILENT
        if not is_quiet:
            if "limit" in names_of(expression):
                raise self._refuse(
                    next(token for token in self._tokens if token.name == "limit"),
                    "-limit requires an action, for example -print -limit 10",
                )
            implied = _PRINT if CALLER.get() is None else _PRINT0
            expression = ExpressionNode("and", (), (expression, implied))
        self._check(expression)
        exclude = None if not self._exclude else ExpressionNode("or", (), tuple(self._exclude))
        reader = self._reader
        settings = reader.settings
        return ParsedExpression(
            expression,
            exclude,
            settings,
            tuple(reader.files),
            reader.starts_from,
            tuple(reader.warnings) if settings.warn else (),
        )

    def _check(self, expression: ExpressionNode) -> None:
        """Raise UsageError for expressions that do not do what they seem to do."""
        names = names_of(expression)
        if "delete" in names and "prune" in names and not self._reader.explicit_depth:
            token = next(candidate for candidate in self._tokens if candidate.name == "prune")
            text = "-prune has no effect with -depth, which -delete implies"
            raise self._refuse(token, f"{text}; if this is intended, add -depth")

    def _read(self, token: Token) -> ExpressionNode:
        try:
            return self._reader.read(token)
        except (ValueError, OverflowError) as error:
            raise self._refuse(token, str(error)) from None

    def _refuse(self, token: Token, text: str) -> UsageError:
        return refused(self._words, token.at, token.length, text)

    # ---- operators -------------------------------------------------------------

    def _next(self) -> str:
        """Return the next operator, `end` at the end, or an empty string for a primary."""
        if self._place >= len(self._items):
            return "end"
        item = self._items[self._place]
        return item.name if isinstance(item, Token) else ""

    def _comma(self) -> ExpressionNode:
        found = [self._or()]
        while self._next() == ",":
            self._place += 1
            found.append(self._or())
        return found[0] if len(found) == 1 else ExpressionNode("comma", (), tuple(found))

    def _or(self) -> ExpressionNode:
        found = [self._and()]
        while self._next() == "-o":
            self._place += 1
            found.append(self._and())
        return found[0] if len(found) == 1 else ExpressionNode("or", (), tuple(found))

    def _and(self) -> ExpressionNode:
        found = [self._factor()]
        while (next_ := self._next()) not in ("end", "-o", ",", ")"):
            self._place += next_ == "-a"
            found.append(self._factor())
        return all_of(tuple(found))

    def _factor(self) -> ExpressionNode:
        name = self._next()
        if name in ("end", ")", "-a", "-o", ","):
            raise self._wrong("expected an expression")
        item = self._items[self._place]
        self._place += 1
        if isinstance(item, ExpressionNode):
            return item
        if item.name == "(":
            self._depth += 1
            found = self._comma()
            if self._next() != ")":
                raise self._refuse(item, "missing ')'")
            self._place += 1
            self._depth -= 1
            return found
        if item.name == "!":
            self._depth += 1
            found = ExpressionNode("not", (), (self._factor(),))
            self._depth -= 1
            return found
        if self._depth:
            raise self._refuse(item, "-exclude cannot be used within an expression")
        self._exclude.append(self._factor())
        return ExpressionNode("true")

    def _wrong(self, text: str) -> UsageError:
        if self._place < len(self._items):
            item = self._items[self._place]
            return refused(self._words, item.at, 1, text)
        last = self._tokens[-1]
        return refused(self._words, last.at, last.length, f"{text} after '{self._words[last.at]}'")
