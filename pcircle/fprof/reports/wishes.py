"""What is to be told of a profile, as far as it is not told anyway."""

from __future__ import annotations

import msgspec

DIMENSIONS = ("age", "owner", "group", "ext", "depth", "dirsize")


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """What to tell.

    `bins`: the name of a histogram of sizes, or its `edges`; `by`: dimensions; `top`: how long
    lists of the best are, 0 for none; `blocks`: pairs of block and subblock, and `in_inode` the
    size up to which data would lie within inodes, all in bytes; `sparse`: files with holes,
    `stripe`: layouts; `pieces`: how many to compress; `depth`: down to which directories are
    listed, `tree`: the largest of them are. `everything`: all that costs no look into
    files is to be added up.
    """

    bins: str = ""
    edges: tuple[int, ...] = ()
    by: tuple[str, ...] = ()
    top: int = 0
    blocks: tuple[tuple[int, int], ...] = ()
    in_inode: int | None = None
    sparse: bool = False
    stripe: bool = False
    pieces: int = 0
    depth: int | None = None
    tree: bool = False
    everything: bool = False

    def facets(self) -> set[str]:
        """What a walk has to add up for this; see `pcircle.fprof.profile.collect.FACETS`."""
        some = {
            "top": bool(self.top),
            "tree": self.tree or self.depth is not None,
            "blocks": bool(self.blocks),
            "sparse": self.sparse,
            "stripe": self.stripe,
            "compress": bool(self.pieces),
        }
        found = {*self.by, *(name for name, wanted in some.items() if wanted)}
        if self.everything:
            from pcircle.fprof.profile.collect import FACETS

            found |= set(FACETS)
        return found
