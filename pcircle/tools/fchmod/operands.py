"""The root of each PATH: the entry itself, or the target of a followed link."""

from __future__ import annotations

import os
import stat

from pcircle.core.errors import UsageError
from pcircle.core.names import show
from pcircle.fs.open_flags import OPEN_ENTRY_PATH
from pcircle.fs.safe_open import MAX_LINKS, directory, place_of
from pcircle.walk.roots import Root

_DOTS = (b"", b".", b"..")


def root_of(path: bytes, *, recursive: bool, follow: bool, keeps_root: bool) -> Root:
    """Return the root of a PATH. With `recursive`, a directory is entered. UsageError, OSError.

    A link is not followed if another user could have created it.
    """
    holder, name, status = _found(path, follow=follow)
    if keeps_root and recursive and stat.S_ISDIR(status.st_mode):
        top = os.stat(b"/")
        if (top.st_dev, top.st_ino) == (status.st_dev, status.st_ino):
            raise UsageError(
                f"refusing to change '{show(path)}' recursively: it is the root directory; "
                "--no-preserve-root allows it"
            )
    if not (recursive and stat.S_ISDIR(status.st_mode)):
        return Root(holder, name or b".", path)
    if name in _DOTS:
        return Root(os.path.join(holder, name), b"", path)
    return Root(holder, b"", path, name)


def _found(path: bytes, *, follow: bool) -> tuple[bytes, bytes, os.stat_result]:
    """Return the parent directory of an entry, its name there, and its status."""
    for _ in range(MAX_LINKS):
        holder, name = os.path.split(path.rstrip(b"/") or b"/")
        holder = holder or b"."
        above = directory(holder)
        try:
            fd = os.open(name or b".", OPEN_ENTRY_PATH, dir_fd=above)
            try:
                status = os.fstat(fd)
                is_link = stat.S_ISLNK(status.st_mode)
                if not is_link or not (follow or path.endswith(b"/")):
                    if path.endswith(b"/") and not stat.S_ISDIR(status.st_mode):
                        raise NotADirectoryError(20, os.strerror(20))
                    return holder, name, status
            finally:
                os.close(fd)
        finally:
            os.close(above)
        with place_of(path.rstrip(b"/")) as place:  # follows only trusted links
            if place.status is None:
                raise FileNotFoundError(2, os.strerror(2))
            path = place.path
    raise OSError(40, os.strerror(40))
