"""The life of a job, from its start to its exit code, on any transport.

Only rank 0 interprets the arguments (`prepare`), because all ranks must agree. For example, rank 0
might create a destination before another rank checks whether it exists. The first message down the
tree of ranks is rank 0's plan or its refusal. A rank creates its task when it has received a plan.
"""

from __future__ import annotations

import errno
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Generic

import msgspec

from pcircle.circle.instructions import EngineSettings, with_policies
from pcircle.circle.topology import NodeMap, TreePosition
from pcircle.core import errors
from pcircle.core.writing import CALLER
from pcircle.runtime.crash_report import (
    CrashReporter,
    TracebackReporter,
    without_repeated_tracebacks,
)
from pcircle.runtime.loop import Rank
from pcircle.runtime.signals import Signals
from pcircle.runtime.task import I, Observer, Outcome, R, Task, TimeLimit
from pcircle.runtime.wire import by_value
from pcircle.transport._exit import print_error
from pcircle.transport.contract import Delivery, LostRank, Transport
from pcircle.transport.launch import TransportOption, choose, launched
from pcircle.transport.start import is_importable, start, warn_stale_launcher


class Program(ABC):
    """The interface of a tool to the runtime. Messages on standard error start with `name`."""

    name = "pcircle"
    policies: str | None = None
    """Policies as `KEY=VALUE,...`; None: those of the environment variable PCIRCLE_ENGINE."""
    limit: TimeLimit | None = None
    """The time at which rank 0 stops the job, or None."""
    again = False
    """True if the process may run further jobs after this one, even under MPI."""

    def complain(self, text: str) -> None:
        """Print on standard error why the job ends. Front ends may override this."""
        print_error(text, self.name)

    def explain_unreadable(self, error: OSError) -> str:
        """Return the message for an OSError in `prepare` that ends the job."""
        return f"cannot prepare the job: {error.strerror}"

    def mishaps(self) -> CrashReporter:
        """Return the reporter of unexpected exceptions; called on every rank."""
        return CrashReporter()

    @abstractmethod
    def prepare(self, nodes: Sequence[int]) -> bytes:
        """On rank 0: return the plan of the job for all ranks; `nodes` contains each rank's node.

        If this raises a `PcircleError`, the job ends with the error's exit code before it has
        begun. An OSError from the file system ends the job like a failed entry.
        """

    def withdraw(self) -> None:  # noqa: B027
        """On rank 0: undo the effects of `prepare`, after it raised or was interrupted."""

    @abstractmethod
    def task(self, plan: bytes, rank: int, size: int) -> Task[Any, Any]:
        """On each rank: return the task that executes the plan."""

    @abstractmethod
    def observer(self, plan: bytes) -> Observer[Any]:
        """On rank 0: return the observer of the job."""

    def settings(self, observer: Observer[R] | None, task: Task[I, R]) -> EngineSettings:
        """Return the engine's settings for this job."""
        return EngineSettings(
            structured=task.structured,
            progress_period_s=None if observer is None else observer.period_s,
            epoch_period_s=task.epoch_period_s,
        )


_POLICIES = "PCIRCLE_ENGINE"
# An OSError with one of these numbers is a defect: no file system returns them, and None means that
# no system call failed.
_DEFECTS = (None, errno.EBADF, errno.EFAULT)


class _Opening(msgspec.Struct, frozen=True, array_like=True):
    """The first message down the tree: run this plan or, if `code` is not 0, end with it.

    `policies` are those of rank 0.
    """

    code: int
    plan: bytes
    policies: str = ""


def run_program(program: Program, jobs: int | None, transport: TransportOption) -> int:
    """Run a program on the launcher's ranks, or on `jobs` local ranks; return its exit code.

    Forked ranks do not return. Raises UsageError if the options contradict the launcher.
    """
    choice = choose(transport, jobs, launched())
    if choice.kind != "mpi":
        warn_stale_launcher(program.name)
    body = _Body(program)
    try:
        again = program.again or CALLER.get() is not None
        return start(choice, body, body.pickled, again=again)
    except errors.Defect as error:  # the ranks have been killed
        program.complain(str(error))
        return error.exit_code


