"""Restart a job without its lost ranks.

If local ranks are lost, the surviving ranks stop as usual and end. Rank 0, which is the process
that the user started, then runs the same plan again with fewer ranks. This works in the same way
for all tools, because nothing must be recovered from the lost ranks, neither state nor unfinished
work nor messages. A tool declares whether it supports this (`ToolProgram.can_lose_ranks`). fcp
resumes from its checkpoint instead, see `pcircle.tools.common.copy_program`.

Tools that only read can be restarted, because `OutputLog` ensures that no output is repeated: a
copy of the output that a job produces while it is running (standard output, lists and logs) is
stored in memory and, beyond a certain size, in a temporary file. If no rank is lost, this is the
only cost. If a rank is lost, the records are hashed, and a record of the restarted job is omitted
as many times as it was already output.
"""

from __future__ import annotations

import sys
import time
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import IO, Any, Protocol

from pcircle.circle.instructions import EngineSettings
from pcircle.core.errors import RankLost, StoppedEarly
from pcircle.core.writing import discard, write_all
from pcircle.runtime import Observer, Outcome, Program, Task, run_program
from pcircle.runtime.crash_report import CrashReporter
from pcircle.runtime.task import I, R, TimeLimit
from pcircle.threads.workers import has_live_workers

# The limit for all streams together. If lines are short, their hashes take two thirds of that in
# memory.
_MAX_BYTES = 256 << 20
_MEMORY_BYTES = 1 << 20  # the limit for each stream
_READ_BYTES = 1 << 20
_KIND, _STATE = b',"kind":"', b',"state":"'
_OF_RANK = b',"rank":'  # the part of an action's line from here on depends on the rank and the time
_LAST_THREADS_S = 10.0  # the time for idle threads to end on a busy machine
_STEP_S = 0.002


class _RecordStore:
    """The records of one stream, all with the same terminator."""

    def __init__(self, end: bytes) -> None:
        self.end = end
        self._texts: list[bytes] = []
        self._size = 0
        self._file: IO[bytes] | None = None

    def add(self, text: bytes) -> None:
        """Append records. Raises OSError if no space is left."""
        self._texts.append(text)
        self._size += len(text)
        if self._size > _MEMORY_BYTES:
            if self._file is None:
                import tempfile  # slow to import

                self._file = tempfile.TemporaryFile(prefix="pcircle-told-", buffering=0)  # noqa: SIM115
            texts, self._texts, self._size = self._texts, [], 0
            write_all(self._file.fileno(), b"".join(texts))

    def records(self) -> Iterator[bytes]:
        """Yield all records without their terminators. Raises OSError."""
        remainder = b""
        for text in self._blocks():
            *whole, remainder = (remainder + text).split(self.end)
            yield from whole

    def _blocks(self) -> Iterator[bytes]:
        if self._file is not None:
            self._file.seek(0)
            while data := self._file.read(_READ_BYTES):
                yield data
        yield from self._texts

    def close(self) -> None:
        if self._file is not None:
            discard(self._file)


class _Hashes:
    """A multiset of hashes of records."""

    def __init__(self, hashes: Iterable[int]) -> None:
        self._known, self._left = array("Q"), array("Q")
        for value, same in groupby(sorted(hashes)):
            self._known.append(value)
            self._left.append(sum(1 for _ in same))

    def take(self, value: int) -> bool:
        """Remove one occurrence of a hash; return False if none is left."""
        at = bisect_left(self._known, value)
        if at == len(self._known) or self._known[at] != value or not self._left[at]:
            return False
        self._left[at] -= 1
        return True


class OutputLog:
    """The output of a job, by stream.

    `is_whole` is true while all output is stored, so that the job can be restarted.
    """

    def __init__(self, max_bytes: int = _MAX_BYTES) -> None:
        self.is_whole: bool = True
        self._room = max_bytes
        self._stores: dict[str, _RecordStore] = {}
        self._before: dict[str, _Hashes] = {}

    def fresh(self, stream: str, text: bytes, end: bytes = b"\n") -> bytes:
        """Return the records in `text` that must still be output; `text` ends with a terminator."""
        before = self._before.get(stream)
        if before is not None:
            records = text.split(end)[:-1]
            new_records = [record for record in records if not before.take(_hash(stream, record))]
            text = b"".join(record + end for record in new_records)
        if text and self.is_whole:
            self._keep(stream, text, end)
        return text

    def fresh_lines(self, stream: str, lines: Sequence[str]) -> list[str]:
        """Like `fresh`, for lines that contain no newlines."""
        if not lines:
            return []
        text = "".join(line + "\n" for line in lines).encode(errors="surrogateescape")
        return self.fresh(stream, text).decode(errors="surrogateescape").split("\n")[:-1]

    def _keep(self, stream: str, text: bytes, end: bytes) -> None:
        self._room -= len(text)
        try:
            if self._room < 0:
                raise OSError
            self._stores.setdefault(stream, _RecordStore(end)).add(text)
        except OSError:  # without the output, the job cannot be restarted
            self.is_whole = False
            self.close()

    def begin_again(self) -> None:
        """From now on, omit records that were already output. Raises OSError."""
        self._before = {
            stream: _Hashes(_hash(stream, record) for record in records.records())
            for stream, records in self._stores.items()
        }

    def close(self) -> None:
        """Delete the stored output."""
        for records in self._stores.values():
            records.close()
        self._stores.clear()


def _hash(stream: str, record: bytes) -> int:
    from xxhash import xxh3_64_intdigest  # needed only after the loss of a rank

    if stream in ("actions", "copies"):
        record = record.rpartition(_OF_RANK)[0]
    if stream == "copies":  # the next run may use another copy method
        path = record.find(b'"path')
        record = record[path : record.find(_KIND, path)] + record[record.rfind(_STATE) :]
    return xxh3_64_intdigest(record)


