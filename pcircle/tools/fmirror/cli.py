"""The command-line options of fmirror, which `pcircle.tools.fmirror.options` interprets."""

from __future__ import annotations

import argparse
from typing import Final

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
Make directory B identical to directory A, in parallel: copy what differs.

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
    "-P": "on a terminal progress is shown, and --resume continues",
    "--partial": "--resume continues after an interruption",
    "--stats": "-v has statistics, --json all counts",
    "--bufsize": "in dsync this is the buffer size; --chunksize sets the size of a copy unit",
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
    add = add_output(p, "list changes, as -i does").add_argument
    add("--dry-run", action="store_true", help="show what would be done (-v: list entries)")
    add("--plan", metavar="FILE", help="write a plan for --apply instead of changing B")
    add("--apply", metavar="FILE", help="carry out a plan, skipping entries that have changed")
    add("-i", "--itemize", action="store_true", help="list changes in the format of rsync -i")
    add_records(add, "copied")
    add_signature(add)


def _add_what(p: argparse.ArgumentParser) -> None:
    add = p.add_argument_group("Comparison and attributes").add_argument
    add("-c", "--checksum", action="store_true", help="compare file contents, not times")
    add("--size-only", action="store_true", help="treat files of the same size as unchanged")
    add("-I", "--ignore-times", action="store_true", help="copy all files, even unchanged ones")
    add("--ctime", action="store_true", help="compare contents of files whose change time is new")
    add("--modify-window", metavar="T", help="treat times that differ by at most T as equal")
    add(
        "--changed",
        choices=("walk", "fs", "auto"),
        default="walk",
        help="find changes by a walk (default) or from the file system",
    )
    add("--since-manifest", metavar="FILE", help="read a manifest of B by fsum instead of B itself")
    add("--new-manifest", metavar="FILE", help="write the manifest of B for the next run")
    add("--changed-from", metavar="FILE", help="examine only the paths listed in FILE (-: stdin)")
    add("--full-every", metavar="T", help="examine everything if the last full run is older than T")
    add("-u", "--update", action="store_true", help="skip files that are newer in B")
    add("--existing", action="store_true", help="skip creating new entries in B")
    add("--ignore-existing", action="store_true", help="skip updating existing entries in B")
    text = "skip directories without files to copy"
    add("-m", "--prune-empty-dirs", action="store_true", help=text)
    text = "hard-link unchanged entries from DIR (repeatable)"
    add("--link-dest", metavar="DIR", action="append", help=text)
    text = "skip entries that are unchanged in DIR (repeatable)"
    add("--compare-dest", metavar="DIR", action="append", help=text)
    text = "copy contents from DIR if they are the same (repeatable)"
    add("--copy-dest", metavar="DIR", action="append", help=text)
    text = "like --copy-dest, but share blocks with DIR (repeatable)"
    add("--reflink-dest", metavar="DIR", action="append", help=text)
    add("--moved", action="store_true", help="rename entries in B that were moved in A")
    add("-a", "--archive", action="store_true", help="keep everything (default)")
    add_preserve(add, "all")
    add("-x", "--one-file-system", action="store_true", help="stay on one file system")
    add("--verify", action="store_true", help="read each copy back from disk and compare")
    add("--fsync", action="store_true", help="flush to disk before reporting success")


def _add_owners(p: argparse.ArgumentParser) -> None:
    add = p.add_argument_group("Owners and modes in B").add_argument
    add("--chown", metavar="USER:GROUP", help="set the owner and group of all entries")
    add("--chmod", metavar="MODES", action="append", help="change modes as in rsync: D2775,Fo-w")
    add("--usermap", metavar="FROM:TO,...", help="map users, also in access control lists")
    add("--groupmap", metavar="FROM:TO,...", help="map groups, also in access control lists")
    add("--numeric-ids", action="store_true", help="keep numeric user and group IDs (default)")


def _add_deletions(p: argparse.ArgumentParser) -> None:
    add = p.add_argument_group("Deletions").add_argument
    add(
        "--delete",
        action=OptionalValue,
        choices=("after", "before", "during"),
        metavar="WHEN",
        help="delete from B what A lacks: at the end (default; after or before), or during",
    )
    add("--delete-excluded", action="store_true", help="delete excluded entries as well")
    add("--protect", action="append", metavar="GLOB", help="never delete entries that match GLOB")
    add("--max-delete", metavar="N", help="delete nothing if more than N (or N%%) would be deleted")
    add("--ignore-errors", action="store_true", help="delete even if part of A could not be read")
    add("--allow-empty", action="store_true", help="allow an empty A (normally refused)")
    add(
        "--allow-foreign",
        action="store_true",
        help="allow an A that is not the source of the last run",
    )
    add(
        "--allow-moved",
        action="store_true",
        help="allow deletions after files were moved from A to B",
    )
    text = "remove files from A after their copies are verified"
    add("--remove-source-files", action="store_true", help=text)
    add(
        "--move",
        action="store_true",
        help="like --remove-source-files, and remove empty directories",
    )
    add("--backup-dir", metavar="DIR", help="move replaced and deleted entries into DIR")
    add(
        "--snapshot",
        action=OptionalValue,
        metavar="NAME",
        help="make a new tree B/NAME (default: the time) with hard links",
    )
    add("--keep", metavar="LIST", help="snapshots to retain: 7d,4w,12m")
    add("--state-dir", metavar="DIR", help="directory for the state of runs (default: next to B)")


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
parser: Final = _COMMAND.parser
main: Final = _COMMAND.main
bare: Final = _COMMAND.bare
