"""Results in the format of rsync's `--itemize-changes`, eleven columns per entry.

The first column is `>` for a file whose content would be sent, `c` for any other entry that would
be recreated, `h` for an entry whose group of hard links differs, and `.` if only attributes differ.
The second column is the file type. The others stand for `c`hecksum or target, `s`ize, `t`ime,
`p`ermissions, `o`wner, `g`roup, `u`se (access time), `a`ccess control list, and e`x`tended
attributes. Fields for which rsync has no column are appended as words, each after a comma. An entry
that exists on one side only is shown as `+A` or `+B` and its type.
"""

from __future__ import annotations

import stat
from functools import lru_cache
from typing import Final

from pcircle.ops.compare.fields import (
    ACL,
    ATIME,
    CONTENT,
    CTIME,
    FLAGS,
    GROUP,
    HOLES,
    KIND,
    LINKS,
    MODE,
    MTIME,
    OWNER,
    RDEV,
    SIZE,
    STRIPE,
    TARGET,
    XATTR,
    field_names,
)

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
