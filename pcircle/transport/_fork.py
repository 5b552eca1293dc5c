"""Starts and ends the processes of a local job.

The process that the user started becomes rank 0 and the parent of all other ranks. So the shell
waits for rank 0, and rank 0 can determine why a rank died and kill children that do not end. The
children detect the parent's death through their sockets, as they detect the death of any other
rank.

Children are forked before any thread exists. A fork takes about a millisecond, because the child
inherits all imported modules. A child never returns into its parent's code. If the process has
other threads, `_spawn` starts the children.

The cost: waiting for children is a loop of short sleeps, because the wait must be bounded. This is
not a supervisor: if a rank dies, the job ends.
"""

from __future__ import annotations

import _socket
import os
import resource
import signal
from time import monotonic, sleep
from typing import TYPE_CHECKING, NoReturn, Protocol

from pcircle.core.errors import Defect, Interrupted, RankLost, Terminated, UsageError, worst
from pcircle.core.writing import CALLER
from pcircle.transport._exit import (
    close_descriptors,
    flush_standard_streams,
    print_error,
    report_exception,
)
from pcircle.transport._local import LocalTransport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pcircle.transport.contract import Body, Transport


# Descriptors that a starting process needs besides the mesh: standard streams, epoll, wake pipe.
_SPARE_DESCRIPTORS = 16
# How long the children may take to end after rank 0 has ended.
_REAP_DEADLINE_S = 10.0
# How long threads may outlive the main thread of a child.
_THREADS_GRACE_S = 1.0
# The time between SIGTERM and SIGKILL, and the longest wait after SIGKILL: a stuck file system may
# keep a killed process alive.
_TERM_GRACE_S = 0.5
_KILL_GRACE_S = 5.0
# How long a child whose socket was closed may take to exit.
_EXPLAIN_DEADLINE_S = 1.0
_FIRST_SLEEP_S = 0.0002
_LONGEST_SLEEP_S = 0.02
_SLEEP_GROWTH = 1.25  # so that the delay is a fraction of the time already waited
HELD_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


class Child(Protocol):
    """A started process; `subprocess.Popen` satisfies this protocol."""

    pid: int

    def poll(self) -> int | None:
        """Return the exit code (a negated signal number if killed), or None while it is running."""


