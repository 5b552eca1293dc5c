"""The report of a tree matches an independent plain walk."""

from __future__ import annotations

import csv
import os
import random
import stat
import time
from collections import Counter, defaultdict
from typing import Any

import pytest

from tests.tools.fcp.running import ONE, TWO
from tests.tools.fprof.running import profiled, run_fprof

DAY_S = 86_400


@pytest.fixture(scope="session")
def tree(shared_place: bytes) -> bytes:
    """Create two thousand files of many sizes, ages, owners and names; the same in each run."""
    root = os.path.join(shared_place, b"reported")
    dice = random.Random(5)
    now_s = int(time.time())
    os.mkdir(root)
    folders = [root]
    for number in range(60):
        folders.append(os.path.join(dice.choice(folders), b"d%d" % number))
        os.mkdir(folders[-1])
    for number in range(2000):
        ending = dice.choice([b".txt", b".h5", b".TXT", b"", b".tar.gz", b".%d" % number])
        path = os.path.join(dice.choice(folders), b"f%d" % number + ending)
        with open(path, "wb") as file:
            file.truncate(int(2 ** dice.uniform(0, 22)) if number % 10 else 0)
        if os.geteuid() == 0:
            os.chown(path, dice.choice([0, 1000, 4_000_000_000]), dice.choice([0, 5]))
        age_s = int(10 ** dice.uniform(0, 8.5))
        os.utime(path, (now_s - age_s, now_s - age_s))
    os.utime(path, (now_s + 10 * DAY_S, now_s + 10 * DAY_S))
    os.link(path, root + b"/another name.of it")
    return root


def files_of(tree: bytes) -> dict[bytes, os.stat_result]:
    found = {}
    for folder, _, names in os.walk(tree):
        for name in names:
            status = os.lstat(os.path.join(folder, name))
            if stat.S_ISREG(status.st_mode):
                found[os.path.join(folder, name)] = status
    return found


def once(files: dict[bytes, os.stat_result]) -> list[os.stat_result]:
    return list({status.st_ino: status for status in files.values()}.values())


def rows(document: dict[str, Any], dimension: str) -> dict[str, tuple[int, int]]:
    return {row["label"]: (row["number"], row["bytes"]) for row in document["by"][dimension]}


