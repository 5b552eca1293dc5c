"""Runs fcp while copies are corrupted between copying and verification.

``python -m examples.papers.fcp_corrupted ARGUMENT...`` is ``fcp --verify``, except that one byte of
some copies is inverted just before they are first read back. This affects one file in `ONE_IN`, by
its name, and one part in `ONE_IN` of a large file, beginning with the first. So fcp finds real
corruption in the target, as in the paper's runs with corrupted files (Wang et al., the figures of
checksums). How much they corrupted is not known, so we chose the share.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from zlib import crc32

from pcircle.core.writing import write_at
from pcircle.ops.copy.entry.content_hash import ExpectedContent, Rereader
from pcircle.tools.fcp.__main__ import main

ONE_IN = 16
_done: set[tuple[int, int, bytes, int]] = set()  # of this rank: directory, name, offset


def corrupt(directory_fd: int, name: bytes, offset: int) -> None:
    """Invert a byte of a copy, but only once: the next copy of the file stays as it is."""
    folder = os.fstat(directory_fd)
    key = folder.st_dev, folder.st_ino, name, offset
    if key in _done:
        return
    _done.add(key)
    fd = os.open(name, os.O_RDWR, dir_fd=directory_fd)
    try:
        (byte,) = os.pread(fd, 1, offset)
        write_at(fd, bytes([byte ^ 0xFF]), offset)
    finally:
        os.close(fd)


def is_chosen(name: bytes) -> bool:
    """Return whether the copy of a whole file will be corrupted."""
    return crc32(name) % ONE_IN == 0


def install() -> None:
    """Make this process, and those forked from it, corrupt copies before reading them back."""
    read_file, read_range = Rereader.reads, Rereader.has_range_digest

    def reads(self: Rereader, directory_fd: int, name: bytes, seen: ExpectedContent) -> bool:
        if seen.size and is_chosen(name):
            corrupt(directory_fd, name, 0)
        return read_file(self, directory_fd, name, seen)

    def has_range_digest(
        self: Rereader,
        directory_fd: int,
        name: bytes,
        is_expected: Callable[[os.stat_result], bool],
        where: tuple[int, int],
        stop: Callable[[], bool],
        digest: bytes,
    ) -> bool:
        offset, length = where
        if length and offset // length % ONE_IN == 0:
            corrupt(directory_fd, name, offset)
        return read_range(self, directory_fd, name, is_expected, where, stop, digest)

    Rereader.reads = reads  # type: ignore[method-assign]
    Rereader.has_range_digest = has_range_digest  # type: ignore[method-assign]


if __name__ == "__main__":
    install()
    sys.argv[1:1] = ["--verify"]
    sys.exit(main())
