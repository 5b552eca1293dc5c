"""The interface between tools and the runtime, and the start of a tool on its ranks."""

from __future__ import annotations

import importlib
import os
import stat
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import ClassVar, Protocol, TypeVar

import msgspec

from pcircle.cli.output import MessageStream
from pcircle.core.encoding import show
from pcircle.core.writing import standard_error
from pcircle.fs.open_flags import O_NOATIME, OPEN_DIRECTORY
from pcircle.jobs.failures import LogFile, open_log
from pcircle.runtime import Program, run_program
from pcircle.threads.workers import has_live_workers
from pcircle.transport.launch import TransportOption, choose, launched

O = TypeVar("O")  # noqa: E741 - options

# Up to these limits, one process finishes the work before a second one would have started.
_FEW_FILES = 16
_FEW_BYTES = 8 << 20


def _nothing() -> None:
    """Release nothing."""


class ToolProgram(Program):
    """A tool that the runtime can run. `close` releases the resources of this process's task.

    `log` is the error log, on rank 0. If `reads_only` is set, the tool changes nothing in the trees
    that it reads.
    """

    reads_only: ClassVar[bool] = False
    plan_type: ClassVar[type[msgspec.Struct]]

    def __init__(self) -> None:
        self.close: Callable[[], None] = _nothing
        self.log: LogFile | None = None

    def explain_unreadable(self, error: OSError) -> str:
        """Return why an entry cannot be read, with its name if it is known."""
        if error.filename is None or isinstance(error.filename, int):
            return super().explain_unreadable(error)
        return f"cannot read '{show(os.fsencode(error.filename))}': {error.strerror}"

    def begin_log(self, path: str | None) -> None:
        """Open the error log; called after all checks, so that a refused run keeps the old log.

        Raises UsageError.
        """
        if path is not None:
            self.log = LogFile(open_log(path))

    def can_lose_ranks(self) -> bool:
        """Return whether the job restarts if ranks are lost; called on rank 0 after `prepare`.

        A restarted job does not repeat output that consists of complete lines.
        """
        return self.reads_only

    def prepare_again(self, plan: bytes, ranks: int) -> bytes:
        """Return the plan of a job that restarts with `ranks` ranks; called on rank 0."""
        decided = msgspec.msgpack.decode(plan, type=self.plan_type)
        if not hasattr(decided, "ranks"):
            return plan
        return msgspec.msgpack.encode(msgspec.structs.replace(decided, ranks=ranks))

    def share(self, ranks: int) -> None:
        """Create the state that local ranks share, before they are forked."""

    def complain(self, text: str) -> None:
        """Print to standard error why the job ends."""
        MessageStream(standard_error()).line(f"{self.name}: {text}")


class Ranks(Protocol):
    """The options that select the ranks of a job."""

    @property
    def jobs(self) -> int | None: ...
    @property
    def transport(self) -> TransportOption: ...


def local_ranks(ranks: Ranks) -> int:
    """Return the number of local ranks, including this process, or 0 under a launcher."""
    choice = choose(ranks.transport, ranks.jobs, launched())
    return choice.size if choice.kind == "local" else 0


def has_little_work(paths: Sequence[bytes]) -> bool:
    """Return whether paths are a few small files, or directories with only a few small files.

    If that cannot be decided with a few system calls, the answer is False. Symbolic links are not
    followed, and no access time changes. A path that does not exist counts as no work.
    """
    if not 0 < len(paths) <= _FEW_FILES:
        return False
    count = total_bytes = 0
    try:
        for path in paths:
            sizes = _sizes_of(path)
            if sizes is None:
                return False
            count += len(sizes)
            total_bytes += sum(sizes)
            if count > _FEW_FILES or total_bytes > _FEW_BYTES:
                return False
    except (OSError, ValueError):  # the job reports the error
        return False
    return True


def _sizes_of(path: bytes) -> list[int] | None:
    """Return the sizes of the files at a path; None if there are many, or some are not regular."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return []
    if stat.S_ISREG(status.st_mode):
        return [status.st_size]
    if not stat.S_ISDIR(status.st_mode):
        return None
    from pcircle.fs.file_system import obeys_noatime

    fd = os.open(path, OPEN_DIRECTORY | O_NOATIME)
    try:
        if not obeys_noatime(fd):
            return None
        with os.scandir(fd) as entries:
            found = list(islice(entries, _FEW_FILES + 1))
        if len(found) > _FEW_FILES or not all(e.is_file(follow_symlinks=False) for e in found):
            return None
        return [entry.stat(follow_symlinks=False).st_size for entry in found]
    finally:
        os.close(fd)


def run_tool(program: ToolProgram, ranks: Ranks, limit_s: float | None = None) -> int:
    """Run a tool on its ranks, with a time limit for file operations; return its exit code."""
    if limit_s is not None:
        from pcircle.runtime.supervised import supervised

        # A file operation with a limit starts a thread, but no thread may start before ranks are
        # forked: a rank would wait for this thread of its parent. Ranks that are fresh interpreters
        # have no limit.
        for module in ("pcircle.runtime.restart", "pcircle.transport._fork"):
            importlib.import_module(module)
        return supervised(program.name, limit_s, partial(_run, program, ranks))
    return _run(program, ranks)


def _run(program: ToolProgram, ranks: Ranks) -> int:
    try:
        if (size := local_ranks(ranks)) > 1:
            from pcircle.runtime.restart import can_restart, run_restartable

            if can_restart():
                return run_restartable(program, size)
        return run_program(program, ranks.jobs, ranks.transport)
    finally:
        # A stuck worker may continue later, and must not find its descriptors reused.
        if not has_live_workers():
            program.close()
