"""Figure 18 of Carns, Settlemyer, Ligon: the Linux source tree unpacked, listed and removed.

The workload is that of figure 18: tar, ``ls -lR`` and ``rm -r`` on the source of Linux 2.6.9, about
1,000 directories and 16,000 files, on 74 servers with 100 Mb/s, one call after the other. It is
replayed as a serial trace on the model of `examples.papers.metadata`. First, each directory is
created; each file is created and gets one write and its times. Then each directory is read, and its
files are looked up. Finally, each directory is read, and its files and itself are removed. Only
create, stat and remove of files have several protocols.

Chosen by us: a tenth of the tree is replayed and counted ten times, because all directories are
alike; the bytes of a file are sent in one message to one server; and the steps for directories.
*Fitted*: each file has 8 KiB (files are mostly small according to the text on figure 18), because
unpacking then needs no remainder. The remainder is a time of the client for each file in each
phase, for look-ups and its own work. It is fitted so that the speed-up of the collective equals the
paper's.

The text on figure 18 says "improved by 49 %, 75 %, 83 %". Only speed-ups of 1.49, 1.75 and 1.83 fit
figures 9 to 11, by which no call can save more than 54 % of its time at 74 servers.

The figure also has bars of the prototype, whose heights the text does not state. They are drawn as
multiples of the collective's time, with the client-driven time at the stated speed-up. The model's
bars next to them have no remainder and the same unit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from examples.papers.carns_paper import TREE_SERVERS, TREE_SPEED_UPS
from examples.papers.metadata import (
    CLIENT_DRIVEN,
    COLLECTIVE,
    PARENT,
    PLANS,
    PROTOCOLS,
    Delays,
    Machine,
    ask,
    metadata_server,
    perform,
)
from examples.papers.network import Process
from examples.papers.output import BarPanel, Series, bar_panels, write_table
from examples.papers.stated import Stated

PROTOTYPE = "prototype, from the text on figure 18"


class Tree(msgspec.Struct, frozen=True, kw_only=True):
    """The part of the tree that is replayed, and how often it is counted."""

    directories: int
    files_each: int
    counted: int

    @property
    def files(self) -> int:
        return self.directories * self.files_each * self.counted


TREE = Tree(directories=100, files_each=16, counted=10)
SMALL_TREE = Tree(directories=1, files_each=16, counted=1000)
FILE_BYTES = 8192
NAME_BYTES = 32  # of an entry in the answer of a directory that is read


def _make_directory(delays: Delays, meta: int) -> Process:
    yield [ask(meta, 32, 4, delays.create_directory_ms)]
    yield [ask(PARENT, 48, 4, delays.create_entry_ms)]


def _read_directory(delays: Delays, entries: int) -> Process:
    yield [ask(PARENT, 32, 16 + NAME_BYTES * entries, delays.read_directory_ms)]


def _remove_directory(delays: Delays, meta: int) -> Process:
    yield [ask(PARENT, 40, 4, delays.remove_entry_ms)]
    yield [ask(meta, 24, 4, delays.remove_metadata_ms)]


def _calls(
    phase: str, protocol: str, tree: Tree, delays: Delays, servers: int
) -> Iterator[Process]:
    """Yield all calls of a phase, in order; those on files follow the messages of *protocol*."""
    meta = metadata_server(servers)
    for _ in range(tree.directories):
        if phase == "unpack":
            yield _make_directory(delays, meta)
        else:
            yield _read_directory(delays, tree.files_each)
        for _ in range(tree.files_each):
            yield from _file_calls(phase, protocol, delays, servers)
        if phase == "remove":
            yield _remove_directory(delays, meta)


def _file_calls(phase: str, protocol: str, delays: Delays, servers: int) -> Iterator[Process]:
    operation = {"unpack": "create", "list": "stat", "remove": "remove"}[phase]
    yield PLANS[operation][protocol](delays, servers)
    if phase == "unpack":
        yield _one(metadata_server(servers) % servers + 1, FILE_BYTES, 0.0)
        yield _one(metadata_server(servers), 96, delays.set_attributes_ms)


def _one(target: int, request_bytes: int, delay_ms: float) -> Process:
    yield [ask(target, request_bytes, 4, delay_ms)]


def replayed_s(machine: Machine, phase: str, protocol: str, tree: Tree) -> float:
    """Replay a phase; return the seconds for the whole tree, without a remainder."""
    client_ms = machine.client_ms

    def trace(delays: Delays, servers: int) -> Process:
        for call in _calls(phase, protocol, tree, delays, servers):
            yield from call
        yield client_ms * tree.directories * tree.files_each

    alone = msgspec.structs.replace(machine, client_ms=0.0)
    return perform(alone, trace, TREE_SERVERS.value).client_ms * tree.counted / 1000


def fitted_s(client_driven_s: float, collective_s: float, speed_up: float) -> float:
    """Return the time to add to both durations so that their ratio is the speed-up."""
    return (client_driven_s - speed_up * collective_s) / (speed_up - 1)


def prototype_ratios(speed_up: Stated[float]) -> dict[str, float]:
    """Return the stated times of the prototype as multiples of the collective's time."""
    return {CLIENT_DRIVEN: speed_up.value, COLLECTIVE: 1.0}


