"""The actions of an expression as functions of an entry, and the search task that they use."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from pcircle.core.encoding import show
from pcircle.core.errors import require_type
from pcircle.fs.stats import Stats
from pcircle.jobs.change_task import ChangeCounters, ChangeTask
from pcircle.jobs.plan_file import entry as line_of_entry
from pcircle.jobs.plan_file import mark_of
from pcircle.jobs.tree_task import TreeItem
from pcircle.runtime import Context
from pcircle.tools.ffind.eval.bulk import BulkFormat, Prefetch, bulk_of
from pcircle.tools.ffind.eval.checks import EvaluationContext
from pcircle.tools.ffind.eval.commands import Commands
from pcircle.tools.ffind.eval.compiler import needs_status, reads_links, tests_access_time
from pcircle.tools.ffind.eval.entry import FindEntry, StopSearch, Test
from pcircle.tools.ffind.eval.output import QUIT, FindOutput, csv_line, json_line, long_line, printf
from pcircle.tools.ffind.plan import ExpressionNode, FindCounters, FindPlan


class FindActions:
    """Compiles actions into functions, for one thread of a rank.

    In a dry run, nothing is removed or run, but removals may be written to a plan. If `quoted` is
    set, paths are quoted so that they are safe on a terminal.
    """

    def __init__(self, task: SearchTask) -> None:
        plan = task.plan
        self.quoted: bool = plan.quoted
        self._task = task
        self._output = task.output
        self._counts = task.counters
        self._now_ns = plan.now_ns
        self._dry = plan.dry
        self._plans = plan.acts.plan
        self._made: dict[ExpressionNode, Test] = {}  # all kinds of entries share one limit

    def action(self, node: ExpressionNode) -> Test:
        """Return the function of an action."""
        if node not in self._made:
            self._made[node] = self._action(node)
        return self._made[node]

    def bulk(self, node: ExpressionNode) -> BulkFormat | None:
        """Return an action that formats many names at once, or None.

        Names that are shown on a terminal cannot be formatted at once, because each must be quoted.
        """
        if node.name != "printf" or node.args[0] != 0 or self.quoted:
            return None
        return bulk_of(bytes(node.args[1]))

    def _action(self, node: ExpressionNode) -> Test:
        args = node.args
        if node.name in ("print", "print0"):
            return self._print(args[0], b"\n" if node.name == "print" else b"\0")
        if node.name in _LINES:
            write = self._line(args[0], _LINES[node.name](self, *args[1:]))
            return _of_known(write) if needs_status(node) else write
        if node.name in ("exec", "execplus"):
            return self._command(node, bool(args[0]), args[1:])
        kinds: dict[str, Callable[[], Test]] = {
            "delete": self._delete,
            "prune": lambda: _prune,
            "quit": lambda: self._quit,
            "exists": lambda: self._exists,
            "count": lambda: self._count,
            "du": lambda: self._usage,
            "listed": lambda: self._listed,
            "limit": lambda: self._limit(*args),
        }
        return kinds[node.name]()

    def _line(self, stream: int, line: Callable[[FindEntry], bytes]) -> Test:
        add = self._output.add

        def run(entry: FindEntry) -> bool:
            add(stream, line(entry))
            return True

        return run

    def _print(self, stream: int, end: bytes) -> Test:
        add = self._output.add
        if self.quoted and stream == 0 and end == b"\n":
            return self._line(0, lambda entry: show(entry.path).encode() + end)

        def run(entry: FindEntry) -> bool:
            add(stream, (entry.fixed or entry.prefix + entry.name) + end)
            return True

        return run

    def _printf(self, text: bytes) -> Callable[[FindEntry], bytes]:
        return printf(text, quoted=self.quoted)

    def _command(self, node: ExpressionNode, is_dir: bool, words: Sequence[bytes]) -> Test:
        commands, settle = self._task.commands, self._output.settle
        if node.name == "exec":

            def run(entry: FindEntry) -> bool:
                settle()
                return commands.run(words, entry, is_dir=is_dir)

            return run
        key = node.at

        def gather(entry: FindEntry) -> bool:
            commands.gather(key, words, entry, is_dir=is_dir)
            return True

        return gather

    def _delete(self) -> Test:
        task, dry, plans = self._task, self._dry, self._plans

        def run(entry: FindEntry) -> bool:
            if entry.basename == b"." and entry.fixed:
                return True  # like GNU find
            task.due_once()
            try:
                if not dry:
                    _remove(entry)
                elif plans:
                    _refuse_reached(entry)
                    if not task.planned(entry):
                        return True
            except FileNotFoundError:
                return True
            except OSError as error:
                entry.fail("delete", error)
                return False
            task.deleted(entry)
            return True

        return run

    def _end_commands(self) -> None:
        """Run gathered commands before the search stops: output after the event is not printed."""
        self._task.commands.end()
        self._counts.commands_failed += self._task.commands.take_failed()

    def _quit(self, entry: FindEntry) -> bool:
        self._end_commands()
        self._output.event(QUIT)
        raise StopSearch

    def _exists(self, entry: FindEntry) -> bool:
        self._counts.matched += 1
        self._end_commands()
        self._output.event(QUIT)
        raise StopSearch

    def _limit(self, most: int, number: int) -> Test:
        left = most

        def run(entry: FindEntry) -> bool:
            nonlocal left
            left -= 1
            if left <= 0:
                self._end_commands()
            self._output.event(number)
            if left <= 0:
                raise StopSearch
            return True

        return run

    def _count(self, entry: FindEntry) -> bool:
        self._counts.matched += 1
        return True

    def _usage(self, entry: FindEntry) -> bool:
        status = entry.look() if entry.st is None else entry.st
        if status is False:
            return True
        if status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode):
            self._output.linked(status.st_dev, status.st_ino, status.st_blocks)
        else:
            self._counts.blocks += status.st_blocks
        return True

    def _listed(self, entry: FindEntry) -> bool:
        self._task.listed(entry)
        return True


_LINES: dict[str, Callable[..., Callable[[FindEntry], bytes]]] = {
    "printf": FindActions._printf,
    "ls": lambda self: long_line(self._now_ns),
    "json": lambda self: json_line(),
    "csv": lambda self: csv_line(),
}


def _of_known(write: Test) -> Test:
    """Return a function that writes an entry only if it can be looked up."""

    def run(entry: FindEntry) -> object:
        status = entry.look() if entry.st is None else entry.st
        return status is not False and write(entry)

    return run


def _prune(entry: FindEntry) -> bool:
    entry.pruned = True
    return True


def _refuse_reached(entry: FindEntry) -> None:
    """Raise NotADirectoryError for a PATH that was reached through a link."""
    if entry.kind == "d" and entry.name == b"." and entry.basename not in (b"..", b"/"):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))


def _remove(entry: FindEntry) -> None:
    """Remove an entry by its name in its open directory, not through a link.

    Raise OSError on failure.
    """
    if entry.kind == "d":
        _refuse_reached(entry)
        os.rmdir(entry.name, dir_fd=entry.fd)
        return
    try:
        os.unlink(entry.name, dir_fd=entry.fd)
    except OSError as error:
        if error.errno != errno.EISDIR or entry.kind:
            raise
        os.rmdir(entry.name, dir_fd=entry.fd)


class CountingActions:
    """Replaces actions with functions that only count removals."""

    quoted = False

    def __init__(self, counters: FindCounters) -> None:
        self._counters = counters

    def action(self, node: ExpressionNode) -> Test:
        """Return the function of an action."""
        if node.name == "delete":
            return self._delete
        if node.name == "prune":
            return _prune
        return lambda entry: True

    def bulk(self, node: ExpressionNode) -> None:
        """Return None: no text is formatted."""

    def _delete(self, entry: FindEntry) -> bool:
        self._counters.matched += 1
        return True


# ---- search task ---------------------------------------------------------------------------------


class SearchHalt(msgspec.Struct, frozen=True, array_like=True, tag="h"):
    """Skip the remaining work, because the search has ended early."""


class SearchTask(ChangeTask):
    """The state of one rank or thread in a search, without the walk.

    `context` is the context of the current item. Two fields are valid only for the first thread of
    a rank: `halted` is set if the search has ended on this rank, and `sent_halt` if the other ranks
    have been notified.
    """

    plan: FindPlan
    first: SearchTask | None
    output: FindOutput
    commands: Commands
    actions: FindActions
    evaluation: EvaluationContext
    stats: Stats
    prefetch: Prefetch
    context: Context[TreeItem] | None
    halted: bool
    sent_halt: bool
    _identify: Callable[[os.stat_result], tuple[int, int]]
    _of_plan: set[tuple[int, int]]

    @property
    def rank_part(self) -> SearchTask:
        """Return the task of the rank's first thread."""
        return self if self.first is None else self.first

    @property
    def updates_directories(self) -> bool:
        """Return whether tests use access times of directories; the walk updates these times."""
        return any(tests_access_time(node, "d") for node in self._expressions)

    @property
    def updates_links(self) -> bool:
        """Return whether tests use access times of links that other tests may update."""
        expressions = self._expressions
        return any(tests_access_time(node, "l") for node in expressions) and any(
            map(reads_links, expressions)
        )

    @property
    def _expressions(self) -> list[ExpressionNode]:
        plan = self.plan
        return [plan.expression] if plan.exclude is None else [plan.expression, plan.exclude]

    def flush(self, *, all_: bool = False) -> None:
        """Send the pending output."""
        if self.context is not None:
            for notice in self.output.take(all_=all_):
                self.context.note([notice])

    def halt(self, context: Context[Any]) -> None:
        """Notify all other ranks if the search has ended on this rank."""
        first = self.rank_part
        if first.halted and not first.sent_halt:
            first.sent_halt = True
            for rank in range(self.plan.ranks):
                if rank != self.rank:
                    context.post(rank, [SearchHalt()])

    # ---- callbacks of actions --------------------------------------------------

    def removed(self, counters: ChangeCounters) -> int:
        return require_type(FindCounters, counters).matched

    def due_once(self) -> None:
        """Wait until a change is permitted."""
        context = self.context
        self.due(1, (lambda: False) if context is None else context.is_stopping)

    def deleted(self, entry: FindEntry) -> None:
        """Record the removal of an entry."""
        self.counters.deleted += 1
        if entry.kind == "d":
            self.directories.forget(entry.root, entry.below)
        if self.action_log is not None:
            self.action_log.done("delete", entry.root, entry.below, entry.kind)

    def planned(self, entry: FindEntry) -> bool:
        """Plan a removal; return False for the plan file and its parent directories.

        Raise OSError if the entry cannot be looked up.
        """
        status = os.stat(entry.name, dir_fd=entry.fd, follow_symlinks=False)
        if self._of_plan and self._identify(status) in self._of_plan:
            return False
        if self.action_log is not None:
            self.action_log.planned(line_of_entry(entry.root, entry.below, mark_of(status)))
            if self.action_log.is_full and self.context is not None:
                self.action_log.tell(self.context)
        return True

    def listed(self, entry: FindEntry) -> None:
        """Add an entry to the output of --list-out."""
        if self.action_log is not None:
            self.action_log.done("find", entry.root, entry.below, entry.letter())
