"""The work of a thread since the last call, for the result of an item or of a directory.

Counters run for the whole job; a directory's record in the checkpoint needs its own share, and its
signature needs the entries that were added. Without either nothing is computed.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import sub
from typing import TYPE_CHECKING

from pcircle.ops.checkpoint.journal import Counts, add_counts
from pcircle.ops.copy.tree.counters import FAILED, Counters
from pcircle.ops.copy.tree.items import NOTHING, Part

if TYPE_CHECKING:
    from pcircle.ops.digest import Signer


class Takings:
    """The counter differences of one worker. `counted` means that counts are needed."""

    def __init__(self, counters: Counters, signer: Signer | None, *, counted: bool) -> None:
        self._signer = signer
        self._before: Counts = ()
        self._counted = counted
        self.now: Callable[[], Counts] = counters.counts if counted else tuple
        """The counts so far, if they are wanted."""

    def begin(self) -> Counts:
        """Start an item without leftovers of the last one; return the counts so far."""
        self._before = self.now()
        if self._signer is not None:
            self._signer.clear()
        return self._before

    def signed(self) -> Part:
        """Return the entries since the last call; `NOTHING` without any."""
        return NOTHING if self._signer is None else self._signer.attach_to(NOTHING)

    def take(self) -> Part:
        """Return the work since the last call; `NOTHING` without any."""
        part = NOTHING
        if self._counted:
            now = self.now()
            if now != self._before:
                part = Part(between(self._before, now))
                self._before = now
        return part if self._signer is None else self._signer.attach_to(part)

    def portable(self, part: Part) -> Part:
        """Return a part for another rank."""
        return part if self._signer is None else self._signer.make_portable(part)

    def merge(self, a: Part, b: Part) -> Part:
        """Merge two parts."""
        if a is NOTHING or b is NOTHING:
            return b if a is NOTHING else a
        done = Part(
            add_counts(a.counts, b.counts), max(a.epoch, b.epoch), blocks=a.blocks + b.blocks
        )
        return done if self._signer is None else self._signer.merge_results(done, a, b)


def between(before: Counts, after: Counts) -> Counts:
    """Return the difference of two counts."""
    return tuple(map(sub, after, before))


def has_failed(part: Part) -> bool:
    """Return whether a part has failures, as far as counted."""
    return bool(part.counts) and part.counts[FAILED] > 0
