"""The command line of fsum: what was typed. What it means is `pcircle.fsum.command`'s affair."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from pcircle import __version__
from pcircle.transport.launch import detect
from pcircle.ui.arguments import Parser, add_filters, add_launch, add_said, run

USAGE = """\
fsum [OPTION]... PATH...
       fsum -o MANIFEST PATH
       fsum --check|--update|--rot MANIFEST [ROOT]
       fsum --diff OLD NEW"""

DESCRIPTION = """\
Print one signature for each PATH, of all names, kinds and contents below it.

The signature is the same however many processes read, and equal for equal trees; owners,
times and holes do not matter. It is what fcp -s prints of a copy. A symbolic link given
as PATH is followed, others are signed as links."""

EPILOG = """\
Sizes are 4096, 64k, 1M, 1MiB or 2GB; durations 30, 0.5s, 5m or 2h.

Without MPI, fsum starts its own processes on this machine: one per core up to 8, or
--jobs. Under mpirun or srun it uses theirs: mpirun -np 8 fsum PATH.

Exit codes: 0 all signed; 1 some entries could not be read, each one named, and what holds
them has no signature; 2 refused; 3 a check found differences; 4 stopped early (no space, a
lost rank); 70 a defect of fsum; 130 and 143 interrupted."""


def parser() -> Parser:
    """The options of fsum."""
    p = Parser("fsum", USAGE, DESCRIPTION, EPILOG)
    p.add_argument("operands", nargs="*", metavar="PATH...", help=argparse.SUPPRESS)
    add = p.add_argument_group("which signature").add_argument
    add(
        "-a",
        "--algorithm",
        metavar="NAME",
        help="xxh128 (the default), sha256, sha512, blake2b or, if installed, blake3",
    )
    add(
        "--format",
        choices=("pcsig", "coreutils"),
        default="pcsig",
        help="coreutils: a line for each file, as sha256sum does; -a md5 and sha1, too",
    )
    add("-o", "--output", metavar="MANIFEST", help="write the digests of all entries there, too")
    add("-x", "--one-file-system", action="store_true", help="do not enter other file systems")
    add = p.add_argument_group(
        "what has changed", "ROOT is where the manifest was made, if it is not said."
    ).add_argument
    add("--check", metavar="MANIFEST", help="name what is not as the manifest says")
    add("--quick", action="store_true", help="so, but trust files of the same size and time")
    add("--strict", action="store_true", help="with --check: fail on bad lines of a checksum list")
    add("--update", metavar="MANIFEST", help="write it anew; only what has changed is read")
    add("--rot", metavar="MANIFEST", help="name files that nobody wrote to and that differ")
    add("--diff", nargs=2, metavar=("OLD", "NEW"), help="compare manifests, and read nothing else")
    add_filters(p, "PATH").add_argument(
        "-r", "--recursive", action="store_true", help="--files-from: directories with all below"
    )
    add = p.add_argument_group("how").add_argument
    add_launch(add)
    add("--threads", metavar="N", help="operations at once of each process; default: adapted")
    add("--chunksize", metavar="SIZE", help="fix the size of the chunks of large files")
    add_said(p.add_argument_group("what is said").add_argument, f"fsum {__version__}")
    return p


def main(arguments: Sequence[str] | None = None) -> int:
    """Run fsum; returns the exit code."""
    return run(parser, arguments, {}, _carry_out, speaks=not detect(os.environ).rank)


def _carry_out(typed: argparse.Namespace) -> int:
    from pcircle.fsum.command import sum_typed

    return sum_typed(typed)
