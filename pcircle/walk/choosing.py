"""Which entries of a directory are meant: rules, applied to what was read of it.

What the rules leave out is never seen again, and a directory that is left out
is not entered.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from pcircle.fs.directories import join_path
from pcircle.fs.scan import Block
from pcircle.walk.globs import Chooser, Rule


def choosing(rules: Sequence[Rule]) -> Callable[[Block, bytes], None]:
    """A function that leaves out of a block of a directory, by its path, what the rules do."""
    if not rules:
        return lambda block, path: None
    chooser = Chooser(rules)
    return lambda block, path: _choose(block, path, chooser)


def _choose(block: Block, path: bytes, chooser: Chooser) -> None:
    if chooser.by_name:
        path = b""

    def some(names: Sequence[str], *, directory: bool) -> list[str]:
        chooses = chooser.chooses
        return [n for n in names if chooses(join_path(path, os.fsencode(n)), directory=directory)]

    block.directories = some(block.directories, directory=True)
    block.files = some(block.files, directory=False)
    block.links = some(block.links, directory=False)
    block.specials = some(block.specials, directory=False)
