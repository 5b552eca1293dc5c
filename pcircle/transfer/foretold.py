"""What `--dry-run` can say of names that will be one in the target, with nothing made there.

Of what is in the target already the same is said as by a run. Of what is not there yet, a directory
that is there is asked how it takes the names that it has: the nearest one to where they will go.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice

from pcircle.copying.collisions import Collision, Collisions, alike, are_one, has_two_names, listed
from pcircle.fs.directories import HOLDER, Directories
from pcircle.transfer.plan import Plan
from pcircle.transfer.worker.choose import siblings_of

_ASKED = 100  # names of a directory, at most


class Foretold:
    """What a thread knows of the directories of a copy that is not made."""

    def __init__(self, plan: Plan, sources: Directories, targets: Directories) -> None:
        self._roots = plan.roots
        self._sources = sources
        self._targets = targets
        self._collisions = Collisions(siblings_of(plan))

    def check(self, root: int, path: bytes, directory_fd: int, name: bytes) -> None:
        """A name in the copy of a directory is there: Collision if it is another name's."""
        self._collisions.enter(self._sources, root, path, made=False)
        self._collisions.check(directory_fd, name)

    def check_directory(self, root: int, path: bytes) -> None:
        """As `check`, of a directory whose copy is there."""
        above, _, name = path.rpartition(b"/") if path else (HOLDER, b"", self._name(root))
        if name:
            with self._targets.lease(root, above) as holder:
                self.check(root, above, holder.fd, name)

    def check_root(self, root: int) -> None:
        """Collision if the copy of a root will be that of one that is named before it."""
        holder = self._roots[root].target_holder
        before = [each.target_name for each in self._roots[:root] if each.target_holder == holder]
        name = self._name(root)
        other = self.later(root, HOLDER, [*before, name]).get(name) if name else None
        if other is not None:
            raise Collision(other)

    def later(self, root: int, path: bytes, names: Iterable[bytes]) -> dict[bytes, bytes]:
        """The names of a directory that will be taken, and by which of the others."""
        found: dict[bytes, bytes] = {}
        for first, *others in alike(names).values():
            for other in others:
                for form, case in ((False, True), (True, False), (True, True)):
                    if are_one(first, other, form=form, case=case):
                        if self._folds(root, path, form=form, case=case):
                            found[other] = first
                        break
        return found

    def _name(self, root: int) -> bytes:
        return self._roots[root].target_name

    def _folds(self, root: int, path: bytes, *, form: bool, case: bool) -> bool:
        """Whether the nearest directory that is there folds so, as far as its names show."""
        while True:
            with suppress(OSError), self._targets.lease(root, path) as lease:
                asked = [kind for kind, wanted in ((True, form), (False, case)) if wanted]
                return all(_shown(lease.fd, form=kind) for kind in asked)
            if path == HOLDER:
                return False
            path = path.rpartition(b"/")[0] if path else HOLDER


def _shown(directory_fd: int, *, form: bool) -> bool:
    """What the names in a directory, or in those above it on its file system, show of folding."""
    for fd in _at_and_above(directory_fd):
        with suppress(OSError):
            for name in islice(listed(fd), _ASKED):
                with suppress(OSError):  # it is gone again
                    found = has_two_names(fd, name, form=form)
                    if found is not None:
                        return found
    return False


def _at_and_above(directory_fd: int) -> Iterator[int]:
    fd = os.open(b".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory_fd)
    try:
        while True:
            yield fd
            status = os.fstat(fd)
            above = os.open(b"..", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=fd)
            os.close(fd)
            fd = above
            now = os.fstat(fd)
            if now.st_dev != status.st_dev or now.st_ino == status.st_ino:
                return
    except OSError:
        return
    finally:
        os.close(fd)
