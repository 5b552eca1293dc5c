"""The arguments of the functions: keyword arguments become words on a tool's command line.

The parser of the tool defines the keywords and the types of their values, so all functions check
their arguments here, before a job begins. Messages of the command that mention an option are
changed to mention its keyword.
"""

from __future__ import annotations

import os
import re
from argparse import Action
from collections.abc import Iterable, Mapping, Sequence
from keyword import iskeyword
from numbers import Real
from typing import Any, NamedTuple

from pcircle.cli.arguments import OptionalValue, Parser, near
from pcircle.core.errors import require, require_type
from pcircle.tools.commands import find_tool

# Options that make sense only for a command.
_OF_COMMANDS = frozenset(
    ("h", "help", "interval", "op_timeout", "quiet", "stats", "syslog", "verbose", "version")
)
_CALLBACKS = ("messages", "progress", "stdout")
_OF_CALLS = ("cancel", *_CALLBACKS)
"""Keyword arguments that are not options."""
# A quoted name, or an option that is perhaps followed by a value.
_QUOTED_OR_OPTION = re.compile(
    r"'[^']*'|(?<![^\s(])(--[a-z][a-z-]*|-[A-Za-z0-9])(?:=([^\s,;:]+))?(?![^\s,;:.)])"
)


class Function(NamedTuple):
    """A public function: the tool that it runs, and the keywords that it lacks."""

    tool: str
    without: tuple[str, ...] = ()


_FORMATS = (
    *("classify", "color", "g", "human_readable", "hyperlink", "inode", "l", "numeric_uid_gid"),
    *("o", "size", "stdout", "time_style", "total"),
)
_WRITING = ("force", "format", "output", "rot", "update")
FUNCTIONS = {
    "broadcast": Function("fbcast", ("progress",)),
    "change": Function("fchmod"),
    "check": Function("fsum", ("check", "checksums", "diff", "export", *_WRITING)),
    "compare": Function("fdiff"),
    "copy": Function("fcp", ("target_directory",)),
    "entries": Function("fls", _FORMATS),
    "find": Function("ffind", ("stdout",)),
    "mirror": Function("fmirror"),
    "profile": Function("fprof", ("diff", "merge")),
    "remove": Function("frm", ("I", "i")),
    "sign": Function("fsum", ("check", "diff", "export", "quick", "rot", "strict")),
}


class ValueType(NamedTuple):
    """The type of an option's value: a flag, a number, a path or text.

    If `is_optional` is set, True stands for the default value. If `is_repeatable` is set, a
    sequence of values is accepted.
    """

    name: str
    is_optional: bool = False
    is_repeatable: bool = False

    @classmethod
    def of(cls, action: Action, takes: str) -> ValueType:
        """Return the type of the value of a parser's option, from what its declaration takes."""
        if action.nargs == 0:
            return cls("flag")
        name = "text" if action.choices is not None else _TYPES.get(takes, "text")
        return cls(name, isinstance(action, OptionalValue), "Append" in type(action).__name__)

    def accepts(self, value: object) -> bool:
        """Return whether a value, or an element of a sequence, has this type."""
        if isinstance(value, bool):
            return value is True and self.is_optional
        is_number = self.name == "number" and isinstance(value, Real)
        return is_number or isinstance(value, str | bytes | os.PathLike)

    def __str__(self) -> str:
        text = {"flag": "True or False", "number": "a number or text", "path": "a path"}
        said = text.get(self.name, "text")
        said += f" or a sequence of {said}" * self.is_repeatable
        return said + " or True" * self.is_optional


_TYPES = {"number": "number", "file": "path", "directory": "path"}


class Keyword(NamedTuple):
    """A keyword argument for an option: the name of the option, and what its parser knows."""

    option: str
    action: Any
    type: ValueType


def keywords_of(function: str) -> tuple[str, ...]:
    """Return the keyword arguments of a function that are not options."""
    return tuple(name for name in _OF_CALLS if name not in FUNCTIONS[function].without)


def options_of(function: str) -> dict[str, Keyword]:
    """Return the options of a function by keyword.

    The keywords of an option are its long names, with underscores, or else its letter.
    """
    tool, without = FUNCTIONS[function]
    refused = {*_OF_COMMANDS, *_OF_CALLS, *without}
    return {name: found for name, found in _all_options(tool).items() if name not in refused}


def _all_options(tool: str) -> dict[str, Keyword]:
    found: dict[str, Keyword] = {}
    parser = require_type(Parser, require(find_tool(tool)).built())
    for action in parser._actions:
        strings = action.option_strings
        for name in [name for name in strings if name.startswith("--")] or strings:
            keyword = keyword_of(name)
            if keyword.isidentifier():
                type = ValueType.of(action, parser.takes.get(name, "text"))
                found[keyword] = Keyword(name, action, type)
    return found


def keyword_of(option: str) -> str:
    """Return the keyword argument for an option: `--skip-same` is `skip_same`, `--in` is `in_`."""
    name = option.lstrip("-").replace("-", "_")
    return f"{name}_" if iskeyword(name) else name


