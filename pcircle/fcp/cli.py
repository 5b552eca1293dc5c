"""The command line of fcp: what was typed. What it means is `pcircle.fcp.command`'s affair."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence

from pcircle import __version__
from pcircle.transport.launch import detect
from pcircle.ui.arguments import Parser, add_filters, add_launch, add_said, run

BARE_PRESERVE = "mode,ownership,timestamps"

DESCRIPTION = """\
Copy files and whole trees on many processors or nodes at once.

Where the copies go follows cp: an existing directory DST takes DST/basename(SRC);
otherwise DST becomes the copy; several sources need an existing directory.
Directories are copied with all that is in them. Existing files are replaced, each
at the moment its copy is complete."""

EPILOG = """\
Sizes are 4096, 64k, 1M, 1MiB or 2GB; durations 30, 0.5s, 5m or 2h.

Without MPI, fcp starts its own processes on this machine: one per core up to 8, or
--jobs. Under mpirun or srun it uses theirs: mpirun -np 8 fcp SRC DST.

Exit codes: 0 all copied; 1 some entries failed, each one named; 2 refused, nothing was
touched; 3 --verify found a copy that differs; 4 stopped early (no space, a lost rank);
70 a defect of fcp; 130 and 143 interrupted."""


def parser() -> Parser:
    """The options of fcp."""
    p = Parser("fcp", "fcp [OPTION]... SRC... DST", DESCRIPTION, EPILOG)
    p.add_argument("operands", nargs="*", metavar="SRC... DST", help=argparse.SUPPRESS)
    _add_what(p)
    add_filters(p, "SRC")
    _add_existing(p)
    _add_checkpoint(p)
    add = p.add_argument_group("how").add_argument
    add_launch(add)
    add("--threads", metavar="N", help="operations at once of each process; default: adapted")
    add("--chunksize", metavar="SIZE", help="fix the size of the chunks of large files")
    when = ("auto", "always", "never")
    add(
        "--reflink",
        choices=when,
        default="auto",
        help="share blocks with the source if possible; or else fail (bare --reflink); or never",
    )
    add(
        "--sparse",
        choices=when,
        default="auto",
        help="keep holes as they are; make holes of zeros, too; or fill them",
    )
    add(
        "--stripe",
        metavar="COUNT[:SIZE]",
        help="Lustre layout of new files; all: on every target; or keep, or default",
    )
    add("--bwlimit", metavar="RATE", help="bytes copied in a second, by all processes together")
    add("--ops-limit", metavar="N", help="metadata operations in a second, so as well")
    add = p.add_argument_group("what is said").add_argument
    add_said(add, f"fcp {__version__}")
    add(
        "-s",
        "--signature",
        metavar="ALGORITHM",
        help="sign what was copied: xxh128 (bare), sha256, sha512, blake2b, blake3",
    )
    return p


def _add_what(p: argparse.ArgumentParser) -> None:
    add = p.add_argument_group("where and what").add_argument
    add("-r", "-R", "--recursive", action="store_true", help="--files-from: with all below")
    add("-t", "--target-directory", metavar="DIR", help="copy all SRC into DIR")
    add("-T", "--no-target-directory", action="store_true", help="DST is the copy itself")
    add(
        "-a",
        "--archive",
        action="store_true",
        help="everything: --preserve=all, and FIFOs, sockets and devices",
    )
    bare = BARE_PRESERVE
    add("-p", dest="preserve", action="append_const", const=bare, help=f"as --preserve={bare}")
    add(
        "--preserve",
        metavar="LIST",
        action="append",
        help="keep these, of mode,ownership,timestamps,xattr,acl,links,stripe,all; "
        "without =LIST as -p",
    )
    add("--retry-from", metavar="ERRORLOG", help="only the entries that failed, as logged there")
    _add_links(add)
    add("--verify", action="store_true", help="read each copy from disk again, and compare")
    add("--dry-run", action="store_true", help="say what would be done (-v: of each entry)")


def _add_checkpoint(p: argparse.ArgumentParser) -> None:
    add = p.add_argument_group("interrupted copies").add_argument
    add("--resume", action="store_true", help="go on from the checkpoint; without one, begin")
    add("--restart", action="store_true", help="discard the checkpoint and begin anew")
    add("--checkpoint-interval", metavar="T", help="between checkpoints; default: 60 s")
    add("--checkpoint-dir", metavar="DIR", help="keep it there and not beside the copy")
    add("--no-checkpoint", action="store_true", help="keep none")


def _add_links(add: Callable[..., object]) -> None:
    add(
        "-P",
        "--no-dereference",
        dest="links",
        action="store_const",
        const="none",
        default="none",
        help="copy symbolic links as links (the default)",
    )
    add(
        "-L",
        "--dereference",
        dest="links",
        action="store_const",
        const="all",
        help="copy what symbolic links lead to",
    )
    add(
        "-H",
        dest="links",
        action="store_const",
        const="operands",
        help="so for those given as SRC only",
    )
    add("-x", "--one-file-system", action="store_true", help="do not enter other file systems")


def _add_existing(p: argparse.ArgumentParser) -> None:
    add = p.add_argument_group("what exists in DST").add_argument
    add("-f", "--force", action="store_true", help="--inplace: remove what can't be opened")
    add("-n", "--no-clobber", action="store_true", help="keep it; -u and -f then do nothing")
    add("-u", "--update", action="store_true", help="replace it if it is older")
    add("--skip-same", action="store_true", help="keep files of equal size and time (with -p)")
    add("--inplace", action="store_true", help="write into existing files; not atomic")
    add("--fsync", action="store_true", help="all is on disk before success is reported")


# A value that may be left out is given only with `=`.
_BARE = {
    "--preserve": f"--preserve={BARE_PRESERVE}",
    "--reflink": "--reflink=always",
    "--signature": "--signature=xxh128",
    "-s": "-sxxh128",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run fcp; returns the exit code."""
    speaks = not detect(os.environ).rank
    return run(parser, arguments, _BARE, _carry_out, speaks=speaks, joined=_joined)


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
