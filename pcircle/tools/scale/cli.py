"""The options of the scaling simulator; `pcircle.tools.scale.command` interprets them."""

from __future__ import annotations

import argparse
from typing import Final

from pcircle.cli.arguments import Parser, add_version
from pcircle.cli.shell import ToolCommand

SHAPES = ("files", "balanced", "geometric", "flat")
TIMES = ("uniform", "constant", "exponential")
NETWORKS = ("ethernet", "infiniband")

USAGE = "python -m pcircle.scale [OPTION]..."

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
  python -m pcircle.scale --ranks 4096 --files 1e9 --stat-us 400
  python -m pcircle.scale --ranks 64,512,4096 --files 2e7 --dirs 1e5
  python -m pcircle.scale --shape flat --ranks 1000 --items 1e4 --item-ms 100
  python -m pcircle.scale --network infiniband --look-ms 4 --json scale.json"""


def _add(p: Parser) -> None:
    add = p.add_argument_group("Task").add_argument
    add("--shape", choices=SHAPES, default="files", help="shape of the tree (default: files)")
    add("--files", metavar="N", help="number of files (default: 1e6)")
    add("--dirs", metavar="N", help="number of directories (default: files / 100)")
    add("--batch", metavar="N", default="300", help="entries per item (default: 300)")
    add("--stat-us", metavar="T", default="100", help="microseconds per entry (default: 100)")
    add("--items", metavar="N", help="other shapes: items (default: 100 per rank)")
    add("--item-ms", metavar="T", help="other shapes: mean item time (default: 100)")
    add(
        "--times", choices=TIMES, default="uniform", help="distribution of times (default: uniform)"
    )
    add = p.add_argument_group("Machine").add_argument
    add("--ranks", metavar="N,...", default="64", help="numbers of ranks to simulate (default: 64)")
    add("--ranks-per-node", metavar="N", default="64", help="ranks per node (default: 64)")
    add("--network", choices=NETWORKS, default="ethernet", help="latencies (default: ethernet)")
    add("--latency-us", metavar="T", help="latency between nodes (ethernet: 40, infiniband: 3)")
    add("--message-us", metavar="T", default="20", help="time to handle a message (default: 20)")
    add(
        "--look-ms",
        metavar="T",
        default="0",
        help="delay until a busy rank sees a message (default: 0)",
    )
    add("--policies", metavar="KEY=VALUE,...", default="", help="how ranks share their work")
    output = p.add_argument_group("Output")
    add = output.add_argument
    add("--seed", metavar="N", default="1", help="seed of all random numbers (default: 1)")
    add("--json", metavar="FILE", help="write the figures as JSON (-: standard output)")
    add_version(output, p.prog)


def _carry_out(args: argparse.Namespace) -> int:
    from pcircle.tools.scale.command import scale_typed

    return scale_typed(args)


_COMMAND = ToolCommand("python -m pcircle.scale", "", USAGE, DESCRIPTION, EPILOG, _add, _carry_out)
parser: Final = _COMMAND.parser
main: Final = _COMMAND.main
