"""`--link-dest` and `--compare-dest`: other trees that may have an entry that the target lacks.

There an entry is as it should be if nothing of it differs from the source: then it is linked into
the target, or left out of it. A tree is entered directory by directory, never through a link. What
was linked is looked at once more, since whoever may write to such a tree could have put something
else there meanwhile.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress

from pcircle.fmirror.plan import MirrorPlan
from pcircle.fmirror.work.keeping import Keeping
from pcircle.trusted import directory

_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Beside:
    """One thread's. With `dry` nothing is linked."""

    def __init__(self, plan: MirrorPlan, keeping: Keeping, *, dry: bool = False) -> None:
        self._links = plan.keep.links
        self._keeping = keeping
        self._dry = dry
        self._trees = [(path, True) for path in plan.link_dest]
        self._trees += [(path, False) for path in plan.compare_dest]
        self._tops: list[int] = []
        self._at: tuple[int, bytes] | None = None
        self._fds: list[tuple[int, bool]] = []  # of what has the path at hand, where there is one

    def close(self) -> None:
        """Let the directories go."""
        self._leave()
        self._at = None
        for fd in self._tops:
            if fd >= 0:
                os.close(fd)
        self._tops.clear()

    def has(self, root: int, path: bytes, name: bytes, fds: tuple[int, int]) -> bool | None:
        """Whether a name of a directory was linked; None if neither that nor is left out."""
        if not self._trees:
            return None
        with suppress(OSError):  # then it is copied, which tells of it
            if fds[1] >= 0 and _status(name, fds[1]) is not None:
                return None
            self._enter(root, path)
            source = os.stat(name, dir_fd=fds[0], follow_symlinks=False)
            if self._links and source.st_nlink > 1:
                return None  # which names are one is the copy's affair
            for fd, links in self._fds:
                there = _status(name, fd)
                if there is None or stat.S_IFMT(there.st_mode) != stat.S_IFMT(source.st_mode):
                    continue
                self._keeping.enter(root, path)
                if self._keeping.differences(source, there, (fds[0], name, fd, name)):
                    continue
                if not links or self._dry or _linked(name, fd, fds[1], there):
                    return links
        return None

    def _enter(self, root: int, path: bytes) -> None:
        if self._at == (root, path):
            return
        self._leave()
        self._at = root, path
        if not self._tops:
            self._tops = [_opened(tree) for tree, _ in self._trees]
        for top, (_, links) in zip(self._tops, self._trees, strict=True):
            with suppress(OSError):  # there it is missing
                self._fds.append((_below(top, path), links))

    def _leave(self) -> None:
        for fd, _ in self._fds:
            os.close(fd)
        self._fds.clear()


def _opened(path: bytes) -> int:
    """A tree, or -1 if somebody has taken it away since it was named."""
    try:
        return directory(path)
    except OSError:
        return -1


def _below(top: int, path: bytes) -> int:
    """The directory of this path below another one, open. OSError."""
    fd = os.dup(top)
    for part in filter(None, path.split(b"/")):
        try:
            inner = os.open(part, _FLAGS, dir_fd=fd)
        finally:
            os.close(fd)
        fd = inner
    return fd


def _status(name: bytes, directory_fd: int) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _linked(name: bytes, fd: int, target_fd: int, wanted: os.stat_result) -> bool:
    """Link what was looked at into the target. OSError."""
    os.link(name, name, src_dir_fd=fd, dst_dir_fd=target_fd, follow_symlinks=False)
    now = os.stat(name, dir_fd=target_fd, follow_symlinks=False)
    known = (wanted.st_dev, wanted.st_ino, wanted.st_size, wanted.st_mtime_ns)
    if (now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns) == known:
        return True
    os.unlink(name, dir_fd=target_fd)
    return False
