"""The time limit of a job."""

from __future__ import annotations

from typing import NamedTuple


class TimeLimit(NamedTuple):
    """The time at which rank 0 stops a job early, as a signal would, and the reason to report.

    `at_s` is a time of the monotonic clock.
    """

    at_s: float
    reason: str
