"""Numbers at their limits: the largest sizes, sums beyond 64 bits, the oddest times."""

from __future__ import annotations

import os

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcircle.fprof.items import narrow, wide
from pcircle.fprof.packing import pack, unpack
from tests.fcp.running import TWO, Launcher
from tests.fprof.running import profiled, run_fprof, some_launchers
from tests.fprof.test_saved import empty

LARGEST = 2**63 - 1
EVERYTHING = ("--by", "age,owner,group,ext,depth,dirsize", "--top", "5", "--blocks", "512,1M")


def huge(root: bytes, folders: int = 4, files: int = 3) -> int:
    """A tree of sparse files as large as there may be; how many these are."""
    for number in range(folders):
        os.makedirs(root + b"/%d/below" % number)
        for each in range(files):
            try:
                with open(root + b"/%d/below/%d.x" % (number, each), "wb") as file:
                    file.truncate(LARGEST)
            except OSError:
                pytest.skip("the file system has no files of that size")
    return folders * files


@some_launchers
def test_sums_may_have_more_than_64_bits(launcher: Launcher, place: bytes) -> None:
    """On their way between ranks, in each output and in what is kept."""
    tree, kept = place + b"/tree", place + b"/kept"
    number = huge(tree)
    outputs = ("--save", kept, "--html", place + b"/page", "--csv", place + b"/tables")
    document = profiled(launcher, *EVERYTHING, "--sparse", *outputs, tree)
    files = document["counts"]["files"]
    assert (files["number"], files["bytes"]) == (number, number * LARGEST)
    assert document["sizes"]["largest"] == LARGEST
    assert document["sparse"]["hole_bytes"] == number * LARGEST
    assert sum(rank["bytes"] for rank in document["ranks"]) == number * LARGEST
    assert document["by"]["age"][0]["bytes"] == number * LARGEST
    again = profiled(None, "--merge", *EVERYTHING, kept, kept)
    assert again["counts"]["files"]["bytes"] == 2 * number * LARGEST
    assert b"no difference" in run_fprof(None, "--diff", kept, kept).out


def test_a_directory_that_many_ranks_share_may_be_as_large(place: bytes) -> None:
    tree = place + b"/tree"
    number = huge(tree, 300)
    document = profiled(TWO, "--top", "3", tree)
    (all_of_it,) = (d for d in document["top"]["directories_by_entries"] if d["entries"] == 300)
    assert all_of_it["all_bytes"] == number * LARGEST


@given(st.integers(0, 2**40), st.integers(0, 2**80), st.integers(0, 2**80))
def test_sums_travel(entries: int, size: int, own: int) -> None:
    part = narrow((entries, size, own))
    assert wide(msgspec.msgpack.decode(msgspec.msgpack.encode(part), type=tuple[int, ...])) == (
        entries,
        size,
        own,
    )


@given(st.integers(0, 2**80), st.booleans())
def test_profiles_travel(size: int, elsewhere: bool) -> None:
    profile = empty()
    if elsewhere:
        profile.owners[5] = [1, size, 0]
    profile.kinds["file"][1] = size
    assert unpack(pack(profile)) == profile
