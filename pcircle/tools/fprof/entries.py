"""Writes entries to files: to the index next to a saved profile, and to lists of `--list-out`.

The index contains all entries. Each rank writes the entries that it finds to its own part
(`pcircle.walk.segments`). The ranks sort the parts in parallel, and rank 0 joins the results into
one file.

`--list-out KIND:FILE` writes a line for each file with a finding of this kind. The rank that
examines the file formats the line. When its item ends, the rank sends all its lines to rank 0 as
notices, so memory is bounded. The path is the last column, printed as by `find`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from contextlib import suppress

from pcircle.cli import json_output as jsonout
from pcircle.core.encoding import show
from pcircle.core.errors import StoppedEarly, UsageError
from pcircle.core.writing import close_new
from pcircle.fs.directories import HOLDER, Directories, join_path
from pcircle.fs.safe_open import create
from pcircle.fs.stats import Stats, StatusRow
from pcircle.jobs.action_log import NOTICE_BYTES
from pcircle.jobs.failures import NoticeSink
from pcircle.tools.fprof.plan import FileLines, ProfilePlan, ProfileResult, index_of
from pcircle.walk import index
from pcircle.walk.roots import Root
from pcircle.walk.segments import Sink, remove, result


class Entries:
    """Writes the entries that one thread finds to the part of the index that its rank writes."""

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
        """Write an open directory, or a root that is not a directory."""
        text = index.directory(root, path, status, entered=entered)
        self._add(root, path, text, itself=True)

    def names(
        self, root: int, path: bytes, names: Sequence[bytes], stats: Stats, directory_fd: int
    ) -> None:
        """Write entries that were looked up, except directories."""
        modes = stats.column("mode", 0, len(names))
        places = [place for place, mode in enumerate(modes) if not stat.S_ISDIR(mode)]
        if path == HOLDER:
            # These entries are roots that are not directories.
            for status in stats.rows(len(names)):
                self.directory(root, b"", status)
        elif places:
            found = names if len(places) == len(names) else [names[place] for place in places]
            links = [names[place] for place in places if stat.S_ISLNK(modes[place])]
            targets = [_target(name, directory_fd) for name in links]
            self._add(root, path, index.names(root, path, found, stats, places, targets))

    def unread(self, root: int, path: bytes, error: OSError) -> None:
        """Write that a directory could not be read, so its contents are unknown."""
        self._add(root, path, index.failure(root, path, b"", index.READ, error))

    def unreached(self, root: int, path: bytes, error: OSError, directories: Directories) -> None:
        """Write an entry that cannot be looked up, or a directory that cannot be opened."""
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
    """Create the temporary index. Return its path, which is also the path prefix of its parts.

    Raise UsageError if the index would be below a root or cannot be created, and StoppedEarly if
    closing the new file reports lost data.
    """
    holder = os.path.realpath(os.path.dirname(os.fsencode(save)) or b".")
    for root in roots:
        top = os.path.realpath(os.path.join(directory, root.shown))
        if index.is_below(holder, top.rstrip(b"/")):
            shown = show(root.shown)
            raise UsageError(f"--entries: the index would be in '{shown}' and contain itself")
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
    """Join the parts into one file; raise OSError if it cannot be written."""
    found = [
        index.IndexedRoot(root.shown, os.path.abspath(os.path.join(plan.directory, root.shown)))
        for root in plan.roots
    ]
    sections = result(place, plan.ranks)
    # The index names the contents of directories that other users may not be allowed to read.
    jsonout.stream(index.pieces(found, sections, entries), index_of(save), private=True)


def clear(plan: ProfilePlan) -> None:
    """Remove the parts of the index."""
    if plan.index is not None:
        with suppress(OSError):
            remove(plan.index, plan.ranks)
            os.unlink(plan.index)


# ---- lists ---------------------------------------------------------------------------------------

COLUMNS: dict[str, tuple[str, ...]] = {
    "sparse": ("size", "on disk", "in holes", "compressed"),
    "stripe": ("size", "layout"),
    "compress": ("size", "sampled", "compressed"),
    "special": ("kind",),
}
"""The kinds of lists, and the columns that precede the path."""


class FileLists:
    """The lines of one worker for the lists of `kinds`; `end` terminates each line."""

    def __init__(self, kinds: Sequence[str], end: bytes, roots: Sequence[Root]) -> None:
        self.kinds: frozenset[str] = frozenset(kinds)
        self._end = end
        self._roots = roots
        self._lines: dict[str, list[bytes]] = {kind: [] for kind in kinds}
        self._unlisted = dict.fromkeys(kinds, 0)

    def add(self, kind: str, root: int, path: bytes, name: bytes, *values: object) -> None:
        """Add a file if its list was requested."""
        if kind not in self.kinds:
            return
        at = self._roots[root]
        shown = at.shown if at.name else os.path.join(at.shown, join_path(path, name))
        if self._end in shown:
            self._unlisted[kind] += 1
            return
        columns = "".join(f"{value}\t" for value in values).encode()
        self._lines[kind].append(columns + shown + self._end)

    def tell(self, context: NoticeSink) -> None:
        """Send the lines to rank 0; the task calls this at the end of each item."""
        for kind, lines in self._lines.items():
            unlisted, self._unlisted[kind] = self._unlisted[kind], 0
            if not (lines or unlisted):
                continue
            batch, size, batches = [], 0, []
            for line in lines:
                batch.append(line)
                size += len(line)
                if size >= NOTICE_BYTES:
                    batches.append(FileLines(kind, b"".join(batch), 0))
                    batch, size = [], 0
            context.note([*batches, FileLines(kind, b"".join(batch), unlisted)])
            lines.clear()


def heading(kind: str, end: bytes) -> bytes:
    """Return the first line of a list, a comment that names its columns."""
    return b"#" + "\t".join((*COLUMNS[kind], "path")).encode() + end


def lists_of(option: str, texts: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return each KIND with its file; raise UsageError if a value of the option is invalid."""
    found: dict[str, str] = {}
    for text in texts:
        kind, colon, file = text.partition(":")
        if kind not in COLUMNS or not colon:
            kinds = ", ".join(COLUMNS)
            what = f"invalid value '{show(os.fsencode(text))}': must be KIND:FILE"
            raise UsageError(f"{option}: {what}, with a KIND of {kinds}")
        if not file:
            raise UsageError(f"{option}: empty file name")
        if kind in found:
            raise UsageError(f"{option}: there can be only one list of kind {kind}")
        found[kind] = file
    return tuple(found.items())
