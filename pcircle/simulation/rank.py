"""What a simulated rank knows, holds and gives, and what a simulated job has come to.

A run is (first, last, slot): the siblings `first` until `last`, whose results
go to `slot`. What is given is a bundle, with one slot for each run in it; but a run that is
all that is left of another rank's slot goes with that slot.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from pcircle.core.guards import require

NONE = -1
"""No item, or no rank."""
SPAWNED = -1.0
"""The time at which an item makes its children, when it has made them."""


class Slot:
    """The results of a run that was given away come together here, on the rank that got it."""

    __slots__ = ("bundle", "first", "last", "out", "parent", "runs")

    def __init__(self, bundle: Bundle | None, parent: Slot | None, first: int, last: int) -> None:
        self.bundle = bundle  # None for the job's own
        self.parent = parent  # the slot at the victim which this was a part of
        self.first, self.last = first, last  # the items that were given
        self.runs = 0  # on the stack of the rank, the running item included
        self.out = 0  # slots of bundles that were given on


class Bundle:
    """What was given at once, until all of its results have gone back."""

    __slots__ = ("done", "open", "timed", "victim")

    def __init__(self, victim: int) -> None:
        self.victim = victim
        self.open = 0  # slots that are not complete
        self.done: list[Slot] = []  # parents of slots that are, and wait for the others
        self.timed = False


Run: TypeAlias = "tuple[int, int, Slot]"


def cut(stack: list[Run], count: int, victim: int, thief: int) -> tuple[list[Run], list[Bundle]]:
    """Takes `count` items from the steal end of a stack: runs of a new bundle, or of older ones.

    Of these it returns those that have lost a slot to it.
    """
    bundle = Bundle(victim)
    given: list[Run] = []
    moved: dict[Bundle, Bundle] = {}
    while count:
        first, last, parent = stack[0]
        begin = max(first, last - count)
        if _is_all(stack[0], begin, thief):
            slot = parent
            del stack[0]
            old = require(slot.bundle)
            old.open -= 1
            slot.bundle = moved.setdefault(old, Bundle(old.victim))
            slot.bundle.open += 1
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


def _is_all(run: Run, begin: int, thief: int) -> bool:
    """Whether a run from there on is all that is left of what another rank gave, not the thief."""
    first, last, slot = run
    if begin > first or slot.runs > 1 or slot.out or slot.bundle is None:
        return False
    return slot.bundle.victim != thief and slot.first <= first and last <= slot.last


class Rank:
    """One rank."""

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
        "inbox",
        "number",
        "owing",
        "pause",
        "pauses",
        "pushed_s",
        "pushed_to",
        "queued",
        "ready_s",
        "rest",
        "sent",
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
        self.number = number
        self.stack: list[Run] = []
        self.queued = 0  # items of runs on the stack
        self.current = NONE  # the item that runs
        self.until_s = 0.0  # its end
        self.spawn_s = SPAWNED  # when it makes its children, if it has not
        self.slot: Slot | None = None  # and where its result goes
        self.ahead = NONE  # the item that is handed out and runs next
        self.ahead_slot: Slot | None = None
        self.version = 0  # of the next event of its own
        self.waiters: dict[int, None] = {}  # the last one was the last to say so
        self.taker = 0  # who is being served
        self.rest = 0  # of its share
        self.pushed_to = NONE  # the last one that was
        self.pushed_s = 0.0  # and when that comes
        self.announced: dict[int, int] = {}  # items, by who is to send them
        self.waits = 0  # a bit for each dimension in which the neighbour knows that this one waits
        self.owing = 0  # bundles of which some is done and not sent back
        self.sent = self.got = 0  # messages that a drain counts
        self.basic_sent = self.basic_got = 0  # those of work and results
        self.asking = False
        self.tries = 0  # left
        self.tells = False  # as soon as it waits; at the start only when it asks no more
        self.far = False  # it asks outside of its node next
        self.pause = 0  # the number of the one that counts
        self.pauses = 0  # since there was work
        self.ready_s = 0.0
        self.inbox: list[tuple[int, int, Any]] = []
        self.stepping = False


class Counts(msgspec.Struct):
    """What a run came to. `messages` are by kind, see `pcircle.simulation.kinds`."""

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
