"""Counters for copied entries."""

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

    `sized` counts entries with known sizes, `skipped` entries that were left unchanged, `recalled`
    files that were read although they are offline. `lost_*` count entries by what could not be
    preserved.
    """

    sized: int
    files: int
    links: int
    special: int
    skipped: int
    bytes_found: int
    bytes_done: int
    recalled: int
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
        """Number of entries by the user-visible name of what could not be preserved."""
        found = {kind: getattr(self, name) for kind, name in _LOST.items()}
        return {kind: count for kind, count in found.items() if count}

    def copied(self) -> tuple[int, ...]:
        """Return the state that `take_back` restores."""
        return tuple(getattr(self, name) for name in _ENTRY_COUNTERS)

    def take_back(self, before: tuple[int, ...]) -> None:
        """Remove an entry that was counted since `before` but failed afterwards."""
        for name, count in zip(_ENTRY_COUNTERS, before, strict=True):
            setattr(self, name, count)

    def add_files(self, files: int, size: int) -> None:
        """Count a number of copied files with a total of `size` bytes."""
        self.files += files
        self.sized += files
        self.bytes_found += size
        self.bytes_done += size