class _Body:
    """The function that each rank runs; its fields are all that a new interpreter needs."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._by_value = False

    def __call__(self, transport: Transport) -> int:
        return run_on(self._program, transport, by_value if self._by_value else None)

    def pickled(self) -> bytes:
        """Pickle the body for new interpreters. Raises UsageError if they cannot run the job."""
        import pickle

        from pcircle.threads.workers import OperationTimeout

        if OperationTimeout.limit_s is not None:
            raise errors.UsageError(_NO_LIMIT)
        try:
            if is_importable(sys.modules["__main__"]):
                return pickle.dumps(self, pickle.HIGHEST_PROTOCOL)
            data = pickle.dumps(self, pickle.HIGHEST_PROTOCOL)
            if b"__main__" not in data:
                return data
            self._by_value = True
            return by_value(self)
        except ImportError:
            raise errors.UsageError(_NO_CLOUDPICKLE) from None
        except Exception as error:
            text = f"{self._program.name}: cannot be passed to other processes: {error}"
            raise errors.UsageError(f"{text}. {_PICKLED}") from error


_NO_LIMIT = """\
--op-timeout has no effect in new processes, which are required because this process has other \
threads: use -j 1"""

_NO_CLOUDPICKLE = """\
the task is defined in a notebook or at a prompt, where other processes cannot import it. \
Do one of these: pip install cloudpickle; put the task into a module, and import it; \
run it with jobs=1"""

_PICKLED = """\
This process has other threads, so new processes are started: the task must be picklable (no \
lambdas, no open files). Otherwise use jobs=1"""


def run_on(
    program: Program, transport: Transport, pickled: Callable[[object], bytes] | None = None
) -> int:
    """Run one rank of a program on its transport; return the exit code of the job.

    `pickled` replaces the encoding of values without declared types.
    """
    with Signals(transport.wake) as signals:
        opening, early = _open(program, transport, signals)
        if opening.code:
            return opening.code
        mishaps = program.mishaps()
        try:
            task = program.task(opening.plan, transport.rank, transport.size)
            observer = program.observer(opening.plan) if transport.rank == 0 else None
            settings = with_policies(program.settings(observer, task), opening.policies)
        except errors.PcircleError:
            raise
        except Exception as error:
            if mishaps.package_problem(error):
                raise  # the transport names the package
            explanation = mishaps.explain(error, "creating the task")
            raise errors.Defect(f"internal error: {explanation}") from error
        limit = program.limit if transport.rank == 0 else None
        rank = Rank(transport, task, settings, observer, early, limit, mishaps, pickled)
        return rank.run(signals)


def _open(
    program: Program, transport: Transport, signals: Signals
) -> tuple[_Opening, list[Delivery | LostRank]]:
    places = NodeMap(transport.nodes)
    tree = TreePosition(transport.rank, transport.size, EngineSettings().arity, places)
    if transport.rank:
        payload, early = _await_opening(transport, tree, signals)
        opening = msgspec.msgpack.decode(payload, type=_Opening)
    else:
        early = []
        try:
            policies, name = program.policies, "policies"
            if policies is None:
                policies, name = os.environ.get(_POLICIES, ""), _POLICIES
            # Reject invalid policies before `prepare` has any effect.
            with_policies(EngineSettings(), policies, name)
            with signals.raised():
                opening = _Opening(0, program.prepare(transport.nodes), policies)
        except errors.PcircleError as error:
            program.withdraw()
            program.complain(str(error))
            opening = _Opening(error.exit_code, b"")
        except Exception as error:
            program.withdraw()
            mishaps = program.mishaps()
            if isinstance(error, OSError) and error.errno not in _DEFECTS:
                program.complain(program.explain_unreadable(error))
                opening = _Opening(errors.EntriesFailed.exit_code, b"")
            elif problem := mishaps.package_problem(error):
                program.complain(problem)
                opening = _Opening(errors.UsageError.exit_code, b"")
            else:
                explanation = mishaps.explain(error, "preparing the job")
                program.complain(f"internal error: {explanation}")
                opening = _Opening(errors.Defect.exit_code, b"")
        payload = msgspec.msgpack.encode(opening)
    for child in tree.children:
        transport.send(child, payload)
    return opening, early


def _await_opening(
    transport: Transport, tree: TreePosition, signals: Signals
) -> tuple[bytes, list[Delivery | LostRank]]:
    """Wait for the opening; return it and everything else that has arrived.

    Ranks that received the opening sooner may already have sent messages. A lost rank is returned
    as well, and ends the job later. Only the loss of an ancestor ends the job here, because the
    opening cannot arrive then.
    """
    early: list[Delivery | LostRank] = []
    while True:
        early.extend(transport.poll(None))
        # Rank 0 does not know about the signal: raise, so that this rank is reported as lost.
        signals.check()
        for place, arrival in enumerate(early):
            if isinstance(arrival, LostRank):
                if arrival.rank in tree.ancestors:
                    return _ending(errors.StoppedEarly.exit_code), []
            elif arrival.source == tree.parent:
                return arrival.payload, early[:place] + early[place + 1 :]


def _ending(code: int) -> bytes:
    return msgspec.msgpack.encode(_Opening(code, b""))


class Result(msgspec.Struct, Generic[R], frozen=True):
    """The result of `run`: the exit code, and the outcome on rank 0 (None on other ranks)."""

    code: int
    outcome: Outcome[R] | None


class _OutcomeKeeper(Observer[R]):
    """The observer of `run`: stores the outcome."""

    def __init__(self) -> None:
        self.outcome: Outcome[R] | None = None

    def conclude(self, outcome: Outcome[R]) -> int:
        self.outcome = outcome
        shown = msgspec.structs.replace(
            outcome, reasons=tuple(without_repeated_tracebacks(outcome.reasons))
        )
        return super().conclude(shown)


class _Library(Program, Generic[I, R]):
    """A user's task as a program. Its plan is empty, because every rank has the task."""

    again = True

    def __init__(self, task: Task[I, R], policies: str | None) -> None:
        self.keep = _OutcomeKeeper[R]()
        self.policies = policies
        self._task = task

    def mishaps(self) -> CrashReporter:
        return TracebackReporter()

    def prepare(self, nodes: Sequence[int]) -> bytes:
        return b""

    def task(self, plan: bytes, rank: int, size: int) -> Task[I, R]:
        return self._task

    def observer(self, plan: bytes) -> Observer[R]:
        return self.keep


