"""Run blocking calls in parallel, by calling a function for parts of a range on helper threads.

On a file system with latency, a thousand look-ups in sequence take a thousand round trips, although
the server could answer many at once. Here a range is divided into parts. The caller processes the
first part itself and returns when all parts are done. Helper threads are started when first needed.
There are only a few, because under the interpreter lock they speed up only calls that wait (see
`pcircle.threads.pool`). Calls that only compute take several times as long with helpers, and the
duration of the run does not show it, because a thread that waits for the lock looks like one that
waits for a server. A user of `Overlap` should therefore time single calls now and then. The helpers
end with `close`, or when the `Overlap` is garbage collected, because
a program that uses pcircle as a library must not accumulate threads.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from itertools import pairwise
from queue import SimpleQueue

from pcircle.threads.threads import HELPER_PREFIX, start_thread

RangeFunction = Callable[[int, int], None]
"""A function of a range, given by its start and its stop (exclusive)."""

_Calls = SimpleQueue[tuple[RangeFunction, int, int] | None]
_Done = SimpleQueue[BaseException | None]


class Overlap:
    """Helper threads that process up to `threads` parts of a range at once, with the caller."""

    def __init__(self, threads: int) -> None:
        if threads < 1:
            raise ValueError("threads must be at least 1")
        self.threads: int = threads
        self._calls: _Calls = SimpleQueue()
        self._done: _Done = SimpleQueue()
        self._helpers: list[threading.Thread] = []
        weakref.finalize(self, _end, self._helpers, self._calls).atexit = False

    def run(self, function: RangeFunction, start: int, stop: int) -> None:
        """Call the function for each part of the range; raise the first exception of any part."""
        parts = min(self.threads, stop - start)
        while len(self._helpers) < parts - 1:
            if not start_thread(self._helpers, _help, self._calls, self._done, name=HELPER_PREFIX):
                self.threads = parts = len(self._helpers) + 1
        if parts <= 1:
            function(start, stop)
            return
        edges = [start + (stop - start) * number // parts for number in range(parts + 1)]
        for first, last in pairwise(edges[1:]):
            self._calls.put((function, first, last))
        try:
            function(edges[0], edges[1])
        finally:
            errors = [self._done.get() for _ in range(parts - 1)]
        for error in errors:
            if error is not None:
                raise error

    def close(self) -> None:
        """End the helper threads, without waiting for one that is stuck."""
        _end(self._helpers, self._calls)


def _end(helpers: list[threading.Thread], calls: _Calls) -> None:
    for _ in helpers:
        calls.put(None)
    helpers.clear()


def _help(calls: _Calls, done: _Done) -> None:
    while (call := calls.get()) is not None:
        done.put(_error_of(*call))
        del call  # the function may reference the `Overlap`, which would never be collected


def _error_of(function: RangeFunction, start: int, stop: int) -> BaseException | None:
    try:
        function(start, stop)
    except BaseException as error:  # raised by `run`
        return error
    return None
