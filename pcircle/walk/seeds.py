"""The first items of a walk."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence

from pcircle.fs.directories import HOLDER
from pcircle.fs.path_list_slice import Listed
from pcircle.walk.items import Batch, Tree
from pcircle.walk.roots import Root
from pcircle.walk.visitor import Names, Tally


def seeds(
    roots: Sequence[Root], tally: Tally, only: Sequence[Listed | None] | None = None
) -> Iterator[Tree | Batch]:
    """Yield an item for each root, which is counted; `only` has the listed paths of each."""
    weight = 1.0 / max(1, len(roots))
    tally.found += len(roots)
    for number, root in enumerate(roots):
        if root.name:
            names = kind_of_root(root.holder, root.name)
            kinds = [b"".join(kind) for kind in (names.files, names.links, names.specials)]
            files, links, specials = kinds
            yield Batch(number, HOLDER, files, links, weight, None, specials)
        else:
            tally.scans_due += 1
            yield Tree(number, b"", weight, only=None if only is None else only[number])


def kind_of_root(holder: bytes, name: bytes) -> Names:
    """Return a root that is not a directory, by its kind."""
    try:
        mode = os.stat(os.path.join(holder, name), follow_symlinks=False).st_mode
    except OSError:
        mode = stat.S_IFREG  # reading it reports the error
    if stat.S_ISREG(mode):
        return Names([name], [], [])
    return Names([], [name], []) if stat.S_ISLNK(mode) else Names([], [], [name])
