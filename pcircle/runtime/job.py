"""A job from the command that starts it to the exit code: on every transport the same.

Rank 0 alone looks at the arguments' meaning (`prepare`): whether a
destination exists, for one, is a question that must have one answer, and by
the time another rank asked, rank 0 might have created it. What it decided, or
that it refused, is the first message down the tree; only then does a task
exist on any rank.
"""

from __future__ import annotations

import errno
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from pcircle.circle.settings import EngineSettings
from pcircle.circle.topology import NodeMap, TreePosition
from pcircle.errors import (
    EXIT_OK,
    Defect,
    EntriesFailed,
    PcircleError,
    StoppedEarly,
    UsageError,
    error_of,
)
from pcircle.runtime.defect import Mishaps, Tracebacks, once
from pcircle.runtime.limit import TimeLimit
from pcircle.runtime.loop import Rank
from pcircle.runtime.signals import Signals
from pcircle.runtime.task import Observer, Outcome, Task
from pcircle.runtime.wire import by_value
from pcircle.transport._exit import say
from pcircle.transport.contract import Delivery, Lost, Transport
from pcircle.transport.launch import TransportOption, choose, launched
from pcircle.transport.start import is_importable, remark_stale, start

R = TypeVar("R")


class Program(ABC):
    """A tool, as the runtime sees it. `name` begins what it says on standard error."""

    name = "pcircle"
    limit: TimeLimit | None = None
    """When rank 0 stops the job."""
    again = False
    """Whether the process may run further jobs when this one has ended, also under MPI."""

    def complain(self, text: str) -> None:
        """Say on standard error why the job ends; for a front end with better means to replace."""
        say(text, self.name)

    def explain_unreadable(self, error: OSError) -> str:
        """Return the message of a job that ends because `prepare` met this error."""
        return f"cannot prepare the job: {error.strerror}"

    def mishaps(self) -> Mishaps:
        """How exceptions that nobody expects are reported; asked on every rank."""
        return Mishaps()

    @abstractmethod
    def prepare(self, nodes: Sequence[int]) -> bytes:
        """On rank 0: decide what is to be done, for all ranks; `nodes` says where each is.

        May raise a `PcircleError`: the job ends with its code before it began. An OSError of the
        file system ends it as a failed entry does.
        """

    def withdraw(self) -> None:  # noqa: B027
        """On rank 0: undo what `prepare` did; it raised, or was made to by a signal."""

    @abstractmethod
    def task(self, plan: bytes, rank: int, size: int) -> Task[Any, Any]:
        """On every rank: the task that carries out what was decided."""

    @abstractmethod
    def observer(self, plan: bytes) -> Observer[Any]:
        """On rank 0: who listens."""

    def settings(self, observer: Observer[Any] | None, task: Task[Any, Any]) -> EngineSettings:
        """The engine's choices for this job."""
        return EngineSettings(
            structured=task.structured,
            progress_period_s=None if observer is None else observer.period_s,
            epoch_period_s=task.epoch_period_s,
        )


# No file system returns these; None is an OSError that no system call returned.
_DEFECTS = (None, errno.EBADF, errno.EFAULT)


class _Opening(msgspec.Struct, frozen=True, array_like=True):
    """The first message down the tree: go on with this plan, or end with this code."""

    code: int
    plan: bytes


def run_program(program: Program, jobs: int | None, transport: TransportOption) -> int:
    """Run a program on the ranks that the launcher, or `jobs`, gives; returns its exit code.

    Forked and launched ranks never see it return with a code of their own:
    all return the agreed one. UsageError if options and launcher disagree.
    """
    choice = choose(transport, jobs, launched())
    if choice.kind != "mpi":
        remark_stale(program.name)
    body = _Body(program)
    try:
        return start(choice, body, body.pickled, again=program.again)
    except Defect as error:  # its ranks have been ended
        program.complain(str(error))
        return error.exit_code


