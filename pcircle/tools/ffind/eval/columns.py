"""Tests of status for all names of a directory at once.

The columns of the status table (`pcircle.fs.stats`) are compared as numbers, and no object is made
for an entry that fails a test.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from pcircle.core.timestamps import MIN_NS, NS_PER_S, Timestamp
from pcircle.tools.ffind.eval.checks import EvaluationContext, compared, limits_ns
from pcircle.tools.ffind.language.nodes import ExpressionNode


class StatusColumns(Protocol):
    """The status of names by column, as in `pcircle.fs.stats.Stats`."""

    def look(self, directory_fd: int, names: Sequence[bytes], /) -> None: ...
    def column(self, name: str, start: int, stop: int, /) -> list[int]: ...
    def times_ns(self, name: str, start: int, stop: int, /) -> list[int]: ...


Choose = Callable[[StatusColumns, Sequence[int]], Sequence[int]]
"""A function from the rows of names to the rows that pass a test."""

_COLUMNS = {
    "inum": "inode",
    "links": "links",
    "uid": "uid",
    "gid": "gid",
    "blocks": "blocks",
    "bytes": "size",
}
_TIMES = {"a": "atime", "c": "ctime", "m": "mtime"}


def chosen_by_column(node: ExpressionNode, kind: str, context: EvaluationContext) -> Choose | None:
    """Return a test of columns for entries of a kind; None if the node needs more."""
    args = node.args
    if node.name == "not" and (inner := chosen_by_column(node.children[0], kind, context)):
        return _negated(inner)
    if node.name == "number":
        return _by(_COLUMNS[args[0]], compared(*args[1:]))
    if node.name == "size":
        compare, wanted, unit = args
        low, high = (wanted - 1) * unit, wanted * unit
        if compare == "+":
            return _by("size", lambda size: size > high)
        if compare == "-":
            return _by("size", lambda size: size <= low)
        return _by("size", lambda size: low < size <= high)
    if node.name == "perm" and kind in ("f", "l"):
        return _by("mode", _permitted(args[0], args[1]))
    if node.name == "time":
        low_ns, high_ns = limits_ns(context, *args)
        return _in_time(_TIMES[args[0]], low_ns, high_ns)
    if node.name == "newer" and args[0] in _TIMES:
        return _in_time(_TIMES[args[0]], Timestamp(*args[1:]).ns, None)
    return None


def _by(name: str, fits: Callable[[int], bool]) -> Choose:
    def choose(stats: StatusColumns, places: Sequence[int]) -> list[int]:
        column = stats.column(name, 0, places[-1] + 1)
        return [place for place in places if fits(column[place])]

    return choose


def _negated(choose: Choose) -> Choose:
    def complement(stats: StatusColumns, places: Sequence[int]) -> list[int]:
        found = set(choose(stats, places))
        return [place for place in places if place not in found]

    return complement


def _permitted(kind: str, wanted: int) -> Callable[[int], bool]:
    if kind == "-":
        return lambda mode: mode & wanted == wanted
    if kind == "/":
        return lambda mode: not wanted or bool(mode & wanted)
    return lambda mode: mode & 0o7777 == wanted


def _in_time(name: str, low_ns: int | None, high_ns: int | None) -> Choose:
    """Return a test for times after `low_ns` and up to `high_ns`."""

    def choose(stats: StatusColumns, places: Sequence[int]) -> Sequence[int]:
        end = places[-1] + 1
        seconds = stats.column(name, 0, end)
        # If the times of all files are on one side of a limit, files need no separate comparison.
        first_ns, after_ns = min(seconds) * NS_PER_S, (max(seconds) + 1) * NS_PER_S
        if low < first_ns and (high_ns is None or after_ns <= high_ns):
            return places
        if after_ns <= low or (high_ns is not None and high_ns < first_ns):
            return []
        parts = stats.column(f"{name}_ns", 0, end)
        times = ((place, seconds[place] * NS_PER_S + parts[place]) for place in places)
        if high_ns is None:
            return [place for place, at_ns in times if at_ns > low]
        return [place for place, at_ns in times if low < at_ns <= high_ns]

    low = MIN_NS - 1 if low_ns is None else low_ns
    return choose
