"""The options of `pcircle doctor`; `pcircle.tools.doctor.command` interprets them."""

from __future__ import annotations

import argparse
from typing import Final

from pcircle.cli.arguments import Parser, add_version
from pcircle.cli.shell import ToolCommand

USAGE = "pcircle doctor [OPTION]... [PATH]..."

DESCRIPTION = """\
Report the information that support needs: versions, MPI and launcher, cores,
memory, limits, control groups, and the file system features of each PATH.

PATHs are directories; the default is the working directory and the directory
for temporary files. Features are tested in a temporary directory below PATH.
Anything that could not be determined is listed with the reason."""

EPILOG = """\
Durations: 30, 0.5s, 5m, 2h.

Under mpirun or srun, MPI is initialised and finalised, and rank 0 reports.

Exit codes: 0 success; 1 something keeps the tools from working; 2 refused;
70 internal error; 130 and 143 interrupted.

Examples:
  pcircle doctor
  pcircle doctor --no-trials /archive
  pcircle doctor --json doctor.json /data /scratch
  mpirun -np 8 pcircle doctor /scratch"""


def _add(p: Parser) -> None:
    add = p.add_argument_group("Examination").add_argument
    add("--no-trials", action="store_true", help="do not test features, write nothing below PATH")
    add("--timeout", metavar="T", default="30", help="give up on a PATH after T (default: 30 s)")
    output = p.add_argument_group("Output")
    output.add_argument(
        "--json", metavar="FILE", help="write the report as JSON (-: standard output)"
    )
    add_version(output, p.prog)


def _carry_out(args: argparse.Namespace) -> int:
    from pcircle.tools.doctor.command import doctor_typed

    return doctor_typed(args)


_COMMAND = ToolCommand("pcircle doctor", "[PATH]...", USAGE, DESCRIPTION, EPILOG, _add, _carry_out)
parser: Final = _COMMAND.parser
main: Final = _COMMAND.main
