"""fcp's units of work, as they travel between ranks, besides those of the walk.

A large file to begin, a range of one, names of inodes that have several, copies to be read
again. Every item names its directory by (root, path), see `pcircle.fs.directories`, and carries
its share of the job's `weight` of 1, and as of `pcircle.walk.items` the `slot` of its directory.
Items that come back to a directory or a file carry its identity (device, inode) on both sides: if
something else has that name by then, the entry fails.
"""

# Annotations are evaluated here, once: otherwise msgspec compiles each of them in every rank.
from typing import TypeAlias

import msgspec

from pcircle.copying.settings import Stamp
from pcircle.tool.actions import Lines
from pcircle.tool.failures import Failure, Recalled
from pcircle.walk.items import Batch, Place, Portion, Tree

ANYWHERE = Place((0, 0), (0, 0), (0, 0))
"""In place of a place that is not known."""


def target_of(place: Place) -> tuple[int, int] | None:
    """The identity of a place's target, None if it is not known."""
    return None if place is ANYWHERE or place == ANYWHERE else place.target


class Singles(msgspec.Struct, frozen=True, array_like=True, tag="s", gc=False):
    """Copy roots that are not directories, from number `first` up to `end`.

    Their names may differ in the target.
    """

    first: int
    end: int
    weight: float  # of each root
    slot: int = 0


class Large(msgspec.Struct, frozen=True, array_like=True, tag="l", gc=False):
    """Copy one file in chunks. `linked` tells that its inode has other names.

    `again` tells that it is begun for the second time, since its change time has moved.
    `ahead_bytes` are what the counters know of it while it waits, None if they don't. `expected`
    as of `One`.
    """

    root: int
    path: bytes
    name: bytes
    target_name: bytes
    weight: float
    place: Place
    linked: bool = False
    again: bool = False
    slot: int = 0
    ahead_bytes: int | None = None
    expected: bytes = b""


class Chunk(msgspec.Struct, frozen=True, array_like=True, tag="c", gc=False):
    """Copy a range of a file into the temporary file that stands for it.

    `sparse` tells that the file has holes, which are worth looking for. Parts
    of it begin at multiples of `unit_bytes`.
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


class One(msgspec.Struct, frozen=True, array_like=True, tag="o", gc=False):
    """Copy one name of an inode that has several, which was `stamp` when it was claimed.

    `place` has the file system of the inode itself. `again` tells that the name was claimed once
    before, and had become another file or version when its turn came. `expected` is what the name
    must be in the target when it is replaced, see `Keeper`; empty if that does not matter.
    """

    root: int
    path: bytes
    name: bytes
    weight: float
    place: Place
    stamp: Stamp
    again: bool = False
    slot: int = 0
    expected: bytes = b""


class Claimed(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Names of one directory, each with its `st_nlink`; `stamps` are of the inodes.

    `again` and `expected` as of `One`, the same for all of them.
    """

    root: int
    path: bytes
    place: Place
    names: bytes
    stamps: tuple[Stamp, ...]
    counts: tuple[int, ...]
    weight: float  # of each name
    again: bool = False
    slot: int = 0
    expected: bytes = b""


class Claim(msgspec.Struct, frozen=True, array_like=True, tag="k", gc=False):
    """For the home of these inodes: all that an item has to claim there, of any directories."""

    groups: tuple[Claimed, ...]


class First(msgspec.Struct, frozen=True, array_like=True, tag="i", gc=False):
    """At an inode's home: copy it under its first name; further `names` will be links."""

    names: int
    one: One


class Links(msgspec.Struct, frozen=True, array_like=True, tag="h", gc=False):
    """Make a link to the copy `made` of `first` where the copy of `one` would be.

    The copy was made in `epoch`, by a job that may have been an earlier run
    of this one: then `first` is known by its name alone. `copied` is what it is a copy of:
    a name that was not that, and is not, is none of its names.
    `seal` is the copy's, see `pcircle.transfer.reports.signing`.
    """

    one: One
    first: One
    made: int
    copied: Stamp
    epoch: int = 0
    seal: bytes = b""


