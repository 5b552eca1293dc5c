"""The command line of fdiff; `pcircle.tools.fdiff.command` runs it."""

from __future__ import annotations

import argparse
from typing import Final

from pcircle.cli.arguments import ToolCommand, notes
from pcircle.tools.fdiff.options import DiffOptions

USAGE = "fdiff [OPTION]... A B"

DESCRIPTION = """\
Compare two files or trees in parallel, and print what differs.

fdiff compares kinds, sizes, modification times, modes, owners, link targets
and hard links, and with -c also contents. It prints words on a terminal, and
elsewhere the columns of rsync -i; +A or +B marks an entry that only A or B
has. A or B may be a manifest written by fsum."""

EPILOG = notes(
    "fdiff",
    """\
Exit codes: 0 no difference; 3 differences were found (diff and cmp return 1);
1 some entries could not be compared, and no difference was found; 2 refused;
4 stopped early (a time limit, a lost rank); 70 internal error; 130 and 143
interrupted.

Examples:
  fdiff /data /backup
  fdiff -c --ignore=owner,group /data /backup
  fdiff -q --first --quick /data /backup
  mpirun -np 8 fdiff --fields=all --moved /data /backup""",
)


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
_LINES = "fdiff compares entries; diff shows the lines in which two files differ"
_ELSEWHERE = {
    "-u": _LINES,
    "-y": _LINES,
    "-N": "entries that only one side has are always listed",
}
"""Hints for users of diff."""
_COMMAND = ToolCommand(
    "fdiff",
    "A B",
    USAGE,
    DESCRIPTION,
    EPILOG,
    DiffOptions.add_to,
    _carry_out,
    most_used=_MOST_USED,
    elsewhere=_ELSEWHERE,
)
parser: Final = _COMMAND.parser
main: Final = _COMMAND.main
