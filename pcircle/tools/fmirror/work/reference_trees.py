"""Reference trees: other trees that may already contain entries of the source.

They are entered one directory at a time, without following symbolic links.

`--copy-dest` and `--reflink-dest`: a file in the reference tree is accepted on the same evidence as
a file in the target. The new file then shares the blocks of that file, or gets a copy of its
content. All attributes, and the content of other files, come from the source as usual.

`--link-dest` and `--compare-dest`: an entry that the target lacks, and that equals the source's
entry in a reference tree, is linked into the target, or omitted from it. A linked entry is checked
again, because a user with write access to the tree could have replaced it meanwhile.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from pcircle.fs.data import DataCopier
from pcircle.fs.directories import open_below
from pcircle.fs.open_flags import OPEN_FILE
from pcircle.fs.safe_open import directory
from pcircle.fs.write_access import WriteAccess
from pcircle.ops.copy.entry.observers import refuse_change
from pcircle.tools.fmirror.plan import MirrorPlan

_NO_CLONES = (errno.EXDEV, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOTTY)

Same = Callable[[tuple[int, int], tuple[os.stat_result, os.stat_result]], bool]
Copy = Callable[[int, int, os.stat_result], None]
SameEntry = Callable[
    [int, bytes, tuple[os.stat_result, os.stat_result], tuple[int, bytes, int, bytes]], bool
]


class ReferenceTrees:
    """The open directories of the reference trees.

    Each thread has its own instance.
    """

    def __init__(self, trees: Sequence[bytes]) -> None:
        self._trees = trees
        self._tops: list[int] = []
        self._at: tuple[int, bytes] | None = None
        self._fds: list[tuple[int, int]] = []  # tree numbers and directories of the current path

    def __bool__(self) -> bool:
        return bool(self._trees)

    def at(self, root: int, path: bytes) -> list[tuple[int, int]]:
        """Return the numbers of the trees that contain a directory, each with that open directory.

        Symbolic links are not followed.
        """
        if self._at != (root, path):
            self._leave()
            self._at = root, path
            if not self._tops:
                self._tops = [_opened(tree) for tree in self._trees]
            for number, top in enumerate(self._tops):
                with suppress(OSError):  # the tree lacks the directory
                    self._fds.append((number, open_below(top, path)))
        return self._fds

    def close(self) -> None:
        """Release the directories."""
        self._leave()
        self._at = None
        for fd in self._tops:
            if fd >= 0:
                os.close(fd)
        self._tops.clear()

    def _leave(self) -> None:
        for _, fd in self._fds:
            os.close(fd)
        self._fds.clear()


def _opened(path: bytes) -> int:
    """Open a tree, or return -1 if it cannot be opened."""
    try:
        return directory(path)
    except OSError:
        return -1


class CopyDest:
    """Copies content from reference trees.

    Each thread has its own instance. `same` compares two open files by the evidence that the run
    accepts.
    """

    def __init__(self, plan: MirrorPlan, same: Same) -> None:
        self._references = ReferenceTrees((*plan.copy_dest, *plan.reflink_dest))
        self._first_clone = len(plan.copy_dest)
        self._cloner = DataCopier("always")
        self._same = same
        self._useless: set[int] = set()  # trees that cannot share blocks with the target

    def close(self) -> None:
        """Release the directories."""
        self._references.close()

    def has(self, where: tuple[int, bytes], name: bytes, fd: int, status: os.stat_result) -> bool:
        """Return whether a reference tree has the content of an open source file."""
        found = self._find(where, name, fd, status)
        if found is None:
            return False
        os.close(found[1])
        return True

    def fill(
        self,
        where: tuple[int, bytes],
        name: bytes,
        source: tuple[int, os.stat_result],
        out: int,
        copy: Copy,
    ) -> bool:
        """Fill an empty file with the source's content from a reference tree.

        Return False if no tree has that content, or if it cannot be copied or cloned. `copy` copies
        between two open files. Raise OSError if the new file cannot be reset.
        """
        found = self._find(where, name, *source)
        if found is None:
            return False
        number, fd, status = found
        try:
            if number < self._first_clone:
                copy(fd, out, status)
            else:
                self._cloner.clone(fd, out)
                refuse_change(status, os.fstat(fd))
            return True
        except OSError as error:
            if number >= self._first_clone and error.errno in _NO_CLONES:
                self._useless.add(number)
            os.ftruncate(out, 0)
            os.lseek(out, 0, os.SEEK_SET)
            return False
        finally:
            os.close(fd)

    def _find(
        self, where: tuple[int, bytes], name: bytes, source_fd: int, source: os.stat_result
    ) -> tuple[int, int, os.stat_result] | None:
        """Return the number of the first tree that has the content, and its file and status."""
        if not source.st_size:
            return None
        for number, directory_fd in self._references.at(*where):
            if number in self._useless:
                continue
            with suppress(OSError):  # a tree whose file cannot be opened counts as lacking it
                fd = os.open(name, OPEN_FILE, dir_fd=directory_fd)
                try:
                    status = os.fstat(fd)
                    if stat.S_ISREG(status.st_mode) and self._same(
                        (source_fd, fd), (source, status)
                    ):
                        return number, fd, status
                except OSError:
                    os.close(fd)
                    continue
                os.close(fd)
        return None


class LinkDest:
    """Links entries of reference trees into the target.

    Each thread has its own instance. `same` compares two entries like
    `MirrorOverwritePolicy.is_equal`. If `dry` is set, nothing is linked.
    """

    def __init__(self, plan: MirrorPlan, same: SameEntry, *, dry: bool = False) -> None:
        self._links = plan.keep.links
        self._access = WriteAccess(flags=plan.keep.flags)
        self._same = same
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
                if not self._same(root, path, (source, there), (fds[0], name, fd, name)):
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
