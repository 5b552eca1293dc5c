"""The plain case of a small file, and nothing else: the innermost loop of a copy.

Most files are small, dense, regular, stay the same while they are read and
have a name that is not taken. For these the kernel is asked seven times (open,
fstat, create, read, write, close, close; attributes to keep add three) and as
little Python as possible runs between: no path, no object, no second look-up.
Everything else is left to `pcircle.copying.files`, which knows all cases and says
what went wrong.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable

from pcircle.buffers import aligned
from pcircle.copying import target
from pcircle.copying.extras import Extras
from pcircle.copying.observing import NOT_PLAIN, Copy, Data
from pcircle.copying.settings import Settings

ONE_READ_BYTES = 128 << 10
# Less is read into bytes of its own, which is one object less to make.
_OWN = 32 << 10
_KIND_BITS = 0o170000


def plain_copier(
    settings: Settings,
    extras: Extras,
    look: Callable[[Data], None] | None = None,
) -> Copy:
    """A function of a name and both directories that copies a plain file; `look` gets its bytes.

    It returns the file's size or `NOT_PLAIN`; then, and after an OSError, nothing is left behind.
    """
    open_, fstat, read, readv = os.open, os.fstat, os.read, os.readv
    write, close, settle_made = os.write, os.close, extras.settle_made
    room = [aligned(ONE_READ_BYTES + 1)]
    settle = extras.settle if settings.keep.any else None
    bits = target.creation_bits(settings)
    # What links are followed to may have any number of names.
    max_links = sys.maxsize if not settings.keep.links else 0 if settings.follow else 1
    flags = settings.source_flags
    least = 0o600 if settings.keep.mode else 0

    def copy_plain(name: bytes, source_fd: int, target_fd: int) -> int:
        fd = open_(name, flags, dir_fd=source_fd)
        try:
            status = fstat(fd)
            mode, size = status.st_mode, status.st_size
            dense = size <= status.st_blocks * 512
            if status.st_nlink > max_links:
                return NOT_PLAIN
            if not dense or size > ONE_READ_BYTES or mode & _KIND_BITS != stat.S_IFREG:
                return NOT_PLAIN
            right = extras.closed and extras.is_made_right(fd, status)
            made_with = mode & 0o777 if right else mode & bits | least
            out = open_(name, target.CREATE, made_with, dir_fd=target_fd)
            whole = False
            try:
                # One byte more is asked for than there should be: growth shows.
                data: Data = read(fd, size + 1) if size < _OWN else room[0][: readv(fd, room)]
                whole = len(data) == size and (not size or write(out, data) == size)
                if look is not None and whole:
                    look(data)
                if settle is not None and whole:
                    whole = False
                    settle_made(out, status) if right else settle(fd, out, status, target_fd)
                    whole = True
            finally:
                try:
                    if not whole:
                        made = fstat(out)
                        target.discard(name, target_fd, (made.st_dev, made.st_ino))
                finally:
                    try:
                        close(out)
                    except OSError:  # what was written is not all there
                        target.discard(name, target_fd)
                        raise
            return size if whole else NOT_PLAIN
        finally:
            close(fd)

    return copy_plain


def never_plain(name: bytes, source_fd: int, target_fd: int) -> int:
    """In place of the plain case where an option forbids it."""
    return NOT_PLAIN
