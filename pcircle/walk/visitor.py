"""The interface through which the walk calls a tool, and a wrapper that limits the pace.

The walk opens, reads, filters, divides and completes directories, on one side or on both, and a
visitor processes their entries. Its methods run on the worker's thread, one directory at a time,
from `enter` to the last call of `names`.

A `paced` visitor rests after every few names. The wrapper is transparent to the walk. All time
outside of rests counts as work, including the time in which the walk opens and reads directories.
`pcircle.threads.throttle` determines the length of a rest. A tool may add other pauses, such as
those of a rate limit.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar, cast

import msgspec

from pcircle.fs.directories import HOLDER, Lease
from pcircle.fs.scan import Block, DirectoryBatch, blocks
from pcircle.runtime import Context
from pcircle.threads.throttle import TurnTaking
from pcircle.walk.items import Batch, DirectoryIdentity
from pcircle.walk.open_directory import BATCH_S, ItemContext, Open

P = TypeVar("P")
Due = Callable[[int, Callable[[], bool]], None]

_BATCH_BYTES = 32 << 10
_SOME = 32  # maximum number of names between two rests
_REST_AFTER_S = 0.01
_WAITED_FOR_S = 0.02


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


def paced(visitor: Visitor[P], turns: TurnTaking | None, due: Due | None = None) -> Visitor[P]:
    """Wrap a visitor so that `turns` limits its pace, and `due` is called after operations."""
    return cast("Visitor[P]", _Paced(visitor, turns, due))


class _Paced(Generic[P]):
    """A wrapped visitor; the walk passes it single directories instead of batches."""

    scan = None

    def __init__(self, visitor: Visitor[P], turns: TurnTaking | None, due: Due | None) -> None:
        self._visitor = visitor
        self._turns = turns
        self._due = due
        self._stop: Callable[[], bool] = bool
        self._since_s = 0.0  # when the current work began
        self._mark_s = 0.0  # when the last operation ended
        self._worked_s = 0.0  # work before `_since_s` that no rest has followed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._visitor, name)

    # ---- work and rest ----------------------------------------------------------

    def begin(self, item: object, context: Context[object]) -> None:
        self._start(context)
        self._visitor.begin(item, context)

    def resume(self, base: Open[P], context: Context[object]) -> None:
        self._start(context)
        self._visitor.resume(base, context)

    def end(self, context: Context[object], opens: Sequence[Open[P]]) -> None:
        self._visitor.end(context, opens)
        self._worked_s += time.monotonic() - self._since_s
        if self._turns is not None:
            self._turns.end()

    def _start(self, context: Context[object]) -> None:
        self._stop = context.is_stopping
        if self._turns is not None:
            if self._worked_s > _REST_AFTER_S:
                self._turns.pause(self._worked_s, self._stop)
                self._worked_s = 0.0
            self._turns.begin(self._stop)
        self._since_s = self._mark_s = time.monotonic()

    def _done(self, kind: str, count: int) -> None:
        """Record completed operations, and rest if a rest is due."""
        now_s = time.monotonic()
        turns = self._turns
        if self._due is not None and count:
            self._due(count, self._stop)
        if turns is not None:
            if count:
                turns.record(kind, count, now_s - self._mark_s)
            worked_s = self._worked_s + now_s - self._since_s
            if worked_s > _REST_AFTER_S:
                turns.end()
                turns.pause(worked_s, self._stop)
                turns.begin(self._stop)
                self._worked_s, self._since_s = 0.0, time.monotonic()
        self._mark_s = time.monotonic()

    # ---- directories ------------------------------------------------------------

    def enter(self, opened: Open[P], source: Lease, holder: Open[P] | None) -> Lease | None:
        """Enter a directory that was just opened."""
        target = self._visitor.enter(opened, source, holder)
        self._done("enter", 1)
        return target

    def read_directory(
        self, opened: Open[P], weight: float, source: Lease, context: Context[object]
    ) -> list[bytes] | None:
        counters: WalkCounters | None = getattr(self._visitor, "counters", None)
        found = 0 if counters is None else counters.found
        below = self._visitor.read_directory(opened, weight, source, context)
        if below is not None:
            self._done("read", 1 if counters is None else max(1, counters.found - found))
        return below

    def listed(self, opened: Open[P], source: Lease) -> Iterator[Block]:
        return self._visitor.listed(opened, source)

    def meant(self, opened: Open[P], blocks: Iterable[Block], source: Lease) -> Iterator[Block]:
        for block in self._visitor.meant(opened, blocks, source):
            yield block
            self._done("block", 0)

    def leave(self, opened: Open[P], context: Context[object]) -> P:
        self._mark_s = time.monotonic()
        part = self._visitor.leave(opened, context)
        self._done("leave", 1)
        return part

    # ---- names ------------------------------------------------------------------

    def names(
        self, where: Where, names: Names, fds: tuple[int, int], context: ItemContext[P]
    ) -> None:
        """Process names; after some time, hand back the remaining ones if the visitor allows it."""
        begun_s = time.monotonic()
        remaining = names
        while len(remaining) > _SOME and not context.stopping:
            batch, remaining = _parted(remaining)
            self._some(where, batch, fds, context)
            took_s = time.monotonic() - begun_s
            enough = took_s > BATCH_S or (took_s > _WAITED_FOR_S and context.has_idle_workers())
            if enough and where.path != HOLDER and not self._visitor.in_place:
                context.spawn(list(batches(where, remaining, -(-len(remaining) // 2))))
                return
        self._some(where, remaining, fds, context)

    def _some(
        self, where: Where, names: Names, fds: tuple[int, int], context: ItemContext[P]
    ) -> None:
        self._mark_s = time.monotonic()
        self._visitor.names(where, names, fds, context)
        self._done("names", len(names))


def _parted(names: Names) -> tuple[Names, Names]:
    """Split off a batch of names; return the batch and the remaining names."""
    for kind in ("links", "specials", "files"):
        every = getattr(names, kind)
        if every:
            batch = Names([], [], [])
            setattr(batch, kind, every[:_SOME])
            remaining = Names(names.files, names.links, names.specials)
            setattr(remaining, kind, every[_SOME:])
            return batch, remaining
    return names, Names([], [], [])


def batches(where: Any, names: Names, max_names: int) -> Iterator[Batch]:
    """Divide names of an `Open` or a `Batch` into batches of limited length.

    Their size in bytes is limited too, because a rank may hold a few hundred batches.
    """
    for kind in ("files", "links", "specials"):
        names_of_kind = getattr(names, kind)
        total_bytes = max(1, sum(map(len, names_of_kind)))
        max_names = max(1, min(max_names, _BATCH_BYTES * len(names_of_kind) // total_bytes))
        for at in range(0, len(names_of_kind), max_names):
            packed = {"files": b"", "links": b""}
            packed[kind] = b"\0".join(names_of_kind[at : at + max_names])
            yield Batch(
                where.root,
                where.path,
                weight=where.weight,
                place=where.place,
                slot=where.slot,
                ancestors=where.ancestors,
                **packed,
            )
