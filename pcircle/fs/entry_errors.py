"""Failures that no system call reported, but this program detected.

A file that changed while it was read, a kind of entry that is not copied, a directory that leads
back to itself: the system has no error number for these, and a borrowed number would be mistaken
for a report of the system. So they have a kind, and no number.
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

_TRIED = "tried"  # the attribute of an error
_SPECIAL_KINDS = {
    stat.S_IFIFO: "FIFO",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "character device",
    stat.S_IFBLK: "block device",
}


class EntryError(OSError):
    """An entry failed without a failed system call: its `errno` is None."""

    def __init__(self, kind: str, why: str) -> None:
        super().__init__(None, why)
        self.kind = kind


class Changed(EntryError):
    """An entry changed while it was processed."""

    def __init__(self, how: str) -> None:
        super().__init__(CHANGED, how)


class error_context:
    """Name the operation for an OSError that leaves the block; inner blocks are more specific.

    `tried` reads it from the error, so no code needs to remember it.
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
    """Name the operation of an error directly, where a context manager would cost too much."""
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
    """Return the kind of a failure without an error number, otherwise an empty text."""
    return error.kind if isinstance(error, EntryError | Untrusted) else ""


def special_kind(mode: int) -> str:
    """Return the kind of special file of a mode; empty for files, directories and links."""
    return _SPECIAL_KINDS.get(stat.S_IFMT(mode), "")


def error_name(number: int | None, kind: str) -> str:
    """Return the system's name of an error, or the kind of a failure without a number."""
    return kind or errno.errorcode.get(number or 0, "other")
