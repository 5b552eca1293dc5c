"""The plan of a comparison, its counters, and its items."""

# This module does not postpone the evaluation of annotations, because msgspec would then compile
# each of them on every rank.
from typing import Final

import msgspec

from pcircle.core.units import Timestamp
from pcircle.jobs.action_log import ActionOutput
from pcircle.jobs.tree_task import TreeCounters, TreePlan
from pcircle.ops.compare.fields import CONTENT, NAMES
from pcircle.walk.items import Batch, DirectoryIdentity, Portion, Tree

PAIRS, ONLY_A, ONLY_B = 0, 1, 2
"""The numbers of the roots. They select a walk of both sides or of only one side."""


class Labels(msgspec.Struct, frozen=True, array_like=True):
    """The words for an entry of A, an entry of B, a pair that differs, and a moved file."""

    only_a: str
    only_b: str
    differs: str
    moved: str


class DiffPlan(TreePlan, frozen=True, kw_only=True):
    """The plan of a comparison.

    The `roots` are A, A and B, numbered by `PAIRS`, `ONLY_A` and `ONLY_B`. If `enters` is set,
    directories that exist on one side only are walked. If `reports_all` is set, each entry below
    such a directory is reported. If `quiet` is set, no entries are printed. Lines are in words if
    there are `labels`, otherwise in rsync's columns. If `moves` is set,
    files of the two sides are paired by size and time, or by digest if `by_content` is set.
    `matches` contains the expressions of -o, and `end` terminates the paths in their lists. If
    there is a `manifest`, a tree is compared with it. The tree is side number `tree_side` and the
    first root. If both sides are manifests, `walks` is false.
    """

    fields: int
    window_ns: int | None = None
    by_names: bool = False
    one_sided: bool = False
    reports_all: bool = False
    enters: bool = False
    first: bool = False
    quiet: bool = False
    noatime: bool = False
    labels: Labels | None = None
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
    """Counters of entries that differ, of entries that one side lacks, and of differences by field.

    `files` and the counters of other kinds cover both sides and count a pair once. `beside` counts
    directories whose counterpart on the other side is not a directory. `atime_not_kept` counts
    files whose access times could not be kept as requested, and `recalled` offline files that were
    read.
    """

    recalled: int
    atime_not_kept: int
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
    """Compare the content of a pair of large files; `different` holds the differences so far."""

    path: bytes
    name: bytes
    place: DirectoryIdentity
    slot: int
    different: int


class PairChunk(msgspec.Struct, frozen=True, array_like=True, tag="c", gc=False):
    """Compare a range of two files. If `sparse` is set, both may have holes."""

    path: bytes
    name: bytes
    place: DirectoryIdentity
    offset: int
    length: int
    sparse: bool


class ExtraneousScan(msgspec.Struct, frozen=True, array_like=True, tag="e", gc=False):
    """Find the entries in a directory of B that the corresponding large directory of A lacks."""

    path: bytes
    place: DirectoryIdentity
    slot: int


class ExtraneousLookup(msgspec.Struct, frozen=True, array_like=True, tag="q", gc=False):
    """Look up names of a directory of B in the corresponding directory of A."""

    path: bytes
    names: bytes
    place: DirectoryIdentity
    slot: int


DiffItem = Tree | Batch | Portion | LargeFilePair | PairChunk | ExtraneousScan | ExtraneousLookup


class LinkedPair(msgspec.Struct, frozen=True, array_like=True, tag="h"):
    """A pair that has several hard links on at least one side.

    `a` and `b` identify its files, and `different` holds the differences so far.
    """

    path: bytes
    a: tuple[int, int]
    b: tuple[int, int]
    different: int
    mode: int
    size: int


class OneSidedFile(msgspec.Struct, frozen=True, array_like=True, tag="o"):
    """A file that exists on one side only and may have moved.

    If it has not moved, it is listed if `reported` is set.
    """

    side: int
    path: bytes
    size: int
    mtime: Timestamp
    digest: bytes
    mode: int
    reported: bool


class MatchedPaths(msgspec.Struct, frozen=True, array_like=True, tag="m"):
    """Paths for the list of an -o option.

    `unlisted` counts the paths that are omitted because they contain the terminator.
    """

    number: int
    paths: bytes
    unlisted: int = 0
