"""``python -m tests.benchmarks.goals DIR``: each tool and the standard tool, as one table.

The figure of a row is (wall time - start) / reference, where the start is the time of the same
command on an empty tree. Rounds are interleaved and their medians taken. Root runs them at
real-time priority, so that other work on the machine waits instead of being measured.

The trees are created below DIR, preferably on a tmpfs; each is removed after its rows.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

from pcircle.cli.listing import render

from . import datasets, measure
from .tools import environment
from .turns import Tree

_BIN = Path(__file__).parents[2] / "bin"
_TIMEOUT_S = 3600.0
_QUIET_S = 3.5  # fmirror does not trust younger change times
_REAL_TREES = ("/usr/share", "/usr/lib/python3")
_MPI = "mpirun -np 2"
_HEADER = ("row", "command", "s", "ratio", "goal", "cpu", "start s")


class Row(NamedTuple):
    """One comparison.

    Words of a command: ``{}`` is the tree, ``{out}`` a target to create, and ``{new}`` a tree that
    is created for each run.

    `goals` are for our tool with -j 2 and -j 1; None: no goal. `before` is the preparation of each
    run: a new tree (``fresh``), an existing correct target (``mirror``), a mode that changes each
    time (``mode``).
    """

    name: str
    build: Callable[[str], None]
    reference: str
    ours: str
    goals: tuple[float | None, float | None]
    peers: dict[str, str] = {}  # noqa: RUF012 - never changed
    before: str = ""


def empty_files(files: int, per_directory: int) -> Callable[[str], None]:
    """Return a builder of a tree with empty files, `per_directory` per directory."""
    return Tree("", files, per_directory).build


def filled(files: int, per_directory: int, size: int) -> Callable[[str], None]:
    """Return a builder of a tree with files of one size, in bytes."""

    def build(top: str) -> None:
        block = random.Random(1).randbytes(min(size, 1 << 20) + 4096)
        for number in range(files):
            if number % per_directory == 0:
                folder = f"{top}/{number // per_directory // 1000}/{number // per_directory}"
                os.makedirs(folder)
            with open(f"{folder}/file{number:07d}", "wb") as stream:
                start, left = number % 4096, size
                while left:
                    left -= stream.write(block[start : start + min(left, 1 << 20)])

    return build


def one_file(top: str) -> None:
    """Create a directory with a file of one byte."""
    os.makedirs(top)
    with open(f"{top}/file", "wb") as stream:
        stream.write(b"x")


def real(copies: int) -> Callable[[str], None]:
    """Copy installed documentation and libraries."""

    def build(top: str) -> None:
        for number in range(copies):
            os.makedirs(f"{top}/{number}")
            there = [tree for tree in _REAL_TREES if os.path.isdir(tree)]
            subprocess.run(["cp", "-a", *there, f"{top}/{number}"], check=True)

    return build


def pair(build: Callable[[str], None]) -> Callable[[str], None]:
    """Create a tree and its copy, for comparisons."""

    def both(top: str) -> None:
        build(f"{top}/a")
        subprocess.run(["cp", "-a", f"{top}/a", f"{top}/b"], check=True)

    return both


_FEW = 4  # files in a small directory
_DIGEST = "find {} -type f -print0 | xargs -0 -n500 xxhsum -H2"
_FORMAT = "-printf %p\\t%s\\t%m\\t%T@\\n"

Some = Callable[[int], int]
"""The scaled number of files of a row."""


def rows(scale: float) -> Iterator[Row]:
    """Return all rows, for trees of this scale."""

    def scaled_count(count: int) -> int:
        return max(1, int(count * scale))

    yield from _copies(scaled_count)
    yield from _readings(scaled_count)
    yield from _changes(scaled_count)
    yield from _starts()


def _copies(scaled: Some) -> Iterator[Row]:
    copying = {
        "xcp": "xcp -r --no-progress {} {out}",
        "cpz": "cpz {} {out}",
        "dcp": f"{_MPI} dcp -q -p {{}} {{out}}",
    }
    yield Row("copy 4 KiB", filled(scaled(100_000), 200, 4096), "cp -a {} {out}",
              "fcp -q -p {} {out}", (0.48, 0.85), copying)  # fmt: skip
    yield Row("copy small directories", empty_files(scaled(100_000), _FEW), "cp -a {} {out}",
              "fcp -q -p {} {out}", (0.27, 0.47), copying)  # fmt: skip
    yield Row("copy a real tree", real(2), "cp -a {} {out}",
              "fcp -q -p {} {out}", (0.50, 0.95), copying)  # fmt: skip
    yield Row("copy 2 MB", filled(scaled(1600), 100, 2_000_000), "cp -a {} {out}",
              "fcp -q {} {out}", (0.55, None), copying)  # fmt: skip


def _readings(scaled: Some) -> Iterator[Row]:
    yield Row("digest 10 MB", filled(scaled(450), 100, 10_000_000), _DIGEST, "fsum -q {}",
              (0.60, None))  # fmt: skip
    yield Row("digest 4 KiB", filled(scaled(126_000), 200, 4096), _DIGEST, "fsum -q {}",
              (0.40, None))  # fmt: skip
    yield Row("digest small directories", filled(scaled(124_000), _FEW, 4096), _DIGEST,
              "fsum -q {}", (0.42, None))  # fmt: skip
    bfs = {"bfs -j2": "bfs -j2 {}"}
    yield Row("names, wide", empty_files(scaled(2_300_000), 200), "find {}", "ffind {}",
              (0.55, None), bfs)  # fmt: skip
    yield Row("names, small", empty_files(scaled(600_000), _FEW), "find {}", "ffind {}",
              (0.55, None), bfs)  # fmt: skip
    bfs = {"bfs -j2": f"bfs -j2 {{}} {_FORMAT}"}
    yield Row("-printf, wide", empty_files(scaled(500_000), 200), f"find {{}} {_FORMAT}",
              f"ffind {{}} {_FORMAT}", (0.63, None), bfs)  # fmt: skip
    yield Row("-printf, small", empty_files(scaled(600_000), _FEW), f"find {{}} {_FORMAT}",
              f"ffind {{}} {_FORMAT}", (0.70, None), bfs)  # fmt: skip
    yield Row("list, wide", empty_files(scaled(500_000), 200), "find {} -ls", "fls -q -lR {}",
              (0.40, None))  # fmt: skip
    yield Row("list, small", empty_files(scaled(300_000), _FEW), "find {} -ls", "fls -q -lR {}",
              (0.50, None))  # fmt: skip
    dwalk = {"dwalk": f"{_MPI} dwalk -q {{}}"}
    yield Row("profile, wide", empty_files(scaled(1_000_000), 200), "du -s {}", "fprof -q {}",
              (0.62, None), dwalk)  # fmt: skip
    yield Row("profile, small", empty_files(scaled(600_000), _FEW), "du -s {}", "fprof -q {}",
              (0.66, None), dwalk)  # fmt: skip


def _changes(scaled: Some) -> Iterator[Row]:
    dchmod = {"dchmod": f"{_MPI} dchmod -q -m {{mode}} {{}}"}
    yield Row("chmod, wide", empty_files(scaled(500_000), 200), "chmod -R {mode} {}",
              "fchmod -q -R {mode} {}", (0.63, None), dchmod, before="mode")  # fmt: skip
    yield Row("chmod, small", empty_files(scaled(336_000), _FEW), "chmod -R {mode} {}",
              "fchmod -q -R {mode} {}", (0.68, None), dchmod, before="mode")  # fmt: skip
    rmz = {"rmz": "rmz {}", "drm": f"{_MPI} drm -q {{}}"}
    yield Row("remove, wide", empty_files(scaled(500_000), 200), "rm -rf {}", "frm -q -r {}",
              (0.50, None), rmz, "fresh")  # fmt: skip
    yield Row("remove, small", empty_files(scaled(240_000), _FEW), "rm -rf {}", "frm -q -r {}",
              (0.53, None), rmz, "fresh")  # fmt: skip
    # dsync is not compared: it gives the target new change times, which fmirror does not trust.
    mirror = ("rsync -a --delete {}/ {out}", "fmirror -q -a --delete {}/ {out}")
    yield Row("mirror, wide", empty_files(scaled(500_000), 200), *mirror, (0.40, None),
              before="mirror")  # fmt: skip
    yield Row("mirror, small", empty_files(scaled(160_000), _FEW), *mirror, (0.33, None),
              before="mirror")  # fmt: skip
    yield Row("mirror, real tree", real(4), *mirror, (0.50, None), before="mirror")
    yield Row("mirror, first run", real(4), "rsync -aHAX {}/ {out}", "fmirror -q -a {}/ {out}",
              (0.60, None), before="equal")  # fmt: skip
    yield Row("compare content", pair(_contents), "diff -rq {}/a {}/b", "fdiff -c {}/a {}/b",
              (0.52, None), {"dcmp": f"{_MPI} dcmp -q {{}}/a {{}}/b"})  # fmt: skip


def _starts() -> Iterator[Row]:
    nothing = [sys.executable, "-c", "pass"]
    for tool, words in _STARTS.items():
        yield Row(f"start, {tool}", one_file, " ".join(nothing), words, (None, None),
                  before="start")  # fmt: skip


_STARTS = {
    "fcp": "fcp -q {} {out}",
    "fmirror": "fmirror -q {}/ {out}",
    "fsum": "fsum -q {}",
    "ffind": "ffind {}",
    "fls": "fls {}",
    "fprof": "fprof -q {}",
    "fchmod": "fchmod -q -R go= {}",
    "frm": "frm -q -r {new}",
    "fdiff": "fdiff {} {}",
}


def _contents(top: str) -> None:
    """Create three gigabytes: a file of one gigabyte, medium files and small ones."""
    block = random.Random(1).randbytes(1 << 20)
    os.makedirs(top)
    with open(f"{top}/large", "wb") as stream:
        for _ in range(1000):
            stream.write(block)
    filled(600, 100, 2_000_000)(f"{top}/middle")
    filled(12_000, 200, 64 << 10)(f"{top}/small")


class _Bench:
    """The commands of one row, in a folder of their own."""

    def __init__(self, folder: str, ours: str | None, priority: Sequence[str]) -> None:
        self._folder = folder
        self._bin = ours
        self._priority = list(priority)
        self._modes = cycle(("go=", "go=rX"))
        self._empty = f"{folder}/empty"
        os.makedirs(self._empty, exist_ok=True)

    def row(self, row: Row, runs: int) -> list[tuple[str, ...]]:
        """Run all commands of a row several times; return the lines of the table."""
        tree = f"{self._folder}/tree"
        if row.before != "fresh":
            row.build(tree)
        commands = {"reference": row.reference}
        for name, words in row.peers.items():
            if shutil.which(words.removeprefix(_MPI).split()[0]) and self._works(words):
                commands[name] = words
        commands |= {f"-j {jobs}": self._own(row.ours, f"-j {jobs} ") for jobs in (2, 1)}
        if row.before == "start":
            commands["no -j"] = self._own(row.ours)
        starts: dict[str, list[measure.Cost]] = {name: [] for name in commands}
        costs: dict[str, list[measure.Cost]] = {name: [] for name in commands}
        if row.before in ("mirror", "equal"):
            self._mirrored(row, tree, commands)
        for turn in range(runs + 1):
            for name, words in commands.items():
                cost = self._run(row, words, tree)
                start = cost if row.before == "start" else self._run(row, words, self._empty)
                if turn:
                    costs[name].append(cost)
                    starts[name].append(start)
        datasets.remove(tree)
        datasets.remove(f"{self._folder}/out")
        self._forget()  # the tree of the next row is another directory at the same path
        return list(self._lines(row, costs, starts))

    def _works(self, words: str) -> bool:
        """Return whether a peer accepts these arguments: not every version does."""
        out = f"{self._folder}/out"
        filled_in = words.replace("{out}", out).replace("{}", self._empty).replace("{mode}", "go=")
        try:
            self._call(filled_in)
        except SystemExit as why:
            print(f"left out: {why}", file=sys.stderr)
            return False
        finally:
            datasets.remove(out)
            os.makedirs(self._empty, exist_ok=True)
        return True

    def _own(self, words: str, jobs: str = "") -> str:
        tool, options = words.split(" ", 1)
        where = f"{self._bin}/{tool}" if self._bin else f"{sys.executable} {_BIN}/{tool}"
        return f"{where} {jobs}{options}"

    def _mirrored(self, row: Row, tree: str, commands: dict[str, str]) -> None:
        """Create the correct target that all commands find."""
        out = f"{self._folder}/out"
        if row.before == "equal":
            subprocess.run(["cp", "-a", tree, out], check=True)
        else:
            for _ in range(2):
                self._call(commands["-j 2"].replace("{out}", out).replace("{}", tree))
        time.sleep(_QUIET_S)

    def _forget(self) -> None:
        """Remove the states of earlier mirrors."""
        for state in Path(self._folder).glob("**/.fmirror*"):
            datasets.remove(str(state))

    def _run(self, row: Row, words: str, tree: str) -> measure.Cost:
        out = f"{self._folder}/out"
        is_empty = tree == self._empty
        if row.before in ("mirror", "equal"):
            out = f"{self._folder}/nothing" if is_empty else out
            if row.before == "equal":  # the first command has no state of an earlier run
                self._forget()
        elif row.before == "fresh" and not is_empty:
            row.build(tree)
        else:
            datasets.remove(out)
        if is_empty and "{}/b" in words:
            for side in "ab":
                os.makedirs(f"{tree}/{side}", exist_ok=True)
        if row.before == "fresh" and is_empty:
            tree = f"{self._folder}/nothing"
            os.makedirs(tree)
        if "{new}" in words:
            row.build(out)
        filled_in = words.replace("{out}", out).replace("{new}", out).replace("{}", tree)
        if "{mode}" in filled_in:
            filled_in = filled_in.replace("{mode}", next(self._modes))
        return self._call(filled_in)

    def _call(self, words: str) -> measure.Cost:
        argv = ["sh", "-c", words] if "|" in words else words.split()
        log = f"{self._folder}/log"
        cost = measure.run([*self._priority, *argv], environment(), log, _TIMEOUT_S)
        if cost.exit_code:
            raise SystemExit(f"{words}: exit code {cost.exit_code}: {measure.last_words(log)}")
        return cost

    def _lines(
        self, row: Row, costs: dict[str, list[measure.Cost]], starts: dict[str, list[measure.Cost]]
    ) -> Iterator[tuple[str, ...]]:
        def wall(row_costs: Sequence[measure.Cost]) -> float:
            return statistics.median(cost.wall_s for cost in row_costs)

        def cpu(row_costs: Sequence[measure.Cost]) -> float:
            return statistics.median(cost.user_s + cost.system_s for cost in row_costs)

        first = wall(costs["reference"])
        first_cpu = cpu(costs["reference"])
        goals = {"-j 2": row.goals[0], "-j 1": row.goals[1]}
        for name, row_costs in costs.items():
            start, start_cpu = wall(starts[name]), cpu(starts[name])
            if row.before == "start" or name == "reference":
                start = start_cpu = 0.0
            goal = goals.get(name)
            yield (
                row.name,
                row.reference.split()[0] if name == "reference" else name,
                f"{wall(row_costs):.3f}",
                f"{(wall(row_costs) - start) / first:.2f}",
                "" if goal is None else f"{goal:.2f}",
                f"{(cpu(row_costs) - start_cpu) / max(first_cpu, 1e-9):.2f}",
                f"{wall(starts[name]):.3f}",
            )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the rows; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.goals")
    parser.add_argument("dir", metavar="DIR", help="a folder on the file system to measure")
    parser.add_argument("--runs", type=int, default=5, help="counted rounds (default 5)")
    parser.add_argument("--scale", type=float, default=1.0, help="multiply the trees (default 1)")
    parser.add_argument("--only", default="", help="rows whose names contain one of these words")
    parser.add_argument("--bin", help="folder of the tools to measure (default: this checkout)")
    args = parser.parse_args(arguments)
    words = [word.strip() for word in args.only.split(",")]
    priority = ["chrt", "-f", "40"] if os.geteuid() == 0 and shutil.which("chrt") else []
    folder = tempfile.mkdtemp(prefix="goals-", dir=args.dir)
    try:
        bench = _Bench(folder, args.bin, priority)
        print(" | ".join(_HEADER))
        for row in rows(args.scale):
            if any(word in row.name for word in words):
                lines = bench.row(row, args.runs)
                print(render(lines, align="llrrrrr"), end="", flush=True)
    finally:
        datasets.remove(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
