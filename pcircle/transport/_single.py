"""The transport of a job of one process: what it sends to itself, and nothing else.

The idea: ``-j 1`` runs the same engine on the same contract, so that there is no second way
through the code; the transport is then a list.  A poll that need not wait makes no system call.

What this is not: a transport for tests.  It is what a user gets with one process.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NoReturn

from pcircle.transport._exit import flush_standard_streams
from pcircle.transport._wake import Wakeup
from pcircle.transport.contract import Delivery

if TYPE_CHECKING:
    from pcircle.transport.contract import Body, Lost

__all__ = ["SingleTransport", "launch_single"]


class SingleTransport:
    """Rank 0 of 1; see ``contract.Transport``."""

    __slots__ = ("_own", "_wakeup", "nodes", "rank", "size")

    def __init__(self) -> None:
        self.rank = 0
        self.size = 1
        self.nodes: tuple[int, ...] = (0,)
        self._own: list[Delivery | Lost] = []
        self._wakeup = Wakeup()

    def send(self, dest: int, payload: bytes) -> None:
        """Keep *payload* for the next poll."""
        if dest != 0:
            raise ValueError(f"no rank {dest} in a job of one")
        self._own.append(Delivery(0, payload))

    def poll(self, timeout_s: float | None) -> list[Delivery | Lost]:
        """What was sent since the last poll; waits for a wake if there is nothing."""
        wakeup = self._wakeup
        waits = not self._own and (timeout_s is None or timeout_s > 0)
        if wakeup.is_set() or (waits and wakeup.wait(timeout_s)):
            wakeup.clear()
        arrivals, self._own = self._own, []
        return arrivals

    def wake(self) -> None:
        """End the current or the next poll."""
        self._wakeup.set()

    def close(self) -> None:
        """Release the wake pipe."""
        self._wakeup.close()

    def abort(self, exit_code: int) -> NoReturn:
        """End this process."""
        flush_standard_streams()
        os._exit(exit_code & 0xFF)


def launch_single(body: Body) -> int:
    """Run *body* in this process as the only rank; its exit code.  Its exceptions pass through."""
    transport = SingleTransport()
    try:
        return body(transport)
    finally:
        transport.close()
