"""A job that outlives its ranks: when local ones are lost it is begun again without them.

The others stop as they do for any other reason, and end; rank 0, which is the process that the user
started, then runs the same plan again with fewer. That is one path for all tools: what the lost
rank held, had half done or had sent need not be known. A tool says whether it can be begun again
(`ToolProgram.outlives`): those that only read can, as nothing that they have told is told twice
(`pcircle.outliving.told`). fcp has its checkpoint instead, see `pcircle.transfer.program`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from pcircle.circle.settings import EngineSettings
from pcircle.errors import RankLost, StoppedEarly
from pcircle.outliving.told import Told
from pcircle.runtime import Observer, Outcome, Program, Task, run_program
from pcircle.runtime.defect import Mishaps
from pcircle.runtime.limit import TimeLimit
from pcircle.walk.tasks import WalkTask
from pcircle.workers.threads import has_live_workers

_LAST_THREADS_S = 10.0  # for threads that have nothing left to do, on a busy machine
_STEP_S = 0.002


class Console(Protocol):
    """Rank 0's side of a job that a person sees, as of `pcircle.tool.console`."""

    def follow(self, told: Told, former: Any) -> None: ...
    def leave(self, reasons: Iterable[str]) -> None: ...
    def conclude(self, outcome: Outcome[Any]) -> int: ...


class Outlived(Protocol):
    """A tool, as of `pcircle.tool.program`."""

    @property
    def name(self) -> str: ...
    @property
    def limit(self) -> TimeLimit | None: ...
    @property
    def again(self) -> bool: ...
    @property
    def close(self) -> Callable[[], None]: ...
    def complain(self, text: str) -> None: ...
    def mishaps(self) -> Mishaps: ...
    def prepare(self, nodes: Sequence[int]) -> bytes: ...
    def prepare_again(self, plan: bytes, ranks: int) -> bytes: ...
    def withdraw(self) -> None: ...
    def outlives(self) -> bool: ...
    def share(self, ranks: int) -> None: ...
    def task(self, plan: bytes, rank: int, size: int) -> Task[Any, Any]: ...
    def observer(self, plan: bytes) -> Observer[Any]: ...
    def settings(self, observer: Observer[Any] | None, task: Task[Any, Any]) -> EngineSettings: ...


class _Ear(Observer[Any]):
    """Rank 0's: all is the console's, but that the loss of ranks is no end."""

    def __init__(self, job: Outliving, console: Any) -> None:
        self._job = job
        self._console: Console = console
        self.period_s = console.period_s
        self.show, self.status, self.log = console.show, console.status, console.log
        self.suspend, self.resume, self.notice = console.suspend, console.resume, console.notice
        self.sync = console.sync

    show: Any
    status: Any
    log: Any
    suspend: Any
    resume: Any
    notice: Any
    sync: Any

    def conclude(self, outcome: Outcome[Any]) -> int:
        lost = RankLost.only(outcome.reasons)
        if lost and self._job.told.is_whole:
            self._job.lost = lost
            self._console.leave(outcome.reasons)
            return outcome.code
        code = self._job.code = self._console.conclude(outcome)
        return code


class Outliving(Program):
    """A tool's job, for the runtime. `lost` are ranks that the last run of it has lost."""

    def __init__(self, program: Outlived) -> None:
        self.name, self.limit, self.again = program.name, program.limit, program.again
        self.lost: tuple[int, ...] = ()
        self.code: int | None = None  # once it has ended
        self.told = Told()
        self._program = program
        self._plan = b""
        self._outlives = False
        self._task: Task[Any, Any] | None = None  # of this process
        self._console: Any = None

    limit: TimeLimit | None

    def complain(self, text: str) -> None:
        self._program.complain(text)

    def mishaps(self) -> Mishaps:
        return self._program.mishaps()

    def prepare(self, nodes: Sequence[int]) -> bytes:
        if self._plan:
            try:
                self.told.begin_again()
            except OSError as error:
                text = f"cannot read temporary files: {error.strerror}"
                raise StoppedEarly(f"a rank was lost, and {text}; run it again") from error
            self._plan = self._program.prepare_again(self._plan, len(nodes))
        else:
            self._plan = self._program.prepare(nodes)
            self._outlives = self._program.outlives()
        return self._plan

    def withdraw(self) -> None:
        self._program.withdraw()

    def task(self, plan: bytes, rank: int, size: int) -> Task[Any, Any]:
        self._task = self._program.task(plan, rank, size)
        return self._task

    def close(self) -> None:
        """Let go of what the task of this process holds, but for lists, which are read again."""
        if isinstance(self._task, WalkTask):
            self._task.keeps_lists = True
        self._program.close()

    def settings(self, observer: Observer[Any] | None, task: Task[Any, Any]) -> EngineSettings:
        return self._program.settings(observer, task)

    def observer(self, plan: bytes) -> Observer[Any]:
        if not self._outlives:
            return self._program.observer(plan)
        console: Any = self._program.observer(plan)
        console.follow(self.told, self._console)
        self._console = console
        return _Ear(self, console)


def outlive(program: Outlived, ranks: int) -> int:
    """Run a tool on local ranks, again with fewer as long as some are lost; the exit code."""
    job = Outliving(program)
    try:
        while True:
            program.share(ranks)
            code = run_program(job, ranks, "local")
            if not job.lost:
                # Who was lost after all had told what they did took nothing along.
                late = code == RankLost.exit_code and job.code is not None
                return job.code if late and job.code is not None else code
            ranks, job.lost = max(1, ranks - len(job.lost)), ()
            # Workers end by themselves; their helpers when the task is closed, which is for later
            # than any use of its descriptors.
            ended = _comes_true(lambda: not has_live_workers())
            if ended:
                job.close()
            if not (ended and _comes_true(may_outlive)):
                program.complain("a thread of a worker is stuck: run it again")
                return code
    finally:
        job.told.close()


def may_outlive() -> bool:
    """Whether this process can start ranks more than once: as forks, as it has one thread."""
    return len(sys._current_frames()) == 1


def _comes_true(true: Callable[[], bool]) -> bool:
    """Whether what is expected of the last run's threads happens soon: nobody joins them."""
    until_s = time.monotonic() + _LAST_THREADS_S
    while not true() and time.monotonic() < until_s:
        time.sleep(_STEP_S)
    return true()
