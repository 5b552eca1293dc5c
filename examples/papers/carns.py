"""Figures 9 to 18 of Carns, Settlemyer, Ligon: collective operations on a parallel file system.

In a collective operation, the servers of a parallel file system do together what a client would
otherwise request from each of them. Figures 9 to 11 of the paper were simulated, 12 to 17 were
measured with a prototype, and figure 18 is both. Here, the model in `examples.papers.metadata`
computes all of them, with an additional series for pcircle's two-phase protocol. The plotted values
of the paper are not available, only those in its text; ``docs/papers-carns.rst`` compares them.
`examples.papers.carns_real` measures pcircle's protocol with real ranks.

Sources of the numbers: delays and overheads of Adenine are those of the paper's public simulator
(HECIOS, April 2008). So is the client's time for create and stat, which we also use for remove.
Jazz with Ethernet has the same numbers. In addition, it has a cost of poll() and interruptions that
are *fitted* to the text's statements about the bars. Jazz with Myrinet is *fitted* to the ratios of
figures 15 to 17. Only its latency, divided between two links, is the paper's. The paper's numbers
are in `examples.papers.carns_paper`.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random

import msgspec

from examples.papers.carns_paper import (
    DROPPED_SAMPLES,
    MIN_SPREAD_MS,
    MYRINET_GAIN_SERVERS,
    MYRINET_LATENCY_MS,
    MYRINET_SHARES_SERVERS,
    OUTLIER_FACTOR,
    SAMPLES,
)
from examples.papers.carns_real import REAL
from examples.papers.carns_storm import storm_figure
from examples.papers.carns_trace import tree_figure
from examples.papers.command import Figure, main
from examples.papers.metadata import PLANS, Delays, Machine, Plan, perform
from examples.papers.network import Conditions, Interruptions
from examples.papers.output import Series, line_plot, write_table

FAST_ETHERNET, GIGABIT_ETHERNET = 100_000.0, 1_000_000.0  # bits per ms
OVERHEAD_MS = 0.175
CLIENT_MS = 0.9


def adenine(bits_per_ms: float) -> Machine:
    """Return the cluster of the simulations."""
    conditions = Conditions(overhead_ms=OVERHEAD_MS, bits_per_ms=bits_per_ms)
    return Machine(conditions=conditions, client_ms=CLIENT_MS)


# Fitted: poll costs 1 to 3 microseconds for each connection, and the interruptions reproduce the
# text's statements about the bars.
JAZZ = Machine(
    conditions=Conditions(
        overhead_ms=OVERHEAD_MS,
        bits_per_ms=FAST_ETHERNET,
        poll_ms=0.002,
        interruptions=Interruptions(rate=0.05, mean_ms=0.2),
    ),
    client_ms=CLIENT_MS,
)
MYRINET = Machine(
    conditions=Conditions(
        overhead_ms=0.080, bits_per_ms=2_000_000.0, propagation_ms=MYRINET_LATENCY_MS.value / 2
    ),
    delays=msgspec.structs.replace(Delays().scaled(0.6), get_attributes_ms=0.0),
)

# The numbers of servers in the runs of HECIOS.
SERVERS = (*range(1, 10), 16, 32, 36, 38, 48, 50, 64, 74, 100, 128, 150, 196, 200, 250, 256, 300,
           320, 350, 384, 400, 450, 500)  # fmt: skip
SMALL_SERVERS = (1, 8, 32)
MAX_SERVERS_JAZZ, MAX_SERVERS_MYRINET = 200, 128
RATIO_SERVERS = (
    MYRINET_GAIN_SERVERS.value,
    MYRINET_SHARES_SERVERS.value,
)  # mentioned in the text, but not in the runs of HECIOS

STYLES = {"client driven": "C0o", "collective": "C1s", "pcircle": "C2^"}


class Point(msgspec.Struct, frozen=True):
    """The samples of one point: the mean, minimum and maximum without outliers."""

    mean_ms: float
    min_ms: float
    max_ms: float


def without_outliers(samples: Sequence[float]) -> list[float]:
    """Return the samples that are not outliers by the paper's rule."""
    first, _, third = statistics.quantiles(samples, n=4, method="inclusive")
    margin = OUTLIER_FACTOR.value * max(third - first, MIN_SPREAD_MS.value)
    return [sample for sample in samples if first - margin <= sample <= third + margin]


def measured(machine: Machine, plan: Plan, servers: int, seed: str) -> Point:
    """Measure an operation by the method of the prototype; *seed* determines the interruptions."""
    random = Random(seed)
    runs = [perform(machine, plan, servers, random).client_ms for _ in range(SAMPLES.value)]
    kept = without_outliers(runs[DROPPED_SAMPLES.value :])
    return Point(statistics.fmean(kept), min(kept), max(kept))


