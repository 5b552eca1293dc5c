"""The plan, items and counters of a signature job; rank 0 makes the plan for all ranks.

In addition to the items of the walk, there is an item for each large file and for each chunk of
such a file. The `weight` of an item is its share of the job; the weight of the job is 1. An item
that reopens a directory or a file contains its identity (device and inode), and fails if the name
now belongs to another entry.
"""

from __future__ import annotations

import os
from typing import Literal, TypeAlias

import msgspec

from pcircle.fs.directories import Directories
from pcircle.jobs.action_log import ActionLines, ActionLog, ActionOutput
from pcircle.jobs.failures import Failure, RecallNotice
from pcircle.jobs.tree_task import TreeCounters, TreePlan
from pcircle.ops.digest.digests import TRAILER_BYTES
from pcircle.walk.attributes import ANY
from pcircle.walk.items import (
    Batch,
    DirectoryIdentity,
    Gather,
    Identity,
    Merge,
    Portion,
    Seal,
    Tree,
)
from pcircle.walk.roots import open_roots
from pcircle.walk.walker import Scope


class LargeFileEntry(msgspec.Struct, frozen=True, array_like=True, tag="l", gc=False):
    """An item that signs one file in chunks."""

    root: int
    path: bytes
    name: bytes
    weight: float
    place: DirectoryIdentity
    slot: int


class FileChunk(msgspec.Struct, frozen=True, array_like=True, tag="c", gc=False):
    """An item that reads a range of a file; `sparse` means that the range may contain holes."""

    root: int
    path: bytes
    name: bytes
    file: Identity
    offset: int
    length: int
    weight: float
    sparse: bool


Item: TypeAlias = (
    Tree | Portion | Batch | LargeFileEntry | FileChunk | Gather[Tree | Batch] | Seal | Merge
)


class Difference(msgspec.Struct, frozen=True, array_like=True, tag="c"):
    """A notice that an entry is "changed", "missing", "new" or "corrupt"."""

    what: str
    path: bytes


class Digest(msgspec.Struct, frozen=True, array_like=True, tag="g"):
    """A notice with the hexadecimal digest of a whole file. `path` begins with PATH."""

    path: bytes
    digest: bytes


Notice: TypeAlias = Failure | RecallNotice | Difference | ActionLines


class SignedPart(msgspec.Struct, frozen=True, array_like=True):
    """The entries of a part of a directory; see `pcircle.ops.digest.signer.SignedResult`."""

    runs: tuple[bytes, ...] = ()
    spilled: tuple[tuple[int, int], ...] = ()
    signed: int = 0
    blocks: bytes = b""


NOTHING = SignedPart()


class SumResult(msgspec.Struct, frozen=True, array_like=True):
    """The result of an item: parts by the slot of their directory.

    The result of a chunk also contains the `blocks` of its file, or the `cause` of a failure.
    """

    slots: dict[int, SignedPart] = {}
    cause: Failure | None = None
    blocks: bytes = b""

    @property
    def roots(self) -> SignedPart:
        """Return the entries of the roots, at the end of a job."""
        return self.slots.get(0, NOTHING)


class SumCounters(TreeCounters):
    """The counters of a thread, a rank or a job. The main thread only reads them.

    `recalled` counts the offline files that were read, and `atime_not_kept` the files whose access
    times could not be kept as requested. Files in a manifest or list are either
    `compared` or `missing`. Compared files whose content is not read are also `unchecked`.
    """

    recalled: int
    atime_not_kept: int
    compared: int
    unchecked: int
    missing: int


BLOCK_BYTES = 4 << 20
LARGE_BYTES = 32 << 20
"""The size above which files are read in chunks, unless the chunk size is smaller."""


class OwnFile(msgspec.Struct, frozen=True, array_like=True):
    """A manifest of this run below the root; with `parts`, `name` is the prefix of its part files.

    Such files are excluded, because a manifest cannot contain its own digest.
    """

    directory: bytes
    name: bytes
    parts: bool = False

    def names(self, name: bytes) -> bool:
        """Return whether a name in the directory belongs to the manifest or its parts."""
        return name == self.name or (self.parts and name.startswith(self.name + b"-"))


Against: TypeAlias = Literal["check", "quick", "update", "rot"]


class SumPlan(TreePlan, frozen=True, kw_only=True):
    """The plan of a signature: the roots and the resolved options.

    Files of more than `large_bytes` are read in chunks of `chunk_bytes`, or of adaptive size if
    that is None. `listing` means that a list selects entries. `own` contains the manifests of this
    run below the root; these are excluded.

    `parts` is the path prefix of the parts of a manifest, to which each of the `ranks` appends its
    number. `against` is the manifest to compare with, and `mode` is the type of comparison. If
    `whole` is set, a digest of each file is computed, and if `listed` is set, these digests are
    compared with a checksum list. `checksum` is the algorithm of the checksums in a new manifest.
    """

    algorithm: str
    large_bytes: int
    chunk_bytes: int | None
    noatime: bool = False
    listing: bool = False
    own: tuple[OwnFile, ...] = ()
    parts: bytes | None = None
    ranks: int = 1
    against: bytes | None = None
    mode: Against = "check"
    whole: bool = False
    listed: bool = False
    verbose: int = 0
    checksum: str = ""

    @property
    def scope(self) -> Scope:
        """Return the scope of the walk."""
        return Scope(
            self.rules,
            self.one_file_system,
            attribute_filter=self.attribute_filter,
            now_ns=self.now_ns,
        )

    @property
    def whole_tree(self) -> bool:
        """Return whether no option and no file of this run excludes entries."""
        excludes = self.rules or self.one_file_system or self.listing or self.own
        return not excludes and self.attribute_filter == ANY

    @property
    def detailed(self) -> bool:
        """Return whether sizes and times are stored with the digests."""
        return self.parts is not None or self.against is not None

    @property
    def trailer_bytes(self) -> int:
        """Return the length of the data that is stored with each digest."""
        if not self.checksum:
            return TRAILER_BYTES if self.detailed else 0
        from pcircle.ops.digest.checksums import digest_bytes

        return TRAILER_BYTES + digest_bytes(self.checksum)

    def action_log(self, rank: int) -> ActionLog | None:
        """Return the log of the entries that `--verbose` lists, or None."""
        if not self.verbose:
            return None
        signs = self.against is None or self.mode == "update"
        word = "read" if self.whole else "signed" if signs else "checked"
        shown = tuple(root.shown for root in self.roots)
        return ActionLog("fsum", ActionOutput(word=word), rank, shown=shown)

    def shown(self, root: int, path: bytes) -> bytes:
        """Return the path of an entry as shown to the user.

        It begins with PATH, except in a checksum list.
        """
        base = self.roots[root]
        if self.listed:
            return path
        return base.shown if base.name or not path else os.path.join(base.shown, path)

    def reach(self, *, is_first: bool) -> Directories:
        """Return the directory cache of one thread; `is_first` is true for the first thread."""
        return open_roots(self.roots, self.directory, self.identify, is_first=is_first)

    def identify(self, status: os.stat_result) -> tuple[int, int]:
        """Return the identity of a file that is valid on all ranks: device and inode.

        The device number of a network file system depends on the node, so a job on several nodes
        identifies files by the inode alone.
        """
        return (status.st_dev if self.one_node else 0), status.st_ino
