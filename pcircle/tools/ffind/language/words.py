"""The words of a command line: options of ffind, paths, and tokens of the expression.

Primaries begin with one dash, and options of ffind with two. Options of ffind may occur anywhere.
The options -H, -L, -P, -D and -O precede the paths, as in find. The expression begins with the
first other word that starts with a dash, `(` or `!`. Before that word, `,` and `)` are paths; after
it, they are operators. A path may also follow the expression. The arguments of a primary may have
any form.

This module imports almost nothing, so that help and error messages appear at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from pcircle.core.encoding import show
from pcircle.core.errors import UsageError

_WITH_VALUE = (
    "amin", "cmin", "mmin", "atime", "ctime", "mtime", "anewer", "cnewer", "newer", "used", "since",
    "until", "size", "bytes", "blocks", "user", "group", "uid", "gid", "perm", "type", "xtype",
    "inum", "links", "samefile", "fstype", "flags", "xattrname", "name", "iname", "path", "ipath",
    "wholename", "iwholename", "regex", "iregex", "lname", "ilname", "stripe-count", "stripe-size",
    "pool", "ost", "mdt", "layout",
)  # fmt: skip
_BARE = (
    "daystart", "sparse", "empty", "nouser", "nogroup", "readable", "writable", "executable",
    "xattr", "acl", "capable", "true", "false",
)  # fmt: skip
TESTS: dict[str, int] = {**dict.fromkeys(_WITH_VALUE, 1), **dict.fromkeys(_BARE, 0)}
"""The tests, with their argument counts."""

_WRITING = (
    "print", "print0", "ls", "delete", "prune", "quit", "json", "csv", "count", "du", "exists",
)  # fmt: skip
ACTIONS: dict[str, int] = {
    **dict.fromkeys(_WRITING, 0),
    **dict.fromkeys(("printf", "fprint", "fprint0", "fls", "limit"), 1),
    "fprintf": 2,
}
COMMANDS = ("exec", "execdir", "ok", "okdir")
_FLAGS = (
    "d", "depth", "mount", "xdev", "noleaf", "ignore_readdir_race", "noignore_readdir_race",
    "follow", "warn", "nowarn", "P", "H", "L",
)  # fmt: skip
OPTIONS: dict[str, int] = {
    **dict.fromkeys(_FLAGS, 0),
    **dict.fromkeys(("maxdepth", "mindepth", "regextype", "files0-from", "D"), 1),
}
LEADING = ("H", "L", "P", "D")
"""Options that find accepts only before all paths, like -O with its level."""

SETTINGS = (*LEADING, "daystart", "files0-from")
"""Options that are not part of the expression. Other options are part of it and evaluate to
true.
"""

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
_PUNCTUATION = ("(", ")", ",", "!")
_BEGINNING = ("(", "!")
_SUITE = re.compile(r"-(j\d*|[hqv0]+)")
_OPTIMISATION = re.compile("O[0-9]+")
_NEWER = re.compile(r"newer[aBcmt][aBcmt]")
_MARK = "^"


class Token(NamedTuple):
    """An operator or a primary: its name, its arguments and its position."""

    name: str
    arguments: tuple[str, ...]
    at: int
    length: int
    is_operator: bool = False


class Split(NamedTuple):
    """The parts of a command line."""

    suite: list[str]
    paths: list[str]
    tokens: list[Token]


def refused(words: Sequence[str], at: int, count: int, text: str) -> UsageError:
    """Return the error for an invalid expression, with the position underlined."""
    shown = [show(word.encode("utf-8", "surrogateescape")) or "''" for word in words]
    before = len(" ".join(shown[:at])) + (at > 0)
    length = max(1, len(" ".join(shown[at : at + count])))
    return UsageError(f"{text}\n  {' '.join(shown)}\n  {' ' * before}{_MARK * length}")


def is_setting(name: str) -> bool:
    """Return whether an option is not part of the expression."""
    return name in SETTINGS or _OPTIMISATION.fullmatch(name) is not None


def split(words: Sequence[str], takes_value: Callable[[str], bool]) -> Split:
    """Divide the words into their parts. `takes_value` identifies options with a value.

    The expression begins where find begins it: `ffind -P , -delete` must not search the working
    directory instead of a path named `,`. Raise UsageError if the expression is invalid.
    """
    found = Split([], [], [])
    at = 0
    is_leading, has_begun = True, False
    while at < len(words):
        word = words[at]
        is_dashed = word.startswith("-") and len(word) > 1
        if (word.startswith("--") and len(word) > 2) or _SUITE.fullmatch(word):
            count = 1 + ("=" not in word and takes_value(word))
            found.suite.extend(words[at : at + count])
        elif word == "--" and is_leading:
            count, is_leading = 1, False
        elif is_leading and _is_leading(word[1:]) and is_dashed:
            count = _add_primary(found, words, at)
        elif not has_begun and not is_dashed and word not in _BEGINNING:
            found.paths.append(word)
            count, is_leading = 1, False
        else:
            is_leading, has_begun = False, True
            operator = _operator(word)
            if operator:
                found.tokens.append(Token(operator, (), at, 1, is_operator=True))
                count = 1
            elif not is_dashed:
                found.paths.append(word)
                count = 1
            elif _is_leading(word[1:]):
                raise refused(words, at, 1, f"'{word}' must precede every PATH")
            else:
                count = _add_primary(found, words, at)
        at += count
    return found


def _is_leading(name: str) -> bool:
    return name in LEADING or name.startswith("O")


def _operator(word: str) -> str:
    """Return the operator that a word represents, if any; find accepts `-(` for `(`."""
    plain = word.removeprefix("-")
    return plain if plain in _PUNCTUATION else OPERATORS.get(word, "")


def _add_primary(found: Split, words: Sequence[str], at: int) -> int:
    """Add the primary at a position; return the number of its words."""
    token = _primary(words, at)
    if token.name in ("help", "version"):
        found.suite.append(f"--{token.name}")
    else:
        found.tokens.append(token)
    return token.length


def _primary(words: Sequence[str], at: int) -> Token:
    """Return the primary at a position, with its arguments."""
    name = words[at][1:]
    if name in COMMANDS:
        return _command(words, at)
    if name.startswith("O") and not _OPTIMISATION.fullmatch(name):
        raise refused(words, at, 1, "'-O' must be followed by a level: -O3")
    if name in ("help", "version") or name.startswith("O"):
        return Token(name, (), at, 1)
    count = next((table[name] for table in (TESTS, ACTIONS, OPTIONS) if name in table), None)
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
    """Return a command up to its `;`, or to a `+` after its last argument `{}`."""
    for end in range(at + 1, len(words)):
        is_plus = words[end] == "+" and words[end - 1] == "{}" and end - 1 > at
        if words[end] == ";" or is_plus:
            given = tuple(words[at + 1 : end + 1])
            if len(given) < 2:
                raise refused(words, at, 2, f"'{words[at]}' requires a command")
            return Token(words[at][1:], given, at, end - at + 1)
    raise refused(words, at, 1, f"'{words[at]}' requires a command, ended by ';' or by '{{}} +'")


def _near(name: str) -> str:
    """Return the primary with the most similar name."""
    import difflib  # needed only for error messages

    known = [*TESTS, *ACTIONS, *COMMANDS, *OPTIONS, "exclude", "not"]
    return next(iter(difflib.get_close_matches(name, known, 1)), "")


def primaries() -> Iterator[str]:
    """Yield the names of all primaries, for help and tests."""
    yield from (f"-{name}" for table in (TESTS, ACTIONS, OPTIONS) for name in table)
    yield from (f"-{name}" for name in COMMANDS)
