"""``python -m tests.benchmarks.signing DIR``: fsum and other checksum tools, as a table.

All commands run in turn in each round, so that a slow minute affects all; medians, and the ratio to
the reference command of each data set. All reads are from the page cache.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from pcircle.cli.listing import render

from . import measure
from .datasets import prepare, recipes
from .tools import REPOSITORY, environment

_TIMEOUT_S = 1800.0


class Command(NamedTuple):
    """A command of a data set; the others are compared with the one that is the `reference`."""

    name: str
    argv: list[str]
    reference: bool = False


def _commands(small: str, large: str, fsum: list[str]) -> dict[str, list[Command]]:
    find = f"find '{small}' -type f -print0 | xargs -0 -P2 -n500 xxhsum -H2"
    return {
        "20,000 files of 4 KiB": [
            Command("xargs -P2 -n500 xxhsum -H2", ["sh", "-c", find], reference=True),
            Command("fsum -j 1", [*fsum, "-j", "1", small]),
            Command("fsum -j 2", [*fsum, "-j", "2", small]),
        ],
        "one large file": [
            Command("xxhsum -H2", ["xxhsum", "-H2", large], reference=True),
            Command("fsum -j 1", [*fsum, "-j", "1", large]),
            Command("fsum -j 2", [*fsum, "-j", "2", large]),
        ],
        "one large file, SHA-256": [
            Command("sha256sum", ["sha256sum", large], reference=True),
            Command("fsum -a sha256 -j 1", [*fsum, "-a", "sha256", "-j", "1", large]),
            Command("fsum -a sha256 -j 2", [*fsum, "-a", "sha256", "-j", "2", large]),
        ],
    }


def _rows(commands: Sequence[Command], runs: int, log: str) -> list[list[str]]:
    """Run all commands several times, after a warm-up; return the rows of the table."""
    took_s: dict[str, list[float]] = {command.name: [] for command in commands}
    for number in range(runs + 1):
        for command in commands:
            cost = measure.run(command.argv, environment(), log, _TIMEOUT_S)
            if cost.exit_code:
                raise SystemExit(f"{command.name}: {cost.exit_code}: {measure.last_words(log)}")
            if number:
                took_s[command.name].append(cost.wall_s)
    (base,) = (median(took_s[command.name]) for command in commands if command.reference)
    return [
        [name, f"{median(times):.3f}", f"{min(times):.3f}", f"{base / median(times):.2f}"]
        for name, times in took_s.items()
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.signing")
    parser.add_argument("folder", metavar="DIR")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--large-gib", type=float, default=4.0)
    parser.add_argument("--fsum", help="the fsum to run; default: that of this checkout")
    args = parser.parse_args(arguments)
    fsum = args.fsum.split() if args.fsum else [sys.executable, str(REPOSITORY / "bin" / "fsum")]
    missing = [name for name in ("xxhsum", "sha256sum", "xargs") if shutil.which(name) is None]
    if missing:
        print(f"not found: {', '.join(missing)}")
        return 1
    with tempfile.TemporaryDirectory(prefix="fsum-bench-", dir=args.folder) as folder:
        small = prepare(recipes()["small"], Path(folder)).tree
        large = os.path.join(folder, "large")
        with open(large, "wb") as stream:
            piece = os.urandom(64 << 20)
            for _ in range(int(args.large_gib * 16)):
                stream.write(piece)
        for title, commands in _commands(str(small), large, fsum).items():
            print(f"\n{title}")
            rows = _rows(commands, args.runs, os.path.join(folder, "log"))
            header = ("command", "median s", "min s", "times as fast")
            print(render(rows, align="lrrr", header=header), end="", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
