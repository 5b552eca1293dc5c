"""The counters of a copy, of a rank and of all ranks, and its action log.

`CounterDelta` computes the work of a thread since the last call, for the result of an item or of a
directory. Counters run for the whole job, but a directory's checkpoint record needs its own share,
and its signature the entries that were added. Without checkpoint and signature nothing is computed.

The action log, for `--json-lines`, is an observer. It sees every entry that is copied in its
directory; code that copies in other ways reports its actions.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from operator import sub
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pcircle.fs.directories import HOLDER, join_path
from pcircle.jobs.action_log import ActionLog, ActionOutput
from pcircle.jobs.failures import Failure
from pcircle.jobs.tree_task import DerivedCounts, WorkCounts
from pcircle.ops.checkpoint.journal import Counts, NamedCounts, add_counts
from pcircle.ops.copy.entry.counts import CopyCounts
from pcircle.ops.copy.entry.observers import CopyObserver
from pcircle.ops.copy.tree.items import NOTHING, PartialResult

if TYPE_CHECKING:
    from pcircle.ops.digest import Signer


class CounterDelta:
    """The counter differences of one worker; `counted` means that counts are needed."""

    def __init__(self, counters: CopyCounters, signer: Signer | None, *, counted: bool) -> None:
        self._signer = signer
        self._before: Counts = ()
        self._counted = counted
        self.now: Callable[[], Counts] = counters.counts if counted else tuple
        """Return the counts so far; empty if they are not needed."""

    def begin(self) -> Counts:
        """Start an item, discarding leftovers of the last one; return the counts so far."""
        self._before = self.now()
        if self._signer is not None:
            self._signer.clear()
        return self._before

    def signed(self) -> PartialResult:
        """Return the signed entries since the last call; `NOTHING` if there are none."""
        return NOTHING if self._signer is None else self._signer.attach_to(NOTHING)

    def take(self) -> PartialResult:
        """Return the work since the last call; `NOTHING` if there is none."""
        part = NOTHING
        if self._counted:
            now = self.now()
            if now != self._before:
                part = PartialResult(between(self._before, now))
                self._before = now
        return part if self._signer is None else self._signer.attach_to(part)

    def portable(self, part: PartialResult) -> PartialResult:
        """Return a part in a form that another rank can use."""
        return part if self._signer is None else self._signer.make_portable(part)

    def merge(self, a: PartialResult, b: PartialResult) -> PartialResult:
        """Merge two parts."""
        if a is NOTHING or b is NOTHING:
            return b if a is NOTHING else a
        done = PartialResult(
            add_counts(a.counts, b.counts), max(a.epoch, b.epoch), blocks=a.blocks + b.blocks
        )
        return done if self._signer is None else self._signer.merge_results(done, a, b)


def between(before: Counts, after: Counts) -> Counts:
    """Return the difference of two counts."""
    return tuple(map(sub, after, before))


def has_failed(part: PartialResult) -> bool:
    """Return whether a part has failures, as far as counted."""
    return bool(part.counts) and part.counts[FAILED] > 0


class RecordedCounts(CopyCounts):
    """The counters of entries, which the checkpoint records with the entries.

    `found` counts entries of the source, each of which is later counted exactly once as files,
    directories, links, special, skipped, special_skipped or failed. `scans_due` counts directories
    found, `scans_done` directories read. `special_skipped` counts special files left out without
    -a; `touched` counts skipped entries whose attributes were updated; `linked` counts links to
    entries of another tree, and `nearby` files whose content came from another tree. `removed`
    counts extraneous entries that were removed from the target. `surplus` counts only the topmost
    of these, not the entries below them. `directories_created` counts new directories,
    `directories_touched` existing ones whose attributes were updated.
    """

    found: int
    scans_due: int
    scans_done: int
    directories: int
    failed: int
    special_skipped: int
    touched: int
    linked: int
    nearby: int
    surplus: int
    removed: int
    directories_created: int
    directories_touched: int


class CopyCounters(DerivedCounts, RecordedCounts):
    """The counters of a thread, a rank or a job; written by the worker, read by the main thread.

    `offline` counts files that were excluded because their data is on tape. `resumed` and
    `resumed_bytes` count the work of an earlier run. `ahead` counts large files that have not
    started, whose bytes are known.
    """

    offline: int
    resumed: int
    resumed_bytes: int
    ahead: int
    ahead_bytes: int

    def counts(self) -> tuple[int, ...]:
        """Return the recorded counts as a row; `totals` reads it."""
        return RecordedCounts.row_of(self)

    @property
    def settled(self) -> int:
        """Return the number of entries that were copied, left or failed."""
        return self.completed + self.skipped + self.special_skipped + self.failed

    def known(self, weight: float) -> WorkCounts:
        """Return the known work, with the share of an earlier run, which took this run no time."""
        known = super().known(weight)
        return replace(
            known,
            sized=known.sized + self.ahead,
            bytes_found=known.bytes_found + self.ahead_bytes,
            earlier=self.resumed,
            earlier_bytes=self.resumed_bytes,
        )

    def resume(self, counts: Mapping[str, int]) -> None:
        """Add counts of an earlier run, for entries that this run has not found yet."""
        done = totals(counts)
        for name in RecordedCounts.names:
            setattr(self, name, getattr(self, name) + getattr(done, name))
        self.resumed += done.settled
        self.resumed_bytes += done.bytes_done


FOUND, SIZED, FAILED, DIRECTORIES = map(
    RecordedCounts.names.index, ("found", "sized", "failed", "directories")
)
"""The indices of these counters in a row."""


def totals(counts: tuple[int, ...] | Mapping[str, int]) -> CopyCounters:
    """Return counters from a row, or from named counts of any version."""
    if isinstance(counts, Mapping):
        return CopyCounters(**{name: counts[name] for name in CopyCounters.names if name in counts})
    return CopyCounters.of(counts)


def named(counts: tuple[int, ...]) -> NamedCounts:
    """Return the counts of a row by name, for the journal."""
    return {name: n for name, n in zip(CopyCounters.names, counts, strict=False) if n}


def of_names(names: int, before: tuple[int, ...], after: tuple[int, ...]) -> tuple[int, ...]:
    """Return the counts of completed names, between two readings of all counts.

    The names were found earlier, and failures are not included.
    """
    counts = [b - a for a, b in zip(before, after, strict=True)]
    counts[FOUND] = counts[SIZED] = names
    counts[FAILED] = 0
    return tuple(counts)


def of_new_directory(files: int, size: int) -> NamedCounts:
    """Return the counts of a new directory with these files and bytes."""
    counts = {"sized": files + 1, "scans_done": 1, "directories": 1, "directories_created": 1}
    if files:
        counts |= {"files": files, "found": files}
    if size:
        counts |= {"bytes_found": size, "bytes_done": size}
    return counts


_LETTERS = {
    stat.S_IFREG: "f",
    stat.S_IFDIR: "d",
    stat.S_IFLNK: "l",
    stat.S_IFIFO: "p",
    stat.S_IFSOCK: "s",
    stat.S_IFBLK: "b",
    stat.S_IFCHR: "c",
}


def letter_of(mode: int) -> str:
    """Return the letter of a kind of entry."""
    return _LETTERS.get(stat.S_IFMT(mode), "?")


class CopyActionLog(CopyObserver):
    """The action log of one thread; `at` sets the directory of the following entries."""

    def __init__(
        self,
        tool: str,
        wanted: ActionOutput,
        rank: int,
        first: CopyActionLog | None = None,
        *,
        planned: bool = False,
    ) -> None:
        """`first` belongs to the rank's first thread."""
        with_first = None if first is None else first.actions
        self.actions: ActionLog = ActionLog(tool, wanted, rank, with_first, planned=planned)
        self._root = 0
        self._path = b""

    def at(self, root: int, path: bytes) -> None:
        """Set the source directory of the following entries."""
        self._root, self._path = root, path

    def path_of(self, name: bytes) -> bytes:
        """Return the path of a name in the directory; empty for a root."""
        return b"" if self._path == HOLDER else join_path(self._path, name)

    def copied(self, name: bytes, size: int) -> None:
        self.actions.done("copy", self._root, self.path_of(name), "f", size)

    def link(self, name: bytes, text: bytes) -> None:
        self.actions.done("copy", self._root, self.path_of(name), "l")

    def stays(self, directory_fd: int, name: bytes, stop: Callable[[], bool]) -> None:
        status = os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
        self.actions.skipped(self._root, self.path_of(name), letter_of(status.st_mode))

    def special(self, directory_fd: int, name: bytes) -> None:
        """Record a copied special file."""
        self.done("copy", os.stat(name, dir_fd=directory_fd, follow_symlinks=False).st_mode, name)

    def done(self, action: str, mode: int, name: bytes, size: int = 0) -> None:
        """Record any other action on an entry of this mode."""
        self.actions.done(action, self._root, self.path_of(name), letter_of(mode), size)

    def directory(self, root: int, path: bytes, action: str = "copy") -> None:
        """Record a completed directory; without an `action` it was up to date."""
        if action:
            self.actions.done(action, root, path, "d")
        else:
            self.actions.skipped(root, path, "d")

    def failed(self, failure: Failure) -> None:
        """Record a failed entry."""
        self.actions.failed("copy", failure.root, failure.entry, failure.errno)
