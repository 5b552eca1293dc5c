"""Ranks that an MPI launcher started, on one machine or many; the only module that names mpi4py.

The idea: of MPI's thousand functions this uses non-blocking sends, matched probes and tests, so
that no call ever waits for another rank and no cycle of ranks can block.  A message longer than
1 MiB travels in fragments; the tag says whether more follow, and MPI keeps the order per pair of
ranks, so nothing needs a header.

MPI has no descriptor to wait for and its own waits burn a core.  A rank that has nothing to do
therefore sleeps between looks, a sixteenth of the silence so far: an answer that comes soon is
seen soon, and to wait for any time takes about a hundred looks.  The sleep is a wait on the wake
pipe, so a worker thread that finished something ends it at once.

The cost: a message that comes after a silence is seen later by up to a sixteenth of it, and by
25 ms at most.  A look takes some 30 us, so an idle rank uses 0.15 % of a core.  Where a node has
more ranks than cores each look keeps another rank from its work, so there it is a quarter, and
nothing is waited for without sleep.  What this is not: tolerant of deaths.  A rank that dies is the
launcher's business, and it ends the job.

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
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import mpi4py

# Must be said before MPI is imported: launch_mpi() starts and ends it at its own moment, for the
# library's own end at exit would hang after an exception in one rank.
mpi4py.rc.initialize = False
mpi4py.rc.finalize = False

from mpi4py import MPI  # noqa: E402

from pcircle.buffers import Pool  # noqa: E402
from pcircle.errors import RankLost, UsageError, worst  # noqa: E402
from pcircle.transport._exit import (  # noqa: E402
    explain_escape,
    flush_standard_streams,
    say,
    wait_until_read,
)
from pcircle.transport._wake import Wakeup  # noqa: E402
from pcircle.transport.contract import Delivery, Lost  # noqa: E402
from pcircle.transport.launch import (  # noqa: E402
    Launch,
    check_library,
    check_world,
    is_crowded,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pcircle.transport._hybrid import Party, Speaker
    from pcircle.transport.contract import Body

__all__ = ["Carrier", "MpiTransport", "end_all", "has_begun", "launch_mpi"]

# Far below the 2 GiB that MPI can count, and small for another reason: where the library moves a
# message piece by piece while it is called, the end of each fragment is the only sign that the
# transfer is alive and shall not be slept on.  In one 16 MiB fragment per sign, 100 MB took 12 s;
# like this they take 0.4 s, and no longer than before where the library copies in one go.
_FRAGMENT_BYTES = 1 * 1024 * 1024
_TAG_MORE = 1  # a fragment that is not the message's last
_TAG_LAST = 2
# How many messages are taken per poll before the caller gets to see them.
_MATCHES_PER_TURN = 256
# The sleep between two looks is this share of the silence so far, within these bounds.
_SLEEP_SHARE = 1 / 16
_CROWDED_SLEEP_SHARE = 1 / 4  # where ranks share cores
_SHORTEST_SLEEP_S = 50e-6
_LONGEST_SLEEP_S = 25e-3
# Not slept on at all: the shortest sleep takes the kernel longer than this.
_NO_SLEEP_S = 200e-6
# While a transfer is under way the library moves it only when it is called; so long without any
# progress it isn't slept on.
_TRANSFER_PATIENCE_S = 20e-3
# How long close() waits for the last sends to leave, counted in sleeps that moved nothing, so
# that a stopped job isn't mistaken for a stuck one; then how long for all ranks to come to the end.
_CLOSE_STALLED_S = 5.0
_LEAVE_DEADLINE_S = 30.0


class _Incoming(NamedTuple):
    """A fragment that was matched and is being received."""

    request: MPI.Request
    buffer: memoryview
    tag: int


class Carrier:
    """What a rank of a communicator sends and receives. Nothing here waits.

    `unsent_bytes` are those of messages that have not left.
    """

    def __init__(self, comm: MPI.Intracomm, *, is_crowded: bool = False) -> None:
        """Use *comm* for these messages alone; *is_crowded* where ranks share cores."""
        self.rank = comm.Get_rank()
        self.size = comm.Get_size()
        self.unsent_bytes = 0
        self._comm = comm
        self._is_crowded = is_crowded
        # A request keeps its buffer alive, so these are what holds the payloads as well. MPI begins
        # those to one rank in their order, so only the oldest of each is asked for: to ask for all
        # that are open at every turn would cost the square of their number.
        self._sends: dict[int, deque[tuple[MPI.Request, int]]] = {}  # by receiver, none empty
        self._incoming: dict[int, deque[_Incoming]] = {}  # by source, in the order of matching
        self._fragments: dict[int, list[memoryview]] = {}  # by source, of a message half here
        self._pool = Pool()
        self._status = MPI.Status()
        self._last_traffic = monotonic()

    def send(self, dest: int, payload: bytes) -> None:
        """Start sending *payload* to another rank; later turns see it through."""
        rest = memoryview(payload)
        while len(rest) > _FRAGMENT_BYTES:
            self._start_send(dest, rest[:_FRAGMENT_BYTES], _TAG_MORE)
            rest = rest[_FRAGMENT_BYTES:]
        self._start_send(dest, rest, _TAG_LAST)
        self._last_traffic = monotonic()  # an answer may come soon

    def turn(self, arrivals: list[Delivery | Lost], most_bytes: float = inf) -> None:
        """Let MPI make progress, and append the messages that became complete.

        As soon as *most_bytes* have come no more are taken.
        """
        if self._sends:
            self._finish_sends()
        moved = len(arrivals)
        for _ in range(_MATCHES_PER_TURN):
            if most_bytes <= 0:
                break
            message = self._comm.Improbe(MPI.ANY_SOURCE, MPI.ANY_TAG, self._status)
            if message is None:
                break
            most_bytes -= self._receive(message, arrivals)
        if self._incoming:
            for source in list(self._incoming):
                self._finish_receives(source, arrivals)
        if len(arrivals) > moved:
            self._last_traffic = monotonic()

    def nap_s(self) -> float:
        """How long to sleep before the next turn, by how long nothing has moved."""
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
        """See all sends through, by *turn*, which sleeps so long and has this take a turn."""
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
        """When all ranks have come to this: their codes; None if some don't by *ends_at*.

        What arrives from those who are still at work goes where *turn* puts it. Then nothing is
        under way in the communicator, so that MPI can end without waiting for anybody.
        """
        codes = array("i", [0]) * self.size
        everybody = self._comm.Iallgather(array("i", [code]), codes)
        while not (everybody.Test() and not self._sends and not self._incoming):
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
        """Forget the sends that are complete, to each rank up to the first that isn't."""
        for dest, sends in list(self._sends.items()):
            while sends and sends[0][0].Test():
                self.unsent_bytes -= sends.popleft()[1]
                self._last_traffic = monotonic()
            if not sends:
                del self._sends[dest]

    # -- incoming

    def _receive(self, message: MPI.Message, arrivals: list[Delivery | Lost]) -> int:
        """Start to receive a matched *message*, of so many bytes; most are complete at once.

        Never a blocking receive: the rest of a long message comes only if its sender polls too.
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

    def _finish_receives(self, source: int, arrivals: list[Delivery | Lost]) -> None:
        """Take the complete ones of *source* in their order, up to the first that isn't."""
        waiting = self._incoming[source]
        while waiting and waiting[0].request.Test():
            incoming = waiting.popleft()
            self._complete(source, incoming.buffer, incoming.tag, arrivals)
            self._last_traffic = monotonic()
        if not waiting:
            del self._incoming[source]

    def _complete(
        self, source: int, buffer: memoryview, tag: int, arrivals: list[Delivery | Lost]
    ) -> None:
        """A fragment is here: keep it, or deliver the message that it ends."""
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
    """One rank of an MPI communicator; see ``contract.Transport``."""

    def __init__(self, carrier: Carrier, nodes: tuple[int, ...]) -> None:
        self.rank, self.size, self.nodes = carrier.rank, carrier.size, nodes
        self._carrier = carrier
        self._own: list[Delivery | Lost] = []
        self._wakeup = Wakeup()
        self._closed = False

    # -- the contract

    def send(self, dest: int, payload: bytes) -> None:
        """Start sending *payload*; later polls see it through."""
        if dest == self.rank:
            self._own.append(Delivery(dest, payload))
            return
        if not 0 <= dest < self.size:  # MPI takes -1 for a rank that swallows everything
            raise ValueError(f"no rank {dest} in a job of {self.size}")
        self._carrier.send(dest, payload)

    def poll(self, timeout_s: float | None) -> list[Delivery | Lost]:
        """Look for messages, and sleep between looks until there is one or the time is over."""
        arrivals, self._own = self._own, []
        carrier, wakeup = self._carrier, self._wakeup
        carrier.turn(arrivals)
        if wakeup.is_set():
            wakeup.clear()
            return arrivals
        if arrivals or (timeout_s is not None and timeout_s <= 0):
            return arrivals
        ends_at = None if timeout_s is None else monotonic() + timeout_s
        while not arrivals:
            sleep_s = carrier.nap_s()
            if ends_at is not None:
                left_s = ends_at - monotonic()
                if left_s <= 0:
                    break
                sleep_s = min(sleep_s, left_s)
            if sleep_s <= 0:
                os.sched_yield()  # the message may come from a rank that needs this core
            woken = wakeup.wait(sleep_s)
            carrier.turn(arrivals)
            if woken:
                wakeup.clear()
                break
        return arrivals

    def wake(self) -> None:
        """End the current or the next poll.  Calls nothing of MPI."""
        self._wakeup.set()

    def close(self) -> None:
        """See all sends through, dropping what arrives meanwhile."""
        if self._closed:
            return
        self._closed = True
        self._carrier.push(self._drop)
        self._wakeup.close()

    def abort(self, exit_code: int) -> NoReturn:
        """Have MPI end all ranks with *exit_code*."""
        end_all(exit_code)

    # -- beyond the contract, for launch_mpi

    def leave(self, code: int, ends_at: float) -> int | None:
        """After ``close``: wait until all ranks have closed; the code, None if some don't in time.

        What arrives from those who are still at work is dropped.
        """
        return None if self._carrier.agree(code, self._drop, ends_at) is None else code

    def _drop(self, sleep_s: float) -> None:
        sleep(sleep_s)
        self._carrier.turn([])


