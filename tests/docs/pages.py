"""Pages as the tests read them: their blocks of code, and the commands in these.

A block of ``console`` has commands after ``$`` (``#``: for root), continued after ``>``, and below
each its output. Blocks that can't run here have the class ``not-run``, and above them a comment
with the reason: ``.. not run: needs Slurm``. A block of ``python`` is a program; its output follows
in a block of ``text`` with the class ``output``. A comment that starts with ``prepare:`` creates
the files for the first command of a page, in the language of the shell.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pcircle.cli.arguments import OptionalValue
from pcircle.tools.commands import COMMANDS
from tests.conftest import ROOT

PAGES = sorted((ROOT / "docs").rglob("*.rst"))
NOT_RUN = "not-run"
_TYPED = {command.command_line: command for command in COMMANDS if " " not in command.command_line}
_SYNOPSIS = re.compile(r"-m tests\.|\[OPTION\]|\[ROOT\]|\.\.\.|…|\w\|-|^\w+ -o MANIFEST PATH$")
_ENDS = {"|", "||", "&&", ";", "&", ">", ">>", "2>", "<", ":"}


class Block(NamedTuple):
    """A block of a page: of `language`, or "" if it is a literal block without one."""

    page: Path
    line: int
    language: str
    classes: str
    text: str
    comment: str

    @property
    def runs(self) -> bool:
        """Return whether the block must run."""
        return NOT_RUN not in self.classes.split()


class Command(NamedTuple):
    """A command of a block, and its output."""

    line: int
    line_typed: str
    written: str


def blocks(page: Path) -> list[Block]:
    """Return all blocks of a page, in order."""
    return list(_blocks(page, page.read_text(encoding="utf-8").splitlines()))


def _blocks(page: Path, lines: list[str]) -> Iterator[Block]:
    comment = ""
    for number, line in enumerate(lines):
        directive = re.match(r"( *)\.\. code-block:: *(\w*)$", line)
        literal = line.rstrip().endswith("::") and not line.lstrip().startswith("..")
        if note := re.match(r" *\.\. not run: (.+)", line):
            comment = note[1]
        if not directive and not literal:
            continue
        margin = len(line) - len(line.lstrip())
        body = _indented(lines, number + 1, margin)
        classes = ""
        while directive and body and body[0].lstrip().startswith(":"):
            name, _, value = body.pop(0).strip()[1:].partition(":")
            classes = value.strip() if name == "class" else classes
        language = directive[2] if directive else ""
        yield Block(page, number + 1, language, classes, _dedented(body), comment)
        comment = ""


def _indented(lines: list[str], first: int, margin: int) -> list[str]:
    found: list[str] = []
    for line in lines[first:]:
        if line.strip() and len(line) - len(line.lstrip()) <= margin:
            break
        found.append(line)
    return found


def _dedented(lines: list[str]) -> str:
    filled = [line for line in lines if line.strip()]
    margin = min((len(line) - len(line.lstrip()) for line in filled), default=0)
    return "\n".join(line[margin:] for line in lines).strip("\n") + "\n"


def preparation(page: Path) -> str:
    """Return the preparation of a page's first command."""
    lines = page.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines):
        if line.strip() == ".. prepare:":
            return _dedented(_indented(lines, number + 1, 0))
    return ""


def commands(block: Block) -> list[Command]:
    """Return the commands of a console block."""
    found: list[Command] = []
    for number, line in enumerate(block.text.splitlines()):
        if line.startswith(("$ ", "# ")):
            found.append(Command(number, line[2:], ""))
        elif not found:
            raise ValueError(f"{block.page}:{block.line}: output before the first command")
        elif line.startswith("> ") and not found[-1].written:
            found[-1] = found[-1]._replace(line_typed=f"{found[-1].line_typed}\n{line[2:]}")
        else:
            found[-1] = found[-1]._replace(written=f"{found[-1].written}{line}\n")
    return found


def called(text: str) -> Iterator[tuple[str, list[str]]]:
    """Return calls of our tools in lines of a shell: each tool with its arguments."""
    for line in text.replace("\\\n", " ").splitlines():
        if not is_synopsis(line):
            yield from _called_in(line.removeprefix("$ ").removeprefix("# "))


def is_synopsis(line: str) -> bool:
    """Return whether a line is the synopsis of a command."""
    return _SYNOPSIS.search(line) is not None


def literal_lines(page: Path) -> list[str]:
    """Return the lines of all literal blocks, with continued lines joined."""
    literal = (block.text for block in blocks(page) if not block.language)
    return [line for text in literal for line in text.replace("\\\n", " ").splitlines()]


def _called_in(line: str) -> Iterator[tuple[str, list[str]]]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>()")
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:  # a line of prose, with an apostrophe
        return
    begun: list[str] | None = None
    before = ""
    for word in words:
        tool = word.rpartition("bin/")[2]
        if begun is not None and (word in _ENDS or set(word) <= set("|&;<>()")):
            yield before, begun
            begun = None
        elif begun is not None:
            begun.append(word)
        elif tool in _TYPED:
            before, begun = tool, []
    if begun is not None:
        yield before, begun


def parsed(tool: str, words: list[str]) -> None:
    """Parse the words with the parser of a tool. UsageError if they are wrong."""
    parser = _TYPED[tool].built()
    bare = {
        flag: f"{flag}={next(iter(action.choices or ()), '1')}"
        for action in parser._actions
        if isinstance(action, OptionalValue)
        for flag in action.option_strings
        if flag.startswith("--")
    }
    short = {
        flag: flag + next(iter(action.choices or ()), "1")
        for action in parser._actions
        if isinstance(action, OptionalValue)
        for flag in action.option_strings
        if not flag.startswith("--")
    }
    if not {"--version", "--help"}.intersection(words):  # these print, and end the process
        parser.parse(words, {**bare, **short})  # type: ignore[attr-defined]
