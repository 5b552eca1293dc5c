"""Ranks of local processes on many machines: MPI between the machines, sockets on each.

The idea: of the processes of a node one belongs to MPI, its *speaker*; it is a rank as the others
are, which are its *leaves*.  The ranks of a node have numbers in a row, the speaker's first.  On a
node each two ranks have a socket; what is for another node goes to the speaker, by MPI to the
speaker there, and on to its receiver.  One way for each pair of ranks, and each part of it keeps
the order, so nothing needs to be numbered.

What is passed on is a *parcel*: a header (kind, source, receiver) and at most 1 MiB, so a long
message is on all parts of its way at once, and no speaker has the whole of it.  A speaker that has
enough to pass on stops reading until some of it has left: from its leaves what is for MPI, from MPI
what is for its leaves.  Nobody is blocked for ever: leaves always read when they poll, and speakers
read from MPI as long as their leaves do.

A leaf that is lost is told to all speakers, behind all that it sent, and by these to their leaves.
A speaker that is lost ends the job, as MPI ends it: its leaves are cut off, and end.

The cost: a speaker polls as an MPI rank does, also for its leaves; messages to other nodes are
copied twice more.  What this is not: a router.  Speakers are one hop from each other.
"""

from __future__ import annotations

import os
import struct
from array import array
from bisect import bisect_right
from itertools import accumulate
from time import monotonic
from typing import TYPE_CHECKING, NoReturn, Protocol

from pcircle.errors import RankLost, worst
from pcircle.transport._exit import flush_standard_streams
from pcircle.transport._fork import Children, close_ends
from pcircle.transport._local import LocalTransport
from pcircle.transport.contract import Delivery, Lost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pcircle.transport.contract import Transport

__all__ = ["Carrier", "Layout", "Party", "Speaker", "leaf_of"]

_HEADER = struct.Struct("<BII")  # kind, source, receiver
_LAST = 0  # the end of a message, mostly all of it
_MORE = 1  # a part of one that is not its end
_LOST = 2  # the source is lost; the body says why
_ABORT = 3  # from a leaf to its speaker: end the job with the code that stands for the source
_HELLO = 4  # to a leaf: its speaker's number (source), and the layout

# With its header a piece is one fragment of MPI.
_PIECE_BYTES = 1024 * 1024 - _HEADER.size
# How much a speaker holds that is still to be passed on, in each direction.
_MOST_BYTES = 16 * 1024 * 1024
# How long leaves may take to end that have lost their speaker.
_END_WITHIN_S = 1.0
# How long an aborting leaf waits for its speaker to end the job.
_ABORT_WITHIN_S = 10.0


class Carrier(Protocol):
    """What speakers say to each other by; they are its ranks. Nothing here waits."""

    rank: int
    size: int
    unsent_bytes: int

    def send(self, dest: int, payload: bytes) -> None:
        """Start sending."""

    def turn(self, arrivals: list[Delivery | Lost], most_bytes: float = ...) -> None:
        """Move what can be moved, take about so many bytes and append what is complete."""

    def nap_s(self) -> float:
        """How long to sleep before the next turn."""

    def agree(self, code: int, turn: Callable[[float], object], ends_at: float) -> list[int] | None:
        """The codes of all, when all have come to this; *turn* is called meanwhile."""


class Party:
    """So many processes, this one among them.

    `trouble` says why the others could not be started: MPI is to hear of it all the same, for
    elsewhere they wait.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.trouble = ""
        self.children = Children()
        self.ends: dict[int, int] = {}

    def connect(self, rank: int) -> LocalTransport:
        """This process's place among them, once; it is so and so in the job."""
        self.children.base = rank
        ends, self.ends = self.ends, {}
        return LocalTransport(0, self.size, ends, explain_loss=self.children.explain)

    def disband(self) -> None:
        """End those that are left: they are not needed any more, or the job did not begin."""
        close_ends([self.ends])
        self.ends = {}
        if not self.children.reap(_END_WITHIN_S):
            self.children.kill()


class Layout:
    """Where the ranks are: *sizes* and *nodes* are those of the speakers.

    `bases[s]` is the rank of speaker *s*, `nodes` are by rank.
    """

    def __init__(self, sizes: Sequence[int], nodes: Sequence[int]) -> None:
        *self.bases, self.size = accumulate(sizes, initial=0)
        self.nodes = tuple(
            node for node, size in zip(nodes, sizes, strict=True) for _ in range(size)
        )
        self._packed = array("I", [*sizes, *nodes]).tobytes()

    def speaker(self, rank: int) -> int:
        """Whose rank that is."""
        if not 0 <= rank < self.size:
            raise ValueError(f"no rank {rank} in a job of {self.size}")
        return bisect_right(self.bases, rank) - 1

    def packed(self) -> bytes:
        """For a leaf."""
        return self._packed

    @classmethod
    def unpacked(cls, data: bytes) -> Layout:
        """As of `packed`."""
        numbers = array("I", data)
        half = len(numbers) // 2
        return cls(numbers[:half], numbers[half:])


