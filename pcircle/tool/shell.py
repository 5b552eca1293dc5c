"""The shell of a command: name, texts and options, from which its parser and program follow.

What the options mean is imported once they are known to be well formed, so that `--help` and a
mistyped option answer at once: this module imports as little as `pcircle.ui.arguments`.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from pcircle.errors import UsageError
from pcircle.transport.launch import detect
from pcircle.ui.arguments import Parser, run


def words_of(options: Mapping[str, object]) -> list[str]:
    """Options that a program gives by name, as they would be typed.

    True is an option without a value, False and None are none, and a list is given again for each.
    A name that is a word of Python has a `_` behind it; one of a single letter has one dash.
    UsageError for what only a command line may ask for.
    """
    words = []
    for name, value in options.items():
        is_short = len(name) == 1
        option = f"-{name}" if is_short else "--" + name.removesuffix("_").replace("_", "-")
        if name in ("help", "version", "h"):  # these end the process, or would in some tools
            raise UsageError(f"unknown option '{option}'")
        for each in value if isinstance(value, list | tuple) else [value]:
            if each is True:
                words.append(option)
            elif each is not None and each is not False:
                words.append(f"{option}{'' if is_short else '='}{each}")
    return words


class Shell(NamedTuple):
    """A command. `operands` are shown as its usage does; `add` adds options to a parser.

    `carry_out` does what was typed; it imports what it needs. `bare` and `joined` as of
    `pcircle.ui.arguments.run`.
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

    def parser(self) -> Parser:
        """The options of the command."""
        p = Parser(self.name, self.usage, self.description, self.epilog)
        p.add_argument("operands", nargs="*", metavar=self.operands, help=argparse.SUPPRESS)
        self.add(p)
        return p

    def main(self, arguments: Sequence[str] | None = None) -> int:
        """Run the command; returns the exit code. Of many ranks the first one speaks."""
        speaks = not detect(os.environ).rank
        return run(
            self.parser, arguments, self.bare, self.carry_out, speaks=speaks, joined=self.joined
        )
