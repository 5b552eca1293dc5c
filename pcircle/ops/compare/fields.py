"""The fields in which two entries can differ, represented as the bits of an integer.

The result of a comparison is 0 for equal entries, and otherwise a sum of these bits. If the file
types differ, only `KIND` is set. Some fields do not apply to all types: only regular files have a
size, links have no mode, and only devices have `RDEV`.

`itemize` formats a result like rsync's `--itemize-changes`, in eleven columns. The first column is
`>` for a file whose content would be sent, and `c` for any other entry that would be recreated. It
is `h` for an entry whose group of hard links differs, and `.` if only attributes differ. The second
column is the file type. The others stand for `c`hecksum or target, `s`ize, `t`ime, `p`ermissions,
`o`wner, `g`roup, `u`se (access time), `a`ccess control list, and e`x`tended attributes. Fields for
which rsync has no column are appended as words, each after a comma. An entry that exists on one
side only is shown as `+A` or `+B` and its type.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

NAMES: Final = (
    "kind", "size", "mtime", "atime", "ctime", "mode", "owner", "group", "links", "target",
    "content", "xattr", "acl", "holes", "flags", "stripe", "rdev",
)  # fmt: skip
"""The user-visible names of the fields, in the order of their bits."""

_BITS = [1 << bit for bit in range(len(NAMES))]
KIND, SIZE, MTIME, ATIME, CTIME, MODE, OWNER, GROUP, LINKS, TARGET, *_MORE = _BITS
CONTENT, XATTR, ACL, HOLES, FLAGS, STRIPE, RDEV = _MORE

NOTHING: Final = 0
QUICK: Final = KIND | SIZE | MTIME
"""The fields that determine whether the contents of two files are assumed to be equal."""
DEFAULT: Final = QUICK | MODE | OWNER | GROUP | LINKS | TARGET | RDEV
"""The fields that are known from the statuses and link targets of both sides."""
ALL: Final = (1 << len(NAMES)) - 1 & ~(ATIME | CTIME)
"""All fields except the access and change times."""

WORDS: Final = (*NAMES, "default", "all")
"""The words that `parse_fields` accepts."""

OF_STATUS: Final = KIND | SIZE | MTIME | ATIME | CTIME | MODE | OWNER | GROUP | RDEV
"""The fields that `StatusComparer` compares."""
OF_DETAILS: Final = TARGET | XATTR | ACL | HOLES | FLAGS | STRIPE
"""The fields that `DetailComparer` compares."""
_LETTERS: Final = {
    stat.S_IFREG: "f",
    stat.S_IFDIR: "d",
    stat.S_IFLNK: "L",
    stat.S_IFCHR: "D",
    stat.S_IFBLK: "D",
    stat.S_IFIFO: "S",
    stat.S_IFSOCK: "S",
}
_COLUMNS: Final = (
    (CONTENT | TARGET | RDEV, "c"),
    (SIZE, "s"),
    (MTIME, "t"),
    (MODE, "p"),
    (OWNER, "o"),
    (GROUP, "g"),
    (ATIME, "u"),
    (ACL, "a"),
    (XATTR, "x"),
)
_WORDS: Final = KIND | CTIME | LINKS | HOLES | FLAGS | STRIPE


def field_names(fields: int) -> tuple[str, ...]:
    """Return the names of fields in order."""
    return tuple(name for bit, name in enumerate(NAMES) if fields >> bit & 1)


def parse_fields(words: Iterable[str]) -> int:
    """Return the fields with these names, which may include `default` and `all`.

    Raises KeyError if a name is unknown.
    """
    known: dict[str, int] = dict(zip(WORDS, (*_BITS, DEFAULT, ALL), strict=True))
    fields = NOTHING
    for word in words:
        fields |= known[word]
    return fields


@lru_cache(maxsize=1024)
def itemize(different: int, mode: int) -> str:
    """Format the differences of an entry whose mode on side A is `mode`."""
    letter = kind_letter(mode)
    if different & KIND:
        first, columns = (">" if letter == "f" else "c"), "+++++++++"
    else:
        first = "."
        if different & LINKS:
            first = "h"
        elif different & (TARGET | RDEV):
            first = "c"
        elif letter == "f" and different & (CONTENT | SIZE | MTIME):
            first = ">"
        columns = "".join(shown if different & field else "." for field, shown in _COLUMNS)
    words = "".join(f",{word}" for word in field_names(different & _WORDS))
    return f"{first}{letter}{columns}{words}"


@lru_cache(maxsize=64)
def itemize_one_sided(side: int, mode: int) -> str:
    """Format an entry that exists only on side 0 (A) or side 1 (B)."""
    return f"+{'AB'[side]}{kind_letter(mode)}++++++++"


def kind_letter(mode: int) -> str:
    """Return rsync's letter for the file type in `mode`."""
    return _LETTERS.get(stat.S_IFMT(mode), "?")
