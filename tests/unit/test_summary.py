"""The summary of very many ranks has exact sums, useful quantiles and constant size."""

from __future__ import annotations

from random import Random
from statistics import quantiles
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcircle.circle.messages import GATHER, FinalAccount, TreeReduction
from pcircle.circle.rounds import MAX_REASONS, MAX_SILENT, merge_accounts
from pcircle.circle.topology import TreePosition
from pcircle.runtime import RankReport
from pcircle.runtime.summary import (
    LIMIT,
    MAX_BINS,
    Summary,
    bin_of,
    edge,
    merged,
    unpacked,
)
from pcircle.tools.fprof.plan import ProfileTotals
from tests.conftest import SOAK

NAMES = ("entries", "bytes", "cpu_us")
numbers = st.integers(-100, LIMIT) | st.integers(0, 3000) | st.sampled_from((0, LIMIT, LIMIT + 9))
rows = st.tuples(numbers, numbers, numbers)


def one(rank: int, row: tuple[int, ...]) -> Summary:
    return Summary.of(rank, row[:1], dict(zip(NAMES, row, strict=True)))


@given(st.lists(rows, min_size=1, max_size=200), st.randoms(use_true_random=False))
def test_summaries_do_not_depend_on_the_tree(ranks: list[tuple[int, ...]], rng: Random) -> None:
    """Any order and grouping of the merges gives the same summary, to the last bin."""
    parts = [one(rank, row) for rank, row in enumerate(ranks)]
    in_order = merged(parts)
    while len(parts) > 1:
        a, b = (parts.pop(rng.randrange(len(parts))) for _ in range(2))
        parts.append(a + b)
    assert parts == [in_order]
    small = msgspec.structs.replace(in_order, counts=())  # the other counts may exceed 64 bits
    assert list(unpacked([msgspec.msgpack.encode(small)])) == [small]


@given(st.lists(st.integers(0, 1 << 40), min_size=1, max_size=300))
def test_sums_and_extremes_are_exact(values: list[int]) -> None:
    spread = merged(one(rank, (value,) * 3) for rank, value in enumerate(values)).figures["bytes"]
    assert spread.total == sum(values)
    assert (spread.minimum, spread.min_rank) == (min(values), values.index(min(values)))
    assert (spread.maximum, spread.max_rank) == (max(values), values.index(max(values)))
    assert sum(spread.bins.values()) == len(values)
    assert len(spread.bins) <= MAX_BINS
    assert sum(ranks for low, ranks in spread.edges() if low > max(values)) == 0


@given(st.integers(-LIMIT, LIMIT), st.integers(-LIMIT, LIMIT))
def test_bins_are_ordered_by_value(a: int, b: int) -> None:
    assert (bin_of(a) < bin_of(b)) <= (a < b)
    assert abs(edge(bin_of(a))) <= abs(a) < abs(edge(bin_of(abs(a)) + 1))


def test_quantiles_of_balanced_work_are_precise() -> None:
    """If ranks did similar amounts, the bins are narrow enough to show the differences."""
    rng = Random(7)
    values = [round(rng.gauss(1_000_000, 50_000)) for _ in range(20_000)]
    spread = merged(one(rank, (value,) * 3) for rank, value in enumerate(values)).figures["bytes"]
    exact = quantiles(values, n=20)
    for share, at in ((0.05, 0), (0.5, 9), (0.95, 18)):
        assert spread.quantile(share) == pytest.approx(exact[at], rel=0.02)


def report(rank: int, rng: Random) -> RankReport:
    """Build the worst case: figures of all magnitudes."""

    def any_size() -> int:
        return rng.getrandbits(rng.randrange(1, 62))

    counts = ProfileTotals(**{name: any_size() >> 20 for name in ProfileTotals.names})
    numbers = ("items", "spawned", "steals_asked", "steals_got", "parcels_got", "messages")
    more = ("message_bytes", "spilled", "peak_rss_bytes", "threads")
    figures: dict[str, Any] = {name: any_size() for name in numbers + more}
    return RankReport(
        rank=rank, node=rank // 64, counts=counts.row(), cpu_s=rng.random() * 1e6, **figures
    )


def test_the_size_of_an_account_does_not_depend_on_the_number_of_ranks() -> None:
    """The worst case is merged through the tree of ranks."""
    sizes = {ranks: len(account_of(ranks)) for ranks in (1, 1000, 100_000 if SOAK else 10_000)}
    print("bytes of an account:", sizes)
    assert max(sizes.values()) < 16 << 10


def account_of(ranks: int) -> bytes:
    rng = Random(1)
    accounts: dict[int, FinalAccount[int]] = {}
    for rank in reversed(range(ranks)):
        own = report(rank, rng)
        figures = ProfileTotals.figures(own.counts) | own.figures()
        summary = Summary.of(rank, own.counts, figures)
        total = FinalAccount[int]((msgspec.msgpack.encode(summary),))
        for child in TreePosition(rank, ranks, 8).children:
            total = merge_accounts(total, accounts.pop(child), int.__add__)
        packed = msgspec.msgpack.encode(merged(unpacked(total.reports)))
        accounts[rank] = msgspec.structs.replace(total, reports=(packed,))
    (summary,) = unpacked(accounts[0].reports)
    assert summary.ranks == ranks
    return msgspec.msgpack.encode(TreeReduction[int](GATHER, 1, account=accounts[0]))


def test_reasons_and_silent_ranks_are_limited() -> None:
    """The worst job adds a limited amount to an account."""
    reasons = tuple(f"rank {rank}: {'x' * 100}" for rank in range(MAX_REASONS))
    total = FinalAccount[int](reasons=reasons, silent=tuple(range(10**6, 10**6 + MAX_SILENT)))
    assert len(msgspec.msgpack.encode(merge_accounts(total, total, int.__add__))) < 20 << 10
