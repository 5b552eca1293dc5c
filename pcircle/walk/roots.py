"""The roots of a walk: the PATHs as typed, and the items and directories for them."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence

import msgspec

from pcircle.fs.directories import HOLDER, Directories, bases, capacity_of, device_and_inode
from pcircle.fs.scan import PathListSlice
from pcircle.walk.items import ANYWHERE, Batch, Tree
from pcircle.walk.visitor import Names, WalkCounters


def seeds(
    roots: Sequence[Root], tally: WalkCounters, only: Sequence[PathListSlice | None] | None = None
) -> Iterator[Tree | Batch]:
    """Count the roots, and yield an item for each. `only` contains their listed paths."""
    weight = 1.0 / max(1, len(roots))
    tally.found += len(roots)
    for number, root in enumerate(roots):
        if root.name:
            names = kind_of_root(root.holder, root.name)
            kinds = [b"".join(kind) for kind in (names.files, names.links, names.specials)]
            files, links, specials = kinds
            yield Batch(number, HOLDER, files, links, weight, ANYWHERE, specials)
        else:
            tally.scans_due += 1
            yield Tree(number, b"", weight, only=None if only is None else only[number])


def kind_of_root(holder: bytes, name: bytes) -> Names:
    """Look up the kind of a root that is not a directory, and return its name by kind."""
    try:
        mode = os.stat(os.path.join(holder, name), follow_symlinks=False).st_mode
    except OSError:
        mode = stat.S_IFREG  # reading the file will report the error
    if stat.S_ISREG(mode):
        return Names([name], [], [])
    return Names([], [name], []) if stat.S_ISLNK(mode) else Names([], [], [name])


class Root(msgspec.Struct, frozen=True, array_like=True):
    """A root of a walk, given as a PATH.

    `shown` is the PATH as typed. An empty `name` means that `holder` is the root directory itself.

    If the root is a directory that will be removed from its parent, `holder` is the parent, and
    `within` the name of the root in it. With `strict`, no link may lead to the root. If `known` is
    given, the root must have this device and inode when it is opened.
    """

    holder: bytes
    name: bytes
    shown: bytes
    within: bytes = b""
    strict: bool = False
    known: tuple[int, int] | None = None


def root_of(path: bytes) -> tuple[Root, os.stat_result]:
    """Return the root for a path, and its status. Links are followed. Raises OSError."""
    status = os.stat(path)
    if stat.S_ISDIR(status.st_mode):
        return Root(path, b"", path), status
    real = os.path.realpath(path) if os.path.islink(path) else path
    holder, name = os.path.split(real)
    if not name:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    return Root(holder or b".", name, path), status


def open_roots(
    roots: Sequence[Root],
    directory: bytes,
    identify: Callable[[os.stat_result], tuple[int, int]] = device_and_inode,
    *,
    is_first: bool,
    below: Callable[[bytes, int], int] | None = None,
    unlock: Callable[[int], bool] | None = None,
    written: bool = False,
    follow: bool = False,
    no_atime: bool = False,
) -> Directories:
    """Return the directories of roots whose paths are relative to `directory`.

    `is_first` is passed to `capacity_of`, the other arguments to `Directories`.
    """
    known = [root.known for root in roots]
    args = bases([(root.holder, root.name or root.within) for root in roots], directory, known)
    capacity = capacity_of(is_first=is_first)
    return Directories(
        args,
        capacity,
        identify,
        follow=follow,
        below=below,
        unlock=unlock,
        written=written,
        no_atime=no_atime,
        linkless=any(root.strict for root in roots),
    )
