"""The tasks that the tests of the runtime start, each in a separate job.

``python -m tests.runtime.tasks NAME JOBS ARGUMENT...`` runs one; JOBS 0 leaves the number to the
launcher. Rank 0 prints the result as one line of JSON; every rank ends with the job's code.

Items that must wait for others never use time: a `Meeting` releases no rank before all have
arrived, and a named pipe carries one byte for each completed action.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from pcircle.circle import Engine, EngineSettings, ProgressSums
from pcircle.circle.messages import StealRequest
from pcircle.core.errors import IntegrityError, NoSpace
from pcircle.runtime import Context, Observer, Outcome, Program, Task, run, run_program
from tests.runtime.flood import Flood

HANG_S = 200.0  # less than the deadline of the whole job, see tests/conftest.py


class Told(msgspec.Struct, frozen=True):
    """The output of rank 0. `items`, `spilled` and `cpu_s` have a value per rank, in order."""

    code: int
    result: Any
    reasons: tuple[str, ...]
    silent: tuple[int, ...]
    items: tuple[int, ...]
    spilled: tuple[int, ...]
    cpu_s: tuple[float, ...]
    nodes: tuple[int, ...] = ()
    notices: tuple[Any, ...] = ()
    messages: tuple[int, ...] = ()
    log: str = ""


def tell(outcome: Outcome[Any], notices: Sequence[Any] = (), log: bytes = b"") -> None:
    output = Told(
        outcome.code,
        outcome.result,
        outcome.reasons,
        outcome.silent,
        tuple(report.items for report in outcome.reports),
        tuple(report.spilled for report in outcome.reports),
        tuple(report.cpu_s for report in outcome.reports),
        tuple(report.node for report in outcome.reports),
        tuple(notices),
        tuple(report.messages for report in outcome.reports),
        log.decode(),
    )
    print(msgspec.json.encode(output).decode(), flush=True)


class Meeting:
    """A folder in which every rank leaves its mark."""

    def __init__(self, folder: str, size: int) -> None:
        self._folder = Path(folder)
        self._size = size

    def come(self) -> None:
        """Leave the mark of a rank."""
        (self._folder / f"rank-{os.getpid()}").touch()

    def wait(self, over: Callable[[], bool] = bool) -> None:
        """Leave the mark of a rank, and wait until all have or it is `over`."""
        self.come()
        hangs_s = time.monotonic() + HANG_S
        while len(list(self._folder.glob("rank-*"))) < self._size and not over():
            if time.monotonic() > hangs_s:
                raise TimeoutError("not all ranks got an item")
            time.sleep(0.005)


# ---- exact results -------------------------------------------------------------------


class Grow(Task[tuple[int, int], int]):
    """A tree of items, `width` wide and `depth` deep; the result is their number."""

    def __init__(self, width: int, depth: int) -> None:
        self._root = (width, depth)

    def seed(self) -> list[tuple[int, int]]:
        return [self._root, self._root]

    def process(self, item: tuple[int, int], context: Context[tuple[int, int]]) -> Any:
        width, depth = item
        if depth:
            for _ in range(width):
                context.spawn([(width, depth - 1)])
        return self.own(context.spawned)

    def own(self, spawned: int) -> Any:
        return 1

    def merge(self, a: int, b: int) -> int:
        return a + b


class GrowLoose(Grow):
    structured = False


class Subtree:
    """A value that messages cannot carry: it must return to its own rank and join."""

    def __init__(self, children: int) -> None:
        self.children = children
        self.pid = os.getpid()


class GrowJoined(Grow):
    """The same number, by joins; each checks that all of its children are in `merged`."""

    def own(self, spawned: int) -> Any:
        return Subtree(spawned) if spawned else 1

    def join(self, item: tuple[int, int], own: Any, merged: int, context: Context[Any]) -> int:
        width, depth = item
        assert isinstance(own, Subtree)
        assert own.pid == os.getpid()
        assert own.children == width
        assert merged == sum(width**level for level in range(1, depth + 1)), (item, merged)
        return 1 + merged


class GrowKept(GrowJoined):
    """Twice the number: once by joins, and once by the state that each rank keeps until the end."""

    kept = 0

    def process(self, item: tuple[int, int], context: Context[tuple[int, int]]) -> Any:
        self.kept += 1
        return super().process(item, context)

    def finish(self) -> int:
        return self.kept


class Empty(Task[int, int]):
    """No work at all."""

    def seed(self) -> list[int]:
        return []

    def process(self, item: int, context: Context[int]) -> int:
        raise AssertionError

    def merge(self, a: int, b: int) -> int:
        raise AssertionError


class EmptyLoose(Empty):
    structured = False


# ---- stealing ------------------------------------------------------------------------


class Together(Task[int, int]):
    """No item ends before all ranks have one."""

    def __init__(self, folder: str, size: int) -> None:
        self._meeting = Meeting(folder, size)
        self._size = size

    def seed(self) -> range:
        return range(8 * self._size)

    def process(self, item: int, context: Context[int]) -> int:
        self._meeting.wait()
        return item

    def merge(self, a: int, b: int) -> int:
        return a + b


class Gate(Task[int, int]):
    """Item 0, the first that rank 0 has, reads from a pipe until the others are done elsewhere.

    An item that was assigned to its worker in advance cannot be stolen and follows.
    """

    def __init__(self, pipe: str, elsewhere: int) -> None:
        self._pipe = pipe
        self._others = elsewhere

    def seed(self) -> list[int]:
        return [*range(1, self._others + 1), 0]

    def process(self, item: int, context: Context[int]) -> int:
        fd = os.open(self._pipe, os.O_RDWR)
        try:
            if item == 0:
                for _ in range(self._others - 1):
                    os.read(fd, 1)
            else:
                os.write(fd, b"!")
        finally:
            os.close(fd)
        return item

    def merge(self, a: int, b: int) -> int:
        return a + b


class Middle(Gate):
    """Item 0 spawns the others and waits for them before it has returned."""

    def seed(self) -> list[int]:
        return [0]

    def process(self, item: int, context: Context[int]) -> int:
        if item == 0:
            context.spawn(range(1, self._others + 1))
        return super().process(item, context)


# ---- notices -------------------------------------------------------------------------


class Noting(Grow):
    """Every item and every join sends a notice."""

    def process(self, item: tuple[int, int], context: Context[tuple[int, int]]) -> Any:
        context.note([f"item {item[1]}"])
        return super().process(item, context)

    def join(self, item: tuple[int, int], own: Any, merged: int, context: Context[Any]) -> int:
        context.note([f"join {item[1]}"])
        return super().join(item, own, merged, context)


# ---- errors -----------------------------------------------------------------------------


def mishap(kind: str) -> None:
    """Raise one of the errors that a task may raise."""
    if kind == "nospace":
        raise NoSpace("the shelf is full")
    if kind == "integrity":
        raise IntegrityError("the books differ")
    raise ZeroDivisionError("on purpose")


class Failing(Grow):
    """A task that raises in one of its methods."""

    def __init__(self, where: str, kind: str) -> None:
        super().__init__(3, 3)
        self._where = where
        self._kind = kind

    def _perhaps(self, where: str) -> None:
        if where == self._where:
            mishap(self._kind)

    def seed(self) -> list[tuple[int, int]]:
        self._perhaps("seed")
        return super().seed()

    def process(self, item: tuple[int, int], context: Context[tuple[int, int]]) -> Any:
        if item[1] == 1:
            self._perhaps("process")
        return super().process(item, context)

    def join(self, item: tuple[int, int], own: Any, merged: int, context: Context[Any]) -> int:
        if item[1] == 2:
            self._perhaps("join")
        return super().join(item, own, merged, context)

    def merge(self, a: int, b: int) -> int:
        self._perhaps("merge")
        return super().merge(a, b)

    def measure(self) -> ProgressSums:
        self._perhaps("measure")
        return ProgressSums((1 << 70,)) if self._where == "report" else super().measure()


class FailingLoose(Failing):
    structured = False


class LastMerge(Task[int, int]):
    """Each of two ranks has one result, so the only merge is that of the accounts at the end."""

    structured = False

    def __init__(self, folder: str, size: int) -> None:
        self._meeting = Meeting(folder, size)
        self._size = size

    def seed(self) -> range:
        return range(self._size)

    def process(self, item: int, context: Context[int]) -> int:
        self._meeting.wait()
        return item

    def merge(self, a: int, b: int) -> int:
        raise ZeroDivisionError("on purpose")


# ---- early ends -------------------------------------------------------------------------


class Lasting(Task[int, int]):
    """Items begin an action that only `abandon` undoes, and last until the job stops.

    `doom`: all ranks but the first kill themselves once all have an item.
    """

    def __init__(self, folder: str, size: int, doom: bool) -> None:
        self._folder = Path(folder)
        self._meeting = Meeting(folder, size)
        self._size = size
        self._parent = os.getpid()
        self._doom = doom

    def seed(self) -> range:
        return range(8 * self._size)

    def process(self, item: int, context: Context[int]) -> int:
        if item < 0:
            return 0  # a child that only gives its parent something to complete
        (self._folder / f"begun-{item}").touch()
        context.spawn([-1])
        self._meeting.wait(context.is_stopping)
        if self._doom and os.getpid() != self._parent:
            os.kill(os.getpid(), signal.SIGKILL)
        while not context.stopping:
            time.sleep(0.005)
        return 0

    def abandon(self, item: int, own: Any) -> None:
        (self._folder / f"begun-{item}").rename(self._folder / f"abandoned-{item}")

    def merge(self, a: int, b: int) -> int:
        return a + b


class FailingAbandon(Task[int, int]):
    """An item begins an action, fails, and fails to undo it."""

    def seed(self) -> list[int]:
        return [0]

    def process(self, item: int, context: Context[int]) -> int:
        context.spawn([1])
        mishap("nospace")
        return 0

    def abandon(self, item: int, own: Any) -> None:
        mishap("defect")

    def merge(self, a: int, b: int) -> int:
        return a + b


class Idle(Task[int, int]):
    """One item, which sleeps; all other ranks have nothing to do."""

    def __init__(self, sleep_s: float) -> None:
        self._sleep_s = sleep_s

    def seed(self) -> list[int]:
        return [0]

    def process(self, item: int, context: Context[int]) -> int:
        time.sleep(self._sleep_s)
        return 0

    def merge(self, a: int, b: int) -> int:
        return a + b


class Accounting(Task[int, int]):
    """Rank 1 is slow to give its account; epochs, of which none is due, leave their marks."""

    epoch_period_s = 1e6

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._parent = os.getpid()

    def seed(self) -> list[int]:
        return [0]

    def process(self, item: int, context: Context[int]) -> int:
        return 0

    def merge(self, a: int, b: int) -> int:
        return a + b

    def finish(self) -> None:
        if os.getpid() != self._parent:
            Meeting(str(self._folder), 2).wait()  # of this rank, and of rank 0 at an epoch's end

    def sync(self, epoch: int) -> None:
        Meeting(str(self._folder), 2).come()

    def commit(self, epoch: int) -> None:
        (self._folder / f"committed-{os.getpid()}").touch()


# ---- programs ------------------------------------------------------------------------


class Listener(Observer[Any]):
    """An observer that stores notices, and raises on request."""

    def __init__(self, raises: str = "") -> None:
        self._raises = raises
        self._notices: list[Any] = []
        self._log = b""
        if raises == "show":
            self.period_s = 0.001

    def log(self, lines: bytes) -> None:
        self._log += lines

    def notice(self, source: int, values: Sequence[Any]) -> None:
        if self._raises == "notice":
            mishap("defect")
        self._notices += values

    def show(self, sums: ProgressSums) -> None:
        mishap("defect")

    def conclude(self, outcome: Outcome[Any]) -> int:
        if self._raises == "conclude":
            mishap("defect")
        tell(outcome, self._notices, self._log)
        return super().conclude(outcome)


class Tool(Program):
    """A program around any task; refuses in `prepare` on request."""

    def __init__(
        self,
        make: Callable[[], Task[Any, Any]],
        changes: dict[str, Any] | None = None,
        raises: str = "",
        wait_for: str = "",
    ) -> None:
        self._make = make
        self._changes = changes or {}
        self._raises = raises
        self._wait_for = wait_for

    def prepare(self, nodes: Sequence[int]) -> bytes:
        if self._raises == "prepare":
            mishap("nospace")
        if self._raises == "defect":
            mishap("defect")
        if self._wait_for:
            with open(self._wait_for, "rb") as pipe:
                pipe.read(1)
        return b"plan of %d" % len(nodes)

    def task(self, plan: bytes, rank: int, size: int) -> Task[Any, Any]:
        assert plan == b"plan of %d" % size
        return self._make()

    def observer(self, plan: bytes) -> Observer[Any]:
        return Listener(self._raises)

    def settings(self, observer: Observer[Any] | None, task: Task[Any, Any]) -> EngineSettings:
        return msgspec.structs.replace(super().settings(observer, task), **self._changes)


class Flat(Task[int, int]):
    """Many items at once; the result is their sum."""

    def seed(self) -> range:
        return range(5000)

    def process(self, item: int, context: Context[int]) -> int:
        return item

    def merge(self, a: int, b: int) -> int:
        return a + b


def library(task: Task[Any, Any]) -> Callable[[int | None], int]:
    """Run the task by `run`."""

    def start(jobs: int | None) -> int:
        end = run(task, jobs, check=False)
        if end.outcome is not None:
            tell(end.outcome)
        return end.code

    return start


def program(
    make: Callable[[], Task[Any, Any]], changes: dict[str, Any] | None = None, raises: str = ""
) -> Callable[[int | None], int]:
    """Run the task by `run_program`."""
    return lambda jobs: run_program(Tool(make, changes, raises), jobs, "auto")


def limited(jobs: int | None) -> int:
    """Run with a queue that spills, and a limit of a few bytes on file sizes."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
    return program(Flat, {"queue_high": 8})(jobs)


