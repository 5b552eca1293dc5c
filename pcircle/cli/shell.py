"""The definition of a command: its name, texts and options.

The modules that interpret options are imported only after the options have been parsed, so that
`--help` and the message for a mistyped option appear at once. For the same reason, this module
imports as little as `pcircle.cli.arguments`.

This module also composes the command that a message suggests to run next, for pasting into a shell:
the original command with an option added or removed.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from pcircle.cli.arguments import Parser, run
from pcircle.core.encoding import show
from pcircle.transport.launch import launched


def command(
    name: str,
    words: Sequence[str],
    *,
    add: str | None = None,
    drop: Collection[str] = (),
    drop_valued: Collection[str] = (),
) -> str:
    """Return the command line of a tool from its original `words`.

    The option `add` is added; the options in `drop`, and in `drop_valued` with their values, are
    removed.
    """
    end = words.index("--") if "--" in words else len(words)
    remaining = []
    args = iter(words[:end])
    for word in args:
        if word in drop_valued:
            next(args, None)
        elif word not in drop and word.partition("=")[0] not in drop_valued:
            remaining.append(word)
    if add is not None and add not in remaining:
        remaining.insert(0, add)
    return " ".join([name, *map(_quoted, [*remaining, *words[end:]])])


def _quoted(word: str) -> str:
    """Quote a word for the shell so that the result is printable."""
    from shlex import quote

    shown = show(os.fsencode(word))
    if shown.replace(r"\\", "\\") == word:
        return quote(word)
    escaped = shown.replace("'", r"\'")
    return f"$'{escaped}'"


_WHILE_LOGGED_S = 0.1


def logging(
    name: str, carry_out: Callable[[argparse.Namespace], int], *, speaks: bool
) -> Callable[[argparse.Namespace], int]:
    """Wrap `carry_out` so that it logs the end of the command, if requested.

    Only the rank that `speaks` writes the line. If the command fails, the other ranks give that
    rank time to do so, because a launcher may end all ranks when the first one fails.
    """

    def run(args: argparse.Namespace) -> int:
        if "syslog" not in args or not args.syslog:  # not every command has the option
            return carry_out(args)
        if speaks:
            from pcircle.cli.syslog import logged

            return logged(name, command(name, args.words), lambda: carry_out(args))
        code = carry_out(args)
        if code:
            import time

            time.sleep(_WHILE_LOGGED_S)
        return code

    return run


class ToolCommand(NamedTuple):
    """A command. `operands` names its operands in the usage; `add` adds options to a parser.

    `carry_out` runs the parsed command, and imports the modules that it needs. `bare` and `joined`
    are arguments of `pcircle.cli.arguments.run`. `most_used` are the options in the short help, and
    `elsewhere` are hints for options of other programs.
    """

    name: str
    operands: str
    usage: str
    description: str
    epilog: str
    add: Callable[[Parser], None]
    carry_out: Callable[[argparse.Namespace], int]
    bare: Mapping[str, str] = {}
    joined: Callable[[Sequence[str]], Sequence[str]] = list
    most_used: Sequence[str] = ()
    elsewhere: Mapping[str, str] = {}

    def parser(self) -> Parser:
        """Return the parser of the command."""
        p = Parser(self.name, self.usage, self.description, self.epilog)
        p.add_argument("operands", nargs="*", metavar=self.operands, help=argparse.SUPPRESS)
        p.elsewhere = self.elsewhere
        self.add(p)
        if self.most_used:
            p.add_short_help(self.most_used)
        return p

    def main(self, arguments: Sequence[str] | None = None) -> int:
        """Run the command and return the exit code; only the first rank prints messages."""
        speaks = not launched().rank
        carry_out = logging(self.name, self.carry_out, speaks=speaks)
        return run(self.parser, arguments, self.bare, carry_out, speaks=speaks, joined=self.joined)
