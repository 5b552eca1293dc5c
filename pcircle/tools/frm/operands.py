"""The root of each PATH, and the PATHs that are refused."""

from __future__ import annotations

import errno
import os
import stat

from pcircle.core.errors import UsageError
from pcircle.core.names import show
from pcircle.fs.directories import device_and_inode
from pcircle.fs.open_flags import OPEN_DIRECTORY_FOLLOW, OPEN_ENTRY_PATH
from pcircle.fs.openat2 import is_same_mount
from pcircle.fs.safe_open import directory
from pcircle.walk.roots import Root


def root_of(
    path: bytes, *, keep_root: bool, recursive: bool
) -> tuple[Root, tuple[int, int]] | None:
    """Return the root of a PATH, and the device and inode of its parent directory.

    A link is not followed. Return None if the PATH does not exist. Raise UsageError for `/`, ``.``,
    ``..``, a mount point unless `keep_root`, or a directory unless `recursive`. Raise OSError if
    the PATH cannot be opened, or must be a directory but is not.
    """
    stripped = path.rstrip(b"/")
    holder, name = os.path.split(stripped)
    if not stripped or name in (b".", b".."):
        raise UsageError(f"refusing to remove '{show(path)}'")
    holder = holder or b"."
    above = directory(holder)
    try:
        held = device_and_inode(os.fstat(above))
        fd = os.open(name, OPEN_ENTRY_PATH, dir_fd=above)
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


def opened(path: bytes) -> int:
    """Open the parent directory of PATHs, as `root_of` does. OSError."""
    fd = directory(path)
    try:
        return os.open(b".", OPEN_DIRECTORY_FOLLOW, dir_fd=fd)
    finally:
        os.close(fd)
