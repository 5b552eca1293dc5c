"""The words of a command line: options of the suite, paths, and the tokens of the expression.

Primaries have one dash and options of the suite two, so the three can be told apart wherever they
stand. What follows a primary as its argument is taken whatever it looks like.

This imports next to nothing, so that help and mistakes answer at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from pcircle.errors import UsageError
from pcircle.ui.names import show

_WITH_VALUE = (
    "amin", "cmin", "mmin", "atime", "ctime", "mtime", "anewer", "cnewer", "newer", "used", "since",
    "until", "size", "bytes", "blocks", "user", "group", "uid", "gid", "perm", "type", "xtype",
    "inum",
    "links", "samefile", "fstype", "flags", "xattrname", "name", "iname", "path", "ipath",
    "wholename",
    "iwholename", "regex", "iregex", "lname", "ilname", "stripe-count", "stripe-size", "pool",
    "ost",
    "mdt", "layout",
)  # fmt: skip
_BARE = (
    "daystart", "sparse", "empty", "nouser", "nogroup", "readable", "writable", "executable",
    "xattr",
    "acl", "capable", "true", "false",
)  # fmt: skip
TESTS = dict.fromkeys(_WITH_VALUE, 1) | dict.fromkeys(_BARE, 0)
"""Tests, and how many arguments each has."""

_WRITING = (
    "print",
    "print0",
    "ls",
    "delete",
    "prune",
    "quit",
    "json",
    "csv",
    "count",
    "du",
    "exists",
)
ACTIONS = {
    **dict.fromkeys(_WRITING, 0),
    **dict.fromkeys(("printf", "fprint", "fprint0", "fls", "limit"), 1),
    "fprintf": 2,
}
COMMANDS = ("exec", "execdir", "ok", "okdir")
_FLAGS = (
    "d", "depth", "mount", "xdev", "noleaf", "ignore_readdir_race", "noignore_readdir_race",
    "follow",
    "warn", "nowarn", "P", "H", "L",
)  # fmt: skip
OPTIONS = {
    **dict.fromkeys(_FLAGS, 0),
    **dict.fromkeys(("maxdepth", "mindepth", "regextype", "files0-from", "D"), 1),
}
POSITIONAL = ("daystart",)
"""What says something of the tests behind it, and is itself no part of the expression."""

OPERATORS = {
    "(": "(",
    ")": ")",
    ",": ",",
    "!": "!",
    "-not": "!",
    "-a": "-a",
    "-and": "-a",
    "-o": "-o",
    "-or": "-o",
    "-exclude": "-exclude",
}
_SUITE = re.compile(r"-(j\d*|[hqv0]+)")
_NEWER = re.compile(r"newer[aBcmt][aBcmt]")
_MARK = "^"


class Token(NamedTuple):
    """A word of the expression: what it is, its arguments, and where they stand."""

    name: str
    arguments: tuple[str, ...]
    at: int
    length: int
    is_operator: bool = False


class Split(NamedTuple):
    """A command line in its parts."""

    suite: list[str]
    paths: list[str]
    tokens: list[Token]


def refused(words: Sequence[str], at: int, count: int, text: str) -> UsageError:
    """The refusal of a bad expression, with the place underlined."""
    shown = [show(word.encode("utf-8", "surrogateescape")) or "''" for word in words]
    before = len(" ".join(shown[:at])) + (at > 0)
    length = max(1, len(" ".join(shown[at : at + count])))
    return UsageError(f"{text}\n  {' '.join(shown)}\n  {' ' * before}{_MARK * length}")


def split(words: Sequence[str], takes_value: Callable[[str], bool]) -> Split:
    """The words in their parts. `takes_value` tells of an option of the suite. UsageError."""
    found = Split([], [], [])
    at = 0
    while at < len(words):
        word = words[at]
        if word == "--":
            at += 1
        elif (word.startswith("--") and len(word) > 2) or _SUITE.fullmatch(word):
            count = 1 + ("=" not in word and takes_value(word))
            found.suite.extend(words[at : at + count])
            at += count
        elif word in OPERATORS:
            found.tokens.append(Token(OPERATORS[word], (), at, 1, is_operator=True))
            at += 1
        elif word.startswith("-") and len(word) > 1:
            token = _primary(words, at)
            at += token.length
            if token.name in ("help", "version"):
                found.suite.append(f"--{token.name}")
            else:
                found.tokens.append(token)
        else:
            found.paths.append(word)
            at += 1
    return found


def _primary(words: Sequence[str], at: int) -> Token:
    """The primary at a place, with its arguments."""
    name = words[at][1:]
    if name in COMMANDS:
        return _command(words, at)
    if name in ("help", "version") or name.startswith("O"):
        return Token(name, (), at, 1)
    count = next((some[name] for some in (TESTS, ACTIONS, OPTIONS) if name in some), None)
    if count is None and _NEWER.fullmatch(name):
        count = 1
    if count is None:
        near = _near(name)
        also = f"; did you mean '-{near}'?" if near else ""
        raise refused(words, at, 1, f"unknown primary '{show(words[at].encode())}'{also}")
    given = tuple(words[at + 1 : at + 1 + count])
    if len(given) < count:
        what = "an argument" if count == 1 else f"{count} arguments"
        raise refused(words, at, 1, f"'-{name}' requires {what}")
    return Token(name, given, at, 1 + count)


def _command(words: Sequence[str], at: int) -> Token:
    """A command up to its `;`, or to a `+` behind `{}`: which is the last of its arguments."""
    for end in range(at + 1, len(words)):
        is_plus = words[end] == "+" and words[end - 1] == "{}" and end - 1 > at
        if words[end] == ";" or is_plus:
            given = tuple(words[at + 1 : end + 1])
            if len(given) < 2:
                raise refused(words, at, 2, f"'{words[at]}' requires a command")
            return Token(words[at][1:], given, at, end - at + 1)
    raise refused(words, at, 1, f"'{words[at]}' requires a command, ended by ';' or by '{{}} +'")


def _near(name: str) -> str:
    """The primary that is spelled most like a name, if one is."""
    import difflib  # only for mistakes

    known = [*TESTS, *ACTIONS, *COMMANDS, *OPTIONS, "exclude", "not"]
    return next(iter(difflib.get_close_matches(name, known, 1)), "")


def primaries() -> Iterator[str]:
    """All names, for help and tests."""
    yield from (f"-{name}" for some in (TESTS, ACTIONS, OPTIONS) for name in some)
    yield from (f"-{name}" for name in COMMANDS)
