"""Common code of the completions for all shells."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from docs.generate.primaries import Primary
from docs.generate.reference import Reference
from pcircle.tools.commands import TOOLS

WITHOUT_COMPLETION = "scale"
"""The subcommand of `pcircle` that has no completion; its file completes only one subcommand."""
MADE = "made from its parser by python -m docs.generate: edit the help there."


def program_of(about: Reference) -> tuple[str, str]:
    """Return the program and its subcommand (`pcircle doctor`), which most programs lack."""
    program, _, subcommand = about.command.command_line.partition(" ")
    return program, subcommand


def tool_names() -> str:
    """Return the words after `pcircle` that have no completion in its file, separated by blanks."""
    return " ".join((*(tool.name for tool in TOOLS), WITHOUT_COMPLETION))


def primary_flags(primary: Primary) -> list[str]:
    """Return the names of a primary on the command line; a pattern stands for all its names."""
    if primary.flags == ("(", ")"):
        return []
    if primary.flags == ("-newerXY",):
        return [f"-newer{x}{y}" for x, y in itertools.product("aBcm", "aBcmt")]
    return [f"-O{level}" for level in range(4)] if "-O" in primary.flags else list(primary.flags)


def all_flags(about: Reference) -> Iterator[str]:
    """Yield everything that a command accepts and that begins with a dash."""
    for option in about.options:
        yield from option.flags
    for primary in about.primaries:
        yield from primary_flags(primary)