class RestartConsole(Protocol):
    """Rank 0's observer of a job, as implemented by `pcircle.cli.console`."""

    @property
    def period_s(self) -> float | None: ...
    def follow(self, output_log: OutputLog, former: Any) -> None: ...
    def leave(self, reasons: Iterable[str]) -> None: ...
    def conclude(self, outcome: Outcome[R]) -> int: ...


class RestartableProgram(Protocol):
    """A tool that can be restarted, as implemented by `pcircle.cli.program`."""

    @property
    def name(self) -> str: ...
    @property
    def limit(self) -> TimeLimit | None: ...
    @property
    def again(self) -> bool: ...
    @property
    def close(self) -> Callable[[], None]: ...
    def complain(self, text: str) -> None: ...
    def mishaps(self) -> CrashReporter: ...
    def prepare(self, nodes: Sequence[int]) -> bytes: ...
    def prepare_again(self, plan: bytes, ranks: int) -> bytes: ...
    def withdraw(self) -> None: ...
    def can_lose_ranks(self) -> bool: ...
    def share(self, ranks: int) -> None: ...
    def task(self, plan: bytes, rank: int, size: int) -> Task[Any, Any]: ...
    def observer(self, plan: bytes) -> Observer[Any]: ...
    def settings(self, observer: Observer[R] | None, task: Task[I, R]) -> EngineSettings: ...


class _RestartObserver(Observer[R]):
    """Rank 0's observer: passes events to the console, but handles the loss of ranks itself."""

    def __init__(self, job: RestartableJob, console: RestartConsole) -> None:
        self._job = job
        self._console = console
        self.period_s = console.period_s
        for event in ("show", "status", "suspend", "resume", "log", "notice", "sync"):
            setattr(self, event, getattr(console, event))

    def conclude(self, outcome: Outcome[R]) -> int:
        lost = RankLost.only(outcome.reasons)
        if lost and self._job.output_log.is_whole:
            self._job.lost = lost
            self._console.leave(outcome.reasons)
            return outcome.code
        code = self._job.code = self._console.conclude(outcome)
        return code


class RestartableJob(Program):
    """A tool's job as a program. `lost` contains the ranks that were lost in the last run."""

    def __init__(self, program: RestartableProgram) -> None:
        self.name: str = program.name
        self.limit = program.limit
        self.again: bool = program.again
        self.lost: tuple[int, ...] = ()
        self.code: int | None = None  # once the job has ended
        self.output_log: OutputLog = OutputLog()
        self._program = program
        self._plan = b""
        self._is_restartable = False
        self._keep_for_restart: Callable[[], None] | None = None  # a method of this process's task
        self._console: RestartConsole | None = None

    limit: TimeLimit | None

    def complain(self, text: str) -> None:
        self._program.complain(text)

    def mishaps(self) -> CrashReporter:
        return self._program.mishaps()

    def prepare(self, nodes: Sequence[int]) -> bytes:
        if self._plan:
            try:
                self.output_log.begin_again()
            except OSError as error:
                text = f"cannot read temporary files: {error.strerror}"
                raise StoppedEarly(f"a rank was lost, and {text}; run the command again") from error
            self._plan = self._program.prepare_again(self._plan, len(nodes))
        else:
            self._plan = self._program.prepare(nodes)
            self._is_restartable = self._program.can_lose_ranks()
        return self._plan

    def withdraw(self) -> None:
        self._program.withdraw()

    def task(self, plan: bytes, rank: int, size: int) -> Task[Any, Any]:
        task = self._program.task(plan, rank, size)
        self._keep_for_restart = task.keep_for_restart
        return task

    def close(self) -> None:
        """Release the resources of this process's task, except those that the next run needs."""
        if self._keep_for_restart is not None:
            self._keep_for_restart()
        self._program.close()

    def settings(self, observer: Observer[R] | None, task: Task[I, R]) -> EngineSettings:
        return self._program.settings(observer, task)

    def observer(self, plan: bytes) -> Observer[Any]:
        if not self._is_restartable:
            return self._program.observer(plan)
        console: Any = self._program.observer(plan)
        console.follow(self.output_log, self._console)
        self._console = console
        return _RestartObserver(self, console)


def run_restartable(program: RestartableProgram, ranks: int) -> int:
    """Run a tool on local ranks, with fewer ranks after each loss; return the exit code."""
    job = RestartableJob(program)
    try:
        while True:
            program.share(ranks)
            code = run_program(job, ranks, "local")
            if not job.lost:
                # If a rank is lost after all accounts were sent, no work is lost.
                late = code == RankLost.exit_code and job.code is not None
                return job.code if late and job.code is not None else code
            ranks, job.lost = max(1, ranks - len(job.lost)), ()
            # Idle workers end without being closed. Their helper threads end when the task is
            # closed, but it must not be closed while workers use its descriptors.
            ended = _await_condition(lambda: not has_live_workers())
            if ended:
                job.close()
            if not (ended and _await_condition(can_restart)):
                program.complain("a thread of a worker is stuck: run the command again")
                return code
    finally:
        job.output_log.close()


def can_restart() -> bool:
    """Return whether this process has only one thread, so that it can fork ranks again."""
    return len(sys._current_frames()) == 1


def _await_condition(true: Callable[[], bool]) -> bool:
    """Wait for a condition on the threads of the last run; return whether it holds."""
    until_s = time.monotonic() + _LAST_THREADS_S
    while not true() and time.monotonic() < until_s:
        time.sleep(_STEP_S)
    return true()
