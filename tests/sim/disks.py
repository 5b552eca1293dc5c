"""Disks that forget: the completed work that would survive a power failure at this moment.

Each node has a disk, which one rank syncs at a time, for all that wait. Writes are volatile until a
later sync of the node ends; that sync may also cover some concurrent writes. Records are on disk at
once, which is the worst case for a claim; a record counts by the marks of commits, as in
`pcircle.ops.checkpoint.journal`. Whatever counts must be stable at that moment, so every step is
checked as before a power cut.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from random import Random

from pcircle.ops.checkpoint.file_system_sync import SyncCounts


class Disks:
    """The nodes' disks and all journals of the job. Items are represented by their numbers."""

    def __init__(self, nodes: Iterable[int], rng: Random) -> None:
        self.committed = 0
        self.claims = 0  # claims that were confirmed
        self._rng = rng
        self._written: dict[int, set[int]] = {node: set() for node in nodes}
        self.syncs = dict.fromkeys(self._written, SyncCounts())
        self.busy: set[int] = set()  # nodes on which a sync is in progress
        self.spared = 0  # syncs that a rank left to another rank
        self._stable: set[int] = set()
        # Epoch and numbers of records that do not count yet.
        self._records: list[tuple[int, Collection[int]]] = []

    def write(self, node: int, number: int) -> None:
        """Record that the work of an item is done, but not on disk."""
        self._written[node].add(number)

    def begin_sync(self, node: int) -> set[int]:
        """Begin a sync; return the state that its end needs."""
        return set(self._written[node])

    def end_sync(self, node: int, found: set[int]) -> None:
        """End a sync."""
        written = self._written[node]
        lucky = {number for number in written - found if self._rng.random() < 0.3}
        self._stable |= found | lucky
        written -= found | lucky

    def is_stable(self, number: int) -> bool:
        """Return whether the work of an item would survive."""
        return number in self._stable

    def record(self, epoch: int, numbers: Collection[int]) -> None:
        """Record in a journal that these numbers are done, under this epoch."""
        if epoch <= self.committed:
            self._check(epoch, numbers)
        else:
            self._records.append((epoch, numbers))

    def mark(self, epoch: int) -> None:
        """Record in a journal that this epoch is committed."""
        self.committed = max(self.committed, epoch)
        due = [record for record in self._records if record[0] <= self.committed]
        self._records = [record for record in self._records if record[0] > self.committed]
        for record in due:
            self._check(*record)

    def _check(self, epoch: int, numbers: Collection[int]) -> None:
        lost = set(numbers) - self._stable
        assert not lost, f"epoch {epoch} is committed, but {sorted(lost)[:5]} would be lost"
        self.claims += 1

    @property
    def latest(self) -> int:
        """Return the latest epoch that was recorded and does not count."""
        return max((epoch for epoch, _ in self._records), default=0)
