"""The transport of a single-process job: it delivers the rank's messages to itself.

`-j 1` runs the same engine on the same interface, so it needs no separate code path. Messages are
stored in a list, so a poll that finds one usually makes no system call.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NoReturn

from pcircle.transport._exit import flush_standard_streams
from pcircle.transport._wake import Wakeup
from pcircle.transport.contract import Delivery, LostRank

if TYPE_CHECKING:
    from pcircle.transport.contract import Body


class SingleTransport:
    """Rank 0 of 1; implements `contract.Transport`."""

    __slots__ = ("_own", "_wakeup", "nodes", "rank", "size")

    def __init__(self) -> None:
        self.rank = 0
        self.size = 1
        self.nodes: tuple[int, ...] = (0,)
        self._own: list[Delivery | LostRank] = []
        self._wakeup = Wakeup()

    def send(self, dest: int, payload: bytes) -> None:
        if dest != 0:
            raise ValueError(f"no rank {dest} in a job of one")
        self._own.append(Delivery(0, payload))

    def poll(self, timeout_s: float | None) -> list[Delivery | LostRank]:
        wakeup = self._wakeup
        waits = not self._own and (timeout_s is None or timeout_s > 0)
        if wakeup.is_set() or (waits and wakeup.wait(timeout_s)):
            wakeup.clear()
        arrivals, self._own = self._own, []
        return arrivals

    def wake(self) -> None:
        self._wakeup.set()

    def close(self) -> None:
        self._wakeup.close()

    def abort(self, exit_code: int) -> NoReturn:
        flush_standard_streams()
        os._exit(exit_code & 0xFF)


def launch_single(body: Body) -> int:
    """Run *body* in this process as the only rank; return its exit code or raise its exception."""
    transport = SingleTransport()
    try:
        return body(transport)
    finally:
        transport.close()
