"""The command line of each paper: names of figures, --out, --small, and estimated durations.

The module of a paper lists its figures and ends with ``sys.exit(main(...))``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from pcircle.core.units import parse_duration

DOCS = Path(__file__).resolve().parents[2] / "docs" / "papers"
_EXAMPLES = """
Examples:
  python -m examples.papers.{paper} {first}
  python -m examples.papers.{paper} {first} {last} --out /tmp/figures
  python -m examples.papers.{paper} all
  python -m examples.papers.{paper} all --small --out /tmp/figures
"""


class Figure(msgspec.Struct, frozen=True):
    """A figure of a paper: *make* writes it to a directory and returns the files that it wrote.

    The second argument of *make* requests the small scale of the tests. *duration_s* is the
    approximate duration of the full scale on one core. If a figure has a *delay_s*, that is the
    default of the option --delay, whose value is the third argument of *make*.
    """

    name: str
    title: str
    duration_s: float
    make: Callable[..., Sequence[Path]]
    delay_s: float | None = None


def main(paper: str, figures: Sequence[Figure], words: Sequence[str] | None = None) -> int:
    """Make the figures that *words* (default: the command line) names; return the exit code."""
    given = _parsed(paper, figures, words)
    wanted = [one for one in figures if one.name in given.figures or "all" in given.figures]
    small: bool = given.small
    total_s = sum(one.duration_s for one in wanted)
    for one in wanted:
        print(f"{one.name}: {one.title}", file=sys.stderr)
    scale = "at small scale, seconds" if small else f"takes about {_duration(total_s)}"
    print(f"{len(wanted)} figure{'s' * (len(wanted) != 1)}: {scale}", file=sys.stderr)
    for one in wanted:
        delays_s = [] if one.delay_s is None else [given.delay]
        for path in one.make(given.out, small, *delays_s):
            print(path)
    return 0


def _duration(seconds: float) -> str:
    return f"{max(seconds, 1):.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _parsed(
    paper: str, figures: Sequence[Figure], words: Sequence[str] | None
) -> argparse.Namespace:
    names = [one.name for one in figures]
    parser = argparse.ArgumentParser(
        prog=f"python -m examples.papers.{paper}",
        description="Write figures of the paper: a table as CSV and a plot each.",
        epilog=_EXAMPLES.format(paper=paper, first=names[0], last=names[-1]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "figures",
        nargs="+",
        choices=[*names, "all"],
        metavar="FIGURE",
        help=f"{', '.join(names)} or all",
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="write into DIR (default: docs/papers)"
    )
    parser.add_argument("--small", action="store_true", help="small scale, as in the tests")
    delays_s = [one.delay_s for one in figures if one.delay_s is not None]
    if delays_s:
        parser.add_argument(
            "--delay",
            type=parse_duration,
            default=delays_s[0],
            metavar="T",
            help=f"delay of a message between nodes (default: {delays_s[0] * 1000:g}ms)",
        )
    given = parser.parse_args(words)
    if given.small and given.out is None:
        parser.error("--small requires --out: docs/papers has the figures at full scale")
    given.out = given.out or DOCS
    return given
