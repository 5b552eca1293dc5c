"""Prefetching the status of several names at once, if look-ups are slow.

A file system that answers in milliseconds can answer many requests at once. On a fast file system
nothing is prefetched. An entry is then looked up when it is evaluated, and only if necessary.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from pcircle.threads.overlap import Overlap

_SLOW_S = 200e-6
_WORTH_IT = 4  # names; for fewer names waking threads costs more than it saves


class Ahead:
    """Prefetches for one thread. With `follow`, links stand for their targets."""

    def __init__(self, threads: int, *, follow: bool) -> None:
        self._overlap = Overlap(threads)
        self._follow = follow
        self._each_s = 0.0  # measured on the names evaluated last
        self._began_s = 0.0
        self._shared = 1

    @property
    def is_known(self) -> bool:
        """Return whether the time of a look-up is known."""
        return self._each_s > 0

    def look(self, directory_fd: int, names: Sequence[bytes]) -> list[os.stat_result | None]:
        """Return the status of names; None if it is not prefetched or the look-up failed."""
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
                    continue  # the evaluation repeats the look-up and reports the error

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
