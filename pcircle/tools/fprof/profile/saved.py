"""Saved profiles: writes them atomically, validates them when they are read, and compares two.

docs/profile-format.rst specifies the format: a line of text with the name and version of the format
and a digest of the rest, followed by compressed MessagePack. A profile may come from an untrusted
source. Therefore, its size is bounded before and after decompression, the decoder checks types, and
this module checks constraints that types cannot express. A file of a newer version is rejected.

Directories are compared by their direct contents, so that a change appears only where it was made
and not in all parent directories. A profile lists only several thousand of the largest directories.
If its list is full, a directory that only the other profile lists may exist in both trees. Such a
directory is reported as "new or grown" or as "gone or shrunk".
"""

from __future__ import annotations

import errno
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec
import xxhash

from pcircle.cli import json_output as jsonout
from pcircle.cli import listing
from pcircle.cli.report import ToolReport
from pcircle.core.encoding import show
from pcircle.core.errors import UsageError
from pcircle.core.units import format_count, format_size
from pcircle.fs.safe_open import reading
from pcircle.tools.fprof.profile.collect import SPECIALS
from pcircle.tools.fprof.profile.groups import groups, moment, shown_path
from pcircle.tools.fprof.profile.model import (
    DEEPEST,
    DIRECTORY_LISTS,
    FILE_LISTS,
    KINDS,
    LONGEST_EXTENSION,
    OTHER_WIDTH,
    UNITS,
    DirectoryRow,
    Profile,
    pack,
    unpack,
)
from pcircle.tools.fprof.profile.sizes import BINS, edge_of, rebin, standard_edges

VERSION = 1
_MAX_BYTES = 64 << 20
_MAX_UNPACKED_BYTES = 128 << 20
_HEAD = re.compile(rb"pcircle profile (\d{1,9}) ([0-9a-f]{32})\n")
_HEAD_MOST_BYTES = 64
_LARGEST = 1 << 80  # upper bound of all sums of sizes
_LARGEST_FILE = 1 << 64
_LONGEST_LAYOUT = 4096
_KEYS = {
    "sizes": BINS,
    "directory_sizes": BINS,
    "depths": DEEPEST + 1,
    "owners": 1 << 32,
    "groups": 1 << 32,
}
_WIDTHS = {
    "kinds": 3, "sizes": 3, "owners": 3, "groups": 3, "extensions": 3, "ages": 3, "age_sizes": 3,
    "depths": 3, "directory_sizes": 2, "stripes": 3, "specials": 1,
}  # fmt: skip
_LENGTHS = {
    "names": 2,
    "unit_counts": len(UNITS),
    "sparse": 6,
    "other_owners": OTHER_WIDTH,
    "other_groups": OTHER_WIDTH,
    "other_extensions": OTHER_WIDTH,
    "other_stripes": OTHER_WIDTH,
}


def write(profile: Profile, path: str) -> None:
    """Write a profile, replacing any existing file; raise OSError if that fails."""
    packed = pack(profile)
    body = zlib.compress(packed, 6)
    if len(packed) >= _MAX_UNPACKED_BYTES or len(body) > _MAX_BYTES - _HEAD_MOST_BYTES:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
    head = b"pcircle profile %d %b\n" % (VERSION, xxhash.xxh3_128_hexdigest(body).encode())
    jsonout.put(head + body, path, durable=True)


