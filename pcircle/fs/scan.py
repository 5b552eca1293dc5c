"""Reading a source directory, in blocks, by kind.

A directory of ten entries and one of a hundred million come out the same way:
as blocks of at most `BLOCK_ENTRIES` names or a fifth of a second, so that
others can begin with the first names while the rest is still being read.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pcircle.fs.listed import Listed

BLOCK_ENTRIES = 1 << 16
_BLOCK_S = 0.2
_LOOK_EVERY = 1024


class Block:
    """Names of one directory, by kind. `last` tells that the directory ends here.

    `below` is what is wanted of some of its directories; of the others it is all.
    """

    __slots__ = ("below", "directories", "files", "last", "links", "specials")

    def __init__(self) -> None:
        self.files: list[str] = []
        self.links: list[str] = []
        self.directories: list[str] = []
        self.specials: list[str] = []
        self.last = False
        self.below: dict[str, Listed | None] = {}

    def __len__(self) -> int:
        return len(self.files) + len(self.links) + len(self.directories) + len(self.specials)


def blocks(directory_fd: int) -> Iterator[Block]:
    """The directory's entries; at least one block. OSError if it can't be read.

    A type that the directory does not tell is asked for, without following.
    """
    block = Block()
    until_s = time.monotonic() + _BLOCK_S
    with os.scandir(directory_fd) as entries:
        for count, entry in enumerate(entries, 1):
            if entry.is_file(follow_symlinks=False):
                block.files.append(entry.name)
            elif entry.is_dir(follow_symlinks=False):
                block.directories.append(entry.name)
            elif entry.is_symlink():
                block.links.append(entry.name)
            else:
                block.specials.append(entry.name)
            if not count % _LOOK_EVERY and (
                not count % BLOCK_ENTRIES or time.monotonic() > until_s
            ):
                yield block
                block = Block()
                until_s = time.monotonic() + _BLOCK_S
    block.last = True
    yield block
