"""What earlier runs of a copy have done, found by directory.

Rank 0 reads all journals once, and writes where each record lies that was committed to the file
`index` of the checkpoint, in the order of the records' keys. Every rank finds there what it wants
to know of the directory at hand. No rank's memory grows with what was done before.

What the journals say is a hint where to save work. It names no place to write
to, but for two names: that of a temporary file, and that of a copy to make
links to. Both are reached as everything below the destination is, and used
only if they have the inode that was recorded.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, reduce
from typing import NamedTuple, TypeVar

import msgspec

from pcircle.checkpoint.hashes import Hashes
from pcircle.checkpoint.index import Index, Place, Places
from pcircle.checkpoint.journal import (
    COMMIT,
    Begun,
    Damage,
    Frame,
    Inode,
    Keys,
    Made,
    Named,
    Names,
    Part,
    Record,
    Subtree,
    add_named,
    journal_name,
    read_frames,
    read_mark,
    read_record,
    read_records,
)
from pcircle.checkpoint.plan import JournalPlan
from pcircle.checkpoint.store import Checkpoint
from pcircle.encoding import text_of
from pcircle.fs.directories import close_open
from pcircle.fs.scan import Block, rewound

_NAME = re.compile(rb"journal-([0-9]{4,9})-([0-9]{1,9})")
_TEMPORARY = re.compile(rb"\.fcp-([0-9a-f]{8})-[0-9a-f]+-[0-9a-f]+")
_MAX_OPEN = 32
_TOTAL_BITS = 62
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

T = TypeVar("T")


def is_litter_of(tokens: Sequence[bytes]) -> Callable[[bytes], bool]:
    """A function that tells temporary names with one of these marks."""

    def is_litter(name: bytes) -> bool:
        match = _TEMPORARY.fullmatch(name)
        return match is not None and match[1] in tokens

    return is_litter


class Trouble(NamedTuple):
    """A journal that can't be read, for this reason, or of which so many bytes are damaged."""

    journal: str
    lost_bytes: int = 0
    reason: str = ""


class History(NamedTuple):
    """What journals say on the whole.

    `run` is the number of the last run; `counts` are those of the run that got farthest, `trouble`
    are the journals that are damaged, `commits` the last committed epochs by run, 0 where none was.
    """

    run: int
    counts: Named
    trouble: tuple[Trouble, ...]
    commits: Mapping[int, int]

    @property
    def committed(self) -> bool:
        """Whether anything was."""
        return any(self.commits.values())


def read_history(checkpoint: Checkpoint, keys: Keys, places: Places | None = None) -> History:
    """Read all journals; `places` are told where the records lie. OSError."""
    commits: dict[int, int] = {}
    counts: dict[int, Named] = {}
    trouble: list[Trouble] = []
    reader = _Reader(places)
    names = sorted(map(os.fsencode, os.listdir(rewound(checkpoint.fd))))
    for name, run, rank in [(m[0], int(m[1]), int(m[2])) for m in map(_NAME.fullmatch, names) if m]:
        reader.begin(run, rank)
        try:
            fd = os.open(name, _READ, dir_fd=checkpoint.fd)
        except OSError as error:
            trouble.append(Trouble(name.decode(), reason=error.strerror or "no reason"))
            continue
        try:
            for found in read_frames(fd, keys):
                reader.take(found)
        finally:
            close_open(fd)
        commits[run] = max(commits.get(run, 0), reader.committed)
        counts[run] = add_named(counts.get(run, {}), reader.counts)
        if reader.lost_bytes:
            trouble.append(Trouble(name.decode(), reader.lost_bytes))
    return History(
        max(commits, default=0),
        max(counts.values(), key=_extent, default={}),
        tuple(trouble),
        commits,
    )


def _extent(counts: Named) -> int:
    """How far a run got, to compare it with others: all that it has counted."""
    return sum(counts.values())


