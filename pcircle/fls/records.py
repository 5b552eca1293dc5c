r"""What ranks find, as records that are sorted as they are: a place, text and a letter.

The place is that of a directory, which is the keys of all that it lies in, and of an entry in it,
which is its key, or nothing for what holds of the directory as a whole and so comes first. NULs
keep these apart. The letter tells directories that are done from all else.

A sorted run ends each record with a slash (`pcircle.fs.sorting`), so in text slashes are written
otherwise. A directory's heading, which has some, ends with a NUL: the text behind it has none as a
rule, and stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import add, itemgetter
from typing import NamedTuple

OPERANDS = b"0"
"""The place of PATHs that are listed themselves, before all directories: no other begins so."""
DIRECTORY = ord("d")
tag_of: Callable[[bytes], int] = itemgetter(-1)
"""The letter of a record: `DIRECTORY` or another one."""
_DIRECTORY = b"%b\0\0\0%b\0%bd"


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
    return b"%b\0\0%b\0%be" % (place, key, _safe(text))


def read(packed: bytes) -> Record:
    """The record that was made so."""
    at = packed.index(b"\0\0")
    end = packed.index(b"\0", at + 2)
    return Record(packed[:at], packed[at + 2 : end], _plain(packed[end + 1 : -1]))


def directories(
    places: Iterable[bytes], headings: Iterable[bytes], texts: Sequence[bytes]
) -> list[bytes]:
    """The records of directories, or of parts of them: the lines above them, and their texts."""
    written: Iterable[bytes] = texts
    together = b"".join(texts)
    if b"/" in together or b"\1" in together:
        written = map(_safe, texts)
    return list(map(_DIRECTORY.__mod__, zip(places, map(_safe, headings), written, strict=True)))


def read_directories(packed: Sequence[bytes]) -> list[bytes]:
    """The text of directories' records, each below its heading."""
    parts = [each[each.index(b"\0\0") + 3 : -1].partition(b"\0") for each in packed]
    headings = _plain(b"\0".join([heading for heading, _, _ in parts])).split(b"\0")
    return list(map(add, headings, [_plain(text) for _, _, text in parts]))


def place_of(packed: bytes) -> bytes:
    """The place of a record."""
    return packed[: packed.index(b"\0\0")]


def _safe(text: bytes) -> bytes:
    if b"\1" in text:
        text = text.replace(b"\1", b"\1\3")
    return text.replace(b"/", b"\1\2")


def _plain(text: bytes) -> bytes:
    if b"\1" in text:
        text = text.replace(b"\1\2", b"/").replace(b"\1\3", b"\1")
    return text
