"""The command line of fmirror; `pcircle.tools.fmirror.phases` runs it."""

from __future__ import annotations

import argparse
from typing import Final

from pcircle.cli.arguments import ToolCommand, notes
from pcircle.tools.common.copy_options import joined
from pcircle.tools.fmirror.options import MirrorOptions

DESCRIPTION = """\
Make directory B identical to directory A by copying what differs, in parallel.

Files of the same size and modification time are considered unchanged. Changed
files are replaced atomically; if only attributes differ, they are updated in
place. All attributes are kept, as with fcp -a. A and A/ are the same. With
--delete, entries that A lacks are deleted from B at the end, and only if all
of A could be read."""

EPILOG = notes(
    "fmirror",
    """\
Exit codes: 0 success; 1 some entries failed, or deletions were withheld;
2 refused before anything was changed; 3 --verify found a copy that differs;
4 stopped early (--max-delete, no space, a time limit, a lost rank);
70 internal error; 130 and 143 interrupted.

Examples:
  fmirror data /backup/data
  fmirror --delete --max-delete 10% data /backup/data
  mpirun -np 8 fmirror --delete --backup-dir /backup/old data /backup/data
  fmirror -c --verify data /archive/data""",
)


_ELSEWHERE = {
    "-z": "fmirror sends no data over the network, so there is nothing to compress",
    "-D": "in dsync this deletes; use --delete",
    "-P": "progress is shown on a terminal, and --resume continues",
    "--partial": "--resume continues after an interruption",
    "--del": "--delete=during removes while the copy is running",
    "--delete-during": "--delete=during removes while the copy is running",
    "--delete-after": "--delete removes after the copy",
    "--delete-delay": "--delete removes after the copy",
    "--bufsize": "in dsync this is the buffer size; --chunksize sets the size of a copy unit",
}
"""Hints for users of rsync and dsync."""


def _carry_out(args: argparse.Namespace) -> int:
    from pcircle.tools.fmirror.phases import run_command

    return run_command(args)


_USAGE = "fmirror [OPTION]... A B\n       fmirror --apply PLAN [OPTION]..."
_MOST_USED = (
    "-a",
    "--delete",
    "--max-delete",
    "--dry-run",
    "-i",
    "-c",
    "--backup-dir",
    "--snapshot",
    "--exclude",
    "-j",
)
_COMMAND = ToolCommand(
    "fmirror",
    "A B",
    _USAGE,
    DESCRIPTION,
    EPILOG,
    MirrorOptions.add_to,
    _carry_out,
    joined=joined,
    most_used=_MOST_USED,
    elsewhere=_ELSEWHERE,
)
parser: Final = _COMMAND.parser
main: Final = _COMMAND.main
