"""What looks at content while it is copied: to hash it, to sign it, to keep within limits.

There is one mechanism for all of them. Of each file or range observers are told that it begins, of
its bytes in order, with holes left out, and where it ends; of a small file all at once. What needs
to see the bytes has them read, so that nothing is cloned or moved by the kernel. Where nobody looks
nothing is called.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from pcircle.copying.settings import SOURCE_FLAGS

if TYPE_CHECKING:
    from pcircle.signature import Signer

SLICE_BYTES = 16 << 20
"""What is moved at once."""

Data: TypeAlias = "bytes | memoryview"


class Observer:
    """One of them; what it has no use for it leaves as it is here.

    `reads` tells that it must see the bytes, `by_blocks` that what it sees at once must not go
    over the end of one of the signature's blocks, `slice_bytes` how much may be moved at once.
    """

    reads = False
    by_blocks = False
    slice_bytes = SLICE_BYTES

    def attempt(self, more: int) -> None:
        """An entry is about to be copied, by so many operations more than it takes as a rule."""

    def due(self, count: int) -> None:
        """So many bytes are about to be moved, or were just now."""

    def small(self, data: Data) -> None:
        """All of a file."""

    def begin_at(self, offset: int) -> None:
        """A file, or a range of one, begins here."""

    def see(self, offset: int, data: Data) -> None:
        """The next part; what is left out between two is a hole."""

    def end_file(self, size: int) -> None:
        """The file is whole, and of this size."""

    def end_range(self, begin: int, end: int, *, stopped: bool) -> None:
        """The range ends here; the job may have stopped before it had to."""

    def copied(self, name: bytes, size: int) -> None:
        """The file that was seen last is in place; its name in the source, and its size."""

    def settled(self, name: bytes) -> None:
        """Of a directory this name is done: copied, or left as it was."""

    def link(self, name: bytes, text: bytes) -> None:
        """A symbolic link was copied, under this name."""

    def stays(self, directory_fd: int, name: bytes, stop: Callable[[], bool]) -> None:
        """Something is left as it is. OSError if it must be read and can't be, or `stop`."""


class Signing(Observer):
    """Has a rank's signer sign what is copied."""

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
            fd = os.open(name, SOURCE_FLAGS, dir_fd=directory_fd)
            try:
                signer.read_file(fd, stop)
            finally:
                os.close(fd)


class Watch:
    """The observers of one thread's copies, told as one; a call that none wants costs nothing."""

    def __init__(self, observers: Sequence[Observer] = ()) -> None:
        self.any = bool(observers)
        self.reads = any(each.reads for each in observers)
        self.by_blocks = any(each.by_blocks for each in observers)
        self.slice_bytes = min([SLICE_BYTES, *(each.slice_bytes for each in observers)])
        self.is_paced = bool(_wanted(observers, "due"))
        # Something waits before or after each file.
        self.is_limited = self.is_paced or bool(_wanted(observers, "attempt"))
        for name in _HOOKS:
            setattr(self, name, _joined(_wanted(observers, name)))

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


_HOOKS = tuple(name for name in vars(Observer) if callable(vars(Observer)[name]))


def _wanted(observers: Sequence[Observer], name: str) -> list[Callable[..., None]]:
    """The functions of this name that do anything."""
    nothing = getattr(Observer, name)
    return [getattr(each, name) for each in observers if getattr(type(each), name) is not nothing]


def _joined(functions: Sequence[Callable[..., None]]) -> Callable[..., None]:
    if len(functions) == 1:
        return functions[0]

    def call(*arguments: Any, **named: Any) -> None:
        for function in functions:
            function(*arguments, **named)

    return call