class _Messages:
    """Parcels for this rank, put together to messages."""

    def __init__(self) -> None:
        self._parts: dict[int, list[memoryview]] = {}  # by source

    def take(self, parcel: bytes, arrivals: list[Delivery | Lost]) -> None:
        """Append the message that this one completes, or the loss that it tells."""
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

    def lose(self, source: int, reason: str, arrivals: list[Delivery | Lost]) -> None:
        """That rank is lost, and with it what is half here."""
        self._parts.pop(source, None)
        arrivals.append(Lost(source, reason))


def _pieces(source: int, dest: int, payload: bytes) -> Iterator[tuple[bytes, memoryview]]:
    """A message to another node as parcels: their headers and bodies."""
    rest = memoryview(payload)
    while len(rest) > _PIECE_BYTES:
        yield _HEADER.pack(_MORE, source, dest), rest[:_PIECE_BYTES]
        rest = rest[_PIECE_BYTES:]
    yield _HEADER.pack(_LAST, source, dest), rest


class Speaker:
    """The rank of a node that belongs to MPI; see ``contract.Transport``."""

    def __init__(
        self,
        carrier: Carrier,
        layout: Layout,
        party: Party,
        end_all: Callable[[int], NoReturn],
    ) -> None:
        """Speak for *party* by *carrier*, and say to its leaves who they are.

        *end_all* has MPI end its processes.
        """
        self.rank = layout.bases[carrier.rank]
        self.size, self.nodes = layout.size, layout.nodes
        self._carrier, self._layout, self._party = carrier, layout, party
        self._end_all = end_all
        self._local = party.connect(self.rank)
        self._own: list[Delivery | Lost] = []
        self._messages = _Messages()
        hello = _HEADER.pack(_HELLO, carrier.rank, 0)
        for leaf in range(1, party.size):
            self._local.send_parts(leaf, hello, layout.packed())

    # -- the contract

    def send(self, dest: int, payload: bytes) -> None:
        """Hand *payload* to a leaf, or to the speaker of another node."""
        speaker = self._layout.speaker(dest)
        if dest == self.rank:
            self._own.append(Delivery(dest, payload))
        elif speaker == self._carrier.rank:
            header = _HEADER.pack(_LAST, self.rank, dest)
            self._local.send_parts(dest - self.rank, header, payload)
        else:
            for header, piece in _pieces(self.rank, dest, payload):
                self._carrier.send(speaker, b"".join((header, piece)))

    def poll(self, timeout_s: float | None) -> list[Delivery | Lost]:
        """Pass on what is for others, until there is something for this rank."""
        arrivals, self._own = self._own, []
        ends_at = None if timeout_s is None else monotonic() + timeout_s
        woken = self._turn(0.0, arrivals)
        while not arrivals and not woken:
            sleep_s = self._carrier.nap_s()
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
        """End the current or the next poll."""
        self._local.wake()

    def close(self) -> None:
        """Nothing yet: leaves that are still at work need their speaker, see ``leave``."""

    def abort(self, exit_code: int) -> NoReturn:
        """End the leaves, and have MPI end all others."""
        self._party.children.kill()
        self._end_all(exit_code)

    # -- beyond the contract, for launch_mpi

    def leave(self, code: int, ends_at: float) -> int | None:
        """Pass on until all leaves have closed, then wait for the other speakers.

        The job's code, the worst of all; None if some don't end in time.
        """
        while self._local.connected:
            if monotonic() > ends_at:
                return None
            self._drop(self._carrier.nap_s())
        code = self._party.children.finish(code)
        codes = self._carrier.agree(code, self._drop, ends_at)
        self._local.close()
        if codes is None:
            return None
        return worst(codes) if len(set(codes)) > 1 else code

    def _drop(self, sleep_s: float) -> None:
        self._turn(sleep_s, [])

    # -- one turn

    def _turn(self, sleep_s: float, arrivals: list[Delivery | Lost]) -> bool:
        """Sleep once, move what can be moved, append what is for this rank; whether woken."""
        local, carrier = self._local, self._carrier
        local.listen(carrier.unsent_bytes < _MOST_BYTES)
        came: list[Delivery | Lost] = []
        woken = local.turn(sleep_s, came)
        for arrival in came:
            self._from_leaf(arrival, arrivals)
        came.clear()
        carrier.turn(came, _MOST_BYTES - local.unsent_bytes)
        for arrival in came:
            if isinstance(arrival, Delivery):  # MPI loses nobody
                self._from_speaker(arrival.payload, arrivals)
        return woken

    def _from_leaf(self, arrival: Delivery | Lost, arrivals: list[Delivery | Lost]) -> None:
        if isinstance(arrival, Lost):
            lost = self.rank + arrival.rank
            self._messages.lose(lost, arrival.reason, arrivals)
            parcel = _HEADER.pack(_LOST, lost, 0) + arrival.reason.encode()
            for speaker in range(self._carrier.size):
                if speaker != self._carrier.rank:
                    self._carrier.send(speaker, parcel)
            return
        parcel = arrival.payload
        kind, source, dest = _HEADER.unpack_from(parcel)
        if kind == _ABORT:
            self.abort(source)
        if dest == self.rank:
            self._messages.take(parcel, arrivals)
        else:
            self._carrier.send(self._layout.speaker(dest), parcel)

    def _from_speaker(self, parcel: bytes, arrivals: list[Delivery | Lost]) -> None:
        kind, _, dest = _HEADER.unpack_from(parcel)
        if kind == _LOST:
            for leaf in range(1, self._party.size):
                self._local.send(leaf, parcel)
        if kind == _LOST or dest == self.rank:
            self._messages.take(parcel, arrivals)
        else:
            self._local.send(dest - self.rank, parcel)


