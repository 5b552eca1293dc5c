"""fbcast in which one rank kills itself at a given step, or which counts messages.

``python -m tests.tools.fbcast.dying VICTIM STEP ARGUMENT...``: there is a step before and after
each call of the rank's disk and records. Where the environment names a file in FBCAST_COUNTS, each
rank writes its number of sent messages to a file of that name with its number.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from pcircle.tools.fbcast import command, destination

_CALLS = ("join", "begin", "write", "complete", "prepare", "commit", "undo", "drop")


class _Steps:
    def __init__(self, victim: int, step: int) -> None:
        self._victim = victim
        self._left = step
        self.rank = -1

    def step(self) -> None:
        """Count a step, which may be the last."""
        if self.rank == self._victim:
            self._left -= 1
            if not self._left:
                os.kill(os.getpid(), signal.SIGKILL)


def _around(steps: _Steps, owner: Any, name: str) -> None:
    original: Callable[..., Any] = getattr(owner, name)

    def stepped(self: Any, *arguments: Any, **named: Any) -> Any:
        steps.step()
        result = original(self, *arguments, **named)
        steps.step()
        return result

    setattr(owner, name, stepped)


def _count(path: str) -> None:
    """Make each rank write its number of sent messages."""
    run: Any = command.Loop.run
    send: Any = command.Loop._send
    sent = [0]

    def counted(self: Any, dest: int, message: Any) -> None:
        sent[0] += dest != self._transport.rank
        send(self, dest, message)

    def run_and_count(self: Any, signals: Any) -> Any:
        code = run(self, signals)
        with open(f"{path}-{self._transport.rank}", "w") as file:
            file.write(str(sent[0]))
        return code

    command.Loop.run = run_and_count  # type: ignore[method-assign]
    command.Loop._send = counted  # type: ignore[method-assign]


def main() -> int:
    """Run fbcast."""
    victim, step, *arguments = sys.argv[1:]
    sys.argv[1:] = arguments
    steps = _Steps(int(victim), int(step))
    begin: Any = destination.Destination.__init__

    def begun(self: Any, host: str, rank: int, decisions: Any) -> None:
        steps.rank = rank
        begin(self, host, rank, decisions)

    destination.Destination.__init__ = begun  # type: ignore[method-assign]
    for name in _CALLS:
        _around(steps, destination.Destination, name)
    for name in ("settle", "forget"):
        _around(steps, destination.Decisions, name)
    if "FBCAST_COUNTS" in os.environ:
        _count(os.environ["FBCAST_COUNTS"])
    from pcircle.tools.fbcast.__main__ import main as fbcast

    return fbcast()


if __name__ == "__main__":
    sys.exit(main())
