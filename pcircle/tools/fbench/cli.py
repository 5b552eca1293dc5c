"""The command line of fbench; `pcircle.tools.fbench.command` runs it."""

from __future__ import annotations

import argparse
from typing import Final

from pcircle.cli.arguments import ToolCommand
from pcircle.tools.fbench.options import BenchOptions

USAGE = """\
fbench [OPTION]... DIR
       fbench papers [OPTION]... DIR
       fbench make [OPTION]... DIR
       fbench corrupt --made FILE [OPTION]... DIR"""

DESCRIPTION = """\
Measure the file system that contains DIR: the speed of blocking calls and of
many concurrent operations. fbench works in a temporary directory in DIR,
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
wrong bytes to a copy of such a tree. Both write a record of their actions.

A client is a process. There is one client, or --jobs clients; under mpirun or
srun, this is the number for each rank.

Exit codes: 0 success; 1 a case failed; 2 refused; 4 stopped early; 70 internal
error; 130 and 143 interrupted.

Examples:
  fbench /scratch
  fbench --case random --block-size 16k --files 8 /scratch
  fbench make --seed 7 --shape files=500,names=odd --record made /tmp/tree
  mpirun -np 8 fbench --json result.json /scratch"""


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
    "fbench",
    "DIR",
    USAGE,
    DESCRIPTION,
    EPILOG,
    BenchOptions.add_to,
    _carry_out,
    most_used=_MOST_USED,
)
parser: Final = _COMMAND.parser
main: Final = _COMMAND.main
