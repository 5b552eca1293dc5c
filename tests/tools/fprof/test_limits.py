"""Numbers at their limits: the largest sizes, sums beyond 64 bits, extreme times."""

from __future__ import annotations

import json
import os

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcircle.tools.fprof.plan import narrow, wide
from pcircle.tools.fprof.profile.model import pack, unpack
from tests.tools.fcp.running import ONE, TWO, Launcher
from tests.tools.fprof.running import profiled, run_fprof, some_launchers
from tests.tools.fprof.test_saved import empty

LARGEST = 2**63 - 1
EVERYTHING = ("--by", "age,owner,group,ext,depth,dirsize", "--top", "5", "--blocks", "512,1M")


def huge(root: bytes, folders: int = 4, files: int = 3) -> int:
    """Create a tree of sparse files of the maximum size; return their number."""
    for number in range(folders):
        os.makedirs(root + b"/%d/below" % number)
        for file_number in range(files):
            try:
                with open(root + b"/%d/below/%d.x" % (number, file_number), "wb") as file:
                    file.truncate(LARGEST)
            except OSError:
                pytest.skip("the file system has no files of that size")
    return folders * files


@some_launchers
def test_sums_may_have_more_than_64_bits(launcher: Launcher, place: bytes) -> None:
    """Sums survive transfers between ranks, all outputs, and saved profiles."""
    tree, saved = place + b"/tree", place + b"/kept"
    number = huge(tree)
    outputs = ("--save", saved, "--html", place + b"/page", "--csv", place + b"/tables")
    document = profiled(launcher, *EVERYTHING, "--sparse", *outputs, tree)
    files = document["counts"]["files"]
    assert (files["number"], files["bytes"]) == (number, number * LARGEST)
    assert document["sizes"]["largest"] == LARGEST
    assert document["sparse"]["hole_bytes"] == number * LARGEST
    assert sum(rank["bytes"] for rank in document["ranks"]) == number * LARGEST
    assert document["by"]["age"][0]["bytes"] == number * LARGEST
    again = profiled(None, "--merge", *EVERYTHING, saved, saved)
    assert again["counts"]["files"]["bytes"] == 2 * number * LARGEST
    assert b"no difference" in run_fprof(None, "--diff", saved, saved).out


def test_a_directory_that_many_ranks_share_may_be_as_large(place: bytes) -> None:
    tree = place + b"/tree"
    number = huge(tree, 300)
    document = profiled(TWO, "--top", "3", tree)
    (all_of_it,) = (d for d in document["top"]["directories_by_entries"] if d["entries"] == 300)
    assert all_of_it["all_bytes"] == number * LARGEST


@given(st.integers(0, 2**40), st.integers(0, 2**80), st.integers(0, 2**80))
def test_large_sums_are_sent(entries: int, size: int, own: int) -> None:
    part = narrow((entries, size, own))
    assert wide(msgspec.msgpack.decode(msgspec.msgpack.encode(part), type=tuple[int, ...])) == (
        entries,
        size,
        own,
    )


@given(st.integers(0, 2**80), st.booleans())
def test_large_profiles_are_sent(size: int, elsewhere: bool) -> None:
    profile = empty()
    if elsewhere:
        profile.owners[5] = [1, size, 0]
    profile.kinds["file"][1] = size
    assert unpack(pack(profile)) == profile


def test_deep_entries_are_ranked_too(place: bytes) -> None:
    """Paths are longer than 1,024 bytes, and than 4,096, where they are truncated with a mark."""
    context = os.open(place, os.O_RDONLY)
    path = place
    for level in range(40):
        name = b"%03d" % level * 40
        os.mkdir(name, dir_fd=context)
        below = os.open(name, os.O_RDONLY, dir_fd=context)
        os.close(context)
        context, path = below, os.path.join(path, name)
        if level in (12, 39):
            for number in range(level):
                os.close(os.open(b"%d" % number, os.O_CREAT | os.O_WRONLY, dir_fd=context))
            fd = os.open(b"large", os.O_CREAT | os.O_WRONLY, dir_fd=context)
            os.truncate(fd, 1000 * level)
            os.close(fd)
            if level == 12:
                middle = path
    os.close(context)
    document = profiled(TWO, "--top", "2", place)
    assert document["largest_directory"]["entries"] == 40
    deepest = document["largest_directory"]["path"]
    assert path.startswith(os.fsencode(deepest[:-3]))
    assert deepest.endswith("...")
    assert 4096 < len(deepest) < 4200
    top = document["top"]
    assert [row["bytes"] for row in top["largest"]] == [39_000, 12_000]
    assert os.fsencode(top["largest"][1]["path"]) == middle + b"/large"
    assert top["largest"][0]["path"].endswith("...")
    assert os.fsencode(top["directories_by_bytes"][1]["path"]) == middle
    assert [row["bytes"] for row in top["directories_by_bytes"]] == [39_000, 12_000]


