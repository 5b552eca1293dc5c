"""The command line of `pcircle doctor`; `pcircle.tools.doctor.command` runs it."""

from __future__ import annotations

import argparse
from typing import Final

from pcircle.cli.shell import ToolCommand
from pcircle.tools.doctor.options import DoctorOptions

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


def _carry_out(args: argparse.Namespace) -> int:
    from pcircle.tools.doctor.command import doctor_typed

    return doctor_typed(args)


_COMMAND = ToolCommand(
    "pcircle doctor", "[PATH]...", USAGE, DESCRIPTION, EPILOG, DoctorOptions.add_to, _carry_out
)
parser: Final = _COMMAND.parser
main: Final = _COMMAND.main
