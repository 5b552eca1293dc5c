"""The options of frm; `pcircle.tools.frm.command` interprets them."""

from __future__ import annotations

import argparse
from typing import Final

from pcircle.cli.arguments import (
    POLITE,
    Parser,
    add_actions,
    add_filters,
    add_plans,
    add_safety,
    notes,
)
from pcircle.cli.shell import ToolCommand

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
    add = p.add_argument_group("Removal").add_argument
    add("-r", "-R", "--recursive", action="store_true", help="remove directories, contents first")
    add("-f", "--force", action="store_true", help="ignore a PATH that does not exist")
    add("-d", "--dir", action="store_true", help="remove empty directories")
    add("-i", dest="ask", action="store_true", help="refused, since frm never prompts; use --plan")
    add("-I", dest="ask", action="store_true", help="refused, like -i")
    add("--keep-root", action="store_true", help="empty each PATH, but keep PATH itself")
    add("--trash", metavar="DIR", help="move each PATH into DIR, on the same file system")
    add("--empty-trash", metavar="DIR", help="remove the entries that --trash has moved into DIR")
    add(
        "--empty-dirs", action="store_true", help="remove only directories that are or become empty"
    )
    add("--keep-times", action="store_true", help="restore the times of remaining directories")
    add("--force-modes", action="store_true", help="add u+rwx to directories where required")
    add("--cross-mounts", action="store_true", help="enter other file systems and bind mounts")
    add("-x", "--one-file-system", action="store_true", help="stay on one file system (default)")
    add_plans(add)
    add("--bytes", action="store_true", help="report the bytes freed (looks up each file)")
    add("--dry-run", action="store_true", help="show what would be done (-v: list entries)")
    add_filters(p, "PATH")
    add_safety(p)
    add_actions(p, "removed")


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
    "frm", "PATH...", USAGE, DESCRIPTION, EPILOG, _add, _carry_out, POLITE, most_used=_MOST_USED
)
parser: Final = _COMMAND.parser
main: Final = _COMMAND.main
