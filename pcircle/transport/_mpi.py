"""The transport of ranks that an MPI launcher started; the only module that imports mpi4py.

Messages use only non-blocking sends, matched probes and tests. So neither sending nor polling waits
for another rank, and ranks that send to each other cannot deadlock. A message longer than 1 MiB
travels in fragments. The tag marks whether more fragments follow, and MPI keeps the order per pair
of ranks, so fragments need no header.

MPI provides no descriptor to wait on, and its own waits keep a core busy. So an idle rank sleeps
between polls of MPI, for a sixteenth of the silence so far. A quick answer is received quickly, and
a wait of half a second takes little more than a hundred polls. The sleep is a wait on the wake
pipe, so a worker thread can end it at once.

The cost: a message that arrives after a silence may be received late, by up to a sixteenth of that
silence and at most 25 ms. A poll takes about 30 us, so an idle rank uses 0.15 % of a core. If a
node has more ranks than cores, each poll takes time from another rank. So a waiting rank then
sleeps from the start, and for a quarter of the silence. This transport does not tolerate deaths: if
a rank dies, the launcher ends the job.

Importing this module loads the MPI library, but does not initialise it.
"""

from __future__ import annotations

import atexit
import os
import warnings
from array import array
from collections import deque
from math import inf
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import mpi4py

# Must be set before MPI is imported. launch_mpi() initialises and finalises it explicitly, because
# the automatic finalisation at exit would hang after an exception in one rank.
mpi4py.rc.initialize = False
mpi4py.rc.finalize = False

from mpi4py import MPI  # noqa: E402

