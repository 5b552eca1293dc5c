"""The selection of entries of a directory by rules and filters.

Excluded entries are not seen again, and an excluded directory is not entered.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Callable, Sequence

from pcircle.fs.directories import join_path
from pcircle.fs.entry_errors import LOOP, EntryError
from pcircle.fs.scan import Block
from pcircle.walk.attributes import ANY, Attributes, OfflineCounter, chooser_of
from pcircle.walk.globs import Chooser, Rule
from pcircle.walk.items import Identity

_ONE = struct.Struct("<QQ")


def descent(above: bytes, identity: Identity) -> bytes:
    """Return the `ancestors` of entries of a directory below `above`. EntryError for a cycle."""
    one = _ONE.pack(*identity)
    if any(above.startswith(one, at) for at in range(0, len(above), _ONE.size)):
        raise EntryError(LOOP, "it leads back to a directory above it")
    return above + one


def follow(block: Block, directory_fd: int) -> None:
    """Sort links by the kinds of their targets."""
    links, block.links = block.links, []
    for name in links:
        try:
            mode = os.stat(name, dir_fd=directory_fd).st_mode
        except OSError:
            mode = stat.S_IFREG  # opening it will fail, which is reported
        if stat.S_ISDIR(mode):
            block.directories.append(name)
        elif stat.S_ISREG(mode):
            block.files.append(name)
        else:
            block.specials.append(name)


Choose = Callable[[Block, bytes, int], None]


def choosing(
    rules: Sequence[Rule],
    wanted: Attributes = ANY,
    now_ns: int = 0,
    *,
    follow: bool = False,
    tally: OfflineCounter | None = None,
) -> Choose:
    """Return a function that removes excluded entries from a block of a directory.

    Rules need its path, attributes its descriptor. Ages are relative to `now_ns`, and with `follow`
    links stand for their targets. Files that are excluded as offline are counted in the `tally`.
    """
    steps: list[Choose] = []
    if rules:
        chooser = Chooser(rules)
        steps.append(lambda block, path, fd: _choose(block, path, chooser))
    if wanted != ANY:
        steps.append(chooser_of(wanted, now_ns, follow=follow, tally=tally))

    def choose(block: Block, path: bytes, fd: int) -> None:
        for step in steps:
            step(block, path, fd)

    return choose


def _choose(block: Block, path: bytes, chooser: Chooser) -> None:
    if chooser.by_name:
        path = b""

    def choose(names: Sequence[str], *, directory: bool) -> list[str]:
        chooses = chooser.chooses
        return [n for n in names if chooses(join_path(path, os.fsencode(n)), directory=directory)]

    block.directories = choose(block.directories, directory=True)
    block.files = choose(block.files, directory=False)
    block.links = choose(block.links, directory=False)
    block.specials = choose(block.specials, directory=False)
