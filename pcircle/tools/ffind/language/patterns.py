"""Shell patterns, as in `fnmatch` of the C library, for names of any bytes.

In a UTF-8 locale `?` matches a character, in other locales a byte. Literal text, with or without
stars at its ends, is matched as bytes: the result is the same, and matching is faster.
"""

from __future__ import annotations

import re
from collections.abc import Callable

Match = Callable[[bytes], object]

CLASSES = {
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


def lowered(text: str) -> str:
    """Return text in lower case, character by character."""
    low = text.lower()
    if len(low) == len(text):
        return low
    return "".join(
        character.lower() if len(character.lower()) == 1 else character for character in text
    )


def matcher(pattern: bytes, *, fold: bool, wide: bool) -> Match:
    """Return a function that matches names, ignoring case if `fold` is set."""
    text = text_of(pattern, wide=wide)
    if fold:
        # Without multibyte characters, only ASCII bytes have a case.
        text = lowered(text) if wide else pattern.lower().decode("latin-1")
    elif (simple := _simple(pattern)) is not None:
        return simple
    found = re.compile(translated(text), re.DOTALL).fullmatch
    if not fold:
        return lambda name: found(text_of(name, wide=wide))
    if not wide:
        return lambda name: found(name.lower().decode("latin-1"))
    return lambda name: found(lowered(text_of(name, wide=True)))


def _simple(pattern: bytes) -> Match | None:
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


def translated(pattern: str) -> str:
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
                if name not in CLASSES:
                    return "(?!)", _end(pattern, begin)
                members.append(CLASSES[name])
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
