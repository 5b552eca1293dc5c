"""The command line of fsum; `pcircle.tools.fsum.command` runs it."""

from __future__ import annotations

import argparse
from typing import Final

from pcircle.cli.arguments import ToolCommand, notes
from pcircle.tools.fsum.options import SumOptions

USAGE = """\
fsum [OPTION]... PATH...
       fsum -o MANIFEST PATH
       fsum --check|--update|--rot MANIFEST [ROOT]
       fsum --diff OLD NEW
       fsum --export MANIFEST [ROOT]"""

DESCRIPTION = """\
Print one signature per PATH, covering all names, kinds and contents below it.

Equal trees have equal signatures, with any number of processes; owners, times
and holes do not matter. fcp -s prints the same signature for a copy.
A symbolic link given as PATH is followed; other links are signed as links."""

EPILOG = notes(
    "fsum",
    """\
Exit codes: 0 success; 1 some entries could not be read, each one named, and
their PATH has no signature; 2 refused; 3 a check found differences; 4 stopped
early (no space, a lost rank); 70 internal error; 130 and 143 interrupted.

Examples:
  fsum data /archive/data
  mpirun -np 8 fsum -o data.manifest /archive/data
  fsum --check data.manifest
  fsum --format coreutils -a sha256 data""",
)


def _carry_out(args: argparse.Namespace) -> int:
    from pcircle.tools.fsum.command import sum_typed

    return sum_typed(args)


_BYTES = "files are always read as bytes"
_ELSEWHERE = {
    "-b": _BYTES,
    "-t": _BYTES,
    "--binary": _BYTES,
    "--text": _BYTES,
    "--status": "-q prints only failures; the exit code is 3 if content differs",
    "--tag": "--format coreutils prints the form that sha256sum prints without --tag",
}
"""Hints for users of sha256sum."""
_MOST_USED = ("-a", "-o", "-c", "--quick", "--update", "--diff", "--format", "--exclude")
_COMMAND = ToolCommand(
    "fsum",
    "PATH...",
    USAGE,
    DESCRIPTION,
    EPILOG,
    SumOptions.add_to,
    _carry_out,
    most_used=_MOST_USED,
    elsewhere=_ELSEWHERE,
)
parser: Final = _COMMAND.parser
main: Final = _COMMAND.main
