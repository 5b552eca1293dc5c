"""The ranks that `examples.papers.carns_real` measures: a striped store behind delayed messages.

    python -m examples.papers.carns_ranks PLACE SERVERS ROUNDS OVERHEAD_MS LATENCY_MS

SERVERS ranks store the parts of the files in PLACE (`examples.striped_store`). One more rank is the
client, which stores nothing, as in the paper. In each round, and in each way, the client creates,
looks up and removes a name. Between two operations it waits until the ranks are idle. The program
prints a JSON document with the milliseconds of each operation, by way and verb.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import NamedTuple

import msgspec

from examples.papers.delayed import Delay, Delayed
from examples.striped_store.changes import (
    ROOT,
    Attributes,
    Change,
    Make,
    Query,
    Remove,
    Stat,
    request,
)
from examples.striped_store.client import STRIPE_BYTES
from examples.striped_store.store import StripedStore
from pcircle.collective import Answer, Directory, Service
from pcircle.transport._fork import launch_local
from pcircle.transport.contract import Transport

VERBS = ("create", "stat", "remove")  # in this order a name exists whenever it must
MIN_PAUSE_S = 0.02
PAUSE_MESSAGES = 3  # for each server: more messages than are in flight after an answer
PATIENCE_S = 300.0


class Way(NamedTuple):
    """A shape, and the meaning of an answer: decided, or shown by all servers."""

    collective: bool
    waits: bool

    @property
    def name(self) -> str:
        shape = "collective" if self.collective else "client driven"
        return f"{shape}, {'shown' if self.waits else 'decided'}"


WAYS = tuple(Way(collective, waits) for waits in (False, True) for collective in (False, True))


class Asked(NamedTuple):
    """The parameters of the ranks."""

    place: Path
    servers: int
    rounds: int
    delay: Delay


def body(transport: Transport, asked: Asked) -> int:
    """Run a rank: the last rank is the client, the others are servers until it has finished."""
    delayed = Delayed(transport, asked.delay)
    records = asked.place / "decisions"
    records.mkdir(parents=True, exist_ok=True)
    store = StripedStore(asked.place, delayed.rank, asked.servers)
    service = Service(delayed, store, Directory(os.fsencode(records)), PATIENCE_S)
    code = 0
    if delayed.rank == asked.servers:
        times = _measured(service, asked)
        (asked.place / "times").write_bytes(msgspec.json.encode(times))
    code = service.serve(code)
    delayed.close()
    return code


def _measured(service: Service, asked: Asked) -> dict[str, dict[str, list[float]]]:
    """Return the milliseconds of each operation, by way and verb; the ways take turns."""
    times: dict[str, dict[str, list[float]]] = {
        way.name: {verb: [] for verb in VERBS} for way in WAYS
    }
    overhead_s = asked.delay.overhead_s
    pause_s = MIN_PAUSE_S + overhead_s * PAUSE_MESSAGES * (asked.servers + 2)
    for number in range(asked.rounds):
        for turn in range(len(WAYS)):
            way = WAYS[(turn + number) % len(WAYS)]
            for verb in VERBS:
                change = operation(verb, number * len(WAYS) + turn, asked.servers)
                wanted = request(change, asked.servers)
                wanted = msgspec.structs.replace(wanted, waits=way.waits)
                begun_s = time.perf_counter()
                answer = service.do(wanted, collective=way.collective)
                times[way.name][verb].append((time.perf_counter() - begun_s) * 1000)
                _check(verb, answer)
                _serve_for(service, pause_s)
    return times


def operation(verb: str, number: int, servers: int) -> Change | Query:
    """Return the operation on a file; the parts of the files are placed round robin."""
    id, name = f"f{number % servers}.{number:016x}", b"%d" % number
    who = os.geteuid(), os.getegid()
    match verb:
        case "create":
            return Make(ROOT, name, id, Attributes(0o600, *who, STRIPE_BYTES), who)
        case "remove":
            return Remove(ROOT, name, id, who)
        case _:
            return Stat(id)


def _check(verb: str, answer: Answer) -> None:
    if not answer.decided or any(response.refusal for response in answer.said):
        raise RuntimeError(f"{verb}: {answer}")


def _serve_for(service: Service, duration_s: float) -> None:
    ends_s = time.monotonic() + duration_s
    while time.monotonic() < ends_s:
        service.step(max(0.0, ends_s - time.monotonic()))


def main(words: list[str]) -> int:
    """Start the ranks, and print the client's measurements."""
    place, servers, rounds, overhead_ms, latency_ms = words
    delay = Delay(float(overhead_ms) / 1000, float(latency_ms) / 1000)
    asked = Asked(Path(place), int(servers), int(rounds), delay)
    code = launch_local(asked.servers + 1, lambda transport: body(transport, asked))
    if code == 0:
        print((asked.place / "times").read_text())
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
