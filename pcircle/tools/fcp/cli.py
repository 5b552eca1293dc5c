"""The command line of fcp; `pcircle.tools.common.copy_program` runs it."""

from __future__ import annotations

import argparse
from typing import Final

from pcircle.cli.arguments import notes
from pcircle.cli.shell import ToolCommand
from pcircle.tools.common.copy_options import joined
from pcircle.tools.fcp.options import FcpOptions

DESCRIPTION = """\
Copy files and directory trees in parallel, on one machine or on many nodes.

As with cp, SRC is copied into DST if DST is an existing directory; otherwise
DST becomes the copy. Several sources require an existing directory.
Directories are copied recursively. An existing file is replaced atomically
once its copy is complete."""

EPILOG = notes(
    "fcp",
    """\
Exit codes: 0 success; 1 some entries failed, each one named; 2 refused before
anything was changed; 3 --verify found a copy that differs; 4 stopped early
(no space, a time limit, a lost rank); 70 internal error; 130, 143 interrupted.

Examples:
  fcp data /scratch/data
  mpirun -np 8 fcp -p --resume -T data /scratch/data
  fcp -a --verify data /archive/data
  fcp -p --exclude '*.tmp' --error-log errors.json data /backup""",
)


# Options of mirroring tools, for which a hint names fmirror.
_OF_MIRRORS = (
    "--backup-dir",
    "--compare-dest",
    "--copy-dest",
    "--del",
    "--delete",
    "--delete-after",
    "--delete-before",
    "--delete-delay",
    "--delete-during",
    "--delete-excluded",
    "--link-dest",
    "--max-delete",
    "--mirror",
    "--remove-source-files",
)


_MIRROR = "fmirror makes one directory identical to another"
_BACKUP = "fmirror --backup-dir keeps what it replaces"
_ELSEWHERE = {
    "-i": "fcp never prompts; -n keeps existing files",
    "-z": "fcp sends no data over the network, so there is nothing to compress",
    "-l": "in cp this makes links; fmirror --link-dest links unchanged files",
    "--partial": "--resume continues after an interruption",
    "-b": _BACKUP,
    "--backup": _BACKUP,
    "--no-preserve": "without -p, -a and --preserve no attributes are kept",
    "--parents": "--files-from copies the listed paths with their directories",
    "--bufsize": "in dcp this is the buffer size; --chunksize sets the size of a copy unit",
}
"""Hints for options of cp, rsync and dcp that fcp does not have."""


def _carry_out(args: argparse.Namespace) -> int:
    from pcircle.tools.common.copy_program import run_copy

    options = FcpOptions.of(args)
    return run_copy(options.with_jobs_for(options.sources))


_USAGE = "fcp [OPTION]... SRC... DST"
_MOST_USED = (
    "-a",
    "-p",
    "-T",
    "-u",
    "--skip-same",
    "--resume",
    "--verify",
    "--exclude",
    "--dry-run",
    "-j",
)
_COMMAND = ToolCommand(
    "fcp",
    "SRC... DST",
    _USAGE,
    DESCRIPTION,
    EPILOG,
    FcpOptions.add_to,
    _carry_out,
    joined=joined,
    most_used=_MOST_USED,
    elsewhere=_ELSEWHERE | dict.fromkeys(_OF_MIRRORS, _MIRROR),
)
parser: Final = _COMMAND.parser
main: Final = _COMMAND.main