def test_the_largest_files_are_of_their_own_age(place: bytes) -> None:
    """They do not appear among the empty files of the following week."""
    tree = place + b"/tree"
    huge(tree, 1, 2)
    with open(tree + b"/two", "wb") as file:
        file.truncate(2**62 + 1)
    page = place + b"/page"
    profiled(ONE, "--html", page, tree)
    with open(page, "rb") as file:
        text = file.read().split(b'id="data">')[1].split(b"</script>")[0]
    heat = json.loads(text)["heat"]
    numbers = {heat["ages"][age]: row for age, row in enumerate(heat["number"]) if any(row)}
    assert {age: row[-1] for age, row in numbers.items()} == {"1 week": 3}
    assert sum(numbers["1 week"]) == 3
    assert sum(heat["bytes"][1]) == 2 * LARGEST + 2**62 + 1


def test_no_quantile_is_larger_than_the_largest_file(place: bytes) -> None:
    for size in (130, 993, 65_537):
        with open(place + b"/file", "wb") as file:
            file.truncate(size)
        sizes = profiled(ONE, place + b"/file")["sizes"]
        assert max(sizes["quantiles"].values()) <= sizes["largest"] == size
        assert sizes["median"] <= size


def test_odd_times(place: bytes) -> None:
    tree = place + b"/tree"
    os.mkdir(tree)
    times_s = (0, -1, -(2**31), 2**33, -(2**40), 2**40, 2**62, -(2**62))
    for number, time_s in enumerate(times_s):
        with open(tree + b"/%d" % number, "wb") as file:
            file.write(b"x" * number)
        os.utime(tree + b"/%d" % number, ns=(0, time_s * 10**9 + 999_999_999))
    stored_s = [round(os.stat(tree + b"/%d" % n).st_mtime_ns // 10**9) for n in range(len(times_s))]
    outputs = ("--html", place + b"/page", "--save", place + b"/kept")
    document = profiled(ONE, "--by", "age", "--top", "20", *outputs, tree)
    ages = {row["label"]: row["number"] for row in document["by"]["age"]}
    assert ages["in the future"] == sum(time_s > 2**32 for time_s in stored_s)
    assert ages["10 years or more"] == sum(time_s < 1 for time_s in stored_s)
    assert len(document["top"]["oldest"]) == len(times_s)
    assert document["top"]["newest"][-1] == document["top"]["oldest"][0]
    again = profiled(None, "--merge", "--by", "age", place + b"/kept")
    assert again["by"] == document["by"]


def test_extreme_times_use_no_more_memory(place: bytes) -> None:
    """Each file has a week of its own, most of them outside of any calendar."""
    tree = place + b"/tree"
    os.mkdir(tree)
    peaks = []
    for number in (1000, 150_000):
        fd = os.open(tree, os.O_RDONLY)
        for file_number in range(number):
            os.close(os.open(b"%d" % file_number, os.O_CREAT | os.O_WRONLY, dir_fd=fd))
            time_s = (file_number + 10_000) * 700_000 * (1 if file_number % 2 else -1)
            os.utime(b"%d" % file_number, (0, time_s), dir_fd=fd)
        os.close(fd)
        document = profiled(ONE, "--by", "age", tree)
        assert sum(row["number"] for row in document["by"]["age"]) == number
        peaks.append(document["ranks"][0]["peak_rss_bytes"])
    assert peaks[1] - peaks[0] < 20 << 20


def test_thousands_of_paths(place: bytes) -> None:
    """Each path is compared with all others; pairwise comparisons would take minutes."""
    tree = place + b"/tree"
    os.mkdir(tree)
    paths = [tree + b"/%d" % number for number in range(12_000)]
    for path in paths:
        os.mkdir(path)
    assert profiled(TWO, *paths)["counts"]["directories"]["number"] == len(paths)
    finished = run_fprof(ONE, *paths, paths[7] + b"/../8/.")
    assert finished.code == 2
    assert "is in" in finished.said
