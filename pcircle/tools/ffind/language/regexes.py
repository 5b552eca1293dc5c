"""Translates regular expressions from the many syntaxes of the GNU library to Python's.

A syntax is a set of bits with the meanings defined in `regex.h` and its manual. The whole path must
match, so it does not matter that Python takes the first alternative instead of the longest.
"""

from __future__ import annotations

import re

from pcircle.tools.ffind.language.patterns import CLASSES

(
    LIST_ESCAPES,
    BACKSLASHED_PLUS,
    HAS_CLASSES,
    ANCHORS_ANYWHERE,
    OPS_ANYWHERE,
    OPS_NEED_AN_ITEM,
    DOT_NEWLINE,
    INTERVALS,
    LIMITED,
    NEWLINE_IS_OR,
    BARE_BRACES,
    BARE_PARENS,
    NO_BACKREFS,
    BARE_OR,
    NO_EMPTY_RANGES,
    LONE_PAREN,
    NO_GNU,
    ODD_INTERVALS,
    NO_DOUBLE,
) = (1 << bit for bit in range(19))

_COMMON = HAS_CLASSES | DOT_NEWLINE | INTERVALS | NO_EMPTY_RANGES
_BASIC = _COMMON | BACKSLASHED_PLUS | NO_DOUBLE
_EXTENDED = (
    _COMMON
    | ANCHORS_ANYWHERE
    | OPS_ANYWHERE
    | BARE_BRACES
    | BARE_PARENS
    | BARE_OR
    | OPS_NEED_AN_ITEM
    | LONE_PAREN
)
_EGREP = (_EXTENDED | ODD_INTERVALS | NEWLINE_IS_OR) & ~OPS_NEED_AN_ITEM
SYNTAXES = {
    "findutils-default": DOT_NEWLINE,
    "ed": _BASIC,
    "emacs": 0,
    "gnu-awk": (_EXTENDED | LIST_ESCAPES | ODD_INTERVALS) & ~(OPS_ANYWHERE | OPS_NEED_AN_ITEM),
    "grep": (_BASIC | NEWLINE_IS_OR) & ~NO_DOUBLE,
    "posix-awk": _EXTENDED | LIST_ESCAPES | INTERVALS | NO_GNU | ODD_INTERVALS,
    "awk": (
        LIST_ESCAPES
        | BARE_PARENS
        | NO_BACKREFS
        | BARE_OR
        | NO_EMPTY_RANGES
        | DOT_NEWLINE
        | ANCHORS_ANYWHERE
        | HAS_CLASSES
        | LONE_PAREN
        | NO_GNU
    ),
    "posix-basic": _BASIC,
    "posix-egrep": _EGREP,
    "egrep": _EGREP,
    "posix-extended": _EXTENDED,
    "posix-minimal-basic": _COMMON | LIMITED,
    "sed": _BASIC,
}
DEFAULT = "emacs"
_MAX_REPEATS = 0x7FFF
_WORDS = {
    "<": r"\b(?=\w)",
    ">": r"\b(?<=\w)",
    "b": r"\b",
    "B": r"\B",
    "`": r"\A",
    "'": r"\Z",
}
_SETS = {"w": r"\w", "W": r"\W", "s": r"\s", "S": r"\S"}
_REPEATS = ("*", "+", "?", "{")


def translated(pattern: str, syntax: int) -> str:
    """Return the expression in Python's syntax. Raise ValueError if it is invalid."""
    return _Translator(pattern, syntax).whole()


