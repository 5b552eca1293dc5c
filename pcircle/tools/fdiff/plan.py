"""The plan of a comparison, its counters, and its items."""

# Annotations are evaluated here, once: otherwise msgspec compiles each of them in every rank.
from typing import Final

import msgspec

from pcircle.core.units import Timestamp
from pcircle.jobs.action_log import ActionOutput
from pcircle.jobs.tree_task import TreeCounters, TreePlan
from pcircle.ops.compare.fields import CONTENT, NAMES
from pcircle.walk.items import Batch, DirectoryIdentity, Portion, Tree

PAIRS, ONLY_A, ONLY_B = 0, 1, 2
"""The numbers of the roots: one walk of both sides, and a walk of each single side."""


class DiffPlan(TreePlan, frozen=True, kw_only=True):
    """The plan of a comparison. The `roots` are A, A and B; see `PAIRS`.

    With `reports_all`, entries below a directory of one side are reported, not just the directory.
    With `enters` these directories are walked. `quiet` prints no entries. `moves` pairs files of
    one side, with `by_content` by digest. `matches` has the expressions of -o, and `end` terminates
    paths in their lists. With a `manifest`, a tree is compared with it: the tree, side number
    `tree_side`, is then the first root. Two manifests need no walk.
    """

    fields: int
    window_ns: int | None = None
    by_names: bool = False
    one_sided: bool = False
    reports_all: bool = False
    enters: bool = False
    first: bool = False
    quiet: bool = False
    moves: bool = False
    by_content: bool = False
    acts: ActionOutput = ActionOutput()
    matches: tuple[tuple[tuple[tuple[str, str], ...], ...], ...] = ()
    end: bytes = b"\n"
    ranks: int = 1
    manifest: bytes = b""
    tree_side: int = 0
    walks: bool = True

    @property
    def reads(self) -> bool:
        """Return whether content is compared."""
        return bool(self.fields & CONTENT)


class DiffCounters(TreeCounters):
    """Entries that differ, entries of one side, and differences by field.

    `files` and the counters of other kinds include both sides, and count a pair once. `beside`
    counts directories whose counterpart is another kind. `recalled` counts offline files that were
    read.
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


class LargeFilePair(msgspec.Struct, frozen=True, array_like=True, tag="l", gc=False):
    """Compare the content of a pair of large files; `different` has the differences so far."""

    path: bytes
    name: bytes
    place: DirectoryIdentity | None
    slot: int
    different: int


class PairChunk(msgspec.Struct, frozen=True, array_like=True, tag="c", gc=False):
    """Compare a range of two files. `sparse` means that both files have holes."""

    path: bytes
    name: bytes
    place: DirectoryIdentity | None
    offset: int
    length: int
    sparse: bool


class ExtraneousScan(msgspec.Struct, frozen=True, array_like=True, tag="e", gc=False):
    """Find the entries of a directory of B that A's large directory lacks."""

    path: bytes
    place: DirectoryIdentity
    slot: int


class ExtraneousLookup(msgspec.Struct, frozen=True, array_like=True, tag="q", gc=False):
    """Look up names of a directory of B in A."""

    path: bytes
    names: bytes
    place: DirectoryIdentity
    slot: int


DiffItem = Tree | Batch | Portion | LargeFilePair | PairChunk | ExtraneousScan | ExtraneousLookup


class LinkedPair(msgspec.Struct, frozen=True, array_like=True, tag="h"):
    """A pair with several names on one side: its files, and the differences so far."""

    path: bytes
    a: tuple[int, int]
    b: tuple[int, int]
    different: int
    mode: int
    size: int


class OneSidedFile(msgspec.Struct, frozen=True, array_like=True, tag="o"):
    """A file of one side that may have moved. With `reported` it is listed if it has not moved."""

    side: int
    path: bytes
    size: int
    mtime: Timestamp
    digest: bytes
    mode: int
    reported: bool


class MatchedPaths(msgspec.Struct, frozen=True, array_like=True, tag="m"):
    """Paths for the list of an -o option; `unlisted` counts paths that contain the terminator."""

    number: int
    paths: bytes
    unlisted: int = 0
