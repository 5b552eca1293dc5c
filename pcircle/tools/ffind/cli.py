"""The command line of ffind; `pcircle.tools.ffind.command` runs it."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

from pcircle.cli.arguments import Parser, logging, notes, run
from pcircle.tools.ffind.language.words import ACTIONS, COMMANDS, TESTS, split
from pcircle.tools.ffind.options import FindOptions
from pcircle.transport.launch import launched

USAGE = """\
ffind [OPTION]... [PATH]... [EXPRESSION]
       ffind --apply PLAN [OPTION]..."""

DESCRIPTION = """\
Search trees in parallel, with the expressions of find(1): tests (-name, -type,
-size, -mtime, -newer, -user, -perm ...), operators (! -a -o), and actions
(-print, -printf, -ls, -delete, -exec ...).

Operators and primaries are those of GNU find and have one dash; options of
ffind have two. The manual lists additional primaries. Without --sort, entries
are printed in no particular order."""

EPILOG = notes(
    "ffind",
    """\
Exit codes: 0 success; 1 some entries could not be processed, each one named;
2 refused, for example an invalid expression; 3 the expression tests whether
entries exist, and none does; 4 stopped early (--max-delete, --stop-after, a
lost rank); 70 internal error; 130 and 143 interrupted.

Examples:
  ffind /data -name '*.h5' -size +1G
  ffind /data -type f -mtime +30 --list-out old.list
  ffind --top 20 --by size /scratch -type f -printf '%s %p\\n'
  mpirun -np 8 ffind /scratch -user 1000 -newermt 2026-01-01 --sort""",
)


_ELSEWHERE = {
    "--older-than": "-mtime +N selects entries older than N days, -mmin +N minutes",
    "--newer-than": "-mtime -N selects entries of the last N days, -newer FILE newer ones",
    "--min-size": "-size +N selects files larger than N, such as +1G",
    "--max-size": "-size -N selects files smaller than N, such as -1G",
    "--owner": "-user NAME selects by owner",
    "--kind": "-type LETTER selects by kind",
    "--match": "-regex PATTERN selects by path",
}
"""Hints for options of the other tools."""


class FindParser(Parser):
    """Parses options, PATHs and the expression, in any order."""

    def parse(self, arguments: Sequence[str], bare: Mapping[str, str]) -> argparse.Namespace:
        """Parse the options; `tokens` in the result contains the expression."""
        found = split(arguments, self.takes_value)
        args = super().parse(found.suite, bare)
        args.operands = found.paths
        args.tokens = found.tokens
        args.words = tuple(arguments)
        return args

    def hint(self, unknown: str) -> str:
        """Return a hint for an unknown option; it may be a primary with one dash too many."""
        name = unknown.removeprefix("--")
        if name in (TESTS | ACTIONS | dict.fromkeys(COMMANDS, 0)):
            return f"primaries have one dash: -{name}"
        return super().hint(unknown)


_MOST_USED = (
    "--sort",
    "--top",
    "--in",
    "--dry-run",
    "--plan",
    "--max-delete",
    "--exclude",
    "--list-out",
    "-0",
    "-j",
)


def parser() -> FindParser:
    """Return the parser of the command."""
    p = FindParser("ffind", USAGE, DESCRIPTION, EPILOG)
    p.elsewhere = _ELSEWHERE
    p.add_argument("operands", nargs="*", metavar="PATH", help=argparse.SUPPRESS)
    FindOptions.add_to(p)
    p.add_short_help(_MOST_USED)
    return p


def _carry_out(args: argparse.Namespace) -> int:
    from pcircle.tools.ffind.command import find_typed

    return find_typed(args)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return the exit code; only the first rank prints errors."""
    speaks = not launched().rank
    carry_out = logging("ffind", _carry_out, speaks=speaks)
    return run(parser, arguments, {}, carry_out, speaks=speaks)
