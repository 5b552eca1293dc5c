"""What every rank knows of the checkpoint that its job keeps."""

from __future__ import annotations

import msgspec


class JournalPlan(msgspec.Struct, frozen=True, array_like=True):
    """The checkpoint that a copy keeps: its path and secret, this run's number, the interval.

    `stale` are the marks of temporary names of earlier runs, the first of
    which began at `since_ns`; with `resumed` what they did is not done again. `mark` is what
    the target is known again by, see `pcircle.checkpoint.mark`, `now_ns` the time of the run that
    is resumed, or of this one.
    """

    path: bytes
    secret: bytes
    run: int
    interval_s: float
    since_ns: int
    stale: tuple[bytes, ...] = ()
    resumed: bool = False
    mark: bytes = b""
    now_ns: int = 0