class _Forked:
    """A child that is a copy of its parent."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def poll(self) -> int | None:
        found, status = os.waitpid(self.pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if found else None


class Children:
    """The started ranks: those that are still running, and how the others ended."""

    def __init__(self) -> None:
        self.base = 0  # the job-wide rank of local rank 0
        self._running: dict[int, Child] = {}  # by rank
        self._ended: dict[int, tuple[int, int]] = {}  # rank: pid, exit code or minus the signal

    def add(self, rank: int, child: Child) -> None:
        self._running[rank] = child

    def explain(self, rank: int) -> str:
        """Return why the socket of *rank* was closed, if that becomes known within a second."""
        self.reap(_EXPLAIN_DEADLINE_S, [rank])
        if rank not in self._ended:
            return f"closed its connection (pid {self._running[rank].pid})"
        pid, code = self._ended[rank]
        if code >= 0:
            return f"ended with exit code {code} (pid {pid})"
        return f"killed by {_signal_name(-code)} (pid {pid})"

    def reap(self, deadline_s: float, ranks: Iterable[int] | None = None) -> bool:
        """Wait for *ranks* (default: all) for up to *deadline_s*; return whether they ended."""
        awaited = set(self._running if ranks is None else ranks)
        ends_at = monotonic() + deadline_s
        sleep_s = _FIRST_SLEEP_S
        while True:
            for rank in awaited & self._running.keys():
                self._check(rank)
            if not awaited & self._running.keys():
                return True
            if monotonic() >= ends_at:
                return False
            sleep(sleep_s)
            sleep_s = min(_SLEEP_GROWTH * sleep_s, _LONGEST_SLEEP_S)

    def kill(self) -> None:
        """End all running children, first with SIGTERM, then with SIGKILL."""
        for number, grace_s in ((signal.SIGTERM, _TERM_GRACE_S), (signal.SIGKILL, _KILL_GRACE_S)):
            for child in self._running.values():
                os.kill(child.pid, number)  # not reaped yet, so the pid has not been reused
            if self.reap(grace_s):
                return

    def finish(self, agreed: int) -> int:
        """Wait for all children, killing any that do not end; return the job's exit code.

        *agreed* is the code of rank 0. If a child ended with a different code, the job's code is at
        least as bad as that of a lost rank.
        """
        # There is no point in waiting for a child whose threads hang in the kernel.
        late = not self.reap(_THREADS_GRACE_S) and not self._record_zombies(_code_of_zombie)
        late = late and not self.reap(_REAP_DEADLINE_S)
        late_ranks = sorted(self._running)
        if late:
            self.kill()
        codes = [agreed]
        for rank, (pid, code) in sorted(self._ended.items()):
            if rank in late_ranks:
                how = f"did not end within {_REAP_DEADLINE_S:.0f} s and was killed (pid {pid})"
            elif code != agreed:
                how = self.explain(rank)
            else:
                continue
            codes.append(RankLost.exit_code)
            if code == -signal.SIGINT:
                # Ctrl-C arrived after the child had left the job and removed its handler.
                codes.append(Interrupted.exit_code)
            elif code in (Defect.exit_code, Interrupted.exit_code, Terminated.exit_code):
                codes.append(code)
            elif agreed != RankLost.exit_code:  # rank 0 has explained that already
                print_error(f"rank {self.base + rank}: {how}")
        if self._running:
            codes.append(RankLost.exit_code)
            print_error(f"rank {self.base + min(self._running)}: cannot be killed")
        return worst(codes) if len(codes) > 1 else agreed

    def _record_zombies(self, how_ended: Callable[[int], int | None]) -> bool:
        """Record children whose main thread has ended; return whether no other child is running."""
        for rank, child in list(self._running.items()):
            code = how_ended(child.pid)
            if code is not None:
                print_error(f"process {child.pid} remains until the file system responds")
                del self._running[rank]
                self._ended[rank] = (child.pid, code)
        return not self._running

    def _check(self, rank: int) -> None:
        """If *rank* has ended, record it."""
        child = self._running[rank]
        code = child.poll()
        if code is not None:
            del self._running[rank]
            self._ended[rank] = (child.pid, code)


def _code_of_zombie(pid: int) -> int | None:
    """Return the exit code of a process whose main thread has ended, or None.

    Such a process cannot be reaped until its other threads have returned from the kernel, which may
    never happen.
    """
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stream:
            fields = stream.read().rpartition(")")[2].split()
    except OSError:
        return None
    return os.waitstatus_to_exitcode(int(fields[-1])) if fields[0] == "Z" else None


def launch_local(size: int, body: Body) -> int:
    """Run *body* as *size* ranks on this machine: rank 0 here, the others in child processes.

    Returns, in the parent only, the exit code of rank 0's body, or a worse one if a child ended
    with another code. An exception from rank 0's body propagates after the children have been
    killed. Must be called from the main thread while it is the only thread.

    In a child the body starts with `HELD_SIGNALS` blocked, because it has no handlers yet. If a
    signal for the whole job killed the child, the rank would appear lost. The body unblocks them
    when it is ready.

    Raises UsageError if the system does not allow that many processes or descriptors.
    """
    children = Children()
    return run_first_rank(
        size, body, children, start_children(size, children, lambda ends: fork(ends, body))
    )


def run_first_rank(size: int, body: Body, children: Children, ends: dict[int, int]) -> int:
    """Run rank 0, with its *ends* of the mesh, until the children end; return the job's code."""
    transport = LocalTransport(
        0, size, ends, explain_loss=children.explain, kill_others=children.kill
    )
    try:
        code = int(body(transport))
        transport.close()
        return children.finish(code)
    except BaseException:
        children.kill()
        raise
    finally:
        transport.release()


