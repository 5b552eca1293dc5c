"""A task of which each worker thread of a rank has a part: what all such tasks have in common.

A part has its own counters, buffers and open directories, so that nothing in the hot loops needs a
lock; what the rank has as a whole the parts take from the first.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

import msgspec

from pcircle.circle import ProgressSums
from pcircle.runtime.task import Task, Work

I = TypeVar("I")  # noqa: E741 - item
R = TypeVar("R")  # result


class Counting(Protocol):
    """The counters of a part."""

    def sums(self) -> ProgressSums:
        """The counts for a progress round, of one rank."""

    def work(self) -> Work:
        """How much was done so far."""

    def figures(self, counts: tuple[int, ...]) -> Mapping[str, int]:
        """What a summary tells of a rank with these counts, see `Task.figures`."""


class PartedTask(Task[I, R]):
    """A task in parts. `parts` has all that there are so far, the task itself first."""

    def __init__(self) -> None:
        self.parts: list[Any] = [self]  # of the subclass

    @property
    @abstractmethod
    def counted(self) -> Counting:
        """The counters of this part alone."""

    @abstractmethod
    def beside(self, number: int) -> PartedTask[I, R]:
        """Make the part of worker thread `number`, which is not the first; on that thread."""

    def part(self, number: int) -> PartedTask[I, R]:
        """See `Task.part`."""
        if not number:
            return self
        part = self.beside(number)
        self.parts.append(part)
        return part

    def measure(self) -> ProgressSums:
        """See `Task.measure`."""
        if len(self.parts) == 1:
            return self.counted.sums()
        sums = sum((part.counted.sums() for part in self.parts), ProgressSums())
        return msgspec.structs.replace(sums, ranks=1)

    def figures(self, counts: tuple[int, ...]) -> Mapping[str, int]:
        """See `Task.figures`."""
        return self.counted.figures(counts)

    def work(self) -> Work:
        """See `Task.work`."""
        each = [part.counted.work() for part in self.parts]
        return Work(sum(done.metadata for done in each), sum(done.data for done in each))