# ---- checks --------------------------------------------------------------------------------------


def arguments_of(function: str, options: Mapping[str, object]) -> tuple[list[str], dict[str, Any]]:
    """Return the words of the command line, and the keyword arguments that are not options.

    True becomes an option without a value, False and None are omitted, and a sequence repeats the
    option. Raises TypeError for an unknown keyword, and for a value of the wrong type.
    """
    known, own_keywords = options_of(function), keywords_of(function)
    words: list[str] = []
    own: dict[str, Any] = {}
    for keyword, value in options.items():
        where = f"{function}(): '{keyword}'"
        if keyword in own_keywords:
            own[keyword] = _own(keyword, value, where)
        elif keyword in known:
            words += _words(known[keyword], value, where)
        else:
            raise TypeError(_unknown(function, keyword, (*known, *own_keywords)))
    return words, own


def _own(keyword: str, value: object, where: str) -> object:
    if keyword in _CALLBACKS and not (value is None or callable(value)):
        raise TypeError(f"{where} must be a function, not {_type_of(value)}")
    if keyword == "cancel" and not (value is None or callable(getattr(value, "is_set", None))):
        raise TypeError(f"{where} must have an is_set method, not {_type_of(value)}")
    return value


def _words(keyword: Keyword, value: object, where: str) -> list[str]:
    option, kind = keyword.option, keyword.type
    if kind.name == "flag":
        return [option] if flag_of(value, where) else []
    values: Sequence[object] = (value,)
    if kind.is_repeatable and isinstance(value, Sequence) and not isinstance(value, str | bytes):
        values = value
    words = []
    for item in values:
        if item is None or (item is False and kind.is_optional):
            continue
        if not kind.accepts(item):
            raise TypeError(f"{where} must be {kind}, not {_type_of(item)}")
        text = "" if item is True else f"={_text(item)}"
        words.append(option + (text if option.startswith("--") else text[1:]))
    return words


def _text(value: object) -> str:
    """Return a value as text; a float without a fraction is formatted as an integer."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return os.fsdecode(value) if isinstance(value, str | bytes | os.PathLike) else str(value)


def _type_of(value: object) -> str:
    """Return the name of a value's type, with its module unless the type is built in."""
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def flag_of(value: object, where: str) -> bool:
    """Return the value of a flag. Raises TypeError."""
    if value is None or isinstance(value, bool):
        return bool(value)
    raise TypeError(f"{where} must be True or False, not {_type_of(value)}")


def path_of(value: object, where: str) -> str:
    """Return a path as text. Raises TypeError for other types, including numbers."""
    if isinstance(value, str | bytes | os.PathLike):
        return os.fsdecode(value)
    raise TypeError(f"{where} must be text or bytes, not {_type_of(value)}")


def _unknown(function: str, keyword: str, known: Iterable[str]) -> str:
    """Return the message for an unknown keyword, with the keyword that was probably meant."""
    tool, without = FUNCTIONS[function]
    option, meant = _long_forms(tool).get(f"-{keyword}", ("", keyword))
    if meant not in known and meant in _all_options(tool):
        return f"{function}() does not take '{keyword}': only the command {tool} does"
    if keyword in without:
        return f"{function}() does not take '{keyword}'"
    message = f"{function}() got an unexpected keyword argument '{keyword}'"
    if option:
        return f"{message}; {option} is '{meant}'"
    similar = _similar(keyword, [name for name in known if len(name) > 1])
    return f"{message}; did you mean {similar}?" if similar else message


def _long_forms(tool: str) -> dict[str, tuple[str, str]]:
    """Return each option string of a tool with the option and its keyword."""
    return {
        string: (string, keyword)
        for keyword, found in reversed(_all_options(tool).items())
        for string in found.action.option_strings
    }


def _similar(keyword: str, known: Iterable[str]) -> str:
    """Return the keywords that were probably meant, as text."""
    options = {f"--{name.replace('_', '-')}": name for name in known}
    found = near(f"--{keyword.replace('_', '-')}", sorted(options))
    return " or ".join(f"'{options[option]}'" for option in found)


# ---- messages ------------------------------------------------------------------------------------


def in_keywords(function: str, message: str) -> str:
    """Return a message of the command with keyword arguments instead of options.

    Further lines of the message show the words that the program has given, and are not changed.
    """
    known = options_of(function)
    forms: Mapping[str, tuple[str, str]] = _long_forms(FUNCTIONS[function].tool)

    def keyword(found: re.Match[str]) -> str:
        name = forms.get(found[1] or "", ("", ""))[1]
        if name not in known:
            return found[0]
        if known[name].type.name == "flag":
            return f"{name}=True"
        return f"{name}={found[2]!r}" if found[2] else name

    first, end, further = message.partition("\n")
    return _QUOTED_OR_OPTION.sub(keyword, first) + end + further
