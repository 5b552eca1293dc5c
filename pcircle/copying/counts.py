"""What is counted of the entries that are copied."""

from __future__ import annotations

from collections.abc import Iterable

from pcircle.fs.lustre import STRIPE
from pcircle.fs.xattrs import ACL, FLAGS, XATTR

HARD_LINKS = "hard links"
KINDS = (XATTR, ACL, FLAGS, STRIPE, HARD_LINKS)

_OF_ENTRY = ("files", "links", "special", "skipped", "sized", "bytes_found", "bytes_done")


class Counts:
    """Running counts of one thread's entries; any thread may read them.

    `sized` are the entries whose size is known, `skipped` those that were left as they were, and
    `weight` is the share of the work that is done. `not_kept` counts entries by what of them could
    not be kept.
    """

    __slots__ = (
        "bytes_done",
        "bytes_found",
        "files",
        "links",
        "not_kept",
        "sized",
        "skipped",
        "special",
        "weight",
    )

    def __init__(self) -> None:
        self.sized = self.files = self.links = self.special = self.skipped = 0
        self.bytes_found = self.bytes_done = 0
        self.weight = 0.0
        self.not_kept = dict.fromkeys(KINDS, 0)

    def lose(self, kinds: Iterable[str]) -> None:
        """Count an entry of which these could not be kept."""
        for kind in kinds:
            self.not_kept[kind] += 1

    def copied(self) -> tuple[int, ...]:
        """What `take_back` wants to know of the time before an entry."""
        return tuple(getattr(self, name) for name in _OF_ENTRY)

    def take_back(self, before: tuple[int, ...]) -> None:
        """The entry that was counted since has failed after all."""
        for name, count in zip(_OF_ENTRY, before, strict=True):
            setattr(self, name, count)
