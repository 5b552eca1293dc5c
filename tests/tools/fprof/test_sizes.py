"""Sizes in bins: counting one by one and in bulk give the same result."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcircle.tools.fprof.profile.sizes import _EXACT_BYTES, SizeCounts, bin_of

near_powers = st.builds(
    lambda bits, off: max(0, (1 << bits) + off), st.integers(0, 63), st.integers(-2, 2)
)
sizes = st.one_of(near_powers, st.integers(0, 5000), st.integers(0, (1 << 63) - 1))


def expected(blocks: list[list[int]]) -> dict[int, list[int]]:
    numbers: Counter[int] = Counter()
    total: Counter[int] = Counter()
    for block in blocks:
        for size in block:
            numbers[bin_of(size)] += 1
            total[bin_of(size)] += size
    return {place: [n, total[place], n] for place, n in sorted(numbers.items())}


@given(st.lists(st.lists(sizes, min_size=1, max_size=40), max_size=30), st.integers(1, 50))
def test_bins_are_exact(blocks: list[list[int]], at_a_time: int) -> None:
    counted = SizeCounts()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pcircle.tools.fprof.profile.sizes._BLOCK_FILES", at_a_time)
        for block in blocks:
            counted.add(block)
        assert counted.in_bins() == expected(blocks)
    assert counted.largest_bytes == max((max(block) for block in blocks), default=0)


def test_small_sizes_and_edges_are_binned_at_once() -> None:
    wanted = [0, *range(1, 5000)]
    wanted += [(64 + step << bits) + off for bits in range(18) for step in range(64)
               for off in (-1, 0, 1)]  # fmt: skip
    wanted = sorted({size for size in wanted if size <= _EXACT_BYTES})
    blocks = [wanted[at : at + 500] for at in range(0, len(wanted), 500)]
    counted = SizeCounts()
    for block in blocks:
        counted.add(block)
    assert counted._at_once, "sizes that all differ go to their bins at once"
    assert counted._by_half
    assert counted.in_bins() == expected(blocks)


@pytest.mark.parametrize("seed", range(5))
def test_blocks_of_both_kinds(seed: int) -> None:
    """Sizes are equal, different, or too large for the short way."""
    rng = Random(seed)
    blocks = []
    for number in range(400):
        most = (10, 10**6, 10**13)[rng.randrange(3)]
        blocks.append([rng.randrange(most) for _ in range(rng.randrange(1, 512))])
        if number % 7 == 0:
            blocks.append([4096] * 100)
    counted = SizeCounts()
    for block in blocks:
        counted.add(block)
    assert counted.in_bins() == expected(blocks)


def test_exact_sizes_are_counted_if_wanted() -> None:
    for sizes in (SizeCounts((1000,)), SizeCounts(units=True)):
        for start in range(0, 50_000, 500):
            sizes.add(range(start, start + 500))
        assert not sizes._by_half
        sizes.in_bins()
        if sizes.edge_tallies:
            assert sizes.edge_tallies == [[1001, 500_500], [48_999, 49_999 * 25_000 - 500_500]]
    assert sizes.unit_counts[0] == sum(-(-size // 512) for size in range(50_000))
