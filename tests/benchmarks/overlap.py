"""``python -m tests.benchmarks.overlap``: fbench on a file system with 2 ms per operation.

Blocking calls and operations submitted at once have adjacent columns, followed by the goal.
"""

from __future__ import annotations

import json
import subprocess
import sys
from statistics import median

from pcircle.cli.listing import render

from . import waiting

_PARAMETERS = ["--files", "32", "--blocks", "100", "--block-size", "16k"]
# The server of the file system is on this machine, too: computations need a free processor.
_COMPUTING = ["--case", "overlap", "--threads", "8"]


def _measure(place: bytes, *options: str) -> dict[tuple[str, str, str], float]:
    """Return fbench's figures by case, metric and backend, without the number of threads."""
    command = [sys.executable, "-m", "pcircle.tools.fbench", "-q", "--json", "-", *options]
    done = subprocess.run([*command, place], check=True, stdout=subprocess.PIPE)
    figures = json.loads(done.stdout)["figures"]
    return {
        (figure["case"], figure["what"], figure["backend"]): figure["value"]
        for figure in figures
        if figure["unit"] != "threads"
    }


def main() -> int:
    """Measure, and print the table."""
    args = waiting.options("overlap")
    with waiting.scratch() as scratch, waiting.slow(scratch, args.delay_ms, direct=True):
        place = scratch.place
        found = [
            _measure(place, *_PARAMETERS) | _measure(place, *_PARAMETERS, *_COMPUTING)
            for _ in range(args.rounds)
        ]
    values = {key: median(figures[key] for figures in found) for key in found[0]}
    header = ["", "blocking", "threads", "", "asked"]
    print(render(_rows(values), align="lrrrl", header=header))
    return 0


def _rows(values: dict[tuple[str, str, str], float]) -> list[list[str]]:
    rows = []
    for case, what in dict.fromkeys((case, what) for case, what, _ in values):
        base, value = (values.get((case, what, backend)) for backend in ("blocking", "threads"))
        ratio = ""
        if base is not None and value is not None:
            ratio = f"{base / value if case == 'blocking' else value / base:.1f} x"
        cells = ["" if backend is None else f"{backend:,.1f}" for backend in (base, value)]
        asked = {"stream": "10 x", "blocking": "20 us, flat"}.get(case, "")
        if what.startswith("lost"):
            asked = "< 10 %"
        rows.append([f"{case} {what}", *cells, ratio, asked])
    return rows


if __name__ == "__main__":
    sys.exit(main())
