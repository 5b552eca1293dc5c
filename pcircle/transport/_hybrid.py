"""The hybrid transport: MPI between machines, sockets between the processes of each machine.

One process of each node, the *gateway*, uses MPI; the other processes of the node are its *leaves*.
All of them are ranks. The ranks of a node are numbered consecutively, starting with the gateway.
Each pair of ranks on a node has a socket. A message to another node travels to the gateway, from
there by MPI to the gateway of that node, and then to its receiver. There is one route per pair of
ranks, and each segment of the route keeps the order, so messages need no sequence numbers.

A process must not fork after it has initialised MPI. So the gateway forks the leaves before that,
with a socket between each pair, as in a local job (`node_processes`). Leaves do not use MPI: they
wait for the gateway, which initialises MPI, to send them their ranks. If the gateway has other
threads, or has initialised MPI, its leaves are new interpreters.

Messages between nodes travel as *parcels*: a header (kind, source, receiver) and at most 1 MiB. So
a long message uses all segments of its route at the same time, and a gateway need not store all of
it before it forwards the first part. A gateway stops reading from its leaves while too much data is
queued for MPI, and from MPI while too much is queued for its leaves. This cannot deadlock: leaves
always read when they poll, and a gateway reads from MPI as long as its leaves are reading.

The loss of a leaf is reported to all gateways, after everything that the leaf sent, and each
gateway reports it to its leaves. If a gateway is lost, MPI ends the job, and the leaves of that
gateway exit when their connection to it ends.

The cost: a gateway must poll MPI on behalf of its leaves too, and a message to another node is
copied up to two more times. This is not a router: each gateway sends to every other gateway
directly.
"""

from __future__ import annotations

import os
import struct
from array import array
from bisect import bisect_right
from contextlib import contextmanager, suppress
from itertools import accumulate
from time import monotonic
from typing import TYPE_CHECKING, NoReturn, Protocol

from pcircle.core.errors import RankLost, UsageError, worst
from pcircle.transport._exit import flush_standard_streams, print_error
from pcircle.transport._fork import Children, close_ends, fork, start_children
from pcircle.transport._local import LocalTransport
from pcircle.transport.contract import Delivery, LostRank

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pcircle.transport.contract import Body, Transport


_HEADER = struct.Struct("<BII")  # kind, source, receiver
_LAST = 0  # the last part of a message, usually its only part
_MORE = 1  # a part of a message that is not the last
_LOST = 2  # the source is lost; the body is the reason
_ABORT = 3  # from a leaf to its gateway: end the job with the code in the field source
_HELLO = 4  # to a leaf: the number of its gateway (source), and the layout

# A piece and its header fit into one MPI fragment.
_PIECE_BYTES = 1024 * 1024 - _HEADER.size
# How many bytes a gateway queues in each direction before it stops reading.
_MAX_FORWARD_BYTES = 16 * 1024 * 1024
# How long leaves that have lost their gateway may take to exit.
_END_WITHIN_S = 1.0
# How long an aborting leaf waits for its gateway to end the job.
_ABORT_WITHIN_S = 10.0


class Channel(Protocol):
    """The channel between gateways; its ranks are the gateways. No method blocks."""

    rank: int
    size: int
    unsent_bytes: int

    def send(self, dest: int, payload: bytes) -> None:
        """Start sending a message."""

    def turn(self, arrivals: list[Delivery | LostRank], max_bytes: float = ...) -> None:
        """Make progress, accept about *max_bytes*, and append complete messages to *arrivals*."""

    def nap_s(self) -> float:
        """Return how long to sleep before the next turn."""
        ...

    def agree(self, code: int, turn: Callable[[float], object], ends_at: float) -> list[int] | None:
        """Return the codes of all ranks once each has called this, or None at *ends_at*.

        Calls *turn* meanwhile.
        """


