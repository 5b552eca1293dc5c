"""Ranks on one machine: forked processes, with a stream socket between each pair.

All sockets are created before the first fork, so they need no names and no cleanup. If a rank dies,
the kernel closes its sockets, and the other ranks notice that. A rank waits for all its peers in
one epoll call, so an idle rank uses no CPU time.

A frame consists of its length (8 bytes) and that many bytes. A rank that closes sends a goodbye,
which is a length that no frame can have. End of file without a goodbye means that the rank is lost.

No send ever blocks: data that the kernel does not accept at once is queued per peer, and sent by
later polls. Every rank reads whenever it polls, even while it is closing, so two ranks that send
each other more than the sockets can hold do not block each other.

The cost: size * (size - 1) descriptors while starting, size - 1 in each rank afterwards.

`_fork` starts the processes.
"""

from __future__ import annotations

import _socket  # the module `socket` takes two milliseconds to import
import os
import select
import struct
from collections import deque
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING, NoReturn

from pcircle.core.buffers import Pool, aligned
from pcircle.transport._exit import flush_standard_streams
from pcircle.transport._wake import Wakeup
from pcircle.transport.contract import Delivery, LostRank

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


_HEADER = struct.Struct("<Q")
_GOODBYE_LENGTH = 2**64 - 1
_SCRATCH_BYTES = 256 * 1024
# epoll has a resolution of milliseconds; select() is precise, but limited to small descriptors.
_EPOLL_RESOLUTION_S = 1e-3
_SELECT_LIMIT = 1024
# How many times one peer is read from before the next peer is served.
_READS_PER_TURN = 16
# Buffers per sendmsg; the kernel accepts at most 1024.
_BUFFERS_PER_SEND = 64
# close() gives up when nothing has moved for this many waits of this length. It counts waits
# instead of time, so that a job that was suspended for an hour (Ctrl-Z) is not mistaken for a stuck
# job.
_CLOSE_WAIT_S = 0.1
_CLOSE_STALLED_WAITS = 50


class _Peer:
    """A peer's socket, with the outgoing queue and the incomplete incoming message."""

    __slots__ = ("body", "departed", "events", "fd", "filled", "head", "outgoing", "rank", "sock")

    def __init__(self, rank: int, fd: int) -> None:
        self.rank = rank
        self.fd = fd
        self.sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, fd)
        self.sock.setblocking(False)
        self.outgoing: deque[memoryview] = deque()
        self.events = select.EPOLLIN  # the events that epoll watches for
        self.departed = False  # the goodbye has arrived
        self.head = b""  # the beginning of a header
        self.body: memoryview | None = None  # a payload that has not arrived completely
        self.filled = 0  # bytes of `body` that have arrived


