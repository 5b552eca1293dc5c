"""The command-line options of fdiff, which `pcircle.tools.fdiff.command` interprets."""

from __future__ import annotations

import argparse

from pcircle.cli.arguments import (
    Parser,
    add_filters,
    add_op_timeout,
    add_output,
    add_performance,
    add_records,
    add_recursive,
    add_safety,
    add_stop,
    notes,
)
from pcircle.cli.shell import ToolCommand

USAGE = "fdiff [OPTION]... A B"

DESCRIPTION = """\
Compare two files or trees in parallel, and print what differs.

Kinds, sizes, modification times, modes, owners, link targets and how names are
hard-linked; with -c the content as well. Prints words on a terminal, elsewhere
the columns of rsync -i: of an entry of one side +A or +B. A or B may be a
manifest of fsum."""

EPILOG = notes(
    "fdiff",
    """\
Exit codes: 0 no difference; 3 they differ (1 in diff and cmp); 1 some entries
could not be compared, and no difference was found; 2 refused; 4 stopped early
(a time limit, a lost rank); 70 internal error; 130 and 143 interrupted.

Examples:
  fdiff /data /backup
  fdiff -c --ignore=owner,group /data /backup
  fdiff -q --first --quick /data /backup
  mpirun -np 8 fdiff --fields=all --moved /data /backup""",
)


def _add(p: Parser) -> None:
    add = p.add_argument_group("Comparison").add_argument
    add("-c", "--contents", "--checksum", action="store_true", help="compare contents as well")
    add("--quick", action="store_true", help="compare only kind, size and modification time")
    add("--fields", metavar="LIST", help="fields to compare (see the manual), or default, or all")
    add("--ignore", metavar="LIST", help="fields not to compare")
    add("--modify-window", metavar="T", help="treat times that differ by at most T as equal")
    add("--ids", choices=("numeric", "names"), default="numeric",
        help="compare owners by number (default) or name")  # fmt: skip
    add("--one-sided", action="store_true", help="ignore entries that A lacks")
    add("--moved", action="store_true", help="match moved files by size and time")
    add("--by-hash", action="store_true", help="match moved files by content")
    add("--first", action="store_true", help="stop at the first difference")
    filters = add_filters(p, "A")
    filters.add_argument(
        "-x", "--one-file-system", action="store_true", help="stay on one file system"
    )
    add_recursive(filters.add_argument, "-r")
    add_safety(p)
    add = add_performance(p).add_argument
    add_op_timeout(add)
    add_stop(add)
    group = add_output(p, "report what was compared")
    add = group.add_argument
    add("-i", "--itemize", "--itemize-changes", action="store_true",
        help="list each entry of directories of one side")  # fmt: skip
    add("--format", choices=("words", "rsync", "dcmp"),
        help="words (on a terminal), rsync's columns, or dcmp's counts")  # fmt: skip
    add("-o", "--output", action="append", metavar="EXPR:FILE",
        help="write entries that match a dcmp expression to FILE")  # fmt: skip
    add_records(add, "differing")
    p._option_string_actions["-q"].help = "print only failures"


def _carry_out(args: argparse.Namespace) -> int:
    from pcircle.tools.fdiff.command import compare_typed

    return compare_typed(args)


_MOST_USED = (
    "-c",
    "-i",
    "--ignore",
    "--one-sided",
    "--moved",
    "--first",
    "--exclude",
    "-x",
    "-q",
    "-j",
)
_COMMAND = ToolCommand(
    "fdiff", "A B", USAGE, DESCRIPTION, EPILOG, _add, _carry_out, most_used=_MOST_USED
)
parser, main = _COMMAND.parser, _COMMAND.main
