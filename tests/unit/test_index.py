"""The index of a checkpoint is sorted and complete, and its memory use is constant."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pcircle.ops.checkpoint.index import IndexBuilder, RecordIndex, RecordLocation
from tests.conftest import SOAK

ENTRY_BYTES = 36
EPOCHS = {1: 3, 2: 0, 3: 7}
# For a process that has imported NumPy and sorts its rows; for one that only looks up.
LIMIT_BYTES = {"write": 110 << 20, "look": 40 << 20}


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path, os.O_RDONLY)
    yield fd
    os.close(fd)


def write_index(fd: int, places: IndexBuilder) -> bytes:
    """Write the committed entries to the index and return its content."""
    data = b"".join(places.committed_entries(EPOCHS))
    places.close()
    new = os.open("index", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600, dir_fd=fd)
    with open(new, "wb") as file:
        file.write(data)
    return data


keys = st.sampled_from([bytes(16), b"\xff" * 16, b"\0" * 15 + b"\1"]) | st.integers(
    0, 2**128 - 1
).map(lambda number: number.to_bytes(16, "big"))
rows = st.tuples(keys, st.integers(1, 3), st.integers(0, 8))


@given(st.lists(rows, max_size=200), st.integers(1, 40), st.integers(0, 99))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_exactly_the_committed_entries_are_found(
    fd: int, found: list[tuple[bytes, int, int]], held: int, seed: int
) -> None:
    """Neither the number of rows per batch nor the number of rows per key matters."""
    places, rng = IndexBuilder(fd, held), Random(seed)
    wanted: dict[bytes, list[RecordLocation]] = defaultdict(list)
    for offset, (key, run, epoch) in enumerate(found):
        place = RecordLocation(run, 5, offset, 9)
        places.add(key, place, epoch)
        if rng.random() < 0.1:
            places.reject()
            places.add(key, place, epoch)
        places.accept()
        if epoch <= EPOCHS[run]:
            wanted[key].append(place)
    data = write_index(fd, places)
    entries = [data[at : at + 16] for at in range(0, len(data), ENTRY_BYTES)]
    assert entries == sorted(entries)
    assert len(entries) == sum(map(len, wanted.values()))
    index = RecordIndex(fd)
    for key in {key for key, _, _ in found}:
        assert sorted(index.locations(key)) == sorted(wanted[key])
        after = (int.from_bytes(key, "big") + 1) % 2**128
        beside = after.to_bytes(16, "big")
        assert sorted(index.locations(beside)) == sorted(wanted[beside])
    index.close()
    assert not list(index.locations(bytes(16)))
    assert os.listdir(fd) == ["index"]


def test_leftovers_of_a_killed_run_are_ignored(fd: int) -> None:
    (Path(f"/proc/self/fd/{fd}") / "index.runs").write_bytes(b"something")
    places = IndexBuilder(fd, 1)
    for number in range(3):
        places.add(bytes([number]) * 16, RecordLocation(1, 0, number, 1), 1)
        places.accept()
    assert len(write_index(fd, places)) == 3 * ENTRY_BYTES


PLAY = """
import os, sys
from random import Random
from pcircle.ops.checkpoint.index import RecordIndex, RecordLocation, IndexBuilder

def write():
    places = IndexBuilder(fd)
    for number in range(records):
        key = rng.randbytes(16) if number % 10 else bytes(16)  # a tenth are of one directory
        places.add(key, RecordLocation(1, 0, number, 1), 1)
        if number % 700 == 0:
            places.accept()
    places.accept()
    new = os.open("index", os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=fd)
    with open(new, "wb") as file:
        for some in places.committed_entries({1: 1}):
            file.write(some)
    places.close()

def look_up():
    index = RecordIndex(fd)
    for number in range(records // 2):
        if number % 10:
            assert len(list(index.locations(rng.randbytes(16)))) == 1

fd, records, rng = os.open(sys.argv[2], os.O_RDONLY), int(sys.argv[3]), Random(1)
{"write": write, "look": look_up}[sys.argv[1]]()
status = open("/proc/self/status").read()
print(int(status.split("VmHWM:")[1].split()[0]) << 10)
"""


@pytest.mark.slow
@pytest.mark.parametrize("doing", ["write", "look"])
def test_memory_does_not_grow_with_the_records(doing: str, tmp_path: Path) -> None:
    """Both writing the index and looking up in it use constant memory."""
    peaks = []
    for records in (600_000, 6_000_000) if SOAK else (250_000, 500_000):
        place = tmp_path / str(records)
        place.mkdir()
        for step in dict.fromkeys(("write", doing)):
            words = [sys.executable, "-c", PLAY, step, str(place), str(records)]
            peak = int(subprocess.run(words, check=True, capture_output=True).stdout)
        assert (place / "index").stat().st_size == records * ENTRY_BYTES
        peaks.append(peak)
        print(f"{doing}, {records:,} records: {peak / 2**20:.0f} MiB")
    assert max(peaks) < LIMIT_BYTES[doing]
    assert peaks[1] < peaks[0] + (8 << 20)


def test_a_truncated_index_is_not_used(fd: int) -> None:
    places = IndexBuilder(fd)
    for number in range(1000):
        places.add(number.to_bytes(2, "big") * 8, RecordLocation(1, 0, number, 1), 1)
    places.accept()
    write_index(fd, places)
    index = RecordIndex(fd)
    os.truncate(Path(f"/proc/self/fd/{fd}") / "index", 10 * ENTRY_BYTES)
    assert not list(index.locations((900).to_bytes(2, "big") * 8))
    index.close()
