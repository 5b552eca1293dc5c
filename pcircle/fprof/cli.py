"""The command line of fprof: what was typed. What it means is `pcircle.fprof.command`'s affair."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from pcircle import __version__
from pcircle.transport.launch import detect
from pcircle.ui.arguments import Parser, add_filters, add_launch, add_said, run

USAGE = """\
fprof [OPTION]... PATH...
       fprof --save FILE [OPTION]... PATH...
       fprof --merge [OPTION]... FILE...
       fprof --diff OLD NEW"""

DESCRIPTION = """\
Tell what is in file systems: how many entries of which kind and size, and on request of
which age, owner and extension, where, and what it would take to store them elsewhere.

Files of several names count once in bytes. A symbolic link given as PATH is followed, no
other one is."""

EPILOG = """\
Sizes are 4096, 64k, 1M, 1MiB or 2GB; durations 30, 0.5s, 5m or 2h.

Without MPI, fprof starts its own processes on this machine: one per core up to 8, or
--jobs. Under mpirun or srun it uses theirs: mpirun -np 8 fprof PATH.

Exit codes: 0 all told; 1 some entries could not be looked at, each one named; 2 refused;
4 stopped early (no space, a lost rank); 70 a defect of fprof; 130 and 143 interrupted."""

BARE = {
    "--compress": "--compress=1024",
}
"""Options whose value may be left out, and what that means."""


def parser() -> Parser:
    """The options of fprof."""
    p = Parser("fprof", USAGE, DESCRIPTION, EPILOG)
    p.add_argument("operands", nargs="*", metavar="PATH...", help=argparse.SUPPRESS)
    add = p.add_argument_group("what is told").add_argument
    add(
        "--bins",
        metavar="LIST",
        help="edges of the histogram of sizes: 4k,1M,1G or log2 or pow4",
    )
    add("--by", action="append", metavar="WHAT", help="also by age, owner, group, ext, depth or "
        "dirsize; a list, or the option again")  # fmt: skip
    add("--top", metavar="N", help="also the N largest, newest and oldest files, and the N "
        "directories that hold most")  # fmt: skip
    add(
        "--blocks",
        metavar="LIST",
        help="the space that files would take in blocks of each SIZE, or SIZE/SUBBLOCK",
    )
    add("--data-in-inode", metavar="SIZE", help="files up to SIZE would take no blocks")
    add("--sparse", action="store_true", help="files with holes, and what compression saves now")
    add("--stripe", action="store_true", help="the Lustre layouts of files")
    add(
        "--compress",
        metavar="SAMPLE",
        help="how well files would compress, from that many pieces of them; with =; default: 1024",
    )
    add("-x", "--one-file-system", action="store_true", help="do not enter other file systems")
    add_filters(p, "PATH")
    add = p.add_argument_group("where it is told").add_argument
    add("--save", metavar="FILE", help="keep the profile there, with all that fprof can tell")
    add("--html", metavar="FILE", help="a page with charts and a treemap, complete in itself")
    add("--plot", metavar="FILE", help="a picture, .png, .svg or .pdf; needs matplotlib")
    add("--csv", metavar="DIR", help="the tables as CSV files in DIR")
    add = p.add_argument_group("of kept profiles").add_argument
    add("--merge", action="store_true", help="tell of what is in these FILEs together")
    add("--diff", nargs=2, metavar=("OLD", "NEW"), help="tell what has grown and shrunk")
    add = p.add_argument_group("how").add_argument
    add_launch(add)
    add("--threads", metavar="N", help="operations at once of each process; default: adapted")
    add_said(p.add_argument_group("what is said").add_argument, f"fprof {__version__}")
    return p


def main(arguments: Sequence[str] | None = None) -> int:
    """Run fprof; returns the exit code."""
    return run(parser, arguments, BARE, _carry_out, speaks=not detect(os.environ).rank)


def _carry_out(typed: argparse.Namespace) -> int:
    from pcircle.fprof.command import profile_typed

    return profile_typed(typed)
