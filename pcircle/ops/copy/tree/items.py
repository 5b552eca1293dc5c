"""The plan of a copy, and the items that travel between ranks.

Rank 0 makes the plan, and all ranks use it unchanged.

These items supplement those of the walk. They copy roots that are not directories, start a large
file, copy a range of one, copy or link names of hard-linked inodes, or verify copies. Most items
identify their directory by (root, path) as in `pcircle.fs.directories`, and carry their share of
the job's `weight`, which is 1 in total. As in `pcircle.walk.items`, most also carry the `slot` of
their directory. Items that return to a directory or file carry its identity (device, inode) on both
sides. If the name belongs to another entry by then, the item fails.
"""

import os
from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from pcircle.fs.directories import Directories, bases, capacity_of
from pcircle.jobs.action_log import ActionLines, ActionOutput
from pcircle.jobs.failures import Failure, RecallNotice
from pcircle.ops.checkpoint.plan import JournalPlan
from pcircle.ops.copy.entry.settings import CopySettings, FileRange, Stamp
from pcircle.walk.attributes import ANY, AttributeFilter
from pcircle.walk.globs import Rule
from pcircle.walk.items import Batch, DirectoryIdentity, Portion, Tree
from pcircle.walk.walker import Scope


class SingleRoots(msgspec.Struct, frozen=True, array_like=True, tag="s", gc=False):
    """Copy roots that are not directories, numbered from `first` to `end` - 1.

    Their names in the target may differ.
    """

    first: int
    end: int
    weight: float  # share of each root
    slot: int = 0

    def halves_after(self, number: int) -> list["SingleRoots"]:
        """Return up to two items for the roots after this one, so that another rank can help."""
        after = number + 1
        middle = (after + self.end + 1) // 2
        parts = (after, middle), (middle, self.end)
        return [SingleRoots(first, end, self.weight) for first, end in parts if first < end]


class LargeFileItem(msgspec.Struct, frozen=True, array_like=True, tag="l", gc=False):
    """Copy one file in chunks. `linked` means that its inode has other names.

    `again` means that the file is started a second time, because its change time changed during the
    copy. `ahead_bytes` is the size that the counters include while the item is queued, or None.
    `expected` is as in `HardLinkedName`.
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


class CopyChunk(FileRange, frozen=True, array_like=True, tag="c", gc=False):
    """Copy a range of a file into its temporary file.

    If the range is split, the parts begin at multiples of `unit_bytes`.
    """

    root: int
    path: bytes
    unit_bytes: int


class HardLinkedName(msgspec.Struct, frozen=True, array_like=True, tag="o", gc=False):
    """Copy one name of a hard-linked inode; it had this `stamp` when it was claimed.

    `place` contains the number of the inode's file system. `again` means that the name was claimed
    before, but has since become another file or version. `expected` is the state that the name must
    have in the target when it is replaced (see `OverwritePolicy`), or empty for any state.
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
    """The claimed names of one directory, with the `st_nlink` (`counts`) and stamp of each.

    `again` and `expected` are as in `HardLinkedName`, with the same value for all names.
    """

    root: int
    path: bytes
    place: DirectoryIdentity
    names: bytes
    stamps: tuple[Stamp, ...]
    counts: tuple[int, ...]
    weight: float  # share of each name
    again: bool = False
    slot: int = 0
    expected: bytes = b""


class LinkClaim(msgspec.Struct, frozen=True, array_like=True, tag="k", gc=False):
    """Claim names at the home of their inodes; one claim covers several directories."""

    groups: tuple[ClaimedNames, ...]


class FirstName(msgspec.Struct, frozen=True, array_like=True, tag="i", gc=False):
    """Copy an inode with `names` names under its first name; its home links the others."""

    names: int
    one: HardLinkedName


class HardLinkItem(msgspec.Struct, frozen=True, array_like=True, tag="h", gc=False):
    """Create the copy of `one` as a hard link to the copy of `first`, whose mark is `made`.

    The copy was made in `epoch`, or by an earlier run, in which case only the name of `first` is
    known. `copied` is the source of the copy; names of any other file are not linked to the copy.
    `seal` belongs to the copy; see `pcircle.tools.common.copy_console`.
    """

    one: HardLinkedName
    first: HardLinkedName
    made: int
    copied: Stamp
    epoch: int = 0
    seal: bytes = b""