def tree_figure(name: str, machine: Machine, out: Path, small: bool) -> list[Path]:
    """Replay all three phases with all protocols, and fit the remainders."""
    tree = SMALL_TREE if small else TREE
    rows: list[list[str | float]] = []
    bars: dict[str, list[float]] = {protocol: [] for protocol in PROTOCOLS}
    relative: dict[str, list[float]] = {protocol: [] for protocol in PROTOCOLS}
    for phase, stated in TREE_SPEED_UPS.items():
        bare_s = {protocol: replayed_s(machine, phase, protocol, tree) for protocol in PROTOCOLS}
        rest_s = fitted_s(bare_s[CLIENT_DRIVEN], bare_s[COLLECTIVE], stated.value)
        for protocol in PROTOCOLS:
            total_s = bare_s[protocol] + rest_s
            bars[protocol].append(total_s)
            relative[protocol].append(bare_s[protocol] / bare_s[COLLECTIVE])
            rows.append(
                [
                    phase,
                    protocol,
                    bare_s[protocol],
                    bare_s[CLIENT_DRIVEN] / bare_s[protocol],
                    rest_s / tree.files * 1000,
                    total_s,
                    (bare_s[CLIENT_DRIVEN] + rest_s) / total_s,
                    relative[protocol][-1],
                    prototype_ratios(stated).get(protocol, ""),
                ]
            )
    header = ["phase", "protocol", "modelled s", "modelled speed-up", "fitted ms per file"]
    header += ["total s", "speed-up", "modelled over collective", PROTOTYPE]
    table = write_table(out / f"{name}.csv", header, rows)
    return [table, *_bars(out / f"{name}.svg", bars, relative)]


def _bars(
    path: Path, seconds: Mapping[str, Sequence[float]], relative: Mapping[str, Sequence[float]]
) -> list[Path]:
    """Draw the model's seconds, and next to them the ratios of the model and the prototype."""
    prototype = [prototype_ratios(stated) for stated in TREE_SPEED_UPS.values()]
    ratios = [
        Series(f"{PROTOTYPE}: {protocol}", [phase[protocol] for phase in prototype])
        for protocol in prototype[0]
    ]
    ratios += [Series(f"model: {protocol}", y) for protocol, y in relative.items()]
    title = "Fig. 18: a source tree of 16,000 files, Adenine, 74 servers"
    panels = [
        BarPanel(title, "s", [Series(f"model: {name}", y) for name, y in seconds.items()]),
        BarPanel("over the collective's time", "times", ratios, headroom=0.6),
    ]
    return bar_panels(path, list(TREE_SPEED_UPS), panels, size=(11.0, 4.0))
