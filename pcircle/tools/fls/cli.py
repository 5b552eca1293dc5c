"""The options of fls; `pcircle.tools.fls.command` interprets them."""

from __future__ import annotations

import argparse
from typing import Final

from pcircle.cli.arguments import (
    POLITE,
    OptionalValue,
    Parser,
    add_filters,
    add_op_timeout,
    add_output,
    add_performance,
    add_polite,
    add_records,
    add_safety,
    add_stop,
    notes,
)
from pcircle.cli.shell import ToolCommand

USAGE = """\
fls [OPTION]... [PATH]...
       fls --files-from LIST [OPTION]... [PATH]"""

DESCRIPTION = """\
List files and directories in parallel.

Options and output are those of ls in the C locale. PATH defaults to the
working directory."""

EPILOG = notes(
    "fls",
    """\
Exit codes: 0 success; 1 some entries could not be listed, each one named;
2 refused; 4 stopped early (--stop-after, a lost rank); 70 internal error;
130 and 143 interrupted.

Examples:
  fls -l /scratch
  fls -l --sort=size,name --kind=f /scratch
  fls --total -h /scratch
  mpirun -np 8 fls -R --csv scratch.csv /scratch""",
)

WHEN = ("always", "auto", "never")
BARE = {"--color": "--color=always", "--hyperlink": "--hyperlink=always", **POLITE}


def _add(p: Parser) -> None:
    # As in ls, -h selects human-readable sizes, so only --help prints the help.
    p._option_string_actions.pop("-h").option_strings = ["--help"]
    _add_entries(p)
    _add_form(p)
    _add_order(p)
    _add_rows(p)
    filters = add_filters(p, "PATH")
    filters.add_argument(
        "-x", "--one-file-system", action="store_true", help="stay on one file system"
    )
    p._option_string_actions["-0"].help = "entries of lists, and printed lines, end with NUL"
    add_safety(p)
    add = add_performance(p).add_argument
    add_op_timeout(add)
    add("--ops-limit", metavar="N", help="total limit of entries per second")
    add_polite(add)
    add_stop(add)
    add_records(add_output(p).add_argument, "listed")
    p._option_string_actions["--json"].help = "write one JSON row per entry (-: standard output)"


def _add_entries(p: Parser) -> None:
    add = p.add_argument_group("Entries").add_argument
    add("-R", "--recursive", action="store_true", help="list subdirectories recursively")
    add(
        "-d",
        "--directory",
        action="store_true",
        help="list directories themselves, not their contents",
    )
    add(
        "-a",
        "--all",
        dest="hidden",
        action="store_const",
        const=2,
        default=0,
        help="include names that begin with a dot",
    )
    add(
        "-A",
        "--almost-all",
        dest="hidden",
        action="store_const",
        const=1,
        help="like -a, but omit . and .. themselves",
    )


def _add_form(p: Parser) -> None:
    add = p.add_argument_group("Format").add_argument
    add("-l", dest="long", action="store_true", help="long format: mode, owner, size, time")
    add("-1", dest="one", action="store_true", help="one name per line")
    add(
        "-n",
        "--numeric-uid-gid",
        action="store_true",
        help="like -l, with numeric owners and groups",
    )
    add("-g", dest="no_owner", action="store_true", help="like -l, without the owner")
    add("-o", dest="no_group", action="store_true", help="like -l, without the group")
    add("-h", "--human-readable", action="store_true", help="sizes like 1.5K, 234M, 2.0G")
    add("-i", "--inode", action="store_true", help="show inode numbers")
    add("-s", "--size", action="store_true", help="show allocated blocks, in KiB")
    add("--time", metavar="WORD", help="time to show and sort by: mtime, atime, ctime")
    add(
        "--time-style",
        metavar="STYLE",
        help="format of times: locale, full-iso, long-iso, iso, +FORMAT",
    )
    add("--full-time", action="store_true", help="like -l, with nanoseconds and time zone")
    add("-F", "--classify", action="store_true", help="append one of */=@| to names")
    add(
        "--color",
        action=OptionalValue,
        metavar="WHEN",
        choices=WHEN,
        help="colour names: always, auto, never",
    )
    add(
        "--hyperlink",
        action=OptionalValue,
        metavar="WHEN",
        choices=WHEN,
        help="print names as hyperlinks: always, auto, never",
    )
    add("-Z", "--context", action="store_true", help="show security contexts")
    add("--acl", action="store_true", help="show access control lists")
    add("--xattr", action="store_true", help="show names of extended attributes")
    add("--total", action="store_true", help="show totals of directories instead of entries")


def _add_order(p: Parser) -> None:
    add = p.add_argument_group("Order").add_argument
    add("-S", dest="by", action="store_const", const="-size", help="largest first")
    add("-t", dest="by", action="store_const", const="-time", help="newest first")
    add("-U", dest="by", action="store_const", const="none", help="do not sort")
    add("-r", "--reverse", action="store_true", help="reverse the order")
    add(
        "--sort",
        dest="by",
        metavar="KEYS",
        help="sort keys: name, size, mtime ... (minus: descending)",
    )
    add("--group-directories-first", action="store_true", help="list directories before files")


def _add_rows(p: Parser) -> None:
    add = p.add_argument_group("Rows instead of text").add_argument
    add("--csv", metavar="FILE", help="write one CSV row per entry (-: standard output)")
    add("--parquet", metavar="FILE", help="write one Parquet row per entry (requires pyarrow)")
    add("--sum", action="store_true", help="add the signature of each file, as printed by fsum")


def _carry_out(args: argparse.Namespace) -> int:
    from pcircle.tools.fls.command import list_typed

    return list_typed(args)


_MOST_USED = ("-R", "-a", "-l", "-h", "-d", "-t", "-S", "--sort", "--total", "--csv")
_COMMAND = ToolCommand(
    "fls", "[PATH]...", USAGE, DESCRIPTION, EPILOG, _add, _carry_out, BARE, most_used=_MOST_USED
)
parser: Final = _COMMAND.parser
main: Final = _COMMAND.main
