"""The interface through which the walk calls a tool at each step.

The walk opens, reads, filters, divides and completes directories, on one side or on both, and a
visitor processes their entries. Its methods run on the worker's thread, one directory at a time,
from `enter` to the last call of `names`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import msgspec

from pcircle.fs.directories import Lease
from pcircle.fs.scan import Block, DirectoryBatch, blocks
from pcircle.runtime import Context
from pcircle.walk.items import DirectoryIdentity
from pcircle.walk.open_directory import ItemContext, Open

P = TypeVar("P")


class Where(Protocol):
    """The directory that contains some names, given by an `Open` or a `Batch`."""

    @property
    def root(self) -> int: ...
    @property
    def path(self) -> bytes: ...
    @property
    def weight(self) -> float: ...
    @property
    def place(self) -> DirectoryIdentity: ...
    @property
    def slot(self) -> int: ...


class WalkCounters(Protocol):
    """The counters that the walk updates. Every tool's counters include them."""

    found: int
    scans_due: int
    offline: int
    files: int
    weight: float

    def done_at_once(self, directories: int, files: int, weight: float) -> None: ...


class DirectoryScan(msgspec.Struct, frozen=True):
    """Options for reading small directories for `Visitor.process_directories`.

    A directory is small if it contains at most `max_entries` entries, all of which are regular
    files. The directories of a batch together contain at most `max_batch_entries` entries, unless
    `max_entries` is larger. `look_up` looks up the entries, `keep_open` keeps the descriptors of
    the directories, and `sort` sorts the entries of each directory by name. A directory must be on
    the file system of its parent, unless `any_device` is set; the status of the directory itself is
    then unknown. With `one_mount`, it must be on the same mount as its parent.
    """

    max_entries: int
    max_batch_entries: int
    look_up: bool = False
    keep_open: bool = False
    sort: bool = False
    any_device: bool = False
    one_mount: bool = False

    def read(self, parent: Lease, names: list[bytes]) -> DirectoryBatch:
        """Open and list a batch of these subdirectories, beginning with the first one."""
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
    """The names in one directory, except those of subdirectories, by kind."""

    __slots__ = ("files", "links", "specials")

    def __init__(self, files: list[bytes], links: list[bytes], specials: list[bytes]) -> None:
        self.files: list[bytes] = files
        self.links: list[bytes] = links
        self.specials: list[bytes] = specials

    def __len__(self) -> int:
        return len(self.files) + len(self.links) + len(self.specials)

    def all(self) -> list[bytes]:
        """Return all names."""
        return self.links + self.specials + self.files


