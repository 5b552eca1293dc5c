"""The costs of a mirror: memory for many entries, also for their removal."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import SOAK
from tests.tools.fcp.running import TWO
from tests.tools.frm.test_costs import MAX_RANK_BYTES

from .running import mirrored

FILES = 1_000_000 if SOAK else 100_000


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


def reported(place: bytes, *words: str) -> Any:
    """Return the report of a mirror of `a` to `b`."""
    report = place + b"/report"
    mirrored(TWO, *words, "--json", report, place + b"/a", place + b"/b")
    with open(report, "rb") as stream:
        return json.load(stream)


def peak(said: Any) -> int:
    """Return the memory of the largest process, including the jobs that it ran before."""
    largest: int = max(rank["peak_rss_bytes"] for rank in said["ranks"])
    return largest


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "option"), [(flat, "--delete"), (wide, "--delete"), (flat, "--delete=during")]
)
def test_memory_does_not_grow_with_the_tree(
    vast_place: bytes, make: Callable[[bytes], None], option: str
) -> None:
    """The entries are created, found unchanged, and removed."""
    source, target = vast_place + b"/a", vast_place + b"/b"
    make(source)
    peaks = {}
    for step in ("made", "unchanged", "gone"):
        if step == "gone":
            shutil.rmtree(os.fsdecode(source))
            os.mkdir(source)
        said = reported(vast_place, option, "--allow-empty", "--allow-foreign")
        peaks[step] = peak(said)
        assert said["removed"] >= (FILES if step == "gone" else 0)
    assert os.listdir(target) == []
    assert max(peaks.values()) < MAX_RANK_BYTES, peaks


@pytest.mark.slow
@pytest.mark.parametrize("words", [[], ["--dry-run"]], ids=str)
def test_memory_when_all_paths_change(vast_place: bytes, words: list[str]) -> None:
    """Many of them have equal size and time, and are distinguished by their names."""
    source = vast_place + b"/a"
    flat(source + b"/old")
    for name in os.listdir(source + b"/old"):
        os.truncate(source + b"/old/" + name, 1)
    reported(vast_place)
    os.rename(source + b"/old", source + b"/new")
    said = reported(vast_place, "--delete", "--moved", *words)
    assert (said["moved"], said["files"]) == (FILES, 0)
    # A dry run holds five numbers of eight bytes for each path. The rest varies by 8 MiB, with the
    # jobs that the larger process takes.
    assert peak(said) < (88 << 20) + 40 * FILES
