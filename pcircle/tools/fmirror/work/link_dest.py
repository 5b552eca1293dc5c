"""`--link-dest` and `--compare-dest`: reference trees that may have an entry the target lacks.

If the entry in a reference tree equals the source's, it is linked into the target, or omitted from
it. A linked entry is checked again, because a user with write access to the tree could have
replaced it meanwhile.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from functools import partial

from pcircle.fs.write_access import WriteAccess
from pcircle.tools.fmirror.plan import MirrorPlan
from pcircle.tools.fmirror.work.overwrite_policy import MirrorOverwritePolicy
from pcircle.tools.fmirror.work.reference_trees import ReferenceTrees


class LinkDest:
    """Links entries of reference trees into the target.

    Each thread has its own instance. If `dry` is set, it links nothing.
    """

    def __init__(
        self, plan: MirrorPlan, keeping: MirrorOverwritePolicy, *, dry: bool = False
    ) -> None:
        self._links = plan.keep.links
        self._access = WriteAccess(flags=plan.keep.flags)
        self._policy = keeping
        self._dry = dry
        self._references = ReferenceTrees((*plan.link_dest, *plan.compare_dest))
        self._linked = len(plan.link_dest)  # entries of the first trees are linked

    def close(self) -> None:
        """Release the directories."""
        self._references.close()

    def has(self, root: int, path: bytes, name: bytes, fds: tuple[int, int]) -> bool | None:
        """Return True if a name was linked, False if it is omitted, None if it must be copied."""
        if not self._references:
            return None
        with suppress(OSError):  # the copy will encounter and report the same error
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


def _linked(name: bytes, fd: int, target_fd: int, expected: os.stat_result) -> bool:
    """Link a checked entry into the target, and return whether it is still the same entry.

    Raise OSError if it cannot be linked.
    """
    os.link(name, name, src_dir_fd=fd, dst_dir_fd=target_fd, follow_symlinks=False)
    now = os.stat(name, dir_fd=target_fd, follow_symlinks=False)
    known = (expected.st_dev, expected.st_ino, expected.st_size, expected.st_mtime_ns)
    if (now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns) == known:
        return True
    os.unlink(name, dir_fd=target_fd)
    return False