class Visitor(ABC, Generic[P]):
    """A tool's part in the walk. P is the type of results.

    The methods of a tool declare which items it spawns; `Context[object]` accepts any items. If
    `enter`, `meant` or `names` raises OSError, the open directory fails.
    """

    nothing: ClassVar[Any]
    """The empty result."""
    batch_names: ClassVar[int] = 512
    """The maximum number of names that one item processes. Further names become batches."""

    in_place: bool = False
    """True if the item processes all names itself, as they are read."""

    @abstractmethod
    def enter(self, opened: Open[P], source: Lease, holder: Open[P] | None) -> Lease | None:
        """Process an open directory before it is read, and set its `place`.

        Return the lease of the directory on the other side, or None. `holder` is the parent, whose
        leases are held, or None for a root.
        """

    def listed(self, opened: Open[P], source: Lease) -> Iterator[Block]:
        """Return the entries of an open directory, before filters are applied. Raises OSError."""
        return blocks(source.fd)

    def meant(self, opened: Open[P], blocks: Iterable[Block], source: Lease) -> Iterable[Block]:
        """Return the blocks of a directory without entries that the tool's own rules exclude."""
        return blocks

    def known(self, opened: Open[P], context: Context[object]) -> P | None:
        """Return the result of a directory that need not be entered, or None."""
        return None

    scan: DirectoryScan | None = None
    """Options for reading small directories. None if `process_directories` is not implemented."""

    def scan_of(self, above: Open[P]) -> DirectoryScan | None:
        """Return the options for reading the next batch of small directories in `above`.

        Return None if the walk must enter all directories.
        """
        return self.scan

    def select_directories(
        self, above: Open[P], names: list[bytes], context: ItemContext[P]
    ) -> tuple[list[bytes], list[bytes]]:
        """Divide subdirectories of `above` into names to scan and names that the walk enters."""
        return names, []

    def process_directories(
        self, above: Open[P], batch: DirectoryBatch, context: ItemContext[P]
    ) -> list[bytes]:
        """Process small subdirectories of `above` with all entries; return the remaining names.

        The method merges the results of the processed directories into `above.part`. If it cannot
        complete a directory that it has begun, it passes the directory to `context.complete`, in
        the state after `enter` and `names`. The walk counts the processed directories, and their
        files by `batch.counts`. It calls the method only if no rules or filters apply.
        """
        return batch.names

    def read_directory(
        self, opened: Open[P], weight: float, source: Lease, context: Context[object]
    ) -> list[bytes] | None:
        """Read an open directory, process its entries, and return its subdirectories.

        This is for tools that look up all names anyway, and thereby learn which of them are
        directories. If the method returns None, the walk reads the directory. The walk calls the
        method only if no rules or filters apply. The visitor counts the entries that it finds, and
        their weight; the walk only counts the subdirectories as scans due. `opened.weight` must be
        set to the weight of each subdirectory.

        In contrast to `process_directories`, the directory is open and entered, may contain entries
        of any kind, and is completed by `leave` after its subdirectories.
        """
        return None

    @abstractmethod
    def names(
        self, where: Where, names: Names, fds: tuple[int, int], context: ItemContext[P]
    ) -> None:
        """Process names of an open directory; some may be handed back by `context.spawn`.

        `fds` are the descriptors of the directory on both sides, or -1 for a missing side. The
        visitor counts the weight of the names that it processes.
        """

    @abstractmethod
    def leave(self, opened: Open[P], context: Context[object]) -> P:
        """Complete a directory after all its entries; return its result, which includes `part`."""

    def stays(self, opened: Open[P]) -> None:
        """Note that a directory remains incomplete until the item's join."""

    def stopped(self, opens: Sequence[Open[P]]) -> None:
        """Note that the job is stopping, so these directories of an item remain incomplete."""

    @abstractmethod
    def failed(self, opened: Open[P], error: OSError, context: Context[object]) -> None:
        """Report a directory that cannot be reached, made or read. Spawned items continue.

        `opened.leases` are not `CLOSED` if the directory was reached.
        """

    @abstractmethod
    def lost(self, opened: Open[P]) -> P:
        """Return the result of a failed directory, for which `leave` is not called."""

    @abstractmethod
    def unreached(
        self, where: Where, name: bytes, error: OSError, context: Context[object]
    ) -> None:
        """Report an entry whose directory cannot be reached, but do not count its weight."""

    @abstractmethod
    def merge(self, a: P, b: P) -> P:
        """Merge the results of two parts of a directory."""

    @abstractmethod
    def taken(self) -> P:
        """Return the result of the work since the last call, except that of `leave`."""

    def divided(self, opened: Open[P], text: bytes) -> bytes:
        """Return the part of a list that remains to be processed."""
        return text

    def begin(self, item: Any, context: Context[object]) -> None:
        """Begin an item."""

    def resume(self, base: Open[P], context: Context[object]) -> None:
        """Begin the join of the item whose first directory is `base`."""

    def send_reports(self, context: Context[Any]) -> None:
        """Send the pending reports of completed work, also if an error is ending the job."""

    def end(self, context: Context[object], opens: Sequence[Open[P]]) -> None:
        """End an item or its join. The directories in `opens` are incomplete."""