class LocalTransport:
    """One rank of a mesh of stream sockets; implements `contract.Transport`."""

    def __init__(
        self,
        rank: int,
        size: int,
        ends: Mapping[int, int],
        *,
        explain_loss: Callable[[int], str] | None = None,
        kill_others: Callable[[], None] | None = None,
    ) -> None:
        """Take over the descriptors *ends*, one for each other rank.

        The parent of the processes also passes *explain_loss*, which returns why a rank's socket
        was closed, and *kill_others*.
        """
        self.rank = rank
        self.size = size
        self.nodes: tuple[int, ...] = (0,) * size
        self.unsent_bytes = 0
        self._explain_loss = explain_loss
        self._kill_others = kill_others
        self._own: list[Delivery | LostRank] = []
        self._scratch = aligned(_SCRATCH_BYTES)
        self._pool = Pool()
        self._sent_bytes = 0
        self._closed = False
        self._listens = True
        self._wakeup = Wakeup()
        self._epoll = select.epoll()
        self._epoll.register(self._wakeup.fd, select.EPOLLIN)
        # The connected peers, by rank and by descriptor.
        self._peers = {other: _Peer(other, fd) for other, fd in ends.items()}
        self._by_fd = {peer.fd: peer for peer in self._peers.values()}
        for fd in self._by_fd:
            self._epoll.register(fd, select.EPOLLIN)

    # -- the contract

    def send(self, dest: int, payload: bytes) -> None:
        if dest == self.rank:
            self._own.append(Delivery(dest, payload))
        else:
            self.send_parts(dest, payload)

    def poll(self, timeout_s: float | None) -> list[Delivery | LostRank]:
        """Read and write until a message is complete, `wake` is called, or time is up."""
        arrivals, self._own = self._own, []
        if arrivals or (timeout_s is not None and timeout_s <= 0):
            self.turn(0, arrivals)
            return arrivals
        ends_at = None if timeout_s is None else monotonic() + timeout_s
        wait_s = timeout_s
        while True:
            woken = self.turn(wait_s, arrivals)
            if arrivals or woken:
                return arrivals
            if ends_at is not None:
                wait_s = ends_at - monotonic()
                if wait_s <= 0:
                    return arrivals

    def wake(self) -> None:
        self._wakeup.set()

    def close(self) -> None:
        """Send what is queued and a goodbye to every rank, dropping what arrives meanwhile."""
        if self._closed:
            return
        for peer in list(self._peers.values()):
            self._queue(peer, _HEADER.pack(_GOODBYE_LENGTH))
        stalled_waits = 0
        dropped: list[Delivery | LostRank] = []
        while stalled_waits < _CLOSE_STALLED_WAITS:
            if not any(peer.outgoing for peer in self._peers.values()):
                break
            before_bytes = self._sent_bytes
            self.turn(_CLOSE_WAIT_S, dropped)
            dropped.clear()
            stalled_waits = 0 if self._sent_bytes > before_bytes else stalled_waits + 1
        self.release()

    def abort(self, exit_code: int) -> NoReturn:
        """End this process, after killing the others if this is their parent."""
        if self._kill_others is not None:
            self._kill_others()
        flush_standard_streams()
        os._exit(exit_code & 0xFF)

    # -- in addition to the contract, for the starter of the processes

    def release(self) -> None:
        """Close all descriptors without a goodbye. Idempotent."""
        if self._closed:
            return
        self._closed = True
        for peer in self._peers.values():
            peer.sock.close()
        self._peers.clear()
        self._by_fd.clear()
        self._epoll.close()
        self._wakeup.close()

    # -- in addition to the contract, for gateways

    @property
    def connected(self) -> int:
        """The number of other ranks that have neither closed nor been lost."""
        return len(self._peers)

    def send_parts(self, dest: int, *parts: bytes | memoryview) -> None:
        """Send a payload that consists of *parts* to another rank."""
        peer = self._peers.get(dest)
        if peer is not None:
            self._queue(peer, _HEADER.pack(sum(map(len, parts))), *parts)
        elif not 0 <= dest < self.size:
            raise ValueError(f"no rank {dest} in a job of {self.size}")
        # Otherwise the rank is lost or has closed.

    def listen(self, reads: bool) -> None:
        """Enable or disable reading. While it is disabled, the other ranks' sends have to wait."""
        if self._listens == reads:
            return
        self._listens = reads
        for peer in self._peers.values():
            self._watch(peer)

    def turn(self, wait_s: float | None, arrivals: list[Delivery | LostRank]) -> bool:
        """Wait once, write, read, append complete messages; return whether `wake` was called."""
        woken = False
        if wait_s and wait_s < _EPOLL_RESOLUTION_S and self._epoll.fileno() < _SELECT_LIMIT:
            select.select([self._epoll], [], [], wait_s)
            wait_s = 0
        for fd, mask in self._epoll.poll(wait_s, self.size):
            peer = self._by_fd.get(fd)
            if peer is None:
                self._wakeup.clear()
                woken = True
                continue
            if mask & select.EPOLLOUT:
                self._push(peer)
            if mask & ~select.EPOLLOUT:
                self._receive(peer, arrivals)
        return woken

    # -- outgoing

    def _queue(self, peer: _Peer, *buffers: bytes | memoryview) -> None:
        waiting = bool(peer.outgoing)
        peer.outgoing.extend(memoryview(buffer) for buffer in buffers if buffer)
        self.unsent_bytes += sum(map(len, buffers))
        if not waiting:
            self._push(peer)

    def _push(self, peer: _Peer) -> None:
        """Hand as much of the peer's queue to the kernel as it accepts, and watch for more room."""
        outgoing = peer.outgoing
        while outgoing:
            try:
                taken_bytes = peer.sock.sendmsg(islice(outgoing, _BUFFERS_PER_SEND))
            except BlockingIOError:
                break
            except (BrokenPipeError, ConnectionResetError):
                # The peer no longer reads. `_receive` determines whether it closed or died, after
                # reading everything that it sent.
                self._drop_queue(peer)
                break
            self._sent_bytes += taken_bytes
            self.unsent_bytes -= taken_bytes
            while taken_bytes:
                first = outgoing[0]
                if taken_bytes < len(first):
                    outgoing[0] = first[taken_bytes:]
                    break
                taken_bytes -= len(first)
                outgoing.popleft()
        self._watch(peer)

    def _drop_queue(self, peer: _Peer) -> None:
        """Drop everything that is queued for *peer*."""
        self.unsent_bytes -= sum(map(len, peer.outgoing))
        peer.outgoing.clear()

    def _watch(self, peer: _Peer) -> None:
        """Set the events that epoll watches for on *peer*; hang-ups are always reported."""
        events = select.EPOLLIN if self._listens else 0
        if peer.outgoing:
            events |= select.EPOLLOUT
        if events != peer.events:
            peer.events = events
            self._epoll.modify(peer.fd, events)

    # -- incoming

    def _receive(self, peer: _Peer, arrivals: list[Delivery | LostRank]) -> None:
        """Read from *peer*, a limited number of times, and append complete messages."""
        for _ in range(_READS_PER_TURN):
            # The rest of a large payload is read directly into its buffer, not through the scratch
            # buffer.
            if peer.body is not None:
                space = peer.body[peer.filled :]
            else:
                space = self._scratch[len(peer.head) :]
            try:
                count_bytes = peer.sock.recv_into(space)
            except BlockingIOError:
                return
            except ConnectionResetError:
                count_bytes = 0  # the peer closed without having read everything
            if count_bytes == 0:
                self._forget(peer)
                if not peer.departed:
                    arrivals.append(LostRank(peer.rank, self._reason(peer.rank)))
                return
            if peer.body is not None:
                peer.filled += count_bytes
                if peer.filled == len(peer.body):
                    arrivals.append(Delivery(peer.rank, bytes(peer.body)))
                    self._pool.give(peer.body)
                    peer.body = None
            else:
                self._parse(peer, count_bytes, arrivals)
            if peer.departed:
                self._forget(peer)
                return
            if count_bytes < len(space):
                return  # the socket is empty; otherwise epoll reports it again

    def _parse(self, peer: _Peer, count_bytes: int, arrivals: list[Delivery | LostRank]) -> None:
        """Extract the frames from the scratch buffer: the head and *count_bytes* new bytes."""
        scratch = self._scratch
        head_bytes = len(peer.head)
        scratch[:head_bytes] = peer.head
        peer.head = b""
        end = head_bytes + count_bytes
        at = 0
        while end - at >= _HEADER.size:
            (length_bytes,) = _HEADER.unpack_from(scratch, at)
            if length_bytes == _GOODBYE_LENGTH:
                peer.departed = True
                return
            at += _HEADER.size
            if end - at < length_bytes:
                peer.body = self._pool.take(length_bytes)
                peer.filled = end - at
                peer.body[: peer.filled] = scratch[at:end]
                return
            arrivals.append(Delivery(peer.rank, bytes(scratch[at : at + length_bytes])))
            at += length_bytes
        peer.head = bytes(scratch[at:end])

    def _forget(self, peer: _Peer) -> None:
        """Drop *peer*, because its connection has ended."""
        del self._peers[peer.rank]
        del self._by_fd[peer.fd]
        self._drop_queue(peer)
        self._epoll.unregister(peer.fd)
        peer.sock.close()

    def _reason(self, rank: int) -> str:
        if self._explain_loss is not None:
            return self._explain_loss(rank)
        return "closed its connection"
