"""Where what is replaced or removed goes, with its path: renamed, so on the same file system.

Directories that lead there are made as they are needed, each in the one above it, never through a
link. What has the same path there from an earlier run is kept under another name: `.1`, `.2` and so
on behind it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count

from pcircle.fs.directories import join_path, open_below
from pcircle.fs.scan import blocks, encoded
from pcircle.fs.trouble import trying
from pcircle.trusted import directory
from pcircle.walk.choosing import Choose

# Directories have none, nor has each file system, nor may everybody make each.
_NO_LINKS = (errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOENT)
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Backup:
    """One thread's. The directory at `place` must be there."""

    def __init__(self, place: bytes) -> None:
        self._place = place
        self._fd = -1

    def take(self, root: int, path: bytes, written: bytes, directory_fd: int) -> None:
        """Move what has the name `written` in a directory to where its `path` leads. OSError."""
        with trying("back up"), self._above(path) as fd:
            _give(written, directory_fd, os.path.basename(path), fd)

    def hold(self, path: bytes, directory_fd: int) -> bool:
        """Link what lies in a directory to where its `path` leads; whether that was possible.

        So it is in the backup before something else gets its name. OSError.
        """
        name = os.path.basename(path)
        with trying("back up"), self._above(path) as fd:
            for suffix in count():
                there = name + b".%d" % suffix if suffix else name
                try:
                    os.link(
                        name, there, src_dir_fd=directory_fd, dst_dir_fd=fd, follow_symlinks=False
                    )
                except FileExistsError:
                    continue
                except OSError as error:
                    if error.errno in _NO_LINKS:
                        return False
                    raise
                break
        return True

    @contextmanager
    def _above(self, path: bytes) -> Iterator[int]:
        """The directory of the backup in which a path is, made if need be. OSError."""
        if self._fd < 0:
            self._fd = directory(self._place)
        fd = os.dup(self._fd)
        try:
            for part in filter(None, os.path.dirname(path).split(b"/")):
                inner = _below(fd, part)
                os.close(fd)
                fd = inner
            yield fd
        finally:
            os.close(fd)

    def move(self, path: bytes, top_fd: int) -> None:
        """As `take`, of a path below an open directory; what it is in keeps its times. OSError."""
        above, name = os.path.split(path)
        fd = open_below(top_fd, above)
        try:
            before = os.fstat(fd)
            self.take(0, path, name, fd)
            os.utime(fd, ns=(before.st_atime_ns, before.st_mtime_ns))
        finally:
            os.close(fd)

    def close(self) -> None:
        """Let the directory go."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def going(path: bytes, top_fd: int, choose: Choose) -> list[bytes]:
    """What goes of a path below an open directory, each as a whole. OSError.

    What `choose` leaves out stays, and so do the directories that lead to it.
    """
    found, stays, inner = [], set(), [path]
    for here in inner:  # which grows
        try:
            fd = open_below(top_fd, here)
        except NotADirectoryError:
            continue
        try:
            for block in blocks(fd):
                count = len(block)
                choose(block, here, fd)
                if len(block) < count:
                    stays.add(here)
                names = block.directories + block.files + block.links + block.specials
                below = [join_path(here, name) for name in encoded(names)]
                inner += below[: len(block.directories)]
                found += below
        finally:
            os.close(fd)
    for here in reversed(inner[1:]):
        if here in stays:
            stays.add(os.path.dirname(here))
    if path not in stays:
        return [path]
    return [each for each in found if each not in stays and os.path.dirname(each) in stays]


def _below(fd: int, name: bytes) -> int:
    """The directory of this name in an open one, made if need be."""
    for suffix in count():
        there = name + b".%d" % suffix if suffix else name
        with suppress(FileExistsError):
            os.mkdir(there, 0o700, dir_fd=fd)
        with suppress(NotADirectoryError):  # of an earlier run, when it was a file
            return os.open(there, _FLAGS, dir_fd=fd)
    raise AssertionError  # it counts on for ever


def _give(written: bytes, source_fd: int, name: bytes, fd: int) -> None:
    """Rename to a name that is free, or to the next one that is."""
    for suffix in count():
        there = name + b".%d" % suffix if suffix else name
        try:
            os.stat(there, dir_fd=fd, follow_symlinks=False)
        except FileNotFoundError:
            os.rename(written, there, src_dir_fd=source_fd, dst_dir_fd=fd)
            return
