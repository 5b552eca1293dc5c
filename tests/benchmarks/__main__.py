"""The command line of the benchmarks: ``python -m tests.benchmarks DIR``.

Exit codes: 0 all runs correct, 1 a tool failed or its copy was wrong, 2 usage, 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from . import datasets, report, rounds, tools
from .datasets import DataSet
from .measure import floor_bytes
from .rounds import Result


def _names(known: Iterable[str]) -> Callable[[str], tuple[str, ...]]:
    allowed = tuple(known)

    def parse(text: str) -> tuple[str, ...]:
        # The table prints the name "fcp -p".
        names = tuple(dict.fromkeys(word.strip().replace(" ", "-") for word in text.split(",")))
        unknown = [name for name in names if name not in allowed]
        if unknown:
            raise argparse.ArgumentTypeError(
                f"unknown: {', '.join(unknown)} (choose from {', '.join(allowed)})"
            )
        return names

    return parse


def _ranks(text: str) -> tuple[int, ...]:
    try:
        numbers = tuple(dict.fromkeys(int(word) for word in text.split(",")))
    except ValueError:
        raise argparse.ArgumentTypeError(f"not a list of numbers: {text}") from None
    if min(numbers) < 1:
        raise argparse.ArgumentTypeError("ranks begin at 1")
    return numbers


def _positive(kind: Callable[[str], float]) -> Callable[[str], float]:
    def parse(text: str) -> float:
        value = kind(text)  # argparse reports the ValueError
        if not value > 0:
            raise argparse.ArgumentTypeError(f"must be more than 0: {text}")
        return value

    return parse


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks",
        description="Copy data sets with fcp and every other copy tool on PATH, and compare.",
    )
    add = parser.add_argument
    add("dir", type=Path, metavar="DIR", help="a folder on the file system to measure")
    add("--only", type=_names(datasets.recipes(0.001)), metavar="NAMES", help="data sets, by comma")
    add("--tools", type=_names(tools.ALL_TOOLS), metavar="NAMES",
        help=f"tools, by comma: {', '.join(tools.ALL_TOOLS)}")  # fmt: skip
    add("--runs", type=_positive(int), default=3, metavar="N",
        help="counted rounds, after one warm-up (default 3)")  # fmt: skip
    add("--scale", type=_positive(float), default=1.0, metavar="F",
        help="multiply the data sets (default 1)")  # fmt: skip
    add("--ranks", type=_ranks, default=(1, 2, 4), metavar="LIST",
        help="ranks of parallel tools (default 1,2,4)")  # fmt: skip
    add("--mpi", action="store_true", help="run fcp under mpirun, too")
    add("--sync", action="store_true", help="end every tool's run with `sync -f`, in its time")
    add("--reference", default=tools.REFERENCE, metavar="ROW",
        help="the row that ratios are taken to (default `cp -a`)")  # fmt: skip
    add("--fcp", metavar="CMD", help="the fcp to run (default: of this checkout, else installed)")
    add("--mpirun", metavar="CMD", help="launcher for fcp, with its own options if need be")
    add("--dcp-mpirun", metavar="CMD", help="launcher for dcp (default: the first that fits)")
    add("--timeout", type=_positive(float), default=1800.0, metavar="S",
        help="kill a single run after S seconds (default 1800)")  # fmt: skip
    add("--json", type=Path, metavar="FILE", help="write every single run here, too")
    add("--clean", action="store_true", help="remove the data sets at the end")
    return parser


def _news(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _find(options: argparse.Namespace, scratch: Path) -> tools.Found:
    choice = tools.Choice(
        options.tools or tools.DEFAULT_TOOLS,
        options.ranks,
        options.mpi,
        options.fcp,
        options.mpirun,
        options.dcp_mpirun,
    )
    return tools.find(choice, str(scratch))


def _measure(
    options: argparse.Namespace, found: tools.Found, home: Path, run_folder: Path
) -> list[tuple[DataSet, list[Result]]]:
    plan = rounds.Plan(str(run_folder), int(options.runs), options.timeout, options.sync)
    recipes = datasets.recipes(options.scale)
    measured = []
    for name in options.only or recipes:
        _news(f"{name}: preparing")
        try:
            data = datasets.prepare(recipes[name], home)
        except datasets.NoRoom as error:
            print(f"\n{name}: left out: {error}", flush=True)
            continue
        results = rounds.compare(
            found.rows, data, plan, tools.environment(), options.reference, _news
        )
        measured.append((data, results))
        print("\n" + report.table(data, results, options.reference, floor_bytes()), flush=True)
    return measured


def _compare(options: argparse.Namespace, home: Path, run_folder: Path, programs: Path) -> int:
    found = _find(options, programs)
    labels = [row.label for row in found.rows]
    if options.tools and found.missing:
        for tool, reason in found.missing.items():
            _news(f"{tool}: {reason}")
        return 2
    if options.reference not in labels and options.reference != tools.REFERENCE:
        _news(f"--reference: no such row: {options.reference} (rows: {', '.join(labels)})")
        return 2
    facts = report.facts(str(home), tools.versions(found), found.missing)
    print(report.facts_text(facts), flush=True)
    measured = _measure(options, found, home, run_folder)
    if len(measured) > 1:
        print("\n" + report.matrix(measured, options.reference), flush=True)
    if options.json:
        asked = {key: value if isinstance(value, (int, float, bool, tuple)) else str(value)
                 for key, value in vars(options).items() if value is not None}  # fmt: skip
        whole = report.document(facts, asked, options.reference, measured, floor_bytes())
        options.json.write_text(json.dumps(whole, indent=1) + "\n")
    faults = any(result.fault for _, results in measured for result in results)
    return 1 if faults or not measured else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmarks; return the exit code. Only the data sets remain in DIR."""
    options = _parser().parse_args(arguments)
    if not options.dir.is_dir():
        _news(f"not a directory: {options.dir}")
        return 2
    home: Path = options.dir.resolve() / datasets.FOLDER
    # Compiled programs are kept for all runs; each run empties its own folder.
    run_folder, programs = (home / f"{kind}-{os.getpid()}" for kind in ("run", "programs"))
    run_folder.mkdir(parents=True)
    programs.mkdir()
    try:
        return _compare(options, home, run_folder, programs)
    except KeyboardInterrupt:
        _news("interrupted")
        return 130
    finally:
        for folder in [home] if options.clean else [run_folder, programs]:
            datasets.remove(str(folder))


def _terminate(number: int, _frame: object) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _terminate)  # kills the tool and deletes the target
    sys.exit(main())
