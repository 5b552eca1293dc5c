"""The command line of the scaling simulator; `pcircle.tools.scale.command` runs it."""

from __future__ import annotations

import argparse
from typing import Final

from pcircle.cli.arguments import ToolCommand
from pcircle.tools.scale.options import ScaleOptions

USAGE = "pcircle scale [OPTION]..."

DESCRIPTION = """\
Predict how a task scales: simulate how pcircle's processes share the work of a
tree of files, without touching any file system. One core simulates a hundred
thousand ranks on ten million items in minutes."""

EPILOG = """\
Numbers of files and ranks: 4096, 10000, 1e9. --ranks prints a row per number.

Shapes: files is a tree of --dirs directories of all sizes with --files files;
balanced, geometric and flat are trees of --items items for comparisons.

Efficiency is the work divided by time and ranks; "of ideal" compares the time
with that of a single queue for all ranks without message costs.

Exit codes: 0 success; 2 refused; 70 internal error.

Examples:
  pcircle scale --ranks 4096 --files 1e9 --stat-us 400
  pcircle scale --ranks 64,512,4096 --files 2e7 --dirs 1e5
  pcircle scale --shape flat --ranks 1000 --items 1e4 --item-ms 100
  pcircle scale --network infiniband --look-ms 4 --json scale.json"""


def _carry_out(args: argparse.Namespace) -> int:
    from pcircle.tools.scale.command import scale_typed

    return scale_typed(args)


_COMMAND = ToolCommand(
    "pcircle scale", "", USAGE, DESCRIPTION, EPILOG, ScaleOptions.add_to, _carry_out
)
parser: Final = _COMMAND.parser
main: Final = _COMMAND.main
