"""Access times from before the counting walk of `--max-delete`.

Reading a directory may update its access time, unless O_NOATIME is used. Only the owner and root
may use O_NOATIME, and some file systems ignore it. Reading a symbolic link may update its access
time in any case. If access times decide which entries are removed, the second walk must use the
times from before the first walk. Each rank records the times that the first walk may change, and
sends them to all other ranks before the second walk begins.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from pcircle.core.errors import StoppedEarly
from pcircle.core.units import timestamp
from pcircle.fs.file_system import obeys_noatime
from pcircle.fs.open_flags import O_NOATIME
from pcircle.walk.items import Accesses

_MAX_KNOWN = 100_000  # about 30 MB of memory in each rank


class _Key(NamedTuple):
    """The key of an entry. It stays valid as long as only the access time changes."""

    device: int
    inode: int
    changed_ns: int


class AccessTimes:
    """The access times that a rank has recorded. Safe to use from any thread.

    `identify` returns device and inode, as for `Directories`.
    """

    def __init__(self, identify: Callable[[os.stat_result], tuple[int, int]]) -> None:
        self._identify = identify
        self._lock = threading.Lock()
        self._known: dict[_Key, int] = {}
        self._new: list[_Key] = []
        self._is_complete = False

    def is_updated_by(self, fd: int) -> bool:
        """Return whether reading an open directory in the first walk may update its access time."""
        if self._is_complete:
            return False
        return not (fcntl.fcntl(fd, fcntl.F_GETFL) & O_NOATIME and obeys_noatime(fd))

    def remember(self, status: os.stat_result) -> None:
        """Record an access time, if this is the first walk."""
        if not self._is_complete:
            self._add([(self._key(status), status.st_atime_ns)], self._new)

    def receive(self, accesses: Accesses) -> None:
        """Record the times from another rank. Raises StoppedEarly if there are too many."""
        self._add(
            (_Key(device, inode, changed.ns), accessed.ns)
            for device, inode, changed, accessed in accesses.entries
        )
        self._limit()

    def take_new(self) -> Accesses | None:
        """Return the times that have not been sent yet.

        Raises StoppedEarly if there are too many.
        """
        self._limit()
        with self._lock:
            new, self._new = self._new, []
            entries = [
                (key.device, key.inode, timestamp(key.changed_ns), timestamp(self._known[key]))
                for key in dict.fromkeys(new)
            ]
        return Accesses(tuple(entries)) if entries else None

    def complete(self) -> None:
        """Stop recording, because the second walk is beginning."""
        self._is_complete = True

    def restored(self, status: os.stat_result) -> os.stat_result:
        """Return a status with the access time from before the first walk."""
        before_ns = self._known.get(self._key(status))
        if before_ns is None or before_ns >= status.st_atime_ns:
            return status
        reduced: Any = status.__reduce__()  # the only way to read all fields
        fields, more = reduced[1]
        times = {"st_atime": before_ns / 1e9, "st_atime_ns": before_ns}
        return os.stat_result(fields, {**more, **times})

    def _key(self, status: os.stat_result) -> _Key:
        return _Key(*self._identify(status), status.st_ctime_ns)

    def _add(self, times: Iterable[tuple[_Key, int]], new: list[_Key] | None = None) -> None:
        """Record the earliest known time of each entry; another rank may have read it since."""
        with self._lock:
            for key, accessed_ns in times:
                known_ns = self._known.get(key)
                if known_ns is None or accessed_ns < known_ns:
                    self._known[key] = accessed_ns
                    if new is not None:
                        new.append(key)

    def _limit(self) -> None:
        if len(self._known) > _MAX_KNOWN:
            raise StoppedEarly(
                f"--max-delete: counting would change more than {_MAX_KNOWN:,} access times that "
                "filters compare; nothing was removed. Use --plan, then --apply with --max-delete"
            )
