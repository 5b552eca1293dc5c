"""The plan of a copy, and its items that travel between ranks.

The plan is decided on rank 0 and is then the same on every rank.

The items are additional to those of the walk. Such an item starts a large file, copies a range of
one, copies or links names of hard-linked inodes, or verifies copies. Every item names its directory
by (root, path), see `pcircle.fs.directories`, and carries its share of the job's `weight` of 1. As
in `pcircle.walk.items`, it also carries the `slot` of its directory. Items that return to a
directory or a file carry its identity (device, inode) on both sides. If the name then belongs to
another entry, the item fails.
"""

import os
from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from pcircle.fs.directories import Directories, bases, capacity_of
from pcircle.jobs.action_log import ActionLines, ActionOutput
from pcircle.jobs.failures import Failure, RecallNotice
from pcircle.ops.checkpoint.plan import JournalPlan
from pcircle.ops.copy.entry.settings import CopySettings, Stamp
from pcircle.walk.attributes import ANY, Attributes
from pcircle.walk.globs import Rule
from pcircle.walk.items import Batch, DirectoryIdentity, Portion, Tree
from pcircle.walk.walker import Scope

ANYWHERE = DirectoryIdentity((0, 0), (0, 0), (0, 0))
"""The identity of a directory that may be any directory."""


def target_of(place: DirectoryIdentity) -> tuple[int, int] | None:
    """Return the identity of a place's target, or None."""
    return None if place is ANYWHERE or place == ANYWHERE else place.target


class SingleRoots(msgspec.Struct, frozen=True, array_like=True, tag="s", gc=False):
    """Copy roots that are not directories, from number `first` up to `end`.

    Their names may differ in the target.
    """

    first: int
    end: int
    weight: float  # of each root
    slot: int = 0


class LargeFileItem(msgspec.Struct, frozen=True, array_like=True, tag="l", gc=False):
    """Copy one file in chunks. `linked` means that its inode has other names.

    `again` means a second start, because its change time has changed. `ahead_bytes` is its size in
    the counters while it waits, or None. `expected` is as in `HardLinkedName`.
    """

    root: int
    path: bytes
    name: bytes
    target_name: bytes
    weight: float
    place: DirectoryIdentity
    linked: bool = False
    again: bool = False
    slot: int = 0
    ahead_bytes: int | None = None
    expected: bytes = b""


class CopyChunk(msgspec.Struct, frozen=True, array_like=True, tag="c", gc=False):
    """Copy a range of a file into its temporary file.

    `sparse` means that the file has holes to look for. Parts of the range begin at multiples of
    `unit_bytes`.
    """

    root: int
    path: bytes
    name: bytes
    temporary: bytes
    source: tuple[int, int]
    target: tuple[int, int]
    offset: int
    length: int
    weight: float
    sparse: bool
    unit_bytes: int


class HardLinkedName(msgspec.Struct, frozen=True, array_like=True, tag="o", gc=False):
    """Copy one name of a hard-linked inode, which had this `stamp` when it was claimed.

    `place` has the file system of the inode. `again` means that the name was claimed before, and
    has since become another file or version. `expected` is the required state of the name in the
    target when it is replaced, see `OverwritePolicy`; empty if any state will do.
    """

    root: int
    path: bytes
    name: bytes
    weight: float
    place: DirectoryIdentity
    stamp: Stamp
    again: bool = False
    slot: int = 0
    expected: bytes = b""


