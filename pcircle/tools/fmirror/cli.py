"""The command-line options of fmirror, which `pcircle.tools.fmirror.options` interprets."""

from __future__ import annotations

import argparse

from pcircle.cli.arguments import (
    OptionalValue,
    Parser,
    add_filters,
    add_output,
    add_performance,
    add_records,
    add_safety,
    notes,
)
from pcircle.cli.shell import ToolCommand
from pcircle.tools.common.copy_arguments import (
    BARE,
    add_checkpoint,
    add_copying,
    add_preserve,
    add_signature,
    joined,
)

DESCRIPTION = """\
Make directory B what directory A is, in parallel, at the price of what differs.

Files of the same size and modification time are taken to be the same; what has
changed is replaced atomically, and attributes alone are brought up to date in
place. Everything is kept, as with fcp -a. A and A/ are the same. With --delete
what A has not is removed from B: last of all, and only if all of A was read."""

EPILOG = notes(
    "fmirror",
    """\
Exit codes: 0 success; 1 some entries failed, or deletions were withheld;
2 refused before anything was touched; 3 --verify found a copy that differs;
4 stopped early (--max-delete, no space, a time limit, a lost rank);
70 internal error; 130 and 143 interrupted.

Examples:
  fmirror data /backup/data
  fmirror --delete --max-delete 10% data /backup/data
  mpirun -np 8 fmirror --delete --backup-dir /backup/old data /backup/data
  fmirror -c --verify data /archive/data""",
)


_ELSEWHERE = {
    "-n": "--dry-run shows what would be done",
    "-z": "nothing is sent over a network that could be compressed",
    "-D": "as of dsync: --delete",
    "-P": "on a terminal progress is shown, and --resume continues",
    "--partial": "--resume continues after an interruption",
    "--stats": "-v has statistics, --json all counts",
    "--bufsize": "as of dsync: --chunksize is how much is copied at once",
}
"""Hints for users of rsync and dsync."""


def _add(p: Parser) -> None:
    p.elsewhere = _ELSEWHERE
    _add_what(p)
    _add_owners(p)
    _add_deletions(p)
    add_filters(p, "A")
    add_safety(p)
    add_checkpoint(p)
    add_copying(add_performance(p).add_argument)
    add = add_output(p).add_argument
    add("--dry-run", action="store_true", help="show what would be done (-v: list entries)")
    add("--plan", metavar="FILE", help="change nothing, but write a plan for --apply")
    add("--apply", metavar="FILE", help="do what a plan lists, unless it has changed")
    add("-i", "--itemize", action="store_true", help="list changes in the columns of rsync -i")
    add_records(add, "copied")
    add_signature(add)


def _add_what(p: argparse.ArgumentParser) -> None:
    add = p.add_argument_group("What is compared and kept").add_argument
    add("-c", "--checksum", action="store_true", help="compare the content of files, not times")
    add("--size-only", action="store_true", help="take files of the same size to be the same")
    add("-I", "--ignore-times", action="store_true", help="copy all files, whatever is there")
    add("--ctime", action="store_true", help="read files whose change time is new, as with -c")
    add("--modify-window", metavar="T", help="take times at most T apart to be the same")
    add(
        "--changed",
        choices=("walk", "fs", "auto"),
        default="walk",
        help="look at all, at what the file system tells, or so if proven",
    )
    add("--since-manifest", metavar="FILE", help="read fsum's manifest of B, and not B itself")
    add("--new-manifest", metavar="FILE", help="write the manifest of B for the next run")
    add("--changed-from", metavar="FILE", help="look only at what FILE lists (-: stdin)")
    add("--full-every", metavar="T", help="look at all if the last time was longer ago (7d)")
    add("-u", "--update", action="store_true", help="leave files that are newer in B")
    add("--existing", action="store_true", help="make nothing that B lacks")
    add("--ignore-existing", action="store_true", help="leave all files that are in B")
    text = "leave out directories that hold no files, or only ones left out"
    add("-m", "--prune-empty-dirs", action="store_true", help=text)
    text = "link to unchanged entries in DIR what B lacks (repeatable)"
    add("--link-dest", metavar="DIR", action="append", help=text)
    text = "leave out what B lacks and DIR has unchanged (repeatable)"
    add("--compare-dest", metavar="DIR", action="append", help=text)
    text = "take content that DIR has from there, not from A (repeatable)"
    add("--copy-dest", metavar="DIR", action="append", help=text)
    text = "as --copy-dest, sharing the blocks of DIR (repeatable)"
    add("--reflink-dest", metavar="DIR", action="append", help=text)
    add("--moved", action="store_true", help="rename in B what only has another path in A")
    add("-a", "--archive", action="store_true", help="keep everything (default)")
    add_preserve(add, "all")
    add("-x", "--one-file-system", action="store_true", help="stay on one file system")
    add("--verify", action="store_true", help="read back what was copied, and compare")
    add("--fsync", action="store_true", help="flush to disk before reporting success")


