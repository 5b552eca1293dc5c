"""The model of Carns' figures matches the known results; each figure is generated small."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path
from random import Random

import msgspec
import pytest

from examples.papers import carns, carns_trace
from examples.papers.carns import FAST_ETHERNET, GIGABIT_ETHERNET, JAZZ, MYRINET, adenine
from examples.papers.carns_paper import MYRINET_SHARES, SPEED_UPS, TREE_SPEED_UPS
from examples.papers.command import DOCS, Figure
from examples.papers.metadata import (
    CLIENT_DRIVEN,
    COLLECTIVE,
    PCIRCLE,
    PLANS,
    PROTOCOLS,
    Delays,
    Handed,
    Machine,
    ask,
    perform,
    tree,
)
from examples.papers.network import (
    CLIENT,
    Conditions,
    Interruptions,
    Network,
    Process,
    Queue,
    wire_bytes,
)
from examples.papers.output import can_plot

OPERATIONS = ["create", "remove", "stat"]
every_operation = pytest.mark.parametrize("operation", OPERATIONS)

# The results of an independent model of the same description, in ms: servers; then for create,
# remove and stat, at 100 Mb/s and at 1 Gb/s, client driven and collective.
TABLE = """
  1  5.30  5.20  5.18  5.17  5.24  4.35  5.16  4.33  2.50  2.47  2.44  2.44
 10  6.87  7.49  6.76  7.30  6.81  5.90  6.74  5.74  4.08  4.16  4.02  3.99
 20  8.62  8.61  8.51  8.36  8.56  6.67  8.49  6.45  5.84  5.04  5.77  4.77
 50 13.87  9.99 13.76  9.60 13.81  7.69 13.74  7.34 11.13  6.30 11.02  5.74
 74 18.07 10.99 17.96 10.49 18.01  8.34 17.94  7.88 15.37  7.14 15.23  6.36
