"""Signatures of trees and digests of files, by which a node is compared with the source.

The signature is the one that `fsum` prints (`docs/signature.rst`), except that special files are
omitted. A single process computes it by walking the tree on its node.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from typing import TypeAlias

from pcircle.core.buffers import aligned
from pcircle.core.encoding import show
from pcircle.fs.directories import closing_fd
from pcircle.fs.open_flags import OPEN_DIRECTORY, OPEN_DIRECTORY_FOLLOW, OPEN_FILE
from pcircle.ops.digest import BlockHasher, Runs, RunStore, get_algorithm, pack_entry
from pcircle.ops.digest.digests import DEFAULT, file_digest, link_digest, node_digest

_READ_BYTES = 1 << 20
DIGEST_BYTES = 16
Beat: TypeAlias = Callable[[], None]


def digest(data: bytes) -> bytes:
    """Return the digest of a chunk, used to detect accidental damage."""
    return get_algorithm(DEFAULT).digest(data)


def _no_beat() -> None:
    """Ignore progress."""


def signatures_of(paths: Sequence[bytes], beat: Beat = _no_beat) -> bytes:
    """Return the concatenated signatures of files or trees.

    Call `beat` as the work progresses. Raise an OSError that names the entry that cannot be read.
    """
    return b"".join(signature_of(path, beat) for path in paths)


def signature_of(path: bytes, beat: Beat = _no_beat) -> bytes:
    """Return the signature of a file or tree, following `path` if it is a symbolic link.

    Raise an OSError that names the entry that cannot be read.
    """
    try:
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            return _tree(path, beat)
        return _leaf(None, path, status, beat)[1]
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(f"{show(path)}: {error.strerror}") from error


def digest_of(fd: int, size: int, beat: Beat = _no_beat) -> bytes:
    """Return the digest of an open file's current content.

    `size` is used only if `fd` is -1, which stands for a file without data. The length of an open
    file is measured, because the reported sizes of files in /proc and /sys are meaningless.
    """
    algorithm = get_algorithm(DEFAULT)
    hasher = BlockHasher(algorithm)
    hasher.begin(0)
    if fd >= 0:
        size = _read(fd, hasher.add, beat)
    return file_digest(algorithm, size, hasher.end(size))


def _read(fd: int, add: Callable[[int, memoryview], None], beat: Beat) -> int:
    """Read an open file to its end, and return its length in bytes."""
    piece = aligned(_READ_BYTES)
    at = 0
    while count := os.preadv(fd, [piece], at):
        add(at, piece[:count])
        beat()
        at += count
    return at


def open_source(name: bytes, holder: int | None) -> int:
    """Open a file for reading; if `holder` is None, the name is a path and links are followed."""
    flags = OPEN_FILE if holder is not None else OPEN_FILE & ~os.O_NOFOLLOW
    return os.open(name, flags, dir_fd=holder)


def _leaf(
    holder: int | None, name: bytes, status: os.stat_result, beat: Beat
) -> tuple[bytes, bytes]:
    """Return the kind and digest of an entry that is not a directory.

    The kind of a special file is empty.
    """
    algorithm = get_algorithm(DEFAULT)
    if stat.S_ISLNK(status.st_mode):
        return b"l", link_digest(algorithm, os.readlink(name, dir_fd=holder))
    if not stat.S_ISREG(status.st_mode):
        return b"", node_digest(algorithm, status.st_mode, status.st_rdev)
    with closing_fd(open_source(name, holder)) as fd:
        return b"f", digest_of(fd, os.fstat(fd).st_size, beat)


def _tree(path: bytes, beat: Beat) -> bytes:
    """Return the digest of a directory, omitting special files as a broadcast does."""
    store = RunStore(get_algorithm(DEFAULT))
    top = os.open(path, OPEN_DIRECTORY_FOLLOW)
    stack: list[tuple[int, bytes, list[bytes], Runs]] = [(top, b"", _names(top), Runs())]
    try:
        while True:
            fd, name, names, runs = stack[-1]
            if not names:
                checksum = store.digest(runs)[0]
                os.close(fd)
                stack.pop()
                if not stack:
                    return checksum
                entry = pack_entry(name, b"d", checksum)
            else:
                name = names.pop()
                status = os.stat(name, dir_fd=fd, follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    inner = os.open(name, OPEN_DIRECTORY, dir_fd=fd)
                    stack.append((inner, name, _names(inner), Runs()))
                    continue
                beat()
                kind, checksum = _leaf(fd, name, status, beat)
                if not kind:
                    continue
                entry = pack_entry(name, kind, checksum)
            holder, holder_name, left, runs = stack[-1]
            stack[-1] = holder, holder_name, left, store.add(runs, Runs((entry,)))
    finally:
        store.close()
        for fd, *_ in stack:
            os.close(fd)


def _names(fd: int) -> list[bytes]:
    with os.scandir(fd) as found:
        return [os.fsencode(entry.name) for entry in found]
