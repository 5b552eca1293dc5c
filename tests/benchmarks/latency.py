"""``python -m tests.benchmarks.latency``: the tools on a file system with 2 ms per operation.

The only option is ``-j 2``; tools that wait for each operation are run for comparison. In one flat
directory the kernel serializes creations.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median

from pcircle.cli.listing import render

from . import waiting


def _build(root: bytes, directories: int, files: int) -> bytes:
    for directory in range(directories):
        folder = root + b"/%03d" % directory
        os.makedirs(folder)
        for number in range(files):
            with open(folder + b"/%04d" % number, "wb") as file:
                file.write(b"x" * 1000)
    return root


def _timed(command: list[str | bytes], before: Callable[[], None] = lambda: None) -> float:
    before()
    begun_s = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun_s


def _tool(name: str) -> list[str | bytes]:
    return [sys.executable, "-m", f"pcircle.tools.{name}", "-q", "-j", "2"]


def _compare(
    ours: list[str | bytes],
    peer: list[str | bytes],
    rounds: int,
    before: Callable[[], None] = lambda: None,
) -> list[str]:
    """Return the cells of a row; the slow and stable time of the other tool is measured once."""
    peer_s = _timed(peer, before)
    ours_s = median(_timed(ours, before) for _ in range(rounds))
    return [f"{peer_s:.1f} s", f"{ours_s:.2f} s", f"{peer_s / ours_s:.1f} x"]


def _changing(scratch: waiting.Scratch, rounds: int) -> list[list[str]]:
    """Measure the rows of fchmod and frm."""
    source, behind = scratch.place + b"/wide", scratch.backing + b"/wide"
    target, copy = scratch.place + b"/copy", scratch.backing + b"/copy"

    def shut() -> None:
        subprocess.run(["chmod", "-R", "go=", behind], check=True)

    def again() -> None:
        shutil.rmtree(copy, ignore_errors=True)
        subprocess.run(["cp", "-a", behind, copy], check=True)

    change: list[str | bytes] = ["-R", "go=rX", source]
    changed = _compare([*_tool("fchmod"), *change], ["chmod", *change], rounds, shut)
    removed = _compare([*_tool("frm"), "-r", target], ["rm", "-rf", target], rounds, again)
    return [
        ["fchmod, chmod -R: 5,000 entries, 50 directories", *changed, "15 x"],
        ["frm, rm -rf: 5,000 entries, 50 directories", *removed, "15 x"],
    ]


def main() -> int:
    """Measure, and print the table."""
    args = waiting.options("latency")
    rows = []
    with waiting.scratch() as scratch:
        place, backing = scratch.place, scratch.backing
        _build(backing + b"/tree", 50, 20)
        _build(backing + b"/flat", 1, 1000)
        _build(backing + b"/wide", 50, 99)
        _build(backing + b"/few", 30, 9)
        subprocess.run(["cp", "-a", backing + b"/tree", backing + b"/twin"], check=True)
        target = place + b"/copy"

        def clear() -> None:
            shutil.rmtree(backing + b"/copy", ignore_errors=True)

        with waiting.slow(scratch, args.delay_ms):
            for name, what in ((b"/tree", "50 directories"), (b"/flat", "one directory")):
                source = place + name
                ours, peer = [*_tool("fcp"), "-p"], ["cp", "-a"]
                cells = _compare(
                    [*ours, source, target], [*peer, source, target], args.rounds, clear
                )
                asked = "8 x" if name == b"/tree" else ""
                rows.append([f"fcp -p, cp -a: 1,000 files, {what}", *cells, asked])
            source = place + b"/wide"
            cells = _compare(
                [*_tool("fprof"), source], ["find", source, "-size", "+1G"], args.rounds
            )
            rows.append(["fprof, find -size +1G: 5,000 entries, 50 directories", *cells, "8 x"])
            cells = _compare([*_tool("fls"), "-lR", source], ["find", source, "-ls"], args.rounds)
            rows.append(["fls -lR, find -ls: 5,000 entries, 50 directories", *cells, "15 x"])
            rows += _changing(scratch, args.rounds)
            for name, what, asked in (
                (b"/wide", "5,000 entries, 50 directories", "15 x"),
                (b"/few", "300 entries, 30 directories", "6 x"),
            ):
                words: list[str | bytes] = [place + name, "-size", "+1G"]
                cells = _compare([*_tool("ffind"), *words], ["find", *words], args.rounds)
                rows.append([f"ffind, find -size +1G: {what}", *cells, asked])
            twins: list[str | bytes] = [place + b"/tree", place + b"/twin"]
            for option, what in (("--quick", "status"), ("-c", "content")):
                cells = _compare(
                    [*_tool("fdiff"), option, *twins], ["diff", "-rq", *twins], args.rounds
                )
                rows.append([f"fdiff, diff -rq: 1,000 pairs, {what}", *cells, "10 x"])
            source = place + b"/tree"
            command = b'find "$0" -type f -print0 | xargs -0 md5sum'
            cells = _compare([*_tool("fsum"), source], ["sh", "-c", command, source], args.rounds)
            rows.append(["fsum, find | xargs md5sum: 1,000 files, 50 directories", *cells, ""])
    print(render(rows, align="lrrrr", header=["", "peer", "-j 2", "", "asked"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
