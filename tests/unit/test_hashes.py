"""Sets of hashes of names: exact for any number of them, in memory that is bounded."""

from __future__ import annotations

import gc
import os
import struct
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pcircle.ops.checkpoint.hashes import HashSet
from tests.conftest import SOAK

numbers = st.integers(0, 2**64 - 1) | st.integers(0, 30) | st.just(2**64 - 1)


def packed(numbers: list[int]) -> bytes:
    return struct.pack(f"<{len(numbers)}Q", *numbers)


@given(st.lists(st.lists(numbers, max_size=60), max_size=20), st.integers(1, 50), st.data())
@settings(deadline=None)
def test_a_set_contains_exactly_the_added_hashes(
    added: list[list[int]], held: int, data: st.DataObject
) -> None:
    """Lookups are exact with any limit on memory and any number of repeated additions."""
    hashes = HashSet(held)
    for batch in added:
        hashes.add(packed(batch))
    known = {number for batch in added for number in batch}
    assert bool(hashes) == bool(known)
    asking = st.sampled_from(sorted(known)) | numbers if known else numbers
    for _ in range(2):
        asked = data.draw(st.lists(asking, max_size=40))
        assert hashes.contains(packed(asked)).tolist() == [number in known for number in asked]
        assert bool(hashes) == bool(known)


def test_more_than_a_block_in_the_file() -> None:
    """Lookups are exact at all edges of blocks, with neighbours that are not in the set."""
    count = 5000
    hashes = HashSet(700)
    for number in range(count):
        hashes.add(packed([(number * 7919 % count) * 10]))
    assert hashes.contains(packed([number * 10 for number in range(count)])).all()
    for beside in (1, 9):
        assert not hashes.contains(packed([number * 10 + beside for number in range(count)])).any()


def test_its_file_is_closed_with_it() -> None:
    before = len(os.listdir("/proc/self/fd"))
    hashes = HashSet(1)
    hashes.add(packed([1, 2, 3]))
    hashes.contains(packed([2]))
    del hashes
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


FILL = """
import sys
from random import Random
from pcircle.ops.checkpoint.hashes import HashSet

count, rng, hashes = int(sys.argv[1]), Random(1), HashSet()
for _ in range(0, count, 1000):
    some = rng.randbytes(8000)
    hashes.add(some)
assert hashes.contains(some).all() and not hashes.contains(rng.randbytes(8000)).any()
status = open("/proc/self/status").read()
print(int(status.split("VmHWM:")[1].split()[0]) << 10)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_names() -> None:
    peaks = []
    for count in (2_000_000, 40_000_000 if SOAK else 10_000_000):
        words = [sys.executable, "-c", FILL, str(count)]
        peaks.append(int(subprocess.run(words, check=True, capture_output=True).stdout))
        print(f"{count:,} names: {peaks[-1] / 2**20:.0f} MiB")
    assert max(peaks) < 80 << 20
    assert peaks[1] < peaks[0] + (16 << 20)
