"""The shell of a command: name, texts and options, from which its parser and program follow.

What the options mean is imported once they are known to be well formed, so that `--help` and a
mistyped option answer at once: this module imports as little as `pcircle.ui.arguments`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence

import msgspec

from pcircle.errors import UsageError
from pcircle.transport.launch import launched
from pcircle.ui.arguments import Parser, run

_WHILE_LOGGED_S = 0.1


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


def logging(
    name: str, carry_out: Callable[[argparse.Namespace], int], *, speaks: bool
) -> Callable[[argparse.Namespace], int]:
    """`carry_out`, with a line in the system's log at its end if that was asked for.

    Of many ranks the one that `speaks` writes it. The others give it the time to do so where the
    command fails: a launcher that is told so by the first of them may end all.
    """

    def run(typed: argparse.Namespace) -> int:
        if "syslog" not in typed or not typed.syslog:  # not every command has it
            return carry_out(typed)
        if speaks:
            from pcircle.tool.again import command
            from pcircle.ui.syslog import logged

            return logged(name, command(name, typed.words), lambda: carry_out(typed))
        code = carry_out(typed)
        if code:
            import time

            time.sleep(_WHILE_LOGGED_S)
        return code

    return run


class Shell(msgspec.Struct, frozen=True):
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
        speaks = not launched().rank
        carry_out = logging(self.name, self.carry_out, speaks=speaks)
        return run(self.parser, arguments, self.bare, carry_out, speaks=speaks, joined=self.joined)
