"""Whole subtrees in which nothing is to be done: most of a tree, every night.

Directories of both sides are compared in batches, and then those that are in them, depth first. If
all that is below a directory is as it should be, the walk passes it by. Otherwise the walk enters
it, and what was found to be equal below it by then is not compared again by the same item.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from pcircle.fmirror.work.batches import Holders
from pcircle.fmirror.work.quick import QuickCheck
from pcircle.fs.directories import affordable, close_open, join_path

_SOON_S, _LATE_S = 0.002, 0.02  # for what is in the walk's directory, and for all that is below
_AT_ONCE = 64  # directories
_OF_OPEN = 20  # one of so many affordable directories is kept open

Counts = tuple[int, int]
"""Of directories, and of other entries."""


class Compared(NamedTuple):
    """What came of some directories of one: `rest` are to be walked, `later` were not tried.

    The others are as they should be, with so many `directories`, themselves among them, and other
    `entries`.
    """

    rest: list[bytes]
    later: list[bytes]
    directories: int
    entries: int


class _Branch:
    """A directory whose subdirectories are compared, of which `pending` are left.

    `found` has the counts of those that are as they should be, and None for those to be walked.
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
        """Its path; that of the first one is its name."""
        return self.name if self.above is None else join_path(self.above.path, self.name)

    def counts(self) -> Counts | None:
        """Return what is in it and below it, or None if it is to be walked."""
        directories, entries = 1, self.entries
        for counts in self.found.values():
            if counts is None:
                return None
            directories += counts[0]
            entries += counts[1]
        return (directories, entries) if len(self.found) == self.below else None


class Subtrees:
    """One thread's."""

    def __init__(self, quick: QuickCheck) -> None:
        self._quick = quick
        self._known: dict[bytes, dict[bytes, Counts | None]] = {}
        self._open: set[_Branch] = set()
        self._max_open = max(1, affordable() // _OF_OPEN)
        self._stack: list[tuple[list[_Branch], list[bytes]]] = []

    def forget(self) -> None:
        """Another item begins."""
        self._known.clear()

    def compare(
        self, path: bytes, names: list[bytes], fds: tuple[int, int], *, hastens: bool
    ) -> Compared:
        """Compare some directories of one, which has that path and is open on both sides.

        One that `hastens` comes back soon, since others wait for what is to be walked.
        """
        top = _Branch(None, path, fds, len(names), 0)
        top.found = self._known.pop(path, {})
        untried = [name for name in names if name not in top.found]
        later: list[bytes] = []
        self._stack = [([top] * len(untried), untried)] if untried else []
        began_s, is_first = time.monotonic(), True
        try:
            while self._stack:
                holders, some = self._stack.pop()
                spent_s = time.monotonic() - began_s
                limit_s = _SOON_S if hastens or holders[0] is top else _LATE_S
                if is_first or spent_s < limit_s:
                    self._compare(holders, some)
                    is_first = False
                elif holders[0] is top:
                    later = some
                else:
                    for holder in holders:
                        self._end_one(holder)
        finally:
            for branch in self._open:  # if the job ends
                _close(branch)
            self._open.clear()
            self._stack = []
        rest, directories, entries = [], 0, 0
        left = set(later)
        for name in names:
            counts = top.found.pop(name, None)
            if counts is not None:
                directories += counts[0]
                entries += counts[1]
            elif name not in left:
                rest.append(name)
        if top.found:
            self._known[path] = top.found
        return Compared(rest, later, directories, entries)

    def _compare(self, holders: list[_Branch], names: list[bytes]) -> None:
        """Compare some directories, each in one of its own, and put the other ones back."""
        some = names[:_AT_ONCE]
        max_parents = (self._max_open - len(self._open) + 1) // 2
        fds = _fds(holders[: len(some)], 0), _fds(holders[: len(some)], 1)
        tried, equal = self._quick.directories(some, fds, max_parents)
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
        """One of the directories of a branch was compared, or is left."""
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
    """The descriptors of a side, which most often are of one directory."""
    first = holders[0]
    if all(holder is first for holder in holders):
        return first.fds[side]
    return [holder.fds[side] for holder in holders]
