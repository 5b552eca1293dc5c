"""Tasks with one part per worker thread: the base class of such tasks.

A part has its own counters, buffers and open directories, so that the hot loops need no lock.
Everything that belongs to the rank as a whole is shared with the first part.
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


class PartCounters(Protocol):
    """The counters of a part."""

    def sums(self) -> ProgressSums:
        """Return the counts for a progress round, as the counts of one rank."""

    def work(self) -> Work:
        """Return the amount of work done so far."""

    def figures(self, counts: tuple[int, ...]) -> Mapping[str, int]:
        """Return a rank's figures for a summary from its counts; see `Task.figures`."""


class PartedTask(Task[I, R]):
    """A task in parts. `parts` are those created so far, the task itself first."""

    def __init__(self) -> None:
        self.parts: list[Any] = [self]  # of the subclass

    @property
    @abstractmethod
    def counted(self) -> PartCounters:
        """The counters of this part only."""

    @abstractmethod
    def beside(self, number: int) -> PartedTask[I, R]:
        """Create the part of worker thread `number`, not the first; called on that thread."""

    def part(self, number: int) -> PartedTask[I, R]:
        if not number:
            return self
        part = self.beside(number)
        self.parts.append(part)
        return part

    def measure(self) -> ProgressSums:
        if len(self.parts) == 1:
            return self.counted.sums()
        sums = sum((part.counted.sums() for part in self.parts), ProgressSums())
        return msgspec.structs.replace(sums, ranks=1)

    def figures(self, counts: tuple[int, ...]) -> Mapping[str, int]:
        return self.counted.figures(counts)

    def work(self) -> Work:
        amounts = [part.counted.work() for part in self.parts]
        return Work(sum(done.metadata for done in amounts), sum(done.data for done in amounts))
