r"""What ranks find, as records that are sorted as they are: a place, a tag and text.

The place is that of a directory, which is the keys of all that it lies in, and of an entry in it,
which is its key, or nothing for what holds of the directory as a whole and so comes first. NULs
keep these apart. A sorted run ends each record with a slash (`pcircle.fs.sorting`), so in text
slashes are written otherwise.
"""

from __future__ import annotations

from typing import NamedTuple

OPERANDS = b"0"
"""The place of PATHs that are listed themselves, before all directories."""


class Record(NamedTuple):
    """A record, read again."""

    place: bytes
    tag: bytes
    text: bytes


def root_place(number: int) -> bytes:
    """The place of a PATH that is a directory, of this number."""
    return b"1%08x" % number


def place_in(place: bytes, key: bytes) -> bytes:
    """The place of a directory that has this key in another one."""
    return place + b"\0" + key


def record(place: bytes, tag: bytes, text: bytes, key: bytes = b"") -> bytes:
    """A record of a directory, or of the entry with this key in it."""
    if b"\1" in text:
        text = text.replace(b"\1", b"\1\3")
    return b"%b\0\0%b\0%b%b" % (place, key, tag, text.replace(b"/", b"\1\2"))


def read(packed: bytes) -> Record:
    """The record that was made so."""
    at = packed.index(b"\0\0")
    end = packed.index(b"\0", at + 2)
    return Record(packed[:at], packed[end + 1 : end + 2], _plain(packed[end + 2 :]))


def beginning(place: bytes) -> bytes:
    """What all records of a place begin with, and no others."""
    return place + b"\0\0"


def columns(packed: bytes, begun: int) -> list[bytes]:
    """The text of an entry's record, whose beginning has so many bytes, at the NULs in it."""
    return _plain(packed[packed.index(b"\0", begun) + 2 :]).split(b"\0")


def _plain(text: bytes) -> bytes:
    if b"\1" in text:
        text = text.replace(b"\1\2", b"/").replace(b"\1\3", b"\1")
    return text
