"""What a rank holds and gives: runs of siblings, and whom their results go to.

A run is (first, last, slot): the siblings `first` until `last`, whose results
go to `slot`. What is given is a bundle, with one slot for each run in it.
"""

from __future__ import annotations

from typing import TypeAlias


class Slot:
    """The results of a run that was given away come together here, on the rank that got it."""

    __slots__ = ("bundle", "out", "parent", "runs")

    def __init__(self, bundle: Bundle | None, parent: Slot | None) -> None:
        self.bundle = bundle  # None for the job's own
        self.parent = parent  # the slot at the victim which this was a part of
        self.runs = 0  # on the stack of the rank, the running item included
        self.out = 0  # slots of bundles that were given on

    @property
    def complete(self) -> bool:
        """Nothing is waited for any more."""
        return not self.runs and not self.out


class Bundle:
    """What was given at once, until all of its results have gone back."""

    __slots__ = ("done", "open", "timed", "victim")

    def __init__(self, victim: int) -> None:
        self.victim = victim
        self.open = 0  # slots that are not complete
        self.done: list[Slot] = []  # parents of slots that are, and wait for the others
        self.timed = False


Run: TypeAlias = "tuple[int, int, Slot]"


def cut(stack: list[Run], count: int, victim: int) -> list[Run]:
    """Takes `count` items from the steal end of a stack, as runs of a new bundle."""
    bundle = Bundle(victim)
    given: list[Run] = []
    while count:
        first, last, parent = stack[0]
        parent.out += 1
        slot = Slot(bundle, parent)
        slot.runs = 1
        if last - first <= count:
            del stack[0]
            parent.runs -= 1
            given.append((first, last, slot))
            count -= last - first
        else:
            stack[0] = (first, last - count, parent)
            given.append((last - count, last, slot))
            count = 0
    bundle.open = len(given)
    return given