class Watched(Grow):
    """Record the requests of the rank's engine in a file: (from, to, onward, thief) by line."""

    def __init__(self, width: int, depth: int, folder: str) -> None:
        super().__init__(width, depth)
        self._folder = Path(folder)

    def process(self, item: tuple[int, int], context: Context[tuple[int, int]]) -> Any:
        time.sleep(0.001)  # on which thieves can come
        return super().process(item, context)

    def watch(self) -> None:
        """Start to record in this process."""
        send, folder = Engine._send, self._folder

        def noting(engine: Engine[Any, Any], dest: int, message: Any) -> None:
            if isinstance(message, StealRequest):
                line = f"{engine.rank} {dest} {int(message.onward)} {message.thief}\n"
                with open(folder / f"asked-{engine.rank}", "a") as file:
                    file.write(line)
            send(engine, dest, message)

        Engine._send = noting  # type: ignore[assignment,method-assign]


def watched(width: str, depth: str, folder: str) -> Callable[[int | None], int]:
    task = Watched(int(width), int(depth), folder)
    task.watch()
    return program(lambda: task)


JOBS: dict[str, Callable[..., Callable[[int | None], int]]] = {
    "grow": lambda width, depth: library(Grow(int(width), int(depth))),
    "grow-loose": lambda width, depth: library(GrowLoose(int(width), int(depth))),
    "grow-joined": lambda width, depth: library(GrowJoined(int(width), int(depth))),
    "grow-kept": lambda width, depth: library(GrowKept(int(width), int(depth))),
    "empty": lambda: library(Empty()),
    "empty-loose": lambda: library(EmptyLoose()),
    "together": lambda folder, size: library(Together(folder, int(size))),
    "gate": lambda pipe, others: library(Gate(pipe, int(others))),
    "middle": lambda pipe, others: library(Middle(pipe, int(others))),
    "noting": lambda raises="": program(lambda: Noting(2, 5), None, raises),
    "flood": lambda items, each, stops="": program(lambda: Flood(items, each, stops)),
    "nearest": lambda: program(
        lambda: Grow(3, 6), {"victims": "nearest", "split": "equal", "termination": "token"}
    ),
    "watched": watched,
    "token-loose": lambda: program(lambda: GrowLoose(3, 6), {"termination": "token"}),
    "spilling": lambda: program(Flat, {"queue_high": 8}),
    "limited": lambda: limited,
    "failing": lambda where, kind: library(Failing(where, kind)),
    "failing-loose": lambda where, kind: library(FailingLoose(where, kind)),
    "last-merge": lambda folder, size: library(LastMerge(folder, int(size))),
    "failing-abandon": lambda: library(FailingAbandon()),
    "lasting": lambda folder, size, doom="": library(Lasting(folder, int(size), bool(doom))),
    "accounting": lambda folder: library(Accounting(folder)),
    "idle": lambda sleep_s: library(Idle(float(sleep_s))),
    "prepared": lambda pipe: (
        lambda jobs: run_program(Tool(lambda: Grow(2, 2), None, "", pipe), jobs, "auto")
    ),
}


def main(name: str, jobs: str, *arguments: str) -> int:
    return JOBS[name](*arguments)(int(jobs) or None)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
