"""The options of fbench; `pcircle.tools.fbench.command` interprets them."""

from __future__ import annotations

import argparse
from typing import Final

from pcircle.cli.arguments import Parser, add_syslog, add_transport, add_version
from pcircle.cli.shell import ToolCommand
from pcircle.tools.fbench.plan import BACKENDS, CASES, PAPER_CASES

USAGE = """\
fbench [OPTION]... DIR
       fbench papers [OPTION]... DIR
       fbench make [OPTION]... DIR
       fbench corrupt --made FILE [OPTION]... DIR"""

DESCRIPTION = """\
Measure the file system that contains DIR: the speed of blocking calls and of
many concurrent operations. fbench works in a temporary directory below DIR,
which it removes at the end."""

EPILOG = """\
Sizes: 4096, 64k, 1M, 1MiB, 2GB.

Cases: random and stream write and read files block by block; overlap measures
the cost of computing on each block; metadata measures create, stat, unlink and
other operations on names; blocking measures how long a submission blocks;
continuation varies the work after each block.

fbench papers runs the measurements of the papers on PXFS (Snyder 2013; Yang
and others 2014): case1, case2, case3, sweep, latency, submission and
continuation on one client; small and large on many. All except continuation
use the papers' block sizes.

fbench make creates a tree in a new or empty DIR, and fbench corrupt writes
wrong bytes into a copy of such a tree. Both write a record of their actions.

A client is a process. There is one client, or --jobs clients; under mpirun or
srun, one or --jobs for each rank.

Exit codes: 0 success; 1 a case failed; 2 refused; 4 stopped early; 70 internal
error; 130 and 143 interrupted.

Examples:
  fbench /scratch
  fbench --case random --block-size 16k --files 8 /scratch
  fbench make --seed 7 --shape files=500,names=odd --record made /tmp/tree
  mpirun -np 8 fbench --json result.json /scratch"""


def _add(p: Parser) -> None:
    add = p.add_argument_group("Measurement").add_argument
    add(
        "--case",
        action="append",
        choices=tuple(dict.fromkeys((*CASES, *PAPER_CASES))),
        metavar="CASE",
        help="measure this case (repeatable; default: all)",
    )
    add(
        "--backend",
        action="append",
        choices=BACKENDS,
        help="measure this backend (repeatable; default: both)",
    )
    add = p.add_argument_group("Performance").add_argument
    add(
        "-j",
        "--jobs",
        "--clients",
        metavar="N",
        help="clients, or clients per MPI rank (default: 1)",
    )
    add_transport(add)
    add("--threads", metavar="N", help="threads per client (default: adaptive)")
    add("--files", metavar="N", help="files per client (default: 4; papers: 5)")
    add("--blocks", metavar="N", help="blocks per file (default: 64; papers: 100)")
    add("--block-size", metavar="SIZE", default="1M", help="size of a block (default: 1M)")
    add = p.add_argument_group("Test trees").add_argument
    add("--seed", metavar="N", help="seed of the tree or of the damage (default: 0)")
    add("--shape", metavar="LIST", help="shape of the tree: files=1000,depth=5,size=64k and others")
    add("--made", metavar="FILE", help="the record of the tree to corrupt")
    add("--changes", metavar="N", help="number of files to corrupt (default: 10)")
    add("--record", metavar="FILE", help="write the record to FILE (default: standard output)")
    output = p.add_argument_group("Output")
    add = output.add_argument
    add("-q", "--quiet", action="store_true", help="report failures only")
    add("--json", metavar="FILE", help="write the figures as JSON (-: standard output)")
    add("--plot", metavar="FILE", help="write a .png, .svg or .pdf (requires matplotlib)")
    add_syslog(add)
    add_version(output, p.prog)


def _carry_out(args: argparse.Namespace) -> int:
    from pcircle.tools.fbench.command import bench_typed

    return bench_typed(args)


_MOST_USED = (
    "--case",
    "-j",
    "--threads",
    "--files",
    "--blocks",
    "--block-size",
    "--backend",
    "-q",
    "--json",
    "--plot",
)
_COMMAND = ToolCommand(
    "fbench", "DIR", USAGE, DESCRIPTION, EPILOG, _add, _carry_out, most_used=_MOST_USED
)
parser: Final = _COMMAND.parser
main: Final = _COMMAND.main
