"""Measures pcircle's collective operations: real ranks, a real store, and delayed messages.

The results are compared with figures 9 to 17 of Carns, Settlemyer and Ligon, which
`examples.papers.carns` simulates. Here the protocol itself runs: `pcircle.collective` with the
files of `examples.striped_store`, on 2 to 64 servers on this machine, behind
`examples.papers.delayed`. Both shapes are measured, and both meanings of an answer: the operation
is decided, or all servers show it.

We chose delays about eleven times as long as those of Adenine, so that two cores can run 65 ranks.
The work of a rank for a message (0.1 to 1 ms with files in memory) must be short compared with the
delays. The model's times are for the same messages and delays, with servers that need no time.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import msgspec

from examples.papers.carns_ranks import VERBS, WAYS, Way
from examples.papers.command import Figure
from examples.papers.measured import Surroundings, scratch
from examples.papers.metadata import PARENT, Handed, ask, tree
from examples.papers.network import CLIENT, Answer, Call, Conditions, Network, Process
from examples.papers.output import Cell, draw, write_table

OVERHEAD_MS, LATENCY_MS = 2.0, 0.5
SERVERS, SMALL_SERVERS = (2, 4, 8, 16, 32, 64), (2, 5)
ROUNDS, DROPPED_ROUNDS = 9, 2
NAME = "carns-real"
_HEADER = ("operation", "servers", "shape, answer", "median ms", "min ms", "max ms", "model ms",
           "speed-up")  # fmt: skip
_NO_TIME = Handed(work_ms=lambda server: 0.0)
_FAST_BITS_PER_MS = 1e12  # the size of a message makes no difference here
_COLOURS = {False: "C0o", True: "C2^"}

Times = dict[str, dict[str, list[float]]]


def measured_ms(servers: int, rounds: int, overhead_ms: float, latency_ms: float) -> Times:
    """Measure ranks in a separate process; return milliseconds by way and verb for all rounds."""
    with tempfile.TemporaryDirectory(prefix="pcircle-", dir=scratch()) as place:
        words = [place, str(servers), str(rounds), str(overhead_ms), str(latency_ms)]
        command = [sys.executable, "-m", "examples.papers.carns_ranks", *words]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return msgspec.json.decode(done.stdout, type=Times)


def modelled_ms(way: Way, verb: str, servers: int) -> float:
    """Return the time until the client has its answer if only messages take time."""
    conditions = Conditions(
        overhead_ms=OVERHEAD_MS, bits_per_ms=_FAST_BITS_PER_MS, propagation_ms=LATENCY_MS / 2
    )
    network = Network(conditions, servers, Random(0))
    others = range(2, servers + 1)

    def alone() -> Process:
        """Query all servers but the entry's owner, then the owner, then notify all of them."""
        yield [ask(server, 0, 0, 0.0) for server in others]
        yield [ask(PARENT, 0, 0, 0.0)]
        if way.waits and verb != "stat":
            yield [ask(server, 0, 0, 0.0) for server in range(1, servers + 1)]

    def coordinate() -> Process:
        yield from tree(others, _NO_TIME)
        if verb != "stat":
            if not way.waits:
                yield Answer()
            yield from tree(others, _NO_TIME)

    def together() -> Process:
        yield [Call(PARENT, 0, 0, coordinate)]

    ends_ms: list[float] = []
    process = together() if way.collective else alone()
    network.run(CLIENT, process, lambda: ends_ms.append(network.now_ms))
    return ends_ms[0]


def figure(out: Path, small: bool) -> list[Path]:
    """Measure all numbers of servers; write the table, and a plot of the creations."""
    before = Surroundings.now()
    rows: list[list[Cell]] = []
    servers = SMALL_SERVERS if small else SERVERS
    rounds, dropped = (1, 0) if small else (ROUNDS, DROPPED_ROUNDS)
    for number in servers:
        print(f"{number} servers", file=sys.stderr)
        times = measured_ms(number, dropped + rounds, OVERHEAD_MS, LATENCY_MS)
        rows += _rows(number, times, dropped)
    note = before.note(
        f"each message: {OVERHEAD_MS:g} ms at each processor, {LATENCY_MS:g} ms under way; "
        f"{rounds} rounds"
    )
    table = write_table(out / f"{NAME}.csv", _HEADER, rows, note)
    return [table, *_plot(out, servers, rows)]


def _rows(servers: int, times: Times, dropped: int) -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    for verb in VERBS:
        kept = {way: times[way.name][verb][dropped:] for way in WAYS}
        for way, values in kept.items():
            middle = median(values)
            driven = median(kept[Way(False, way.waits)])
            spread = middle, min(values), max(values)
            model = modelled_ms(way, verb, servers)
            rows.append([verb, servers, way.name, *spread, model, driven / middle])
    return rows


def _plot(out: Path, servers: Sequence[int], rows: Sequence[Sequence[Cell]]) -> list[Path]:
    def paint(picture: Any) -> None:
        left, right = picture.subplots(1, 2, sharey=True)
        for axes, waits in ((left, False), (right, True)):
            for collective in (False, True):
                way = Way(collective, waits)
                some = [row for row in rows if row[0] == "create" and row[2] == way.name]
                shape, style = way.name.partition(",")[0], _COLOURS[collective]
                axes.plot(servers, [row[3] for row in some], style + "-", label=shape, markersize=3)
                axes.plot(servers, [row[6] for row in some], style[:2] + ":", label="model")
            axes.set(title=f"until {'all show it' if waits else 'decided'}", xlabel="servers")
            axes.grid(alpha=0.3)
        left.set(ylabel="ms", ylim=(0, None))
        left.legend()
        picture.suptitle("create with pcircle.collective, measured")

    return draw(out / f"{NAME}.svg", paint, size=(7.0, 3.6))


TITLE = "pcircle.collective over 2 to 64 ranks with a delay in each message, measured"
REAL = Figure("real", TITLE, 185.0, figure)
