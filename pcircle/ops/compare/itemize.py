"""Formats results like rsync's `--itemize-changes`, in eleven columns per entry.

The first column is `>` for a file whose content would be sent, and `c` for any other entry that
would be recreated. It is `h` for an entry whose group of hard links differs, and `.` if only
attributes differ. The second column is the file type. The others stand for `c`hecksum or target,
`s`ize, `t`ime, `p`ermissions, `o`wner, `g`roup, `u`se (access time), `a`ccess control list, and
e`x`tended attributes. Fields for which rsync has no column are appended as words, each after a
comma. An entry that exists on one side only is shown as `+A` or `+B` and its type.
"""

from __future__ import annotations

import stat
from functools import lru_cache
from typing import Final

from pcircle.ops.compare import fields

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
    (fields.CONTENT | fields.TARGET | fields.RDEV, "c"),
    (fields.SIZE, "s"),
    (fields.MTIME, "t"),
    (fields.MODE, "p"),
    (fields.OWNER, "o"),
    (fields.GROUP, "g"),
    (fields.ATIME, "u"),
    (fields.ACL, "a"),
    (fields.XATTR, "x"),
)
_WORDS: Final = (
    fields.KIND | fields.CTIME | fields.LINKS | fields.HOLES | fields.FLAGS | fields.STRIPE
)


@lru_cache(maxsize=1024)
def itemize(different: int, mode: int) -> str:
    """Format the differences of an entry whose mode on side A is `mode`."""
    letter = kind_letter(mode)
    if different & fields.KIND:
        first, columns = (">" if letter == "f" else "c"), "+++++++++"
    else:
        first = "."
        if different & fields.LINKS:
            first = "h"
        elif different & (fields.TARGET | fields.RDEV):
            first = "c"
        elif letter == "f" and different & (fields.CONTENT | fields.SIZE | fields.MTIME):
            first = ">"
        columns = "".join(shown if different & field else "." for field, shown in _COLUMNS)
    words = "".join(f",{word}" for word in fields.field_names(different & _WORDS))
    return f"{first}{letter}{columns}{words}"


@lru_cache(maxsize=64)
def itemize_one_sided(side: int, mode: int) -> str:
    """Format an entry that exists only on side 0 (A) or side 1 (B)."""
    return f"+{'AB'[side]}{kind_letter(mode)}++++++++"


def kind_letter(mode: int) -> str:
    """Return rsync's letter for the file type in `mode`."""
    return _LETTERS.get(stat.S_IFMT(mode), "?")
