"""Trees of rare entries, deeper than paths can be, compared with find and du.

The branch is the one from the torture test of copies: 3,000 levels, files of several names across
its depth, FIFOs. The output of find for each entry is also compared with the histograms and tables.
"""

from __future__ import annotations

import subprocess
from collections import Counter, defaultdict
from typing import Any, NamedTuple

import pytest

from tests.tools.fcp.running import ONE, Launcher
from tests.tools.fcp.test_torture import branch
from tests.tools.fprof.judge import document_totals, judged
from tests.tools.fprof.running import every_launcher, profiled

__all__ = ["branch"]

OPTIONS = (
    "--by",
    "age,owner,group,ext,depth,dirsize",
    "--bins",
    "log2",
    "--blocks",
    "4k,64k,1M",
    "--top",
    "30",
    "--sparse",
    "--stripe",
    "--compress=40",
)
UNITS = ("block_bytes", "subblock_bytes")


class File(NamedTuple):
    """A name of a file, with find's values."""

    inode: bytes
    size: int
    uid: bytes
    depth: int


def files_of(*roots: bytes) -> list[File]:
    found = []
    for root in roots:
        shape = "%D:%i %s %U %d\\0"
        command: list[str | bytes] = ["find", root, "-type", "f", "-printf", shape]
        lines = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.split(b"\0")
        for line in filter(None, lines):
            inode, size, uid, depth = line.split()
            found.append(File(inode, int(size), uid, int(depth)))
    return found


def comparable(document: dict[str, Any]) -> dict[str, Any]:
    left_out = ("elapsed_s", "entries_per_s", "ranks", "taken")
    return {key: value for key, value in document.items() if key not in left_out}


@pytest.fixture(scope="module")
def alone(odd_tree: bytes, branch: bytes) -> dict[str, Any]:
    """Return the result of one process, which all other runs must match."""
    return comparable(profiled(ONE, *OPTIONS, odd_tree, branch))


@every_launcher
def test_torture(launcher: Launcher, odd_tree: bytes, branch: bytes, alone: dict[str, Any]) -> None:
    document = profiled(launcher, *OPTIONS, odd_tree, branch)
    assert document_totals(document) == judged(odd_tree, branch)
    files = files_of(odd_tree, branch)
    once = {file.inode: file for file in files}.values()
    counts = document["counts"]
    names = Counter(file.inode for file in files)
    assert counts["hard_linked_files"] == sum(number > 1 for number in names.values())
    assert (counts["failed"], counts["unreadable"]) == (0, 0)
    below = -1
    for row in document["sizes"]["bins"]:
        inside = [file for file in files if below < file.size <= row["up_to"]]
        assert row["number"] == len(inside)
        assert row["bytes"] == sum(f.size for f in once if below < f.size <= row["up_to"])
        below = row["up_to"]
    for row in document["blocks"]:
        units = {key: sum(-(-file.size // row[key]) for file in once) for key in UNITS}
        assert row["space_bytes"] == units["block_bytes"] * row["block_bytes"]
        assert row["subblocks"] == units["subblock_bytes"]
    owners: defaultdict[bytes, list[int]] = defaultdict(lambda: [0, 0])
    for file in files:
        owners[file.uid][0] += 1
    for file in once:
        owners[file.uid][1] += file.size
    told_owners = [[row["number"], row["bytes"]] for row in document["by"]["owner"]]
    assert sorted(told_owners) == sorted(owners.values())
    depths = Counter(str(file.depth) if file.depth < 255 else "255 or more" for file in files)
    assert {row["label"]: row["number"] for row in document["by"]["depth"]} == depths
    assert comparable(document) == alone