100 22.62 11.28 22.51 10.68 22.56  8.63 22.49  8.06 19.96  7.58 19.78  6.56
200 40.12 12.79 40.01 11.78 40.06  9.78 39.99  8.81 37.60  9.37 37.30  7.43
300 57.62 14.11 57.51 12.70 57.56 10.75 57.49  9.38 55.24 10.96 54.81  8.13
400 75.12 14.72 75.01 12.92 75.06 11.36 74.99  9.59 72.89 12.15 72.32  8.40
500 92.62 15.31 92.51 13.14 92.56 11.95 92.49  9.81 90.52 13.29 89.84  8.67
"""


def _ms(machine: Machine, operation: str, protocol: str, servers: int) -> float:
    return perform(machine, PLANS[operation][protocol], servers).client_ms


def _speed_up(machine: Machine, operation: str, servers: int) -> float:
    client_driven_ms = _ms(machine, operation, CLIENT_DRIVEN, servers)
    return client_driven_ms / _ms(machine, operation, COLLECTIVE, servers)


# ---- network ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payload", "wire"), [(0, 0), (4, 64), (56, 114), (512, 570), (513, 634), (1024, 1140)]
)
def test_bytes_on_the_wire(payload: int, wire: int) -> None:
    assert wire_bytes(payload) == wire


def test_a_queue_serves_in_turn() -> None:
    queue = Queue()
    assert [queue.served_ms(now, 2) for now in (0, 1, 10)] == [2, 4, 12]


def _took_ms(process: Process, *, overhead_ms: float = 1.0, servers: int = 3) -> float:
    network = Network(Conditions(overhead_ms=overhead_ms, bits_per_ms=8.0), servers, Random(0))
    ends: list[float] = []
    network.run(CLIENT, process, lambda: ends.append(network.now_ms))
    [end] = ends
    return end


def test_messages_by_hand() -> None:
    """A byte on the wire takes a ms: 114 bytes are sent, 64 returned, over two links each."""

    def one() -> Process:
        yield [ask(1, 32, 4, 10.0)]

    def two() -> Process:
        yield [ask(1, 32, 4, 10.0), ask(2, 32, 4, 10.0)]

    def nothing() -> Process:
        yield []

    assert _took_ms(one()) == 4 * 1.0 + 10.0 + 2 * 114 + 2 * 64
    assert _took_ms(two()) == 4 * 1.0 + 10.0 + 3 * 114 + 2 * 64  # the second waits for its link
    assert _took_ms(nothing()) == 0


def test_create_by_hand() -> None:
    """Overheads and delays of the client driven create at 50 servers; link times are negligible."""
    o, d, n = carns.OVERHEAD_MS, Delays(), 50
    waits = d.create_metadata_ms + d.create_object_ms + d.set_attributes_ms + d.create_entry_ms
    by_hand = carns.CLIENT_MS + (3 * 4 + n + 3) * o + waits
    found = _ms(adenine(GIGABIT_ETHERNET), "create", CLIENT_DRIVEN, n)
    assert found == pytest.approx(by_hand, rel=0.003)


@pytest.mark.parametrize("members", [0, 1, 2, 3, 8, 37])
def test_the_tree_reaches_each_server_once_with_logarithmic_depth(members: int) -> None:
    reached: list[int] = []

    def work_ms(server: int) -> float:
        reached.append(server)
        return 0.0

    servers = range(1, members + 1)
    _took_ms(tree(servers, Handed(work_ms=work_ms)), servers=members)
    assert sorted(reached) == list(servers)
    children = next(tree(servers, Handed(work_ms=work_ms)))
    assert isinstance(children, list)
    assert len(children) == members.bit_length()  # the logarithm, rounded down, plus one


# ---- figures 9 to 11 -------------------------------------------------------------------


@pytest.mark.parametrize("line", TABLE.strip().splitlines(), ids=lambda line: line.split()[0])
def test_the_table(line: str) -> None:
    servers, *expected = (float(word) for word in line.split())
    found = [
        _ms(adenine(rate), operation, protocol, int(servers))
        for operation in OPERATIONS
        for rate in (FAST_ETHERNET, GIGABIT_ETHERNET)
        for protocol in (CLIENT_DRIVEN, COLLECTIVE)
    ]
    assert found == pytest.approx(expected, rel=0.03)


@every_operation
def test_speed_ups_at_fifty_servers(operation: str) -> None:
    stated = SPEED_UPS[operation].value
    assert _speed_up(adenine(GIGABIT_ETHERNET), operation, 50) == pytest.approx(stated, abs=0.03)


@every_operation
def test_only_client_driven_operations_are_linear(operation: str) -> None:
    fast, gigabit = adenine(FAST_ETHERNET), adenine(GIGABIT_ETHERNET)
    first, second, third = (_ms(gigabit, operation, CLIENT_DRIVEN, n) for n in (64, 128, 256))
    assert third - second == pytest.approx(2 * (second - first), rel=0.01)
    assert _ms(fast, operation, CLIENT_DRIVEN, 256) == pytest.approx(third, rel=0.01)
    for protocol in (COLLECTIVE, PCIRCLE):
        first, second, third = (_ms(gigabit, operation, protocol, n) for n in (64, 128, 256))
        assert 0 < third - second < 1.5 * (second - first)
        assert _ms(fast, operation, protocol, 256) > 1.05 * third


@pytest.mark.parametrize(
    ("operation", "messages", "client_driven_bytes", "collective_bytes"),
    [
        ("create", 1006, 30_260, 60_916),
        ("remove", 1004, None, None),
        ("stat", 1002, 38_064, 91_400),
    ],
)
def test_messages_and_bytes(
    operation: str, messages: int, client_driven_bytes: int | None, collective_bytes: int | None
) -> None:
    plans = PLANS[operation]
    driven, collective, ours = (perform(MYRINET, plans[protocol], 500) for protocol in PROTOCOLS)
    assert (driven.messages, collective.messages) == (messages, messages)
    if client_driven_bytes is not None:
        assert driven.payload_bytes == client_driven_bytes
        assert collective.payload_bytes == collective_bytes
    assert ours.messages == 2 + 2 * 1000


@every_operation
def test_two_phases_answer_after_the_decision_is_recorded(operation: str) -> None:
    """The client waits for one pass of the tree; the second pass follows its answer."""
    gigabit = adenine(GIGABIT_ETHERNET)
    ours = perform(gigabit, PLANS[operation][PCIRCLE], 50)
    collective = perform(gigabit, PLANS[operation][COLLECTIVE], 50)
    assert ours.client_ms <= collective.client_ms + 1e-9
    assert ours.quiet_ms > ours.client_ms + 2
    assert collective.quiet_ms == collective.client_ms


# ---- figures 12 to 17 ------------------------------------------------------------------


def test_outliers_are_omitted_by_the_rule_of_the_paper() -> None:
    assert carns.without_outliers([1.0] * 30 + [1.014, 1.016, 9.0]) == [1.0] * 30 + [1.014]
    spread = [float(number) for number in range(33)]
    assert carns.without_outliers([*spread[:-1], 71.0]) == [*spread[:-1], 71.0]
    assert carns.without_outliers([*spread[:-1], 73.0]) == spread[:-1]


@every_operation
def test_polls_and_interruptions_affect_client_driven_operations(operation: str) -> None:
    @cache
    def point(protocol: str, servers: int) -> carns.Point:
        return carns.measured(JAZZ, PLANS[operation][protocol], servers, f"test {servers}")

    def bend_ms(protocol: str) -> float:
        first, second, third = (point(protocol, n).mean_ms for n in (20, 60, 100))
        return third - 2 * second + first

    def spread_ms(protocol: str, servers: int) -> float:
        one = point(protocol, servers)
        return one.max_ms - one.min_ms

    assert bend_ms(CLIENT_DRIVEN) > 1
    assert bend_ms(COLLECTIVE) < 0
    assert spread_ms(CLIENT_DRIVEN, 60) > 2 * spread_ms(CLIENT_DRIVEN, 10)
    assert spread_ms(COLLECTIVE, 60) < 0.05 * point(CLIENT_DRIVEN, 60).max_ms


@every_operation
def test_stalled_servers_do_not_explain_wide_bars_of_the_client(operation: str) -> None:
    """Rare stalls are outliers by the paper's rule; frequent ones widen the collective's bars."""

    def spreads_ms(rate: float, protocol: str) -> list[float]:
        conditions = msgspec.structs.replace(
            JAZZ.conditions, interruptions=Interruptions(), stalls=Interruptions(rate, 10.0)
        )
        machine = msgspec.structs.replace(JAZZ, conditions=conditions)
        plan = PLANS[operation][protocol]
        points = [carns.measured(machine, plan, 60, f"stall {seed}") for seed in range(3)]
        return [one.max_ms - one.min_ms for one in points]

    assert max(spreads_ms(0.001, CLIENT_DRIVEN)) < 0.02
    assert max(spreads_ms(0.001, COLLECTIVE)) < 0.02
    assert sum(spreads_ms(0.01, COLLECTIVE)) > 10 + sum(spreads_ms(0.01, CLIENT_DRIVEN))


@every_operation
def test_remaining_time_with_myrinet(operation: str) -> None:
    share = MYRINET_SHARES[operation].value
    assert 1 / _speed_up(MYRINET, operation, 60) == pytest.approx(share, abs=0.02)
    assert _speed_up(MYRINET, operation, 128) > _speed_up(MYRINET, operation, 60)


# ---- figure 18, and all of them small ---------------------------------------------------


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_the_tree_has_the_speed_ups_that_the_remainder_is_fitted_to(tmp_path: Path) -> None:
    carns_trace.tree_figure("small", adenine(FAST_ETHERNET), tmp_path, True)
    rows = {(row["phase"], row["protocol"]): row for row in _rows(tmp_path / "small.csv")}
    assert len(rows) == 9
    for phase, stated in TREE_SPEED_UPS.items():
        row = rows[phase, COLLECTIVE]
        assert float(row["speed-up"]) == pytest.approx(stated.value)
        assert -0.1 < float(row["fitted ms per file"]) < 5
        assert float(rows[phase, PCIRCLE]["total s"]) < float(rows[phase, CLIENT_DRIVEN]["total s"])


def test_the_prototype_has_the_stated_ratios_next_to_those_of_the_model(tmp_path: Path) -> None:
    carns_trace.tree_figure("small", adenine(FAST_ETHERNET), tmp_path, True)
    for path in (tmp_path / "small.csv", DOCS / "carns-fig18.csv"):
        rows = {(row["phase"], row["protocol"]): row for row in _rows(path)}
        for phase, stated in TREE_SPEED_UPS.items():
            driven, collective = rows[phase, CLIENT_DRIVEN], rows[phase, COLLECTIVE]
            prototype, model = carns_trace.PROTOTYPE, "modelled over collective"
            assert float(driven[prototype]) == stated.value > float(collective[prototype]) == 1
            assert float(driven[model]) == float(collective["modelled speed-up"])
            assert float(collective[model]) == 1
            assert rows[phase, PCIRCLE][prototype] == ""
    drawn = (DOCS / "carns-fig18.svg").read_text(encoding="utf-8")
    assert drawn.count(f"{carns_trace.PROTOTYPE}: ") >= 2


@pytest.mark.parametrize("figure", carns.FIGURES, ids=lambda figure: figure.name)
def test_each_figure_small(figure: Figure, tmp_path: Path) -> None:
    """The small figures reproduce the values in docs/papers for the same numbers of servers."""
    table, *plots = figure.make(tmp_path, True)
    assert [plot.suffix for plot in plots] == [".svg"] * can_plot()
    committed = _rows(DOCS / table.name)
    assert (DOCS / table.with_suffix(".svg").name).stat().st_size < 60_000
    found = _rows(table)
    assert found
    if figure.name == "fig18":
        for small, full in zip(found, committed, strict=True):
            assert [small["phase"], small["protocol"]] == [full["phase"], full["protocol"]]
            assert float(small["total s"]) == pytest.approx(float(full["total s"]), rel=0.01)
    elif figure.name == "storm":
        by_row = {(row["operation"], row["servers"]): row for row in committed}
        for row in found:
            full = by_row[row["operation"], row["servers"]]
            for column in ("client driven ms", "collective ms"):
                assert float(row[column]) == pytest.approx(float(full[column]), rel=0.05)
    else:
        by_servers = {row["servers"]: row for row in committed}
        assert found == [by_servers[row["servers"]] for row in found]
