"""The options of fcp; `pcircle.tools.fcp.command` interprets them."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Final

from pcircle.cli.arguments import (
    Parser,
    add_filters,
    add_output,
    add_performance,
    add_records,
    add_recursive,
    add_safety,
    notes,
)
from pcircle.cli.shell import ToolCommand
from pcircle.tools.common.copy_arguments import (
    BARE,
    BARE_PRESERVE,
    add_checkpoint,
    add_copying,
    add_preserve,
    add_signature,
    joined,
)

DESCRIPTION = """\
Copy files and directory trees in parallel, on one machine or on many nodes.

As with cp, SRC is copied into DST if DST is an existing directory; otherwise
DST becomes the copy. Several sources require an existing directory.
Directories are copied recursively. Each existing file is replaced atomically,
when its copy is complete."""

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
_ELSEWHERE = {
    "-i": "fcp never prompts; -n keeps existing files",
    "-z": "fcp sends no data over the network, so there is nothing to compress",
    "-l": "in cp this makes links; fmirror --link-dest links unchanged files",
    "--partial": "--resume continues after an interruption",
    "--bufsize": "in dcp this is the buffer size; --chunksize sets the size of a copy unit",
}
"""Hints for options of cp, rsync and dcp that fcp does not have."""


def _add(p: Parser) -> None:
    p.elsewhere = _ELSEWHERE | dict.fromkeys(_OF_MIRRORS, _MIRROR)
    _add_what(p)
    add_filters(p, "SRC")
    add_safety(p)
    _add_existing(p)
    add_checkpoint(p)
    add_copying(add_performance(p).add_argument)
    add = add_output(p, "list copied entries").add_argument
    add_records(add, "copied")
    add_signature(add)


def _add_what(p: argparse.ArgumentParser) -> None:
    add = p.add_argument_group("Source and destination").add_argument
    add_recursive(add, "-r", "-R")
    add("-t", "--target-directory", metavar="DIR", help="copy all sources into DIR")
    add(
        "-T",
        "--no-target-directory",
        action="store_true",
        help="copy to DST itself, even if it is a directory",
    )
    add(
        "-a",
        "--archive",
        action="store_true",
        help="--preserve=all, and copy FIFOs, sockets and devices",
    )
    bare = BARE_PRESERVE
    add("-p", dest="preserve", action="append_const", const=bare, help=f"like --preserve={bare}")
    add_preserve(add, "like -p")
    add("--retry-from", metavar="ERRORLOG", help="copy only the failed entries logged in ERRORLOG")
    _add_links(add)
    add("--verify", action="store_true", help="read each copy back from disk and compare")
    add("--dry-run", action="store_true", help="show what would be done (-v: list entries)")


def _add_links(add: Callable[..., object]) -> None:
    add(
        "-P",
        "--no-dereference",
        dest="links",
        action="store_const",
        const="none",
        default="none",
        help="copy symbolic links as links (default)",
    )
    add(
        "-L",
        "--dereference",
        dest="links",
        action="store_const",
        const="all",
        help="follow all symbolic links",
    )
    add(
        "-H",
        dest="links",
        action="store_const",
        const="operands",
        help="follow only symbolic links given as SRC",
    )
    add("-x", "--one-file-system", action="store_true", help="stay on one file system")


def _add_existing(p: argparse.ArgumentParser) -> None:
    add = p.add_argument_group("Existing files").add_argument
    add(
        "-f",
        "--force",
        action="store_true",
        help="with --inplace, replace files that cannot be opened",
    )
    add(
        "-n",
        "--no-clobber",
        action="store_true",
        help="never overwrite; overrides -u and -f",
    )
    add("-u", "--update", action="store_true", help="overwrite only older files")
    add(
        "--skip-same",
        action="store_true",
        help="skip files of equal size and modification time (with -p)",
    )
    add("--inplace", action="store_true", help="write into existing files (not atomic)")
    add("--fsync", action="store_true", help="flush to disk before reporting success")


def _carry_out(args: argparse.Namespace) -> int:
    from pcircle.tools.fcp.command import copy_typed

    return copy_typed(args)


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
    _add,
    _carry_out,
    BARE,
    joined,
    most_used=_MOST_USED,
)
parser: Final = _COMMAND.parser
main: Final = _COMMAND.main
