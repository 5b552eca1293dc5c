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
one by one. Without limits none of this exists: the functions that copy are
wrapped, not changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pcircle.copying.settings import Settings
from pcircle.fs.data import Mover, Pair, Way, When
from pcircle.workers.throttle import Throttle

_BURST_S = 0.1
_LEAST_SLICE_BYTES = 64 << 10
_MOST_SLICE_BYTES = 4 << 20
_SET_EACH = ("mode", "ownership", "timestamps", "xattr", "acl", "flags")


class Limits:
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
        self.slice_bytes = _MOST_SLICE_BYTES
        if bytes_per_s is not None:
            rate = bytes_per_s / size
            self._bytes = Throttle(rate, _BURST_S)
            self.slice_bytes = int(max(_LEAST_SLICE_BYTES, min(_MOST_SLICE_BYTES, rate * _BURST_S)))
        if operations_per_s is not None:
            self._operations = Throttle(operations_per_s / size, _BURST_S)
        keep = settings.keep
        # Look up the source, make the target, give it its attributes.
        self.entry = 2 + sum(getattr(keep, name) for name in _SET_EACH) + settings.striping.gives

    def operations(self, count: int) -> None:
        """Wait until so many operations may be done."""
        if self._operations is not None:
            self._operations.take(count, self.is_stopping)

    def copied(self, count: int) -> None:
        """Wait until so many bytes may be, or may have been, copied."""
        if self._bytes is not None and count > 0:
            self._bytes.take(count, self.is_stopping)


class SlowMover(Mover):
    """Moves bytes as fast as is allowed."""

    def __init__(
        self, limits: Limits, reflink: When, sparse: When, ways: Sequence[Way] | None = None
    ) -> None:
        super().__init__(reflink, sparse, ways)
        self._limits = limits

    def move(
        self, source_fd: int, target_fd: int, offset: int, length: int, pair: Pair | None = None
    ) -> int:
        """As a `Mover` does, slice by slice."""
        done = 0
        while done < length:
            part = min(self._limits.slice_bytes, length - done)
            self._limits.copied(part)
            moved = super().move(source_fd, target_fd, offset + done, part, pair)
            done += moved
            if moved < part:
                break
        return done


def slow_copier(
    copy: Callable[[bytes, int, int], int], limits: Limits
) -> Callable[[bytes, int, int], int]:
    """`plain_copier`'s function, waiting before each file and for its bytes after it."""

    def copy_slowly(name: bytes, source_fd: int, target_fd: int) -> int:
        limits.operations(limits.entry)
        size = copy(name, source_fd, target_fd)
        limits.copied(size)
        return size

    return copy_slowly