def run(
    task: Task[I, R],
    jobs: int | None = None,
    transport: TransportOption = "auto",
    *,
    check: bool = True,
    policies: str | None = None,
) -> Result[R]:
    """Run a task on many ranks: the entry point of the library.

    Under mpirun or srun, every rank of the program calls this and receives a result, with an
    outcome on rank 0 only. Otherwise `jobs` local processes share the work (default: one per core,
    at most 8), and only the caller returns.

    If the process has no other threads, the local processes are forked. Otherwise, for example in a
    notebook, new interpreters are started. They receive the pickled task and import its module. If
    that module is the script itself, it must call `run` under `if __name__ == "__main__":`. In a
    notebook, the package cloudpickle is required.

    `policies` chooses how ranks share the work, such as "steal=near,split=half" (see
    `docs/scale.rst`); the default is the environment variable PCIRCLE_ENGINE.

    Raises UsageError if the arguments are rejected before the job begins. An exception that leaves
    a method of the task ends the job, and its traceback is printed on standard error.

    If the exit code is not 0, the corresponding `PcircleError` is raised on every rank, for example
    `Defect` after an unexpected exception in the task. With `check=False`, the result is returned
    instead; its outcome covers only a part of the work.
    """
    program = _Library(task, policies)
    code = run_program(program, jobs, transport)
    outcome = program.keep.outcome
    if check and code != errors.EXIT_OK:
        reasons = () if outcome is None else outcome.reasons
        reason = reasons[0].splitlines()[-1] if reasons else "its result is not complete"
        raise errors.error_of(code)(f"the job ended with exit code {code}: {reason}")
    return Result(code, outcome)
