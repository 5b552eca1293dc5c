"""Limits of bytes and operations per second, to leave capacity of a shared file system to others.

The limits apply to all ranks together. Each rank has a fixed equal share, so no coordination is
needed and the sum never exceeds the limit, at any moment and under any launcher. The price is that
an idle rank's share is unused. Work is divided finely and stolen quickly, so this only matters at
the end of a job and for a single file that is not copied in chunks. Only the rank's worker waits,
never its main thread, so the protocol continues; for the engine the current item is still running.

A byte counts once, when it is copied. Operations are requests to a metadata server: look-ups,
creations, removals, renames and attribute changes, but not reads, writes and closes. They are
estimated per kind of entry instead of counted individually. Limits are observers of the copy
(`pcircle.ops.copy.entry.observers`) and do not exist unless requested.
"""

from __future__ import annotations

from collections.abc import Callable

from pcircle.ops.copy.entry.observers import CopyObserver
from pcircle.ops.copy.entry.settings import CopySettings
from pcircle.threads.throttle import BURST_S, Throttle

_MIN_SLICE_BYTES = 64 << 10
_MAX_SLICE_BYTES = 4 << 20
_ATTRIBUTE_CALLS = ("mode", "ownership", "timestamps", "xattr", "acl", "flags")


class RateLimits(CopyObserver):
    """One of `size` equal shares of a copy's limits; None means no limit.

    `is_stopping` belongs to the current item.
    """

    def __init__(
        self,
        settings: CopySettings,
        bytes_per_s: float | None,
        operations_per_s: float | None,
        size: int,
    ) -> None:
        self.is_stopping: Callable[[], bool] = bool
        self._bytes = self._operations = None
        self.slice_bytes = _MAX_SLICE_BYTES
        if bytes_per_s is not None:
            rate = bytes_per_s / size
            self._bytes = Throttle(rate, BURST_S)
            self.slice_bytes = int(max(_MIN_SLICE_BYTES, min(_MAX_SLICE_BYTES, rate * BURST_S)))
        if operations_per_s is not None:
            self._operations = Throttle(operations_per_s / size, BURST_S)
        keep = settings.keep
        # Look up the source, create the target, set its attributes.
        self.entry = (
            2 + sum(getattr(keep, name) for name in _ATTRIBUTE_CALLS) + settings.striping.gives
        )

    def operations(self, count: int) -> None:
        """Wait until `count` operations are allowed."""
        if self._operations is not None:
            self._operations.take(count, self.is_stopping)

    def attempt(self, more: int) -> None:
        self.operations(self.entry + more)

    def due(self, count: int) -> None:
        if self._bytes is not None and count > 0:
            self._bytes.take(count, self.is_stopping)