class NodeProcesses:
    """The local processes of a node, including this one.

    `trouble` explains why the other processes could not be started. MPI must be initialised even
    then, because the ranks on other nodes are waiting, and must receive a report of the failure.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.trouble = ""
        self.children = Children()
        self.ends: dict[int, int] = {}

    def connect(self, rank: int) -> LocalTransport:
        """Return this process's transport within the node; must be called only once.

        *rank* is the rank of this process in the job.
        """
        self.children.base = rank
        ends, self.ends = self.ends, {}
        return LocalTransport(0, self.size, ends, explain_loss=self.children.explain)

    def disband(self) -> None:
        """Disconnect the remaining processes, and kill those that do not exit."""
        close_ends([self.ends])
        self.ends = {}
        if not self.children.reap(_END_WITHIN_S):
            self.children.kill()


class Layout:
    """The assignment of ranks to gateways and nodes; *sizes* and *nodes* are indexed by gateway.

    `bases[g]` is the rank of gateway *g*; the attribute `nodes` is indexed by rank.
    """

    def __init__(self, sizes: Sequence[int], nodes: Sequence[int]) -> None:
        *self.bases, self.size = accumulate(sizes, initial=0)
        self.nodes = tuple(
            node for node, size in zip(nodes, sizes, strict=True) for _ in range(size)
        )
        self._packed = array("I", [*sizes, *nodes]).tobytes()

    def gateway(self, rank: int) -> int:
        """Return the number of a rank's gateway."""
        if not 0 <= rank < self.size:
            raise ValueError(f"no rank {rank} in a job of {self.size}")
        return bisect_right(self.bases, rank) - 1

    def packed(self) -> bytes:
        """Return the layout as bytes, for a leaf."""
        return self._packed

    @classmethod
    def unpacked(cls, data: bytes) -> Layout:
        """Decode a layout from the bytes that `packed` returned."""
        numbers = array("I", data)
        half = len(numbers) // 2
        return cls(numbers[:half], numbers[half:])


class _Messages:
    """Assembles the parcels for this rank into messages."""

    def __init__(self) -> None:
        self._parts: dict[int, list[memoryview]] = {}  # by source

    def take(self, parcel: bytes, arrivals: list[Delivery | LostRank]) -> None:
        """Store this parcel; append the message that it completes, or the loss that it reports."""
        kind, source, _ = _HEADER.unpack_from(parcel)
        body = memoryview(parcel)[_HEADER.size :]
        if kind == _LOST:
            self.lose(source, str(body, "utf-8"), arrivals)
        elif kind == _MORE:
            self._parts.setdefault(source, []).append(body)
        elif source in self._parts:
            arrivals.append(Delivery(source, b"".join([*self._parts.pop(source), body])))
        else:
            arrivals.append(Delivery(source, bytes(body)))

    def lose(self, source: int, reason: str, arrivals: list[Delivery | LostRank]) -> None:
        """Append the loss of a rank and drop its incomplete message."""
        self._parts.pop(source, None)
        arrivals.append(LostRank(source, reason))


def _pieces(source: int, dest: int, payload: bytes) -> Iterator[tuple[bytes, memoryview]]:
    """Yield a message to another node as parcels, each as a header and a body."""
    remaining = memoryview(payload)
    while len(remaining) > _PIECE_BYTES:
        yield _HEADER.pack(_MORE, source, dest), remaining[:_PIECE_BYTES]
        remaining = remaining[_PIECE_BYTES:]
    yield _HEADER.pack(_LAST, source, dest), remaining