def read(path: str | bytes) -> Profile:
    """Read a profile from a file; raise UsageError if it is unreadable, invalid or too new."""
    name = show(os.fsencode(path))
    try:
        with open(reading(os.fsencode(path), piped=True), "rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"cannot read '{name}': {error.strerror}") from None
    head = _HEAD.match(data[:_HEAD_MOST_BYTES])
    if head is None or not int(head[1]):
        raise UsageError(f"'{name}' is not a profile")
    if int(head[1]) > VERSION:
        raise UsageError(
            f"'{name}' has version {int(head[1])}, which is newer than this fprof can read "
            f"({VERSION})"
        )
    body = data[head.end() :]
    if len(data) > _MAX_BYTES or xxhash.xxh3_128_hexdigest(body).encode() != head[2]:
        raise UsageError(f"'{name}' is damaged: checksum mismatch")
    try:
        unpacker = zlib.decompressobj()
        packed = unpacker.decompress(body, _MAX_UNPACKED_BYTES)
        if not unpacker.eof or unpacker.unused_data:
            raise ValueError("unexpected data at the end")
        profile = unpack(packed)
        _check(profile)
    except (zlib.error, msgspec.DecodeError, ValueError, OverflowError, RecursionError) as error:
        raise UsageError(f"'{name}' is damaged: {error}") from None
    return profile


def _check(profile: Profile) -> None:
    """Raise ValueError for inconsistencies that types cannot express."""
    if set(profile.kinds) != set(KINDS):
        raise ValueError("unknown kinds of entries")
    if not set(profile.specials) <= {*SPECIALS.values(), "other"}:
        raise ValueError("unknown kinds of special files")
    for name, length in _LENGTHS.items():
        _check_tally(name, getattr(profile, name), length)
    for name, width in _WIDTHS.items():
        for tally in getattr(profile, name).values():
            _check_tally(name, tally, width)
    for name, limit in _KEYS.items():
        if any(not 0 <= key < limit for key in getattr(profile, name)):
            raise ValueError(f"invalid key of {name}")
    for name, longest in (("extensions", LONGEST_EXTENSION), ("stripes", _LONGEST_LAYOUT)):
        for text in getattr(profile, name):
            # Reports print these texts without escaping them.
            if len(text) > longest or not (text.isascii() and (text.isprintable() or not text)):
                raise ValueError(f"invalid key of {name}")
    _check_sizes(profile)
    _check_rows(profile)
    _check_sample(profile)
    if profile.edges or profile.edge_tallies:
        raise ValueError("edges are missing")
    numbers = (profile.unreadable, profile.failed)
    if min(numbers) < 0 or max(numbers) > _LARGEST or not 0 < profile.top < 1 << 32:
        raise ValueError("invalid number")


def _check_sizes(profile: Profile) -> None:
    """Raise ValueError if the bins of sizes contradict each other or the sums of all files."""
    if not 0 <= profile.largest_bytes < _LARGEST_FILE:
        raise ValueError("impossible file size")
    for place, (names, size, files) in profile.sizes.items():
        least = edge_of(place - 1) + 1 if place else 0
        if not files <= names or not files * least <= size <= files * edge_of(place):
            raise ValueError("invalid row of sizes")
    for column in (0, 1):
        if sum(tally[column] for tally in profile.sizes.values()) != profile.kinds["file"][column]:
            raise ValueError("sizes and counts of files disagree")


def _check_rows(profile: Profile) -> None:
    if len(set(profile.roots)) != len(profile.roots) or not all(profile.roots):
        raise ValueError("invalid roots")
    for name in (*FILE_LISTS, *DIRECTORY_LISTS):
        for row in getattr(profile, name):
            if not 0 <= row.root < len(profile.roots):
                raise ValueError(f"a row of {name} belongs to no root")
            if b"\0" in row.path:
                raise ValueError(f"invalid path of {name}")
    if any(not 0 <= row.value < _LARGEST_FILE for row in profile.largest):
        raise ValueError("impossible file size")
    for name in DIRECTORY_LISTS:
        for row in getattr(profile, name):
            numbers = (row.depth, row.entries, row.size_bytes, row.own_entries, row.own_bytes)
            if min(numbers) < 0 or max(numbers) > _LARGEST:
                raise ValueError(f"invalid row of {name}")


def _check_sample(profile: Profile) -> None:
    lots = [piece.lot for piece in profile.sample]
    if lots != sorted(lots) or (lots and not 0 <= lots[0] <= lots[-1] < 1 << 63):
        raise ValueError("invalid lots of the sample")
    if any(not 0 <= p.packed_bytes <= p.raw_bytes <= 1 << 30 for p in profile.sample):
        raise ValueError("invalid piece of the sample")
    if not len(lots) <= profile.sampled < 1 << 32:
        raise ValueError("invalid number of samples")


def _check_tally(name: str, tally: list[int], width: int) -> None:
    if len(tally) != width or any(not 0 <= number < _LARGEST for number in tally):
        raise ValueError(f"invalid row of {name}")


# ---- comparison ----------------------------------------------------------------------------------

COMPARISON_SCHEMA = 1
_MAX_ROWS = 20


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
        schema=COMPARISON_SCHEMA,
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
    before, after = (dict(_directory_rows(profile, alone=alone)) for profile in (old, new))
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


def _directory_rows(
    profile: Profile, *, alone: bool
) -> Iterator[tuple[tuple[bytes, bytes], DirectoryRow]]:
    for row in (*profile.weights, *profile.crowds):
        yield (b"" if alone else profile.roots[row.root], row.path), row


def _knows_all(profile: Profile) -> bool:
    return len({(row.root, row.path) for row in profile.crowds}) == profile.kinds["directory"][0]


def render_comparison(comparison: ProfileComparison) -> Iterable[str]:
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
            for change in changes[:_MAX_ROWS]
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
        for change in comparison.directories[:_MAX_ROWS]
    ]
    header = ("entries", "bytes", "including subdirectories", "", "directory")
    if rows:
        more = _more(len(comparison.directories))
        yield listing.render(rows, align="rrrll", header=header) + more


def _more(count: int) -> str:
    return f"and {format_count(count - _MAX_ROWS)} more\n" if count > _MAX_ROWS else ""


def _signed(number: int, form: Callable[[int], object]) -> str:
    return ("+" if number > 0 else "") + str(form(number))
