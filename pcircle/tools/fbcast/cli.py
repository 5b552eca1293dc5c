"""The command line of fbcast; `pcircle.tools.fbcast.command` runs it."""

from __future__ import annotations

import argparse
from typing import Final

from pcircle.cli.arguments import LAUNCH, ToolCommand
from pcircle.tools.fbcast.options import BroadcastOptions

USAGE = "fbcast [OPTION]... SRC... DST"

DESCRIPTION = """\
Copy files and trees to the directory DST of every node, such as /dev/shm or a
local disk. SRC is read once, by the first process, and sent from node to node.
Each SRC appears under its name on all nodes, or on none. Modes, owners, times
and links are kept. A symbolic link given as SRC is followed."""

EPILOG = f"""\
The first process of each node acts for the node. {{host}} in DST is replaced by
the name of the node. With {{rank}} in DST, each process acts for itself, and
{{rank}} is replaced by its number: use /disk{{rank}} for several local disks.

The decision to publish the copies is recorded in a directory that all nodes
share. After an interruption, run the same command again: it completes or
removes unfinished copies on all nodes.

Sizes: 4096, 64k, 1M, 1MiB, 2GB. Durations: 30, 0.5s, 5m, 2h.

{LAUNCH.format(tool="fbcast")}

Exit codes: 0 success; 1 some nodes failed, each one named; 2 refused;
3 some nodes differ; 4 stopped early, nothing published; 70 internal error;
130 and 143 interrupted.

Examples:
  mpirun -np 8 fbcast env /dev/shm
  mpirun -np 8 fbcast --update --partial env /dev/shm
  mpirun -np 8 fbcast --check env /dev/shm
  mpirun -np 8 fbcast --remove env /dev/shm"""


def _carry_out(args: argparse.Namespace) -> int:
    from pcircle.tools.fbcast.command import broadcast_typed

    return broadcast_typed(args)


_MOST_USED = (
    "-u",
    "-f",
    "-n",
    "--check",
    "--remove",
    "--partial",
    "--timeout",
    "--bwlimit",
    "-q",
    "--json",
)
_COMMAND = ToolCommand(
    "fbcast",
    "SRC... DST",
    USAGE,
    DESCRIPTION,
    EPILOG,
    BroadcastOptions.add_to,
    _carry_out,
    most_used=_MOST_USED,
)
parser: Final = _COMMAND.parser
main: Final = _COMMAND.main
