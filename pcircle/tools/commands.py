"""The list of all commands: their names, the modules of their parsers, and summaries.

This module imports no command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Callable


class Command(NamedTuple):
    """A command: `name` as in file names, and `command_line` as a user types it.

    `page` is its manual in docs/, without the suffix.
    """

    name: str
    command_line: str
    module: str
    parser: str
    page: str
    summary: str

    def built(self) -> ArgumentParser:
        """Return a new parser of the command."""
        module = __import__(self.module, fromlist=[self.parser])
        build: Callable[[], ArgumentParser] = getattr(module, self.parser)
        return build()


def _tool(name: str, summary: str) -> Command:
    return Command(name, name, f"pcircle.tools.{name}.cli", "parser", name, summary)


def _chmod(name: str, summary: str) -> Command:
    return Command(name, name, "pcircle.tools.fchmod.cli", f"{name}_parser", "fchmod", summary)


def _subcommand(name: str, summary: str) -> Command:
    module = f"pcircle.tools.{name}.cli"
    return Command(f"pcircle-{name}", f"pcircle {name}", module, "parser", name, summary)


COMMANDS = (
    _tool("fbcast", "copy files and trees to every node of a job"),
    _tool("fbench", "measure how fast a file system is"),
    _chmod("fchgrp", "change the group of files and trees"),
    _tool("fchmod", "change modes, owners and access control lists"),
    _chmod("fchown", "change the owner and group of files and trees"),
    _tool("fcp", "copy files and directory trees"),
    _tool("fdiff", "compare two files or trees"),
    _tool("ffind", "search trees with the expressions of find"),
    _tool("fls", "list files and directories, like ls"),
    _tool("fmirror", "make one directory identical to another"),
    _tool("fprof", "profile file systems: counts, sizes, ages, owners"),
    _tool("frm", "remove files and directory trees"),
    _tool("fsum", "sign and verify files and trees"),
    _subcommand("doctor", "report MPI, limits and file systems"),
    _subcommand("scale", "predict how a task scales to many processes"),
)
"""All commands, by name."""


TOOLS = tuple(command for command in COMMANDS if command.name == command.command_line)
"""The commands that are separate programs."""


SUBCOMMANDS = {
    subcommand: command
    for command in COMMANDS
    for program, _, subcommand in [command.command_line.partition(" ")]
    if subcommand
}
"""The subcommands of `pcircle`, by name."""


def find_tool(name: str) -> Command | None:
    """Return the tool with this name, or None."""
    return next((tool for tool in TOOLS if tool.name == name), None)


def run_tool(tool: Command) -> int:
    """Run a tool with the arguments in `sys.argv`, and return its exit code."""
    main = "main" if tool.parser == "parser" else tool.parser.removesuffix("_parser")
    code: int = getattr(__import__(tool.module, fromlist=[main]), main)()
    return code


def run_subcommand(command: Command, arguments: list[str]) -> int:
    """Run a subcommand of `pcircle`, and return its exit code."""
    code: int = __import__(command.module, fromlist=["main"]).main(arguments)
    return code
