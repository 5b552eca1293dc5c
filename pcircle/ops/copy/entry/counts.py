"""Counters of copied entries."""

from __future__ import annotations

from collections.abc import Iterable

from pcircle.core.counters import CounterSet
from pcircle.fs.attributes.lustre import STRIPE
from pcircle.fs.attributes.xattrs import ACL, FLAGS, XATTR

HARD_LINKS = "hard links"
_LOST = {
    XATTR: "lost_xattr",
    ACL: "lost_acl",
    FLAGS: "lost_flags",
    STRIPE: "lost_stripe",
    HARD_LINKS: "lost_links",
}
_ENTRY_COUNTERS = ("files", "links", "special", "skipped", "sized", "bytes_found", "bytes_done")


class CopyCounts(CounterSet):
    """The counters of one thread, which any thread may read.

    `sized` counts entries whose size is known, `skipped` existing entries that were left in place,
    and `recalled` files that were read although their data is offline. `atime_not_kept` counts
    files whose access times could not be kept as requested. `lost_*` count the entries for which
    attributes of a kind could not be preserved.
    """

    sized: int
    files: int
    links: int
    special: int
    skipped: int
    bytes_found: int
    bytes_done: int
    recalled: int
    atime_not_kept: int
    lost_xattr: int
    lost_acl: int
    lost_flags: int
    lost_stripe: int
    lost_links: int

    def lose(self, kinds: Iterable[str]) -> None:
        """Count an entry for which these kinds of attributes could not be preserved."""
        for kind in kinds:
            setattr(self, _LOST[kind], getattr(self, _LOST[kind]) + 1)

    @property
    def not_kept(self) -> dict[str, int]:
        """The number of entries that lost attributes, by the name of the kind in messages."""
        found = {kind: getattr(self, name) for kind, name in _LOST.items()}
        return {kind: count for kind, count in found.items() if count}

    def copied(self) -> tuple[int, ...]:
        """Return the counts that `take_back` restores."""
        return tuple(getattr(self, name) for name in _ENTRY_COUNTERS)

    def take_back(self, before: tuple[int, ...]) -> None:
        """Restore the counts of `before`, because an entry failed after it was counted."""
        for name, count in zip(_ENTRY_COUNTERS, before, strict=True):
            setattr(self, name, count)

    def add_files(self, files: int, size: int) -> None:
        """Count `files` copied files with a total size of `size` bytes."""
        self.files += files
        self.sized += files
        self.bytes_found += size
        self.bytes_done += size