class _Body:
    """What a rank runs. Its fields are what a rank that is another program has to be told."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._by_value = False

    def __call__(self, transport: Transport) -> int:
        return _run(self._program, transport, by_value if self._by_value else None)

    def pickled(self) -> bytes:
        """For ranks that are programs of their own. UsageError if these could not make it out."""
        import pickle

        from pcircle.workers.threads import OperationTimeout

        if OperationTimeout.limit_s is not None:
            raise UsageError(_NO_LIMIT)
        try:
            if is_importable(sys.modules["__main__"]):
                return pickle.dumps(self, pickle.HIGHEST_PROTOCOL)
            data = pickle.dumps(self, pickle.HIGHEST_PROTOCOL)
            if b"__main__" not in data:
                return data
            self._by_value = True
            return by_value(self)
        except ImportError:
            raise UsageError(_NO_CLOUDPICKLE) from None
        except Exception as error:
            text = f"{self._program.name}: cannot be given to other processes: {error}"
            raise UsageError(f"{text}. {_PICKLED}") from error


_NO_LIMIT = """\
--op-timeout would not hold in the other processes, which are started anew since this one has \
other threads: use -j 1"""

_NO_CLOUDPICKLE = """\
the task is defined in a notebook or at a prompt, where other processes cannot import it. \
Do one of these: pip install cloudpickle; put the task into a module, and import it; \
run it with jobs=1"""

_PICKLED = """\
The processes are started anew, since this one has other threads: a task must then be one \
that can be pickled (no lambdas, no open files), or jobs be 1"""


def _run(
    program: Program, transport: Transport, pickled: Callable[[Any], bytes] | None = None
) -> int:
    with Signals(transport.wake) as signals:
        opening, early = _open(program, transport, signals)
        if opening.code:
            return opening.code
        task = program.task(opening.plan, transport.rank, transport.size)
        observer = program.observer(opening.plan) if transport.rank == 0 else None
        settings = program.settings(observer, task)
        mishaps = program.mishaps()
        limit = program.limit if transport.rank == 0 else None
        rank = Rank(transport, task, settings, observer, early, limit, mishaps, pickled)
        return rank.run(signals)


def _open(
    program: Program, transport: Transport, signals: Signals
) -> tuple[_Opening, list[Delivery | Lost]]:
    places = NodeMap(transport.nodes)
    tree = TreePosition(transport.rank, transport.size, EngineSettings().arity, places)
    if transport.rank:
        payload, early = _hear(transport, tree, signals)
        opening = msgspec.msgpack.decode(payload, type=_Opening)
    else:
        early = []
        try:
            with signals.raised():
                opening = _Opening(0, program.prepare(transport.nodes))
        except PcircleError as error:
            program.withdraw()
            program.complain(str(error))
            opening = _Opening(error.exit_code, b"")
        except Exception as error:
            program.withdraw()
            mishaps = program.mishaps()
            if isinstance(error, OSError) and error.errno not in _DEFECTS:
                program.complain(program.explain_unreadable(error))
                opening = _Opening(EntriesFailed.exit_code, b"")
            elif problem := mishaps.package_problem(error):
                program.complain(problem)
                opening = _Opening(UsageError.exit_code, b"")
            else:
                told = mishaps.explain(error, "preparing the job")
                program.complain(f"internal error: {told}")
                opening = _Opening(Defect.exit_code, b"")
        payload = msgspec.msgpack.encode(opening)
    for child in tree.children:
        transport.send(child, payload)
    return opening, early


def _hear(
    transport: Transport, tree: TreePosition, signals: Signals
) -> tuple[bytes, list[Delivery | Lost]]:
    """Wait for the opening; what comes besides, from ranks that had theirs sooner, is kept.

    So is the loss of a rank, which then ends the job as at any time; but not without an opening.
    """
    early: list[Delivery | Lost] = []
    while True:
        for arrival in transport.poll(None):
            early.append(arrival)
        # Rank 0 doesn't know, so this rank must be missed rather than leave in good order.
        signals.check()
        for place, arrival in enumerate(early):
            if isinstance(arrival, Lost):
                if arrival.rank in tree.ancestors:
                    return _ending(StoppedEarly.exit_code), []
            elif arrival.source == tree.parent:
                return arrival.payload, early[:place] + early[place + 1 :]


def _ending(code: int) -> bytes:
    return msgspec.msgpack.encode(_Opening(code, b""))


class Result(msgspec.Struct, Generic[R], frozen=True):
    """What `run` returns: the outcome on rank 0, None elsewhere, and the exit code."""

    code: int
    outcome: Outcome[R] | None


class _Keep(Observer[Any]):
    """The observer of `run`: keeps the outcome."""

    def __init__(self) -> None:
        self.outcome: Outcome[Any] | None = None

    def conclude(self, outcome: Outcome[Any]) -> int:
        self.outcome = outcome
        told = msgspec.structs.replace(outcome, reasons=tuple(once(outcome.reasons)))
        return super().conclude(told)


class _Library(Program):
    """A user's task as a program; every rank has it, so nothing is to be told."""

    again = True

    def __init__(self, task: Task[Any, Any]) -> None:
        self.keep = _Keep()
        self._task = task

    def mishaps(self) -> Mishaps:
        return Tracebacks()

    def prepare(self, nodes: Sequence[int]) -> bytes:
        return b""

    def task(self, plan: bytes, rank: int, size: int) -> Task[Any, Any]:
        return self._task

    def observer(self, plan: bytes) -> Observer[Any]:
        return self.keep


def run(
    task: Task[Any, R],
    jobs: int | None = None,
    transport: TransportOption = "auto",
    *,
    check: bool = True,
) -> Result[R]:
    """Run a task on many ranks; the library's front door.

    Under mpirun or srun every rank of the program calls this and gets a
    result, with an outcome on rank 0 only. Otherwise `jobs` local processes
    share the work (default: one per core, up to 8), and only the caller returns.

    These are forked, in a process without other threads. Where there are some, as in a
    notebook, fresh interpreters are started, which import the module of the task. If
    that is the script itself, it must call `run` below `if __name__ == "__main__":`; if it is a
    notebook, the package cloudpickle is required. The task is pickled for them.

    A UsageError is raised for what is refused before it began. An exception that leaves a
    method of the task ends the job, and its traceback is on standard error.

    A job that did not complete raises the `PcircleError` of its exit code, on every rank:
    `Defect` if the task raised an exception. Without `check` the result is returned, whose `code`
    is then not 0 and whose outcome is that of a part of the work.
    """
    program = _Library(task)
    code = run_program(program, jobs, transport)
    outcome = program.keep.outcome
    if check and code != EXIT_OK:
        reasons = () if outcome is None else outcome.reasons
        reason = reasons[0].splitlines()[-1] if reasons else "its result is not complete"
        raise error_of(code)(f"the job ended with exit code {code}: {reason}")
    return Result(code, outcome)
