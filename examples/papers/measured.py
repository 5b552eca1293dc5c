"""Common code of measured figures: turns, medians, and the load of the machine.

Unlike simulated figures, measured ones depend on the machine and on its load. So in each round all
alternatives take turns, and medians over rounds are compared. A comment in the first line of the
table describes the machine and its load.
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
        """Return the comment for the table, now that the measurement is over."""
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
    """Measure each name once a round, in rotating order; drop the first rounds."""
    found: dict[str, list[T]] = {name: [] for name in names}
    for number in range(dropped + rounds):
        start = number % len(names)
        for name in [*names[start:], *names[:start]]:
            value = measure(name)
            if number >= dropped:
                found[name].append(value)
    return found


def scratch() -> Path | None:
    """Return a directory in memory if there is one, or None for the usual temporary one."""
    memory = Path("/dev/shm")
    return memory if os.access(memory, os.W_OK) else None
