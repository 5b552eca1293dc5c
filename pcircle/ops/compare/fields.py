"""The fields in which two entries can differ, as bits, so that a result is an integer.

A result is 0 for equal entries, otherwise a sum of these bits. If the kinds differ, no other bit is
set. Not every kind has every field: only regular files have a size, links have no mode, and only
devices have `RDEV`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

NAMES: Final = (
    "kind", "size", "mtime", "atime", "ctime", "mode", "owner", "group", "links", "target",
    "content", "xattr", "acl", "holes", "flags", "stripe", "rdev",
)  # fmt: skip
"""The names of the fields for users, in the order of their bits."""

_BITS = [1 << bit for bit in range(len(NAMES))]
KIND, SIZE, MTIME, ATIME, CTIME, MODE, OWNER, GROUP, LINKS, TARGET, *_MORE = _BITS
CONTENT, XATTR, ACL, HOLES, FLAGS, STRIPE, RDEV = _MORE

NOTHING: Final = 0
QUICK: Final = KIND | SIZE | MTIME
"""The fields that decide whether the contents of two files are assumed to be equal."""
DEFAULT: Final = QUICK | MODE | OWNER | GROUP | LINKS | TARGET | RDEV
"""The fields that are known from both statuses and link targets."""
ALL: Final = (1 << len(NAMES)) - 1 & ~(ATIME | CTIME)
"""All fields that a faithful copy preserves, which excludes access and change time."""

OF_STATUS: Final = KIND | SIZE | MTIME | ATIME | CTIME | MODE | OWNER | GROUP | RDEV
"""The fields that `StatusComparer` compares."""
OF_DETAILS: Final = TARGET | XATTR | ACL | HOLES | FLAGS | STRIPE
"""The fields that `DetailComparer` compares."""


def field_names(fields: int) -> tuple[str, ...]:
    """Return the names of fields in order."""
    return tuple(name for bit, name in enumerate(NAMES) if fields >> bit & 1)


def parse_fields(words: Iterable[str]) -> int:
    """Return the fields with these names, which may be `default` or `all`. KeyError if unknown."""
    known = {name: 1 << bit for bit, name in enumerate(NAMES)} | {"default": DEFAULT, "all": ALL}
    fields = NOTHING
    for word in words:
        fields |= known[word]
    return fields
