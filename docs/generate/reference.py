"""Contents of the commands' parsers as plain data, for the site, manual pages and completions.

Nothing here is written a second time: usage, options and examples come from `--help`. Options
that help omits are omitted.

    from docs.generate.reference import references

    for command in references():
        for group in command.groups:
            for option in group.options:
                print(option.invocation, option.help)
"""

from __future__ import annotations

import argparse
import functools
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from docs.generate.primaries import PRIMARIES, Primary
from pcircle.cli.arguments import OptionalValue, Parser
from pcircle.cli.declarations import Option as Declaration
from pcircle.core.errors import require_type
from pcircle.tools.commands import COMMANDS, Command

# The type of an operand, by its name in the usage; other names stand for any word.
_OPERANDS = {
    **dict.fromkeys(("PATH", "SRC", "DST", "A", "B"), "file"),
    "DIR": "directory",
    "GROUP": "group",
    "OWNER": "owner",
}
_LEFT_OUT = (None, False, argparse.SUPPRESS)


class Option(NamedTuple):
    """An option. `value` is "none", "required" or "optional" (given with `=` only).

    `takes` is the type of values: "file", "directory", "user", "users" (by comma), "group",
    "groups", "owner" (USER:GROUP), "choice" (one of `choices`), "word" (one of
    `words`, or another), "words" (by comma), or "" for any word.
    """

    flags: tuple[str, ...]
    value: str
    metavars: tuple[str, ...]
    choices: tuple[str, ...]
    words: tuple[str, ...]
    default: str
    repeatable: bool
    takes: str
    help: str

    @property
    def name(self) -> str:
        """The first long flag, or the only flag."""
        return next((flag for flag in self.flags if flag.startswith("--")), self.flags[0])

    @property
    def shown_value(self) -> str:
        """The value in the form of the help: ` FILE`, `[=WHEN]`, or nothing."""
        if self.value == "none":
            return ""
        shown = " ".join(self.metavars)
        return f"[={shown}]" if self.value == "optional" else f" {shown}"

    @property
    def invocation(self) -> str:
        """The flags, each followed by the value: `-j N, --jobs N`."""
        return ", ".join(flag + self.shown_value for flag in self.flags)


class Group(NamedTuple):
    """A group of options, with its title and description."""

    title: str
    text: str
    options: tuple[Option, ...]


class Positional(NamedTuple):
    """An operand by its name in the usage; `takes` as in `Option`."""

    name: str
    repeatable: bool
    takes: str


class ExitCode(NamedTuple):
    """Exit codes with a common meaning for the command: `130 and 143`, `interrupted`."""

    codes: tuple[int, ...]
    meaning: str


class Reference(NamedTuple):
    """A command, as described by its help.

    `usage` has a line for each way to call it; `notes` are the paragraphs below the options;
    `primaries` are the primaries of expressions, which only ffind has.
    """

    command: Command
    usage: tuple[str, ...]
    description: tuple[str, ...]
    groups: tuple[Group, ...]
    positionals: tuple[Positional, ...]
    notes: tuple[str, ...]
    exit_codes: tuple[ExitCode, ...]
    examples: tuple[str, ...]
    primaries: tuple[Primary, ...]

    @property
    def options(self) -> tuple[Option, ...]:
        """The options of all groups."""
        return tuple(option for group in self.groups for option in group.options)


@functools.cache
def references() -> tuple[Reference, ...]:
    """Return all commands, by name."""
    return tuple(map(reference, COMMANDS))


def reference(command: Command) -> Reference:
    """Return one command."""
    parser = command.built()
    notes, codes, examples = _below(parser.epilog or "")
    groups = (
        Group(group.title or "", _line(group.description or ""), options)
        for group in parser._action_groups
        if (options := tuple(_options(parser, group._group_actions)))
    )
    usage = (parser.usage or "").replace("%%", "%").splitlines()
    return Reference(
        command,
        tuple(line.strip() for line in usage),
        tuple(_paragraphs(parser.description or "")),
        tuple(groups),
        _positionals(parser),
        tuple(notes),
        tuple(codes),
        tuple(examples),
        PRIMARIES if command.name == "ffind" else (),
    )


