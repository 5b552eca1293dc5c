"""Starting and ending the processes of a local job.

The idea: the process that the user started becomes rank 0 and the parent of all the others, so
it is the one who can say why a rank is gone, whom the shell waits for, and who leaves no process
behind: children that don't end by themselves are ended.  The children notice the parent's death
by their sockets, as they notice anybody's.

A child is forked with everything that the parent has imported, in a millisecond, and before any
thread exists.  It never returns into its parent's code.  Where threads exist, ``_fresh`` starts the
children.

The cost: waiting for children is a loop of short sleeps, because it has to be bounded.  What this
is not: a supervisor.  A rank that dies isn't started again; the job ends, and can be resumed.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
from time import monotonic, sleep
from typing import TYPE_CHECKING, NoReturn, Protocol

from pcircle.errors import Defect, Interrupted, RankLost, Terminated, UsageError, worst
from pcircle.transport._exit import explain_escape, flush_standard_streams, let_go, say
from pcircle.transport._local import LocalTransport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pcircle.transport.contract import Body, Transport

__all__ = [
    "HELD_SIGNALS",
    "Child",
    "Children",
    "be_rank",
    "begin",
    "close_ends",
    "fork",
    "itself",
    "job_of",
    "launch_local",
]

# What a process needs beside its sockets while it starts: standard streams, epoll, wake pipe.
_SPARE_DESCRIPTORS = 16
# How long the children may take to end after rank 0 has.
_REAP_DEADLINE_S = 10.0
# How long their threads may take to end after they have.
_THREADS_GRACE_S = 1.0
# Between SIGTERM and SIGKILL, and how long even the latter may take (a stuck file system).
_TERM_GRACE_S = 0.5
_KILL_GRACE_S = 5.0
# How long a child whose socket has ended may take to be gone.
_EXPLAIN_DEADLINE_S = 1.0
_FIRST_SLEEP_S = 0.0005
_LONGEST_SLEEP_S = 0.02
_LONGER = 1.25  # each sleep than the one before: what is missed is a part of what was waited for
HELD_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


class Child(Protocol):
    """A process that was started, as ``subprocess.Popen`` is one."""

    pid: int

    def poll(self) -> int | None:
        """Its exit code, or minus the signal that ended it; None while it runs."""


class _Forked:
    """A child that is a copy of its parent."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def poll(self) -> int | None:
        found, status = os.waitpid(self.pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if found else None


class Children:
    """The started ranks: who still runs, and how the others ended."""

    def __init__(self) -> None:
        self.base = 0  # what to add to a number for the rank in the job
        self._running: dict[int, Child] = {}  # by rank
        self._ended: dict[int, tuple[int, int]] = {}  # rank: pid, exit code or minus the signal

    def add(self, rank: int, child: Child) -> None:
        self._running[rank] = child

    def explain(self, rank: int) -> str:
        """Why the socket of *rank* ended, as far as that shows within a second."""
        self.reap(_EXPLAIN_DEADLINE_S, [rank])
        if rank not in self._ended:
            return f"closed its connection (pid {self._running[rank].pid})"
        pid, code = self._ended[rank]
        if code >= 0:
            return f"ended with exit code {code} (pid {pid})"
        return f"killed by {_signal_name(-code)} (pid {pid})"

    def reap(self, deadline_s: float, ranks: Iterable[int] | None = None) -> bool:
        """Wait for *ranks* (all) to end, up to *deadline_s* seconds; whether they did."""
        awaited = set(self._running if ranks is None else ranks)
        ends_at = monotonic() + deadline_s
        sleep_s = _FIRST_SLEEP_S
        while True:
            for rank in awaited & self._running.keys():
                self._look(rank)
            if not awaited & self._running.keys():
                return True
            if monotonic() >= ends_at:
                return False
            sleep(sleep_s)
            sleep_s = min(_LONGER * sleep_s, _LONGEST_SLEEP_S)

    def kill(self) -> None:
        """End all that run: asked first, then forced."""
        for number, grace_s in ((signal.SIGTERM, _TERM_GRACE_S), (signal.SIGKILL, _KILL_GRACE_S)):
            for child in self._running.values():
                os.kill(child.pid, number)  # not reaped yet, so the number is still its own
            if self.reap(grace_s):
                return

    def finish(self, agreed: int) -> int:
        """Wait for all to end, ending those who don't; the job's code, where *agreed* is rank 0's.

        A child that ended with another code than the agreed one is worth telling: the job can
        at best have stopped early.
        """
        # One whose threads hang in the kernel has ended as far as it can.
        late = not self.reap(_THREADS_GRACE_S) and not self._without(_left_behind)
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
                # Ctrl-C came when it had left the job, and so had no ear for it any more.
                codes.append(Interrupted.exit_code)
            elif code in (Defect.exit_code, Interrupted.exit_code, Terminated.exit_code):
                codes.append(code)
            elif agreed != RankLost.exit_code:  # which rank 0 has explained already
                say(f"rank {self.base + rank}: {how}")
        if self._running:
            codes.append(RankLost.exit_code)
            say(f"rank {self.base + min(self._running)}: can't be killed")
        return worst(codes) if len(codes) > 1 else agreed

    def _without(self, how_ended: Callable[[int], int | None]) -> bool:
        """Take note of those that have ended but for their threads; whether that is all."""
        for rank, child in list(self._running.items()):
            code = how_ended(child.pid)
            if code is not None:
                say(f"process {child.pid} stays behind until the file system answers")
                del self._running[rank]
                self._ended[rank] = (child.pid, code)
        return not self._running

    def _look(self, rank: int) -> None:
        """Take note if *rank* has ended."""
        child = self._running[rank]
        code = child.poll()
        if code is not None:
            del self._running[rank]
            self._ended[rank] = (child.pid, code)


def _left_behind(pid: int) -> int | None:
    """The exit code of a process of which only threads are left; None if that is not so.

    It can't be waited for until they have returned from the kernel, which may be never.
    """
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stream:
            fields = stream.read().rpartition(")")[2].split()
    except OSError:
        return None
    return os.waitstatus_to_exitcode(int(fields[-1])) if fields[0] == "Z" else None


def launch_local(size: int, body: Body) -> int:
    """Run *body* as *size* ranks on this machine: here as rank 0, the others in forked children.

    Returns, in the parent only, the code of rank 0's body, or a worse one if a child ended with
    another.  An exception from rank 0's body passes through after the children were killed.  Must
    be called from the main thread while it is the only one.

    In a child the body begins with SIGINT, SIGTERM and SIGHUP blocked: it has no handlers yet, and
    a rank that dies of what is meant for the job looks lost.  It lets them in when it can hear.

    Raises UsageError where the system doesn't allow that many processes or descriptors.
    """
    children = Children()
    return job_of(size, body, children, begin(size, children, lambda ends: fork(ends, body)))


def job_of(size: int, body: Body, children: Children, ends: dict[int, int]) -> int:
    """Be rank 0, with its *ends* of the mesh, until the children have ended; the job's code."""
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
    """Raise the soft limit of open files as far as the mesh needs it, or refuse *size*."""
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


def begin(
    size: int, children: Children, spawn: Callable[[list[dict[int, int]]], Iterator[Child]]
) -> dict[int, int]:
    """Start the children, which *spawn* yields one by one; rank 0's ends of the mesh.

    Signals are held back meanwhile, so that an interrupt finds either no child or all of them;
    in a child, until its body lets them in.
    """
    if size < 1:
        raise UsageError(f"a job needs at least one process, not {size}")
    _reserve_descriptors(size)
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        # Inherited from a parent that doesn't want to know: the kernel would reap our children
        # and their exit codes would be lost.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    flush_standard_streams()  # or each child would write out its copy of what is buffered
    ends = _mesh(size)
    former_mask = signal.pthread_sigmask(signal.SIG_BLOCK, HELD_SIGNALS)
    try:
        for rank, child in enumerate(spawn(ends), 1):
            children.add(rank, child)
    except OSError as error:
        close_ends(ends)
        children.kill()
        raise UsageError(
            f"can't start {size} processes: {error.strerror} (see ulimit -u); use fewer"
        ) from error
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former_mask)
    mine = ends[0]
    close_ends(ends[1:])
    return mine


