"""Digests of what is copied, from the same read that copies it."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable

from pcircle.copying.plain import NOT_PLAIN, SOURCE_FLAGS
from pcircle.signature import Signer


def sign_existing(signer: Signer, directory_fd: int, name: bytes, stop: Callable[[], bool]) -> None:
    """Something that was left as it is. OSError if it can't be read, or `stop` says so."""
    status = os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
    if stat.S_ISLNK(status.st_mode):
        signer.link(os.readlink(name, dir_fd=directory_fd))
    elif not stat.S_ISREG(status.st_mode):
        signer.node(status.st_mode, status.st_rdev)
    else:
        fd = os.open(name, SOURCE_FLAGS, dir_fd=directory_fd)
        try:
            signer.read(fd, stop)
        finally:
            os.close(fd)


def signing_copier(
    copy: Callable[[bytes, int, int], int], signer: Signer
) -> Callable[[bytes, int, int], int]:
    """`plain_copier`'s function, adding the entry of what it copied."""

    def copy_signed(name: bytes, source_fd: int, target_fd: int) -> int:
        size = copy(name, source_fd, target_fd)
        if size != NOT_PLAIN:
            signer.add(name)
        return size

    return copy_signed