def _options(
    parser: argparse.ArgumentParser, actions: Sequence[argparse.Action]
) -> Iterator[Option]:
    for action in actions:
        if action.option_strings and action.help != argparse.SUPPRESS:
            yield _option(parser, action)


def _option(parser: argparse.ArgumentParser, action: argparse.Action) -> Option:
    choices = tuple(map(str, action.choices or ()))
    metavars = () if action.nargs == 0 else _metavars(action, choices)
    value = "optional" if isinstance(action, OptionalValue) else "required" if metavars else "none"
    flags = tuple(action.option_strings)
    name = next((flag for flag in flags if flag.startswith("--")), flags[0])
    declared = _declared(parser, name)
    return Option(
        flags,
        value,
        metavars,
        choices,
        _words(declared),
        "" if action.default in _LEFT_OUT or value == "none" else str(action.default),
        isinstance(action, argparse._AppendAction | argparse._CountAction),
        _takes(declared, choices),
        (action.help or "").replace("%%", "%"),
    )


def _declared(parser: argparse.ArgumentParser, name: str) -> Declaration | None:
    """Return the declaration of an option, or None for an option of the parser itself."""
    options = parser.options if isinstance(parser, Parser) else None
    for _, first in options.offered() if options is not None else ():
        for found in (first, *first.also):
            if name in found.names:
                return require_type(Declaration, found)
    return None


def _words(declared: Declaration | None) -> tuple[str, ...]:
    """Return the words that an option accepts."""
    words = () if declared is None else declared.words or declared.word_list
    return tuple(words() if callable(words) else words)


def _takes(declared: Declaration | None, choices: Sequence[str]) -> str:
    if choices or declared is None:
        return "choice" if choices else ""
    if declared.words or declared.word_list:
        return "words" if declared.word_list else "word"
    return "" if declared.takes in ("text", "number") else declared.takes


def _metavars(action: argparse.Action, choices: Sequence[str]) -> tuple[str, ...]:
    if isinstance(action.metavar, tuple):
        return action.metavar
    count = action.nargs if isinstance(action.nargs, int) else 1
    name = "{" + ",".join(choices) + "}" if choices else action.dest.upper()
    return (action.metavar or name,) * count


def _positionals(parser: argparse.ArgumentParser) -> tuple[Positional, ...]:
    """Return the operands, which the parser combines in a single name."""
    found = []
    for action in parser._actions:
        shown = action.metavar if not action.option_strings else None
        if isinstance(shown, str):
            for word in shown.split():
                name = re.sub(r"[][.]", "", word) if word.endswith("...") else word
                repeatable = word.endswith("...") or shown == name == "PATH"
                takes = _OPERANDS.get(name.partition(":")[0].strip("[]"), "")
                found.append(Positional(name, repeatable, takes))
    return tuple(found)


def _below(epilog: str) -> tuple[list[str], list[ExitCode], list[str]]:
    """Split the text below the options into notes, exit codes and examples."""
    above, _, examples = epilog.partition("\nExamples:\n")
    notes, codes = [], []
    for paragraph in _paragraphs(above):
        if paragraph.startswith("Exit codes: "):
            text = paragraph.removeprefix("Exit codes: ").removesuffix(".")
            codes = [_code(part) for part in text.split("; ")]
        else:
            notes.append(paragraph)
    return notes, codes, [line.strip() for line in examples.splitlines()]


def _code(text: str) -> ExitCode:
    found = re.fullmatch(r"((?:\d+(?:, | and |(?= )))+) ?(.+)", text)
    if found is None:
        raise ValueError(f"not an exit code with its meaning: {text!r}")
    return ExitCode(tuple(map(int, re.findall(r"\d+", found[1]))), found[2])


def _paragraphs(text: str) -> list[str]:
    return [_line(part) for part in text.split("\n\n") if part.strip()]


def _line(text: str) -> str:
    return " ".join(text.split())
