"""A virtual tree for the real walk: see `tests.sim.walking`.

It has the numbers and the shape of a `Forest`: some leaves are files, the others directories, and
some directories can't be read. File system calls of the walk are computed: a descriptor is a
directory's number, and the walker's scan, clock and limits are replaced while a job is played
(`simulated`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec

from pcircle.fs.scan import Block
from pcircle.walk import visitor, walker
from tests.sim.work import NOTHING, Forest, Item, Result, merge, own_result, unit


class Walk(msgspec.Struct, frozen=True):
    """How a job's items are walked.

    Of the leaves the share `files` are files. Of the directories the share `fails` can't be read;
    of the files the share `verified` is read again when it is on disk, and after the share
    `handed_back` an item leaves the remaining names of a directory to other items. An item walks
    for `item_s` (0: until all is done), reads `block_names` at a time, and processes no more than
    `few_names` itself while it reads. It notices a stop `deaf_s` late.
    """

    files: float = 0.5
    fails: float = 0.0
    verified: float = 0.0
    handed_back: float = 0.1
    item_s: float = 0.01
    block_names: int = 1000
    few_names: int = 1000
    deaf_s: float = 0.0


class Grove:
    """The entries below the roots, and the expected result of each directory."""

    def __init__(self, forest: Forest, walk: Walk) -> None:
        self.walk = walk
        self._salt = forest.salt
        self.roots = forest.roots()
        self.above: dict[int, int | None] = {}
        self.below: dict[int, list[int]] = {}
        self.range: dict[int, Item] = {}
        self.numbers: set[int] = set()  # that a walk reaches and that are not lost
        self._totals: dict[int, tuple[Result, int]] = {}
        for root in self.roots:
            self._add(forest, root, None)
        for first, _ in self.roots:
            self._sum(first)

    def _add(self, forest: Forest, item: Item, above: int | None) -> None:
        waiting = [(item, above)]
        while waiting:
            item, above = waiting.pop()
            children = forest.children(item)
            self.range[item[0]] = item
            self.above[item[0]] = above
            self.below[item[0]] = [child[0] for child in children]
            waiting += [(child, item[0]) for child in children]

    def _sum(self, root: int) -> None:
        """Compute the result of each directory; numbers grow from top to bottom."""
        first, last = self.range[root]
        for number in reversed(range(first, last)):
            if self.fails(number):
                self._totals[number] = NOTHING, 1
                continue
            result, failed = own_result((number, number)), 0
            for child in self.below[number]:
                more, lost = self._totals[child]
                result, failed = merge(result, more), failed + lost
            self._totals[number] = result, failed
        seen = [root]
        while seen:
            number = seen.pop()
            if not self.fails(number):
                self.numbers.add(number)
                seen += self.below[number]

    def is_file(self, number: int) -> bool:
        """Return whether a number is a file."""
        if self.below[number] or self.above[number] is None:
            return False
        return self._drawn(number, 53, self.walk.files)

    def fails(self, number: int) -> bool:
        """Return whether a number is a directory that cannot be read."""
        return self._drawn(number, 59, self.walk.fails) and not self.is_file(number)

    def is_verified(self, number: int) -> bool:
        """Return whether a number is a file that is read again."""
        return self._drawn(number, 61, self.walk.verified) and self.is_file(number)

    def is_slow(self, number: int) -> bool:
        """Return whether it is a file after which the remaining names are handed back."""
        return self._drawn(number, 67, self.walk.handed_back)

    def leaves_off(self, number: int) -> bool:
        """Return whether a stop at this file returns nothing."""
        return self._drawn(number, 71, 0.7)

    def _drawn(self, number: int, factor: int, share: float) -> bool:
        return share > 0.0 and unit(self._salt + factor * number + 3) < share

    def total(self, number: int) -> tuple[Result, int]:
        """Return the result of a subtree, and its number of failing directories."""
        return self._totals[number]

    @property
    def whole(self) -> tuple[Result, int]:
        """Return the total result."""
        result, failed = NOTHING, 0
        for first, _ in self.roots:
            more, lost = self._totals[first]
            result, failed = merge(result, more), failed + lost
        return result, failed

    def number(self, root: int, path: bytes) -> int:
        """Return the directory of a path."""
        name = path.rpartition(b"/")[2]
        return int(name) if name else self.roots[root][0]

    def way(self, number: int) -> list[int]:
        """Return a directory and its ancestors."""
        way = [number]
        while (above := self.above[way[-1]]) is not None:
            way.append(above)
        return way

    def blocks(self, number: int) -> Iterator[Block]:
        """Return the entries of a directory like `pcircle.fs.scan.blocks`."""
        names, block_names = self.below[number], self.walk.block_names
        block = Block()
        for name in names:
            if len(block) >= block_names:
                yield block
                block = Block()
            (block.files if self.is_file(name) else block.directories).append(str(name))
        block.last = True
        yield block


class _Status(NamedTuple):
    st_dev: int = 1


class _Opened(NamedTuple):
    status: _Status = _Status()


class Lease:
    """A lease like that of `pcircle.fs.directories`."""

    opened = _Opened()
    searched = False

    def __init__(self, directories: Directories, number: int) -> None:
        self._directories = directories
        self.fd = number
        self.identity = (1, number)
        self._ended = False
        directories.leased += 1

    def end(self) -> None:
        """End the lease; a second time would close the lease of another user."""
        assert not self._ended, f"the lease of {self.fd} is ended twice"
        self._ended = True
        self._directories.leased -= 1


class Directories:
    """Leases as in `pcircle.fs.directories`. `leased` counts the leases that have not ended."""

    def __init__(self, grove: Grove) -> None:
        self._grove = grove
        self.leased = 0

    def lease(
        self,
        root: int,
        path: bytes,
        identity: tuple[int, int] | None = None,
        *,
        readable: bool = False,
    ) -> Lease:
        """Lease a directory; a known identity must match."""
        number = self._grove.number(root, path)
        assert identity in (None, (1, number)), f"{number} is taken for {identity}"
        way = [b"%d" % step for step in self._grove.way(number)[-2::-1]]
        assert path == b"/".join(way), f"{number} is looked for at {path!r}"
        return Lease(self, number)

    def lease_below(self, above: Lease, name: bytes) -> Lease:
        """Lease a directory within another directory."""
        assert int(name) in self._grove.below[above.fd]
        return Lease(self, int(name))

    def keep(self, lease: Lease, root: int, path: bytes) -> None:
        """Do nothing, because no directory is closed."""


class Clock:
    """A replacement of `time` in the walker."""

    now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s


@contextmanager
def simulated(grove: Grove, clock: Clock) -> Iterator[None]:
    """Replace the tree, the clock and the limits of the walker in this process."""
    few = grove.walk.few_names
    instead: list[tuple[Any, str, Any]] = [
        (walker, "time", clock),
        (visitor, "blocks", grove.blocks),
        (walker, "_FEW_NAMES", -(-few // 2)),
        (walker, "_MIN_NAMES", few),
    ]
    before = [(module, name, getattr(module, name)) for module, name, _ in instead]
    try:
        for module, name, value in instead:
            setattr(module, name, value)
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)
