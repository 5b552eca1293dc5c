"""A tree that nobody has made, for the real walk: see `tests.sim.walking`.

It has the numbers and the shape of a `Forest`: some of what has nothing below it are files, the
rest directories, and some directories can't be read. What the walk asks of a file system is
answered from arithmetic: a descriptor is a directory's number, and the walker's scan, clock and
measures are put in place of the real ones while a job is played (`simulated`).
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

    Of what has nothing below it the share `files` are files. Of directories the share `fails`
    can't be read; of files the share `verified` is read again when it is on disk, and after the
    share `handed_back` an item has others do the rest of a directory's. An item walks for
    `item_s` (0: until all is done), reads `block_names` at a time, and looks at no more than
    `few_names` itself where it reads. It sees that the job stops `deaf_s` late.
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
    """What there is below the roots, and what is to come of each directory."""

    def __init__(self, forest: Forest, walk: Walk) -> None:
        self.walk = walk
        self._salt = forest.salt
        self.roots = forest.roots()
        self.above: dict[int, int | None] = {}
        self.below: dict[int, list[int]] = {}
        self.range: dict[int, Item] = {}
        self.numbers: set[int] = set()  # that a walk comes to, and are not lost
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
        """What comes of each directory; numbers grow from top to bottom."""
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
        """Whether it is one."""
        if self.below[number] or self.above[number] is None:
            return False
        return self._drawn(number, 53, self.walk.files)

    def fails(self, number: int) -> bool:
        """Whether it is a directory that can't be read."""
        return self._drawn(number, 59, self.walk.fails) and not self.is_file(number)

    def is_verified(self, number: int) -> bool:
        """Whether it is a file that is read again."""
        return self._drawn(number, 61, self.walk.verified) and self.is_file(number)

    def is_slow(self, number: int) -> bool:
        """Whether it is a file after which the rest of its directory is handed back."""
        return self._drawn(number, 67, self.walk.handed_back)

    def leaves_off(self, number: int) -> bool:
        """Whether who stops at this file does so without a word."""
        return self._drawn(number, 71, 0.7)

    def _drawn(self, number: int, factor: int, share: float) -> bool:
        return share > 0.0 and unit(self._salt + factor * number + 3) < share

    def total(self, number: int) -> tuple[Result, int]:
        """What comes of a directory or file with all below it, and how many directories fail."""
        return self._totals[number]

    @property
    def whole(self) -> tuple[Result, int]:
        """What comes of all."""
        result, failed = NOTHING, 0
        for first, _ in self.roots:
            more, lost = self._totals[first]
            result, failed = merge(result, more), failed + lost
        return result, failed

    def number(self, root: int, path: bytes) -> int:
        """The directory of a path."""
        name = path.rpartition(b"/")[2]
        return int(name) if name else self.roots[root][0]

    def way(self, number: int) -> list[int]:
        """A directory and those that it lies in."""
        way = [number]
        while (above := self.above[way[-1]]) is not None:
            way.append(above)
        return way

    def blocks(self, number: int) -> Iterator[Block]:
        """What is in a directory, as `pcircle.fs.scan.blocks` has it."""
        names, some = self.below[number], self.walk.block_names
        block = Block()
        for name in names:
            if len(block) >= some:
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
    """As of `pcircle.fs.directories`."""

    opened = _Opened()
    searched = False

    def __init__(self, directories: Directories, number: int) -> None:
        self._directories = directories
        self.fd = number
        self.identity = (1, number)
        self._ended = False
        directories.leased += 1

    def end(self) -> None:
        """End it; a second time would close what another one has."""
        assert not self._ended, f"the lease of {self.fd} is ended twice"
        self._ended = True
        self._directories.leased -= 1


class Directories:
    """As of `pcircle.fs.directories`. `leased` are the leases that have not ended."""

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
        """Lease a directory; who knows its identity must mean that one."""
        number = self._grove.number(root, path)
        assert identity in (None, (1, number)), f"{number} is taken for {identity}"
        way = [b"%d" % each for each in self._grove.way(number)[-2::-1]]
        assert path == b"/".join(way), f"{number} is looked for at {path!r}"
        return Lease(self, number)

    def lease_below(self, above: Lease, name: bytes) -> Lease:
        """Lease a directory in another one."""
        assert int(name) in self._grove.below[above.fd]
        return Lease(self, int(name))

    def keep(self, lease: Lease, root: int, path: bytes) -> None:
        """Nothing: none is closed."""


class Clock:
    """In place of `time` in the walker."""

    now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s


@contextmanager
def simulated(grove: Grove, clock: Clock) -> Iterator[None]:
    """The walker of this process sees this tree and this time, and its measures are small."""
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
