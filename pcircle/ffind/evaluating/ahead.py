"""Looking names up before they are evaluated, several at once, where each takes long.

A file system that answers in milliseconds answers many at once. Where one is found to be fast,
nothing is done here: then an entry is looked up if its turn comes, and not at all if it need not.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from pcircle.workers.overlap import Overlap

_SLOW_S = 200e-6
_WORTH_IT = 4  # names; fewer are not worth to wake anybody


class Ahead:
    """Of one thread. `follow`: links are what they lead to."""

    def __init__(self, threads: int, *, follow: bool) -> None:
        self._overlap = Overlap(threads)
        self._follow = follow
        self._each_s = 0.0  # by the last names that were evaluated
        self._began_s = 0.0
        self._shared = 1

    @property
    def is_known(self) -> bool:
        """Whether it is known how long it takes."""
        return self._each_s > 0

    def look(self, directory_fd: int, names: Sequence[bytes]) -> list[os.stat_result | None]:
        """What there is to be known of names; None where it is not, which is for others to say."""
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
        """So many were evaluated since they were looked up."""
        took_s = time.perf_counter() - self._began_s
        self._each_s = took_s * self._shared / max(1, count)

    def close(self) -> None:
        """End the threads, if any were needed."""
        self._overlap.close()
