"""What every transport promises, and all that the layers above may rely on.

The idea: a rank sends bytes and polls for arrivals; nothing else exists.  MPI, forked processes,
one process alone and the simulator keep this same contract, and ``tests/contract/transport``
holds all of them to it.

What is promised: bytes arrive whole, once, and in order per pair of ranks.  What is not: any
order across pairs, any bound on the delay, or that what was sent to a rank that died was ever
read.  The engine is built for just that and is simulated against just that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

__all__ = ["Body", "Delivery", "Lost", "Transport"]


class Delivery(NamedTuple):
    """A message that arrived: *payload* as rank *source* sent it."""

    source: int
    payload: bytes


class Lost(NamedTuple):
    """Rank *rank* is gone without having closed; nothing more comes from it.

    *reason* is for the user, e.g. ``killed by SIGKILL (pid 123)`` or ``closed its connection``.
    """

    rank: int
    reason: str


class Transport(Protocol):
    """One rank's connection to the others.

    Only the thread that made it may use it, ``wake`` excepted.

    ``nodes[r]`` is the number of the node (the host) of rank *r*; nodes are numbered from 0 in
    the order of their first rank.
    """

    rank: int
    size: int
    nodes: tuple[int, ...]

    def send(self, dest: int, payload: bytes) -> None:
        """Have *payload* delivered to rank *dest*; never blocks, whatever its size.

        Ordered per pair of ranks.  A message to oneself is delivered by a later ``poll``; one to
        a rank that is lost or has closed is dropped.  *payload* must not change afterwards.
        Raises ValueError if there is no rank *dest*.
        """

    def poll(self, timeout_s: float | None) -> list[Delivery | Lost]:
        """What has arrived; waits for it up to *timeout_s* seconds (0: not at all, None: ever).

        Ends early, perhaps empty-handed, when ``wake`` was called.  Drives outgoing bytes, so it
        has to be called while anything is to leave.  Arrivals from one rank are in the order of
        their sending; a lost rank is reported once, after all that it sent.
        """

    def wake(self) -> None:
        """Make the current or the next ``poll`` return at once.

        From any thread and from Python's signal handlers, and harmless after ``close``.
        """

    def close(self) -> None:
        """End in good order: what was sent leaves, within some seconds; descriptors are released.

        Messages that still arrive are dropped.  The other ranks don't count this one as lost.
        Idempotent; nothing but ``wake`` and ``close`` may be called afterwards.
        """

    def abort(self, exit_code: int) -> None:
        """End the whole job in disorder, this process with *exit_code*; does not return."""


# What a rank runs: it gets its transport and returns its process's exit code.
Body: TypeAlias = "Callable[[Transport], int]"
