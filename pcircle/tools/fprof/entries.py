"""The index of all entries next to a saved profile: written by all ranks, joined into one file.

Each rank writes its entries to its own part (`pcircle.walk.sink`). Rank 0 sorts and joins the
parts.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from pcircle.cli import json_output as jsonout
from pcircle.core.errors import StoppedEarly, UsageError
from pcircle.core.names import show
from pcircle.core.writing import close_new
from pcircle.fs.directories import HOLDER, Directories
from pcircle.fs.safe_open import create
from pcircle.fs.stats import Stats, StatusRow
from pcircle.tools.fprof.plan import ProfilePlan, ProfileResult, index_of
from pcircle.walk import index
from pcircle.walk.sink import Sink, remove, result

if TYPE_CHECKING:
    from pcircle.walk.roots import Root


class Entries:
    """Writes the entries of one thread to the rank's part of an index."""

    def __init__(
        self, plan: ProfilePlan, place: bytes, rank: int, first: Entries | None = None
    ) -> None:
        self.sink: Sink[ProfileResult] = (
            Sink(place, rank, plan.ranks, ProfileResult, _unwritable)
            if first is None
            else first.sink
        )

    def directory(
        self,
        root: int,
        path: bytes,
        status: os.stat_result | StatusRow,
        *,
        entered: bool = True,
    ) -> None:
        """Write a directory that was opened, or a root that is not a directory."""
        text = index.directory(root, path, status, entered=entered)
        self._add(root, path, text, itself=True)

    def names(
        self, root: int, path: bytes, names: Sequence[bytes], stats: Stats, directory_fd: int
    ) -> None:
        """Write names that were looked up, other than directories."""
        modes = stats.column("mode", 0, len(names))
        places = [place for place, mode in enumerate(modes) if not stat.S_ISDIR(mode)]
        if path == HOLDER:
            # Only a root can be something other than a directory.
            for status in stats.rows(len(names)):
                self.directory(root, b"", status)
        elif places:
            found = names if len(places) == len(names) else [names[place] for place in places]
            links = [names[place] for place in places if stat.S_ISLNK(modes[place])]
            targets = [_target(name, directory_fd) for name in links]
            self._add(root, path, index.names(root, path, found, stats, places, targets))

    def unread(self, root: int, path: bytes, error: OSError) -> None:
        """Record that the contents of a directory are unknown."""
        self._add(root, path, index.failure(root, path, b"", index.READ, error))

    def unreached(self, root: int, path: bytes, error: OSError, directories: Directories) -> None:
        """Record an entry that cannot be looked up, or a directory that cannot be opened."""
        above, _, name = path.rpartition(b"/")
        if name:
            with suppress(OSError), directories.lease(root, above) as lease:
                status = os.stat(name, dir_fd=lease.fd, follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    self.directory(root, path, status, entered=False)
                    self.unread(root, path, error)
                    return
        failed = index.failure(root, above, name, index.LOOKED_UP, error)
        self._add(root, above, failed)

    def _add(self, root: int, path: bytes, text: bytes, *, itself: bool = False) -> None:
        with self.sink.part() as part:
            part.add(index.key_of(root, path, itself=itself), text)


def _target(name: bytes, directory_fd: int) -> bytes:
    try:
        return os.readlink(name, dir_fd=directory_fd)
    except OSError:  # the link was removed
        return b""


def _unwritable(error: OSError) -> StoppedEarly:
    return StoppedEarly(f"cannot write the index: {error.strerror or error}")


def place_for(save: str, roots: Sequence[Root], directory: bytes) -> bytes:
    """Return the path prefix for the parts of an index, next to the profile.

    Raise UsageError if the parts cannot be created there, and StoppedEarly if the file system loses
    accepted data.
    """
    holder = os.path.realpath(os.path.dirname(os.fsencode(save)) or b".")
    for root in roots:
        top = os.path.realpath(os.path.join(directory, root.shown))
        if index.is_below(holder, top.rstrip(b"/")):
            shown = show(root.shown)
            raise UsageError(f"--entries: the index would lie in '{shown}' and be a part of itself")
    place = os.path.join(holder, b".fprof-" + os.urandom(4).hex().encode())
    try:
        fd = create(place, 0o600)
    except OSError as error:
        reason = f"cannot write '{show(os.fsencode(save))}': {error.strerror}"
        raise UsageError(f"--entries: {reason}") from None
    try:
        close_new(fd, place)
    except OSError as error:
        raise _unwritable(error) from error
    return place


def publish(plan: ProfilePlan, place: bytes, save: str, entries: int) -> None:
    """Join the parts into one file. Raise OSError if it cannot be written."""
    found = [
        index.IndexedRoot(root.shown, os.path.abspath(os.path.join(plan.directory, root.shown)))
        for root in plan.roots
    ]
    sections = result(place, plan.ranks)
    # The index reveals the contents of directories that other users may not read.
    jsonout.stream(index.whole(found, sections, entries), index_of(save), private=True)


def clear(plan: ProfilePlan) -> None:
    """Remove the parts."""
    if plan.index is not None:
        with suppress(OSError):
            remove(plan.index, plan.ranks)
            os.unlink(plan.index)
