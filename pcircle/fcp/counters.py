"""What a rank counts while it copies, and what all of them count together."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from pcircle.checkpoint.journal import Lengths
from pcircle.circle import Sums
from pcircle.fs.lustre import STRIPE
from pcircle.fs.xattrs import ACL, FLAGS, XATTR
from pcircle.runtime import Work

FOUND, SIZED, FAILED, SPECIAL_SKIPPED = 0, 1, 7, 16
"""Where these are in the counts in a row."""

_AS_ONE_BYTES = 256 << 10
HARD_LINKS = "hard links"
KINDS = (XATTR, ACL, FLAGS, STRIPE, HARD_LINKS)


class Counters:
    """A rank's running counts; written by the worker, read by the main thread.

    `found` are the entries seen in the source, each of which ends as exactly
    one of files, directories, links, special, skipped, special_skipped or failed. `sized` are those
    whose size is known; `scans_due` the directories found, `scans_done` those read.
    `special_skipped` are special files that are not copied without -a.
    `not_kept` counts entries by what of them could not be kept.
    `resumed` and `resumed_bytes` are what of all that an earlier run has done.
    """

    __slots__ = (
        "bytes_done",
        "bytes_found",
        "directories",
        "failed",
        "files",
        "found",
        "links",
        "not_kept",
        "resumed",
        "resumed_bytes",
        "scans_done",
        "scans_due",
        "sized",
        "skipped",
        "special",
        "special_skipped",
        "weight",
    )

    def __init__(self) -> None:
        self.found = self.sized = self.scans_due = self.scans_done = 0
        self.files = self.directories = self.links = self.failed = 0
        self.skipped = self.special_skipped = 0
        self.bytes_found = self.bytes_done = 0
        self.weight = 0.0
        self.special = 0
        self.resumed = self.resumed_bytes = 0
        self.not_kept = dict.fromkeys(KINDS, 0)

    def lose(self, kinds: Iterable[str]) -> None:
        """Count an entry of which these could not be kept."""
        for kind in kinds:
            self.not_kept[kind] += 1

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

    def copied(self) -> tuple[int, ...]:
        """What `take_back` wants to know of the time before an entry."""
        return tuple(getattr(self, name) for name in _OF_ENTRY)

    def take_back(self, before: tuple[int, ...]) -> None:
        """The entry that was counted since has failed after all."""
        for name, count in zip(_OF_ENTRY, before, strict=True):
            setattr(self, name, count)

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


_OF_ENTRY = ("files", "links", "special", "skipped", "sized", "bytes_found", "bytes_done")
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
    def walked(self) -> bool:
        """All directories are read and all sizes known, so that shares are exact."""
        return self.scans_due == self.scans_done and self.found == self.sized


def totals(counts: tuple[int, ...]) -> Totals:
    """The counts of `Counters.sums` by name."""
    return Totals(*counts)
