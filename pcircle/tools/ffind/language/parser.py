"""Parses expressions: tokens become a tree, with the same meaning as in GNU find.

Operators in order of increasing precedence are `,`, `-o`, `-a` or adjacency, and `!`. A final
-print is implied, unless an action such as -delete or -ls suppresses it. The arguments of primaries
are parsed without resolving references to files.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from pcircle.core.encoding import show
from pcircle.core.errors import UsageError
from pcircle.core.units import DAY_S, is_whole, parse_size
from pcircle.core.writing import CALLER
from pcircle.fs.attributes.modes import parse_mode
from pcircle.tools.ffind.language import patterns
from pcircle.tools.ffind.language.formats import parse_format
from pcircle.tools.ffind.language.words import OPTIONS, Token, is_setting, refused
from pcircle.tools.ffind.plan import (
    ExpressionNode,
    ParsedExpression,
    Settings,
    all_of,
    names_of,
)

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
        self._reader = _PrimaryReader()
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
        return self._row(",", "comma", self._or)

    def _or(self) -> ExpressionNode:
        return self._row("-o", "or", self._and)

    def _row(
        self, operator: str, name: str, operand: Callable[[], ExpressionNode]
    ) -> ExpressionNode:
        """Parse operands that are separated by an operator."""
        found = [operand()]
        while self._next() == operator:
            self._place += 1
            found.append(operand())
        return found[0] if len(found) == 1 else ExpressionNode(name, (), tuple(found))

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


# ---- primaries -----------------------------------------------------------------------------------

KINDS = "bcdpfls"
UNITS = {"c": 1, "w": 2, "b": 512, "k": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
UNITS["P"] = 1 << 50
_MINUTE_S = 60
_LARGEST = (1 << 63) - 1
_MAX_NUMBER = (1 << 64) - 1
_SPACE = " \t\n\v\f\r"
_FLAGS = "sucSiadAEIjtDTVCxNPFX"
_STDOUT = "/dev/stdout"
_STDERR = "/dev/stderr"
STANDARD_ERROR = -1


class _PrimaryReader:
    """Reads the primaries of an expression in order, because some of them affect later ones."""

    def __init__(self) -> None:
        self.settings: Settings = Settings()
        self.files: list[str] = []
        self.warnings: list[str] = []
        self.starts_from: str | None = None
        self.explicit_depth: bool = False
        self._limits = 0
        self._from_midnight = False
        self._syntax = patterns.SYNTAXES[patterns.DEFAULT_SYNTAX]

    def read(self, token: Token) -> ExpressionNode:
        """Return the node of a primary. Raise ValueError if an argument is invalid."""
        name, args = token.name, token.arguments
        reader = _PrimaryReader._option if name.startswith("O") else _READERS.get(name)
        if reader is None and re.fullmatch("newer[aBcmt]{2}", name):
            reader = _PrimaryReader._newer_xy
        if reader is None:  # arguments that need no parsing
            found = ExpressionNode(name, tuple(map(os.fsencode, args)))
        else:
            found = reader(self, name, *args)
        return ExpressionNode(found.name, found.args, found.children, token.at, token.length)

    # ---- options ---------------------------------------------------------------

    def _option(self, name: str, *args: str) -> ExpressionNode:
        change = self._change_setting
        if name in ("H", "L", "P", "follow"):
            change(follow="L" if name == "follow" else name)
        elif name in ("d", "depth"):
            self.explicit_depth = True
            change(depth=True)
        elif name in ("mount", "xdev"):
            change(one_file_system=True)
        elif name in ("maxdepth", "mindepth"):
            if not (is_whole(args[0]) and len(args[0]) < 10):
                raise ValueError(f"-{name}: must be a number of levels")
            change(**{f"{name[:3]}_depth": int(args[0])})
        elif name in ("warn", "nowarn"):
            change(warn=name == "warn")
        elif name in ("ignore_readdir_race", "noignore_readdir_race"):
            change(silent_race=name == "ignore_readdir_race")
        elif name == "files0-from":
            self.starts_from = args[0]
        elif name == "daystart":
            self._from_midnight = True
        elif name == "regextype":
            if args[0] not in patterns.SYNTAXES:
                choices = ", ".join(sorted(patterns.SYNTAXES))
                raise ValueError(f"unknown regular expression type; choose from {choices}")
            self._syntax = patterns.SYNTAXES[args[0]]
        return ExpressionNode("true")

    def _change_setting(self, **fields: str | bool | int) -> None:
        self.settings = replace(self.settings, **fields)

    # ---- tests -----------------------------------------------------------------

    def _pattern(self, name: str, text: str) -> ExpressionNode:
        fold = name.startswith("i")
        kind = name.removeprefix("i")
        kind = "path" if kind == "wholename" else kind
        if kind == "name" and "/" in text.rstrip("/") and self.settings.warn:
            self.warnings.append(
                f"-{name} '{_shown(text)}' never matches, because names contain no slashes"
            )
        return ExpressionNode(kind, (os.fsencode(text), int(fold)))

    def _regex(self, name: str, text: str) -> ExpressionNode:
        # The expression is compiled here only to report errors early. Whether it matches characters
        # or bytes is known only when the job begins.
        translated = patterns.translated_regex(text, self._syntax)
        try:
            re.compile(translated)
        except (re.error, RecursionError) as error:
            raise ValueError(f"invalid regular expression: {error}") from None
        return ExpressionNode("regex", (os.fsencode(text), int(name.startswith("i")), self._syntax))

    def _time(self, name: str, text: str) -> ExpressionNode:
        compare, number = _compared(text)
        unit_s = DAY_S if name.endswith("time") else _MINUTE_S
        args = (name[0], compare, _ns(number, unit_s), unit_s, int(self._from_midnight))
        return ExpressionNode("time", args)

    def _used(self, name: str, text: str) -> ExpressionNode:
        compare, number = _compared(text)
        return ExpressionNode("used", (compare, _ns(number, DAY_S)))

    def _newer(self, name: str, text: str) -> ExpressionNode:
        field = {"anewer": "a", "cnewer": "c", "newer": "m"}[name]
        return ExpressionNode("newer_than_file", (field, "m", os.fsencode(text)))

    def _newer_xy(self, name: str, text: str) -> ExpressionNode:
        field, other = name[-2], name[-1]
        if field == "t":
            raise ValueError("'t' is not a file time")
        if other == "t":
            return ExpressionNode("newer_than_date", (field, os.fsencode(text)))
        return ExpressionNode("newer_than_file", (field, other, os.fsencode(text)))

    def _since(self, name: str, text: str) -> ExpressionNode:
        return ExpressionNode(f"{name}_moment", (os.fsencode(text),))

    def _number(self, name: str, text: str) -> ExpressionNode:
        return ExpressionNode(_kind_of_number(name), (name, *_numbered(text)))

    def _size(self, name: str, text: str) -> ExpressionNode:
        unit = UNITS.get(text[-1:])
        if unit is None and not text[-1:].isdecimal():
            units = ", ".join(UNITS)
            raise ValueError(f"-size: unknown unit in '{_shown(text)}'; choose from {units}")
        compare, number = _numbered(text[:-1] if unit else text)
        unit = unit or 512
        if compare == "-" and number == 1 and unit > 1:
            self.warnings.append(
                f"-size {_shown(text)} matches empty files only, as sizes are rounded up; "
                f"for smaller ones: -size -{unit}c"
            )
        return ExpressionNode("size", (compare, number, unit))

    def _bytes(self, name: str, text: str) -> ExpressionNode:
        compare, size = _compared(text)
        args = (name, compare, min(int(parse_size(size)), _LARGEST))
        return ExpressionNode(_kind_of_number(name), args)

    def _type(self, name: str, text: str) -> ExpressionNode:
        letters = text.split(",")
        for letter in letters:
            if len(letter) != 1 or letter not in KINDS:
                raise ValueError(f"-{name}: must be a comma-separated list of {', '.join(KINDS)}")
        if len(set(letters)) < len(letters):
            raise ValueError(f"-{name}: a type is given twice")
        return ExpressionNode(name, ("".join(letters),))

    def _permissions(self, name: str, text: str) -> ExpressionNode:
        kind = text[0] if text[:1] in ("-", "/") else "="
        mode = text[1:] if kind != "=" else text
        found = permissions(mode)
        if kind == "/" and found == (0, 0):
            kind = "-"
        return ExpressionNode("perm", (kind, *found))

    def _access(self, name: str) -> ExpressionNode:
        modes = {"readable": os.R_OK, "writable": os.W_OK, "executable": os.X_OK}
        return ExpressionNode("access", (modes[name],))

    def _flags(self, name: str, text: str) -> ExpressionNode:
        kind = text[0] if text[:1] in ("-", "/", "+") else "="
        letters = text[1:] if kind != "=" else text
        if not set(letters) <= set(_FLAGS):
            raise ValueError("-flags: unknown letter; the letters are those of chattr(1)")
        return ExpressionNode("flags", ("/" if kind == "+" else kind, letters))

    def _layout(self, name: str, text: str) -> ExpressionNode:
        if text != "released":
            raise ValueError("-layout: unknown kind; choose from released")
        return ExpressionNode("released")

    # ---- actions ---------------------------------------------------------------

    def _print(self, name: str, *args: str) -> ExpressionNode:
        """Return the node of a primary that prints; a name that begins with `f` names a file."""
        stream = 0
        remaining = args
        if name.startswith("f"):
            stream, remaining, name = self._stream(args[0]), args[1:], name[1:]
        if name == "printf":
            parse_format(os.fsencode(remaining[0]), self.warnings)
        return ExpressionNode(name, (stream, *map(os.fsencode, remaining)))

    def _stream(self, path: str) -> int:
        if path in (_STDOUT, _STDERR):
            return 0 if path == _STDOUT else STANDARD_ERROR
        if path not in self.files:
            self.files.append(path)
        return self.files.index(path) + 1

    def _command(self, name: str, *words: str) -> ExpressionNode:
        if name.startswith("ok"):
            instead = name.replace("ok", "exec")
            raise ValueError(f"-{name}: ffind never prompts; use -{instead}, or review with -print")
        *words_, end = words
        is_dir = name == "execdir"
        if is_dir:
            _refuse_commands_of_others()
        if end == "+" and sum("{}" in word for word in words_) > 1:
            raise ValueError(f"-{name} with '+' takes one {{}}")
        if end == "+":
            words_.pop()
            if not words_:
                raise ValueError(f"-{name} requires a command")
        kind = "execplus" if end == "+" else "exec"
        return ExpressionNode(kind, (int(is_dir), *map(os.fsencode, words_)))

    def _limit(self, name: str, text: str) -> ExpressionNode:
        if not (is_whole(text) and 0 < int(text) <= _LARGEST):
            raise ValueError("-limit: must be a positive integer")
        self._limits += 1
        return ExpressionNode("limit", (int(text), self._limits))

    def _delete(self, name: str) -> ExpressionNode:
        self._change_setting(depth=True)
        return ExpressionNode("delete")


def _refuse_commands_of_others() -> None:
    """Raise ValueError, as find does, if the variable PATH contains relative directories."""
    places = os.environ.get("PATH", os.defpath).split(":")
    relative = next((place for place in places if not place.startswith("/")), None)
    if relative is not None:
        shown = show(os.fsencode(relative))
        raise ValueError(
            f"-execdir: '{shown}' in PATH would run files from the searched directories; remove it"
        )


def permissions(text: str) -> tuple[int, int]:
    """Return the bits of a mode for files and directories. Raise ValueError if it is invalid."""
    if re.match(r"\+[0-7]", text):
        raise ValueError(
            f"-perm: invalid mode '{_shown(text)}'; to match any of the bits, write /{text[1:]}"
        )
    try:
        mode = parse_mode(text)
    except ValueError as error:
        raise ValueError(f"-perm: {error}") from None
    return mode.of(0, is_directory=False), mode.of(0, is_directory=True)


def _kind_of_number(name: str) -> str:
    return "layout_number" if name in _LAYOUT_NUMBERS else "number"


def _compared(text: str) -> tuple[str, str]:
    """Return the comparison operator and the remaining text."""
    return (text[0], text[1:]) if text[:1] in ("+", "-") else ("=", text)


def _numbered(text: str) -> tuple[str, int]:
    compare, digits = _compared(text)
    number = digits.lstrip(_SPACE)
    number = number[number.startswith("+") :]  # strtoumax also accepts a plus sign
    if not is_whole(number):
        raise ValueError(f"invalid number '{_shown(text)}'")
    if int(number) > _MAX_NUMBER:
        raise ValueError(f"'{_shown(text)}' is out of range")
    return compare, min(int(number), _LARGEST)


def _ns(text: str, unit_s: int) -> int:
    """Convert a number of units to nanoseconds."""
    try:
        is_plain = text.isascii() and "_" not in text and text == text.rstrip()
        number = _float(text) if is_plain else math.nan
    except ValueError:
        number = math.nan
    if math.isnan(number):
        raise ValueError(f"invalid number '{_shown(text)}'")
    whole = number * unit_s * 1e9
    return int(max(-_LARGEST, min(whole, _LARGEST)))


def _float(text: str) -> float:
    """Parse a number as strtod does. Raise ValueError if it is invalid."""
    unsigned = text.lstrip(_SPACE).lstrip("+-")
    return float.fromhex(text) if unsigned[:2] in ("0x", "0X") else float(text)


def _shown(text: str) -> str:
    return show(os.fsencode(text))


_LAYOUT_NUMBERS = ("stripe-count", "stripe-size", "ost", "mdt")
_OPTIONS = (*OPTIONS, "daystart")
_PATTERNS = ("name", "iname", "path", "ipath", "wholename", "iwholename", "lname", "ilname")
_WRITING = (
    "print", "print0", "printf", "ls", "fprint", "fprint0", "fprintf", "fls", "json", "csv",
)  # fmt: skip
_READERS: dict[str, Callable[..., ExpressionNode]] = {
    **dict.fromkeys(_OPTIONS, _PrimaryReader._option),
    **dict.fromkeys(_PATTERNS, _PrimaryReader._pattern),
    **dict.fromkeys(("regex", "iregex"), _PrimaryReader._regex),
    **dict.fromkeys(("atime", "ctime", "mtime", "amin", "cmin", "mmin"), _PrimaryReader._time),
    **dict.fromkeys(("newer", "anewer", "cnewer"), _PrimaryReader._newer),
    **dict.fromkeys(("since", "until"), _PrimaryReader._since),
    **dict.fromkeys(("inum", "links", "uid", "gid", "blocks"), _PrimaryReader._number),
    **dict.fromkeys(("stripe-count", "ost", "mdt"), _PrimaryReader._number),
    **dict.fromkeys(("type", "xtype"), _PrimaryReader._type),
    **dict.fromkeys(("readable", "writable", "executable"), _PrimaryReader._access),
    **dict.fromkeys(_WRITING, _PrimaryReader._print),
    **dict.fromkeys(("exec", "execdir", "ok", "okdir"), _PrimaryReader._command),
    "used": _PrimaryReader._used,
    "size": _PrimaryReader._size,
    "bytes": _PrimaryReader._bytes,
    "stripe-size": _PrimaryReader._bytes,
    "perm": _PrimaryReader._permissions,
    "flags": _PrimaryReader._flags,
    "layout": _PrimaryReader._layout,
    "limit": _PrimaryReader._limit,
    "delete": _PrimaryReader._delete,
}
