"""The command line of frm; `pcircle.tools.frm.command` runs it."""

from __future__ import annotations

import argparse
from typing import Final

from pcircle.cli.arguments import Parser, ToolCommand, notes
from pcircle.tools.frm.options import RemoveOptions

USAGE = """\
frm [OPTION]... PATH...
       frm --files-from LIST [OPTION]... [PATH]
       frm --apply PLAN [OPTION]...
       frm --empty-trash DIR [OPTION]..."""

DESCRIPTION = """\
Remove files and, with -r, directories in parallel.

Symbolic links are removed and never followed. Other file systems and bind
mounts are not entered, and the exit code is then 1. frm never prompts: to
review the removals first, use --plan FILE and then --apply FILE."""

EPILOG = notes(
    "frm",
    """\
Exit codes: 0 success; 1 some entries could not be removed, each one named;
2 refused; 4 stopped early (--max-delete, --stop-after, a lost rank);
70 internal error; 130 and 143 interrupted.

Examples:
  frm -r /scratch/old
  frm -r --older-than 30d --keep-root /scratch/tmp
  frm -r --plan removal.plan /data
  mpirun -np 8 frm --apply removal.plan""",
)


def _add(p: Parser) -> None:
    p.takes_only_paths = False  # -f ignores a missing PATH
    RemoveOptions.add_to(p)


def _carry_out(args: argparse.Namespace) -> int:
    from pcircle.tools.frm.command import remove_typed

    return remove_typed(args)


_MOST_USED = (
    "-r",
    "-f",
    "--older-than",
    "--exclude",
    "--keep-root",
    "--trash",
    "--plan",
    "--max-delete",
    "--dry-run",
    "-j",
)
_COMMAND = ToolCommand(
    "frm", "PATH...", USAGE, DESCRIPTION, EPILOG, _add, _carry_out, most_used=_MOST_USED
)
parser: Final = _COMMAND.parser
main: Final = _COMMAND.main
