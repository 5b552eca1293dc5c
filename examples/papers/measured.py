"""What the figures that are measured share: turns, medians, and what else the machine was doing.

Unlike the simulated figures these depend on the machine and on its load. So each thing that is
compared takes its turn in each round, medians are taken over rounds, and the table says in its
first line, a comment, where and beside what it was made.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class Surroundings(NamedTuple):
    """The load of the machine before a measurement."""

    load: float

    @classmethod
    def now(cls) -> Surroundings:
        return cls(os.getloadavg()[0])

    def note(self, more: str = "") -> str:
        """What to write above the table, now that the measurement is over."""
        priority = os.sched_getparam(0).sched_priority
        return (
            f"{len(os.sched_getaffinity(0))} cores, {platform.system()} {platform.release()}, "
            f"load average {self.load:.2f} before and {os.getloadavg()[0]:.2f} after"
            + (f", real-time priority {priority}" if priority else "")
            + (f"; {more}" if more else "")
        )


def in_turns(
    names: Sequence[str], rounds: int, measure: Callable[[str], T], dropped: int = 1
) -> dict[str, list[T]]:
    """Measure each name once a round, in an order that rotates; the first rounds don't count."""
    found: dict[str, list[T]] = {name: [] for name in names}
    for number in range(dropped + rounds):
        start = number % len(names)
        for name in [*names[start:], *names[:start]]:
            value = measure(name)
            if number >= dropped:
                found[name].append(value)
    return found


def scratch() -> Path | None:
    """Memory to measure in, if there is some: None for the usual place of temporary files."""
    memory = Path("/dev/shm")
    return memory if os.access(memory, os.W_OK) else None
