"""The command line of fls; `pcircle.tools.fls.command` runs it."""

from __future__ import annotations

import argparse
from typing import Final

from pcircle.cli.arguments import ToolCommand, notes
from pcircle.tools.fls.options import ListOptions

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


def _carry_out(args: argparse.Namespace) -> int:
    from pcircle.tools.fls.command import list_typed

    return list_typed(args)


_MOST_USED = ("-R", "-a", "-l", "-h", "-d", "-t", "-S", "--sort", "--total", "--csv")
_COMMAND = ToolCommand(
    "fls",
    "[PATH]...",
    USAGE,
    DESCRIPTION,
    EPILOG,
    ListOptions.add_to,
    _carry_out,
    most_used=_MOST_USED,
)
parser: Final = _COMMAND.parser
main: Final = _COMMAND.main
