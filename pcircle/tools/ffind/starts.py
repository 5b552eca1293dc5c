"""The roots of a search: each PATH as typed, of any kind. A missing PATH is a failure."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from pcircle.cli.inputs import open_input
from pcircle.core.errors import UsageError
from pcircle.core.names import show
from pcircle.fs.sorting import pieces
from pcircle.walk.roots import Root

_NAMELESS = (b"", b".", b"..")


def start_of(path: bytes, follow: str, *, removes: bool) -> Root:
    """Return the root of a PATH. With `removes`, the PATH is opened from its parent directory."""
    if not path:
        raise UsageError("empty file name")
    try:
        status = os.stat(path, follow_symlinks=follow != "P")
    except OSError:
        status = None
        if follow != "P":
            try:
                status = os.lstat(path)
            except OSError:
                status = None
    holder, name = os.path.split(path.rstrip(b"/"))
    if path.startswith(b"/") and not holder:
        holder = b"/"
    if status is None or not stat.S_ISDIR(status.st_mode):
        # The slash after a file is kept, so that the look-up fails with the right error.
        name += path[len(path.rstrip(b"/")) :]
        return Root(holder or b".", name or b"/", path)
    if removes and name not in _NAMELESS and not _is_link(path.rstrip(b"/")):
        return Root(holder or b".", b"", path, name)
    return Root(path, b"", path)


def _is_link(path: bytes) -> bool:
    try:
        return stat.S_ISLNK(os.lstat(path).st_mode)
    except OSError:
        return False


def listed_starts(name: str, *, complete: bool) -> Iterator[bytes]:
    """Yield the PATHs in a file of -files0-from; `-` is standard input. UsageError.

    With `complete` the last PATH must end with NUL, because the file could be truncated.
    """
    shown = show(os.fsencode(name))
    try:
        with open_input(name, option="-files0-from") as stream:
            for number, path in enumerate(pieces(stream, b"\0", complete=complete), 1):
                if not path:
                    raise UsageError(f"-files0-from: '{shown}': empty file name (number {number})")
                yield path
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"-files0-from: cannot read '{shown}': {reason}") from None
