"""The programs of tools: from the options to the plan, the tasks on the ranks, and the exit code.

`ToolProgram` is the interface between a tool and the runtime, and `run_tool` starts a tool on its
ranks. `WalkProgram` is the program of a tool that walks trees; its task is defined in
`pcircle.jobs.tree_task`. `docs/new-tool.rst` shows step by step how to build a tool from the two
modules.
"""

from __future__ import annotations

import argparse
import importlib
import os
import stat
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from pcircle import __version__
from pcircle.cli import json_output as jsonout
from pcircle.cli.arguments import Parser, command, logging, notes, run
from pcircle.cli.console import Console, miscounted, unsettled
from pcircle.cli.inputs import lists_of, refuse_nonstrict, rules_of, strictly
from pcircle.cli.options import CommonOptions
from pcircle.cli.output import MessageStream
from pcircle.cli.report import RankShare, RankSummary, ToolReport
from pcircle.cli.startup import enter
from pcircle.core.encoding import show
from pcircle.core.errors import (
    Defect,
    EntriesFailed,
    Interrupted,
    RankLost,
    Terminated,
    UsageError,
    worst,
)
from pcircle.core.units import format_duration, plural
from pcircle.core.writing import standard_error
from pcircle.fs.directories import working_directory
from pcircle.fs.open_flags import O_NOATIME, OPEN_DIRECTORY
from pcircle.fs.safe_open import any_link
from pcircle.jobs.failures import NOTHING_REMOVED, FailedEntry, LogFile, line_of, open_log
from pcircle.jobs.tree_task import TreePlan, TreeTask, resolve
from pcircle.runtime import Observer, Outcome, Program, run_program
from pcircle.threads.workers import has_live_workers
from pcircle.transport.launch import TransportOption, choose, launched
from pcircle.walk.walker import WalkTask

if TYPE_CHECKING:
    from pcircle.fs.lists import Lists
    from pcircle.jobs.plan_output import PlanFile
    from pcircle.jobs.tree_task import TreeCounters
    from pcircle.walk.roots import Root


O = TypeVar("O", bound=CommonOptions)  # noqa: E741 - options
T = TypeVar("T", bound=WalkTask[Any, Any])

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


def with_jobs_for(options: O, paths: Sequence[bytes]) -> O:
    """Return the options, with one process if `paths` are little work and --jobs is not given.

    With a time limit for operations, nothing may be looked up before the limit applies, so the
    options are not changed.
    """
    if options.jobs is not None or options.op_timeout_s is not None:
        return options
    return (
        options.replace(jobs=1) if local_ranks(options) > 1 and has_little_work(paths) else options
    )


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


