"""An answer as rsync's `--itemize-changes` shows it: eleven columns of one entry.

The first column is `>` for a file whose content would be sent, `c` for another entry that has to be
made anew, `h` for a link of another group, `.` where attributes alone differ. The second is the
kind. Then `c`hecksum or target, `s`ize, `t`ime, `p`ermissions, `o`wner, `g`roup, `u`se (access
time), `a`ccess control list, e`x`tended attributes. What rsync has no column for follows as words,
each after a comma. An entry of one side alone is `+A` or `+B`, and its kind.
"""

from __future__ import annotations

import stat
from functools import lru_cache
from typing import Final

from pcircle.comparing.fields import (
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
    words_of,
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
def itemized(different: int, mode: int) -> str:
    """What an entry of that mode on side A has different on side B."""
    letter = letter_of(mode)
    if different & KIND:
        first, rest = (">" if letter == "f" else "c"), "+++++++++"
    else:
        first = "."
        if different & LINKS:
            first = "h"
        elif different & (TARGET | RDEV):
            first = "c"
        elif letter == "f" and different & (CONTENT | SIZE | MTIME):
            first = ">"
        rest = "".join(shown if different & field else "." for field, shown in _COLUMNS)
    words = "".join(f",{word}" for word in words_of(different & _WORDS))
    return f"{first}{letter}{rest}{words}"


@lru_cache(maxsize=64)
def one_sided(side: int, mode: int) -> str:
    """Of an entry that side 0, A, or side 1, B, has alone."""
    return f"+{'AB'[side]}{letter_of(mode)}++++++++"


def letter_of(mode: int) -> str:
    """The letter of a kind, as rsync has it."""
    return _LETTERS.get(stat.S_IFMT(mode), "?")