class _Reader:
    """Takes in the frames of one journal after another."""

    def __init__(self, places: Places | None) -> None:
        self._places = places
        self._total = 0

    def begin(self, run: int, rank: int) -> None:
        self.committed = 0
        self.lost_bytes = 0
        self._counts: dict[int, Named] = {}  # by rank
        self._run = run
        self._rank = rank

    @property
    def counts(self) -> Named:
        """Those of all ranks that have marked a commit in this journal, each with its last one."""
        return reduce(add_named, self._counts.values(), {})

    def take(self, found: Frame | Damage) -> None:
        if isinstance(found, Damage):
            self.lost_bytes += found.length
            return
        try:
            if found.magic == COMMIT:
                rank, counts = read_mark(found.payload)
                self._counts[rank] = counts
                self.committed = max(self.committed, found.epoch)
                return
            for at, length, record in read_records(found.payload):
                self._see(record, found.offset + at, length, found.epoch)
        except (ValueError, msgspec.DecodeError):
            if self._places is not None:
                self._places.reject()
            self.lost_bytes += len(found.payload)
            return
        if self._places is not None:
            self._places.accept()

    def _see(self, record: Record, offset: int, length: int, epoch: int) -> None:
        if isinstance(record, Subtree | Names):
            total = self._total + sum(record.counts.values())
            if total >> _TOTAL_BITS:
                raise ValueError("there is no data set of so much")
            self._total = total
        elif isinstance(record, Made):
            epoch = 0
        if self._places is not None:
            place = Place(self._run, self._rank, offset, length)
            self._places.see(record.key, place, epoch)
            if isinstance(record, Begun):
                self._places.see(record.where, place, epoch)


class Standing(NamedTuple):
    """What is known of a directory that an earlier run has done.

    `record` is that of the directory as it is now; `spoiled` tells that there is none, because
    it is another one, or somebody has put something there or removed it since.
    """

    record: Subtree | None = None
    spoiled: bool = False


class Listing(Hashes):
    """What is in a directory of the target, but for directories: hashes of the names."""

    def has(self, hashes: bytes) -> bool:
        """Whether names are all there, given as hashes in a row."""
        return bool(self.have(hashes).all())


class Partial:
    """What is done of a directory that is not done as a whole; runs have no names in common."""

    def __init__(self) -> None:
        self.counts: Named = {}
        self._runs: list[Hashes] = []

    def __bool__(self) -> bool:
        return bool(self._runs)

    def add(self, records: Iterable[Names]) -> None:
        """What one more run has done."""
        done = Hashes()
        for record in records:
            self.counts = add_named(self.counts, record.counts)
            done.add(record.hashes)
        if done:
            self._runs.append(done)

    def has_any(self, hashes: bytes) -> bool:
        """Whether any of these names is done, given as hashes in a row."""
        return any(run.have(hashes).any() for run in self._runs)

    def are_done(self, hashes: bytes) -> list[bool]:
        """Of hashes in a row, which are of names that are done."""
        runs = [run.have(hashes).tolist() for run in self._runs]
        return list(map(any, zip(*runs, strict=True)))


