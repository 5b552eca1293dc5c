"""Storms of create, stat and remove: the striped store itself, on the model's network.

Figures 9 to 11 of Carns, Settlemyer and Ligon are computed from plans of messages. Here a program
performs the measured operations. `pcircle.collective` and `examples.striped_store` run on each
rank, with real files in memory. Only time is simulated: each message passes through
`examples.papers.network` with its real size, and servers take as long as in the model. A client
creates 35 files one after the other, then looks all of them up, then removes them. In figures 12 to
17 of the paper, a point has as many samples, and the first two are dropped here as well.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

import msgspec

from examples.papers.carns_paper import DROPPED_SAMPLES, SAMPLES
from examples.papers.carns_ranks import VERBS, operation
from examples.papers.measured import scratch
from examples.papers.metadata import Delays, Machine
from examples.papers.network import CLIENT, Network
from examples.papers.output import Cell, draw, write_table
from examples.striped_store.changes import Make, Stat, decode_change, decode_query, home, request
from examples.striped_store.checker import check
from examples.striped_store.store import StripedStore
from pcircle.collective import Answer, Member, Op
from pcircle.collective.operation import Message

SMALL_FILES = 4
SERVERS, SMALL_SERVERS = (1, 8, 16, 32, 50, 74, 100, 128, 200, 500), (1, 8)
_HEADER = ("operation", "servers", "client driven ms", "collective ms", "speed-up")
_encode = msgspec.msgpack.Encoder().encode


class _Records:
    """The decisions, in memory; each takes as long as the change of a directory entry."""

    def __init__(self, storm: Storm) -> None:
        self._storm = storm
        self._decided: dict[Op, bool] = {}

    def settle(self, op: Op, commit: bool) -> bool | None:
        self._storm.busy_ms += self._storm.entry_ms
        return self._decided.setdefault(op, commit)

    def forget(self, op: Op) -> None:
        self._decided.pop(op, None)


class _Store(StripedStore):
    """A store whose steps take the time of the model's servers."""

    def __init__(self, storm: Storm, place: Path, rank: int) -> None:
        super().__init__(place, rank, storm.servers)
        self._storm = storm

    def prepare(self, op: Op, coordinator: int, what: bytes) -> bytes:
        delays, change = self._storm.delays, decode_change(what)
        if isinstance(change, Make):
            self._storm.busy_ms += delays.create_object_ms
            if self._rank == home(change.id):
                self._storm.busy_ms += delays.create_metadata_ms + delays.set_attributes_ms
        else:
            self._storm.busy_ms += delays.remove_object_ms
        return super().prepare(op, coordinator, what)

    def look(self, what: bytes) -> bytes:
        if isinstance(decode_query(what), Stat):
            self._storm.busy_ms += self._storm.delays.get_attributes_ms
        return super().look(what)


class Storm:
    """A client and *servers* servers in virtual time."""

    def __init__(self, machine: Machine, servers: int, place: Path, *, collective: bool) -> None:
        self.servers = servers
        self.delays: Delays = machine.delays
        self.busy_ms = 0.0  # work of the acting rank since its message arrived
        self.entry_ms = 0.0
        self._client_ms = machine.client_ms
        self._collective = collective
        self._network = Network(machine.conditions, servers, Random(0))
        self._sent_ms: dict[tuple[int, int], float] = {}  # messages of a pair stay in order
        records = _Records(self)
        self._members = [
            Member(rank, _Store(self, place, rank), records, partial(self._send, rank))
            for rank in range(servers + 1)
        ]

    def run(self, verb: str, files: int) -> list[float]:
        """Perform an operation on each file, one after another; return the milliseconds of each."""
        entry_ms = {"create": self.delays.create_entry_ms, "remove": self.delays.remove_entry_ms}
        self.entry_ms = entry_ms.get(verb, 0.0)
        times: list[float] = []
        for number in range(files):
            begun_ms = self._network.now_ms
            self._network.at(begun_ms + self._client_ms, partial(self._request, verb, number))
            self._answered_ms = -1.0
            self._network.settle()
            times.append(self._answered_ms - begun_ms)
        return times

    def _request(self, verb: str, number: int) -> None:
        wanted = request(operation(verb, number, self.servers), self.servers)
        wanted = msgspec.structs.replace(wanted, waits=False)
        self.busy_ms = 0.0
        self._members[-1].request(wanted, 0.0, collective=self._collective)
        self._take()

    def _send(self, source: int, dest: int, message: Message) -> None:
        pair = source, dest
        sent_ms = max(self._network.now_ms + self.busy_ms, self._sent_ms.get(pair, 0.0))
        self._sent_ms[pair] = sent_ms
        received = partial(self._received, source, dest, message)
        nodes, size_bytes = (self._node(source), self._node(dest)), len(_encode(message))
        self._network.at(sent_ms, partial(self._network.send, *nodes, size_bytes, received))

    def _node(self, rank: int) -> int:
        return CLIENT if rank == self.servers else rank + 1

    def _received(self, source: int, dest: int, message: Message) -> None:
        self.busy_ms = 0.0
        self._members[dest].received(source, message, 0.0)
        if dest == self.servers:
            self._take()

    def _take(self) -> None:
        answers: list[Answer] = self._members[-1].answers
        for answer in answers:
            if not answer.decided:
                raise RuntimeError(str(answer))
            self._answered_ms = self._network.now_ms + self.busy_ms
        answers.clear()


def storm_ms(machine: Machine, servers: int, files: int, *, collective: bool) -> dict[str, float]:
    """Run the three storms, check the store, and return the mean milliseconds of each operation."""
    dropped = min(DROPPED_SAMPLES.value, files - 1)
    with tempfile.TemporaryDirectory(prefix="pcircle-", dir=scratch()) as place:
        storm = Storm(machine, servers, Path(place), collective=collective)
        times = {verb: fmean(storm.run(verb, files)[dropped:]) for verb in VERBS}
        found = check(Path(place), servers)
    if found != (0, [], [], [], 0):
        raise RuntimeError(str(found))
    return times


def storm_figure(machine: Machine, out: Path, small: bool) -> list[Path]:
    """Run the storms in both shapes for all numbers of servers."""
    servers, files = (SMALL_SERVERS, SMALL_FILES) if small else (SERVERS, SAMPLES.value)
    found = {
        (number, collective): storm_ms(machine, number, files, collective=collective)
        for number in servers
        for collective in (False, True)
    }
    rows: list[list[Cell]] = []
    for verb in VERBS:
        for number in servers:
            driven, together = found[number, False][verb], found[number, True][verb]
            rows.append([verb, number, driven, together, driven / together])
    table = write_table(out / "carns-storm.csv", _HEADER, rows)
    return [table, *_plot(out, servers, rows)]


def _plot(out: Path, servers: Sequence[int], rows: Sequence[Sequence[Cell]]) -> list[Path]:
    def paint(picture: Any) -> None:
        for axes, verb in zip(picture.subplots(1, len(VERBS), sharey=True), VERBS, strict=True):
            shown = [row for row in rows if row[0] == verb]
            axes.plot(servers, [row[2] for row in shown], "C0o-", label="client driven")
            axes.plot(servers, [row[3] for row in shown], "C2^-", label="collective")
            axes.set(title=verb, xlabel="servers", ylabel="ms" if verb == VERBS[0] else "")
            axes.grid(alpha=0.3)
            axes.legend()

    return draw(out / "carns-storm.svg", paint, size=(8.0, 3.4))
