"""Rounds with deadlines: sums, late and stale values, accounts and silent ranks."""

from __future__ import annotations

import operator

from hypothesis import given
from hypothesis import strategies as st

from pcircle.circle.messages import (
    GATHER,
    PROGRESS,
    FinalAccount,
    ProgressSums,
    TreeBroadcast,
    TreeReduction,
)
from pcircle.circle.rounds import (
    MAX_REASONS,
    MAX_SILENT,
    EpochRounds,
    GatherRound,
    ProgressRounds,
    earlier,
    merge_accounts,
)
from pcircle.circle.topology import TreePosition

counts = st.lists(st.integers(0, 1 << 60), max_size=5).map(tuple)
# Weights that add up without rounding, so that any order gives the same.
sums = st.builds(
    ProgressSums,
    counts,
    st.integers(0, 64).map(lambda share: share / 64),
    st.integers(0, 9),
    st.integers(0, 9),
)
accounts = st.builds(
    FinalAccount[int],
    st.lists(st.binary(max_size=3), max_size=3).map(tuple),
    st.none() | st.integers(0, 9),
    st.sampled_from((0, 1, 4, 70, 130)),
    st.sets(st.sampled_from(("full", "killed", "stopped"))).map(lambda r: tuple(sorted(r))),
    st.lists(st.integers(0, 9), max_size=3).map(tuple),
    st.integers(0, 9),
)


def padded(numbers: tuple[int, ...], length: int) -> list[int]:
    return [*numbers, *[0] * (length - len(numbers))]


@given(a=sums, b=sums, c=sums)
def test_sums_of_any_length_are_added_in_any_order(
    a: ProgressSums, b: ProgressSums, c: ProgressSums
) -> None:
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)
    assert a + ProgressSums() == a
    length = max(len(a.counts), len(b.counts))
    wanted = map(operator.add, padded(a.counts, length), padded(b.counts, length))
    assert list((a + b).counts) == list(wanted)
    assert (a + b).ranks == a.ranks + b.ranks


@given(a=accounts, b=accounts, c=accounts)
def test_accounts_merge_in_any_grouping(
    a: FinalAccount[int], b: FinalAccount[int], c: FinalAccount[int]
) -> None:
    def merged(x: FinalAccount[int], y: FinalAccount[int]) -> FinalAccount[int]:
        return merge_accounts(x, y, operator.add)

    assert merged(merged(a, b), c) == merged(a, merged(b, c))
    assert merged(a, FinalAccount()) == a
    values = [account.value for account in (a, b) if account.value is not None]
    assert merged(a, b).value == (sum(values) if values else None)
    assert set(merged(a, b).reasons) == {*a.reasons, *b.reasons}


def test_earlier_of_two_optional_times() -> None:
    assert earlier(1.0, 2.0) == earlier(2.0, 1.0) == 1.0
    assert earlier(None, 2.0) == earlier(2.0, None) == 2.0
    assert earlier(None, None) is None


# ---- progress --------------------------------------------------------------------------------


def root(children: int = 2, period_s: float = 1.0) -> ProgressRounds:
    return ProgressRounds(
        TreePosition(0, children + 1, 8), period_s, lambda: ProgressSums((1,), 0.0, 1)
    )


def answer(number: int, count: int, ranks: int = 1, stale: int = 0) -> TreeReduction[object]:
    return TreeReduction(PROGRESS, number, sums=ProgressSums((count,), 0.0, ranks, stale))


def test_a_round_ends_with_the_last_answer() -> None:
    rounds = root()
    assert rounds.wakeup_s() == 0.0
    assert rounds.advance(5.0) == [(1, TreeBroadcast(PROGRESS, 1)), (2, TreeBroadcast(PROGRESS, 1))]
    assert rounds.handle(1, answer(1, 10), 5.1) == []
    assert rounds.sums is None
    rounds.handle(2, answer(1, 100), 5.2)
    assert rounds.sums == ProgressSums((111,), 0.0, 3, 0)
    assert rounds.wakeup_s() == 6.0
    assert rounds.advance(5.9) == []
    assert rounds.advance(6.0) == [(1, TreeBroadcast(PROGRESS, 2)), (2, TreeBroadcast(PROGRESS, 2))]


def test_a_late_rank_counts_with_its_last_value_marked_stale() -> None:
    rounds = root()
    rounds.advance(0.0)
    rounds.handle(1, answer(1, 10), 0.1)
    rounds.handle(2, answer(1, 100, ranks=4), 0.1)
    rounds.advance(1.0)
    rounds.handle(1, answer(2, 20), 1.1)
    late_s = rounds.wakeup_s()
    assert late_s is not None
    assert 1.1 < late_s < 2.0
    rounds.advance(late_s)
    assert rounds.sums == ProgressSums((121,), 0.0, 6, 4)
    # Its answer arrives too late for its round, but counts in the next.
    rounds.handle(2, answer(2, 200, ranks=4), late_s + 0.01)
    rounds.advance(2.0)
    rounds.handle(1, answer(3, 30), 2.1)
    rounds.advance(2.99)
    assert rounds.sums == ProgressSums((231,), 0.0, 6, 4)


def test_a_rank_that_never_answered_is_not_covered() -> None:
    rounds = root()
    rounds.advance(0.0)
    rounds.handle(1, answer(1, 10), 0.1)
    rounds.advance(0.99)
    assert rounds.sums == ProgressSums((11,), 0.0, 2, 0)


