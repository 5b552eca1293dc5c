"""The results of ranks as records that sort as bytes: a place, a text and a letter.

A place consists of the keys of all parent directories and the key of the entry. A record about the
directory as a whole has no entry key, so it comes first. NULs separate the keys. The letter marks
complete directories.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import NamedTuple

OPERANDS = b"0"
"""The place of PATHs that are not directories, which precedes all directories."""
DIRECTORY = ord("d")
tag_of: Callable[[bytes], int] = itemgetter(-1)
"""Return the letter of a record; `DIRECTORY` marks a complete directory."""
_DIRECTORY = b"%b\0\0\0%b%bd"


class Record(NamedTuple):
    """A decoded record."""

    place: bytes
    key: bytes
    text: bytes


def root_place(number: int) -> bytes:
    """Return the place of a PATH that is a directory, by its number."""
    return b"1%08x" % number


def place_in(place: bytes, key: bytes) -> bytes:
    """Return the place of a directory by its key in its parent."""
    return place + b"\0" + key


def record(place: bytes, text: bytes, key: bytes = b"") -> bytes:
    """Return a record of the entry with this key, or of a directory as a whole."""
    return b"%b\0\0%b\0%be" % (place, key, text)


def read(packed: bytes) -> Record:
    """Decode a record."""
    at = packed.index(b"\0\0")
    end = packed.index(b"\0", at + 2)
    return Record(packed[:at], packed[at + 2 : end], packed[end + 1 : -1])


def directories(
    places: Iterable[bytes], headings: Iterable[bytes], texts: Iterable[bytes]
) -> list[bytes]:
    """Return the records of directories, or of parts of them, with headings and texts."""
    return list(map(_DIRECTORY.__mod__, zip(places, headings, texts, strict=True)))


def read_directories(packed: Iterable[bytes], between: bytes = b"") -> bytes:
    """Return the text of directory records, with `between` as separator."""
    return between.join([record[record.index(b"\0\0\0") + 3 : -1] for record in packed])


def place_of(packed: bytes) -> bytes:
    """Return the place of a record."""
    return packed[: packed.index(b"\0\0")]