def _add_owners(p: argparse.ArgumentParser) -> None:
    add = p.add_argument_group("Owners and modes in B").add_argument
    add("--chown", metavar="USER:GROUP", help="give all entries to USER and GROUP, or to one")
    add(
        "--chmod", metavar="MODES", action="append", help="change modes, as with rsync (D2775,Fo-w)"
    )
    add("--usermap", metavar="FROM:TO,...", help="map users, also of access control lists")
    add("--groupmap", metavar="FROM:TO,...", help="map groups, also of access control lists")
    add("--numeric-ids", action="store_true", help="keep numbers of users and groups (default)")


def _add_deletions(p: argparse.ArgumentParser) -> None:
    add = p.add_argument_group("Deletions").add_argument
    add(
        "--delete",
        action=OptionalValue,
        choices=("after", "before", "during"),
        metavar="WHEN",
        help="remove from B what A has not, last of all (after, bare; before means the same) "
        "or in each directory when it was compared (during)",
    )
    add("--delete-excluded", action="store_true", help="remove what the filters leave out, too")
    add("--protect", action="append", metavar="GLOB", help="never remove what matches GLOB")
    add("--max-delete", metavar="N", help="if more than N (or N%%) would go, remove nothing")
    add("--ignore-errors", action="store_true", help="remove although some of A was not read")
    add("--allow-empty", action="store_true", help="do as A says also if A is empty")
    add("--allow-foreign", action="store_true", help="and if A is not what it was the last time")
    add("--allow-moved", action="store_true", help="and if files were moved from a source to B")
    text = "remove files from A when their copies were read back"
    add("--remove-source-files", action="store_true", help=text)
    add("--move", action="store_true", help="and directories of A that are empty then")
    add("--backup-dir", metavar="DIR", help="move what is replaced or removed into DIR")
    add(
        "--snapshot",
        action=OptionalValue,
        metavar="NAME",
        help="make B/NAME (bare: the time), linked to the last one where nothing changed",
    )
    add("--keep", metavar="LIST", help="of snapshots named by dates keep these, as in 7d,4w,12m")
    add("--state-dir", metavar="DIR", help="remember A's identity in DIR (default: beside B)")


def _carry_out(args: argparse.Namespace) -> int:
    from pcircle.tools.fmirror.phases import run_command

    return run_command(args)


_USAGE = "fmirror [OPTION]... A B\n       fmirror --apply PLAN [OPTION]..."
_BARE = BARE | {
    "--preserve": "--preserve=all",
    "--delete": "--delete=after",
    "--snapshot": "--snapshot=",
}
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
    _add,
    _carry_out,
    _BARE,
    joined,
    most_used=_MOST_USED,
)
parser, main, bare = _COMMAND.parser, _COMMAND.main, _COMMAND.bare
