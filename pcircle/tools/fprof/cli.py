"""The options of fprof; `pcircle.tools.fprof.command` interprets them."""

from __future__ import annotations

import argparse

from pcircle.cli.arguments import (
    OptionalValue,
    Parser,
    add_filters,
    add_op_timeout,
    add_output,
    add_performance,
    add_safety,
    notes,
)
from pcircle.cli.shell import ToolCommand

USAGE = """\
fprof [OPTION]... [PATH]...
       fprof --save FILE [OPTION]... [PATH]...
       fprof --merge [OPTION]... FILE...
       fprof --diff OLD NEW"""

DESCRIPTION = """\
Profile file systems: count entries by kind and size and, on request, by age,
owner, extension and directory, and estimate the space they need elsewhere.
PATH defaults to the working directory.

Hard-linked files count once in bytes. A symbolic link given as PATH is
followed; other links are not."""

EPILOG = notes(
    "fprof",
    """\
Exit codes: 0 success; 1 some entries could not be examined, each one named;
2 refused; 4 stopped early (no space, a lost rank); 70 internal error;
130 and 143 interrupted.

Examples:
  fprof --by age,ext --top 10 /data
  fprof --html data.html --save data.profile /data
  mpirun -np 8 fprof --json data.json /data
  fprof --diff last.profile data.profile""",
)

BARE = {
    "--compress": "--compress=1024",
}
"""The options whose value is optional, with their default values."""


def _add(p: Parser) -> None:
    add = p.add_argument_group("Report").add_argument
    add(
        "--bins",
        metavar="LIST",
        help="edges of the size histogram: 4k,1M,1G or log2 or pow4",
    )
    add(
        "--by",
        action="append",
        metavar="LIST",
        help="group by age, owner, group, ext, depth, dirsize",
    )
    add("--dirbins", metavar="LIST", help="group directories by entries, with edges like 10,100")
    add(
        "--top",
        metavar="N",
        help="list the N largest, newest and oldest entries",
    )
    add("-d", "--depth", metavar="N", help="show directories N levels deep, largest first")
    add(
        "--blocks",
        metavar="LIST",
        help="estimate space with blocks of each SIZE or SIZE/SUBBLOCK",
    )
    add("--data-in-inode", metavar="SIZE", help="assume that files up to SIZE are stored in inodes")
    add("--sparse", action="store_true", help="report sparse files and space saved by compression")
    add("--stripe", action="store_true", help="report Lustre layouts")
    add(
        "--compress",
        action=OptionalValue,
        metavar="SAMPLE",
        help="estimate compression from SAMPLE pieces (default: 1024)",
    )
    add("-x", "--one-file-system", action="store_true", help="stay on one file system")
    add_filters(p, "PATH")
    add_safety(p)
    add = p.add_argument_group("Report formats").add_argument
    add("--save", metavar="FILE", help="save the profile for --merge and --diff")
    add("--entries", action="store_true", help="with --save, also save an index of all entries")
    add("--html", metavar="FILE", help="write a self-contained page with charts and a treemap")
    add(
        "--list-out",
        action="append",
        metavar="KIND:FILE",
        help="write a list of files: sparse, stripe, compress, special",
    )
    add("--plot", metavar="FILE", help="write a .png, .svg or .pdf (requires matplotlib)")
    add("--csv", metavar="DIR", help="write the tables as CSV files into DIR")
    add = p.add_argument_group("Saved profiles").add_argument
    add("--merge", action="store_true", help="report on several saved profiles as one")
    add(
        "--diff",
        nargs=2,
        metavar=("OLD", "NEW"),
        help="report growth and shrinkage between two profiles",
    )
    add_op_timeout(add_performance(p).add_argument)
    add_output(p)


def _carry_out(args: argparse.Namespace) -> int:
    from pcircle.tools.fprof.command import profile_typed

    return profile_typed(args)


_MOST_USED = ("-d", "--top", "--by", "-x", "--exclude", "--html", "--csv", "--save", "--diff", "-j")
_COMMAND = ToolCommand(
    "fprof", "[PATH]...", USAGE, DESCRIPTION, EPILOG, _add, _carry_out, BARE, most_used=_MOST_USED
)
parser, main = _COMMAND.parser, _COMMAND.main
