"""What a comparison is to do, what it counts, and what travels between its ranks."""

# Annotations are evaluated here, once: otherwise msgspec compiles each of them in every rank.
from typing import Final

import msgspec

from pcircle.comparing.fields import CONTENT, NAMES
from pcircle.timestamps import Timestamp
from pcircle.tool.actions import Wanted
from pcircle.tool.trees import TreeCounters, TreePlan
from pcircle.walk.items import Place

PAIRS, ONLY_A, ONLY_B = 0, 1, 2
"""The walks, as numbers of roots: of both sides, and of what one side has alone."""


class DiffPlan(TreePlan, frozen=True, kw_only=True):
    """The `roots` are A, A and B: see `PAIRS`.

    `each` entry of a directory of one side is told, not just that directory; `enters`: it is walked
    for whatever reason. `quiet`: nothing is printed of entries. `moves` pairs files of one side,
    with `by_content` by what is in them. `matches` are the expressions of -o, and `end` is what
    each path of their lists ends with. With a `manifest`, a tree is compared with that: the tree,
    side number `tree_side`, is the first root then. Of two manifests nothing is walked.
    """

    fields: int
    window_ns: int | None = None
    by_names: bool = False
    one_sided: bool = False
    each: bool = False
    enters: bool = False
    first: bool = False
    quiet: bool = False
    moves: bool = False
    by_content: bool = False
    acts: Wanted = Wanted()
    matches: tuple[tuple[tuple[tuple[str, str], ...], ...], ...] = ()
    end: bytes = b"\n"
    ranks: int = 1
    manifest: bytes = b""
    tree_side: int = 0
    walks: bool = True

    @property
    def reads(self) -> bool:
        """Whether content is compared."""
        return bool(self.fields & CONTENT)


class Counters(TreeCounters):
    """Entries that differ, and that one side has alone; of those that differ, in what.

    `files` and the like are all that was looked at on either side, a pair counting once; `beside`
    are directories that count although they are half of a pair of two kinds; `recalled` are files
    that are read although they are offline.
    """

    recalled: int
    different: int
    only_a: int
    only_b: int
    moved: int
    beside: int
    different_kind: int
    different_size: int
    different_mtime: int
    different_atime: int
    different_ctime: int
    different_mode: int
    different_owner: int
    different_group: int
    different_links: int
    different_target: int
    different_content: int
    different_xattr: int
    different_acl: int
    different_holes: int
    different_flags: int
    different_stripe: int
    different_rdev: int


DIFFERENT: Final = tuple(f"different_{name}" for name in NAMES)
"""The counters of fields, in the order of their bits."""


class Large(msgspec.Struct, frozen=True, array_like=True, tag="l", gc=False):
    """Compare the content of a pair of large files, of which `different` is known already."""

    path: bytes
    name: bytes
    place: Place | None
    slot: int
    different: int


class Chunk(msgspec.Struct, frozen=True, array_like=True, tag="c", gc=False):
    """Compare a range of two files. `sparse`: both have holes, which are worth looking for."""

    path: bytes
    name: bytes
    place: Place | None
    offset: int
    length: int
    sparse: bool


class Extras(msgspec.Struct, frozen=True, array_like=True, tag="e", gc=False):
    """Find what a directory of B has more than the large one of A."""

    path: bytes
    place: Place
    slot: int


class Ask(msgspec.Struct, frozen=True, array_like=True, tag="q", gc=False):
    """Ask A for these names of a directory of B."""

    path: bytes
    names: bytes
    place: Place
    slot: int


class Linked(msgspec.Struct, frozen=True, array_like=True, tag="h"):
    """A pair of which one side has several names: which files they are, and what differs so far."""

    path: bytes
    a: tuple[int, int]
    b: tuple[int, int]
    different: int
    mode: int
    size: int


class Alone(msgspec.Struct, frozen=True, array_like=True, tag="o"):
    """A file that one side has alone, for it may have moved. `told`: it is told if it has not."""

    side: int
    path: bytes
    size: int
    mtime: Timestamp
    digest: bytes
    mode: int
    told: bool


class Matched(msgspec.Struct, frozen=True, array_like=True, tag="m"):
    """Paths for the list of an -o, each with its end; `unlisted` are those that contain it."""

    number: int
    paths: bytes
    unlisted: int = 0