from pcircle.core.buffers import Pool  # noqa: E402
from pcircle.core.errors import RankLost, UsageError, worst  # noqa: E402
from pcircle.transport._exit import (  # noqa: E402
    await_stderr_read,
    flush_standard_streams,
    print_error,
    report_exception,
)
from pcircle.transport._wake import Wakeup  # noqa: E402
from pcircle.transport.contract import Delivery, LostRank  # noqa: E402
from pcircle.transport.launch import (  # noqa: E402
    Launch,
    check_library,
    check_world,
    is_crowded,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pcircle.transport._hybrid import Gateway, NodeProcesses
    from pcircle.transport.contract import Body


# Far below the 2 GiB that MPI can count. It is small because some libraries transfer a message
# piece by piece, and only while they are called. Then the completion of a fragment is the only sign
# of progress, and a rank that sees none sleeps. With 16 MiB fragments 100 MB took 12 s; with these
# it takes 0.4 s. Libraries that copy in one step are no slower with small fragments.
_FRAGMENT_BYTES = 1 * 1024 * 1024
_TAG_MORE = 1  # a fragment that is not the message's last
_TAG_LAST = 2
# How many messages a poll accepts before it returns them.
_MATCHES_PER_TURN = 256
# The sleep between two polls of MPI is this fraction of the silence so far, within these bounds.
_SLEEP_SHARE = 1 / 16
_CROWDED_SLEEP_SHARE = 1 / 4  # if ranks share cores
_SHORTEST_SLEEP_S = 50e-6
_LONGEST_SLEEP_S = 25e-3
# During a shorter silence the rank does not sleep, because the kernel's shortest sleep takes longer
# than a sixteenth of it.
_NO_SLEEP_S = 200e-6
# The library may advance a transfer only when it is called. So a rank with open transfers does not
# sleep until none of them has made progress for this long.
_TRANSFER_PATIENCE_S = 20e-3
# How long close() waits for the last sends without progress. Only sleeps are counted, so that a
# suspended job is not mistaken for a stuck job. The second limit is for leave(), which waits for
# all ranks to close.
_CLOSE_STALLED_S = 5.0
_LEAVE_DEADLINE_S = 30.0


class _Incoming(NamedTuple):
    """A fragment that was matched and is being received."""

    request: MPI.Request
    buffer: memoryview
    tag: int


class MpiChannel:
    """A rank's messages on one communicator. No method blocks.

    `unsent_bytes` is the total size of the sends that are not complete.
    """

    def __init__(self, comm: MPI.Intracomm, *, is_crowded: bool = False) -> None:
        """Take over *comm*, which must carry no other messages; *is_crowded*: ranks share cores."""
        self.rank = comm.Get_rank()
        self.size = comm.Get_size()
        self.unsent_bytes = 0
        self._comm = comm
        self._is_crowded = is_crowded
        # A request keeps its buffer, and so the payload, alive. MPI starts the sends to one rank in
        # order, so only the oldest send to each rank is tested. Testing all open sends at every
        # turn would have quadratic cost.
        self._sends: dict[
            int, deque[tuple[MPI.Request, int]]
        ] = {}  # by receiver; no queue is empty
        self._incoming: dict[int, deque[_Incoming]] = {}  # by source, in order of matching
        self._fragments: dict[int, list[memoryview]] = {}  # by source, of an incomplete message
        self._pool = Pool()
        self._status = MPI.Status()
        self._last_traffic = monotonic()

    def send(self, dest: int, payload: bytes) -> None:
        """Start sending *payload* to another rank; later turns complete the send."""
        remaining = memoryview(payload)
        while len(remaining) > _FRAGMENT_BYTES:
            self._start_send(dest, remaining[:_FRAGMENT_BYTES], _TAG_MORE)
            remaining = remaining[_FRAGMENT_BYTES:]
        self._start_send(dest, remaining, _TAG_LAST)
        self._last_traffic = monotonic()  # an answer may come soon

    def turn(self, arrivals: list[Delivery | LostRank], max_bytes: float = inf) -> None:
        """Let MPI make progress, and append complete messages.

        No more messages are received once *max_bytes* have arrived.
        """
        if self._sends:
            self._finish_sends()
        moved = len(arrivals)
        for _ in range(_MATCHES_PER_TURN):
            if max_bytes <= 0:
                break
            message = self._comm.Improbe(MPI.ANY_SOURCE, MPI.ANY_TAG, self._status)
            if message is None:
                break
            max_bytes -= self._receive(message, arrivals)
        if self._incoming:
            for source in list(self._incoming):
                self._finish_receives(source, arrivals)
        if len(arrivals) > moved:
            self._last_traffic = monotonic()

    def nap_s(self) -> float:
        """Return how long to sleep before the next turn, depending on the silence so far."""
        quiet_s = monotonic() - self._last_traffic
        if quiet_s < _TRANSFER_PATIENCE_S and (self._sends or self._incoming):
            return 0.0
        if self._is_crowded:
            share = _CROWDED_SLEEP_SHARE
        elif quiet_s < _NO_SLEEP_S:
            return 0.0
        else:
            share = _SLEEP_SHARE
        return min(max(quiet_s * share, _SHORTEST_SLEEP_S), _LONGEST_SLEEP_S)

    def push(self, turn: Callable[[float], object]) -> None:
        """Complete all sends, unless they make no progress for too long.

        *turn* sleeps for its argument, and then lets MPI make progress.
        """
        stalled_s = 0.0
        while self._sends and stalled_s < _CLOSE_STALLED_S:
            quiet_since = self._last_traffic
            turn(0.0)
            if self._last_traffic > quiet_since:
                stalled_s = 0.0
            else:
                sleep_s = self.nap_s()
                turn(sleep_s)
                stalled_s += sleep_s

    def agree(self, code: int, turn: Callable[[float], object], ends_at: float) -> list[int] | None:
        """Return the codes of all ranks once all have called this, or None at *ends_at*.

        Meanwhile calls *turn*, which must receive the messages of ranks that are still running.
        Afterwards nothing is in flight on the communicator, so MPI can be finalised without
        waiting.
        """
        codes = array("i", [0]) * self.size
        request = self._comm.Iallgather(array("i", [code]), codes)
        while not (request.Test() and not self._sends and not self._incoming):
            if monotonic() > ends_at:
                return None
            turn(self.nap_s())
        turn(0.0)
        self._comm.Free()
        return list(codes)

    # -- outgoing

    def _start_send(self, dest: int, part: memoryview, tag: int) -> None:
        request = self._comm.Isend([part, len(part), MPI.BYTE], dest, tag)
        self._sends.setdefault(dest, deque()).append((request, len(part)))
        self.unsent_bytes += len(part)

    def _finish_sends(self) -> None:
        """Remove complete sends, for each rank up to the first incomplete send."""
        for dest, sends in list(self._sends.items()):
            while sends and sends[0][0].Test():
                self.unsent_bytes -= sends.popleft()[1]
                self._last_traffic = monotonic()
            if not sends:
                del self._sends[dest]

    # -- incoming

    def _receive(self, message: MPI.Message, arrivals: list[Delivery | LostRank]) -> int:
        """Start receiving a matched *message*, and return its size.

        Most messages are complete at once. The receive must not block, because the remainder of a
        long message arrives only if its sender polls too.
        """
        status = self._status
        source, tag = status.Get_source(), status.Get_tag()
        buffer = self._pool.take(status.Get_count(MPI.BYTE))
        request = message.Irecv([buffer, len(buffer), MPI.BYTE])
        waiting = self._incoming.get(source)
        if waiting is None:
            if request.Test():
                size_bytes = len(buffer)
                self._complete(source, buffer, tag, arrivals)
                return size_bytes
            waiting = self._incoming[source] = deque()
        waiting.append(_Incoming(request, buffer, tag))
        return len(buffer)

    def _finish_receives(self, source: int, arrivals: list[Delivery | LostRank]) -> None:
        """Process the complete fragments of *source* in order, up to the first incomplete one."""
        waiting = self._incoming[source]
        while waiting and waiting[0].request.Test():
            incoming = waiting.popleft()
            self._complete(source, incoming.buffer, incoming.tag, arrivals)
            self._last_traffic = monotonic()
        if not waiting:
            del self._incoming[source]

    def _complete(
        self, source: int, buffer: memoryview, tag: int, arrivals: list[Delivery | LostRank]
    ) -> None:
        """Store a fragment, or deliver the message that it completes."""
        if tag == _TAG_MORE:
            self._fragments.setdefault(source, []).append(buffer)
            self._last_traffic = monotonic()
        elif source in self._fragments:
            parts = [*self._fragments.pop(source), buffer]
            arrivals.append(Delivery(source, b"".join(parts)))
            for part in parts:
                self._pool.give(part)
        else:
            arrivals.append(Delivery(source, bytes(buffer)))
            self._pool.give(buffer)


class MpiTransport:
    """One rank of an MPI communicator; implements `contract.Transport`."""

    def __init__(self, channel: MpiChannel, nodes: tuple[int, ...]) -> None:
        self.rank, self.size, self.nodes = channel.rank, channel.size, nodes
        self._channel = channel
        self._own: list[Delivery | LostRank] = []
        self._wakeup = Wakeup()
        self._closed = False

    # -- the contract

    def send(self, dest: int, payload: bytes) -> None:
        if dest == self.rank:
            self._own.append(Delivery(dest, payload))
            return
        if not 0 <= dest < self.size:  # MPI silently drops messages to rank -1
            raise ValueError(f"no rank {dest} in a job of {self.size}")
        self._channel.send(dest, payload)

    def poll(self, timeout_s: float | None) -> list[Delivery | LostRank]:
        """Poll MPI, and sleep between polls, until a message arrives or the wait ends."""
        arrivals, self._own = self._own, []
        channel, wakeup = self._channel, self._wakeup
        channel.turn(arrivals)
        if wakeup.is_set():
            wakeup.clear()
            return arrivals
        if arrivals or (timeout_s is not None and timeout_s <= 0):
            return arrivals
        ends_at = None if timeout_s is None else monotonic() + timeout_s
        while not arrivals:
            sleep_s = channel.nap_s()
            if ends_at is not None:
                left_s = ends_at - monotonic()
                if left_s <= 0:
                    break
                sleep_s = min(sleep_s, left_s)
            if sleep_s <= 0:
                os.sched_yield()  # the message may come from a rank that needs this core
            woken = wakeup.wait(sleep_s)
            channel.turn(arrivals)
            if woken:
                wakeup.clear()
                break
        return arrivals

    def wake(self) -> None:
        """End the current or the next poll, without calling MPI."""
        self._wakeup.set()

    def close(self) -> None:
        """Complete all sends, dropping what arrives meanwhile."""
        if self._closed:
            return
        self._closed = True
        self._channel.push(self._drop)
        self._wakeup.close()

    def abort(self, exit_code: int) -> NoReturn:
        abort_world(exit_code)

    # -- in addition to the contract, for launch_mpi

    def leave(self, code: int, ends_at: float) -> int | None:
        """Wait, after `close`, for all ranks to close; return *code*, or None at *ends_at*.

        Messages from ranks that are still running are dropped.
        """
        return None if self._channel.agree(code, self._drop, ends_at) is None else code

    def _drop(self, sleep_s: float) -> None:
        sleep(sleep_s)
        self._channel.turn([])


def is_initialized() -> bool:
    """Return whether MPI has been initialised in this process."""
    return bool(MPI.Is_initialized())


def share(value: Any) -> Any:
    """Return the value of rank 0 on all ranks of MPI's world. Collective.

    If MPI is not running, return `value`.
    """
    if not MPI.Is_initialized() or MPI.Is_finalized():
        return value
    return MPI.COMM_WORLD.bcast(value, 0)


def abort_world(exit_code: int) -> NoReturn:
    """Make MPI end all ranks with *exit_code*."""
    flush_standard_streams()
    await_stderr_read()
    MPI.COMM_WORLD.Abort(exit_code)
    os._exit(exit_code & 0xFF)  # in case the library lets Abort return


def end_world(exit_code: int) -> None:
    """Make MPI end all ranks, even if this one has not initialised MPI yet.

    Otherwise the other ranks would wait for it in MPI_Init forever. Does nothing if MPI is
    finalised.
    """
    if not MPI.Is_finalized():
        if not MPI.Is_initialized():
            _initialise()
        abort_world(exit_code)


def launch_mpi(
    launch: Launch, body: Body, *, again: bool = False, processes: NodeProcesses | None = None
) -> int:
    """Run *body* on this rank of MPI's world; return the exit code of this process.

    MPI can be initialised only once per process. If *again* is set, further jobs may need it, so it
    is finalised only when the process exits. *processes* contains the local processes next to this
    one.

    An exception from *body* is printed and ends the job with its code: a rank that unwinds alone
    would leave the other ranks hanging.

    Raises UsageError if the MPI library does not match the launcher.
    """
    check_library(launch, MPI.get_vendor()[0])
    if MPI.Is_finalized():
        raise UsageError("MPI was finalized by an earlier job in this process")
    starts_mpi = not MPI.Is_initialized()
    if starts_mpi:
        _initialise()
    try:
        check_world(launch, MPI.COMM_WORLD.Get_size())
        transport = _join(processes)
    except UsageError:
        if starts_mpi:
            MPI.Finalize()
        raise
    try:
        code = int(body(transport))
        transport.close()
        agreed = transport.leave(code, monotonic() + _LEAVE_DEADLINE_S)
        if agreed is None:
            message = f"other ranks did not end within {_LEAVE_DEADLINE_S:.0f} s after this one"
            print_error(f"rank {transport.rank}: {message}")
            transport.abort(worst([code, RankLost.exit_code]))
    except BaseException as error:
        transport.abort(report_exception(error, transport.rank))
    if starts_mpi:
        if again:
            atexit.register(MPI.Finalize)
        else:
            MPI.Finalize()
    return agreed


def _join(processes: NodeProcesses | None) -> MpiTransport | Gateway:
    """Create this rank's transport after all MPI ranks have exchanged their properties. Collective.

    All ranks raise UsageError if one of them could not start its local processes.
    """
    comm = MPI.COMM_WORLD.Dup()
    size, trouble = (1, "") if processes is None else (processes.size, processes.trouble)
    cores = sum(1 << core for core in os.sched_getaffinity(0))
    members = comm.allgather((MPI.Get_processor_name(), size, trouble, cores))
    for name, _, trouble, _ in members:
        if trouble:
            raise UsageError(f"{name}: {trouble}")
    nodes = _number_nodes([name for name, *_ in members])
    sizes = [size for _, size, _, _ in members]
    here = nodes[comm.Get_rank()]
    shares = [
        (size, cores)
        for (_, size, _, cores), node in zip(members, nodes, strict=True)
        if node == here
    ]
    channel = MpiChannel(comm, is_crowded=is_crowded(shares))
    if sum(sizes) == len(sizes):
        return MpiTransport(channel, nodes)
    from pcircle.transport._hybrid import Gateway, Layout, NodeProcesses  # few jobs need it

    return Gateway(channel, Layout(sizes, nodes), processes or NodeProcesses(1), abort_world)


def _initialise() -> None:
    with warnings.catch_warnings():
        # mpi4py only guesses whether launcher and library match. check_world() determines it, and
        # its message explains what to do.
        warnings.simplefilter("ignore", RuntimeWarning)
        # Only the thread that creates the transport calls MPI.
        MPI.Init_thread(MPI.THREAD_FUNNELED)


def _number_nodes(names: Sequence[str]) -> tuple[int, ...]:
    """Return the number of each name; numbers count from 0 in order of first appearance."""
    numbers: dict[str, int] = {}
    return tuple(numbers.setdefault(name, len(numbers)) for name in names)


def library() -> tuple[str, str]:
    """Return the name and version of the MPI library, and the first line of its description."""
    name, version = MPI.get_vendor()
    # Open MPI includes the terminating NUL in the string.
    description = MPI.Get_library_version().replace("\0", "").partition("\n")[0]
    return f"{name} {'.'.join(map(str, version))}", " ".join(description.split())
