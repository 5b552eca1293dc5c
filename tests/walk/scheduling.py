"""A job in one process, in a seeded random order: only the engine features that the walk needs.

Any of several workers takes any available item, and items are joined at any time after all of their
children are complete. Time, hunger and the stop come when the seed determines. The visitor knows
the tree, by `os.walk`, and rejects a directory that is left twice, too early, or without some of
its entries.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, ClassVar

from pcircle.fs.directories import Directories, Lease, bases, join_path
from pcircle.fs.lists import Lists
from pcircle.fs.scan import Block, DirectoryBatch
from pcircle.runtime import Context
from pcircle.walk.items import Batch, DirectoryIdentity, Portion, Tree, handed_back
from pcircle.walk.open_directory import ItemContext, Open, child_of
from pcircle.walk.visitor import DirectoryScan, Names, Visitor, Where
from pcircle.walk.walker import Scope, Walker

Paths = frozenset[bytes]


class Wrong(Exception):
    """The walk has violated its contract."""


@dataclass
class Odds:
    """The probabilities of the events that the walk may observe at any moment."""

    time_is_up: float = 0.2
    hungry: float = 0.2
    handed_back: float = 0.1
    undone: float = 0.2
    whole: float = 0.3
    failing: float = 0.0
    stopping: float = 0.0


@dataclass
class World:
    """The state that all workers share: the tree, and the events so far."""

    random: Random
    odds: Odds
    below: dict[bytes, Paths]
    """For each directory, the entries below it that the walk must find."""
    failing: Paths = frozenset()
    left: set[bytes] = field(default_factory=set)
    looked_at: set[bytes] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)
    stopped: bool = False
    joining: bool = False

    def refuse(self, why: str) -> None:
        """Record a violation; the walk continues, so that it ends its leases."""
        self.wrong.append(why)

    def happens(self, odds: float) -> bool:
        return self.random.random() < odds


class Tally:
    """The counters of `pcircle.walk.visitor.WalkCounters`."""

    def __init__(self) -> None:
        self.found = self.scans_due = self.scans_done = self.offline = self.files = 0
        self.weight = 0.0

    def done_at_once(self, directories: int, files: int, weight: float) -> None:
        self.found += files
        self.scans_done += directories
        self.weight += weight * directories


class Watcher(Visitor[Paths]):
    """A visitor whose result for a part of a tree is the set of paths in it."""

    nothing: ClassVar[Paths] = frozenset()
    batch_names: ClassVar[int] = 6
    scan: DirectoryScan | None = DirectoryScan(max_entries=4, max_batch_entries=4)

    def __init__(self, world: World, tally: Tally) -> None:
        self.world = world
        self.tally = tally
        self.part: Paths = self.nothing

    def enter(self, opened: Open[Paths], source: Lease, holder: Open[Paths] | None) -> Lease | None:
        self.tally.scans_done += 1
        if opened.path in self.world.failing:
            raise OSError(5, "so the seed says")
        opened.place = DirectoryIdentity(source.identity)
        return None

    def scan_of(self, above: Open[Paths]) -> DirectoryScan | None:
        return None if self.world.happens(self.world.odds.undone) else self.scan

    def select_directories(
        self, above: Open[Paths], names: list[bytes], context: ItemContext[Paths]
    ) -> tuple[list[bytes], list[bytes]]:
        undone = [name for name in names if self.world.happens(self.world.odds.undone)]
        return [name for name in names if name not in undone], undone

    def process_directories(
        self, above: Open[Paths], batch: DirectoryBatch, context: ItemContext[Paths]
    ) -> list[bytes]:
        world, undone = self.world, []
        for name, (begin, end) in zip(batch.names, batch.ranges(), strict=True):
            opened = child_of(above, name, len(context.opens), self.nothing)
            if opened.path in world.failing or world.happens(world.odds.undone):
                undone.append(name)
                continue
            names = Names(batch.inside[begin:end], [], [])
            if not world.happens(world.odds.undone):
                part = self._look_at(opened, names.files)
                if part != world.below[opened.path]:
                    world.refuse(f"{opened.path!r} has {part}, and not {world.below[opened.path]}")
                opened.part = part
                above.part = self.merge(above.part, self._left(opened))
                continue
            self._begin(opened, name, names, context)
        return undone

    def _begin(
        self, opened: Open[Paths], name: bytes, names: Names, context: ItemContext[Paths]
    ) -> None:
        """Leave a small directory to the walk after its names were processed."""
        above = opened.above
        context.opens.append(opened)
        status = os.stat(name, dir_fd=above.leases[0].fd)
        opened.place = DirectoryIdentity((status.st_dev, status.st_ino))
        opened.weight = above.weight / max(1, len(names))
        self.tally.scans_done += 1
        self.tally.found += len(names)
        self.tally.weight += 0.0 if names else above.weight
        self.names(opened, names, (-1, -1), context)
        context.complete(opened)

    def read_directory(
        self, opened: Open[Paths], weight: float, source: Lease, context: Context[Any]
    ) -> list[bytes] | None:
        if not self.world.happens(self.world.odds.whole):
            return None
        names = list(map(os.fsencode, os.listdir(source.fd)))
        self.tally.found += len(names)
        if not names:
            self.tally.weight += weight
            return names
        opened.weight = weight / len(names)
        below = [name for name in names if is_directory(name, source.fd)]
        plain = [name for name in names if name not in below]
        self.tally.weight += opened.weight * len(plain)
        if not context.is_stopping():
            opened.part = self.merge(opened.part, self._look_at(opened, plain))
        return below

    def meant(self, opened: Open[Paths], blocks: Iterable[Block], source: Lease) -> Iterable[Block]:
        return blocks

    def names(
        self, where: Where, names: Names, fds: tuple[int, int], context: ItemContext[Paths]
    ) -> None:
        part = self._look_at(where, names.links + names.specials)
        self.tally.weight += where.weight * (len(names.links) + len(names.specials))
        for done, name in enumerate(names.files, 1):
            if context.is_stopping():
                break  # half of a directory: it must not be completed
            part = self.merge(part, self._look_at(where, [name]))
            self.tally.weight += where.weight
            if self.world.happens(self.world.odds.handed_back):
                context.spawn(list(handed_back(where, names.files[done:])))
                break
        self.part = self.merge(self.part, part)

    def taken(self) -> Paths:
        part, self.part = self.part, self.nothing
        return part

    def _look_at(self, where: Where, names: Sequence[bytes]) -> Paths:
        paths = frozenset(join_path(where.path, name) for name in names)
        if paths & self.world.looked_at:
            self.world.refuse(f"looked at twice: {paths & self.world.looked_at}")
        self.world.looked_at |= paths
        return paths

    def leave(self, opened: Open[Paths], context: Context[Any]) -> Paths:
        world, path = self.world, opened.path
        if world.stopped and not world.joining:
            self.world.refuse(f"{path!r} was completed in place by a job that stops")
        if opened.part != world.below[path]:
            self.world.refuse(f"{path!r} was left with {opened.part}, and not {world.below[path]}")
        return self._left(opened)

    def lost(self, opened: Open[Paths]) -> Paths:
        if opened.path not in self.world.failing:
            self.world.refuse(f"{opened.path!r} has not failed")
        return self._left(opened)

    def _left(self, opened: Open[Paths]) -> Paths:
        if opened.path in self.world.left:
            self.world.refuse(f"{opened.path!r} was left twice")
        self.world.left.add(opened.path)
        return opened.part | {opened.path}

    def failed(self, opened: Open[Paths], error: OSError, context: Context[Any]) -> None:
        if opened.path not in self.world.failing:
            self.world.refuse(f"{opened.path!r}: {error}")

    def unreached(self, where: Where, name: bytes, error: OSError, context: Context[Any]) -> None:
        self.world.refuse(f"{where.path!r}, {name!r}: {error}")

    def merge(self, a: Paths, b: Paths) -> Paths:
        if a & b:
            self.world.refuse(f"came twice: {a & b}")
        return a | b


class Line:
    """The context of an item; the seed determines its answers."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.made: list[Any] = []

    def spawn(self, ticket: int, items: Sequence[Any]) -> None:
        self.made += items

    def post(self, ticket: int, rank: int, items: Sequence[Any]) -> None:
        self.made += items

    def hold(self, ticket: int, epoch: int) -> None:
        raise NotImplementedError

    def resume(self, ticket: int, items: Sequence[Any], value: Any, epoch: int) -> None:
        raise NotImplementedError

    def note(self, notices: Sequence[Any]) -> None:
        raise NotImplementedError

    def note_synced(self, notices: Sequence[Any]) -> bool:
        self.note(notices)
        return True

    def is_stopping(self) -> bool:
        world = self.world
        world.stopped = world.stopped or world.happens(world.odds.stopping)
        return world.stopped

    def has_idle_workers(self) -> bool:
        return self.world.happens(self.world.odds.hungry)


