"""Writes profile files atomically, and validates them when they are read.

docs/profile-format.rst specifies the format: a line of text with the name and version of the format
and a digest of the rest, followed by compressed MessagePack. A profile may come from an untrusted
source. Therefore, its size is bounded before and after decompression, the decoder checks types, and
this module checks constraints that types cannot express. A file of a newer version is rejected.
"""

from __future__ import annotations

import errno
import os
import re
import zlib

import msgspec
import xxhash

from pcircle.cli import json_output as jsonout
from pcircle.core.encoding import show
from pcircle.core.errors import UsageError
from pcircle.fs.safe_open import reading
from pcircle.tools.fprof.profile.collect import SPECIALS
from pcircle.tools.fprof.profile.model import (
    DEEPEST,
    DIRECTORY_LISTS,
    FILE_LISTS,
    KINDS,
    LONGEST_EXTENSION,
    UNITS,
    Profile,
    pack,
    unpack,
)
from pcircle.tools.fprof.profile.sizes import BINS, edge_of
from pcircle.tools.fprof.profile.tables import OTHER_WIDTH

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
