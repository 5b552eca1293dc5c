"""What a mirror costs: memory for many entries, also where all of them go."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable

import pytest

from tests.conftest import SOAK
from tests.fcp.running import TWO
from tests.frm.test_costs import MAX_RANK_BYTES

from .running import mirrored

FILES = 1_000_000 if SOAK else 200_000


def flat(top: bytes) -> None:
    os.makedirs(top)
    fd = os.open(top, os.O_RDONLY)
    for number in range(FILES):
        os.mknod(b"a name of some length, %d" % number, dir_fd=fd)
    os.close(fd)


def wide(top: bytes) -> None:
    for number in range(FILES // 200):
        inner = top + b"/%d/%d" % (number % 13, number)
        os.makedirs(inner)
        fd = os.open(inner, os.O_RDONLY)
        for name in range(200):
            os.mknod(b"%d" % name, dir_fd=fd)
        os.close(fd)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "option"), [(flat, "--delete"), (wide, "--delete"), (flat, "--delete=during")]
)
def test_memory_does_not_grow_with_the_tree(
    vast_place: bytes, make: Callable[[bytes], None], option: str
) -> None:
    """As they are made, as they are found unchanged, and as they all go."""
    source, target = vast_place + b"/a", vast_place + b"/b"
    make(source)
    peaks = {}
    for step in ("made", "unchanged", "gone"):
        if step == "gone":
            shutil.rmtree(os.fsdecode(source))
            os.mkdir(source)
        report = vast_place + b"/report"
        mirrored(TWO, option, "--allow-empty", "--allow-foreign", "--json", report, source, target)
        with open(report, "rb") as stream:
            said = json.load(stream)
        peaks[step] = max(rank["peak_rss_bytes"] for rank in said["ranks"])
        assert said["removed"] >= (FILES if step == "gone" else 0)
    assert os.listdir(target) == []
    assert max(peaks.values()) < MAX_RANK_BYTES, peaks
