"""Which entries of a directory are meant: rules and filters, applied to what was read of it.

What they leave out is never seen again, and a directory that is left out
is not entered.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from pcircle.fs.directories import join_path
from pcircle.fs.scan import Block
from pcircle.walk.attributes import ANY, Attributes, Tally, chooser_of
from pcircle.walk.globs import Chooser, Rule

Choose = Callable[[Block, bytes, int], None]


def choosing(
    rules: Sequence[Rule],
    wanted: Attributes = ANY,
    now_ns: int = 0,
    *,
    follow: bool = False,
    tally: Tally | None = None,
) -> Choose:
    """A function that leaves out of a block of a directory, by its path, what the rules do.

    Then what has not the attributes that are wanted, for which it gets the directory's descriptor;
    `now_ns` is what times are counted from, and with `follow` links are what they lead to. Files
    that are left out as offline are counted in the `tally`.
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

    def some(names: Sequence[str], *, directory: bool) -> list[str]:
        chooses = chooser.chooses
        return [n for n in names if chooses(join_path(path, os.fsencode(n)), directory=directory)]

    block.directories = some(block.directories, directory=True)
    block.files = some(block.files, directory=False)
    block.links = some(block.links, directory=False)
    block.specials = some(block.specials, directory=False)
