"""What a rank counts while it copies, and what all of them count together."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from pcircle.checkpoint.journal import NamedCounts
from pcircle.copying.counts import Counts
from pcircle.tool.counters import Measured
from pcircle.ui.pace import Known


class Counted(Counts):
    """What is counted of entries, and recorded with them.

    `found` are the entries seen in the source, each of which ends as exactly
    one of files, directories, links, special, skipped, special_skipped or failed. `scans_due` are
    the directories found, `scans_done` those read.
    `special_skipped` are special files that are not copied without -a, `touched` those of the
    skipped whose attributes alone were brought up to date, `linked` those that were linked to an
    entry of another tree, and `nearby` the files whose content another tree gave. `removed` are
    entries that only the target had, and `surplus` the paths of those among them that went where
    they were found, less what is below these. `directories_created` are those of the directories
    that were not there, `directories_touched` those that were and whose attributes alone were
    brought up to date.
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


class Counters(Measured, Counted):
    """Counts of a worker, of a rank or of all; written by the worker, read by the main thread.

    `offline` are files that were left out since their data is elsewhere.
    `resumed` and `resumed_bytes` are what of all that an earlier run has done. `ahead` are the
    large files that have not begun, whose bytes are known since they were met.
    """

    offline: int
    resumed: int
    resumed_bytes: int
    ahead: int
    ahead_bytes: int

    def counts(self) -> tuple[int, ...]:
        """What is recorded, in a row; `totals` reads it."""
        return Counted.row_of(self)

    @property
    def settled(self) -> int:
        """Entries that have come to an end: copied, left as they were or out, or failed."""
        return self.completed + self.skipped + self.special_skipped + self.failed

    def known(self, weight: float) -> Known:
        """What is known of the work, for how long it will take: without what took this run none."""
        known = super().known(weight)
        return replace(
            known,
            sized=known.sized + self.ahead,
            bytes_found=known.bytes_found + self.ahead_bytes,
            earlier=self.resumed,
            earlier_bytes=self.resumed_bytes,
        )

    def resume(self, counts: Mapping[str, int]) -> None:
        """Take over counts of an earlier run, of entries that had not been found yet."""
        done = totals(counts)
        for name in Counted.names:
            setattr(self, name, getattr(self, name) + getattr(done, name))
        self.resumed += done.settled
        self.resumed_bytes += done.bytes_done


FOUND, SIZED, FAILED, DIRECTORIES = map(
    Counted.names.index, ("found", "sized", "failed", "directories")
)
"""Where these are in the counts in a row."""


def totals(counts: tuple[int, ...] | Mapping[str, int]) -> Counters:
    """Counts in a row, or by name as they are in a journal: of another version's those we have."""
    if isinstance(counts, Mapping):
        return Counters(**{name: counts[name] for name in Counters.names if name in counts})
    return Counters.of(counts)


def named(counts: tuple[int, ...]) -> NamedCounts:
    """Counts of a row by name, for the journal."""
    return {name: n for name, n in zip(Counters.names, counts, strict=False) if n}


def of_names(names: int, before: tuple[int, ...], after: tuple[int, ...]) -> tuple[int, ...]:
    """The counts of some names that were done, between two looks at the counts of all.

    They were found earlier, and what failed meanwhile is not among them.
    """
    counts = [b - a for a, b in zip(before, after, strict=True)]
    counts[FOUND] = counts[SIZED] = names
    counts[FAILED] = 0
    return tuple(counts)


def of_new_directory(files: int, size: int) -> NamedCounts:
    """The counts of a directory that was made and holds so many files, of so many bytes in all."""
    counts = {"sized": files + 1, "scans_done": 1, "directories": 1, "directories_created": 1}
    if files:
        counts |= {"files": files, "found": files}
    if size:
        counts |= {"bytes_found": size, "bytes_done": size}
    return counts
