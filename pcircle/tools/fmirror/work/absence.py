"""A second look at the source right before an entry is removed from the target.

The source is live: a name that was missing when its directory was listed may exist again, like the
name of a rotated log. So each name is looked up by its path from the root, not in a directory that
was opened before and may have moved. Names of a directory that changes meanwhile are looked up
again. If the directory keeps changing, its names count as existing.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Sequence

import msgspec

from pcircle.fs.directories import Directories, bases, device_and_inode
from pcircle.fs.directories import join_path as joined
from pcircle.fs.open_flags import OPEN_DIRECTORY_PATH
from pcircle.ops.copy.tree.plan import scope_of
from pcircle.tools.fmirror.plan import MirrorPlan
from pcircle.walk.globs import Rule, leave_out
from pcircle.walk.prune_empty import Emptiness
from pcircle.walk.walker import Scope

_LOOKS = 3
_MISSING = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


class MirrorSource(msgspec.Struct, frozen=True, array_like=True):
    """The source of a mirror, `known` by device and inode, and its scope.

    With `excluded`, entries outside the scope count as absent; with `prunes`, so do directories
    without any other contents.
    """

    holder: bytes
    name: bytes
    directory: bytes
    known: tuple[int, int] | None
    scope: Scope
    excluded: bool
    prunes: bool


def source_of(plan: MirrorPlan) -> MirrorSource:
    """Return the source of a mirror."""
    (root,) = plan.roots
    where = root.source_holder, root.source_name, plan.directory, root.source_known
    return MirrorSource(*where, scope_of(plan), plan.deleting.excluded, plan.upkeep.prunes)


class PresentNames(msgspec.Struct, frozen=True):
    """Names of a directory that the source has, or may have because the directory is `moving`."""

    names: frozenset[bytes]
    moving: bool = False


class Absence:
    """Looks up names in the source, for one thread."""

    def __init__(
        self,
        source: MirrorSource,
        identify: Callable[[os.stat_result], tuple[int, int]] = device_and_inode,
    ) -> None:
        base = bases([(source.holder, source.name)], source.directory, [source.known])
        self._directories = Directories(base, 2, identify)
        self._emptiness = Emptiness(source.scope) if source.prunes else None
        self._rules: Sequence[Rule] = source.scope.rules if source.excluded else ()

    def close(self) -> None:
        """Release the source."""
        self._directories.close()

    def has(self, path: bytes, names: Sequence[bytes], *, directories: bool) -> PresentNames:
        """Return which names of a directory the source has. OSError if unknown.

        With `directories` all of these names are directories in the target; otherwise none is.
        """
        found: set[bytes] = set()
        for _ in range(_LOOKS):
            fd = self._opened(path)
            if fd < 0:
                return PresentNames(frozenset(found))
            try:
                changed_ns = os.fstat(fd).st_ctime_ns
                there = (name for name in names if self._is_there(path, name, fd, directories))
                found.update(
                    name for name in there if not self._is_left_out(path, name, directories)
                )
                if os.fstat(fd).st_ctime_ns == changed_ns:
                    return PresentNames(frozenset(found))
            finally:
                os.close(fd)
        return PresentNames(frozenset(names), moving=True)

    def lacks(self, path: bytes, target_fd: int) -> bool:
        """Return whether the source lacks an entry of an open directory of the target. OSError."""
        above, _, name = path.rpartition(b"/")
        mode = os.stat(name, dir_fd=target_fd, follow_symlinks=False).st_mode
        return not self.has(above, [name], directories=stat.S_ISDIR(mode)).names

    def _opened(self, path: bytes) -> int:
        """Open a directory of the source by its path; -1 if it does not exist. OSError."""
        with self._directories.lease(0, b"") as top:
            fd = os.dup(top.fd)
        above = b""
        for name in filter(None, path.split(b"/")):
            try:
                if not self._is_there(above, name, fd, True):
                    return -1
                inner = os.open(name, OPEN_DIRECTORY_PATH, dir_fd=fd)
            except OSError as error:
                if error.errno not in _MISSING:
                    raise
                return -1
            finally:
                os.close(fd)
            fd, above = inner, joined(above, name)
        return fd

    def _is_there(self, path: bytes, name: bytes, fd: int, is_directory: bool) -> bool:
        """Return whether a name exists; with `is_directory` only a directory counts."""
        try:
            status = os.stat(name, dir_fd=fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        if is_directory and not stat.S_ISDIR(status.st_mode):
            return False
        return self._emptiness is None or not self._emptiness.is_empty(path, name, fd)

    def _is_left_out(self, path: bytes, name: bytes, is_directory: bool) -> bool:
        rules = self._rules
        return bool(rules) and leave_out(rules, joined(path, name), directory=is_directory)
