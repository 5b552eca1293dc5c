"""`--link-dest` and `--compare-dest`: other trees that may have a missing entry.

An entry there that equals the source's is linked into the target, or left out. Trees are entered
directory by directory, never through a link. A linked entry is checked a second time, because a
user with write access to the tree could have exchanged it.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from functools import partial

from pcircle.fs.write_access import WriteAccess
from pcircle.tools.fmirror.plan import MirrorPlan
from pcircle.tools.fmirror.work.overwrite_policy import MirrorOverwritePolicy
from pcircle.tools.fmirror.work.reference_tree import ReferenceTrees


class LinkDest:
    """Links entries for one thread; not with `dry`."""

    def __init__(
        self, plan: MirrorPlan, keeping: MirrorOverwritePolicy, *, dry: bool = False
    ) -> None:
        self._links = plan.keep.links
        self._access = WriteAccess(flags=plan.keep.flags)
        self._policy = keeping
        self._dry = dry
        self._references = ReferenceTrees((*plan.link_dest, *plan.compare_dest))
        self._linked = len(plan.link_dest)  # the first ones are linked

    def close(self) -> None:
        """Release the directories."""
        self._references.close()

    def has(self, root: int, path: bytes, name: bytes, fds: tuple[int, int]) -> bool | None:
        """Return True if a name was linked, False if left out; None if it must be copied."""
        if not self._references:
            return None
        with suppress(OSError):  # the copy meets the error again
            if fds[1] >= 0 and _status(name, fds[1]) is not None:
                return None
            source = os.stat(name, dir_fd=fds[0], follow_symlinks=False)
            if self._links and source.st_nlink > 1:
                return None  # the copy handles hard links
            for number, fd in self._references.at(root, path):
                links = number < self._linked
                there = _status(name, fd)
                if there is None or stat.S_IFMT(there.st_mode) != stat.S_IFMT(source.st_mode):
                    continue
                self._policy.enter(root, path)
                if self._policy.differences(source, there, (fds[0], name, fd, name)):
                    continue
                if not links or self._dry:
                    return links
                link = partial(_linked, name, fd, fds[1], there)
                if self._access.change(link, name, fd):
                    return True
        return None


def _status(name: bytes, directory_fd: int) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _linked(name: bytes, fd: int, target_fd: int, wanted: os.stat_result) -> bool:
    """Link a checked entry into the target. OSError."""
    os.link(name, name, src_dir_fd=fd, dst_dir_fd=target_fd, follow_symlinks=False)
    now = os.stat(name, dir_fd=target_fd, follow_symlinks=False)
    known = (wanted.st_dev, wanted.st_ino, wanted.st_size, wanted.st_mtime_ns)
    if (now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns) == known:
        return True
    os.unlink(name, dir_fd=target_fd)
    return False
