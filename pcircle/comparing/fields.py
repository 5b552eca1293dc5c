"""What two entries can have different: bits, so that an answer is a number, and costs no object.

Answers are `0` for equal entries, else a sum of these bits. Where the kinds differ that is all that
is said. Of a field not all kinds have one: the size is that of regular files, links have no mode,
and what is no device has no `RDEV`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

NAMES: Final = (
    "kind", "size", "mtime", "atime", "ctime", "mode", "owner", "group", "links", "target",
    "content", "xattr", "acl", "holes", "flags", "stripe", "rdev",
)  # fmt: skip
"""The words that users know the fields by, in the order of their bits."""

_BITS = [1 << bit for bit in range(len(NAMES))]
KIND, SIZE, MTIME, ATIME, CTIME, MODE, OWNER, GROUP, LINKS, TARGET, *_MORE = _BITS
CONTENT, XATTR, ACL, HOLES, FLAGS, STRIPE, RDEV = _MORE

NOTHING: Final = 0
QUICK: Final = KIND | SIZE | MTIME
"""What is asked of files whose content is taken to be the same if these are."""
DEFAULT: Final = QUICK | MODE | OWNER | GROUP | LINKS | TARGET | RDEV
"""What two looks, and a reading of each link, can tell."""
ALL: Final = (1 << len(NAMES)) - 1 & ~(ATIME | CTIME)
"""All that a faithful copy has the same: not when it was read, nor when it was made."""

OF_STATUS: Final = KIND | SIZE | MTIME | ATIME | CTIME | MODE | OWNER | GROUP | RDEV
"""What `Comparer` tells."""
OF_DETAILS: Final = TARGET | XATTR | ACL | HOLES | FLAGS | STRIPE
"""What `Details` tells."""


def words_of(fields: int) -> tuple[str, ...]:
    """The names of fields, in their order."""
    return tuple(name for bit, name in enumerate(NAMES) if fields >> bit & 1)


def fields_of(words: Iterable[str]) -> int:
    """The fields of these names, `default` and `all` among them. KeyError of one that is none."""
    known = {name: 1 << bit for bit, name in enumerate(NAMES)} | {"default": DEFAULT, "all": ALL}
    fields = NOTHING
    for word in words:
        fields |= known[word]
    return fields
