"""The optional contents of a report."""

from __future__ import annotations

import msgspec

DIMENSIONS = ("age", "owner", "group", "ext", "depth", "dirsize")


class ReportOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The requested contents of a report.

    `bins` is the name of a histogram of sizes, unless `edges` has its edges. `by` are dimensions,
    and `top` is the length of top lists, 0 for none. `blocks` are pairs of block and subblock, and
    `in_inode` is the largest data within inodes, in bytes. `sparse` requests files with holes, and
    `stripe` layouts. `pieces` is the size of the sample to compress. `depth` is the depth of listed
    directories, and `tree` requests the largest directories. `everything` requests all sums for
    which no file must be examined.
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
        """Return the names of the `FACETS` that the walk must compute."""
        optional = {
            "top": bool(self.top),
            "tree": self.tree or self.depth is not None,
            "blocks": bool(self.blocks),
            "sparse": self.sparse,
            "stripe": self.stripe,
            "compress": bool(self.pieces),
        }
        found = {*self.by, *(name for name, wanted in optional.items() if wanted)}
        if self.everything:
            from pcircle.tools.fprof.profile.collect import FACETS

            found |= set(FACETS)
        return found
