"""Disks that forget: what of a job's work would survive if the power failed now.

Each node has one, which is synced by one rank at a time, for all that wait. What a
rank writes is volatile until a sync of its node that began later has ended; that
sync may take along some of what was written meanwhile. What a rank records of its
work is on disk at once, which is the worst case for a claim; it counts by the marks
of commits, as in `pcircle.ops.checkpoint.journal`. Whatever counts must be stable at that
moment: so the power is cut, in effect, after every step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from random import Random

from pcircle.ops.checkpoint.file_system_sync import SyncCounts


class Disks:
    """The nodes' disks, and what all journals of the job say. Items are their numbers here."""

    def __init__(self, nodes: Iterable[int], rng: Random) -> None:
        self.committed = 0
        self.claims = 0  # that were found to be true
        self._rng = rng
        self._written: dict[int, set[int]] = {node: set() for node in nodes}
        self.syncs = dict.fromkeys(self._written, SyncCounts())
        self.busy: set[int] = set()  # nodes of which a rank syncs
        self.spared = 0  # syncs that a rank left to another one
        self._stable: set[int] = set()
        # Epoch and numbers, not yet counting.
        self._records: list[tuple[int, Collection[int]]] = []

    def write(self, node: int, number: int) -> None:
        """An item's work is done; it is not on disk."""
        self._written[node].add(number)

    def begin_sync(self, node: int) -> set[int]:
        """A sync begins; its end wants to know what it found."""
        return set(self._written[node])

    def end_sync(self, node: int, found: set[int]) -> None:
        """A sync ends."""
        written = self._written[node]
        lucky = {number for number in written - found if self._rng.random() < 0.3}
        self._stable |= found | lucky
        written -= found | lucky

    def is_stable(self, number: int) -> bool:
        """Whether a work would survive."""
        return number in self._stable

    def record(self, epoch: int, numbers: Collection[int]) -> None:
        """A journal says that all these numbers are done, as of this epoch."""
        if epoch <= self.committed:
            self._check(epoch, numbers)
        else:
            self._records.append((epoch, numbers))

    def mark(self, epoch: int) -> None:
        """A journal says that this epoch is committed."""
        self.committed = max(self.committed, epoch)
        due = [each for each in self._records if each[0] <= self.committed]
        self._records = [each for each in self._records if each[0] > self.committed]
        for each in due:
            self._check(*each)

    def _check(self, epoch: int, numbers: Collection[int]) -> None:
        lost = set(numbers) - self._stable
        assert not lost, f"epoch {epoch} is committed, but {sorted(lost)[:5]} would be lost"
        self.claims += 1

    @property
    def latest(self) -> int:
        """The latest epoch that was recorded and does not count."""
        return max((epoch for epoch, _ in self._records), default=0)
