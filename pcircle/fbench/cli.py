"""The command line of fbench: what was typed. What it means decides `pcircle.fbench.command`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from pcircle import __version__
from pcircle.fbench.plan import BACKENDS, CASES
from pcircle.transport.launch import detect
from pcircle.ui.arguments import Parser, run

USAGE = "fbench [OPTION]... DIR"

DESCRIPTION = """\
Measure the file system that DIR is on, through the asynchronous layer: how fast blocking
calls are, and how fast many operations at once. It works in a directory of its own below
DIR, which it removes."""

EPILOG = """\
Sizes are 4096, 64k, 1M, 1MiB or 2GB.

Cases: random and stream write and read files, block by block; overlap computes on each block
and tells what that costs; metadata does everything to names; blocking times submissions;
continuation varies what follows each block.

Each client is a process: one, or --jobs, or those of mpirun and srun.

Exit codes: 0 measured; 1 a case failed; 2 refused; 4 stopped early; 70 a defect of fbench;
130 and 143 interrupted."""


def parser() -> Parser:
    """The options of fbench."""
    p = Parser("fbench", USAGE, DESCRIPTION, EPILOG)
    p.add_argument("operands", nargs="*", metavar="DIR", help=argparse.SUPPRESS)
    add = p.add_argument_group("what is measured").add_argument
    add(
        "--case",
        action="append",
        choices=CASES,
        help="random, stream, overlap, metadata, blocking or continuation; repeatable; all",
    )
    add(
        "--backend",
        action="append",
        choices=BACKENDS,
        help="blocking or threads; repeatable; default: both",
    )
    add = p.add_argument_group("how").add_argument
    add("-j", "--jobs", "--clients", metavar="N", help="clients on this machine; default: 1")
    add("--transport", choices=("auto", "mpi", "local"), default="auto", help="default: auto")
    add("--threads", metavar="N", help="threads of each client; default: adaptive")
    add("--files", metavar="N", default="4", help="files of each client; default: 4")
    add("--blocks", metavar="N", default="64", help="blocks of each file; default: 64")
    add("--block-size", metavar="SIZE", default="1M", help="default: 1M")
    add = p.add_argument_group("what is said").add_argument
    add("-q", "--quiet", action="store_true", help="only failures")
    add("--json", metavar="FILE", help="the figures as a JSON document; - is standard output")
    add("--plot", metavar="FILE", help="a picture, .png, .svg or .pdf; needs matplotlib")
    add("--version", action="version", version=f"fbench {__version__}")
    return p


def main(arguments: Sequence[str] | None = None) -> int:
    """Run fbench; returns the exit code."""
    return run(parser, arguments, {}, _carry_out, speaks=not detect(os.environ).rank)


def _carry_out(typed: argparse.Namespace) -> int:
    from pcircle.fbench.command import bench_typed

    return bench_typed(typed)
