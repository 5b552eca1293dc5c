"""Jobs on the striped store in which one rank kills itself at a given step; see `test_store`.

python -m tests.collective.dying

Each line of standard input is a job, as a JSON array of strings: PLACE JOBS SHAPE VERB NAME VICTIM
STEP REQUESTERS. It runs in a fork of this process, and when all of its ranks have ended, a line is
written to standard output. So one start of Python serves many jobs.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from examples.striped_store.changes import (
    ROOT,
    Attributes,
    Change,
    Lookup,
    Make,
    Query,
    Remove,
    request,
)
from examples.striped_store.store import StripedStore
from pcircle.collective import Directory, Op, Service
from pcircle.transport.contract import Transport
from pcircle.transport.launch import choose, launched
from pcircle.transport.start import start

DEADLINE_S = 240.0


class _Steps:
    """A counter of a rank's steps that ends the process at one of them."""

    def __init__(self, last: int) -> None:
        self._left = last

    def around(self, act: Callable[..., Any], *arguments: Any) -> Any:
        """Run a function between two steps."""
        self._step()
        result = act(*arguments)
        self._step()
        return result

    def _step(self) -> None:
        self._left -= 1
        if not self._left:
            os.kill(os.getpid(), signal.SIGKILL)


class _Store(StripedStore):
    steps: _Steps

    def prepare(self, op: Op, coordinator: int, what: bytes) -> bytes:
        prepared: bytes = self.steps.around(super().prepare, op, coordinator, what)
        return prepared

    def commit(self, op: Op) -> None:
        self.steps.around(super().commit, op)

    def undo(self, op: Op) -> None:
        self.steps.around(super().undo, op)


class _Records(Directory):
    steps: _Steps

    def settle(self, op: Op, commit: bool) -> bool | None:
        settled: bool | None = self.steps.around(super().settle, op, commit)
        return settled


WHO = (os.geteuid(), os.getegid())


def operation(verb: str, name: str, rank: int) -> Change | Query:
    """Return the operation that a rank requests."""
    id, entry = f"f2.{rank:016x}", name.encode()
    match verb:
        case "create":
            return Make(ROOT, entry, id, Attributes(0o600, *WHO, 4096), WHO)
        case "remove":
            return Remove(ROOT, entry, id, WHO)
        case _:
            return Lookup(ROOT, entry, WHO)


def play(arguments: list[str]) -> int:
    """Send a request for the same name from the given number of ranks, the last ones."""
    place, jobs, shape, verb, name, victim, step, requesters = arguments

    def body(transport: Transport) -> int:
        rank = transport.rank
        records = Path(place, "decisions")
        records.mkdir(parents=True, exist_ok=True)
        store, decisions = _Store(Path(place), rank, transport.size), _Records(os.fsencode(records))
        store.steps = decisions.steps = _Steps(int(step) if rank == int(victim) else 0)
        service = Service(transport, store, decisions, patience_s=20.0)
        service.recover()
        if rank >= transport.size - int(requesters):
            wanted = request(operation(verb, name, rank), transport.size)
            answer = service.do(wanted, collective=shape == "collective")
            why = ",".join(sorted({reply.refusal for reply in answer.said if reply.refusal}))
            text = f"{rank} {answer.decided} {why}\n"
            Path(place, f"answer-{rank}").write_text(text)
        service.serve()
        transport.close()
        return 0

    return start(choose("auto", int(jobs) or None, launched()), body)


def main() -> None:
    """Play what comes."""
    for line in sys.stdin:
        ended, held = os.pipe()  # all ranks have one end of it
        pid = os.fork()
        if not pid:
            os.setsid()
            os._exit(play(json.loads(line)))
        os.close(held)
        if not select.select([ended], [], [], DEADLINE_S)[0]:
            os.killpg(pid, signal.SIGKILL)
            print("hangs", flush=True)
        os.read(ended, 1)
        os.close(ended)
        os.waitpid(pid, 0)
        print("ended", flush=True)


if __name__ == "__main__":
    main()