class _Translator:
    """The translator of one expression. A token is a pair of kind and text."""

    def __init__(self, pattern: str, syntax: int) -> None:
        self._text = pattern
        self._syntax = syntax
        self._at = 0  # the position after the token
        self._groups = 0
        self._closed: set[int] = set()
        self._next(anchors=True)

    def _has(self, bit: int) -> bool:
        return bool(self._syntax & bit)

    # ---- tokens ----------------------------------------------------------------

    def _next(self, *, anchors: bool = False) -> None:
        self._began = self._at
        self._kind, self._value, self._at = self._peek(self._at, anchors=anchors)

    def _peek(self, at: int, *, anchors: bool = False) -> tuple[str, str, int]:
        text = self._text
        if at >= len(text):
            return "end", "", at
        letter = text[at]
        if letter == "\\":
            if at + 1 >= len(text):
                return "slash", letter, at + 1
            return self._escaped(text[at + 1]), text[at + 1], at + 2
        if letter == "^":
            is_anchor = anchors or self._has(ANCHORS_ANYWHERE) or at == 0
            after_newline = self._has(NEWLINE_IS_OR) and at > 0 and text[at - 1] == "\n"
            return "anchor" if is_anchor or after_newline else "char", letter, at + 1
        if letter == "$":
            is_anchor = self._has(ANCHORS_ANYWHERE) or at + 1 == len(text)
            is_anchor = is_anchor or self._peek(at + 1)[0] in ("|", ")")
            return "anchor" if is_anchor else "char", letter, at + 1
        return self._bare(letter), letter, at + 1

    def _escaped(self, letter: str) -> str:
        """Return the token of a letter after a backslash."""
        has = self._has
        if letter == "|" and not (has(LIMITED) or has(BARE_OR)):
            return "|"
        if letter in "123456789" and not has(NO_BACKREFS):
            return "backref"
        if letter in _WORDS and not has(NO_GNU):
            return "word"
        if letter in _SETS and not has(NO_GNU):
            return "set"
        is_operator = letter in "()" and not has(BARE_PARENS)
        is_operator |= letter in "+?" and has(BACKSLASHED_PLUS) and not has(LIMITED)
        is_operator |= letter in "{}" and has(INTERVALS) and not has(BARE_BRACES)
        return letter if is_operator else "char"

    def _bare(self, letter: str) -> str:
        """Return the token of a single letter."""
        has = self._has
        if letter == "\n" and has(NEWLINE_IS_OR):
            return "|"
        is_operator = letter in "*.["
        is_operator |= letter == "|" and has(BARE_OR) and not has(LIMITED)
        is_operator |= letter in "+?" and not (has(LIMITED) or has(BACKSLASHED_PLUS))
        is_operator |= letter in "{}" and has(INTERVALS) and has(BARE_BRACES)
        is_operator |= letter in "()" and has(BARE_PARENS)
        return letter if is_operator else "char"

    # ---- grammar ---------------------------------------------------------------

    def whole(self) -> str:
        """Translate the whole expression."""
        found = self._alternatives(nested=False)
        if self._kind != "end":
            raise ValueError("Unmatched ) or \\)")
        return found

    def _alternatives(self, *, nested: bool) -> str:
        branches = [self._branch(nested=nested)]
        while self._kind == "|":
            self._next(anchors=True)
            branches.append(self._branch(nested=nested))
        return "|".join(branches)

    def _branch(self, *, nested: bool) -> str:
        parts = []
        while self._kind not in ("|", "end") and not (nested and self._kind == ")"):
            parts.append(self._item())
        return "".join(parts)

    def _item(self) -> str:
        kind, value = self._kind, self._value
        if kind in _REPEATS:
            if kind == "{" and self._has(NO_DOUBLE):
                raise ValueError("Invalid preceding regular expression")
            if self._has(OPS_NEED_AN_ITEM) and not self._has(NO_DOUBLE):
                raise ValueError("Invalid preceding regular expression")
            if self._has(OPS_ANYWHERE):
                self._next()
                at_end = self._kind in ("|", "end", ")")
                return "" if at_end else self._item()
        if kind in ("anchor", "word"):
            # An anchor cannot be repeated: an operator after it is not a repetition.
            self._next()
            return value if kind == "anchor" else _WORDS[value]
        if kind == ")" and not self._has(LONE_PAREN):
            raise ValueError("Unmatched ) or \\)")
        if kind == "slash":
            raise ValueError("Trailing backslash")
        return self._repeated(self._atom(kind, value))

    def _atom(self, kind: str, value: str) -> str:
        if kind == "(":
            self._next(anchors=True)
            self._groups += 1
            number = self._groups
            inner = "" if self._kind == ")" else self._alternatives(nested=True)
            if self._kind != ")":
                raise ValueError("Unmatched ( or \\(")
            self._closed.add(number)
            found = f"({inner})"
        elif kind == "[":
            found, self._at = bracket(self._text, self._at, self._syntax)
        elif kind == "backref":
            if int(value) not in self._closed:
                raise ValueError("Invalid back reference")
            found = f"(?:\\{value})"
        elif kind == ".":
            found = "(?s:.)" if self._has(DOT_NEWLINE) else "[^\\n]"
        elif kind == "set":
            found = _SETS[value]
        else:
            found = re.escape(value)
        self._next()
        return found

    def _repeated(self, item: str) -> str:
        while self._kind in _REPEATS:
            if self._kind == "{":
                count = self._interval()
                if count is None:
                    return item  # the brace is a literal, read as the next item
            else:
                count = self._kind
            self._next()
            item = f"(?:{item}){count}"
            if self._has(NO_DOUBLE) and self._kind in ("*", "{"):
                raise ValueError("Invalid preceding regular expression")
        return item

    def _interval(self) -> str | None:
        """Return a repetition count, or None if it is not valid."""
        began, value, at = self._began, self._value, self._at
        close = "}" if self._has(BARE_BRACES) else r"\\}"
        found = re.compile(rf"(\d*)(?:(,)(\d*))?{close}").match(self._text, at)
        if found is None or not (found[1] or found[2]):
            if not self._has(ODD_INTERVALS):
                raise ValueError("Invalid content of \\{\\}")
            if found is not None:
                raise ValueError("Invalid preceding regular expression")
            self._kind, self._value, self._began, self._at = "char", value, began, at
            return None
        low = int(found[1] or 0)
        high = low if not found[2] else int(found[3]) if found[3] else None
        if high is not None and low > high:
            raise ValueError("Invalid content of \\{\\}")
        if max(low, high or 0) > _MAX_REPEATS:
            raise ValueError("Regular expression too big")
        self._at = found.end()
        return f"{{{low},{'' if high is None else high}}}"