class WalkProgram(ToolProgram, Generic[T]):
    """The program of a tool that walks trees; `T` is the type of its task."""

    plan_type: ClassVar[type[TreePlan]] = TreePlan

    def __init__(self, options: CommonOptions, paths: Sequence[bytes]) -> None:
        super().__init__()
        self.options = options
        self.paths: tuple[bytes, ...] = tuple(paths)
        self._more: dict[str, Any] = {}  # further fields of the plan
        self._lists: Lists | None = None  # on rank 0

    def check(self) -> None:
        """Check, before any other step, that results can be written. Raises UsageError."""
        if self.options.json is not None:
            jsonout.check(self.options.json)

    def roots(self) -> tuple[Root, ...]:
        """Return the roots of the walk. Raises UsageError."""
        return resolve(self.paths)

    def directory(self) -> bytes:
        """Return the directory to which relative roots refer."""
        return working_directory()

    def decided(self, roots: tuple[Root, ...], ranks: int) -> dict[str, Any]:
        """Return further fields of the plan, on rank 0. Raises UsageError."""
        return {}

    def listing(self, roots: tuple[Root, ...]) -> Lists | None:
        """Return the paths of the list, or None if no list restricts the job. Raises UsageError."""
        if self.options.files_from is None:
            return None
        whole, strict = self.lists_whole, self.lists_strictly
        return lists_of(
            self.options,
            roots,
            self.complain,
            whole=whole,
            strict=strict,
            complete=self.lists_completely,
        )

    @property
    def lists_whole(self) -> bool | None:
        """Return whether listed directories include their contents."""
        return False

    @property
    def lists_strictly(self) -> bool:
        """Return whether a listed path with a trailing slash must be a directory."""
        return False

    @property
    def lists_completely(self) -> bool:
        """Return whether a list of paths or patterns that may be truncated is refused."""
        return False

    def begin(self, roots: tuple[Root, ...]) -> None:
        """Open the output files; called after all checks, so that a refused run keeps old files.

        Raises UsageError.
        """
        self.begin_log(self.options.error_log)

    def opened(self) -> dict[str, Any]:
        """Return the fields of the plan that are known only after `begin`."""
        return {}

    @abstractmethod
    def new_task(self, plan: TreePlan, rank: int, lists: Lists | None) -> T:
        """Return the task of a rank; only rank 0 receives `lists`."""

    def run(self) -> int:
        """Run the tool on the requested ranks and return the exit code."""
        with any_link(self.options.insecure_links):
            ranks = with_jobs_for(self.options, self.known_paths)
            return run_tool(self, ranks, self.options.op_timeout_s)

    @property
    def known_paths(self) -> Sequence[bytes]:
        """The paths that contain all the work; empty if only the job determines them."""
        return self.paths

    def prepare(self, nodes: Sequence[int]) -> bytes:
        options = self.options
        self.check()
        if options.strict_operands:
            refuse_nonstrict(self.paths)
        roots = self.roots()
        if options.strict_operands:
            roots = strictly(roots)
        options.refuse_without_birth_times(self.paths)
        fields: dict[str, Any] = options.planned(self.plan_type) | {
            "roots": roots,
            "directory": self.directory(),
            "one_node": len(set(nodes)) == 1,
            "rules": rules_of(options.filters, null=options.null, complete=self.lists_completely),
            "now_ns": time.time_ns(),
        }
        plan = self.plan_type(**(fields | self._more | self.decided(roots, len(nodes))))
        self._lists = self.listing(roots)
        self.begin(roots)
        return msgspec.msgpack.encode(msgspec.structs.replace(plan, **self.opened()))

    def task(self, plan: bytes, rank: int, size: int) -> T:
        decided = msgspec.msgpack.decode(plan, type=self.plan_type)
        task = self.new_task(decided, rank, self._lists if rank == 0 else None)
        task.line_of = None if self.options.error_log is None else line_of
        self.close: Callable[[], None] = task.close
        return task


class TreeOptions(CommonOptions):
    """The options of every tool that walks trees."""

    _filters = CommonOptions.FILTERS
    _one = CommonOptions.ONE_FILE_SYSTEM
    _safety = CommonOptions.SAFETY
    _performance = CommonOptions.PERFORMANCE
    _output = CommonOptions.OUTPUT


_EXIT_CODES = """\
Exit codes: 0 success; 1 some entries failed, each one named; 2 refused;
4 stopped early (a lost rank); 70 internal error; 130 and 143 interrupted."""


def tree_parser(name: str, operands: str, about: str, *, more: str = _EXIT_CODES) -> Parser:
    """Return a parser with the options of every tool that walks trees; `more` ends the help.

    A tool adds its own options with argparse's methods.
    """
    p = Parser(name, f"{name} [OPTION]... {operands}", about, notes(name, more))
    p.add_argument("operands", nargs="*", metavar=operands, help=argparse.SUPPRESS)
    TreeOptions.add_to(p)
    return p


def main(parser: Callable[[], Parser], carry_out: Callable[[argparse.Namespace], int]) -> int:
    """Run a command with the process's arguments; end the process, or return the exit code."""
    speaks = not launched().rank

    def command() -> int:
        built = parser()
        logged = logging(built.prog, carry_out, speaks=speaks)
        return run(lambda: built, None, {}, logged, speaks=speaks)

    return enter(command)


class TreeReport(ToolReport, frozen=True, kw_only=True):
    """The result as JSON; `counts` contains the counters of the tool by name."""

    counts: dict[str, int]
    elapsed_s: float
    reasons: tuple[str, ...]
    failures: tuple[FailedEntry, ...]
    ranks: tuple[RankShare, ...]
    rank_summary: RankSummary | UnsetType = UNSET


