"""Segments and their merge: records of many ranks in order, with few descriptors and memory."""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcircle.fs.sorting import FAN_IN, Sorter, sorted_records
from pcircle.walk import segments
from pcircle.walk.segments import (
    SegmentWriter,
    cut,
    key_of,
    merged,
    present,
    remove,
    result,
    write_range,
)

PARTS = 5000
DESCRIPTORS = 256


def _write(place: bytes, ranks: int, found: list[tuple[bytes, bytes]], rng: Random) -> None:
    """Write each record to any of the segments, in any order."""
    parts = [SegmentWriter(b"%b-%d" % (place, rank)) for rank in range(ranks)]
    for path, text in rng.sample(found, len(found)):
        rng.choice(parts).add(path, text)
    for part in parts:
        part.close()


def _found(rng: Random, number: int) -> list[tuple[bytes, bytes]]:
    names = [b"a", b"a-b", b"a b", b"\xff", b"\n", b"%41", b"z" * 99]
    paths = {b"/".join(rng.choices(names, k=rng.randrange(1, 9))) for _ in range(number)}
    return [(path, b"%b\0" % path * rng.randrange(1, 4)) for path in paths]


def _in_order(found: list[tuple[bytes, bytes]]) -> bytes:
    return b"".join(text for _, text in sorted(found, key=lambda row: row[0].split(b"/")))


@pytest.mark.parametrize("seed", range(12))
def test_ranges_concatenate_to_the_whole_walk(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any cuts give the same result; batches are small, so that there are many."""
    rng = Random(seed)
    monkeypatch.setattr(segments, "_BATCH_BYTES", rng.choice((1, 100, 1 << 20)))
    place = os.fsencode(tmp_path / "place")
    found = _found(rng, rng.choice((0, 1, 10, 300)))
    _write(place, 5, found, rng)
    whole = _in_order(found)
    assert b"".join(result(place, 5)) == whole
    parts = present(place, 5)
    cuts = cut(parts, rng.choice((50, 1000, 10_000)))
    assert cuts == sorted(set(cuts))
    bounds = list(zip([b"", *cuts], [*cuts, None], strict=True))
    pieces = [b"".join(merged(parts, low, high)) for low, high in bounds]
    assert b"".join(pieces) == whole
    if len(whole) > 5000 and len(cuts) > 3:
        assert max(map(len, pieces)) < len(whole) / 2
    for number, piece in enumerate(pieces):
        write_range(place, number, [piece], last=number == len(cuts))
    assert b"".join(result(place, 5)) == whole
    remove(place, 5)
    assert os.listdir(tmp_path) == []


def test_a_range_that_is_missing_is_an_error(tmp_path: Path) -> None:
    place = os.fsencode(tmp_path / "place")
    for number in range(3):
        write_range(place, number, [b"text"], last=number == 2)
    assert b"".join(result(place, 1)) == b"text" * 3
    os.unlink(place + b"-range-1")
    with pytest.raises(FileNotFoundError):
        list(result(place, 1))


def test_a_part_that_is_cut_short_is_an_error(tmp_path: Path) -> None:
    place = os.fsencode(tmp_path / "place")
    _write(place, 1, [(b"a", b"text"), (b"b", b"text")], Random(1))
    os.truncate(place + b"-0.text", 7)
    with pytest.raises(OSError, match="truncated"):
        list(result(place, 1))


@given(st.lists(st.lists(st.binary(min_size=1, max_size=3), min_size=1, max_size=3), max_size=40))
def test_every_bisection_ends_where_it_should(paths: list[list[bytes]]) -> None:
    clean = (
        b"/".join(part.replace(b"\0", b"1").replace(b"/", b"2") for part in path) for path in paths
    )
    keys = sorted({key_of(path) for path in clean})
    index = b"".join(key + b"%d 1/" % at for at, key in enumerate(keys))
    for key in [b"", *keys, b"\xff" * 9]:
        at = segments._first(index, key)
        before = [
            b"%b%d 1/" % (origin, number) for number, origin in enumerate(keys) if origin < key
        ]
        assert at == sum(map(len, before))


_PROGRAM = """
import os, resource, sys
from pcircle.walk.roots import Root
from pcircle.tools.fsum.plan import SumPlan
from pcircle.tools.fsum.manifests import publish
from pcircle.ops.digest.manifest import ManifestEntry, SectionWriter
from pcircle.walk.segments import SegmentWriter, cut, merged, present, write_range

folder, parts, descriptors, ranged = os.fsencode(sys.argv[1]), *map(int, sys.argv[2:])
resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
place = folder + b"/.parts"
open(place, "xb").close()
entries = [ManifestEntry(b"file %d" % number, b"f", bytes(16), 1, 2, 3) for number in range(10)]
for number in range(parts):
    part = SegmentWriter(b"%b-%d" % (place, number))
    for directory in (number, 2 * parts - number, 2 * parts + number):
        section = SectionWriter(part)
        section.begin(b"top/%05d" % directory)
        section.add(entries)
        section.end(b"top/%05d" % directory, len(entries), bytes(16))
    part.close()
if ranged:
    found = present(place, parts)
    cuts = cut(found, 1 << 20)
    assert len(cuts) > 5, cuts
    for number, (low, high) in enumerate(zip([b"", *cuts], [*cuts, None])):
        write_range(place, number, merged(found, low, high), last=high is None)
root = Root(b"", b"top", b"top")
fields = {"algorithm": "xxh128", "large_bytes": 1, "chunk_bytes": None}
plan = SumPlan(roots=(root,), directory=folder, parts=place, ranks=parts, **fields)
entry = ManifestEntry(b"", b"d", bytes(16), 7, 8, 9)
publish(plan, place, folder + b"/manifest", entry, 30 * parts, force=False)
"""


@pytest.mark.slow
@pytest.mark.parametrize("ranged", [0, 1], ids=["by rank 0 alone", "in ranges"])
def test_a_manifest_of_thousands_of_parts_needs_few_descriptors(
    ranged: int, tmp_path: Path
) -> None:
    """There is a segment per rank, because each rank writes one."""
    arguments = [str(tmp_path), str(PARTS), str(DESCRIPTORS), str(ranged)]
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *arguments], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    assert os.listdir(tmp_path) == ["manifest"]
    lines = (tmp_path / "manifest").read_bytes().splitlines()
    headings = [line for line in lines if line.startswith(b"dir ")]
    paths = [*range(PARTS), *range(PARTS + 1, 2 * PARTS + 1), *range(2 * PARTS, 3 * PARTS)]
    assert headings == [b"dir top/%05d" % number for number in sorted(paths)]
    assert len(lines) == 3 + 12 * 3 * PARTS


def test_memory_is_limited_to_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record of 40 MB, and many small ones, are read in pieces."""
    monkeypatch.setattr(segments, "_BATCH_BYTES", 1 << 20)
    place = os.fsencode(tmp_path / "place")
    small = [(b"small/%06d" % number, bytes(2000)) for number in range(10_000)]
    _write(place, 3, [*small, (b"large", bytes(40 << 20))], Random(1))
    tracemalloc.start()
    try:
        size = sum(map(len, result(place, 3)))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert size == 10_000 * 2000 + (40 << 20)
    assert peak < 12 << 20


def test_a_batch_is_in_memory_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "_BATCH_BYTES", 16 << 20)
    place = os.fsencode(tmp_path / "place")
    _write(place, 3, [(b"%04d" % number, bytes(100_000)) for number in range(400)], Random(1))
    tracemalloc.start()
    try:
        assert sum(map(len, result(place, 3))) == 400 * 100_000
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 24 << 20


