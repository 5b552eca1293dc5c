"""The fields in which two entries can differ, represented as the bits of an integer.

The result of a comparison is 0 for equal entries, and otherwise a sum of these bits. If the file
types differ, only `KIND` is set. Some fields do not apply to all types: only regular files have a
size, links have no mode, and only devices have `RDEV`.
"""

from __future__ import annotations

from collections.abc import Iterable
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