@pytest.mark.parametrize(
    ("option", "edges"),
    [
        ("log2", [0, *(2**power for power in range(23))]),
        ("pow4", [0, *(4**power for power in range(12))]),
        ("1000,1MB,7", [7, 1000, 1_000_000]),
    ],
)
def test_histograms_of_sizes(tree: bytes, option: str, edges: list[int]) -> None:
    sizes = profiled(TWO, "--bins", option, tree)["sizes"]
    files = files_of(tree)
    assert sizes["exact"]
    below = -1
    for row, edge in zip(sizes["bins"], [*edges, 2**62], strict=False):
        upper = 2**62 if row["up_to"] is None else row["up_to"]
        assert upper == edge
        inside = [status for status in files.values() if below < status.st_size <= upper]
        alone = [status for status in once(files) if below < status.st_size <= upper]
        assert row["number"] == len(inside)
        assert row["bytes"] == sum(status.st_size for status in alone)
        below = upper
    assert sum(row["number"] for row in sizes["bins"]) == len(files)
    ordered = sorted(status.st_size for status in files.values())
    median = ordered[(len(ordered) - 1) // 2]
    assert abs(sizes["median"] - median) <= sizes["quantile_error"] * median + 1
    assert sizes["largest"] == ordered[-1]


def test_by_everything(tree: bytes) -> None:
    document = profiled(TWO, "--by", "age,owner,group", "--by", "ext,depth,dirsize", tree)
    files = files_of(tree)
    owners: defaultdict[int, list[int]] = defaultdict(lambda: [0, 0])
    for status in files.values():
        owners[status.st_uid][0] += 1
    for status in once(files):
        owners[status.st_uid][1] += status.st_size
    assert sorted(rows(document, "owner").values()) == sorted(map(tuple, owners.values()))
    endings = Counter(
        os.path.splitext(os.path.basename(path))[1].lower().decode() for path in files
    )
    extensions = {label: number for label, (number, _) in rows(document, "ext").items()}
    assert extensions["(none)"] == endings[""]
    assert {f: extensions[f] for f in (".txt", ".h5", ".gz")} == {
        f: endings[f] for f in (".txt", ".h5", ".gz")
    }
    depths = Counter(str(path.count(b"/") - tree.count(b"/")) for path in files)
    assert {label: number for label, (number, _) in rows(document, "depth").items()} == depths
    today = int(time.time()) // DAY_S
    ages = [today - int(status.st_mtime) // DAY_S for status in files.values()]
    assert rows(document, "age")["in the future"][0] == sum(age < 0 for age in ages) == 2
    assert rows(document, "age")["under 7 days"][0] == sum(1 <= age < 7 for age in ages)
    widths = Counter(len(folders) + len(names) for _, folders, names in os.walk(tree))
    told_widths = rows(document, "dirsize")
    assert told_widths.get("empty", (0, 0))[0] == widths[0]
    assert told_widths["up to 64 entries"] == (
        sum(number for width, number in widths.items() if 16 < width <= 64),
        sum(width * number for width, number in widths.items() if 16 < width <= 64),
    )


def test_the_best(tree: bytes) -> None:
    document = profiled(TWO, "--top", "7", tree)
    files = files_of(tree)
    top = document["top"]
    largest = sorted(files, key=lambda path: (-files[path].st_size, path))[:7]
    assert [os.fsencode(row["path"]) for row in top["largest"]] == largest
    assert [row["bytes"] for row in top["largest"]] == [files[path].st_size for path in largest]
    newest = sorted((-int(files[path].st_mtime), path) for path in files)[:7]
    assert [os.fsencode(row["path"]) for row in top["newest"]] == [path for _, path in newest]
    oldest = sorted((int(files[path].st_mtime), path) for path in files)[:7]
    assert [os.fsencode(row["path"]) for row in top["oldest"]] == [path for _, path in oldest]
    widths = {folder: len(names) + len(more) for folder, more, names in os.walk(tree)}
    wide = sorted(widths, key=lambda folder: (-widths[folder], folder))[:7]
    assert [row["entries"] for row in top["directories_by_entries"]] == [widths[f] for f in wide]
    assert os.fsencode(top["directories_by_entries"][0]["path"]) == wide[0]
    heavy = top["directories_by_bytes"][0]
    inside = [s for path, s in files.items() if os.path.dirname(path) == os.fsencode(heavy["path"])]
    assert heavy["bytes"] == sum(status.st_size // status.st_nlink for status in inside)


def test_directories_with_subtrees(tree: bytes) -> None:
    document = profiled(ONE, "--top", "100", tree)
    files = files_of(tree)
    for row in document["top"]["directories_by_bytes"]:
        prefix = os.fsencode(row["path"]) + b"/"
        below = [s.st_size // s.st_nlink for path, s in files.items() if path.startswith(prefix)]
        assert row["all_bytes"] == sum(below)
        folders = sum(1 for folder, _, _ in os.walk(os.fsencode(row["path"])))
        assert row["all_entries"] == len(below) + folders


@pytest.mark.parametrize("inode", [None, 0, 100, 3968, 65_536])
def test_blocks_are_counted_exactly(tree: bytes, inode: int | None) -> None:
    more = [] if inode is None else ["--data-in-inode", str(inode)]
    document = profiled(TWO, "--blocks", "512/512,4k,1M/32k,4M", *more, tree)
    files = [s.st_size for s in once(files_of(tree)) if inode is None or s.st_size > inode]
    for row, (block, subblock) in zip(
        document["blocks"],
        [(512, 512), (4096, 512), (1 << 20, 32768), (1 << 22, 8192)],
        strict=True,
    ):
        assert (row["block_bytes"], row["subblock_bytes"]) == (block, subblock)
        assert row["space_bytes"] == sum(-(-size // block) * block for size in files)
        assert row["subblocks"] == sum(-(-size // subblock) for size in files)
        assert row["efficiency"] == pytest.approx(sum(files) / row["space_bytes"], abs=1e-6)
    if inode is not None:
        small = [s.st_size for s in files_of(tree).values() if s.st_size <= inode]
        assert document["data_in_inode"]["number"] == len(small)
        assert document["data_in_inode"]["limit_bytes"] == inode


def test_a_limit_between_edges_is_rounded_down_with_a_message(tree: bytes) -> None:
    document = profiled(ONE, "--data-in-inode", "3900", tree)["data_in_inode"]
    assert (document["asked_bytes"], document["limit_bytes"]) == (3900, 3872)
    small = [s.st_size for s in files_of(tree).values() if s.st_size <= 3872]
    assert document["number"] == len(small)
    text = run_fprof(ONE, "--data-in-inode", "3900", tree).out
    assert b"3,900 bytes is rounded down to 3,872." in text


def test_csv_matches_the_document(tree: bytes, place: bytes) -> None:
    more = ("--sparse", "--data-in-inode", "4k", "--compress=5")
    options = ("--by", "age", "--top", "3", "--csv", place + b"/new/tables")
    document = profiled(ONE, *options, *more, tree)
    folder = place + b"/new/tables/"
    for name, wanted in (
        (b"sizes", document["sizes"]["bins"]),
        (b"by-age", document["by"]["age"]),
        (b"top-largest", document["top"]["largest"]),
        (b"sparse", [document["sparse"]]),
        (b"data-in-inode", [document["data_in_inode"]]),
        (b"compression", [document["compression"]]),
    ):
        with open(folder + name + b".csv", encoding="utf-8", newline="") as file:
            read = list(csv.DictReader(file))
        expected_rows = [{k: "" if v is None else str(v) for k, v in row.items()} for row in wanted]
        assert read == expected_rows


def test_the_text_contains_it_too(tree: bytes) -> None:
    options = ("--by", "age,ext", "--top", "2", "--blocks", "1M", "--data-in-inode", "4k")
    finished = run_fprof(TWO, *options, tree)
    assert finished.code == 0
    text = finished.out.decode()
    for word in ("size up to", "median size", "under 7 days", ".h5", "largest files", "subblock",
                 "in their inodes", "1 name"):  # fmt: skip
        assert word.split()[0] in text
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    plain = run_fprof(TWO, tree, environment={**ascii_only, "PYTHONIOENCODING": ""})
    assert b"###" in plain.out
    assert plain.out.isascii()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--by", "colour"], "--by: unknown 'colour'; choose from age, owner"),
        (["--bins", "4q"], "--bins: invalid size"),
        (["--blocks", "3k"], "--blocks: 3,072 bytes is not a power of two"),
        (["--blocks", "4k/8k"], "subblock larger than its block"),
        (["--top", "\x1b\udcff"], r"--top: invalid value '\x1b\xff': must be a positive integer"),
        (["--by", "\x1b\udcff"], r"--by: unknown '\x1b\xff'; choose from"),
        (["--top", "0"], "--top: invalid value '0': must be a positive integer"),
        (["--top", "9" * 5000], "999...': must be at most "),
        (["--threads", "9" * 5000], "999...': must be at most "),
        (["--jobs", "9" * 5000], "--jobs"),
        (["--blocks", ""], "--blocks: invalid size"),
        (["--compress=" + "9" * 5000], "999...': must be at most "),
        (["--threads", "x"], "--threads: invalid value 'x': must be a positive integer"),
        (["--ttop", "3"], "did you mean --top"),
        (["--csv", "/dev/null/x"], "--csv"),
        (["--csv", "-"], "--csv: '-' is not supported"),
        (["--data-in-inode", "-1"], "--data-in-inode"),
        (
            ["--data-in-inode", "65537"],
            "--data-in-inode: invalid value '65537': must be at most 64 KiB",
        ),
    ],
)
def test_mistakes_are_refused(tree: bytes, options: list[str], said: str) -> None:
    finished = run_fprof(ONE, *options, tree)
    assert finished.code == 2
    assert said in finished.said


def test_directories_by_entries_with_given_edges(tree: bytes) -> None:
    widths = [len(folders) + len(names) for _, folders, names in os.walk(tree)]
    found = rows(profiled(TWO, "--dirbins", "2,30,1000", tree), "dirsize")
    edges = {"up to 2 entries": (-1, 2), "up to 30 entries": (2, 30),
             "up to 1,000 entries": (30, 1000), "more than 1,000": (1000, 1 << 40)}  # fmt: skip
    wanted = {
        label: (len(inside), sum(inside))
        for label, (low, high) in edges.items()
        if (inside := [width for width in widths if low < width <= high])
    }
    assert {label: tuple(row[:2]) for label, row in found.items()} == wanted
    assert "more than 1,000" in wanted or len(wanted) > 1
