"""What frm is to do, decided once on rank 0, and what it counts."""

from __future__ import annotations

import errno
import os
import stat

from pcircle.errors import UsageError
from pcircle.fs.beneath import is_same_mount
from pcircle.tool.changing import ChangeCounters, ChangePlan
from pcircle.ui.names import show
from pcircle.walk.roots import Root

_PATH = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


class Plan(ChangePlan, frozen=True, kw_only=True):
    """With `recursive` what is in directories goes, too. `enter_mounts`: also on other mounts.

    `listed`: only what a list names goes. `keep_root`: each PATH itself stays. `keep_times`:
    directories that stay keep their times. `force_modes`: the owner gets access to directories.
    With `trash` each PATH is moved to that directory of this run. `sized`: files are looked up.
    """

    recursive: bool = False
    keep_root: bool = False
    keep_times: bool = False
    force_modes: bool = False
    listed: bool = False
    sized: bool = False
    trash: bytes = b""
    enter_mounts: bool = False


class Counters(ChangeCounters):
    """Entries that had `vanished` before they were to be removed.

    On disk files have `named_bytes` by each of their names, and `freed_bytes` by the last one.
    """

    vanished: int
    named_bytes: int
    freed_bytes: int

    @property
    def settled(self) -> int:
        """See `Measured`."""
        return self.completed + self.failed + self.kept + self.vanished


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