class Copied(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Files of one directory whose copies are read again: `digests` has 16 bytes for each.

    `others` are names that were done with them and need no reading, `counts` what
    all of them came to, empty if that is recorded by others; `entries` are all of
    them, packed, if the copy is signed.
    """

    root: int
    path: bytes
    place: Place
    names: bytes
    sizes: tuple[int, ...]
    digests: bytes
    others: bytes = b""
    counts: tuple[int, ...] = ()
    entries: bytes = b""
    slot: int = 0


class Verify(msgspec.Struct, frozen=True, array_like=True, tag="v", gc=False):
    """Read copies again: all that an item has made."""

    groups: tuple[Copied, ...]


class Reread(msgspec.Struct, frozen=True, array_like=True, tag="w", gc=False):
    """Read a chunk's copy again. `blocks` are its digests for the signature."""

    chunk: Chunk
    digest: bytes
    blocks: bytes = b""


Item: TypeAlias = (
    Tree | Portion | Batch | Singles | Large | Chunk | One | Claim | First | Links | Verify | Reread
)


class Remark(msgspec.Struct, frozen=True, array_like=True, tag="r"):
    """Something the user should know that is no failure; the path goes where `text` has {}.

    A text without is about the path, and is put behind it.
    """

    path: bytes
    text: str


class Skipped(msgspec.Struct, frozen=True, array_like=True, tag="k"):
    """A special file that is left out of the copy of root number `root`, the first of its kind.

    `kind` is empty if it is not known which files an earlier run has left out.
    """

    path: bytes
    kind: str
    root: int


VERIFYING = "verify"
"""What was tried, of a failure whose copy is not what was copied."""

Notice: TypeAlias = Failure | Recalled | Remark | Skipped | Lines


class Part(msgspec.Struct, frozen=True, array_like=True):
    """What came of a part of a directory, or of a file that is copied in chunks.

    What was copied is in the ranks' counters; results say *that* it is. Where a
    checkpoint is kept, it is of an `epoch`, and has the part of the job's
    `counts` that it came to.
    The rest is of `pcircle.transfer.reports.signing`: packed entries of the directory, `runs` and
    those on this rank's shelf, `signed` how many entries these are including subdirectories;
    `blocks` are digests of a large file's.
    """

    counts: tuple[int, ...] = ()
    epoch: int = 0
    runs: tuple[bytes, ...] = ()
    spilled: tuple[tuple[int, int], ...] = ()
    signed: int = 0
    blocks: bytes = b""


NOTHING = Part()
OF_FILE = -1
"""The slot of what came of a large file: it is its own, and not yet its directory's."""


class Done(msgspec.Struct, frozen=True, array_like=True):
    """An item's result: parts by the slot of their directory.

    `cause` says for the chunks of a file, and for a name that others will be
    linked to, why it failed, if it did; `made` the mark of the copy (`target.mark_of`) and
    `copied` what it is a copy of.
    """

    slots: dict[int, Part] = {}
    cause: Failure | None = None
    made: int | None = None
    copied: Stamp | None = None

    @property
    def roots(self) -> Part:
        """Of a whole job: what came of all roots."""
        return self.slots.get(0, NOTHING)


def source_of(place: Place) -> tuple[int, int] | None:
    """The identity of a place's source, None if it is not known."""
    return None if place is ANYWHERE or place == ANYWHERE else place.source


def floor_of(item: Item) -> int:
    """The epoch before which nothing that the item does can count."""
    if isinstance(item, Links):
        return max(item.epoch, item.one.place.epoch)
    if isinstance(item, First):
        return item.one.place.epoch
    place: Place | None = None
    if isinstance(item, Tree | Batch | Portion | Large | One):
        place = item.place
    elif isinstance(item, Claim | Verify):
        return max(group.place.epoch for group in item.groups)
    return 0 if place is None else place.epoch
