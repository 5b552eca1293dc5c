"""What a copy is to do, decided once on rank 0 and then the same on every rank."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import msgspec

from pcircle.checkpoint.plan import JournalPlan
from pcircle.fcp.existing import Existing
from pcircle.fcp.items import Stamp
from pcircle.fs.data import When
from pcircle.fs.directories import Directories, bases, capacity_of
from pcircle.fs.globs import Rule
from pcircle.fs.metadata import Keep

DIRECTORY, FILE, LINK, SPECIAL = "directory", "file", "link", "special"

_WIRE_BITS = (1 << 63) - 1  # of a time: some file systems keep any

CHUNK_UNIT_BYTES = 4 << 20
"""Chunks are multiples of this: the block of the dataset signature."""


class Root(msgspec.Struct, frozen=True, array_like=True):
    """One SRC and where its copy goes.

    Both sides are a directory, opened as the user named it, and a name in it;
    an empty target name means that the directory itself is the copy. `shown`
    are the two paths as the user will recognise them, `file_system` numbers
    the source's.
    """

    source_holder: bytes
    source_name: bytes
    target_holder: bytes
    target_name: bytes
    kind: str
    source_shown: bytes
    target_shown: bytes
    file_system: int = 0


class Striping(msgspec.Struct, frozen=True, array_like=True):
    """What is done about Lustre layouts; see `pcircle.fcp.layouts`.

    `source` and `target` tell which side is on Lustre. New files get `layout`,
    or with `keep` their source's, as directories do unless it is one of
    `defaults`, those of whole file systems.
    """

    source: bool = False
    target: bool = False
    keep: bool = False
    layout: bytes = b""
    defaults: tuple[bytes, ...] = ()

    @property
    def gives(self) -> bool:
        """Whether files are to be given layouts."""
        return self.keep or bool(self.layout)


class Plan(msgspec.Struct, frozen=True):
    """The roots and the resolved options of a copy.

    `large_bytes` is the size above which files are copied in chunks;
    `chunk_bytes` the chunks' size, None to adapt it. `umask` is the mask that
    was in force and `directory` the working directory, `token` marks this
    job's temporary names; `one_node` tells that all ranks share a node. `dry` means to
    touch nothing, `say_each` to name every entry. `reflink` and `sparse` are
    the options of these names. `existing` says what becomes of what is there
    already. With `listed` nothing is copied but what the list of that digest names. `rules` choose
    what is copied of what is below the roots; `follow` symbolic links there to
    what they stand for; `one_file_system`: of a mount point copy the directory
    alone. `bytes_per_s` and `operations_per_s` hold over all ranks; None: no limit.
    `journal` None means that no checkpoint is kept. `verify`: read every copy again.
    `sign` is the algorithm of the signature that is wanted. `striping` is about Lustre.
    `threads` is how many worker threads each rank has, None: as many as pay.
    """

    roots: tuple[Root, ...]
    keep: Keep
    large_bytes: int
    chunk_bytes: int | None
    token: bytes
    umask: int
    directory: bytes
    one_node: bool = True
    dry: bool = False
    say_each: bool = False
    reflink: When = "auto"
    sparse: When = "auto"
    existing: Existing = Existing()
    listed: bytes | None = None
    rules: tuple[Rule, ...] = ()
    follow: bool = False
    one_file_system: bool = False
    bytes_per_s: float | None = None
    operations_per_s: float | None = None
    journal: JournalPlan | None = None
    verify: bool = False
    sign: str | None = None
    striping: Striping = Striping()
    threads: int | None = None

    def is_ours(self, old: os.stat_result) -> bool:
        """Whether something in the target is taken for the work of an earlier run of this copy.

        It was changed since that began. It may not be whole, nor on disk, so no option keeps it.
        """
        journal = self.journal
        return journal is not None and bool(journal.stale) and old.st_ctime_ns >= journal.since_ns

    def identify(self, status: os.stat_result) -> tuple[int, int]:
        """What tells one file from another on all ranks: device and inode.

        Nodes number the same network file system's device each in their own
        way, so among several nodes the inode alone must do.
        """
        return (status.st_dev if self.one_node else 0), status.st_ino

    def stamp(self, status: os.stat_result) -> Stamp:
        """Which file this is, and which version of it, for all ranks."""
        times_ns = status.st_mtime_ns & _WIRE_BITS, status.st_ctime_ns & _WIRE_BITS
        return Stamp(*self.identify(status), status.st_size, *times_ns)


def is_in_copy(roots: Sequence[Root]) -> bool:
    """Whether a mark is left in the copy of the only root, rather than in what holds the copies."""
    return len(roots) == 1 and roots[0].kind == DIRECTORY


DEFAULT_LARGE_BYTES = 32 << 20
"""Files above this are copied in chunks unless a chunk size is given."""


def open_sides(
    plan: Plan, opened: Callable[[int, os.stat_result], None] | None = None, is_first: bool = True
) -> tuple[Directories, Directories]:
    """The directories of the sources and those of the targets; `opened` is told the latter.

    `is_first` as of `capacity_of`.
    """
    sources = bases([(r.source_holder, r.source_name) for r in plan.roots], plan.directory)
    targets = bases([(r.target_holder, r.target_name) for r in plan.roots], plan.directory)
    each = capacity_of(is_first=is_first)
    return (
        Directories(sources, each, plan.identify, follow=plan.follow),
        Directories(targets, each, plan.identify, opened=opened, written=True),
    )
