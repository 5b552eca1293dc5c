"""``python -m tests.benchmarks.mirroring_changes DIR``: a few changes in a million files of btrfs.

The file system is in an image below DIR. In each round some files are changed, renamed and deleted,
and a read-only snapshot is made; fmirror and rsync each update a target, which started as a
snapshot of the source. Then rsync must find nothing left to do. Requires root and loop devices.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from random import Random

from . import datasets, measure
from .turns import Place, Tree, begun, show

_EACH, _CHANGED = 200, 100


def _call(*line: str) -> None:
    subprocess.run(line, check=True, stdout=subprocess.DEVNULL)


@contextmanager
def disk(top: str, files: int) -> Iterator[str]:
    """Mount a btrfs with room for three trees; yield its path."""
    mounted = f"{top}/disk"
    os.makedirs(mounted)
    with open(f"{top}/image", "xb") as stream:
        stream.truncate((4 << 30) + files * (16 << 10))
    _call("mkfs.btrfs", "-q", f"{top}/image")
    _call("mount", "-o", "loop,noatime", f"{top}/image", mounted)
    try:
        yield mounted
    finally:
        _call("umount", mounted)


class Source:
    """A subvolume with a tree, which is edited and kept in snapshots."""

    def __init__(self, mounted: str, files: int) -> None:
        self._mounted, self._random, self._number = mounted, Random(1), 0
        self._top = f"{mounted}/data"
        _call("btrfs", "subvolume", "create", self._top)
        Tree("million", files, _EACH).build(f"{self._top}/tree")
        self._folders = [here for here, _, names in os.walk(self._top) if names]

    def snapshot(self) -> str:
        """Take a snapshot of the source."""
        self._number += 1
        path = f"{self._mounted}/snapshot {self._number}"
        _call("btrfs", "subvolume", "snapshot", "-r", self._top, path)
        return path

    def edit(self) -> None:
        """Change, rename and delete some files, each in another directory."""
        for place, folder in enumerate(self._random.sample(self._folders, _CHANGED)):
            path = os.path.join(folder, self._random.choice(sorted(os.listdir(folder))))
            if place % 3 == 0:
                with open(path, "ab") as stream:
                    stream.write(b"more")
            elif place % 3 == 1:
                os.rename(path, f"{self._folders[place]}/renamed {self._number} {place}")
            else:
                os.unlink(path)


def rows(jobs: Sequence[int], mounted: str) -> dict[str, list[str]]:
    """Return the commands by name; the last word is the target, one per command."""
    fmirror = [sys.executable, "-m", "pcircle.tools.fmirror", "-q", "--delete", "--changed=fs"]
    found = {f"fmirror -j {number}": [*fmirror, "-j", str(number)] for number in jobs}
    found = {"rsync -a": ["rsync", "-a", "--delete"], **found}
    return {name: [*line, f"{mounted}/{name}"] for name, line in found.items()}


def measured(place: Place, files: int, jobs: Sequence[int]) -> None:
    """Create everything, and print the cost of each command."""
    with disk(place.top, files) as mounted:
        source, commands = Source(mounted, files), rows(jobs, mounted)
        begin = now = source.snapshot()
        done = set(commands)
        for name, line in commands.items():
            _call("btrfs", "subvolume", "snapshot", begin, line[-1])
            _run(place, name, line, begin)

        def run(name: str) -> measure.Cost:
            nonlocal now
            if name in done:
                done.clear()
                source.edit()
                now = source.snapshot()
                subprocess.run(["sync", "-f", mounted], check=True)
            done.add(name)
            return _run(place, name, commands[name], now)

        costs = place.compare("changes", list(commands), run)
        for line in commands.values():
            _judge(now, line[-1])
    show(f"{_CHANGED} of {files:,} files changed, renamed or deleted", costs)


def _run(place: Place, name: str, line: list[str], source: str) -> measure.Cost:
    return place.run(name, [*line[:-1], source + "/", line[-1]])


def _judge(source: str, target: str) -> None:
    line = ["rsync", "-naHi", "--delete", source + "/", target + "/"]
    left = subprocess.run(line, check=True, capture_output=True).stdout
    if left:
        raise SystemExit(f"{target}: {left[:200]!r}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all benchmarks; return the exit code."""
    with begun("mirroring_changes", arguments, 1_000_000, "fmirror") as (place, files, jobs):
        os.makedirs(place.top)
        measured(place, files, jobs)
        datasets.remove(place.top)
    return 0


if __name__ == "__main__":
    sys.exit(main())
