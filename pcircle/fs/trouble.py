"""Failures that no system call reported: what this program found out by looking.

A file that changed while it was read, a kind of entry that is not copied, a
directory that leads back to itself: the system has no error number for these,
and one that was borrowed would be told as the system's word. So they carry a
kind of their own and no number.
"""

from __future__ import annotations

import stat
from typing import Final

from pcircle.trusted import Untrusted

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


class Trouble(OSError):
    """An entry can't be done, though no system call has failed: its `errno` is None."""

    def __init__(self, kind: str, why: str) -> None:
        super().__init__(None, why)
        self.kind = kind


class Changed(Trouble):
    """Something was not the same from the beginning of the work on it to the end."""

    def __init__(self, how: str) -> None:
        super().__init__(CHANGED, how)


class trying:
    """While this block is left by an OSError, that is what was tried; a block within it knows more.

    `tried` reads it off the error, so nobody has to remember it meanwhile.
    """

    __slots__ = ("_what",)

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            had_tried(error, self._what)


def had_tried(error: OSError, what: str) -> None:
    """As of `trying`, where that is entered with each directory: it costs half a system call."""
    if not hasattr(error, _TRIED):
        setattr(error, _TRIED, what)


def tried(error: OSError, otherwise: str) -> str:
    """What was tried when this error came; `otherwise` if that is not known."""
    what: str = getattr(error, _TRIED, otherwise)
    return what


def told(error: OSError) -> tuple[int | None, str]:
    """The system's number, None if it gave none, and the reason in words."""
    return error.errno, error.strerror or str(error)


def kind_of(error: OSError) -> str:
    """The kind of a failure that the system has no number for; else empty."""
    return error.kind if isinstance(error, Trouble | Untrusted) else ""


def special_kind(mode: int) -> str:
    """What sort of special file a mode is of; empty for files, directories and links."""
    return _SPECIAL_KINDS.get(stat.S_IFMT(mode), "")
