"""The state of a simulated rank, and the division of its work.

A run is (first, last, slot): the siblings from `first` up to but excluding `last`, whose results go
to `slot`. Work is given away as a bundle, with a new slot for each run. If a run is all that
remains of a slot from a third rank, that slot moves with it instead.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

NONE = -1
"""No item, or no rank."""
SPAWNED = -1.0
"""The value of `spawn_s` once an item has made its children."""


class Slot:
    """Collects the results of a run that was given away, on the rank that received it."""

    __slots__ = ("bundle", "first", "last", "out", "parent", "runs")

    def __init__(self, bundle: Bundle | None, parent: Slot | None, first: int, last: int) -> None:
        self.bundle: Bundle | None = bundle  # None for the root of the job
        self.parent: Slot | None = parent  # the victim's slot that this one is a part of
        self.first: int = first
        self.last: int = last
        self.runs: int = 0  # number of its runs on the rank's stack, including the running item
        self.out: int = 0  # number of slots for parts that were given to other ranks


NO_SLOT = Slot(None, None, 0, 0)
"""A placeholder for a rank that runs no item."""


class Bundle:
    """Work that was given away in one message and whose results have not all been returned."""

    __slots__ = ("done", "open", "timed", "victim")

    def __init__(self, victim: int) -> None:
        self.victim: int = victim
        self.open: int = 0  # incomplete slots
        self.done: list[Slot] = []  # parents of complete slots whose results are not returned yet
        self.timed: bool = False


Run: TypeAlias = "tuple[int, int, Slot]"


def cut(stack: list[Run], count: int, victim: int, thief: int) -> tuple[list[Run], list[Bundle]]:
    """Take `count` items from the steal end of a stack.

    Return the runs, whose slots belong to a new bundle or were moved out of older bundles. Also
    return the older bundles that lost a slot.
    """
    bundle = Bundle(victim)
    given: list[Run] = []
    moved: dict[Bundle, Bundle] = {}
    while count:
        first, last, parent = stack[0]
        begin = max(first, last - count)
        old = _movable_from(stack[0], begin, thief)
        if old is not None:
            slot = parent
            del stack[0]
            old.open -= 1
            slot.bundle = moved_to = moved.setdefault(old, Bundle(old.victim))
            moved_to.open += 1
        else:
            parent.out += 1
            slot = Slot(bundle, parent, begin, last)
            slot.runs = 1
            bundle.open += 1
            if begin == first:
                del stack[0]
                parent.runs -= 1
            else:
                stack[0] = (first, begin, parent)
        given.append((begin, last, slot))
        count -= last - begin
    return given, list(moved)


def _movable_from(run: Run, begin: int, thief: int) -> Bundle | None:
    """Return the bundle of the run's slot if the slot can move with the run, otherwise None.

    The run from `begin` must be all that remains of the slot, and the thief must not be the rank
    that gave it.
    """
    first, last, slot = run
    bundle = slot.bundle
    if begin > first or slot.runs > 1 or slot.out or bundle is None:
        return None
    is_remainder = bundle.victim != thief and slot.first <= first and last <= slot.last
    return bundle if is_remainder else None


class SimulatedRank:
    """The state of one rank."""

    __slots__ = (
        "ahead",
        "ahead_slot",
        "announced",
        "asking",
        "basic_got",
        "basic_sent",
        "current",
        "far",
        "got",
        "has_paused",
        "inbox",
        "number",
        "owing",
        "pause",
        "pushed_s",
        "pushed_to",
        "queued",
        "ready_s",
        "sent",
        "share_left",
        "slot",
        "spawn_s",
        "stack",
        "stepping",
        "taker",
        "tells",
        "tries",
        "until_s",
        "version",
        "waiters",
        "waits",
    )

    def __init__(self, number: int) -> None:
        self.number: int = number
        self.stack: list[Run] = []
        self.queued: int = 0  # number of items in the runs on the stack
        self.current: int = NONE  # the running item
        self.until_s: float = 0.0  # when it ends
        self.spawn_s: float = SPAWNED  # when it makes its children, unless it already has
        self.slot: Slot = NO_SLOT  # the destination of its result
        self.ahead: int = NONE  # the item that is handed out and runs next
        self.ahead_slot: Slot = NO_SLOT
        self.version: int = 0  # of its next scheduled event; older events are ignored
        self.waiters: dict[int, None] = {}  # newest last
        self.taker: int = 0  # the waiter being served
        self.share_left: int = 0  # remaining items of its share
        self.pushed_to: int = NONE  # the destination of the last push
        self.pushed_s: float = 0.0  # and its arrival time
        self.announced: dict[int, int] = {}  # items still to arrive, by sender
        # A bit per dimension in which the neighbour knows that this rank is waiting.
        self.waits: int = 0
        self.owing: int = 0  # bundles with complete results that are not returned yet
        self.sent: int = 0
        self.got: int = 0  # messages that the drain waves count
        self.basic_sent: int = 0
        self.basic_got: int = 0  # messages of work and results
        self.asking: bool = False
        self.tries: int = 0  # remaining tries
        # Send WAIT as soon as the tries are used up; False at first: send it only after a pause.
        self.tells: bool = False
        self.far: bool = False  # the next request goes to another node
        self.pause: int = 0  # number of the current pause; events of older pauses are ignored
        self.has_paused: bool = False
        self.ready_s: float = 0.0
        self.inbox: list[tuple[int, int, Any]] = []
        self.stepping: bool = False


class SimulationTotals(msgspec.Struct):
    """The totals of a simulated job. `messages` contains a count for each kind of message."""

    messages: list[int]
    items: int = 0
    parcels: int = 0
    results: int = 0
    half_busy_s: float | None = None
    last_work_s: float = 0.0
    root_s: float = 0.0
    stopped_s: float = 0.0
    max_inbox: int = 0
    events: int = 0
