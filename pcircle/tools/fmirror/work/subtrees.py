"""Compares whole subtrees, most of which are equal in a typical run.

`Subtrees` compares directories of both sides in batches, and then their subdirectories, depth
first. If everything below a directory is equal, the walk skips the directory. Otherwise the walk
enters it. The results for its subdirectories are cached until the item ends, so that nothing is
compared twice.
"""

from __future__ import annotations

import time
from functools import reduce

import msgspec

from pcircle.fs.directories import affordable, close_open, join_path
from pcircle.tools.fmirror.work.unchanged import Holders, QuickCheck

_SOON_S, _LATE_S = 0.002, 0.02  # time limits for the given directories, and for those below them
_AT_ONCE = 64  # directories in a batch
_OF_OPEN, _OF_OTHERS = 20, 160  # available descriptors per open branch: first thread, others

Counts = tuple[int, int]
"""The number of directories, and the number of other entries."""


class SubtreeComparison(msgspec.Struct, frozen=True):
    """The result for subdirectories of one directory.

    The walk must enter the directories `to_walk`. The directories `later` have not been compared.
    All others are equal. `directories` counts these and all directories below them, and `entries`
    counts the other entries below them.
    """

    to_walk: list[bytes]
    later: list[bytes]
    directories: int
    entries: int


class _Branch:
    """A directory whose subdirectories are being compared.

    `pending` is the number of subdirectories that remain. `found` maps the name of a subdirectory
    to its counts, or to None if the walk must enter it.
    """

    __slots__ = ("above", "below", "entries", "fds", "found", "name", "pending")

    def __init__(
        self, above: _Branch | None, name: bytes, fds: tuple[int, int], below: int, entries: int
    ) -> None:
        self.above = above
        self.name = name
        self.fds = fds
        self.below = self.pending = below
        self.entries = entries
        self.found: dict[bytes, Counts | None] = {}

    @property
    def path(self) -> bytes:
        """The path of the directory. The topmost branch stores its path as its `name`."""
        names: list[bytes] = []
        branch: _Branch | None = self
        while branch is not None and branch.above is not None:
            names.append(branch.name)
            branch = branch.above
        top = b"" if branch is None else branch.name
        return reduce(join_path, reversed(names), top)

    def counts(self) -> Counts | None:
        """Return the counts of everything below, or None if the walk must enter the directory."""
        directories, entries = 1, self.entries
        for counts in self.found.values():
            if counts is None:
                return None
            directories += counts[0]
            entries += counts[1]
        return (directories, entries) if len(self.found) == self.below else None


class Subtrees:
    """Compares subtrees for one worker thread.

    Only the first thread may keep many branches open.
    """

    def __init__(self, quick: QuickCheck, *, is_first: bool = True) -> None:
        self._quick = quick
        self._known: dict[bytes, dict[bytes, Counts | None]] = {}
        self._open: set[_Branch] = set()
        self._max_open = max(1, affordable() // (_OF_OPEN if is_first else _OF_OTHERS))
        self._stack: list[tuple[list[_Branch], list[bytes]]] = []

    def forget(self) -> None:
        """Drop the cached results at the start of another item."""
        self._known.clear()

    def compare(
        self, path: bytes, names: list[bytes], fds: tuple[int, int], *, returns_early: bool
    ) -> SubtreeComparison:
        """Compare subdirectories of the directory at `path`, which is open on both sides.

        If `returns_early` is set, return early, because other workers are waiting for work.
        """
        top = _Branch(None, path, fds, len(names), 0)
        top.found = self._known.pop(path, {})
        untried = [name for name in names if name not in top.found]
        later: list[bytes] = []
        self._stack = [([top] * len(untried), untried)] if untried else []
        began_s, is_first = time.monotonic(), True
        try:
            while self._stack:
                holders, batch = self._stack.pop()
                spent_s = time.monotonic() - began_s
                limit_s = _SOON_S if returns_early or holders[0] is top else _LATE_S
                if is_first or spent_s < limit_s:
                    self._compare(holders, batch)
                    is_first = False
                elif holders[0] is top:
                    later = batch
                else:
                    for holder in holders:
                        self._end_one(holder)
        finally:
            for branch in self._open:  # empty unless an exception was raised
                _close(branch)
            self._open.clear()
            self._stack = []
        to_walk, directories, entries = [], 0, 0
        left = set(later)
        for name in names:
            counts = top.found.pop(name, None)
            if counts is not None:
                directories += counts[0]
                entries += counts[1]
            elif name not in left:
                to_walk.append(name)
        if top.found:
            self._known[path] = top.found
        return SubtreeComparison(to_walk, later, directories, entries)

    def _compare(self, holders: list[_Branch], names: list[bytes]) -> None:
        """Compare a batch of the directories, each in its own parent, and put the others back."""
        batch = names[:_AT_ONCE]
        max_parents = max(0, (self._max_open - len(self._open) + 1) // 2)
        fds = _fds(holders[: len(batch)], 0), _fds(holders[: len(batch)], 1)
        tried, equal = self._quick.directories(batch, fds, max_parents)
        if tried < len(names):
            self._stack.append((holders[tried:], names[tried:]))
        branches: list[_Branch] = []
        below: list[bytes] = []
        for place, (holder, name) in enumerate(zip(holders[:tried], names, strict=False)):
            found = equal.get(place)
            if found is not None and found.directories:
                branch = _Branch(holder, name, found.fds, len(found.directories), found.entries)
                self._open.add(branch)
                branches += [branch] * len(found.directories)
                below += found.directories
                continue
            holder.found[name] = None if found is None else (1, found.entries)
            self._end_one(holder)
        if below:
            self._stack.append((branches, below))

    def _end_one(self, branch: _Branch) -> None:
        """Record that a subdirectory of a branch has been compared or will not be compared."""
        branch.pending -= 1
        while not branch.pending and branch.above is not None:
            _close(branch)
            self._open.discard(branch)
            counts = branch.counts()
            if counts is None and branch.found:
                self._known[branch.path] = branch.found
            branch.above.found[branch.name] = counts
            branch = branch.above
            branch.pending -= 1


def _close(branch: _Branch) -> None:
    for fd in branch.fds:
        close_open(fd)


def _fds(holders: list[_Branch], side: int) -> Holders:
    """Return the descriptors of one side, or a single one if all branches are the same."""
    first = holders[0]
    if all(holder is first for holder in holders):
        return first.fds[side]
    return [holder.fds[side] for holder in holders]
