"""What is counted of the entries that are copied."""

from __future__ import annotations

from collections.abc import Iterable

from pcircle.counting import Counting
from pcircle.fs.lustre import STRIPE
from pcircle.fs.xattrs import ACL, FLAGS, XATTR

HARD_LINKS = "hard links"
_LOST = {
    XATTR: "lost_xattr",
    ACL: "lost_acl",
    FLAGS: "lost_flags",
    STRIPE: "lost_stripe",
    HARD_LINKS: "lost_links",
}
_OF_ENTRY = ("files", "links", "special", "skipped", "sized", "bytes_found", "bytes_done")


class Counts(Counting):
    """Running counts of one thread's entries; any thread may read them.

    `sized` are the entries whose size is known, `skipped` those that were left as they were.
    `recalled` are files that were read although they are offline.
    `lost_` are entries by what of them could not be kept.
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
        """Count an entry of which these could not be kept."""
        for kind in kinds:
            setattr(self, _LOST[kind], getattr(self, _LOST[kind]) + 1)

    @property
    def not_kept(self) -> dict[str, int]:
        """Entries by what of them could not be kept, as it is called."""
        found = {kind: getattr(self, name) for kind, name in _LOST.items()}
        return {kind: count for kind, count in found.items() if count}

    def copied(self) -> tuple[int, ...]:
        """What `take_back` wants to know of the time before an entry."""
        return tuple(getattr(self, name) for name in _OF_ENTRY)

    def take_back(self, before: tuple[int, ...]) -> None:
        """The entry that was counted since has failed after all."""
        for name, count in zip(_OF_ENTRY, before, strict=True):
            setattr(self, name, count)

    def add_files(self, files: int, size: int) -> None:
        """So many files were copied, with so many bytes in all."""
        self.files += files
        self.sized += files
        self.bytes_found += size
        self.bytes_done += size
