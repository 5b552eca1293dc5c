"""Open directories: their state, and the items for their remaining subdirectories.

The open directories of an item form a tree. The first one is the directory that contains the item's
names. They are stored in the order in which they were entered, and the position of a directory, its
*slot*, identifies it in spawned items. Everything below a directory follows it, so a directory that
is complete is always the last one. A directory that must wait for other items remains in place
while the walk continues with its siblings.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pcircle.core.errors import require
from pcircle.fs.directories import CLOSED, join_path
from pcircle.fs.scan import PathListSlice
from pcircle.runtime import Context
from pcircle.walk.items import UNREACHED, Tree, WalkItem

if TYPE_CHECKING:
    from pcircle.fs.directories import Lease
    from pcircle.walk.items import DirectoryIdentity

P = TypeVar("P")

SHARES = 8
BATCH_S = 0.1
_WAITED_FOR_S = 0.01  # instead of BATCH_S if another rank or thread is waiting for work


class Open(Generic[P]):
    """A directory that is not complete.

    `own` is the state of the tool, `part` the result so far, and `weight` the weight of each entry.
    `above` is its parent. Its leases, of the source and the target, exist while the directory is
    being processed; otherwise they are `CLOSED`.
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

    def __init__(self, root: int, path: bytes, slot: int, above: Open[P], part: P) -> None:
        self.root: int = root
        self.path: bytes = path
        self.slot: int = slot
        self.above: Open[P] = above
        self.part: P = part
        self.place: DirectoryIdentity = UNREACHED
        self.own: Any = None
        self.began: Any = None  # marks that the tool sets at its beginning and end
        self.ended: Any = None
        self.weight: float = 0.0
        self.only: PathListSlice | None = None
        self.ancestors: bytes = b""  # the identities that its entries inherit
        self.pending: list[bytes] = []  # subdirectories to enter
        # The number of names at the end of `pending` that are known not to be small.
        self.tried: int = 0
        self.below: dict[bytes, PathListSlice] = {}  # listed paths in subdirectories
        self.entered: bool = True  # False for a mount point that must not be crossed
        self.failed: bool = False  # could not be read or made, so it is not completed by `leave`
        self.left_out: int = 0  # number of its entries that the scope excludes
        self.waits: bool = False  # for items, for work that the tool delays, or for a subdirectory
        self.leases: tuple[Lease, Lease] = CLOSED


class _NoParent(Open[Any]):
    def __init__(self) -> None:
        super().__init__(-1, b"", 0, self, None)


NO_PARENT: Open[Any] = _NoParent()
"""Stands for the parent of the first directory of an item."""


class ItemContext(Context[Any], Generic[P]):
    """The context of an item that is being walked; it buffers spawned items until `flush`.

    A call to the engine takes as long as processing a small directory, so it is made once per item.
    `opens` contains the open directories of the item.
    """

    __slots__ = ("_completes", "_unflushed", "opens")
    spawned: int

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
        """Let the walk complete the last directory in `opens`, which a visitor has opened."""
        require(self._completes)(opened, self)

    def is_time_up(self, spent_s: float) -> bool:
        """Return whether work has taken so long that the remainder should be handed out."""
        return spent_s > BATCH_S or (spent_s > _WAITED_FOR_S and self.has_idle_workers())

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
    """Return items for the pending subdirectories, or for `max_names` of them.

    The names are divided into at most `shares` items of at least `min_names` names. In addition,
    each partly selected subdirectory becomes a separate item.
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
    """Return the state of a subdirectory before it is entered."""
    opened = Open(above.root, join_path(above.path, name), slot, above, part)
    if above.below:
        opened.only = above.below.get(name)
    return opened
