"""The engine's settings, and the counters of its activity."""

from __future__ import annotations

import msgspec


class EngineSettings(msgspec.Struct, frozen=True):
    """The options of an engine.

    `workers` is the number of items that this rank runs at once, and `ahead` the number of items
    that it starts in advance, so that a worker need not wait for the next one. `victims` is
    "random", "nearest", or "auto", which means "nearest" if there are several nodes and not all of
    them run a single rank. A rank without work makes `tries` attempts to steal and then waits for
    its lifelines. The results of a bundle wait for each other for at most `combine_s`. `structured`
    selects fork-join work, in which items have joins. A message carries at most `share_limit`
    parcels, fewer in a small job (see `pcircle.circle.stealing.parcels_per_message`). If
    `progress_period_s` is None, there are no progress rounds; if `epoch_period_s` is None, there
    are no epochs. `final_deadline_s` limits how long an aborted job takes to end. In a job with
    more than `rank_rows` ranks the final account contains sums and distributions instead of a
    report for each rank.
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
    """Counters of a rank's activity, which show how evenly a job is balanced."""

    items: int = 0
    spawned: int = 0
    asked: int = 0
    got: int = 0
    refused: int = 0
    given: int = 0
    parcels_got: int = 0
    messages: int = 0
    spilled: int = 0
