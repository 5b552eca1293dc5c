"""What can be chosen about an engine, and what it counts of itself."""

from __future__ import annotations

import msgspec


class Settings(msgspec.Struct, frozen=True):
    """The engine's choices. Times in seconds.

    `workers` is how many items of this rank run at once, `ahead` how many
    more it hands out early so that a worker need not wait for the next.
    `victims` is "random", "nearest", or "auto": the nearest where there are near and far ones.
    A dry rank asks `tries` times, then waits along its lifelines.
    What came of a part of a bundle waits for the rest for `combine_s`.
    `structured` says whether items have joins. A message has at most
    `share_limit` parcels, and in a small job fewer, see `parcels_a_message`.
    `progress_period_s` None means no progress rounds, `epoch_period_s` None no epochs.
    `final_deadline_s` bounds the end of an aborted job. In a job of more than `rank_rows` ranks the
    accounts have sums and distributions in place of a report of each rank.
    """

    workers: int = 1
    ahead: int = 1
    structured: bool = True
    victims: str = "auto"
    split: str = "random"
    termination: str = "counters"
    arity: int = 8
    queue_high: int = 256
    share_limit: int = 1024
    tries: int = 4
    combine_s: float = 0.25
    progress_period_s: float | None = None
    epoch_period_s: float | None = None
    final_deadline_s: float = 10.0
    rank_rows: int = 1000


class Activity(msgspec.Struct):
    """What a rank has done so far; the balance of a job is read from it."""

    items: int = 0
    spawned: int = 0
    asked: int = 0
    got: int = 0
    refused: int = 0
    given: int = 0
    parcels_got: int = 0
    messages: int = 0
    spilled: int = 0
