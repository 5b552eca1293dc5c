"""The task of a rank in a search: its setup and its end.

The walk is one item, and its join waits for all other items. Every rank then receives a final item,
in which it runs the commands that it has gathered and sends its remaining output. So no work is
left when the job ends.

The roots of a search are the PATHs as typed, whatever their kind. A missing PATH is a failure.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import msgspec

from pcircle.cli.inputs import open_input
from pcircle.core.encoding import show
from pcircle.core.errors import UsageError
from pcircle.fs.directories import (
    Directories,
    bases,
    capacity_of,
    device_and_inode,
    inode_alone,
)
from pcircle.fs.sorting import pieces
from pcircle.fs.stats import Stats
from pcircle.jobs.action_log import ActionLines
from pcircle.jobs.failures import Failure
from pcircle.jobs.tree_task import TreeItem, WalkPhase
from pcircle.runtime import Context, PartedTask
from pcircle.tools.ffind.eval.actions import FindActions, SearchHalt, SearchTask
from pcircle.tools.ffind.eval.checks import EvaluationContext
from pcircle.tools.ffind.eval.commands import Commands
from pcircle.tools.ffind.eval.evaluator import StatPrefetch
from pcircle.tools.ffind.eval.output import (
    FindOutput,
    LinkedFiles,
    SortRecords,
    StreamText,
    ordered,
)
from pcircle.tools.ffind.index_search import IndexSearcher
from pcircle.tools.ffind.plan import FindCounters, Sections
from pcircle.tools.ffind.visitor import FindVisitor
from pcircle.walk.items import Accesses, Batch, Portion, Tree
from pcircle.walk.roots import Root

_NAMELESS = (b"", b".", b"..")


def start_of(path: bytes, follow: str, *, removes: bool) -> Root:
    """Return the root of a PATH. If `removes` is set, it is opened from its parent directory."""
    if not path:
        raise UsageError("empty file name")
    try:
        is_directory = stat.S_ISDIR(os.stat(path, follow_symlinks=follow != "P").st_mode)
    except OSError:
        is_directory = False
    holder, name = os.path.split(path.rstrip(b"/"))
    if path.startswith(b"/") and not holder:
        holder = b"/"
    if not is_directory:
        # The slash after a file is kept, so that the look-up fails with the right error.
        name += path[len(path.rstrip(b"/")) :]
        return Root(holder or b".", name or b"/", path)
    if removes and name not in _NAMELESS and not os.path.islink(path.rstrip(b"/")):
        return Root(holder or b".", b"", path, name)
    return Root(path, b"", path)


def listed_starts(name: str, *, complete: bool) -> Iterator[bytes]:
    """Yield the PATHs in a file of -files0-from; `-` is standard input.

    If `complete` is set, the last PATH must end with NUL, because that shows that the file is not
    truncated. Raise UsageError if the file is invalid or cannot be read.
    """
    shown = show(os.fsencode(name))
    try:
        with open_input(name, option="-files0-from") as stream:
            for number, path in enumerate(pieces(stream, b"\0", complete=complete), 1):
                if not path:
                    raise UsageError(f"-files0-from: '{shown}': empty file name (number {number})")
                yield path
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"-files0-from: cannot read '{shown}': {reason}") from None


_HELPERS, _FEW_HELPERS = 16, 4  # helpers of each of the first threads, and of each later thread
_WITH_HELPERS = 4


class WholeSearch(msgspec.Struct, frozen=True, array_like=True, tag="w"):
    """Search all roots."""


class SearchEnd(msgspec.Struct, frozen=True, array_like=True, tag="e"):
    """Finish the work of a rank, because the search is complete."""


class _Ending(msgspec.Struct):
    """The result of the walk while ranks are finishing their work."""

    result: dict[int, int]


class FindTask(  # pyright: ignore[reportGeneralTypeIssues]
    SearchTask,
    PartedTask[
        Tree
        | Batch
        | Portion
        | WalkPhase
        | Accesses
        | Sections
        | WholeSearch
        | SearchEnd
        | SearchHalt,
        dict[int, int],
    ],
):
    """The search task of one rank or thread."""

    tool = "ffind"
    doing = "look up"
    notice_type: ClassVar[Any] = Failure | ActionLines | StreamText | SortRecords | LinkedFiles
    counters_type: ClassVar[type[FindCounters]] = FindCounters
    visitor_type: ClassVar[type[FindVisitor]] = FindVisitor
    max_threads: int
    threads: int | None
    first: FindTask | None
    output: FindOutput
    commands: Commands
    actions: FindActions
    evaluation: EvaluationContext
    stats: Stats
    prefetch: StatPrefetch
    context: Context[Any] | None

    def begin(self) -> None:
        super().begin()
        plan = self.plan
        self._identify = device_and_inode if plan.one_node else inode_alone
        of_plan = (*plan.around_plan, *(() if plan.written is None else (plan.written,)))
        self._of_plan = {known if plan.one_node else (0, known[1]) for known in of_plan}
        self.halted = False
        self.sent_halt = False
        order = plan.order
        self.output = FindOutput(None if order is None else ordered(order))
        self.commands = Commands(self.output.add, plan.directory, dry=plan.dry)
        if plan.alone:
            self.max_threads = 1
        self.evaluation = EvaluationContext(
            plan.now_ns, plan.midnight_ns, plan.wide, plan.settings.follow
        )
        self.context = None
        # Helpers overlap the look-ups of one thread. If that is too slow, further threads start.
        number = 0 if self.first is None else len(self.first.parts)
        helpers = _HELPERS if number < _WITH_HELPERS else _FEW_HELPERS
        if plan.threads is not None:
            helpers = max(1, min(helpers, plan.threads))
        if self.turns is not None:  # each thread has one look-up in progress
            helpers = 1
        self.stats = Stats(helpers)
        self.prefetch = StatPrefetch(helpers, follow=plan.settings.follow == "L")
        self.output.flush = self.flush
        self.actions = FindActions(self)
        self.searcher: IndexSearcher | None = (
            None if plan.index is None else IndexSearcher(self, plan.index)
        )

    def reach(self, *, is_first: bool) -> Directories:
        plan = self.plan
        if plan.alone:
            self.max_threads = self.threads = 1
        args = bases(
            [(root.holder, root.name or root.within) for root in self.reached], plan.directory
        )
        return Directories(
            args,
            capacity_of(is_first=is_first),
            self._identify,
            follow=plan.settings.follow == "L",
            written=plan.removes,
            no_atime=self.walks_twice,
            careful=plan.runs,
            linkless=any(root.strict for root in self.reached),
        )

    def close(self) -> None:
        super().close()
        for part in self.parts:
            if part.searcher is not None:
                part.searcher.close()
            part.stats.close()
            part.prefetch.close()

    @property
    def tests_access_times(self) -> bool:
        return self.updates_directories or self.updates_links

    # ---- items -----------------------------------------------------------------

    def seed(self) -> Iterable[Any]:
        index = self.plan.index
        self._first_items = list(super().seed() if index is None else index.portions)
        return [WholeSearch()]

    def process(self, item: object, context: Context[Any]) -> Any:
        if isinstance(item, WholeSearch):
            context.spawn(self._first_items)
            return None
        if isinstance(item, SearchHalt):
            self.rank_part.halted = True
            return {}
        if isinstance(item, SearchEnd):
            self._end(context)
            return {}
        if self.plan.alone and self.rank and not isinstance(item, Accesses):
            context.post(0, [item])
            return None
        self.halt(context)
        if isinstance(item, Sections) and self.searcher is not None:
            self.searcher.portion(item, context)
            return {}
        return super().process(item, context)

    def join(self, item: Any, own: object, merged: dict[int, int], context: Context[Any]) -> Any:
        if not isinstance(item, WholeSearch):
            return super().join(item, own, merged, context)
        if isinstance(own, _Ending):
            return own.result
        for rank in range(self.plan.ranks):
            context.post(rank, [SearchEnd()])
        return _Ending(merged)

    def _end(self, context: Context[TreeItem]) -> None:
        for part in self.rank_part.parts:
            part.context = context
            part.commands.end()
            part.counters.commands_failed += part.commands.take_failed()
            part.flush(all_=True)
            part.context = None