class TreeConsole(Console[dict[int, int]]):
    """Reports failures, progress and the end of a job over trees."""

    def __init__(self, program: TreeProgram, log: LogFile | None) -> None:
        self.tool: str = program.name
        super().__init__(program.options, log, program.actions, program.listed, program.planned)
        self._words = program.options.words
        self._program = program
        self.counters_type: type[TreeCounters] = program.task_type.counters_type

    def counted(self, counts: tuple[int, ...]) -> Any:
        return self.counters_type.of(counts)

    def text(self, notice: Any) -> bytes:
        """Return the bytes to write to standard output for a notice."""
        return b""

    def notice(self, source: int, values: Sequence[object]) -> None:
        super().notice(source, values)
        if text := b"".join(filter(None, map(self.text, values))):
            self.tell_found(text)

    def summary(self, total: Any) -> str:
        """Return the result of the job in one line."""
        return f"{plural(total.completed, 'entry', 'entries')} done"

    def remarks(self, total: Any, code: int) -> Iterable[str]:
        """Return further lines to print at the end."""
        return ()

    def total(self, outcome: Outcome[dict[int, int]]) -> Any:
        """Return the sum of the counters of all ranks."""
        return self.counters_type.total(outcome.counts)

    def conclude(self, outcome: Outcome[dict[int, int]]) -> int:
        code, reasons = self.end(outcome)
        total = self.total(outcome)
        wrong = "" if code else unsettled(total)
        if wrong:
            code = Defect.exit_code
            reasons.append(miscounted(wrong, total))
        if total.troubles or self.log_failed:
            code = worst((code, EntriesFailed.exit_code))
        code = worst((code, self.results.code))
        self.tell_failures()
        self.tell_reasons(code, reasons)
        refused = any(NOTHING_REMOVED in reason for reason in reasons)
        if not (self.quiet or refused):
            took = format_duration(self.elapsed_s)
            self.note(f"{self.tool}: {self.summary(total)} in {took}")
        ended = code in (Interrupted.exit_code, Terminated.exit_code)
        if ended or any(RankLost.rank_in(reason) is not None for reason in reasons):
            self.note(f"{self.tool}: to try again, run: {command(self.tool, self._words)}")
        for remark in self.remarks(total, code):
            self.note(f"{self.tool}: {remark}")
        counts = dict(zip(total.names, total.row(), strict=True))
        report = TreeReport(
            schema=1,
            tool=self.tool,
            version=__version__,
            exit_code=code,
            counts=counts,
            elapsed_s=round(self.elapsed_s, 3),
            reasons=tuple(reasons),
            failures=tuple(self.failures),
            ranks=self.shares(outcome),
            rank_summary=self.rank_summary(outcome),
        )
        if tables := self.rank_tables(report, total.completed):
            self.note(tables.rstrip("\n"))
        self._program.report = report
        self.results.document(report)
        return worst((code, self.results.code))


class TreeProgram(WalkProgram[TreeTask]):
    """The program of a tool with a `TreeTask`. `more` contains further fields of the plan."""

    task_type: ClassVar[type[TreeTask]]
    console_type: ClassVar[type[TreeConsole]] = TreeConsole

    def __init__(self, options: CommonOptions, paths: Sequence[bytes], **more: Any) -> None:
        if not paths:
            raise UsageError("missing operand PATH")
        if not all(paths):
            raise UsageError("empty file name")
        super().__init__(options, paths)
        self._more = more
        self.actions: LogFile | None = None  # on rank 0, like the next two
        self.listed: LogFile | None = None
        self.planned: PlanFile | None = None
        self.report: TreeReport | None = None  # on rank 0, after the end of the job

    def new_task(self, plan: TreePlan, rank: int, lists: Lists | None) -> TreeTask:
        return self.task_type(plan, rank, lists)

    def observer(self, plan: bytes) -> Observer[Any]:
        return self.console_type(self, self.log)