def itself(local: LocalTransport) -> Transport:
    """What a rank of a local job is given: its ends of the mesh, and nothing else."""
    return local


def fork(
    ends: list[dict[int, int]], body: Body, given: Callable[[LocalTransport], Transport] = itself
) -> Iterator[Child]:
    """Fork the ranks but the first, one by one; the body gets what *given* makes of the mesh."""
    for rank in range(1, len(ends)):
        pid = os.fork()
        if pid == 0:
            _run_child(rank, ends, body, given)
        yield _Forked(pid)


def _mesh(size: int) -> list[dict[int, int]]:
    """A socket between each two ranks: ``ends[a][b]`` is what *a* has of the one to *b*."""
    ends: list[dict[int, int]] = [{} for _ in range(size)]
    try:
        for low in range(size):
            for high in range(low + 1, size):
                one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
                ends[low][high] = one.detach()
                ends[high][low] = other.detach()
    except OSError as error:
        close_ends(ends)
        raise UsageError(
            f"can't connect {size} processes: {error.strerror} (see ulimit -n); use fewer"
        ) from error
    return ends


def close_ends(ends: Iterable[dict[int, int]]) -> None:
    """Close descriptors of the mesh."""
    for of_rank in ends:
        for fd in of_rank.values():
            os.close(fd)


def _run_child(
    rank: int,
    ends: list[dict[int, int]],
    body: Body,
    given: Callable[[LocalTransport], Transport],
) -> NoReturn:
    def begun() -> Body:
        _default_signals()
        # The other ranks' ends as well: held open here, they would hide a rank's death.
        close_ends(ends[:rank] + ends[rank + 1 :])
        return body

    be_rank(rank, len(ends), ends[rank], begun, given)


def be_rank(
    rank: int,
    size: int,
    ends: dict[int, int],
    begin: Callable[[], Body],
    given: Callable[[LocalTransport], Transport],
) -> NoReturn:
    """Be rank *rank*, and end the process with its code.  Whatever happens, never return."""
    code = Defect.exit_code
    try:
        body = begin()
        transport = given(LocalTransport(rank, size, ends))
        rank = transport.rank
        code = int(body(transport))
        transport.close()
    except BaseException as error:
        # No goodbye: to the others this rank is lost.
        code = explain_escape(error, rank)
    finally:
        try:
            flush_standard_streams()
            let_go()
        finally:  # an interrupt even now must not lead out of here
            os._exit(code & 0xFF)


def _default_signals() -> None:
    """Forget the handlers of the parent's program; what is ignored (nohup) stays ignored."""
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