def has_begun() -> bool:
    """Whether MPI has been initialised in this process."""
    return bool(MPI.Is_initialized())


def end_all(exit_code: int) -> NoReturn:
    """Have MPI end all ranks with *exit_code*."""
    flush_standard_streams()
    wait_until_read()
    MPI.COMM_WORLD.Abort(exit_code)
    os._exit(exit_code & 0xFF)  # a library that lets Abort return must not let us go on


def launch_mpi(
    launch: Launch, body: Body, *, again: bool = False, party: Party | None = None
) -> int:
    """Run *body* on this rank of MPI's world; the exit code of this process.

    MPI can be started once in a process: with *again* it is ended with the process only, as it
    may be needed for further jobs. With *party* there are local processes beside this one.

    An exception from *body* is printed and ends the job with its code: a rank that unwinds alone
    would leave the others hanging.

    Raises UsageError if the MPI library and the launcher don't belong together.
    """
    check_library(launch, MPI.get_vendor()[0])
    if MPI.Is_finalized():
        raise UsageError("MPI was used up by an earlier job in this process")
    starts_mpi = not MPI.Is_initialized()
    if starts_mpi:
        _initialise()
    try:
        check_world(launch, MPI.COMM_WORLD.Get_size())
        transport = _join(party)
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
            say(f"rank {transport.rank}: {message}")
            transport.abort(worst([code, RankLost.exit_code]))
    except BaseException as error:
        transport.abort(explain_escape(error, transport.rank))
    if starts_mpi:
        if again:
            atexit.register(MPI.Finalize)
        else:
            MPI.Finalize()
    return agreed


