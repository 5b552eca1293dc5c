"""What a rank counts while it copies, and what all of them count together."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from pcircle.circle import Sums
from pcircle.fs.xattrs import ACL, FLAGS, XATTR

KINDS = (XATTR, ACL, FLAGS)


class Counters:
    """A rank's running counts; written by the worker, read by the main thread.

    `found` are the entries seen in the source, each of which ends as exactly
    one of files, directories, links, special, skipped or failed. `sized` are those
    whose size is known; `scans_due` the directories found, `scans_done` those read.
    `not_kept` counts entries by what of them the destination could not hold.
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
        "scans_done",
        "scans_due",
        "sized",
        "skipped",
        "special",
        "weight",
    )

    def __init__(self) -> None:
        self.found = self.sized = self.scans_due = self.scans_done = 0
        self.files = self.directories = self.links = self.failed = 0
        self.skipped = 0
        self.bytes_found = self.bytes_done = 0
        self.weight = 0.0
        self.special = 0
        self.not_kept = dict.fromkeys(KINDS, 0)

    def lose(self, kinds: Iterable[str]) -> None:
        """Count an entry of which the destination could not hold these."""
        for kind in kinds:
            self.not_kept[kind] += 1

    def sums(self) -> Sums:
        """As a progress round adds them up; `totals` reads them."""
        return Sums(
            (
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
            ),
            self.weight,
            1,
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
    skipped: int = 0

    @property
    def copied(self) -> int:
        """Entries that are copied."""
        return self.files + self.directories + self.links + self.special

    @property
    def not_kept(self) -> dict[str, int]:
        """Entries by what of them the destination could not hold."""
        counts = zip(KINDS, (self.lost_xattr, self.lost_acl, self.lost_flags), strict=True)
        return {kind: count for kind, count in counts if count}

    @property
    def settled(self) -> int:
        """Entries that have come to an end: copied, left as they were, or failed."""
        return self.copied + self.skipped + self.failed

    @property
    def walked(self) -> bool:
        """All directories are read and all sizes known, so that shares are exact."""
        return self.scans_due == self.scans_done and self.found == self.sized


def totals(counts: tuple[int, ...]) -> Totals:
    """The counts of `Counters.sums` by name."""
    return Totals(*counts)