class Gateway:
    """The rank of a node that uses MPI; implements `contract.Transport`."""

    def __init__(
        self,
        channel: Channel,
        layout: Layout,
        processes: NodeProcesses,
        abort_world: Callable[[int], NoReturn],
    ) -> None:
        """Connect *processes* to *channel*, and send each leaf its gateway's number and the layout.

        *abort_world* makes MPI kill its processes.
        """
        self.rank = layout.bases[channel.rank]
        self.size, self.nodes = layout.size, layout.nodes
        self._channel, self._layout, self._processes = channel, layout, processes
        self._abort_world = abort_world
        self._local = processes.connect(self.rank)
        self._own: list[Delivery | LostRank] = []
        self._messages = _Messages()
        hello = _HEADER.pack(_HELLO, channel.rank, 0)
        for leaf in range(1, processes.size):
            self._local.send_parts(leaf, hello, layout.packed())

    # -- the contract

    def send(self, dest: int, payload: bytes) -> None:
        gateway = self._layout.gateway(dest)
        if dest == self.rank:
            self._own.append(Delivery(dest, payload))
        elif gateway == self._channel.rank:
            header = _HEADER.pack(_LAST, self.rank, dest)
            self._local.send_parts(dest - self.rank, header, payload)
        else:
            for header, piece in _pieces(self.rank, dest, payload):
                self._channel.send(gateway, b"".join((header, piece)))

    def poll(self, timeout_s: float | None) -> list[Delivery | LostRank]:
        """Forward other ranks' messages until one for this rank arrives, or the wait ends."""
        arrivals, self._own = self._own, []
        ends_at = None if timeout_s is None else monotonic() + timeout_s
        woken = self._turn(0.0, arrivals)
        while not arrivals and not woken:
            sleep_s = self._channel.nap_s()
            if ends_at is not None:
                left_s = ends_at - monotonic()
                if left_s <= 0:
                    break
                sleep_s = min(sleep_s, left_s)
            if sleep_s <= 0:
                os.sched_yield()  # the message may come from a rank that needs this core
            woken = self._turn(sleep_s, arrivals)
        return arrivals

    def wake(self) -> None:
        self._local.wake()

    def close(self) -> None:
        """Do nothing: leaves that are still running need this gateway until `leave` returns."""

    def abort(self, exit_code: int) -> NoReturn:
        """Kill the leaves, and make MPI kill its processes."""
        self._processes.children.kill()
        self._abort_world(exit_code)

    # -- in addition to the contract, for launch_mpi

    def leave(self, code: int, ends_at: float) -> int | None:
        """Forward messages until all leaves have closed, then wait for the other gateways.

        Returns the worst exit code of all ranks, or None if some ranks do not end in time.
        """
        while self._local.connected:
            if monotonic() > ends_at:
                return None
            self._drop(self._channel.nap_s())
        code = self._processes.children.finish(code)
        codes = self._channel.agree(code, self._drop, ends_at)
        self._local.close()
        if codes is None:
            return None
        return worst(codes) if len(set(codes)) > 1 else code

    def _drop(self, sleep_s: float) -> None:
        self._turn(sleep_s, [])

    # -- one turn

    def _turn(self, sleep_s: float, arrivals: list[Delivery | LostRank]) -> bool:
        """Sleep, move messages, append those for this rank; return whether the rank was woken."""
        local, channel = self._local, self._channel
        local.listen(channel.unsent_bytes < _MAX_FORWARD_BYTES)
        came: list[Delivery | LostRank] = []
        woken = local.turn(sleep_s, came)
        for arrival in came:
            self._from_leaf(arrival, arrivals)
        came.clear()
        channel.turn(came, _MAX_FORWARD_BYTES - local.unsent_bytes)
        for arrival in came:
            if isinstance(arrival, Delivery):  # MPI reports no losses
                self._from_gateway(arrival.payload, arrivals)
        return woken

    def _from_leaf(self, arrival: Delivery | LostRank, arrivals: list[Delivery | LostRank]) -> None:
        if isinstance(arrival, LostRank):
            lost = self.rank + arrival.rank
            self._messages.lose(lost, arrival.reason, arrivals)
            parcel = _HEADER.pack(_LOST, lost, 0) + arrival.reason.encode()
            for gateway in range(self._channel.size):
                if gateway != self._channel.rank:
                    self._channel.send(gateway, parcel)
            return
        parcel = arrival.payload
        kind, source, dest = _HEADER.unpack_from(parcel)
        if kind == _ABORT:
            self.abort(source)
        if dest == self.rank:
            self._messages.take(parcel, arrivals)
        else:
            self._channel.send(self._layout.gateway(dest), parcel)

    def _from_gateway(self, parcel: bytes, arrivals: list[Delivery | LostRank]) -> None:
        kind, _, dest = _HEADER.unpack_from(parcel)
        if kind == _LOST:
            for leaf in range(1, self._processes.size):
                self._local.send(leaf, parcel)
        if kind == _LOST or dest == self.rank:
            self._messages.take(parcel, arrivals)
        else:
            self._local.send(dest - self.rank, parcel)