def _reserve_descriptors(size: int) -> None:
    """Raise the soft limit on open files to what the mesh needs, or reject *size*."""
    needed = len(os.listdir("/proc/self/fd")) + size * (size - 1) + _SPARE_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or needed <= soft:
        return
    if hard != resource.RLIM_INFINITY and needed > hard:
        raise UsageError(
            f"{size} processes need {needed} open files while they start, and the hard limit is "
            f"{hard} (ulimit -Hn); use fewer"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def start_children(
    size: int, children: Children, spawn: Callable[[list[dict[int, int]]], Iterator[Child]]
) -> dict[int, int]:
    """Start the children, which *spawn* yields one by one; return rank 0's ends of the mesh.

    Signals are blocked meanwhile, so that an interrupt finds either no child or all of them. In a
    child they stay blocked until the body unblocks them.
    """
    if size < 1:
        raise UsageError(f"a job needs at least one process, not {size}")
    _reserve_descriptors(size)
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        # Inherited from the parent: the kernel would reap our children and their exit codes would
        # be lost.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    flush_standard_streams()  # so that no child writes its copy of the buffers
    ends = _mesh(size)
    former_mask = signal.pthread_sigmask(signal.SIG_BLOCK, HELD_SIGNALS)
    try:
        for rank, child in enumerate(spawn(ends), 1):
            children.add(rank, child)
    except OSError as error:
        close_ends(ends)
        children.kill()
        raise UsageError(
            f"cannot start {size} processes: {error.strerror} (see ulimit -u); use fewer"
        ) from error
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former_mask)
    mine = ends[0]
    close_ends(ends[1:])
    return mine


def plain_transport(local: LocalTransport) -> Transport:
    """Return *local* unchanged: in a local job, the mesh is the transport."""
    return local


def fork(
    ends: list[dict[int, int]],
    body: Body,
    make_transport: Callable[[LocalTransport], Transport] = plain_transport,
) -> Iterator[Child]:
    """Fork all ranks but the first, one by one; *make_transport* wraps each rank's mesh."""
    for rank in range(1, len(ends)):
        pid = os.fork()
        if pid == 0:
            _run_child(rank, ends, body, make_transport)
        yield _Forked(pid)


def _mesh(size: int) -> list[dict[int, int]]:
    """Create a socket pair for each pair of ranks: `ends[a][b]` is *a*'s end of the pair."""
    ends: list[dict[int, int]] = [{} for _ in range(size)]
    try:
        for low in range(size):
            for high in range(low + 1, size):
                low_end, high_end = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
                ends[low][high] = low_end.detach()
                ends[high][low] = high_end.detach()
    except OSError as error:
        close_ends(ends)
        raise UsageError(
            f"cannot connect {size} processes: {error.strerror} (see ulimit -n); use fewer"
        ) from error
    return ends


def close_ends(ends: Iterable[dict[int, int]]) -> None:
    """Close all descriptors in a part of the mesh."""
    for of_rank in ends:
        for fd in of_rank.values():
            os.close(fd)


def _run_child(
    rank: int,
    ends: list[dict[int, int]],
    body: Body,
    make_transport: Callable[[LocalTransport], Transport],
) -> NoReturn:
    def prepare() -> Body:
        CALLER.set(None)
        _default_signals()
        # Open copies of the other ranks' ends would hide the death of a rank.
        close_ends(ends[:rank] + ends[rank + 1 :])
        return body

    run_rank(rank, len(ends), ends[rank], prepare, make_transport)


def run_rank(
    rank: int,
    size: int,
    ends: dict[int, int],
    prepare: Callable[[], Body],
    make_transport: Callable[[LocalTransport], Transport],
) -> NoReturn:
    """Run rank *rank* and end the process with its exit code; never returns, whatever happens."""
    code = Defect.exit_code
    try:
        body = prepare()
        transport = make_transport(LocalTransport(rank, size, ends))
        rank = transport.rank
        code = int(body(transport))
        transport.close()
    except BaseException as error:
        # Without a goodbye, the other ranks consider this rank lost.
        code = report_exception(error, rank)
    finally:
        try:
            flush_standard_streams()
            close_descriptors()
        finally:  # not even an interrupt may escape from this function
            os._exit(code & 0xFF)


def _default_signals() -> None:
    """Reset the handlers of the parent's program; ignored signals (nohup) stay ignored."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            interrupt = number == signal.SIGINT
            signal.signal(number, signal.default_int_handler if interrupt else signal.SIG_DFL)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal has no name
        return f"signal {number}"
