"""Prediction of name collisions in a dry run, without creating anything.

For existing directories the result is that of a run. For directories that do not exist yet, the
nearest existing parent shows whether names are folded.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice

from pcircle.fs.directories import HOLDER, Directories
from pcircle.fs.open_flags import OPEN_DIRECTORY_FOLLOW
from pcircle.ops.copy.entry.collisions import (
    CollisionError,
    Collisions,
    differ_only_by,
    folds_name,
    group_by_key,
    list_names,
)
from pcircle.ops.copy.tree.plan import CopyPlan
from pcircle.ops.copy.tree.selection import siblings_of

_ASKED = 100  # names of a directory, at most


class CollisionPreview:
    """A thread's knowledge of the directories of a dry run."""

    def __init__(self, plan: CopyPlan, sources: Directories, targets: Directories) -> None:
        self._roots = plan.roots
        self._sources = sources
        self._targets = targets
        self._collisions = Collisions(siblings_of(plan))

    def check(self, root: int, path: bytes, directory_fd: int, name: bytes) -> None:
        """Check an existing name in the copy of a directory.

        CollisionError if it belongs to another name.
        """
        self._collisions.enter(self._sources, root, path, made=False)
        self._collisions.check(directory_fd, name)

    def check_directory(self, root: int, path: bytes) -> None:
        """Check a directory whose copy exists. CollisionError."""
        above, _, name = path.rpartition(b"/") if path else (HOLDER, b"", self._name(root))
        if name:
            with self._targets.lease(root, above) as holder:
                self.check(root, above, holder.fd, name)

    def check_root(self, root: int) -> None:
        """Raise CollisionError if the copy of a root is the copy of an earlier root."""
        holder = self._roots[root].target_holder
        before = [
            other.target_name for other in self._roots[:root] if other.target_holder == holder
        ]
        name = self._name(root)
        other = self.later(root, HOLDER, [*before, name]).get(name) if name else None
        if other is not None:
            raise CollisionError(other)

    def later(self, root: int, path: bytes, names: Iterable[bytes]) -> dict[bytes, bytes]:
        """Return the names of a directory that will collide, each with the name that it meets."""
        found: dict[bytes, bytes] = {}
        for first, *later_names in group_by_key(names).values():
            for other in later_names:
                for form, case in ((False, True), (True, False), (True, True)):
                    if differ_only_by(first, other, form=form, case=case):
                        if self._folds(root, path, form=form, case=case):
                            found[other] = first
                        break
        return found

    def _name(self, root: int) -> bytes:
        return self._roots[root].target_name

    def _folds(self, root: int, path: bytes, *, form: bool, case: bool) -> bool:
        """Return whether the nearest existing directory folds case, Unicode form or both."""
        while True:
            with suppress(OSError), self._targets.lease(root, path) as lease:
                asked = [kind for kind, wanted in ((True, form), (False, case)) if wanted]
                return all(_shown(lease.fd, form=kind) for kind in asked)
            if path == HOLDER:
                return False
            path = path.rpartition(b"/")[0] if path else HOLDER


def _shown(directory_fd: int, *, form: bool) -> bool:
    """Return whether names in a directory, or in its parents, show that it folds names."""
    for fd in _at_and_above(directory_fd):
        with suppress(OSError):
            for name in islice(list_names(fd), _ASKED):
                with suppress(OSError):  # removed in the meantime
                    found = folds_name(fd, name, form=form)
                    if found is not None:
                        return found
    return False


def _at_and_above(directory_fd: int) -> Iterator[int]:
    fd = os.open(b".", OPEN_DIRECTORY_FOLLOW, dir_fd=directory_fd)
    try:
        while True:
            yield fd
            status = os.fstat(fd)
            above = os.open(b"..", OPEN_DIRECTORY_FOLLOW, dir_fd=fd)
            os.close(fd)
            fd = above
            now = os.fstat(fd)
            if now.st_dev != status.st_dev or now.st_ino == status.st_ino:
                return
    except OSError:
        return
    finally:
        os.close(fd)