class _Leaf:
    """A rank connected to the ranks of its node only; implements `contract.Transport`."""

    def __init__(
        self, local: LocalTransport, gateway: int, layout: Layout, early: list[Delivery | LostRank]
    ) -> None:
        self._base = layout.bases[gateway]
        self.rank = self._base + local.rank
        self.size, self.nodes = layout.size, layout.nodes
        self._local = local
        self._early = early
        self._is_cut_off = False
        self._messages = _Messages()

    def send(self, dest: int, payload: bytes) -> None:
        place = dest - self._base
        if not 0 <= dest < self.size:
            raise ValueError(f"no rank {dest} in a job of {self.size}")
        if 0 < place < self._local.size:
            self._local.send(place, payload)
        elif place == 0:
            self._local.send_parts(0, _HEADER.pack(_LAST, self.rank, dest), payload)
        else:
            for header, piece in _pieces(self.rank, dest, payload):
                self._local.send_parts(0, header, piece)

    def poll(self, timeout_s: float | None) -> list[Delivery | LostRank]:
        """Return what the sockets have received; raise SystemExit if the gateway is lost."""
        arrivals: list[Delivery | LostRank] = []
        ends_at = None if timeout_s is None else monotonic() + timeout_s
        while not self._is_cut_off:
            came, self._early = self._early or self._local.poll(timeout_s), []
            for arrival in came:
                self._take(arrival, arrivals)
            if arrivals or not came:  # otherwise, a part of a long message arrived
                return arrivals
            if ends_at is not None:
                timeout_s = max(0.0, ends_at - monotonic())
        # The launcher reports how the gateway ended, and ends the ranks on other nodes.
        raise SystemExit(RankLost.exit_code)

    def wake(self) -> None:
        self._local.wake()

    def close(self) -> None:
        self._local.close()

    def abort(self, exit_code: int) -> NoReturn:
        """Make the gateway end the job."""
        flush_standard_streams()
        self._local.send_parts(0, _HEADER.pack(_ABORT, exit_code & 0xFF, 0))
        ends_at = monotonic() + _ABORT_WITHIN_S
        while (left_s := ends_at - monotonic()) > 0:
            if LostRank(0, "closed its connection") in self._local.poll(left_s):
                break
        os._exit(exit_code & 0xFF)

    def _take(self, arrival: Delivery | LostRank, arrivals: list[Delivery | LostRank]) -> None:
        if isinstance(arrival, LostRank):
            if arrival.rank == 0:
                self._is_cut_off = True
            else:
                self._messages.lose(self._base + arrival.rank, arrival.reason, arrivals)
        elif arrival.source:
            arrivals.append(Delivery(self._base + arrival.source, arrival.payload))
        else:
            self._messages.take(arrival.payload, arrivals)


def connect_leaf(local: LocalTransport) -> Transport:
    """Wait for the gateway's hello; return the leaf, or raise SystemExit if the gateway is lost."""
    hello = None
    early: list[Delivery | LostRank] = []
    while hello is None:
        for arrival in local.poll(None):
            if arrival[0] or hello is not None:  # from a leaf that has received its hello
                early.append(arrival)
            elif isinstance(arrival, LostRank):
                raise SystemExit(RankLost.exit_code)
            else:
                hello = arrival.payload
    _, gateway, _ = _HEADER.unpack_from(hello)
    return _Leaf(local, gateway, Layout.unpacked(hello[_HEADER.size :]), early)


@contextmanager
def node_processes(
    size: int, body: Body, pickled: Callable[[], bytes] | None, *, may_fork: bool
) -> Iterator[NodeProcesses]:
    """Start the other *size* - 1 processes of this node; each waits for its rank, then runs *body*.

    If this process may not fork, they are new interpreters, which unpickle what *pickled* returns.
    """
    processes = NodeProcesses(size)
    try:
        if may_fork:
            processes.ends = start_children(
                size, processes.children, lambda ends: fork(ends, body, _forked)
            )
        elif pickled is None:
            raise UsageError("local processes cannot be forked after MPI has begun")
        else:
            from pcircle.transport._spawn import start_spawned

            make_transport = f"{connect_leaf.__module__}:{connect_leaf.__name__}"
            processes.ends = start_spawned(size, processes.children, pickled(), make_transport)
    except UsageError as error:
        processes.trouble = str(error)
    try:
        yield processes
    finally:
        processes.disband()


def warn_if_bound(size: int) -> None:
    """Warn if the launcher has bound *size* processes to fewer cores than they could use."""
    cores = len(os.sched_getaffinity(0))
    if cores < min(size, os.cpu_count() or 1):
        on = "1 core" if cores == 1 else f"{cores} cores"
        cure = f"srun --cpus-per-task={size} or mpirun --bind-to none"
        print_error(
            f"warning: -j {size}, but the launcher binds these processes to {on}; use {cure}"
        )


def _forked(local: LocalTransport) -> Transport:
    """Return the transport of a forked process, and close its copy of the launcher's connection.

    An open copy would hide the end of the process that owns the connection.
    """
    with suppress(KeyError, ValueError, OSError):
        os.close(int(os.environ["PMI_FD"]))
    return connect_leaf(local)
