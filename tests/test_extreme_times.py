"""Files with any time that a Linux file system can store are copied, found, sorted and printed.

tmpfs stores 64 bits of seconds; nanoseconds in 64 bits cover the years 1677 to 2262, and the C
library's calendar some 2,147 million years. The references are ls, find and the copies' status.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pcircle.core.units import NS_PER_S, format_time, timestamp
from tests.conftest import ROOT, Run

SECONDS = {
    "last": (1 << 63) - 1,
    "beyond-the-calendar": 67_768_036_191_676_800,
    "last-year": 67_768_036_191_676_799,
    "year-2400": 13_569_465_600,
    "year-1677": -9_223_372_037,
    "year-1": -62_135_596_800,
    "year-minus-2": -62_200_000_000,
    "first-year": -67_768_040_609_740_800,
    "first": -(1 << 63),
}
ENVIRONMENT = os.environ | {"LC_ALL": "C", "TZ": "UTC0"}
at_any_time = pytest.mark.parametrize("second", SECONDS.values(), ids=SECONDS)
beyond_64_bits = pytest.mark.parametrize("name", ["last", "year-2400", "year-1677"])


@pytest.fixture
def place() -> Iterator[Path]:
    """Return a directory in memory that has a tree of two files."""
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("/dev/shm is not writable")
    path = Path(tempfile.mkdtemp(dir="/dev/shm", prefix="pcircle-times-"))
    (path / "tree").mkdir()
    (path / "tree" / "now").write_bytes(b"1")
    yield path
    shutil.rmtree(path)


def _age(path: Path, second: int) -> None:
    path.write_bytes(b"2")
    os.utime(path, ns=(second * NS_PER_S, second * NS_PER_S))
    if os.stat(path).st_mtime_ns != second * NS_PER_S:
        pytest.skip("the file system does not hold this time")


def _output(place: Path, *command: str) -> bytes:
    done = subprocess.run(command, cwd=place, env=ENVIRONMENT, capture_output=True, timeout=60)
    assert done.returncode == 0, (command, done.stderr)
    return done.stdout


def _tool(place: Path, tool: str, *arguments: str) -> bytes:
    return _output(place, sys.executable, str(ROOT / "bin" / tool), *arguments)


@at_any_time
def test_listings_are_those_of_ls(place: Path, second: int) -> None:
    _age(place / "tree" / "old", second)
    for style in ("full-iso", "+%Y|%F|%G|%C|%y|%D|%c|%s"):
        wanted = _output(place, "ls", "-l", f"--time-style={style}", "tree")
        assert _tool(place, "fls", "-j1", "-l", f"--time-style={style}", "tree") == wanted
    assert _tool(place, "fls", "-j1", "-t", "tree") == _output(place, "ls", "-t", "tree")
    _tool(place, "fls", "-j1", "--total", "tree")


@at_any_time
def test_entries_are_those_of_find(place: Path, second: int) -> None:
    _age(place / "tree" / "old", second)
    for words in (
        ["tree", "-printf", r"%t|%TY|%T+|%TG|%TC|%Ty|%TD|%Ts|%T@ %p\n"],
        ["tree", "-newer", "tree/old"],
        ["tree", "-mtime", "+1"],
        ["tree", "-mtime", "-1"],
        ["tree", "-ls"],
    ):
        found = _tool(place, "ffind", "-j1", *words).splitlines()
        assert sorted(found) == sorted(_output(place, "find", *words).splitlines())
    in_order = _tool(place, "ffind", "-j1", "--sort=-mtime", "tree", "-type", "f").split()
    assert [os.path.basename(path) for path in in_order] == _output(
        place, "ls", "-t", "tree"
    ).split()
    lines = map(json.loads, _tool(place, "ffind", "-j1", "tree/old", "-json").splitlines())
    assert [line["mtime_ns"] for line in lines] == [second * NS_PER_S]


@beyond_64_bits
def test_copies_keep_the_time(place: Path, name: str) -> None:
    second = SECONDS[name]
    old = place / "tree" / "old"
    _age(old, second)
    os.link(old, place / "tree" / "link")
    _tool(place, "fcp", "-q", "-j1", "-a", "-T", "tree", "copied")
    _tool(place, "fmirror", "-q", "-j1", "tree", "mirrored")
    (place / "node").mkdir()
    _tool(place, "fbcast", "-q", "-j1", "tree", "node")
    for copy in ("copied", "mirrored", "node/tree"):
        assert os.stat(place / copy / "old").st_mtime_ns == second * NS_PER_S
    assert _tool(place, "fdiff", "-j1", "tree", "copied") == b""
    assert _tool(place, "fmirror", "-j1", "-i", "tree", "mirrored").count(b"old") == 0


@beyond_64_bits
def test_manifests_and_filters_take_the_time(place: Path, name: str) -> None:
    second = SECONDS[name]
    _age(place / "tree" / "old", second)
    _tool(place, "fsum", "-q", "-j1", "-o", "manifest", "tree")
    assert b" %d " % (second * NS_PER_S) in (place / "manifest").read_bytes()
    _tool(place, "fsum", "-q", "-j1", "--check", "manifest")
    _tool(place, "fsum", "-q", "-j1", "--update", "manifest", "tree")
    _tool(place, "fprof", "-q", "-j1", "--newer-than", "file:tree/old", "tree")
    _tool(place, "frm", "-q", "-r", "-j1", "--dry-run", "--older-than", "file:tree/old", "tree")


def test_parquet_has_null_for_a_time_that_it_cannot_hold(place: Path, run: Run) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    _age(place / "tree" / "old", SECONDS["year-2400"])
    _tool(place, "fls", "-q", "-j1", "--parquet", "rows", "tree")
    table = parquet.read_table(place / "rows").to_pydict()
    times = dict(zip(table["path"], table["mtime_ns"], strict=True))
    now_ns = os.stat(place / "tree" / "now").st_mtime_ns
    assert sorted(times.values(), key=str) == sorted([None, now_ns], key=str)


@pytest.mark.parametrize("time_ns", [0, 1, -1, NS_PER_S, -NS_PER_S - 1, 1 << 93, -(1 << 93)])
def test_a_timestamp_is_the_time(time_ns: int) -> None:
    found = timestamp(time_ns)
    assert found.ns == time_ns
    assert 0 <= found.nanoseconds < NS_PER_S


def test_usual_years_are_formatted_by_the_c_library() -> None:
    for second in range(-10_000_000_000, 10_000_000_000, 123_456_789):
        for pattern in ("%Y-%m-%d", "%c", "%G", "%C %y %D"):
            wanted = time.strftime(pattern, time.localtime(second))
            assert format_time(pattern, second, padded=True) == wanted