def test_sorting_much_needs_few_descriptors() -> None:
    """Runs are merged a dozen at a time, before there are too many."""
    opened = len(os.listdir("/proc/self/fd"))
    sorter = Sorter(run_bytes=1000)
    most = 0
    numbers = list(range(20_000))
    Random(3).shuffle(numbers)
    try:
        for number in numbers:
            sorter.add(b"%05d" % number)
            most = max(most, len(os.listdir("/proc/self/fd")) - opened) if number % 7 == 0 else most
        assert list(sorter.sorted()) == [b"%05d" % number for number in range(20_000)]
    finally:
        sorter.close()
    assert most < 4 * FAN_IN, "and some thousand runs were made"
    assert list(sorted_records([b"b", b"a"])) == [b"a", b"b"]


def test_merging_many_runs_takes_no_more_memory_than_few() -> None:
    sorter = Sorter(run_bytes=1 << 20)
    count = (FAN_IN - 1) * 14_365 + 10_000  # leaves all runs except one
    tracemalloc.start()
    try:
        for number in range(count):
            sorter.add(b"%09d" % (number * 7919 % count))
        tracemalloc.reset_peak()
        assert sum(1 for _ in sorter.sorted()) == count
        assert tracemalloc.get_traced_memory()[1] < 7 << 20
    finally:
        tracemalloc.stop()
        sorter.close()
