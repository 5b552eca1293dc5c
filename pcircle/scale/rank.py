"""What a simulated rank knows, and what a simulated job has come to."""

from __future__ import annotations

from typing import Any

import msgspec

from pcircle.scale.shares import Run, Slot

NONE = -1
"""No item, or no rank."""
SPAWNED = -1.0
"""The time at which an item makes its children, when it has made them."""


class Rank:
    """One rank."""

    __slots__ = (
        "ahead_of",
        "announced",
        "asking",
        "current",
        "far",
        "inbox",
        "number",
        "pause",
        "pauses",
        "pushed_s",
        "pushed_to",
        "ready_s",
        "rest",
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
        self.current = NONE  # the item that runs
        self.until_s = 0.0  # its end
        self.spawn_s = SPAWNED  # when it makes its children, if it has not
        self.slot: Slot | None = None  # and where its result goes
        self.ahead_of = NONE  # the item during which the next one was handed out
        self.version = 0  # of the next event of its own
        self.waiters: dict[int, None] = {}  # the last one was the last to say so
        self.taker = 0  # who is being served
        self.rest = 0  # of its share
        self.pushed_to = NONE  # the last one that was
        self.pushed_s = 0.0  # and when that comes
        self.announced: dict[int, int] = {}  # items, by who is to send them
        self.waits = 0  # a bit for each dimension in which the neighbour knows that this one waits
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
    """What a run came to."""

    messages: list[int]
    items: int = 0
    parcels: int = 0
    slots: int = 0
    results: int = 0
    half_busy_s: float | None = None
    last_work_s: float = 0.0
    root_s: float = 0.0
    quiet_s: float = 0.0
    max_inbox: int = 0
    wave_messages: int = 0
    events: int = 0
