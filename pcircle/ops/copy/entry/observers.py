"""Observers of content while it is copied, for hashing, signing and rate limits.

All of these use one mechanism. For each file or range, observers receive its start, its bytes in
order without holes, and its end, or for a small file all bytes at once. If an observer needs the
bytes, they are read by this process, so the kernel neither clones nor moves them. Without observers
nothing is called.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from pcircle.fs.open_flags import OPEN_FILE

if TYPE_CHECKING:
    from pcircle.ops.digest import Signer

SLICE_BYTES = 16 << 20
"""Number of bytes that are moved at once."""

Data: TypeAlias = "bytes | memoryview"


class CopyObserver:
    """Base class whose methods do nothing.

    `reads` means that the observer needs the bytes, `by_blocks` that a piece must not cross the end
    of a signature block; `slice_bytes` is the largest piece that may be moved at once.
    """

    reads = False
    by_blocks = False
    slice_bytes = SLICE_BYTES

    def attempt(self, more: int) -> None:
        """Prepare for the copy of an entry, with `more` operations than usual."""

    def due(self, count: int) -> None:
        """`count` bytes are about to be moved, or have just been moved."""

    def small(self, data: Data) -> None:
        """Process the complete content of a small file."""

    def begin_at(self, offset: int) -> None:
        """Start a file, or a range of one, at `offset`."""

    def see(self, offset: int, data: Data) -> None:
        """Process the next piece; a gap between pieces is a hole."""

    def end_file(self, size: int) -> None:
        """Finish a file of this size."""

    def end_range(self, begin: int, end: int, *, stopped: bool) -> None:
        """Finish a range, at its planned end or earlier if `stopped`."""

    def copied(self, name: bytes, size: int) -> None:
        """Record the source name and size of the last file, whose copy is in place."""

    def settled(self, name: bytes) -> None:
        """Record that a name of a directory is done: copied or left."""

    def link(self, name: bytes, text: bytes) -> None:
        """Record a symbolic link that was copied under this name."""

    def stays(self, directory_fd: int, name: bytes, stop: Callable[[], bool]) -> None:
        """Process an entry that is left. OSError if it is needed but unreadable, or on `stop`."""


class SigningObserver(CopyObserver):
    """Passes content to a rank's signer."""

    reads = True
    by_blocks = True

    def __init__(self, signer: Signer) -> None:
        self._signer = signer

    def small(self, data: Data) -> None:
        self._signer.seal_small_file(data)

    def begin_at(self, offset: int) -> None:
        self._signer.begin(offset)

    def see(self, offset: int, data: Data) -> None:
        self._signer.tap(offset, data)

    def end_file(self, size: int) -> None:
        self._signer.end_file(size)

    def end_range(self, begin: int, end: int, *, stopped: bool) -> None:
        if not stopped:
            self._signer.end_chunk(begin, end)

    def settled(self, name: bytes) -> None:
        self._signer.add_entry(name)

    def link(self, name: bytes, text: bytes) -> None:
        self._signer.seal_link(text)

    def stays(self, directory_fd: int, name: bytes, stop: Callable[[], bool]) -> None:
        signer = self._signer
        status = os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            signer.seal_link(os.readlink(name, dir_fd=directory_fd))
        elif not stat.S_ISREG(status.st_mode):
            signer.seal_node(status.st_mode, status.st_rdev)
        else:
            fd = os.open(name, OPEN_FILE, dir_fd=directory_fd)
            try:
                signer.read_file(fd, stop)
            finally:
                os.close(fd)


class ObserverSet:
    """The observers of a thread's copies as one; hooks without an observer cost nothing."""

    def __init__(self, observers: Sequence[CopyObserver] = ()) -> None:
        self.any = bool(observers)
        self.reads = any(observer.reads for observer in observers)
        self.by_blocks = any(observer.by_blocks for observer in observers)
        self.slice_bytes = min([SLICE_BYTES, *(observer.slice_bytes for observer in observers)])
        self.is_paced = bool(_overrides(observers, "due"))
        # A wait before or after each file is possible.
        self.is_limited = self.is_paced or bool(_overrides(observers, "attempt"))
        for name in _HOOKS:
            setattr(self, name, _combine(_overrides(observers, name)))

    attempt: Callable[[int], None]
    due: Callable[[int], None]
    small: Callable[[Data], None]
    begin_at: Callable[[int], None]
    see: Callable[[int, Data], None]
    end_file: Callable[[int], None]
    end_range: Callable[..., None]
    copied: Callable[[bytes, int], None]
    settled: Callable[[bytes], None]
    link: Callable[[bytes, bytes], None]
    stays: Callable[[int, bytes, Callable[[], bool]], None]


_HOOKS = tuple(name for name in vars(CopyObserver) if callable(vars(CopyObserver)[name]))


def _overrides(observers: Sequence[CopyObserver], name: str) -> list[Callable[..., None]]:
    """Return the methods with this name that observers override."""
    nothing = getattr(CopyObserver, name)
    return [
        getattr(observer, name)
        for observer in observers
        if getattr(type(observer), name) is not nothing
    ]


def _combine(functions: Sequence[Callable[..., None]]) -> Callable[..., None]:
    if len(functions) == 1:
        return functions[0]

    def call(*arguments: object, **keywords: object) -> None:
        for function in functions:
            function(*arguments, **keywords)

    return call
