"""The base of tasks that walk: the directories of a part, and the items of the walk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from pcircle.fs.directories import Directories, affordable_threads
from pcircle.runtime import Context, PartedTask
from pcircle.walk.items import Batch, Portion, WalkItem
from pcircle.walk.walker import Walker

if TYPE_CHECKING:
    from pcircle.fs.lists import Lists

I = TypeVar("I")  # noqa: E741 - item
R = TypeVar("R")  # result


class WalkTask(PartedTask[I, R]):
    """The part of one rank, or of one worker thread, in a walk. `lists` are on rank 0.

    A subclass creates `counters`, `directories` and the walker.
    """

    counters: Any
    directories: Directories
    keeps_lists = False
    _walker: Walker[Any]

    def __init__(self, rank: int, lists: Lists | None, threads: int | None) -> None:
        super().__init__()
        self.rank = rank
        self.lists = lists
        self.max_threads = affordable_threads()
        self.threads = None if threads is None else min(threads, self.max_threads)

    @property
    def counted(self) -> Any:
        return self.counters

    def keep_for_restart(self) -> None:
        self.keeps_lists = True

    def close(self) -> None:
        """Release the directories and the lists."""
        for part in self.parts:
            part.directories.close()
        if self.lists is not None and not self.keeps_lists:
            self.lists.close()

    def walker_of(self, item: WalkItem | Portion) -> Walker[Any]:
        """Return the walk of an item, one of several."""
        return self._walker

    def walked(self, item: WalkItem | Portion, context: Context[WalkItem]) -> Any:
        """Return the result of an item of the walk, or the list of what is kept for its join.

        None if rank 0, which has the lists, processes it.
        """
        walker = self.walker_of(item)
        if isinstance(item, Batch):
            return walker.batch(item, context)
        if isinstance(item, Portion):
            return walker.portion(item, context)
        if item.only is not None and item.only.is_range and self.lists is None:
            context.post(0, [item])
            return None
        return walker.tree(item, context)
