"""What a rank counts while it copies, and what all of them count together."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pcircle.checkpoint.journal import Lengths
from pcircle.circle import Sums
from pcircle.copying.counts import KINDS, Counts
from pcircle.runtime import RankReport, Work
from pcircle.ui.pace import Known

FOUND, SIZED, FAILED, SPECIAL_SKIPPED = 0, 1, 7, 16
"""Where these are in the counts in a row."""

_AS_ONE_BYTES = 256 << 10


class Counters(Counts):
    """A rank's running counts; written by the worker, read by the main thread.

    `found` are the entries seen in the source, each of which ends as exactly
    one of files, directories, links, special, skipped, special_skipped or failed. `scans_due` are
    the directories found, `scans_done` those read.
    `special_skipped` are special files that are not copied without -a.
    `resumed` and `resumed_bytes` are what of all that an earlier run has done.
    """

    __slots__ = (
        "directories",
        "failed",
        "found",
        "resumed",
        "resumed_bytes",
        "scans_done",
        "scans_due",
        "special_skipped",
    )

    def __init__(self) -> None:
        super().__init__()
        self.found = self.scans_due = self.scans_done = 0
        self.directories = self.failed = self.special_skipped = 0
        self.resumed = self.resumed_bytes = 0

    def counts(self) -> tuple[int, ...]:
        """The counts in a row; `totals` reads them."""
        return (
            self.found,
            self.sized,
            self.scans_due,
            self.scans_done,
            self.files,
            self.directories,
            self.links,
            self.failed,
            self.bytes_found,
            self.bytes_done,
            self.special,
            *self.not_kept.values(),
            self.skipped,
            self.special_skipped,
        )

    def work(self) -> Work:
        """What was done so far, in names; so many bytes count as one."""
        names = self.files + self.links + self.directories + self.special + self.scans_done
        return Work(names, self.bytes_done / _AS_ONE_BYTES)

    def resume(self, counts: tuple[int, ...]) -> None:
        """Take over counts of an earlier run, of entries that had not been found yet."""
        done = totals(counts)
        for name in _PLAIN:
            setattr(self, name, getattr(self, name) + getattr(done, name))
        for kind, count in done.not_kept.items():
            self.not_kept[kind] += count
        self.resumed += done.settled
        self.resumed_bytes += done.bytes_done

    def sums(self) -> Sums:
        """As a progress round adds them up; `totals` reads them."""
        return Sums((*self.counts(), self.resumed, self.resumed_bytes), self.weight, 1)


LENGTHS = Lengths(len(Counters().counts()), len(Counters().sums().counts))
"""How many the counts in a row are, and with what was resumed."""


def of_names(names: int, before: tuple[int, ...], after: tuple[int, ...]) -> tuple[int, ...]:
    """The counts of some names that were done, between two looks at the counts of all.

    They were found earlier, and what failed meanwhile is not among them.
    """
    counts = [b - a for a, b in zip(before, after, strict=True)]
    counts[FOUND] = counts[SIZED] = names
    counts[FAILED] = 0
    return tuple(counts)


_PLAIN = (
    "found",
    "sized",
    "scans_due",
    "scans_done",
    "files",
    "directories",
    "links",
    "failed",
    "bytes_found",
    "bytes_done",
    "special",
    "skipped",
    "special_skipped",
)


class Totals(msgspec.Struct, frozen=True):
    """The counts of one rank or of many."""

    found: int = 0
    sized: int = 0
    scans_due: int = 0
    scans_done: int = 0
    files: int = 0
    directories: int = 0
    links: int = 0
    failed: int = 0
    bytes_found: int = 0
    bytes_done: int = 0
    special: int = 0
    lost_xattr: int = 0
    lost_acl: int = 0
    lost_flags: int = 0
    lost_stripe: int = 0
    lost_links: int = 0
    skipped: int = 0
    special_skipped: int = 0
    resumed: int = 0
    resumed_bytes: int = 0

    @property
    def copied(self) -> int:
        """Entries that are copied."""
        return self.files + self.directories + self.links + self.special

    @property
    def not_kept(self) -> dict[str, int]:
        """Entries by what of them could not be kept."""
        lost = self.lost_xattr, self.lost_acl, self.lost_flags, self.lost_stripe, self.lost_links
        return {kind: count for kind, count in zip(KINDS, lost, strict=True) if count}

    @property
    def settled(self) -> int:
        """Entries that have come to an end: copied, left as they were or out, or failed."""
        return self.copied + self.skipped + self.special_skipped + self.failed

    @property
    def troubles(self) -> int:
        """Entries that have failed."""
        return self.failed

    def known(self, weight: float) -> Known:
        """What is known of the work, for how long it will take."""
        return Known(
            found=self.found,
            sized=self.sized,
            done=self.settled,
            bytes_found=self.bytes_found,
            bytes_done=self.bytes_done,
            scanned=self.scans_due == self.scans_done,
            weight=weight,
            earlier=self.resumed,
            earlier_bytes=self.resumed_bytes,
        )


def totals(counts: tuple[int, ...]) -> Totals:
    """The counts of `Counters.sums` by name."""
    return Totals(*counts)


def add_up(reports: Sequence[RankReport]) -> Totals:
    """The counts of all ranks together."""
    columns = zip(*(report.counts for report in reports), strict=True)
    return totals(tuple(map(sum, columns))) if reports else Totals()
