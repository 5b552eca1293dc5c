"""The interface of a tool to the walk: its work at each step.

The walk reaches, reads, filters, divides and completes directories, on one side or on two; a
visitor processes what is found. Its methods run on the worker's thread, one directory at a time,
from `enter` to the end of its `names`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

from pcircle.fs.directories import Lease
from pcircle.fs.scan import Block, DirectoryBatch, blocks
from pcircle.runtime import Context
from pcircle.walk.items import DirectoryIdentity
from pcircle.walk.open_directory import ItemContext, Open

P = TypeVar("P")


class Where(Protocol):
    """A parent directory, in the form of an `Open` and a `Batch`."""

    @property
    def root(self) -> int: ...
    @property
    def path(self) -> bytes: ...
    @property
    def weight(self) -> float: ...
    @property
    def place(self) -> DirectoryIdentity | None: ...
    @property
    def slot(self) -> int: ...


class WalkCounters(Protocol):
    """The counters of the walk, see the counters of the tools."""

    found: int
    scans_due: int
    offline: int
    files: int
    weight: float

    def done_at_once(self, directories: int, files: int, weight: float) -> None: ...


class DirectoryScan(NamedTuple):
    """How the walk reads small directories for `Visitor.process_directories`.

    A directory is small if it holds at most `max_entries`, all of which are regular files. The
    directories of a batch together hold at most `max_batch_entries` where each holds fewer.
    `look_up` looks up the entries, `keep_open` keeps the descriptors of the directories, and `sort`
    sorts the entries of each directory by name. A directory must be on the file system of its
    parent; with `any_device` it may be on any, and its own status is not known. With `one_mount`
    it must be on the same mount as its parent.
    """

    max_entries: int
    max_batch_entries: int
    look_up: bool = False
    keep_open: bool = False
    sort: bool = False
    any_device: bool = False
    one_mount: bool = False

    def read(self, parent: Lease, names: list[bytes]) -> DirectoryBatch:
        """Open and list the first of these subdirectories."""
        return DirectoryBatch(
            parent.fd,
            names,
            -1 if self.any_device else parent.opened.status.st_dev,
            max_entries=self.max_entries,
            max_all=self.max_batch_entries,
            looks=self.look_up,
            keeps=self.keep_open,
            sorts=self.sort,
            beneath=self.one_mount,
        )


class Names:
    """Names of one directory other than directories, by kind."""

    __slots__ = ("files", "links", "specials")

    def __init__(self, files: list[bytes], links: list[bytes], specials: list[bytes]) -> None:
        self.files = files
        self.links = links
        self.specials = specials

    def __len__(self) -> int:
        return len(self.files) + len(self.links) + len(self.specials)

    def all(self) -> list[bytes]:
        """Return all names."""
        return self.links + self.specials + self.files


class Visitor(ABC, Generic[P]):
    """A tool's part in the walk. P is the type of results.

    A tool declares in its methods which items it spawns: `Context[object]` accepts all of them.
    An OSError raised by `enter`, `meant` or `names` fails the open directory.
    """

    nothing: ClassVar[Any]
    """The empty result."""
    batch_names: ClassVar[int] = 512
    """The number of names that the item processes itself; further names are handed out."""

    in_place: bool = False
    """True if the item processes all names itself, as they are read."""

    @abstractmethod
    def enter(self, opened: Open[P], source: Lease, holder: Open[P] | None) -> Lease | None:
        """Process an open directory before it is read; set its `place`.

        Return its lease on the other side. `holder` is its parent, whose leases are held; None for
        a root.
        """

    def listed(self, opened: Open[P], source: Lease) -> Iterator[Block]:
        """Return the entries of an open directory, before any filter. OSError."""
        return blocks(source.fd)

    def meant(self, opened: Open[P], blocks: Iterable[Block], source: Lease) -> Iterable[Block]:
        """Return the blocks of a directory without entries that the tool's own rules exclude."""
        return blocks

    def known(self, opened: Open[P], context: Context[object]) -> P | None:
        """Return the result of a directory that need not be entered, or None."""
        return None

    scan: DirectoryScan | None = None
    """How small directories are read, if `process_directories` can process any."""

    def scan_of(self, above: Open[P]) -> DirectoryScan | None:
        """Return how the next small directories in `above` are read; None if the walk enters each.

        Called before each batch.
        """
        return self.scan

    def select_directories(
        self, above: Open[P], names: list[bytes], context: ItemContext[P]
    ) -> tuple[list[bytes], list[bytes]]:
        """Divide subdirectories of `above`: names to scan, and names that the walk enters."""
        return names, []

    def process_directories(
        self, above: Open[P], batch: DirectoryBatch, context: ItemContext[P]
    ) -> list[bytes]:
        """Process small subdirectories of `above` with all entries; return the remaining names.

        The results of processed directories are merged into `above.part` here. A directory that was
        begun and turns out not to be plain is passed to `context.complete`, in the state after
        `enter` and `names`. The walk counts the directories that are done, and the files in
        `batch.counts`. It does not call this where names are chosen.
        """
        return batch.names

    def read_directory(
        self, opened: Open[P], weight: float, source: Lease, context: Context[object]
    ) -> list[bytes] | None:
        """Read an open directory and process all that is in it. Return its subdirectories.

        This is for tools that find out which names are directories while they look all names up.
        With None the walk reads the directory. It does not call this where names are chosen. The
        visitor counts what it finds, with its `weight`; the walk counts only the subdirectories as
        scans due. `opened.weight` must be the weight of each of these.

        This is not a case of `process_directories`: the directory is open and entered, may hold
        entries of any kind, and is completed by `leave` when its subdirectories are.
        """
        return None

    @abstractmethod
    def names(
        self, where: Where, names: Names, fds: tuple[int, int], context: ItemContext[P]
    ) -> None:
        """Process names of an open directory; some may be handed back by `context.spawn`.

        `fds` are the directory's on both sides, -1 for a missing side. The visitor counts their
        weight.
        """

    @abstractmethod
    def leave(self, opened: Open[P], context: Context[object]) -> P:
        """Complete a directory after everything in it; return its result, including its `part`."""

    def stays(self, opened: Open[P]) -> None:
        """Note that a directory waits for other items, until the item's join completes it."""

    def stopped(self, opens: Sequence[Open[P]]) -> None:
        """Note that the job stops, and these directories of an item stay incomplete."""

    @abstractmethod
    def failed(self, opened: Open[P], error: OSError, context: Context[object]) -> None:
        """Report a directory that cannot be reached, made or read; spawned items continue.

        Its `leases` exist if it was reached.
        """

    @abstractmethod
    def lost(self, opened: Open[P]) -> P:
        """Return the result of a directory that has failed; see `leave`."""

    @abstractmethod
    def unreached(
        self, where: Where, name: bytes, error: OSError, context: Context[object]
    ) -> None:
        """Report an entry whose directory cannot be reached; does not count its weight."""

    @abstractmethod
    def merge(self, a: P, b: P) -> P:
        """Merge the results of two parts of a directory."""

    @abstractmethod
    def taken(self) -> P:
        """Return the result of the work since the last call, except by `leave`."""

    def divided(self, opened: Open[P], text: bytes) -> bytes:
        """Return what remains of a part of a list."""
        return text

    def begin(self, item: Any, context: Context[object]) -> None:
        """Begin an item."""

    def resume(self, base: Open[P], context: Context[object]) -> None:
        """Begin the join of an item whose first directory this is."""

    def end(self, context: Context[object], opens: Sequence[Open[P]]) -> None:
        """End an item, or its join; `opens` are not complete."""
