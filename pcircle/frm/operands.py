"""What each PATH is, and which are refused."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from itertools import pairwise

from pcircle.errors import UsageError
from pcircle.fs.beneath import is_same_mount
from pcircle.fs.directories import device_and_inode
from pcircle.trusted import directory
from pcircle.ui.names import show
from pcircle.walk.roots import Root

_PATH = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


def root_of(
    path: bytes, *, keep_root: bool, recursive: bool
) -> tuple[Root, tuple[int, int]] | None:
    """What a PATH is, a link being itself, and device and inode of what it is in.

    None if there is nothing. UsageError, OSError.
    """
    stripped = path.rstrip(b"/")
    holder, name = os.path.split(stripped)
    if not stripped or name in (b".", b".."):
        raise UsageError(f"refusing to remove '{show(path)}'")
    holder = holder or b"."
    above = directory(holder)
    try:
        held = device_and_inode(os.fstat(above))
        fd = os.open(name, _PATH, dir_fd=above)
        try:
            is_directory = stat.S_ISDIR(os.fstat(fd).st_mode)
            if not (keep_root and is_directory) and not is_same_mount(fd, above):
                raise UsageError(
                    f"refusing to remove '{show(path)}': it is a mount point; "
                    "to empty it, add --keep-root"
                )
        finally:
            os.close(fd)
    except FileNotFoundError:
        return None
    finally:
        os.close(above)
    if is_directory and not recursive:
        raise UsageError(f"'{show(path)}' is a directory: add -r, or -d if it is empty")
    if not is_directory and (keep_root or path != stripped):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    root = Root(holder, b"", path, name) if is_directory else Root(holder, name, path)
    return root, held


def refuse_twice(option: str, roots: Sequence[Root]) -> None:
    """UsageError if an entry is below two of the roots: `option` would count it twice."""
    places = sorted(
        (os.path.join(os.path.realpath(root.holder), root.name or root.within, b""), root.shown)
        for root in roots
    )
    # What begins with a place stands right behind it.
    for (outer, above), (inner, below) in pairwise(places):
        if inner == outer:
            raise UsageError(f"{option}: '{show(below)}' is given twice")
        if inner.startswith(outer):
            text = f"{option}: '{show(below)}' is in '{show(above)}', and would be counted twice"
            raise UsageError(text)


def opened(path: bytes) -> int:
    """A directory that PATHs are in, opened as `root_of` does. OSError."""
    fd = directory(path)
    try:
        return os.open(b".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=fd)
    finally:
        os.close(fd)