def _servers(small: bool, maximum: int = max(SERVERS), more: Sequence[int] = ()) -> list[int]:
    if small:
        return list(SMALL_SERVERS)
    return sorted({*more, *(n for n in SERVERS if n <= maximum)})


def _title(number: int, operation: str, where: str) -> str:
    return f"Fig. {number}: {operation}, {where}"


LABELS = ("servers", "ms")


def simulated(number: int, operation: str, out: Path, small: bool) -> list[Path]:
    """Write figures 9 to 11: both Ethernets of Adenine, up to 500 servers."""
    servers = _servers(small)
    header, curves = ["servers"], []
    for rate, bits_per_ms, line in (
        ("100 Mb/s", FAST_ETHERNET, "--"),
        ("1 Gb/s", GIGABIT_ETHERNET, "-"),
    ):
        for protocol, plan in PLANS[operation].items():
            times = [perform(adenine(bits_per_ms), plan, n).client_ms for n in servers]
            header.append(f"{protocol} {rate} ms")
            curves.append(Series(f"{protocol}, {rate}", times, style=STYLES[protocol] + line))
    return _written(out, number, _title(number, operation, "Adenine"), header, servers, curves)


def prototype(number: int, operation: str, out: Path, small: bool) -> list[Path]:
    """Write figures 12 to 14: Jazz with Ethernet, with bars from smallest to largest sample."""
    servers = _servers(small, MAX_SERVERS_JAZZ)
    header, curves = ["servers"], []
    for protocol, plan in PLANS[operation].items():
        points = [measured(JAZZ, plan, n, f"{operation} {protocol} {n}") for n in servers]
        header += [f"{protocol} {name}" for name in ("mean ms", "min ms", "max ms")]
        low, high = [one.min_ms for one in points], [one.max_ms for one in points]
        style = STYLES[protocol] + "-"
        curves.append(Series(protocol, [one.mean_ms for one in points], low, high, style))
    title = _title(number, operation, "Jazz, 100 Mb/s")
    return _written(out, number, title, header, servers, curves)


def myrinet(number: int, operation: str, out: Path, small: bool) -> list[Path]:
    """Write figures 15 to 17: Jazz with Myrinet, and the collective's share of the time."""
    servers = _servers(small, MAX_SERVERS_MYRINET, RATIO_SERVERS)
    curves = [
        Series(
            protocol,
            [perform(MYRINET, plan, n).client_ms for n in servers],
            style=STYLES[protocol] + "-",
        )
        for protocol, plan in PLANS[operation].items()
    ]
    header = ["servers", *(f"{one.name} ms" for one in curves)]
    title = _title(number, operation, "Jazz, Myrinet")
    return _written(out, number, title, header, servers, curves)


def _written(
    out: Path,
    number: int,
    title: str,
    header: Sequence[str],
    servers: Sequence[int],
    curves: Sequence[Series],
) -> list[Path]:
    """Write the table, with a row for each number of servers, and the plot."""
    columns = [column for one in curves for column in (one.y, one.low, one.high) if column]
    rows = zip(servers, *columns, strict=True)
    name = f"carns-fig{number}"
    table = write_table(out / f"{name}.csv", header, rows)
    return [table, *line_plot(out / f"{name}.svg", servers, curves, title=title, labels=LABELS)]


def _figures() -> list[Figure]:
    kinds: list[tuple[str, Callable[[int, str, Path, bool], list[Path]], float]] = [
        ("Adenine, simulated", simulated, 4.0),
        ("Jazz, 100 Mb/s, prototype", prototype, 12.0),
        ("Jazz, Myrinet, prototype", myrinet, 2.0),
    ]
    figures = []
    for kind, (where, make, duration_s) in enumerate(kinds):
        for place, operation in enumerate(PLANS):
            number = 9 + 3 * kind + place
            title = _title(number, operation, where)
            figures.append(
                Figure(f"fig{number}", title, duration_s, partial(make, number, operation))
            )
    title = "Fig. 18: a source tree unpacked, listed and removed; Adenine, 74 servers"
    figures.append(
        Figure("fig18", title, 60.0, partial(tree_figure, "carns-fig18", adenine(FAST_ETHERNET)))
    )
    title = "storms of create, stat and remove over the striped store; Adenine, 100 Mb/s"
    figures.append(Figure("storm", title, 60.0, partial(storm_figure, adenine(FAST_ETHERNET))))
    return figures


FIGURES = _figures()

if __name__ == "__main__":
    sys.exit(main("carns", [*FIGURES, REAL]))