class CopiedFiles(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Files of one directory whose copies will be verified.

    `digests` is the concatenation of their digests, 16 bytes each. `other_names` were completed
    together with the files and need no verification. `counts` covers the files and `other_names`,
    and is empty if other records include them. If the copy is signed, `entries` contains the packed
    entries of all these names.
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
    """Verify all copies that one item has made."""

    groups: tuple[CopiedFiles, ...]


class ChunkVerification(msgspec.Struct, frozen=True, array_like=True, tag="w", gc=False):
    """Verify the copy of a chunk; `blocks` contains its digests for the signature."""

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
    """A message other than a failure; the path replaces {} in `text`.

    If `text` does not contain {}, the path precedes it.
    """

    path: bytes
    text: str


class SkippedSpecial(msgspec.Struct, frozen=True, array_like=True, tag="k"):
    """The first special file of its kind that a thread skipped in root number `root`.

    `kind` is empty if an earlier run skipped the file.
    """

    path: bytes
    kind: str
    root: int


VERIFYING = "verify"
"""The operation that is reported if verification of a copy fails."""

Notice: TypeAlias = Failure | RecallNotice | Remark | SkippedSpecial | ActionLines


class PartialResult(msgspec.Struct, frozen=True, array_like=True):
    """The result of a part of a directory, or of a part of a large file.

    Counters count entries when they are copied; a result means that they are complete. If there is
    a checkpoint, a result belongs to an `epoch` and contains its share of the job's `counts`. The
    other fields are for the signature; see `pcircle.tools.common.copy_console`. `runs` contains
    packed entries of the directory, and `spilled` the positions of runs on the disk of this rank.
    `signed` is the number of entries, including those in subdirectories. `blocks` contains digests
    of a large file.
    """

    counts: tuple[int, ...] = ()
    epoch: int = 0
    runs: tuple[bytes, ...] = ()
    spilled: tuple[tuple[int, int], ...] = ()
    signed: int = 0
    blocks: bytes = b""


NOTHING = PartialResult()
OF_FILE = -1
"""The slot for the result of a large file until it is added to the result of its directory."""


class FinishedCopy(msgspec.Struct, frozen=True, array_like=True):
    """A copy to which other names may be linked: its mark (`target.mark_of`), and its source."""

    made: int
    source: Stamp


class CopyResult(msgspec.Struct, frozen=True, array_like=True):
    """The result of an item: partial results by the slot of their directory.

    `cause` is the failure of a chunk, or of a name to which other names will be linked, and `copy`
    is the copy of such a name.
    """

    slots: dict[int, PartialResult] = {}
    cause: Failure | None = None
    copy: FinishedCopy | None = None

    @property
    def roots(self) -> PartialResult:
        """The result of all roots, at the end of a job."""
        return self.slots.get(0, NOTHING)


def floor_of(item: Item) -> int:
    """Return the earliest epoch in which the work of an item can count."""
    if isinstance(item, HardLinkItem):
        return max(item.epoch, item.one.place.epoch)
    if isinstance(item, FirstName):
        return item.one.place.epoch
    if isinstance(item, Tree | Batch | Portion | LargeFileItem | HardLinkedName):
        return item.place.epoch
    if isinstance(item, LinkClaim | FileVerification):
        return max(group.place.epoch for group in item.groups)
    return 0


DIRECTORY, FILE, LINK, SPECIAL = "directory", "file", "link", "special"


class CopyRoot(msgspec.Struct, frozen=True, array_like=True):
    """One SRC and its destination.

    Each side consists of a directory, which is opened by the path that the user specified, and a
    name in it. An empty target name means that the directory itself is the copy. `source_shown` and
    `target_shown` are the paths for messages, and `file_system` is the number of the source's file
    system. If `source_known` or `target_known` is set, the directory must have this device and
    inode when it is opened.
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

    `tool` is the name of the command, and `directory` the working directory. `chunk_bytes` is the
    size of the chunks of large files, or None if it is adaptive. `dry` requests a dry run, and
    `say_each` a message for every entry. `listed` is the digest of the list of paths to copy, or
    None. `rules` and `attribute_filter` select entries below the roots, with ages relative to
    `now_ns`; if `one_file_system` is true, mount points are not entered. `bytes_per_s` and
    `operations_per_s` are limits for all ranks together, or None. `polite` is the maximum share of
    time, from 0 to 1, in which a rank works, or None. `journal` is None if there is no checkpoint.
    `verify` means that every copy is read back. `sign` is the algorithm of the signature. `threads`
    is the number of worker threads per rank, or None if it is adaptive. `acts` specifies the output
    of actions. If `strict` is true, roots must not be reached through links. `retries` means that
    failures of an earlier copy are retried.
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
    polite: float | None = None
    journal: JournalPlan | None = None
    verify: bool = False
    sign: str | None = None
    threads: int | None = None
    attribute_filter: AttributeFilter = ANY
    now_ns: int = 0
    acts: ActionOutput = ActionOutput()
    strict: bool = False
    retries: bool = False

    def shown(self, root: int, path: bytes) -> bytes:
        """Return the path of a source entry, beginning with the path that the user typed."""
        base = self.roots[root]
        if base.kind != DIRECTORY or not path:
            return base.source_shown
        return os.path.join(base.source_shown, path)


def scope_of(plan: CopyPlan) -> Scope:
    """Return the part of the sources that the walk must cover."""
    return Scope(plan.rules, plan.one_file_system, plan.follow, plan.attribute_filter, plan.now_ns)


def is_in_copy(roots: Sequence[CopyRoot]) -> bool:
    """Return whether the mark of the target is stored in the copy instead of its parent."""
    return len(roots) == 1 and roots[0].kind == DIRECTORY


DEFAULT_LARGE_BYTES = 32 << 20
"""Files larger than this are copied in chunks; a smaller chunk size lowers this limit."""


def open_sides(
    plan: CopyPlan,
    opened: Callable[[int, os.stat_result], None] | None = None,
    is_first: bool = True,
) -> tuple[Directories, Directories]:
    """Return the directories of the sources and targets; `opened` is called for each target.

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
