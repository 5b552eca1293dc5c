"""Failures that this program detects, but that no system call reports.

The system has no error number for a file that changed while it was being read, an entry of a kind
that is not copied, or a directory that leads back to itself. Any existing number would be mistaken
for an error that the system reported, so these failures have a kind instead of a number.
"""

from __future__ import annotations

import errno
import stat
from typing import Final

from pcircle.fs.safe_open import Untrusted

CHANGED: Final = "changed"
SPECIAL: Final = "special file"
MISMATCH: Final = "mismatch"
LOOP: Final = "loop"
LAYOUT: Final = "layout"
SAME_FILE: Final = "same file"
COLLISION: Final = "name collision"
MOUNT: Final = "mount point"
BUSY: Final = "written to"
AGELESS: Final = "birth time"

_TRIED = "tried"  # the attribute of an OSError that names the operation
_SPECIAL_KINDS = {
    stat.S_IFIFO: "FIFO",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "character device",
    stat.S_IFBLK: "block device",
}


class EntryError(OSError):
    """A failure of an entry that no system call reported; its `errno` is None."""

    def __init__(self, kind: str, why: str) -> None:
        super().__init__(None, why)
        self.kind = kind


class Changed(EntryError):
    """An entry changed while it was being processed."""

    def __init__(self, how: str) -> None:
        super().__init__(CHANGED, how)


class error_context:
    """Name the operation for an OSError that leaves the block; inner blocks take precedence.

    `tried` reads the name from the error, so the name need not be passed along with it.
    """

    __slots__ = ("_what",)

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            set_operation(error, self._what)


def set_operation(error: OSError, what: str) -> None:
    """Name the operation of an error directly, if a context manager would cost too much."""
    if not hasattr(error, _TRIED):
        setattr(error, _TRIED, what)


def tried(error: OSError, otherwise: str) -> str:
    """Return the operation that failed with this error, or `otherwise` if unknown."""
    what: str = getattr(error, _TRIED, otherwise)
    return what


def errno_and_reason(error: OSError) -> tuple[int | None, str]:
    """Return the system's error number, or None, and the reason in words."""
    return error.errno, error.strerror or str(error)


def kind_of(error: OSError) -> str:
    """Return the kind of a failure that has no error number; empty for any other failure."""
    return error.kind if isinstance(error, EntryError | Untrusted) else ""


def special_kind(mode: int) -> str:
    """Return the kind of special file that a mode denotes; empty for other entries."""
    return _SPECIAL_KINDS.get(stat.S_IFMT(mode), "")


def error_name(number: int | None, kind: str) -> str:
    """Return the kind of a failure or, if it has none, the system's name for the error number."""
    return kind or errno.errorcode.get(number or 0, "other")
