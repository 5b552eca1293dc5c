"""Delayed messages arrive in time and in order, and the measured figure uses them."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from examples.papers.carns_ranks import VERBS, WAYS, Way
from examples.papers.carns_real import LATENCY_MS, OVERHEAD_MS, REAL, modelled_ms
from examples.papers.command import DOCS
from examples.papers.delayed import Delay, Delayed
from examples.papers.output import can_plot
from pcircle.transport.contract import Delivery, LostRank

MAX_PLOT_BYTES = 60_000


class Pipe:
    """Two ranks in one process: rank 1 polls the messages of rank 0; polls advance the time."""

    def __init__(self, rank: int, clock: list[float], shared: list[Delivery | LostRank]) -> None:
        self.rank, self.size = rank, 2
        self.nodes: tuple[int, ...] = (0, 0)
        self.clock, self.shared = clock, shared

    def send(self, dest: int, payload: bytes) -> None:
        self.shared.append(Delivery(self.rank, payload))

    def poll(self, timeout_s: float | None) -> list[Delivery | LostRank]:
        arrivals, self.shared[:] = list(self.shared), []
        if not arrivals:
            assert timeout_s is not None, "nothing would ever come"
            self.clock[0] += timeout_s
        return arrivals

    def wake(self) -> None: ...
    def close(self) -> None: ...
    def abort(self, exit_code: int) -> None: ...


def _ends(delay: Delay) -> tuple[Delayed, Delayed, list[float], list[Delivery | LostRank]]:
    clock, shared = [100.0], list[Delivery | LostRank]()

    def end(rank: int) -> Delayed:
        return Delayed(Pipe(rank, clock, shared), delay, lambda: clock[0])

    return end(0), end(1), clock, shared


def test_each_message_takes_both_processors_and_the_way_between() -> None:
    one, other, clock, _ = _ends(Delay(overhead_s=2.0, latency_s=0.5))
    for number in range(3):
        one.send(1, b"%d" % number)
    assert other.poll(4.25) == []  # sent at 2, there at 2.5, handled at 4.5
    seen: list[tuple[float, Delivery | LostRank]] = []
    while len(seen) < 3:
        seen += [(clock[0] - 100, arrival) for arrival in other.poll(None)]
    assert seen == [(4.5, (0, b"0")), (6.5, (0, b"1")), (8.5, (0, b"2"))]
    assert one.messages == 3


def test_a_message_to_oneself_is_never_in_transit() -> None:
    one, _, clock, _ = _ends(Delay(overhead_s=2.0, latency_s=50.0))
    one.send(0, b"")
    assert one.poll(None) == [(0, b"")]
    assert clock == [104.0]


def test_a_loss_is_seen_after_earlier_messages() -> None:
    one, other, clock, shared = _ends(Delay(overhead_s=1.0, latency_s=1.0))
    one.send(1, b"last")
    shared.append(LostRank(0, "killed"))
    found: list[Delivery | LostRank] = []
    while len(found) < 2:
        found += other.poll(None)
    assert found == [Delivery(0, b"last"), LostRank(0, "killed")]
    assert clock == [103.0]


def test_a_message_within_a_node_overtakes_one_from_another_node() -> None:
    clock, shared = [100.0], list[Delivery | LostRank]()
    delay = Delay(overhead_s=0.0, latency_s=4.0, near_s=1.0)
    one, near, far = (
        Delayed(Pipe(rank, clock, shared), delay, lambda: clock[0], nodes)
        for rank, nodes in ((0, (0, 1)), (0, (0, 0)), (1, (0, 1)))
    )
    one.send(1, b"far")
    near.send(1, b"near")
    assert far.nodes == (0, 1)
    seen = [(far.poll(None), clock[0]) for _ in range(2)]
    assert seen == [([Delivery(0, b"near")], 101.0), ([Delivery(0, b"far")], 104.0)]


@pytest.mark.parametrize("servers", [1, 2, 16, 64])
def test_the_modelled_times_by_hand(servers: int) -> None:
    """The client's messages are sequential; a tree has at most a level for each doubling."""
    one_way_ms = 2 * OVERHEAD_MS + LATENCY_MS
    found = modelled_ms(Way(collective=False, waits=False), "create", servers)
    first_ms = (servers - 2) * OVERHEAD_MS + 2 * one_way_ms if servers > 1 else 0
    assert found == pytest.approx(first_ms + 2 * one_way_ms, abs=1e-6)
    together = modelled_ms(Way(collective=True, waits=False), "create", servers)
    levels = (servers - 1).bit_length()
    assert together <= 2 * one_way_ms * (levels + 1) + 1e-6
    shown = modelled_ms(Way(collective=True, waits=True), "create", servers)
    assert shown == pytest.approx(2 * together - 2 * one_way_ms, abs=1e-6)


def test_a_small_measurement(tmp_path: Path) -> None:
    table, *plots = REAL.make(tmp_path, True)
    assert [plot.suffix for plot in plots] == [".svg"] * can_plot()
    for path in (table, DOCS / table.name):
        note, *lines = path.read_text(encoding="utf-8").splitlines()
        assert note.startswith("# ")
        assert "load average" in note
        rows = list(csv.DictReader(lines))
        numbers = {row["servers"] for row in rows}
        assert len(rows) == len(numbers) * len(VERBS) * len(WAYS)
        for row in rows:  # no message was seen early
            assert float(row["min ms"]) >= float(row["model ms"])
    assert (DOCS / "carns-real.svg").stat().st_size < MAX_PLOT_BYTES
