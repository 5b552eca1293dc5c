"""``python -m tests.benchmarks.overlap``: fbench on a file system that takes 2 ms an operation.

A FUSE file system of the tests' own, which adds the time to every operation and can serve
thousands of them at once, as a parallel one does. Blocking calls and operations submitted at once
stand side by side; what is asked of each is printed beside it. Needs root or fusermount.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from statistics import median

from pcircle.ui.table import render

from ..fusefs.mounting import missing, mounted
from ..fusefs.passing import Caching
from ..fusefs.rules import Rule

_PARAMETERS = ["--files", "32", "--blocks", "100", "--block-size", "16k"]
# The file system's server is on this machine, too: what is computed must find a processor.
_COMPUTING = ["--case", "overlap", "--threads", "8"]


def _measure(place: bytes, *options: str) -> dict[tuple[str, str, str], float]:
    """fbench's figures by case, what and backend, without the number of threads."""
    command = [sys.executable, "-m", "pcircle.fbench", "-q", "--json", "-", *options]
    done = subprocess.run([*command, place], check=True, stdout=subprocess.PIPE)
    figures = json.loads(done.stdout)["figures"]
    return {
        (each["case"], each["what"], each["backend"]): each["value"]
        for each in figures
        if each["unit"] != "threads"
    }


def main() -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.overlap")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--delay-ms", type=float, default=2.0)
    typed = parser.parse_args()
    reason = missing()
    if reason:
        print(reason, file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        place, backing = os.fsencode(folder) + b"/mount", os.fsencode(folder) + b"/backing"
        os.mkdir(place)
        os.mkdir(backing)
        with mounted(place, backing, Caching(direct=True)) as slow:
            slow.rules(Rule(delay_s=typed.delay_ms / 1000))
            found = [
                _measure(place, *_PARAMETERS) | _measure(place, *_PARAMETERS, *_COMPUTING)
                for _ in range(typed.rounds)
            ]
    values = {key: median(each[key] for each in found) for key in found[0]}
    header = ["", "blocking", "threads", "", "uring", "", "asked"]
    print(render(_rows(values), align="lrrrrrl", header=header))
    return 0


def _rows(values: dict[tuple[str, str, str], float]) -> list[list[str]]:
    rows = []
    for case, what in dict.fromkeys((case, what) for case, what, _ in values):
        base = values.get((case, what, "blocking"))
        cells = ["" if base is None else f"{base:,.1f}"]
        for backend in ("threads", "uring"):
            value = values.get((case, what, backend))
            ratio = ""
            if base is not None and value is not None:
                ratio = f"{base / value if case == 'blocking' else value / base:.1f} x"
            cells += ["" if value is None else f"{value:,.1f}", ratio]
        asked = {"stream": "10 x", "blocking": "20 us, flat"}.get(case, "")
        if what.startswith("lost"):
            asked = "< 10 %"
        rows.append([f"{case} {what}", *cells, asked])
    return rows


if __name__ == "__main__":
    sys.exit(main())
