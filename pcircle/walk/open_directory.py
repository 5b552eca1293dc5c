"""Open directories: the state of each, and what is left of it for other ranks.

The directories of an item form a forest: each has the number (its *slot*) of its parent, and the
first is the directory that contains the item's names. They are kept in the order in which they were
entered, so everything below a directory follows it, and a complete one is always the last. A
directory that waits for other items stays, while its siblings continue.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from pcircle.core.errors import require
from pcircle.fs.directories import Lease, join_path
from pcircle.fs.path_list_slice import PathListSlice
from pcircle.runtime import Context
from pcircle.walk.items import DirectoryIdentity, Tree, WalkItem

P = TypeVar("P")

SHARES = 8
BATCH_S = 0.1
_HUNGRY_S = 0.01  # where another rank or thread waits for work


class Open(Generic[P]):
    """A directory that is not complete.

    `own` is the state of the tool, and `part` the result so far. `weight` is that of each entry.
    Its leases, of the source and of the target, exist while it is processed.
    """

    __slots__ = (
        "above",
        "ancestors",
        "began",
        "below",
        "ended",
        "entered",
        "failed",
        "leases",
        "left_out",
        "only",
        "own",
        "part",
        "path",
        "pending",
        "place",
        "root",
        "slot",
        "tried",
        "waits",
        "weight",
    )

    def __init__(self, root: int, path: bytes, slot: int, above: Open[P] | None, part: P) -> None:
        self.root = root
        self.path = path
        self.slot = slot
        self.above = above
        self.part = part
        self.place: DirectoryIdentity | None = None
        self.own: Any = None
        self.began: Any = None  # the tool's marks of its begin and end
        self.ended: Any = None
        self.weight = 0.0
        self.only: PathListSlice | None = None
        self.ancestors = b""  # of its entries
        self.pending: list[bytes] = []  # subdirectories to enter
        self.tried = 0  # how many at the end are known not to be small
        self.below: dict[bytes, PathListSlice] = {}  # lists of partly selected ones
        self.entered = True  # unless it is a mount point that is left empty
        self.failed = False  # it could not be read or made: nothing is done when it ends
        self.left_out = 0  # entries in it, by what is chosen
        self.waits = False  # for items, for what is held or for a directory that does
        self.leases: tuple[Lease, Lease | None] | None = None


class ItemContext(Context[Any], Generic[P]):
    """The context of an item while it walks: spawned items are kept until `flush`.

    A call of the engine costs as much as a small directory, so it is made once per item. `opens`
    are the open directories of the item.
    """

    __slots__ = ("_completes", "_unflushed", "opens")

    def __init__(
        self,
        context: Context[WalkItem],
        completes: Callable[[Open[P], ItemContext[P]], None] | None = None,
    ) -> None:
        super().__init__(context.ticket, context.line)
        self.opens: list[Open[P]] = []
        self._unflushed: list[object] = []
        self._completes = completes

    def complete(self, opened: Open[P]) -> None:
        """Let the walk complete a directory that a visitor has opened, the last of `opens`."""
        require(self._completes)(opened, self)

    def is_time_up(self, spent_s: float) -> bool:
        """Return whether work has taken so long that what is left of it should be handed out."""
        return spent_s > BATCH_S or (spent_s > _HUNGRY_S and self.has_idle_workers())

    def time_limit(self) -> Callable[[], bool]:
        """Return a function that returns whether the time for work that begins now is up."""
        began_s = time.monotonic()
        return lambda: self.is_time_up(time.monotonic() - began_s)

    def wait(self, slot: int) -> None:
        """Keep the directory of this slot incomplete until the item's join."""
        self.spawned += 1
        if self.opens:
            self.opens[slot].waits = True

    def spawn(self, items: Sequence[Any]) -> None:
        """Spawn items at the next `flush`."""
        if self.opens:
            for item in items:
                self.wait(item.slot)
        self.spawned += len(items)
        self._unflushed += items

    def flush(self) -> None:
        """Make spawned items available to thieves."""
        if self._unflushed:
            items, self._unflushed = self._unflushed, []
            super().spawn(items)


def left_of(
    opened: Open[P], max_names: int | None = None, *, min_names: int = 1, shares: int = SHARES
) -> list[Tree]:
    """Return what is left of a directory, or `max_names` names of it, to hand out.

    It is divided into `shares`, of at least `min_names` names.
    """
    names, opened.pending = opened.pending, []
    if max_names is not None and max_names < len(names):
        names, opened.pending = names[:max_names], names[max_names:]
    found = (opened.root, opened.path, opened.weight)
    origin = (opened.place, opened.slot)
    listed = [
        Tree(*found, name, *origin, opened.below[name], opened.ancestors)
        for name in names
        if name in opened.below
    ]
    if listed:
        names = [name for name in names if name not in opened.below]
    names_per_part = max(min_names, -(-len(names) // shares))
    parts = [
        b"\0".join(names[at : at + names_per_part]) for at in range(0, len(names), names_per_part)
    ]
    return listed + [Tree(*found, part, *origin, None, opened.ancestors) for part in parts]


def child_of(above: Open[P], name: bytes, slot: int, part: P) -> Open[P]:
    """Return the subdirectory of this name, before it is entered."""
    opened = Open(above.root, join_path(above.path, name), slot, above, part)
    if above.below:
        opened.only = above.below.get(name)
    return opened
