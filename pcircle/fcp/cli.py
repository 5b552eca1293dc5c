"""The command line of fcp: what was typed. What it means is `pcircle.fcp.command`'s affair."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from pcircle.tool.shell import Shell
from pcircle.ui.arguments import (
    Bare,
    Parser,
    add_filters,
    add_output,
    add_performance,
    add_records,
    add_recursive,
    add_stop,
    notes,
)

BARE_PRESERVE = "mode,ownership,timestamps"

DESCRIPTION = """\
Copy files and directory trees in parallel, on one machine or on many nodes.

As with cp, an existing directory DST takes DST/basename(SRC); otherwise DST
becomes the copy; several sources need an existing directory. Directories are
copied recursively. Existing files are replaced atomically, each when its copy
is complete."""

EPILOG = notes(
    "fcp",
    """\
Exit codes: 0 success; 1 some entries failed, each one named; 2 refused before
anything was touched; 3 --verify found a copy that differs; 4 stopped early
(no space, a time limit, a lost rank); 70 internal error; 130, 143 interrupted.

Examples:
  fcp data /scratch/data
  mpirun -np 8 fcp -p --resume -T data /scratch/data
  fcp -a --verify data /archive/data
  fcp -p --exclude '*.tmp' --error-log errors.json data /backup""",
)


def _add(p: Parser) -> None:
    _add_what(p)
    add_filters(p, "SRC")
    _add_existing(p)
    _add_checkpoint(p)
    add = add_performance(p).add_argument
    add("--chunksize", metavar="SIZE", help="chunk size of large files (default: adaptive)")
    when = ("auto", "always", "never")
    add(
        "--reflink",
        action=Bare,
        choices=when,
        default="auto",
        help="clone files if possible (auto), or fail (always, bare), or never",
    )
    add(
        "--sparse",
        choices=when,
        default="auto",
        help="keep holes (auto), turn zeros into holes (always), or fill holes",
    )
    add(
        "--stripe",
        metavar="COUNT[:SIZE]",
        help="Lustre layout of new files: COUNT, all, keep or default",
    )
    add("--bwlimit", metavar="RATE", help="bytes per second, all processes together")
    add(
        "--ops-limit",
        metavar="N",
        help="metadata operations per second, all processes together",
    )
    add = add_output(p).add_argument
    add_records(add, "copied")
    add(
        "-s",
        "--signature",
        action=Bare,
        metavar="ALGORITHM",
        help="print the signature of the copy: xxh128 (default), sha256, sha512, blake2b, blake3",
    )


class _BareList(Bare, argparse._AppendAction):
    """An option whose value may be left out, and that is given again for more."""

    __call__ = argparse._AppendAction.__call__


def _add_what(p: argparse.ArgumentParser) -> None:
    add = p.add_argument_group("Source and destination").add_argument
    add_recursive(add, "-r", "-R")
    add("-t", "--target-directory", metavar="DIR", help="copy all sources into DIR")
    add("-T", "--no-target-directory", action="store_true", help="make DST the copy itself")
    add(
        "-a",
        "--archive",
        action="store_true",
        help="--preserve=all, and copy FIFOs, sockets and devices",
    )
    bare = BARE_PRESERVE
    add("-p", dest="preserve", action="append_const", const=bare, help=f"like --preserve={bare}")
    add(
        "--preserve",
        metavar="LIST",
        action=_BareList,
        help="attributes to keep (default: as -p): mode, ownership, timestamps, xattr, acl, "
        "links, stripe, all",
    )
    add("--retry-from", metavar="ERRORLOG", help="copy only the failed entries logged in ERRORLOG")
    _add_links(add)
    add("--verify", action="store_true", help="read each copy back from disk and compare")
    add("--dry-run", action="store_true", help="show what would be done (-v: list entries)")


def _add_checkpoint(p: argparse.ArgumentParser) -> None:
    add = p.add_argument_group("Checkpoints").add_argument
    add("--resume", action="store_true", help="resume, or start if there is no checkpoint")
    add("--restart", action="store_true", help="discard the checkpoint and start over")
    add("--checkpoint-interval", metavar="T", help="checkpoint interval (default: 60 s)")
    add(
        "--checkpoint-dir",
        metavar="DIR",
        help="directory of the checkpoint (default: beside the copy)",
    )
    add("--no-checkpoint", action="store_true", help="write no checkpoint")
    add_stop(add)


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
        help="follow symbolic links given as SRC only",
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
    add("-u", "--update", action="store_true", help="overwrite older files only")
    add("--skip-same", action="store_true", help="skip files of equal size and time (with -p)")
    add("--inplace", action="store_true", help="write into existing files (not atomic)")
    add("--fsync", action="store_true", help="flush to disk before reporting success")


# A value that may be left out is given only with `=`.
_BARE = {
    "--preserve": f"--preserve={BARE_PRESERVE}",
    "--reflink": "--reflink=always",
    "--signature": "--signature=xxh128",
    "-s": "-sxxh128",
}


def _joined(arguments: Sequence[str]) -> Sequence[str]:
    """The arguments, with `--stripe` and a value of its own made one: -1 is like an option."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    if "--stripe" not in arguments[: end - 1]:
        return arguments
    at = arguments.index("--stripe")
    return [*arguments[:at], "=".join(arguments[at : at + 2]), *arguments[at + 2 :]]


def _carry_out(typed: argparse.Namespace) -> int:
    from pcircle.fcp.command import copy_typed

    return copy_typed(typed)


_USAGE = "fcp [OPTION]... SRC... DST"
_SHELL = Shell("fcp", "SRC... DST", _USAGE, DESCRIPTION, EPILOG, _add, _carry_out, _BARE, _joined)
parser, main = _SHELL.parser, _SHELL.main
