"""Sparing a file system: how much a rank has under way, by how long operations take.

Who shares a server with others sees them by what operations take: waiting in a queue with theirs
is longer than the best that was seen. `Courtesy` is told how long operations took and answers with
how many may be under way, a number that may be less than one: then whoever has done something
pauses in proportion. It is *share* times *width*, divided by how many times longer than the best
operations take. The width is one as long as company would be felt, and grows while operations take
no longer with more of them under way, as on a parallel file system.

Operations of each kind are compared with the best of their own. Those that take no time worth
mentioning are answered by the kernel's caches, or by a local disk that nobody else waits for, and
tell nothing. The best is forgotten slowly, since what is walked changes, and with it what an
operation is.

Pure but for `Turns`, by which the threads of a rank keep to it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from threading import Condition

_WINDOW = 16  # operations, of which the mean counts
_WINDOW_S = 0.25  # or what fewer took
_AT_ONCE_S = 50e-6  # an operation that takes no longer says nothing
_FORGOTTEN_S = 600.0  # the time in which the best doubles
_WEIGHT = 0.5  # of the last window
_FELT, _UNFELT = 1.5, 1.2  # times the best
_MORE = 0.25
_LEAST = 1 / 64
_LONGEST_S = 5.0  # of a pause
_STEP_S = 0.05  # between two looks at whether to stop


class _Kind:
    """Operations of one kind, and the best mean that was seen."""

    def __init__(self) -> None:
        self.best_s = math.inf
        self._count = 0
        self._took_s = 0.0
        self._then_s = 0.0

    def slower(self, count: int, took_s: float, now_s: float) -> float | None:
        """How many times longer than the best they take, at the end of a window."""
        self._count += count
        self._took_s += took_s
        if self._count < _WINDOW and self._took_s < _WINDOW_S:
            return None
        mean_s = self._took_s / max(1, self._count)
        self._count, self._took_s = 0, 0.0
        if mean_s < _AT_ONCE_S:
            return None
        grown = 2 ** ((now_s - self._then_s) / _FORGOTTEN_S) if self._then_s else 1.0
        self._then_s = now_s
        self.best_s = min(self.best_s * grown, mean_s)
        return mean_s / self.best_s


class Courtesy:
    """How many operations a rank may have under way: `share` of one, or more of them at `most`."""

    def __init__(self, share: float, most: int) -> None:
        self._share = share
        self._most = most
        self._kinds: dict[str, _Kind] = {}
        self._width = 1.0
        self._slower = 1.0

    def note(self, kind: str, count: int, took_s: float, now_s: float, *, limits: bool) -> None:
        """So many operations have taken so long; `limits`: more would be under way if they might.

        The time of each, so of those that were under way together a sum.
        """
        slower = self._kinds.setdefault(kind, _Kind()).slower(count, took_s, now_s)
        if slower is None:
            return
        self._slower += (slower - self._slower) * _WEIGHT
        if slower > _FELT:
            self._width = max(1.0, self._width / min(slower, 2.0))
        elif slower < _UNFELT and limits:
            self._width = min(self._width + _MORE, self._most)

    @property
    def load(self) -> float:
        """How many operations may be under way, in the mean of time."""
        return max(_LEAST, self._share * self._width / max(1.0, self._slower))

    @property
    def places(self) -> int:
        """How many threads may have one under way."""
        return math.ceil(self.load)

    def pause_s(self, took_s: float, threads: int) -> float:
        """How long one of so many threads is to wait after what took so long."""
        load = self.load
        number = min(threads, math.ceil(load))
        return min(took_s * max(0.0, number / load - 1), _LONGEST_S)


class Turns:
    """The places that the threads of a rank take turns at."""

    def __init__(self, share: float, most: int) -> None:
        self._courtesy = Courtesy(share, most)
        self._changed = Condition()
        self._taken = 0
        self._others = 0  # threads that wait for a place, or rest

    def begin(self, stop: Callable[[], bool]) -> None:
        """Take a place, or go on without one when `stop` says so."""
        with self._changed:
            self._others += 1
            while self._taken >= self._courtesy.places and not stop():
                self._changed.wait(_STEP_S)
            self._others -= 1
            self._taken += 1

    def end(self) -> None:
        """Give the place up."""
        with self._changed:
            self._taken -= 1
            self._changed.notify()

    def note(self, kind: str, count: int, took_s: float) -> None:
        """So many operations of a kind took so long on this thread, which has a place."""
        with self._changed:
            limits = self._taken + self._others >= self._courtesy.load
            self._courtesy.note(kind, count, took_s, time.monotonic(), limits=limits)

    def pause(self, took_s: float, stop: Callable[[], bool]) -> None:
        """Wait in proportion to what took so long; the place was given up."""
        with self._changed:
            wait_s = self._courtesy.pause_s(took_s, self._taken + self._others + 1)
            self._others += 1
        until_s = time.monotonic() + wait_s
        while wait_s > 0 and not stop():
            time.sleep(min(wait_s, _STEP_S))
            wait_s = until_s - time.monotonic()
        with self._changed:
            self._others -= 1