def _join(party: Party | None) -> MpiTransport | Speaker:
    """This rank's transport, by what all ranks of MPI say of themselves. Collective.

    All raise UsageError if one could not start its local processes.
    """
    comm = MPI.COMM_WORLD.Dup()
    size, trouble = (1, "") if party is None else (party.size, party.trouble)
    cores = sum(1 << core for core in os.sched_getaffinity(0))
    told = comm.allgather((MPI.Get_processor_name(), size, trouble, cores))
    for name, _, trouble, _ in told:
        if trouble:
            raise UsageError(f"{name}: {trouble}")
    nodes = _number_nodes([name for name, *_ in told])
    sizes = [size for _, size, _, _ in told]
    here = nodes[comm.Get_rank()]
    shares = [
        (size, cores) for (_, size, _, cores), node in zip(told, nodes, strict=True) if node == here
    ]
    carrier = Carrier(comm, is_crowded=is_crowded(shares))
    if sum(sizes) == len(sizes):
        return MpiTransport(carrier, nodes)
    from pcircle.transport._hybrid import Layout, Party, Speaker  # few jobs need it

    return Speaker(carrier, Layout(sizes, nodes), party or Party(1), end_all)


def _initialise() -> None:
    with warnings.catch_warnings():
        # mpi4py has its own guess whether launcher and library fit; check_world() knows, and
        # says what to do.
        warnings.simplefilter("ignore", RuntimeWarning)
        # Only the thread that makes the transport calls MPI, though there are others.
        MPI.Init_thread(MPI.THREAD_FUNNELED)


def _number_nodes(names: Sequence[str]) -> tuple[int, ...]:
    """The number of each name, counted from 0 in the order of first appearance."""
    numbers: dict[str, int] = {}
    return tuple(numbers.setdefault(name, len(numbers)) for name in names)


def library() -> tuple[str, str]:
    """The name of the MPI library and its version, and the first line of what it says of itself."""
    name, version = MPI.get_vendor()
    # Open MPI has the NUL at the end of its string count as a part of it.
    said = MPI.Get_library_version().replace("\0", "").partition("\n")[0]
    return f"{name} {'.'.join(map(str, version))}", " ".join(said.split())
