"""``python -m tests.benchmarks.mirroring_slow``: unchanged trees where each operation waits.

fmirror and rsync compare two trees of 5,000 files on a file system that adds a delay to every
operation, several times in turns. Each run has a new mount, so nothing is cached.

fmirror has two rows: one that must query the attributes and ACLs of each file, and one as in
nightly use, which knows that they are equal for all files that were not changed since the last run.
On a file system with a server the two runs must be an hour apart, which is simulated in its state.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

import msgspec

from pcircle.core.errors import require
from pcircle.tools.fmirror.state import state

from .waiting import Scratch, options, scratch, slow

_DIRECTORIES, _FILES = 100, 50


def _fill(top: bytes) -> None:
    for directory in range(_DIRECTORIES):
        os.makedirs(top + b"/%d" % directory)
        for name in range(_FILES):
            with open(top + b"/%d/%d" % (directory, name), "xb") as stream:
                stream.write(b"content")


def _took_s(command: Sequence[str | bytes], where: Scratch, delay_ms: float) -> float:
    with slow(where, delay_ms):
        begin_s = time.monotonic()
        subprocess.run([*command, where.place + b"/a/", where.place + b"/b/"], check=True)
        return time.monotonic() - begin_s


def _run_an_hour_ago(command: Sequence[str | bytes], where: Scratch) -> None:
    """Simulate a complete run an hour ago, before which no file had changed for an hour."""
    _took_s(command, where, 0)
    place = state.place_of(where.place + b"/b", None)
    with slow(where, 0):
        known = require(state.read(place))
        state.write(
            place, msgspec.structs.replace(known, began_ns=known.began_ns + 2 * 3600 * 10**9)
        )


def main() -> int:
    """Run all benchmarks; return the exit code."""
    args = options("mirroring_slow")
    fmirror = [sys.executable, "-m", "pcircle.tools.fmirror", "-q", "--delete"]
    with scratch() as where:
        states = os.fsdecode(where.backing) + "/states"
        os.mkdir(states)
        rows: dict[str, list[str]] = {
            "rsync -a": ["rsync", "-a", "--delete"],
            "fmirror, all asked": [*fmirror, "--state-dir", states],
            "fmirror": fmirror,
        }
        times: dict[str, list[float]] = {name: [] for name in rows}
        _fill(where.backing + b"/a")
        _run_an_hour_ago(fmirror, where)
        for _ in range(args.rounds):
            for name, command in rows.items():
                times[name].append(_took_s(command, where, args.delay_ms))
    medians = {name: statistics.median(times_s) for name, times_s in times.items()}
    for name, median_s in medians.items():
        ratio = medians["rsync -a"] / median_s
        print(f"{name:18} {median_s:7.2f} s  {ratio:5.1f} x as fast as rsync")
    return 0


if __name__ == "__main__":
    sys.exit(main())
