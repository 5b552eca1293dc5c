"""Shell patterns and regular expressions as Python's regular expressions.

Shell patterns match names of any bytes, as `fnmatch` of the C library does. In a UTF-8 locale `?`
matches a character, in other locales a byte. Literal text, with or without stars at its ends, is
matched as bytes: the result is the same, and matching is faster.

Regular expressions have one of the many syntaxes of the GNU library. A syntax is a set of bits with
the meanings defined in `regex.h` and its manual. The whole path must match, so it does not matter
that Python takes the first alternative instead of the longest.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_Match = Callable[[bytes], object]

_CLASSES = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "blank": " \\t",
    "cntrl": "\\x00-\\x1f\\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": "!-/:-@\\[-`{-~",
    "space": "\\t-\\r ",
    "upper": "A-Z",
    "xdigit": "0-9A-Fa-f",
}
_PLAIN = re.compile(r"[^\\\[?*]*")


def text_of(name: bytes, *, wide: bool) -> str:
    """Return a name as text, decoded as UTF-8 if `wide`, otherwise byte by byte."""
    return name.decode("utf-8", "surrogateescape") if wide else name.decode("latin-1")


def _lowered(text: str) -> str:
    """Return text in lower case, character by character."""
    low = text.lower()
    if len(low) == len(text):
        return low
    return "".join(
        character.lower() if len(character.lower()) == 1 else character for character in text
    )


def matcher(pattern: bytes, *, fold: bool, wide: bool) -> _Match:
    """Return a function that matches names, ignoring case if `fold` is set."""
    text = text_of(pattern, wide=wide)
    if fold:
        # Without multibyte characters, only ASCII bytes have a case.
        text = _lowered(text) if wide else pattern.lower().decode("latin-1")
    elif (simple := _simple(pattern)) is not None:
        return simple
    found = re.compile(_translated_pattern(text), re.DOTALL).fullmatch
    if not fold:
        return lambda name: found(text_of(name, wide=wide))
    if not wide:
        return lambda name: found(name.lower().decode("latin-1"))
    return lambda name: found(_lowered(text_of(name, wide=True)))


def _simple(pattern: bytes) -> _Match | None:
    """Return a function for literal text with stars at its ends, or None for other patterns."""
    literal = pattern.strip(b"*")
    if any(special in literal for special in (b"*", b"?", b"[", b"\\")):
        return None
    before, after = pattern.startswith(b"*"), pattern.endswith(b"*")
    if not literal:
        return literal.__eq__ if not pattern else lambda name: True
    if before and after:
        return lambda name: literal in name
    if before:
        return lambda name: name.endswith(literal)
    if after:
        return lambda name: name.startswith(literal)
    return literal.__eq__


def _translated_pattern(pattern: str) -> str:
    """Return the pattern as a Python regular expression."""
    parts: list[str] = []
    at, end = 0, len(pattern)
    while at < end:
        letter = pattern[at]
        at += 1
        if letter == "*":
            if parts[-1:] != [".*"]:
                parts.append(".*")
        elif letter == "?":
            parts.append(".")
        elif letter == "\\":
            if at == end:
                return "(?!)"  # a trailing backslash escapes nothing, so nothing matches
            parts.append(re.escape(pattern[at]))
            at += 1
        elif letter == "[":
            found = _bracket(pattern, at)
            if found is None:
                parts.append("\\[")
            else:
                parts.append(found[0])
                at = found[1]
        else:
            parts.append(re.escape(letter))
    return "".join(parts)


def _bracket(pattern: str, at: int) -> tuple[str, int] | None:
    """Return the set that follows a bracket, and its end; None if it is not a set."""
    begin = at
    negated = pattern[at : at + 1] in ("!", "^")
    at += negated
    members: list[str] = []
    first = at
    while True:
        if at >= len(pattern):
            return None
        if pattern[at] == "]" and at > first:
            break
        if pattern.startswith("[:", at):
            end = pattern.find(":]", at + 2)
            name = pattern[at + 2 : end] if end > 0 else ""
            if name.isalpha() and name.islower():
                if name not in _CLASSES:
                    return "(?!)", _end(pattern, begin)
                members.append(_CLASSES[name])
                at = end + 2
                continue
        low, at = _member(pattern, at)
        if low is None:
            return None
        if pattern[at : at + 1] == "-" and pattern[at + 1 : at + 2] not in ("", "]"):
            high, at = _member(pattern, at + 1)
            if high is None:
                return None
            if low <= high:
                members.append(f"{_quoted(low)}-{_quoted(high)}")
        else:
            members.append(_quoted(low))
    if not members:  # all ranges are empty
        return "(?s:.)" if negated else "(?!)", at + 1
    return f"[{'^' * negated}{''.join(members)}]", at + 1


def _end(pattern: str, at: int) -> int:
    """Return the end of a set with an invalid member."""
    return len(pattern) if (end := pattern.find("]", at + 1)) < 0 else end + 1


def _member(pattern: str, at: int) -> tuple[str | None, int]:
    """Return a member of a set, and its end."""
    for mark in (".", "="):
        if pattern.startswith("[" + mark, at):
            end = pattern.find(mark + "]", at + 2)
            if end == at + 3:
                return pattern[at + 2], end + 2
    if pattern[at] == "\\":
        at += 1
        if at >= len(pattern):
            return None, at
    return pattern[at], at + 1


def _quoted(letter: str) -> str:
    return f"\\{letter}" if letter in "\\]^-[&~|" else letter


# ---- regular expressions -------------------------------------------------------------------------

(
    _LIST_ESCAPES,
    _BACKSLASHED_PLUS,
    _HAS_CLASSES,
    _ANCHORS_ANYWHERE,
    _OPS_ANYWHERE,
    _OPS_NEED_AN_ITEM,
    _DOT_NEWLINE,
    _INTERVALS,
    _LIMITED,
    _NEWLINE_IS_OR,
    _BARE_BRACES,
    _BARE_PARENS,
    _NO_BACKREFS,
    _BARE_OR,
    _NO_EMPTY_RANGES,
    _LONE_PAREN,
    _NO_GNU,
    _ODD_INTERVALS,
    _NO_DOUBLE,
) = (1 << bit for bit in range(19))

_COMMON = _HAS_CLASSES | _DOT_NEWLINE | _INTERVALS | _NO_EMPTY_RANGES
_BASIC = _COMMON | _BACKSLASHED_PLUS | _NO_DOUBLE
_EXTENDED = (
    _COMMON
    | _ANCHORS_ANYWHERE
    | _OPS_ANYWHERE
    | _BARE_BRACES
    | _BARE_PARENS
    | _BARE_OR
    | _OPS_NEED_AN_ITEM
    | _LONE_PAREN
)
_EGREP = (_EXTENDED | _ODD_INTERVALS | _NEWLINE_IS_OR) & ~_OPS_NEED_AN_ITEM
SYNTAXES = {
    "findutils-default": _DOT_NEWLINE,
    "ed": _BASIC,
    "emacs": 0,
    "gnu-awk": (_EXTENDED | _LIST_ESCAPES | _ODD_INTERVALS) & ~(_OPS_ANYWHERE | _OPS_NEED_AN_ITEM),
    "grep": (_BASIC | _NEWLINE_IS_OR) & ~_NO_DOUBLE,
    "posix-awk": _EXTENDED | _LIST_ESCAPES | _INTERVALS | _NO_GNU | _ODD_INTERVALS,
    "awk": (
        _LIST_ESCAPES
        | _BARE_PARENS
        | _NO_BACKREFS
        | _BARE_OR
        | _NO_EMPTY_RANGES
        | _DOT_NEWLINE
        | _ANCHORS_ANYWHERE
        | _HAS_CLASSES
        | _LONE_PAREN
        | _NO_GNU
    ),
    "posix-basic": _BASIC,
    "posix-egrep": _EGREP,
    "egrep": _EGREP,
    "posix-extended": _EXTENDED,
    "posix-minimal-basic": _COMMON | _LIMITED,
    "sed": _BASIC,
}
DEFAULT_SYNTAX = "emacs"
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


def translated_regex(pattern: str, syntax: int) -> str:
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
            is_anchor = anchors or self._has(_ANCHORS_ANYWHERE) or at == 0
            after_newline = self._has(_NEWLINE_IS_OR) and at > 0 and text[at - 1] == "\n"
            return "anchor" if is_anchor or after_newline else "char", letter, at + 1
        if letter == "$":
            is_anchor = self._has(_ANCHORS_ANYWHERE) or at + 1 == len(text)
            is_anchor = is_anchor or self._peek(at + 1)[0] in ("|", ")")
            return "anchor" if is_anchor else "char", letter, at + 1
        return self._bare(letter), letter, at + 1

    def _escaped(self, letter: str) -> str:
        """Return the token of a letter after a backslash."""
        has = self._has
        if letter == "|" and not (has(_LIMITED) or has(_BARE_OR)):
            return "|"
        if letter in "123456789" and not has(_NO_BACKREFS):
            return "backref"
        if letter in _WORDS and not has(_NO_GNU):
            return "word"
        if letter in _SETS and not has(_NO_GNU):
            return "set"
        is_operator = letter in "()" and not has(_BARE_PARENS)
        is_operator |= letter in "+?" and has(_BACKSLASHED_PLUS) and not has(_LIMITED)
        is_operator |= letter in "{}" and has(_INTERVALS) and not has(_BARE_BRACES)
        return letter if is_operator else "char"

    def _bare(self, letter: str) -> str:
        """Return the token of a single letter."""
        has = self._has
        if letter == "\n" and has(_NEWLINE_IS_OR):
            return "|"
        is_operator = letter in "*.["
        is_operator |= letter == "|" and has(_BARE_OR) and not has(_LIMITED)
        is_operator |= letter in "+?" and not (has(_LIMITED) or has(_BACKSLASHED_PLUS))
        is_operator |= letter in "{}" and has(_INTERVALS) and has(_BARE_BRACES)
        is_operator |= letter in "()" and has(_BARE_PARENS)
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
            if kind == "{" and self._has(_NO_DOUBLE):
                raise ValueError("Invalid preceding regular expression")
            if self._has(_OPS_NEED_AN_ITEM) and not self._has(_NO_DOUBLE):
                raise ValueError("Invalid preceding regular expression")
            if self._has(_OPS_ANYWHERE):
                self._next()
                at_end = self._kind in ("|", "end", ")")
                return "" if at_end else self._item()
        if kind in ("anchor", "word"):
            # An anchor cannot be repeated: an operator after it is not a repetition.
            self._next()
            return value if kind == "anchor" else _WORDS[value]
        if kind == ")" and not self._has(_LONE_PAREN):
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
            found, self._at = _regex_bracket(self._text, self._at, self._syntax)
        elif kind == "backref":
            if int(value) not in self._closed:
                raise ValueError("Invalid back reference")
            found = f"(?:\\{value})"
        elif kind == ".":
            found = "(?s:.)" if self._has(_DOT_NEWLINE) else "[^\\n]"
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
            if self._has(_NO_DOUBLE) and self._kind in ("*", "{"):
                raise ValueError("Invalid preceding regular expression")
        return item

    def _interval(self) -> str | None:
        """Return a repetition count, or None if it is not valid."""
        began, value, at = self._began, self._value, self._at
        close = "}" if self._has(_BARE_BRACES) else r"\\}"
        found = re.compile(rf"(\d*)(?:(,)(\d*))?{close}").match(self._text, at)
        if found is None or not (found[1] or found[2]):
            if not self._has(_ODD_INTERVALS):
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


def _regex_bracket(text: str, at: int, syntax: int) -> tuple[str, int]:
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
        if text.startswith("[:", at) and syntax & _HAS_CLASSES:
            end = text.find(":]", at + 2)
            if end < 0 or text[at + 2 : end] not in _CLASSES:
                raise ValueError("Invalid character class name")
            members.append(_CLASSES[text[at + 2 : end]])
            at, first = end + 2, False
            continue
        low, at = _regex_member(text, at, syntax, hyphen=first)
        first = False
        if text[at : at + 1] == "-" and text[at + 1 : at + 2] not in ("", "]"):
            high, at = _regex_member(text, at + 1, syntax, hyphen=True)
            if low <= high:
                members.append(f"{_quoted(low)}-{_quoted(high)}")
            elif syntax & _NO_EMPTY_RANGES:
                raise ValueError("Invalid range end")
        else:
            members.append(_quoted(low))
    if not members:
        return "(?s:.)" if negated else "(?!)", at + 1
    return f"[{'^' * negated}{''.join(members)}]", at + 1


def _regex_member(text: str, at: int, syntax: int, *, hyphen: bool) -> tuple[str, int]:
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
    if letter == "\\" and syntax & _LIST_ESCAPES and at + 1 < len(text):
        return text[at + 1], at + 2
    if letter == "-" and not hyphen and text[at + 1 : at + 2] != "]":
        raise ValueError("Invalid range end")
    return letter, at + 1
