"""Limits of bytes and operations per second: being a good neighbour on a shared file system.

The limits hold over all ranks: each rank has an equal share of them, for
itself, so nothing has to be agreed on and the sum is never above the limit,
at any moment and under any launcher. The price: a rank that has nothing to do
does not pass its share on. Work is divided so finely, and taken by idle ranks
so soon, that this shows at the end of a job and with a single file that is
not copied in chunks. The rank's worker waits, never its main thread, so the
protocol goes on; the item at hand is running meanwhile, as far as the engine
is concerned.

A byte counts when it is copied, once though it is read and written. What
counts as an operation is what a file system's metadata server is asked for:
each look-up, creation, removal, renaming and setting of attributes; reading,
writing and closing do not. They are reckoned by kind of entry, not counted
one by one. Without limits none of this exists: they look on at what is copied, as
those do who hash it (`pcircle.copying.observing`).
"""

from __future__ import annotations

from collections.abc import Callable

from pcircle.copying.observing import Observer
from pcircle.copying.settings import Settings
from pcircle.workers.throttle import Throttle

_BURST_S = 0.1
_MIN_SLICE_BYTES = 64 << 10
_MAX_SLICE_BYTES = 4 << 20
_SET_EACH = ("mode", "ownership", "timestamps", "xattr", "acl", "flags")


class Limits(Observer):
    """One rank's share, of `size`, of the limits of a copy; None: no limit.

    `is_stopping` is that of the item at hand.
    """

    def __init__(
        self,
        settings: Settings,
        bytes_per_s: float | None,
        operations_per_s: float | None,
        size: int,
    ) -> None:
        self.is_stopping: Callable[[], bool] = bool
        self._bytes = self._operations = None
        self.slice_bytes = _MAX_SLICE_BYTES
        if bytes_per_s is not None:
            rate = bytes_per_s / size
            self._bytes = Throttle(rate, _BURST_S)
            self.slice_bytes = int(max(_MIN_SLICE_BYTES, min(_MAX_SLICE_BYTES, rate * _BURST_S)))
        if operations_per_s is not None:
            self._operations = Throttle(operations_per_s / size, _BURST_S)
        keep = settings.keep
        # Look up the source, make the target, give it its attributes.
        self.entry = 2 + sum(getattr(keep, name) for name in _SET_EACH) + settings.striping.gives

    def operations(self, count: int) -> None:
        """Wait until so many operations may be done."""
        if self._operations is not None:
            self._operations.take(count, self.is_stopping)

    def attempt(self, more: int) -> None:
        self.operations(self.entry + more)

    def due(self, count: int) -> None:
        if self._bytes is not None and count > 0:
            self._bytes.take(count, self.is_stopping)
