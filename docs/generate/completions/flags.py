"""What the completions of all shells have in common."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from docs.generate.primaries import Primary
from docs.generate.reference import Reference

MADE = "made from its parser by python -m docs.generate: edit the help there."


def program_of(about: Reference) -> tuple[str, str]:
    """The program and its subcommand, as in `pcircle doctor`; of most that is empty."""
    program, _, subcommand = about.command.command_line.partition(" ")
    return program, subcommand


def primary_flags(primary: Primary) -> list[str]:
    """The names of a primary as they are typed; a pattern of names is all of these."""
    if primary.flags == ("(", ")"):
        return []
    if primary.flags == ("-newerXY",):
        return [f"-newer{x}{y}" for x, y in itertools.product("aBcm", "aBcmt")]
    return [f"-O{level}" for level in range(4)] if "-O" in primary.flags else list(primary.flags)


def all_flags(about: Reference) -> Iterator[str]:
    """All that a command takes that begins with a dash."""
    for option in about.options:
        yield from option.flags
    for primary in about.primaries:
        yield from primary_flags(primary)
