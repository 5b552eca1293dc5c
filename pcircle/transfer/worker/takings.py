"""What a worker has done since it was asked last, for the result of an item or of a directory.

The counters run on for the whole job; a directory's record in the checkpoint wants its own part of
them, and its signature the entries that were added. Without either there is nothing to be told.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import sub
from typing import TYPE_CHECKING

from pcircle.checkpoint.journal import Counts, add_counts
from pcircle.transfer.counters import FAILED, Counters
from pcircle.transfer.items import NOTHING, Part

if TYPE_CHECKING:
    from pcircle.signature import Signer


class Takings:
    """One worker's. `counted` tells that counts are wanted."""

    def __init__(self, counters: Counters, signer: Signer | None, *, counted: bool) -> None:
        self._signer = signer
        self._before: Counts = ()
        self._counted = counted
        self.now: Callable[[], Counts] = counters.counts if counted else tuple
        """The counts so far, if they are wanted."""

    def begin(self) -> Counts:
        """An item begins: what the last one left is not its own. The counts so far."""
        self._before = self.now()
        if self._signer is not None:
            self._signer.clear()
        return self._before

    def signed(self) -> Part:
        """The entries that were added since they were taken last; `NOTHING` if there are none."""
        return NOTHING if self._signer is None else self._signer.attach_to(NOTHING)

    def take(self) -> Part:
        """What was done since; `NOTHING` if that is nothing."""
        part = NOTHING
        if self._counted:
            now = self.now()
            if now != self._before:
                part = Part(between(self._before, now))
                self._before = now
        return part if self._signer is None else self._signer.attach_to(part)

    def portable(self, part: Part) -> Part:
        """A part for another rank."""
        return part if self._signer is None else self._signer.make_portable(part)

    def merge(self, a: Part, b: Part) -> Part:
        """Two parts as one."""
        if a is NOTHING or b is NOTHING:
            return b if a is NOTHING else a
        done = Part(
            add_counts(a.counts, b.counts), max(a.epoch, b.epoch), blocks=a.blocks + b.blocks
        )
        return done if self._signer is None else self._signer.merge_results(done, a, b)


def between(before: Counts, after: Counts) -> Counts:
    """What was counted from one moment to another."""
    return tuple(map(sub, after, before))


def has_failed(part: Part) -> bool:
    """Whether anything of it has failed, as far as that is counted."""
    return bool(part.counts) and part.counts[FAILED] > 0
