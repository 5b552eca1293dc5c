"""Prefetching the status of names, several at once, where look-ups take long.

A file system that answers in milliseconds answers many requests at once. On a fast file system
nothing is prefetched: an entry is looked up when it is evaluated, and only if necessary.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from pcircle.threads.overlap import Overlap

_SLOW_S = 200e-6
_WORTH_IT = 4  # names; fewer are not worth to wake anybody


class Ahead:
    """The prefetch of one thread. With `follow` links stand for their targets."""

    def __init__(self, threads: int, *, follow: bool) -> None:
        self._overlap = Overlap(threads)
        self._follow = follow
        self._each_s = 0.0  # by the last names that were evaluated
        self._began_s = 0.0
        self._shared = 1

    @property
    def is_known(self) -> bool:
        """Return whether the time of a look-up is known."""
        return self._each_s > 0

    def look(self, directory_fd: int, names: Sequence[bytes]) -> list[os.stat_result | None]:
        """Return the status of names; None where the look-up failed, which is reported later."""
        self._began_s = time.perf_counter()
        found: list[os.stat_result | None] = [None] * len(names)
        if self._each_s < _SLOW_S or len(names) < _WORTH_IT:
            self._shared = 1
            return found
        follow = self._follow

        def look(start: int, stop: int) -> None:
            for place in range(start, stop):
                try:
                    found[place] = os.stat(
                        names[place], dir_fd=directory_fd, follow_symlinks=follow
                    )
                except OSError:
                    continue  # it is asked for again, and told

        self._shared = min(self._overlap.threads, len(names))
        self._overlap.run(look, 0, len(names))
        return found

    def done(self, count: int) -> None:
        """Record that `count` entries were evaluated since the look-up."""
        took_s = time.perf_counter() - self._began_s
        self._each_s = took_s * self._shared / max(1, count)

    def close(self) -> None:
        """End the threads."""
        self._overlap.close()
