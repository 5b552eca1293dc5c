"""The options of ffind; `pcircle.tools.ffind.command` interprets them."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

from pcircle.cli.arguments import (
    NO_FILTERS,
    POLITE,
    OptionalValue,
    Parser,
    add_offline,
    add_op_timeout,
    add_output,
    add_patterns,
    add_performance,
    add_plans,
    add_polite,
    add_safety,
    add_stop,
    notes,
    run,
)
from pcircle.cli.shell import logging
from pcircle.tools.ffind.language.words import ACTIONS, COMMANDS, TESTS, split
from pcircle.transport.launch import launched

USAGE = """\
ffind [OPTION]... [PATH]... [EXPRESSION]
       ffind --apply PLAN [OPTION]..."""

DESCRIPTION = """\
Search trees in parallel, with the expressions of find(1): tests (-name, -type,
-size, -mtime, -newer, -user, -perm ...), operators (! -a -o), and actions
(-print, -printf, -ls, -delete, -exec ...).

Operators and primaries are those of GNU find and have one dash; options of
ffind have two. The manual lists additional primaries. Entries are printed in
any order unless --sort is given."""

EPILOG = notes(
    "ffind",
    """\
Exit codes: 0 success; 1 some entries failed, each one named; 2 refused, for
example an invalid expression; 3 no entry exists, if the expression tests for
this; 4 stopped early (--max-delete, --stop-after, a lost rank); 70 internal
error; 130 and 143 interrupted.

Examples:
  ffind /data -name '*.h5' -size +1G
  ffind /data -type f -mtime +30 --list-out old.list
  ffind --top 20 --by size /scratch -type f -printf '%s %p\\n'
  mpirun -np 8 ffind /scratch -user 1000 -newermt 2026-01-01 --sort""",
)


_BARE = {"--sort": "--sort=path", **POLITE}


class FindParser(Parser):
    """Parses options, PATHs and the expression, in any order."""

    def parse(self, arguments: Sequence[str], bare: Mapping[str, str]) -> argparse.Namespace:
        """Parse the options; `tokens` in the result contains the expression."""
        found = split(arguments, self.takes_value)
        args = super().parse(found.suite, {**_BARE, **bare})
        args.operands = found.paths
        args.tokens = found.tokens
        args.words = tuple(arguments)
        return args

    def hint(self, unknown: str) -> str:
        """Return a hint for an unknown option, which may be a primary."""
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
    p.add_argument("operands", nargs="*", metavar="PATH", help=argparse.SUPPRESS)
    add = p.add_argument_group("Search").add_argument
    add(
        "--sort",
        action=OptionalValue,
        metavar="KEYS",
        help="sort by KEYS, such as size,-mtime (default: path)",
    )
    add("--top", metavar="N", help="print only the N largest, or the first N by --by")
    add("--by", metavar="KEYS", help="sort keys of --top (default: size)")
    add(
        "--stat",
        choices=("auto", "never"),
        default="auto",
        help="never: refuse tests that need a lookup (default: auto)",
    )
    add("--in", dest="within", metavar="INDEX", help="search a saved index, not the file system")
    add("--dry-run", action="store_true", help="show what would be removed or run")
    add_plans(add)
    add = p.add_argument_group("Filters", "Patterns are those of rsync.").add_argument
    add_patterns(add)
    add_offline(add)
    add("-0", "--null", action="store_true", help="entries of lists end with NUL")
    add_safety(p)
    add = add_performance(p).add_argument
    add_op_timeout(add)
    add("--ops-limit", metavar="N", help="total limit of removals per second")
    add_polite(add)
    add_stop(add)
    add = add_output(p).add_argument
    add("--list-out", metavar="FILE", help="write a list of found entries, for the other tools")
    add("--json-lines", metavar="FILE", help="write a line of JSON for each removal")
    # The expression selects entries, in place of the filters of other tools.
    p.set_defaults(**NO_FILTERS, one_file_system=False)
    p.add_short_help(_MOST_USED)
    return p


def _carry_out(args: argparse.Namespace) -> int:
    from pcircle.tools.ffind.command import find_typed

    return find_typed(args)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return the exit code; only the first rank prints errors."""
    speaks = not launched().rank
    carry_out = logging("ffind", _carry_out, speaks=speaks)
    return run(parser, arguments, _BARE, carry_out, speaks=speaks)