def test_staleness_is_passed_up_the_tree() -> None:
    rounds = root()
    rounds.advance(0.0)
    rounds.handle(1, answer(1, 10, ranks=3, stale=2), 0.1)
    rounds.handle(2, answer(1, 100), 0.2)
    assert rounds.sums == ProgressSums((111,), 0.0, 5, 2)


def test_a_rank_below_gives_up_before_its_parent_and_answers_late_rounds_too() -> None:
    tree = TreePosition(1, 20, 2)
    below = ProgressRounds(tree, 1.0, lambda: ProgressSums((1,), 0.0, 1))
    assert below.wakeup_s() is None
    opened = below.handle(0, TreeBroadcast(PROGRESS, 1), 10.0)
    assert opened == [(child, TreeBroadcast(PROGRESS, 1)) for child in tree.children]
    above = ProgressRounds(TreePosition(0, 20, 2), 1.0, ProgressSums)
    above.advance(10.0)
    own_s, parents_s = below.wakeup_s(), above.wakeup_s()
    assert own_s is not None
    assert parents_s is not None
    assert own_s < parents_s
    assert below.advance(own_s) == [
        (0, TreeReduction(PROGRESS, 1, sums=ProgressSums((1,), 0.0, 1)))
    ]
    # The parent's next round replaces the round that is still open here.
    below.handle(0, TreeBroadcast(PROGRESS, 2), 11.0)
    below.handle(0, TreeBroadcast(PROGRESS, 3), 11.1)
    below.handle(tree.children[0], answer(2, 5), 11.15)
    below.handle(tree.children[0], answer(3, 6), 11.2)
    (out,) = below.handle(tree.children[1], answer(3, 7), 11.3)
    assert out == (0, TreeReduction(PROGRESS, 3, sums=ProgressSums((14,), 0.0, 3)))


def test_no_period_no_rounds() -> None:
    rounds = ProgressRounds(TreePosition(0, 3, 2), None, ProgressSums)
    assert rounds.wakeup_s() is None
    assert rounds.advance(1e9) == []


# ---- accounts --------------------------------------------------------------------------------


def gathering(rank: int = 0, size: int = 3) -> GatherRound[int]:
    own = FinalAccount[int](reports=(b"%d" % rank,), value=1)
    return GatherRound(TreePosition(rank, size, 8), 2.0, lambda: own, operator.add)


def account(rank: int) -> TreeReduction[int]:
    return TreeReduction(GATHER, 1, account=FinalAccount(reports=(b"%d" % rank,), value=10**rank))


def test_a_job_that_ends_well_waits_for_every_account() -> None:
    gather = gathering()
    assert gather.open() == [(1, TreeBroadcast(GATHER, 1)), (2, TreeBroadcast(GATHER, 1))]
    gather.handle(1, account(1))
    assert gather.advance(set(), True, 1e9) == []
    assert gather.wakeup_s() is None
    assert gather.total is None
    gather.handle(2, account(2))
    gather.advance(set(), True, 1e9)
    assert gather.total == FinalAccount(reports=(b"0", b"1", b"2"), value=111)
    assert gather.closed


def test_a_rank_with_running_items_does_not_give_its_account() -> None:
    gather = gathering(2)
    gather.open()
    assert gather.advance(set(), False, 0.0) == []
    ((dest, message),) = gather.advance(set(), True, 1.0)
    assert (dest, message.account) == (0, FinalAccount(reports=(b"2",), value=1))  # type: ignore[union-attr]


def test_an_account_lists_a_limited_number_of_reasons_and_ranks() -> None:
    """An account stays equally large, however many ranks have other reasons or are silent."""
    total = FinalAccount[int]()
    for rank in range(MAX_SILENT + 7):
        reasons = (f"rank {rank} has no space", "stopped")
        total = merge_accounts(total, FinalAccount(reasons=reasons, silent=(rank,)), operator.add)
    assert total.silent == tuple(range(MAX_SILENT))
    assert total.more_silent == 7
    assert total.reasons[:2] == ("rank 0 has no space", "stopped")
    assert len(total.reasons) == MAX_REASONS
    assert total.more_reasons == MAX_SILENT + 7 + 1 - MAX_REASONS


def test_an_aborted_job_lists_silent_ranks() -> None:
    gather = gathering()
    gather.open()
    gather.hurry(10.0)
    gather.hurry(99.0)  # a second abort does not add to it
    gather.handle(1, account(1))
    due_s = gather.wakeup_s()
    assert due_s == 12.0
    gather.advance(set(), False, due_s)
    assert gather.total is not None
    assert gather.total.silent == (2,)
    gather.handle(2, account(2))
    assert gather.advance(set(), True, 13.0) == []
    assert gather.wakeup_s() is None


def test_lost_ranks_are_not_waited_for() -> None:
    gather = gathering()
    gather.open()
    gather.handle(1, account(1))
    gather.advance({2}, True, 0.0)
    assert gather.total is not None
    assert gather.total.silent == (2,)


def test_an_aborted_job_ends_with_one_more_epoch() -> None:
    """On a single rank the round needs only that rank's sync."""
    epochs = EpochRounds(TreePosition(0, 1, 2), 60.0)
    assert epochs.are_over(aborted=False, now_s=1.0)
    assert not epochs.are_over(aborted=True, now_s=1.0)
    epochs.advance(idle=True, heard=0, now_s=1.0)
    assert not epochs.are_over(aborted=True, now_s=1.0)
    epochs.synced(epochs.sealed, 0)
    epochs.advance(idle=True, heard=0, now_s=1.0)
    assert epochs.are_over(aborted=True, now_s=1.0)
    assert (epochs.sealed, epochs.committed) == (1, 1)
