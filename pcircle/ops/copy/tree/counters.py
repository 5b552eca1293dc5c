"""The counters of a copy (for a thread, a rank or all ranks), and its action log.

`CounterDelta` computes the work of a thread since the last call, for the result of an item or a
directory. Counters accumulate over the whole job, but the checkpoint record of a directory needs
the directory's own share. The signature needs the entries that were added. Nothing is computed for
a copy that has neither a checkpoint nor a signature.

The action log, for `--json-lines`, is an observer. The copier notifies it of every entry that is
copied directly; code that copies entries in other ways reports its own actions.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping, Sequence
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
    """Computes counter differences for one worker; `counted` means that counts are needed."""

    def __init__(self, counters: CopyCounters, signer: Signer | None, *, counted: bool) -> None:
        self._signer = signer
        self._before: Counts = ()
        self._counted = counted
        self.now: Callable[[], Counts] = counters.counts if counted else tuple
        """Return the counts so far, or an empty row if they are not needed."""

    def begin(self) -> Counts:
        """Start an item, discard leftovers of the previous one, and return the counts so far."""
        self._before = self.now()
        if self._signer is not None:
            self._signer.clear()
        return self._before

    def signed(self) -> PartialResult:
        """Return the entries signed since the last call, or `NOTHING` if there are none."""
        return NOTHING if self._signer is None else self._signer.attach_to(NOTHING)

    def take(self) -> PartialResult:
        """Return the work since the last call, or `NOTHING` if there is none."""
        part = NOTHING
        if self._counted:
            now = self.now()
            if now != self._before:
                part = PartialResult(between(self._before, now))
                self._before = now
        return part if self._signer is None else self._signer.attach_to(part)

    def portable(self, part: PartialResult) -> PartialResult:
        """Return a result in a form that another rank can use."""
        return part if self._signer is None else self._signer.make_portable(part)

    def merge(self, a: PartialResult, b: PartialResult) -> PartialResult:
        """Return the sum of two results."""
        if a is NOTHING or b is NOTHING:
            return b if a is NOTHING else a
        done = PartialResult(
            add_counts(a.counts, b.counts), max(a.epoch, b.epoch), blocks=a.blocks + b.blocks
        )
        return done if self._signer is None else self._signer.merge_results(done, a, b)


def between(before: Counts, after: Counts) -> Counts:
    """Return the differences between two rows of counts."""
    return tuple(map(sub, after, before))


def has_failed(part: PartialResult) -> bool:
    """Return whether a result contains failures; results without counts never do."""
    return bool(part.counts) and part.counts[FAILED] > 0


class RecordedCounts(CopyCounts):
    """The counters that the checkpoint records together with the entries.

    `found` counts entries of the source, each of which is later counted once, by `files`,
    `directories`, `links`, `special`, `skipped`, `special_skipped` or `failed`. `scans_due` counts
    directories that were found, `scans_done` directories that were read. `special_skipped` counts
    special files that were skipped because -a was not given. `touched` counts skipped entries whose
    attributes were updated, `linked` hard links to entries of another tree, and `nearby` files
    whose content came from another tree. `removed` counts extraneous entries that were removed from
    the target; `surplus` counts only the topmost of these, not the entries below them.
    `directories_created` counts new directories, `directories_touched` existing ones whose
    attributes were updated.
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
    `resumed_bytes` count the work of an earlier run. `ahead` and `ahead_bytes` count large files
    that were found but not started, and their sizes.
    """

    offline: int
    resumed: int
    resumed_bytes: int
    ahead: int
    ahead_bytes: int

    def counts(self) -> tuple[int, ...]:
        """Return the recorded counts as a row; `totals` converts it back."""
        return RecordedCounts.row_of(self)

    @property
    def settled(self) -> int:
        """Return the number of entries that were copied or skipped, or that failed."""
        return self.completed + self.skipped + self.special_skipped + self.failed

    def known(self, weight: float) -> WorkCounts:
        """Return the known work, including the part that an earlier run has done."""
        known = super().known(weight)
        return replace(
            known,
            sized=known.sized + self.ahead,
            bytes_found=known.bytes_found + self.ahead_bytes,
            earlier=self.resumed,
            earlier_bytes=self.resumed_bytes,
        )

    def resume(self, counts: Mapping[str, int]) -> None:
        """Add the counts of an earlier run for entries that this run does not count otherwise."""
        done = totals(counts)
        for name in RecordedCounts.names:
            setattr(self, name, getattr(self, name) + getattr(done, name))
        self.resumed += done.settled
        self.resumed_bytes += done.bytes_done


FOUND, SIZED, FAILED, DIRECTORIES = map(
    RecordedCounts.names.index, ("found", "sized", "failed", "directories")
)
"""The indices of these counters in a row of counts."""


def totals(counts: tuple[int, ...] | Mapping[str, int]) -> CopyCounters:
    """Return counters from a row, or from named counts recorded by any version."""
    if isinstance(counts, Mapping):
        return CopyCounters(**{name: counts[name] for name in CopyCounters.names if name in counts})
    return CopyCounters.of(counts)


def named(counts: tuple[int, ...]) -> NamedCounts:
    """Return the counts of a row by name, for the journal."""
    return {name: n for name, n in zip(CopyCounters.names, counts, strict=False) if n}


def of_names(names: int, before: tuple[int, ...], after: tuple[int, ...]) -> tuple[int, ...]:
    """Return the counts of completed names from two readings of all counts.

    The names were found before the first reading, so they are counted as found here. Failures are
    not included.
    """
    counts = [b - a for a, b in zip(before, after, strict=True)]
    counts[FOUND] = counts[SIZED] = names
    counts[FAILED] = 0
    return tuple(counts)


def of_new_directory(files: int, size: int) -> NamedCounts:
    """Return the counts of a new directory with this many files and bytes."""
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
    """Return the letter for the file type in `mode`."""
    return _LETTERS.get(stat.S_IFMT(mode), "?")


class CopyActionLog(CopyObserver):
    """The action log of one thread."""

    def __init__(
        self,
        tool: str,
        output: ActionOutput,
        rank: int,
        first: CopyActionLog | None = None,
        *,
        planned: bool = False,
        shown: Sequence[bytes] = (),
    ) -> None:
        """Create the log; `first` is that of the rank's first thread, `shown` as in `ActionLog`."""
        with_first = None if first is None else first.actions
        self.actions: ActionLog = ActionLog(
            tool, output, rank, with_first, planned=planned, shown=shown
        )
        self._root = 0
        self._path = b""

    def at(self, root: int, path: bytes) -> None:
        """Set the source directory of the following entries."""
        self._root, self._path = root, path

    def path_of(self, name: bytes) -> bytes:
        """Return the path of a name in the current directory; empty for a root."""
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
        """Record an action on an entry with this mode."""
        self.actions.done(action, self._root, self.path_of(name), letter_of(mode), size)

    def directory(self, root: int, path: bytes, action: str = "copy") -> None:
        """Record a completed directory; an empty `action` means that it was up to date."""
        if action:
            self.actions.done(action, root, path, "d")
        else:
            self.actions.skipped(root, path, "d")

    def failed(self, failure: Failure) -> None:
        """Record a failed entry."""
        self.actions.failed("copy", failure.root, failure.entry, failure.errno)
