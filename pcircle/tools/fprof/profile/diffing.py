"""Growth and shrinkage between two profiles: by directory, owner, group, extension and size.

Directories are compared by their direct contents, so that a change appears only where it was made
and not in all parent directories. A profile lists only several thousand of the largest directories.
If its list is full, a directory that only the other profile lists may exist in both trees. Such a
directory is reported as "new or grown" or as "gone or shrunk".
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from pcircle.cli import listing
from pcircle.cli.report import ToolReport
from pcircle.core.encoding import show
from pcircle.core.units import format_count, format_size
from pcircle.tools.fprof.profile.groups import groups, moment, shown_path
from pcircle.tools.fprof.profile.model import KINDS, DirectoryRow, Profile
from pcircle.tools.fprof.profile.sizes import rebin, standard_edges

SCHEMA = 1
_ROWS = 20


class Change(msgspec.Struct, frozen=True):
    """The change of a row, negative for a decrease, and its values in the new profile."""

    label: str
    number: int
    bytes: int
    now_number: int
    now_bytes: int


class DirectoryChange(msgspec.Struct, frozen=True):
    """A directory whose entries or bytes have changed.

    `what` is "changed", "new", "gone", "new or grown" or "gone or shrunk". `entries` and `bytes`
    count direct contents only; `all_entries` and `all_bytes` include subdirectories.
    """

    path: str
    what: str
    entries: int
    bytes: int
    all_entries: int
    all_bytes: int


class ProfileComparison(ToolReport, frozen=True):
    """The differences between two profiles."""

    old: str
    new: str
    old_taken: str
    new_taken: str
    kinds: tuple[Change, ...]
    sizes: tuple[Change, ...]
    by: dict[str, tuple[Change, ...]]
    directories: tuple[DirectoryChange, ...]


def compare(old: Profile, new: Profile, names: tuple[str, str], version: str) -> ProfileComparison:
    """Compare two profiles; `names` are the names of the files that contain them."""
    largest = max(old.largest_bytes, new.largest_bytes)
    edges = standard_edges("log2", largest)
    labels = [*(f"up to {format_size(edge)}" for edge in edges), "larger"]
    sizes = [
        {label: (row or [0, 0]) for label, row in zip(labels, rebin(p.sizes, edges), strict=True)}
        for p in (old, new)
    ]
    by = {}
    for dimension in ("owner", "group", "ext"):
        both = [{g.label: [g.number, g.bytes] for g in groups(p, dimension)} for p in (old, new)]
        by[dimension] = tuple(sorted(_changes(*both), key=_largest_first))
    return ProfileComparison(
        schema=SCHEMA,
        tool="fprof",
        version=version,
        exit_code=0,
        old=show(os.fsencode(names[0])),
        new=show(os.fsencode(names[1])),
        old_taken=moment(old.taken_s),
        new_taken=moment(new.taken_s),
        kinds=tuple(_changes(*({kind: p.kinds[kind] for kind in KINDS} for p in (old, new)))),
        sizes=tuple(_changes(*sizes)),
        by=by,
        directories=tuple(sorted(_directories(old, new), key=_largest_change_first)),
    )


def _changes(old: Mapping[str, list[int]], new: Mapping[str, list[int]]) -> Iterator[Change]:
    for label in dict.fromkeys([*old, *new]):
        before, after = old.get(label, [0, 0]), new.get(label, [0, 0])
        more = after[0] - before[0], after[1] - before[1]
        if any(more):
            yield Change(label, *more, after[0], after[1])


def _largest_first(change: Change) -> tuple[int, int, str]:
    return -abs(change.bytes), -abs(change.number), change.label


def _largest_change_first(change: DirectoryChange) -> tuple[int, int, str]:
    return -abs(change.bytes), -abs(change.entries), change.path


def _directories(old: Profile, new: Profile) -> Iterator[DirectoryChange]:
    # If each profile contains one tree, assume that it is the same tree, even if it was moved.
    alone = len(old.roots) == len(new.roots) == 1
    before, after = (dict(_rows(profile, alone=alone)) for profile in (old, new))
    whole = {id(profile): _knows_all(profile) for profile in (old, new)}
    for key, latest in {**before, **after}.items():
        was, now = before.get(key), after.get(key)
        # A directory missing from a full list may still exist.
        what = "changed"
        if was is None:
            what = "new" if whole[id(old)] else "new or grown"
        elif now is None:
            what = "gone" if whole[id(new)] else "gone or shrunk"
        profile = new if now is not None else old
        a, b = (_numbers(row) for row in (was, now))
        more = [y - x for x, y in zip(a, b, strict=True)]
        if any(more[:2]) or was is None or now is None:
            path = shown_path(profile.roots, latest.root, latest.path)
            yield DirectoryChange(path, what, *more)


def _numbers(row: DirectoryRow | None) -> tuple[int, int, int, int]:
    if row is None:
        return 0, 0, 0, 0
    return row.own_entries, row.own_bytes, row.entries, row.size_bytes


def _rows(profile: Profile, *, alone: bool) -> Iterator[tuple[tuple[bytes, bytes], DirectoryRow]]:
    for row in (*profile.weights, *profile.crowds):
        yield (b"" if alone else profile.roots[row.root], row.path), row


def _knows_all(profile: Profile) -> bool:
    return len({(row.root, row.path) for row in profile.crowds}) == profile.kinds["directory"][0]


def render(comparison: ProfileComparison) -> Iterable[str]:
    """Yield a comparison as text."""
    old, new = comparison.old, comparison.new
    yield f"{old} ({comparison.old_taken}) to {new} ({comparison.new_taken})\n"
    tables = [("kind", comparison.kinds), ("size", comparison.sizes)]
    tables += list(comparison.by.items())
    if not comparison.directories and not any(rows for _, rows in tables):
        yield "no difference\n"
        return
    for title, changes in tables:
        rows = [
            [
                _signed(change.number, format_count),
                _signed(change.bytes, format_size),
                format_count(change.now_number),
                format_size(change.now_bytes),
                change.label,
            ]
            for change in changes[:_ROWS]
        ]
        header = ("number", "bytes", "now", "bytes now", title)
        if rows:
            yield listing.render(rows, align="rrrrl", header=header) + _more(len(changes))
    rows = [
        [
            _signed(change.entries, format_count),
            _signed(change.bytes, format_size),
            _signed(change.all_bytes, format_size),
            change.what,
            change.path,
        ]
        for change in comparison.directories[:_ROWS]
    ]
    header = ("entries", "bytes", "including subdirectories", "", "directory")
    if rows:
        more = _more(len(comparison.directories))
        yield listing.render(rows, align="rrrll", header=header) + more


def _more(count: int) -> str:
    return f"and {format_count(count - _ROWS)} more\n" if count > _ROWS else ""


def _signed(number: int, form: Callable[[int], object]) -> str:
    return ("+" if number > 0 else "") + str(form(number))