class ClaimedNames(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Names of one directory; `counts` has the `st_nlink` and `stamps` the inode of each.

    `again` and `expected` are as in `HardLinkedName`, and the same for all names.
    """

    root: int
    path: bytes
    place: DirectoryIdentity
    names: bytes
    stamps: tuple[Stamp, ...]
    counts: tuple[int, ...]
    weight: float  # of each name
    again: bool = False
    slot: int = 0
    expected: bytes = b""


class LinkClaim(msgspec.Struct, frozen=True, array_like=True, tag="k", gc=False):
    """Claim names at the home of their inodes; has all claims of an item in any directories."""

    groups: tuple[ClaimedNames, ...]


class FirstName(msgspec.Struct, frozen=True, array_like=True, tag="i", gc=False):
    """Copy an inode under its first name; its home links the other `names`."""

    names: int
    one: HardLinkedName


class HardLinkItem(msgspec.Struct, frozen=True, array_like=True, tag="h", gc=False):
    """Create the copy of `one` as a link to the copy of `first`, which has the mark `made`.

    The copy was made in `epoch`, or by an earlier run; then only the name of `first` is known.
    `copied` is the source of the copy: names of any other file are not linked to it. `seal` belongs
    to the copy, see `pcircle.tools.common.copy_report`.
    """

    one: HardLinkedName
    first: HardLinkedName
    made: int
    copied: Stamp
    epoch: int = 0
    seal: bytes = b""


class CopiedFiles(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Files of one directory whose copies will be verified: `digests` has 16 bytes for each.

    `other_names` were completed with the files and need no verification. `counts` covers the files
    and `other_names`; it is empty if other records include them. If the copy is signed, `entries`
    has the packed entries of all these names.
    """

    root: int
    path: bytes
    place: DirectoryIdentity
    names: bytes
    sizes: tuple[int, ...]
    digests: bytes
    other_names: bytes = b""
    counts: tuple[int, ...] = ()
    entries: bytes = b""
    slot: int = 0


class FileVerification(msgspec.Struct, frozen=True, array_like=True, tag="v", gc=False):
    """Verify all copies that an item has made."""

    groups: tuple[CopiedFiles, ...]


class ChunkVerification(msgspec.Struct, frozen=True, array_like=True, tag="w", gc=False):
    """Verify the copy of a chunk. `blocks` are its digests for the signature."""

    chunk: CopyChunk
    digest: bytes
    blocks: bytes = b""


Item: TypeAlias = (
    Tree
    | Portion
    | Batch
    | SingleRoots
    | LargeFileItem
    | CopyChunk
    | HardLinkedName
    | LinkClaim
    | FirstName
    | HardLinkItem
    | FileVerification
    | ChunkVerification
)


class Remark(msgspec.Struct, frozen=True, array_like=True, tag="r"):
    """A message that is not a failure; the path replaces {} in `text`.

    A text without {} follows the path.
    """

    path: bytes
    text: str


class SkippedSpecial(msgspec.Struct, frozen=True, array_like=True, tag="k"):
    """A special file that was left out of root number `root`, the first of its kind.

    `kind` is empty if an earlier run left it out.
    """

    path: bytes
    kind: str
    root: int


VERIFYING = "verify"
"""The operation in failures of copies that differ from what was copied."""

Notice: TypeAlias = Failure | RecallNotice | Remark | SkippedSpecial | ActionLines


class PartialResult(msgspec.Struct, frozen=True, array_like=True):
    """The result of a part of a directory, or of a file that is copied in chunks.

    Counters count copied entries; a result means that they are complete. With a checkpoint, a part
    belongs to an `epoch` and has its share of the job's `counts`. The other fields are for the
    signature, see `pcircle.tools.common.copy_report`. `runs` are packed entries of the directory,
    `spilled` are runs on this rank's disk, and `signed` is the number of entries including
    subdirectories. `blocks` are digests of a large file.
    """

    counts: tuple[int, ...] = ()
    epoch: int = 0
    runs: tuple[bytes, ...] = ()
    spilled: tuple[tuple[int, int], ...] = ()
    signed: int = 0
    blocks: bytes = b""


NOTHING = PartialResult()
OF_FILE = -1
"""The slot of a large file's own result, before it is added to that of its directory."""


class CopyResult(msgspec.Struct, frozen=True, array_like=True):
    """The result of an item: parts by the slot of their directory.

    `cause` is the error of chunks of a file, or of a name to which others will be linked; `made` is
    the mark of the copy (`target.mark_of`) and `copied` its source.
    """

    slots: dict[int, PartialResult] = {}
    cause: Failure | None = None
    made: int | None = None
    copied: Stamp | None = None

    @property
    def roots(self) -> PartialResult:
        """Return the result of all roots, at the end of a job."""
        return self.slots.get(0, NOTHING)


def source_of(place: DirectoryIdentity) -> tuple[int, int] | None:
    """Return the identity of a place's source, or None."""
    return None if place is ANYWHERE or place == ANYWHERE else place.source


def floor_of(item: Item) -> int:
    """Return the earliest epoch in which the work of an item can count."""
    if isinstance(item, HardLinkItem):
        return max(item.epoch, item.one.place.epoch)
    if isinstance(item, FirstName):
        return item.one.place.epoch
    place: DirectoryIdentity | None = None
    if isinstance(item, Tree | Batch | Portion | LargeFileItem | HardLinkedName):
        place = item.place
    elif isinstance(item, LinkClaim | FileVerification):
        return max(group.place.epoch for group in item.groups)
    return 0 if place is None else place.epoch


DIRECTORY, FILE, LINK, SPECIAL = "directory", "file", "link", "special"


class CopyRoot(msgspec.Struct, frozen=True, array_like=True):
    """One SRC and its destination.

    Each side is a directory, opened as the user named it, and a name in it; an empty target name
    means that the directory itself is the copy. `source_shown` and `target_shown` are the paths for
    messages, and `file_system` is the number of the source's file system. If `source_known` or
    `target_known` is set, the directory must have this device and inode when it is opened.
    """

    source_holder: bytes
    source_name: bytes
    target_holder: bytes
    target_name: bytes
    kind: str
    source_shown: bytes
    target_shown: bytes
    file_system: int = 0
    source_known: tuple[int, int] | None = None
    target_known: tuple[int, int] | None = None


class CopyPlan(CopySettings, frozen=True, kw_only=True):
    """The roots and the resolved options of a copy, and the settings for single entries.

    `tool` is the command. `chunk_bytes` is the size of chunks of large files, None for an adaptive
    size. `directory` is the working directory. `dry` means to change nothing, `say_each` to print
    every entry. With `listed` only the paths of the list with that digest are copied. `rules` and
    `wanted` select entries below the roots, with ages relative to `now_ns`; with `one_file_system`
    mount points are not entered. `bytes_per_s` and `operations_per_s` are limits over all ranks, or
    None. `journal` None means that there is no checkpoint. `verify` means to read every copy again.
    `sign` is the algorithm of the signature. `threads` is the number of worker threads of a rank,
    None for an adaptive number. `acts` is the requested output of actions. With `strict` roots must
    not be reached through links. `retries` means that failures of an earlier copy are retried.
    """

    roots: tuple[CopyRoot, ...]
    tool: str
    chunk_bytes: int | None
    directory: bytes
    dry: bool = False
    say_each: bool = False
    listed: bytes | None = None
    rules: tuple[Rule, ...] = ()
    one_file_system: bool = False
    bytes_per_s: float | None = None
    operations_per_s: float | None = None
    journal: JournalPlan | None = None
    verify: bool = False
    sign: str | None = None
    threads: int | None = None
    wanted: Attributes = ANY
    now_ns: int = 0
    acts: ActionOutput = ActionOutput()
    strict: bool = False
    retries: bool = False

    def shown(self, root: int, path: bytes) -> bytes:
        """Return the path of an entry of the source, beginning as the user typed it."""
        base = self.roots[root]
        if base.kind != DIRECTORY or not path:
            return base.source_shown
        return os.path.join(base.source_shown, path)

    def more_options(self) -> dict[str, bytes]:
        """Return further options that a resumed run must share, encoded."""
        return {}


def scope_of(plan: CopyPlan) -> Scope:
    """Return the part of the sources that the walk covers."""
    return Scope(plan.rules, plan.one_file_system, plan.follow, plan.wanted, plan.now_ns)


def is_in_copy(roots: Sequence[CopyRoot]) -> bool:
    """Return whether the mark of the target is in the copy of the only root, not in its parent."""
    return len(roots) == 1 and roots[0].kind == DIRECTORY


DEFAULT_LARGE_BYTES = 32 << 20
"""Larger files are copied in chunks, unless a chunk size is given."""


def open_sides(
    plan: CopyPlan,
    opened: Callable[[int, os.stat_result], None] | None = None,
    is_first: bool = True,
) -> tuple[Directories, Directories]:
    """Return the directories of the sources and of the targets; `opened` is called for the latter.

    `is_first` is passed to `capacity_of`.
    """
    roots, here = plan.roots, plan.directory
    known = [root.source_known for root in roots], [root.target_known for root in roots]
    sources = bases([(r.source_holder, r.source_name) for r in roots], here, known[0])
    targets = bases([(r.target_holder, r.target_name) for r in roots], here, known[1])
    capacity = capacity_of(is_first=is_first)
    return (
        Directories(sources, capacity, plan.identify, follow=plan.follow, linkless=plan.strict),
        Directories(
            targets, capacity, plan.identify, opened=opened, written=True, linkless=plan.strict
        ),
    )