class Resumed:
    """A rank's view of what was done. OSError if the index can't be read."""

    def __init__(self, plan: JournalPlan, keys: Keys) -> None:
        self._keys = keys
        self._stale = frozenset(plan.stale)
        self._fd = os.open(plan.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._journals: dict[tuple[int, int], int] = {}  # open ones, the one used last at the end
        self._index = Index(self._fd)

    def subtrees(self, root: int, path: bytes) -> list[Subtree]:
        """The records of a directory that is done and its subtree, one of each run or none."""
        return list(self._of(Subtree, self._keys.directory(root, path)))

    def partial(
        self, root: int, path: bytes, trust: Callable[[Names], bool] | None = None
    ) -> Partial | None:
        """What is done of a directory, as far as the records are such as `trust` holds true.

        A run that could not trust what earlier ones had recorded has done it again: of records that
        have a name in common those of the latest run are taken, so that none counts twice.
        """
        runs: dict[int, list[Place]] = {}
        for place in self._index.places(self._keys.directory(root, path)):
            runs.setdefault(place.run, []).append(place)
        partial = Partial()
        for _, places in sorted(runs.items(), reverse=True):
            records = (self._read(*place) for place in places)
            partial.add(
                record
                for record in records
                if isinstance(record, Names)
                and not partial.has_any(record.hashes)
                and (trust is None or trust(record))
            )
        return partial or None

    def is_made(self, root: int, path: bytes) -> bool:
        """Whether this job has made the directory, or was about to."""
        return any(self._of(Made, self._keys.directory(root, path)))

    def begun(
        self, root: int, path: bytes, name: bytes, own: bytes
    ) -> list[tuple[Begun, list[Part]]]:
        """What a large file was begun under, temporary names or its `own`, and what is in it."""
        key = self._keys.file(root, path, name)
        parts = list(self._of(Part, key))
        times = Counter(begun.temporary for begun in self._of(Begun, key) if begun.key == key)
        # What was begun twice under one name, in place, was begun anew: whose parts are these?
        return [
            (begun, [part for part in parts if part.temporary == begun.temporary])
            for begun in self._of(Begun, key)
            if begun.key == key
            and times[begun.temporary] == 1
            and (begun.temporary == own or self.is_stale(begun.temporary))
        ]

    def inodes(self, file_system: int, inode: int) -> Iterator[Inode]:
        """The copies of an inode of several names that were made, one in each run or none."""
        return self._of(Inode, self._keys.inode(file_system, inode))

    def names(self, names: Sequence[bytes]) -> bytes:
        """As of `Keys.names`."""
        return self._keys.names(names)

    def is_stale(self, name: bytes) -> bool:
        """Whether a name in the target is of a temporary file of an earlier run."""
        match = _TEMPORARY.fullmatch(name)
        return match is not None and match[1] in self._stale

    def is_begun(self, root: int, path: bytes, name: bytes) -> bool:
        """Whether a temporary file is of a large one, and can be resumed."""
        return any(self._of(Begun, self._keys.file(root, path, name)))

    def let_go(self) -> None:
        """Have no file open; nothing is known any more."""
        for fd in self._journals.values():
            close_open(fd)
        self._journals.clear()
        self._index.close()

    def close(self) -> None:
        """As `let_go`, for good."""
        self.let_go()
        os.close(self._fd)

    def _of(self, kind: type[T], key: bytes) -> Iterator[T]:
        for place in self._index.places(key):
            record = self._read(*place)
            if isinstance(record, kind):
                yield record

    def _read(self, run: int, rank: int, offset: int, length: int) -> Record | None:
        """A record; None, as if it were not there, if it can't be read any more."""
        try:
            data = os.pread(self._journal(run, rank), length, offset)
            return read_record(data)
        except (OSError, ValueError, msgspec.DecodeError):
            return None

    def _journal(self, run: int, rank: int) -> int:
        """A journal's descriptor, one of a few that stay open. OSError."""
        fd = self._journals.pop((run, rank), None)
        if fd is None:
            fd = os.open(journal_name(run, rank), _READ, dir_fd=self._fd)
            if len(self._journals) == _MAX_OPEN:
                close_open(self._journals.pop(next(iter(self._journals))))
        self._journals[run, rank] = fd
        return fd


def remaining(blocks: Iterable[Block], partial: Partial, keys: Keys) -> Iterator[Block]:
    """The blocks of a directory without the names that are done."""
    for block in blocks:
        for names in (block.files, block.links, block.specials):
            done = partial.are_done(keys.names([os.fsencode(name) for name in names]))
            names[:] = [name for name, is_done in zip(names, done, strict=True) if not is_done]
        yield block


def still(text: bytes, partial: Partial, keys: Keys) -> bytes:
    """What lists name in a directory, without the names that are done."""
    from pcircle.fs.lists import groups  # few runs have a list

    found = list(groups(text, 0, len(text)))
    done = partial.are_done(keys.names([group.name for group in found]))
    return b"".join(
        text[group.begin : group.end]
        for group, is_done in zip(found, done, strict=True)
        if not is_done
    )


@lru_cache(maxsize=1)
def _text_of_last(path: bytes) -> str:
    """The last name of a path: of one that is asked for with each directory."""
    return text_of(os.path.basename(path))


def without_checkpoint(blocks: Iterable[Block], directory_fd: int, path: bytes) -> Iterator[Block]:
    """The blocks of a directory without the checkpoint at `path`, should a source hold it."""
    own = _text_of_last(path)
    for block in blocks:
        if own in block.directories:
            with suppress(OSError):  # it is gone, or was never there
                found = os.stat(own, dir_fd=directory_fd, follow_symlinks=False)
                if os.path.samestat(found, os.stat(path)):
                    block.directories.remove(own)
        yield block