def bracket(text: str, at: int, syntax: int) -> tuple[str, int]:
    """Return the set that follows a bracket, and its end. Raise ValueError if it is invalid."""
    negated = text[at : at + 1] == "^"
    at += negated
    members: list[str] = []
    first = True
    while True:
        if at >= len(text):
            raise ValueError("Unmatched [, [^, [:, [., or [=")
        if text[at] == "]" and not first:
            break
        if text.startswith("[:", at) and syntax & HAS_CLASSES:
            end = text.find(":]", at + 2)
            if end < 0 or text[at + 2 : end] not in CLASSES:
                raise ValueError("Invalid character class name")
            members.append(CLASSES[text[at + 2 : end]])
            at, first = end + 2, False
            continue
        low, at = _member(text, at, syntax, hyphen=first)
        first = False
        if text[at : at + 1] == "-" and text[at + 1 : at + 2] not in ("", "]"):
            high, at = _member(text, at + 1, syntax, hyphen=True)
            if low <= high:
                members.append(f"{_quoted(low)}-{_quoted(high)}")
            elif syntax & NO_EMPTY_RANGES:
                raise ValueError("Invalid range end")
        else:
            members.append(_quoted(low))
    if not members:
        return "(?s:.)" if negated else "(?!)", at + 1
    return f"[{'^' * negated}{''.join(members)}]", at + 1


def _member(text: str, at: int, syntax: int, *, hyphen: bool) -> tuple[str, int]:
    """Return a member of a set, and its end."""
    if at >= len(text):
        raise ValueError("Unmatched [, [^, [:, [., or [=")
    for mark in (".", "="):
        if text.startswith("[" + mark, at):
            end = text.find(mark + "]", at + 2)
            if end != at + 3:
                raise ValueError("Invalid collation character")
            return text[at + 2], end + 2
    letter = text[at]
    if letter == "\\" and syntax & LIST_ESCAPES and at + 1 < len(text):
        return text[at + 1], at + 2
    if letter == "-" and not hyphen and text[at + 1 : at + 2] != "]":
        raise ValueError("Invalid range end")
    return letter, at + 1


def _quoted(letter: str) -> str:
    return f"\\{letter}" if letter in "\\]^-[&~|" else letter
