"""The transport interface: what every transport guarantees to the layers above.

A rank sends bytes and polls for arrivals. MPI, forked processes, a single process and the simulator
implement the same interface, and `tests/contract/transport` tests all of them against it.

Guaranteed while both ranks are in the job: messages arrive whole, exactly once, and in order per
pair of ranks. Not guaranteed: any order across pairs, any bound on the delay, or that a message to
a rank that died was ever read. The engine relies on these guarantees alone, and the simulator tests
it on the most adverse network that they permit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias


class Delivery(NamedTuple):
    """A message that arrived: *payload* as rank *source* sent it."""

    source: int
    payload: bytes


class LostRank(NamedTuple):
    """Rank *rank* ended without closing its transport; no further message from it will arrive.

    *reason* is for the user, for example `killed by SIGKILL (pid 123)` or `closed its connection`.
    """

    rank: int
    reason: str


class Transport(Protocol):
    """One rank's connection to the other ranks.

    Only the thread that created it may use it, except for `wake`.

    `nodes[r]` is the number of the node (the host) of rank *r*; nodes are numbered from 0 in the
    order of their first rank.
    """

    rank: int
    size: int
    nodes: tuple[int, ...]

    def send(self, dest: int, payload: bytes) -> None:
        """Queue *payload* for delivery to rank *dest*; never blocks, whatever its size.

        Messages are ordered per pair of ranks. A message to this rank itself is delivered by a
        later `poll`. A message to a rank that is lost or has closed is dropped. The caller must not
        modify *payload* afterwards. Raises ValueError if there is no rank *dest*.
        """

    def poll(self, timeout_s: float | None) -> list[Delivery | LostRank]:
        """Return what has arrived; wait up to *timeout_s* seconds (0: no wait, None: no limit).

        Returns early, possibly an empty list, if `wake` was called. Also moves outgoing bytes, so
        it must be called while messages are waiting to be sent. Arrivals from one rank are in the
        order of sending. A lost rank is reported once, after its last message that arrives.
        """
        ...

    def wake(self) -> None:
        """Make the current or the next `poll` return at once.

        May be called on any thread, in Python's signal handlers, and after `close`.
        """

    def close(self) -> None:
        """Leave the job: send queued messages unless that stalls, and release all descriptors.

        Messages that still arrive are dropped. The other ranks do not count this rank as lost.
        Idempotent; afterwards only `wake` and `close` may be called.
        """

    def abort(self, exit_code: int) -> None:
        """Kill the whole job, and end this process with *exit_code*; does not return."""


# The program of a rank: it receives the transport, and returns the exit code of the process.
Body: TypeAlias = "Callable[[Transport], int]"
