"""How long a job may take: what rank 0 stops it by, as a signal would."""

from __future__ import annotations

import msgspec


class TimeLimit(msgspec.Struct, frozen=True):
    """When a job stops early, in good order, by the monotonic clock, and the reason it gives."""

    at_s: float
    reason: str
