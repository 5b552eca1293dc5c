"""What ranks find, as records that are sorted as they are: a place, text and a letter.

The place is that of a directory, which is the keys of all that it lies in, and of an entry in it,
which is its key, or nothing for what holds of the directory as a whole and so comes first. NULs
keep these apart. The letter tells directories that are done from all else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import NamedTuple

OPERANDS = b"0"
"""The place of PATHs that are listed themselves, before all directories: no other begins so."""
DIRECTORY = ord("d")
tag_of: Callable[[bytes], int] = itemgetter(-1)
"""The letter of a record: `DIRECTORY` or another one."""
_DIRECTORY = b"%b\0\0\0%b%bd"


class Record(NamedTuple):
    """A record, read again."""

    place: bytes
    key: bytes
    text: bytes


def root_place(number: int) -> bytes:
    """The place of a PATH that is a directory, of this number."""
    return b"1%08x" % number


def place_in(place: bytes, key: bytes) -> bytes:
    """The place of a directory that has this key in another one."""
    return place + b"\0" + key


def record(place: bytes, text: bytes, key: bytes = b"") -> bytes:
    """A record of the entry with this key in a directory, or of what holds of all entries."""
    return b"%b\0\0%b\0%be" % (place, key, text)


def read(packed: bytes) -> Record:
    """The record that was made so."""
    at = packed.index(b"\0\0")
    end = packed.index(b"\0", at + 2)
    return Record(packed[:at], packed[at + 2 : end], packed[end + 1 : -1])


def directories(
    places: Iterable[bytes], headings: Iterable[bytes], texts: Iterable[bytes]
) -> list[bytes]:
    """The records of directories, or of parts of them: the lines above them, and their texts."""
    return list(map(_DIRECTORY.__mod__, zip(places, headings, texts, strict=True)))


def read_directories(packed: Iterable[bytes], between: bytes = b"") -> bytes:
    """Return the text of directories' records, with something `between` them."""
    return between.join([each[each.index(b"\0\0\0") + 3 : -1] for each in packed])


def place_of(packed: bytes) -> bytes:
    """The place of a record."""
    return packed[: packed.index(b"\0\0")]
