"""A wrapper that limits the pace of a visitor by resting after every few names.

The wrapper is transparent to the walk. All time outside of rests counts as work, including the time
in which the walk opens and reads directories. `pcircle.threads.throttle` determines the length of
a rest. A tool may add other pauses, such as those of a rate limit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar, cast

from pcircle.fs.directories import HOLDER, Lease
from pcircle.fs.scan import Block
from pcircle.runtime import Context
from pcircle.threads.throttle import TurnTaking
from pcircle.walk.open_directory import BATCH_S, ItemContext, Open
from pcircle.walk.visitor import Names, Visitor, WalkCounters, Where
from pcircle.walk.walker import batches

P = TypeVar("P")
Due = Callable[[int, Callable[[], bool]], None]

_SOME = 32  # maximum number of names between two rests
_REST_AFTER_S = 0.01
_WAITED_FOR_S = 0.02


def paced(visitor: Visitor[P], turns: TurnTaking | None, due: Due | None = None) -> Visitor[P]:
    """Wrap a visitor so that `turns` limits its pace, and `due` is called after operations."""
    return cast("Visitor[P]", _Paced(visitor, turns, due))


class _Paced(Generic[P]):
    """A wrapped visitor; the walk passes it single directories instead of batches."""

    scan = None

    def __init__(self, visitor: Visitor[P], turns: TurnTaking | None, due: Due | None) -> None:
        self._visitor = visitor
        self._turns = turns
        self._due = due
        self._stop: Callable[[], bool] = bool
        self._since_s = 0.0  # when the current work began
        self._mark_s = 0.0  # when the last operation ended
        self._worked_s = 0.0  # work before `_since_s` that no rest has followed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._visitor, name)

    # ---- work and rest ----------------------------------------------------------

    def begin(self, item: object, context: Context[object]) -> None:
        self._start(context)
        self._visitor.begin(item, context)

    def resume(self, base: Open[P], context: Context[object]) -> None:
        self._start(context)
        self._visitor.resume(base, context)

    def end(self, context: Context[object], opens: Sequence[Open[P]]) -> None:
        self._visitor.end(context, opens)
        self._worked_s += time.monotonic() - self._since_s
        if self._turns is not None:
            self._turns.end()

    def _start(self, context: Context[object]) -> None:
        self._stop = context.is_stopping
        if self._turns is not None:
            if self._worked_s > _REST_AFTER_S:
                self._turns.pause(self._worked_s, self._stop)
                self._worked_s = 0.0
            self._turns.begin(self._stop)
        self._since_s = self._mark_s = time.monotonic()

    def _done(self, kind: str, count: int) -> None:
        """Record completed operations, and rest if a rest is due."""
        now_s = time.monotonic()
        turns = self._turns
        if self._due is not None and count:
            self._due(count, self._stop)
        if turns is not None:
            if count:
                turns.record(kind, count, now_s - self._mark_s)
            worked_s = self._worked_s + now_s - self._since_s
            if worked_s > _REST_AFTER_S:
                turns.end()
                turns.pause(worked_s, self._stop)
                turns.begin(self._stop)
                self._worked_s, self._since_s = 0.0, time.monotonic()
        self._mark_s = time.monotonic()

    # ---- directories ------------------------------------------------------------

    def enter(self, opened: Open[P], source: Lease, holder: Open[P] | None) -> Lease | None:
        """Enter a directory that was just opened."""
        target = self._visitor.enter(opened, source, holder)
        self._done("enter", 1)
        return target

    def read_directory(
        self, opened: Open[P], weight: float, source: Lease, context: Context[object]
    ) -> list[bytes] | None:
        counters: WalkCounters | None = getattr(self._visitor, "counters", None)
        found = 0 if counters is None else counters.found
        below = self._visitor.read_directory(opened, weight, source, context)
        if below is not None:
            self._done("read", 1 if counters is None else max(1, counters.found - found))
        return below

    def listed(self, opened: Open[P], source: Lease) -> Iterator[Block]:
        return self._visitor.listed(opened, source)

    def meant(self, opened: Open[P], blocks: Iterable[Block], source: Lease) -> Iterator[Block]:
        for block in self._visitor.meant(opened, blocks, source):
            yield block
            self._done("block", 0)

    def leave(self, opened: Open[P], context: Context[object]) -> P:
        self._mark_s = time.monotonic()
        part = self._visitor.leave(opened, context)
        self._done("leave", 1)
        return part

    # ---- names ------------------------------------------------------------------

    def names(
        self, where: Where, names: Names, fds: tuple[int, int], context: ItemContext[P]
    ) -> None:
        """Process names; after some time, hand back the remaining ones if the visitor allows it."""
        begun_s = time.monotonic()
        remaining = names
        while len(remaining) > _SOME and not context.stopping:
            batch, remaining = _parted(remaining)
            self._some(where, batch, fds, context)
            took_s = time.monotonic() - begun_s
            enough = took_s > BATCH_S or (took_s > _WAITED_FOR_S and context.has_idle_workers())
            if enough and where.path != HOLDER and not self._visitor.in_place:
                context.spawn(list(batches(where, remaining, -(-len(remaining) // 2))))
                return
        self._some(where, remaining, fds, context)

    def _some(
        self, where: Where, names: Names, fds: tuple[int, int], context: ItemContext[P]
    ) -> None:
        self._mark_s = time.monotonic()
        self._visitor.names(where, names, fds, context)
        self._done("names", len(names))


def _parted(names: Names) -> tuple[Names, Names]:
    """Split off a batch of names; return the batch and the remaining names."""
    for kind in ("links", "specials", "files"):
        every = getattr(names, kind)
        if every:
            batch = Names([], [], [])
            setattr(batch, kind, every[:_SOME])
            remaining = Names(names.files, names.links, names.specials)
            setattr(remaining, kind, every[_SOME:])
            return batch, remaining
    return names, Names([], [], [])