class Clock:
    """A replacement of `time` in the walker: the seed determines when an item's time is up."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._now_s = 0.0

    def monotonic(self) -> float:
        if self._world.happens(self._world.odds.time_is_up):
            self._now_s += 1.0
        return self._now_s


@dataclass
class Made:
    """An item that has spawned others, `missing` of which are not complete."""

    item: Any
    own: Any
    above: Made | None
    missing: int
    slots: dict[int, Paths] = field(default_factory=dict)


class Job:
    """The walk of a tree by several workers, which have the `walkers`."""

    def __init__(
        self,
        top: bytes,
        world: World,
        workers: int,
        lists: Lists | None = None,
    ) -> None:
        self.world = world
        self.tally = Tally()
        self._lists = lists
        self._directories = [
            Directories(bases([(top, b"")], os.getcwdb()), world.random.choice((1, 2, 64)))
            for _ in range(workers)
        ]
        visitor = Watcher(world, self.tally)
        self.walkers: list[Walker[Paths]] = [
            Walker(visitor, Scope(), directory, None, self.tally, 0, lists)
            for directory in self._directories
        ]

    def run(self) -> Paths | None:
        """Walk until everything is done; return the result, or None if the job was stopped."""
        try:
            part = self._run()
        finally:
            for directory in self._directories:
                directory.close()
        if self.world.wrong:
            raise Wrong(self.world.wrong[0])
        return part

    def _run(self) -> Paths | None:
        random, world = self.world.random, self.world
        self.tally.scans_due += 1
        only = None if self._lists is None else self._lists.parts[0].listed
        all_ = Made(None, None, None, 1)
        todo: list[tuple[Any, Made]] = [(Tree(0, b"", 1.0, only=only), all_)]
        complete: list[Made] = []
        while (todo or complete) and not world.stopped:
            at = random.randrange(len(todo) + len(complete))
            if at < len(todo):
                item, above = todo.pop(at)
                line = Line(world)
                own = self._process(item, random.choice(self.walkers), line)
                if line.made:
                    made = Made(item, own, above, len(line.made))
                    todo += [(made_item, made) for made_item in line.made]
                elif not world.stopped:
                    if isinstance(own, list):
                        raise Wrong("an item that made nothing waits for something")
                    self._arrived(above, item.slot, own, complete)
                continue
            made = complete.pop(at - len(todo))
            self._arrived(require_above(made), made.item.slot, self._join(made), complete)
        return None if world.stopped else all_.slots[0]

    def _process(self, item: Any, walker: Walker[Paths], line: Line) -> Any:
        context: Context[Any] = Context(1, line)
        if isinstance(item, Tree):
            return walker.tree(item, context)
        if isinstance(item, Portion):
            return walker.portion(item, context)
        if isinstance(item, Batch):
            return walker.batch(item, context)
        raise Wrong(f"what is {item}?")

    def _join(self, made: Made) -> Paths:
        walker = self.world.random.choice(self.walkers)
        if isinstance(made.own, list):
            self.world.joining = True
            part = walker.join(made.own, made.slots, Context(1, Line(self.world)))
            self.world.joining = False
            return part
        # An item that opens no directories: its children count where it counts.
        if set(made.slots) - {made.item.slot}:
            raise Wrong(f"{made.item} has no slots {set(made.slots)}")
        own: Paths = made.own
        return own | made.slots.get(made.item.slot, frozenset())

    def _arrived(self, above: Made, slot: int, part: Paths, complete: list[Made]) -> None:
        known = above.slots.get(slot, frozenset())
        if known & part:
            raise Wrong(f"came twice: {known & part}")
        above.slots[slot] = known | part
        above.missing -= 1
        if not above.missing and above.above is not None:
            complete.append(above)


def require_above(made: Made) -> Made:
    if made.above is None:
        raise Wrong("the job itself is no item")
    return made.above


def is_directory(name: bytes, directory_fd: int) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=directory_fd, follow_symlinks=False).st_mode)