class _Leaf:
    """A rank of a node that knows the others of it, and its speaker; see ``contract.Transport``."""

    def __init__(
        self, local: LocalTransport, speaker: int, layout: Layout, early: list[Delivery | Lost]
    ) -> None:
        self._base = layout.bases[speaker]
        self.rank = self._base + local.rank
        self.size, self.nodes = layout.size, layout.nodes
        self._local = local
        self._early = early
        self._is_cut_off = False
        self._messages = _Messages()

    def send(self, dest: int, payload: bytes) -> None:
        """Hand *payload* to a rank of this node, or to the speaker."""
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

    def poll(self, timeout_s: float | None) -> list[Delivery | Lost]:
        """What has come by the sockets.  SystemExit when the speaker is gone."""
        arrivals: list[Delivery | Lost] = []
        ends_at = None if timeout_s is None else monotonic() + timeout_s
        while not self._is_cut_off:
            came, self._early = self._early or self._local.poll(timeout_s), []
            for arrival in came:
                self._take(arrival, arrivals)
            if arrivals or not came:  # else it was a part of something long
                return arrivals
            if ends_at is not None:
                timeout_s = max(0.0, ends_at - monotonic())
        # Who started MPI's process says what became of it, and ends those elsewhere.
        raise SystemExit(RankLost.exit_code)

    def wake(self) -> None:
        """End the current or the next poll."""
        self._local.wake()

    def close(self) -> None:
        """As of a local rank."""
        self._local.close()

    def abort(self, exit_code: int) -> NoReturn:
        """Have the speaker end the job."""
        flush_standard_streams()
        self._local.send_parts(0, _HEADER.pack(_ABORT, exit_code & 0xFF, 0))
        ends_at = monotonic() + _ABORT_WITHIN_S
        while (left_s := ends_at - monotonic()) > 0:
            if Lost(0, "closed its connection") in self._local.poll(left_s):
                break
        os._exit(exit_code & 0xFF)

    def _take(self, arrival: Delivery | Lost, arrivals: list[Delivery | Lost]) -> None:
        if isinstance(arrival, Lost):
            if arrival.rank == 0:
                self._is_cut_off = True
            else:
                self._messages.lose(self._base + arrival.rank, arrival.reason, arrivals)
        elif arrival.source:
            arrivals.append(Delivery(self._base + arrival.source, arrival.payload))
        else:
            self._messages.take(arrival.payload, arrivals)


def leaf_of(local: LocalTransport) -> Transport:
    """Wait to hear from the speaker who this rank is.  SystemExit if there will be no job."""
    hello = None
    early: list[Delivery | Lost] = []
    while hello is None:
        for arrival in local.poll(None):
            if arrival[0] or hello is not None:  # from who knows more already
                early.append(arrival)
            elif isinstance(arrival, Lost):
                raise SystemExit(RankLost.exit_code)
            else:
                hello = arrival.payload
    _, speaker, _ = _HEADER.unpack_from(hello)
    return _Leaf(local, speaker, Layout.unpacked(hello[_HEADER.size :]), early)
