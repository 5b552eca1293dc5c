"""The command line of `pcircle doctor` and its options; `pcircle.tools.doctor.command` runs it."""

from __future__ import annotations

import argparse
import os
from typing import Final

from pcircle.cli.arguments import ToolCommand
from pcircle.cli.declarations import Section, option, override, taken
from pcircle.cli.options import CommonOptions
from pcircle.core.units import interval_s

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


class DoctorOptions(CommonOptions):
    """The options of `pcircle doctor`."""

    _examination = Section("Examination")
    no_trials: bool = option("--no-trials", help="do not test features, and write nothing to PATH")
    timeout_s: float = option(
        "--timeout",
        metavar="T",
        default="30",
        parse=interval_s,
        help="give up on a PATH after T (default: 30 s)",
    )

    _output = Section("Output")
    _shared = taken("json", "version")
    json: str | None = override(help="write the report as JSON (-: standard output)")


def _carry_out(args: argparse.Namespace) -> int:
    from pcircle.tools.doctor.command import examine

    options = DoctorOptions.of(args)
    paths = list(map(os.fsencode, args.operands))
    return examine(paths, options.json, trials=not options.no_trials, deadline_s=options.timeout_s)


_COMMAND = ToolCommand(
    "pcircle doctor", "[PATH]...", USAGE, DESCRIPTION, EPILOG, DoctorOptions.add_to, _carry_out
)
parser: Final = _COMMAND.parser
main: Final = _COMMAND.main
