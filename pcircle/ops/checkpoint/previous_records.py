"""The work of previous runs of a copy, found by directory.

Rank 0 reads all journals once and writes the location of each committed record to the file `index`
of the checkpoint, sorted by key. A rank that reaches a directory looks up its records in the index,
so memory use does not grow with the amount of completed work.

Journals determine only which work can be skipped. The only files that they name are temporary
files, and copies to which hard links are added. Both are opened like any entry below the
destination, and are used only if they have the recorded inode.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, reduce
from typing import TYPE_CHECKING, TypeVar

import msgspec

from pcircle.core.encoding import text_of
from pcircle.fs.directories import close_open
from pcircle.fs.open_flags import OPEN_DIRECTORY_FOLLOW
from pcircle.fs.scan import Block, rewound
from pcircle.ops.checkpoint.hashes import HashSet
from pcircle.ops.checkpoint.journal import (
    COMMIT,
    CreatedDirectoryRecord,
    DamagedRange,
    InodeRecord,
    JournalFrame,
    NamedCounts,
    NamesRecord,
    RangeRecord,
    Record,
    RecordKeys,
    StartedFileRecord,
    SubtreeRecord,
    add_named_counts,
    journal_name,
    read_frames,
    read_mark,
    read_record,
    read_records,
)
from pcircle.ops.checkpoint.plan import JournalPlan

if TYPE_CHECKING:
    from pcircle.ops.checkpoint.index import IndexBuilder, RecordLocation
from pcircle.ops.checkpoint.store import Checkpoint

# These are compiled only when a copy resumes, because compiling them takes as long as importing
# this module.
_NAME = rb"journal-([0-9]{4,9})-([0-9]{1,9})"
_TEMPORARY = rb"\.fcp-([0-9a-f]{8})-[0-9a-f]+-[0-9a-f]+"
_MAX_OPEN = 32
_TOTAL_BITS = 62
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

T = TypeVar("T")


def temporary_name_matcher(tokens: Sequence[bytes]) -> Callable[[bytes], bool]:
    """Return a predicate that is true for temporary names with one of these tokens."""
    fullmatch, known = re.compile(_TEMPORARY).fullmatch, frozenset(tokens)

    def is_temporary(name: bytes) -> bool:
        match = fullmatch(name)
        return match is not None and match[1] in known

    return is_temporary


class JournalProblem(msgspec.Struct, frozen=True):
    """A journal that is unreadable for a `reason`, or in which bytes are damaged."""

    journal: str
    lost_bytes: int = 0
    reason: str = ""


class History(msgspec.Struct, frozen=True):
    """A summary of all journals.

    `run` is the number of the last run, and `counts` are those of the run with the most progress.
    `problems` lists the damaged and the unreadable journals. `commits` maps each run to its last
    committed epoch, or to 0 if there is none.
    """

    run: int
    counts: NamedCounts
    problems: tuple[JournalProblem, ...]
    commits: Mapping[int, int]

    @property
    def committed(self) -> bool:
        """True if any epoch was committed."""
        return any(self.commits.values())


def read_history(
    checkpoint: Checkpoint, keys: RecordKeys, builder: IndexBuilder | None = None
) -> History:
    """Read all journals; `builder` receives the locations of the records. Raises OSError."""
    commits: dict[int, int] = {}
    counts: dict[int, NamedCounts] = {}
    problems: list[JournalProblem] = []
    reader = _JournalReader(builder)
    names = sorted(map(os.fsencode, os.listdir(rewound(checkpoint.fd))))
    matches = map(re.compile(_NAME).fullmatch, names)
    for name, run, rank in [(m[0], int(m[1]), int(m[2])) for m in matches if m]:
        reader.begin(run, rank)
        try:
            fd = os.open(name, _READ, dir_fd=checkpoint.fd)
        except OSError as error:
            problems.append(JournalProblem(name.decode(), reason=error.strerror or "no reason"))
            continue
        try:
            for found in read_frames(fd, keys):
                reader.take(found)
        finally:
            close_open(fd)
        commits[run] = max(commits.get(run, 0), reader.committed)
        counts[run] = add_named_counts(counts.get(run, {}), reader.counts)
        if reader.lost_bytes:
            problems.append(JournalProblem(name.decode(), reader.lost_bytes))
    return History(
        max(commits, default=0),
        max(counts.values(), key=_extent, default={}),
        tuple(problems),
        commits,
    )


def _extent(counts: NamedCounts) -> int:
    """Return the sum of all counts, as a measure of the progress of a run."""
    return sum(counts.values())


class _JournalReader:
    """Processes the frames of the journals, one journal at a time."""

    def __init__(self, builder: IndexBuilder | None) -> None:
        self._builder = builder
        self._total = 0

    def begin(self, run: int, rank: int) -> None:
        """Start a journal."""
        self.committed = 0
        self.lost_bytes = 0
        self._counts: dict[int, NamedCounts] = {}  # by rank
        self._run = run
        self._rank = rank

    @property
    def counts(self) -> NamedCounts:
        """The sum of the latest counts of each rank that marked a commit in this journal."""
        return reduce(add_named_counts, self._counts.values(), {})

    def take(self, found: JournalFrame | DamagedRange) -> None:
        """Process a frame or a damaged range."""
        if isinstance(found, DamagedRange):
            self.lost_bytes += found.length
            return
        try:
            if found.magic == COMMIT:
                rank, counts = read_mark(found.payload)
                self._counts[rank] = counts
                self.committed = max(self.committed, found.epoch)
                return
            for at, length, record in read_records(found.payload):
                self._add_record(record, found.offset + at, length, found.epoch)
        except (ValueError, msgspec.DecodeError):
            if self._builder is not None:
                self._builder.reject()
            self.lost_bytes += len(found.payload)
            return
        if self._builder is not None:
            self._builder.accept()

    def _add_record(self, record: Record, offset: int, length: int, epoch: int) -> None:
        if isinstance(record, SubtreeRecord | NamesRecord):
            total = self._total + sum(record.counts.values())
            if total >> _TOTAL_BITS:
                raise ValueError("the counts are implausibly large")
            self._total = total
        elif isinstance(record, CreatedDirectoryRecord):
            epoch = 0
        if self._builder is not None:
            location = self._run, self._rank, offset, length
            self._builder.add(record.key, location, epoch)
            if isinstance(record, StartedFileRecord):
                self._builder.add(record.where, location, epoch)


class RecordedDirectory(msgspec.Struct, frozen=True):
    """The record of a directory that a previous run completed.

    `modified` means that there is no valid record, because the directory was replaced, or entries
    were added or removed afterwards.
    """

    record: SubtreeRecord | None = None
    modified: bool = False


class TargetNames(HashSet):
    """Hashes of the names in a target directory, except subdirectories."""

    def has(self, hashes: bytes) -> bool:
        """Return whether the set contains all these concatenated hashes."""
        return bool(self.contains(hashes).all())


class CompletedNames:
    """The completed names of an incomplete directory; each name counts for one run only."""

    def __init__(self) -> None:
        self.counts: NamedCounts = {}
        self._runs: list[HashSet] = []

    def __bool__(self) -> bool:
        return bool(self._runs)

    def add(self, records: Iterable[NamesRecord]) -> None:
        """Add the records of a run."""
        done = HashSet()
        for record in records:
            self.counts = add_named_counts(self.counts, record.counts)
            done.add(record.hashes)
        if done:
            self._runs.append(done)

    def has_any(self, hashes: bytes) -> bool:
        """Return whether any of these concatenated hashes belongs to a completed name."""
        return any(run.contains(hashes).any() for run in self._runs)

    def are_done(self, hashes: bytes) -> list[bool]:
        """Return for each hash whether its name is completed."""
        runs = [run.contains(hashes).tolist() for run in self._runs]
        return list(map(any, zip(*runs, strict=True)))


class PreviousRecords:
    """Looks up the work of previous runs. Raises OSError if the index is unreadable."""

    def __init__(self, plan: JournalPlan, keys: RecordKeys) -> None:
        self.keys = keys
        self.is_stale: Callable[[bytes], bool] = temporary_name_matcher(plan.stale)
        """Return whether a name is a temporary name of a previous run."""
        self._fd = os.open(plan.path, OPEN_DIRECTORY_FOLLOW)
        self._journals: dict[tuple[int, int], int] = {}  # open journals, least recently used first
        from pcircle.ops.checkpoint.index import RecordIndex  # only resumed copies need the index

        self._index = RecordIndex(self._fd)

    def subtrees(self, root: int, path: bytes) -> list[SubtreeRecord]:
        """Return the records of a complete directory and its subtree, at most one per run."""
        return list(self._of(SubtreeRecord, self.keys.directory(root, path)))

    def partial(
        self, root: int, path: bytes, trust: Callable[[NamesRecord], bool] | None = None
    ) -> CompletedNames | None:
        """Return the completed names of a directory by the records that `trust` accepts, or None.

        A run that did not trust the records of previous runs has repeated their work. If records
        have a name in common, only those of the latest run are used, so that no name counts twice.
        """
        runs: dict[int, list[RecordLocation]] = {}
        for location in self._index.locations(self.keys.directory(root, path)):
            runs.setdefault(location.run, []).append(location)
        partial = CompletedNames()
        for _, locations in sorted(runs.items(), reverse=True):
            records = (self._read(*location) for location in locations)
            partial.add(
                record
                for record in records
                if isinstance(record, NamesRecord)
                and not partial.has_any(record.hashes)
                and (trust is None or trust(record))
            )
        return partial or None

    def is_created(self, root: int, path: bytes) -> bool:
        """Return whether a previous run created the directory, or was about to create it."""
        return any(self._of(CreatedDirectoryRecord, self.keys.directory(root, path)))

    def started_files(
        self, root: int, path: bytes, name: bytes, own: bytes
    ) -> list[tuple[StartedFileRecord, list[RangeRecord]]]:
        """Return the started copies of a large file, each with its completed ranges.

        A copy has a temporary name of a previous run, or the final name `own` if it was written in
        place.
        """
        key = self.keys.file(root, path, name)
        parts = list(self._of(RangeRecord, key))
        start_counts = Counter(
            started.temporary for started in self._of(StartedFileRecord, key) if started.key == key
        )
        # A file that was started in place twice is ambiguous, because a range may belong to either
        # copy.
        return [
            (started, [part for part in parts if part.temporary == started.temporary])
            for started in self._of(StartedFileRecord, key)
            if started.key == key
            and start_counts[started.temporary] == 1
            and (started.temporary == own or self.is_stale(started.temporary))
        ]

    def inodes(self, file_system: int, inode: int) -> Iterator[InodeRecord]:
        """Yield the copies of an inode with several names, at most one per run."""
        return self._of(InodeRecord, self.keys.inode(file_system, inode))

    def is_started(self, root: int, path: bytes, name: bytes) -> bool:
        """Return whether a temporary file belongs to a large file and can be resumed."""
        return any(self._of(StartedFileRecord, self.keys.file(root, path, name)))

    def release(self) -> None:
        """Close all files; later lookups find nothing."""
        for fd in self._journals.values():
            close_open(fd)
        self._journals.clear()
        self._index.close()

    def close(self) -> None:
        """Close all files and the directory of the checkpoint."""
        self.release()
        os.close(self._fd)

    def _of(self, kind: type[T], key: bytes) -> Iterator[T]:
        for location in self._index.locations(key):
            record = self._read(*location)
            if isinstance(record, kind):
                yield record

    def _read(self, run: int, rank: int, offset: int, length: int) -> Record | None:
        """Return a record, or None if it is no longer readable."""
        try:
            data = os.pread(self._journal(run, rank), length, offset)
            return read_record(data)
        except (OSError, ValueError, msgspec.DecodeError):
            return None

    def _journal(self, run: int, rank: int) -> int:
        """Return the descriptor of a journal from a small cache. Raises OSError."""
        fd = self._journals.pop((run, rank), None)
        if fd is None:
            fd = os.open(journal_name(run, rank), _READ, dir_fd=self._fd)
            if len(self._journals) == _MAX_OPEN:
                close_open(self._journals.pop(next(iter(self._journals))))
        self._journals[run, rank] = fd
        return fd


def exclude_completed(
    blocks: Iterable[Block], partial: CompletedNames, keys: RecordKeys
) -> Iterator[Block]:
    """Yield the blocks of a directory, without the completed names."""
    for block in blocks:
        for names in (block.files, block.links, block.specials):
            done = partial.are_done(keys.names([os.fsencode(name) for name in names]))
            names[:] = [name for name, is_done in zip(names, done, strict=True) if not is_done]
        yield block


def exclude_completed_from_list(text: bytes, partial: CompletedNames, keys: RecordKeys) -> bytes:
    """Return the part of a path list for a directory, without the completed names."""
    from pcircle.fs.lists import groups  # imported late: few runs use a path list

    found = list(groups(text, 0, len(text)))
    done = partial.are_done(keys.names([group.name for group in found]))
    return b"".join(
        text[group.begin : group.end]
        for group, is_done in zip(found, done, strict=True)
        if not is_done
    )


@lru_cache(maxsize=1)
def _last_name(path: bytes) -> str:
    """Return the last component of a path; cached, because every directory needs it."""
    return text_of(os.path.basename(path))


def exclude_checkpoint(blocks: Iterable[Block], directory_fd: int, path: bytes) -> Iterator[Block]:
    """Yield the blocks of a source directory, without the checkpoint at `path`."""
    own = _last_name(path)
    for block in blocks:
        if own in block.directories:
            with suppress(OSError):  # the path may not exist
                found = os.stat(own, dir_fd=directory_fd, follow_symlinks=False)
                if os.path.samestat(found, os.stat(path)):
                    block.directories.remove(own)
        yield block
