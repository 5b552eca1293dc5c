"""What each PATH is, and which are refused."""

from __future__ import annotations

import errno
import os
import stat

from pcircle.errors import UsageError
from pcircle.fs.beneath import is_same_mount
from pcircle.ui.names import show
from pcircle.walk.roots import Root

_PATH = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


def root_of(path: bytes, *, keep_root: bool, recursive: bool) -> Root | None:
    """What a PATH is, a link being itself; None if there is nothing. UsageError, OSError."""
    stripped = path.rstrip(b"/")
    holder, name = os.path.split(stripped)
    if not stripped or name in (b".", b".."):
        raise UsageError(f"refusing to remove '{show(path)}'")
    holder = holder or b"."
    above = os.open(holder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
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
    return Root(holder, b"", path, name) if is_directory else Root(holder, name, path)
