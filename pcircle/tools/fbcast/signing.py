"""Digests of what is on a node, to be compared with the source's: of names, and of single files.

The signature is the one that `fsum` prints (`docs/signature.rst`), made by one process that goes
through a tree of its own node.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from typing import TypeAlias

from pcircle.core.buffers import aligned
from pcircle.core.names import show
from pcircle.ops.digest import BlockHasher, Runs, RunStore, get_algorithm, pack_entry
from pcircle.ops.digest.algorithms import DEFAULT
from pcircle.ops.digest.digests import file_digest, link_digest, node_digest

_READ_BYTES = 1 << 20
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
DIGEST_BYTES = 16
Beat: TypeAlias = Callable[[], None]


def digest(data: bytes) -> bytes:
    """Of bytes that travel: it finds accidents, as fast as memory is."""
    return get_algorithm(DEFAULT).digest(data)


def _no_beat() -> None:
    """Nobody asks whether it goes on."""


def signatures_of(paths: Sequence[bytes], beat: Beat = _no_beat) -> bytes:
    """The signatures of files or trees, one after the other. OSError names what can't be read.

    `beat` is called while it goes on.
    """
    return b"".join(signature_of(path, beat) for path in paths)


def signature_of(path: bytes, beat: Beat = _no_beat) -> bytes:
    """The signature of a file or tree; a link as path is followed. OSError."""
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
    """The digest of an open file's content, as it is read now; of one that is all hole none is.

    `size` is that of a hole alone: a file of /proc or /sys has another one than it claims.
    """
    made = get_algorithm(DEFAULT)
    hasher = BlockHasher(made)
    hasher.begin(0)
    if fd >= 0:
        size = _read(fd, hasher.add, beat)
    return file_digest(made, size, hasher.end(size))


def _read(fd: int, add: Callable[[int, memoryview], None], beat: Beat) -> int:
    """Read all of an open file; how many bytes it had."""
    piece = aligned(_READ_BYTES)
    at = 0
    while count := os.preadv(fd, [piece], at):
        add(at, piece[:count])
        beat()
        at += count
    return at


def _leaf(
    holder: int | None, name: bytes, status: os.stat_result, beat: Beat
) -> tuple[bytes, bytes]:
    """Kind and digest of what is no directory."""
    made = get_algorithm(DEFAULT)
    if stat.S_ISLNK(status.st_mode):
        return b"l", link_digest(made, os.readlink(name, dir_fd=holder))
    if not stat.S_ISREG(status.st_mode):
        return b"", node_digest(made, status.st_mode, status.st_rdev)
    fd = os.open(name, _FILE if holder is not None else _FILE & ~os.O_NOFOLLOW, dir_fd=holder)
    try:
        return b"f", digest_of(fd, os.fstat(fd).st_size, beat)
    finally:
        os.close(fd)


def _tree(path: bytes, beat: Beat) -> bytes:
    """The digest of a directory. Special files are left out, as they are when it is sent."""
    shelf = RunStore(get_algorithm(DEFAULT))
    top = os.open(path, _DIRECTORY & ~os.O_NOFOLLOW)
    stack: list[tuple[int, bytes, list[bytes], Runs]] = [(top, b"", _names(top), Runs())]
    try:
        while True:
            fd, name, names, runs = stack[-1]
            if not names:
                sealed = shelf.digest(runs)[0]
                os.close(fd)
                stack.pop()
                if not stack:
                    return sealed
                entry = pack_entry(name, b"d", sealed)
            else:
                name = names.pop()
                status = os.stat(name, dir_fd=fd, follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    inner = os.open(name, _DIRECTORY, dir_fd=fd)
                    stack.append((inner, name, _names(inner), Runs()))
                    continue
                beat()
                kind, sealed = _leaf(fd, name, status, beat)
                if not kind:
                    continue
                entry = pack_entry(name, kind, sealed)
            holder, its_name, left, runs = stack[-1]
            stack[-1] = holder, its_name, left, shelf.add(runs, Runs((entry,)))
    finally:
        shelf.close()
        for fd, *_ in stack:
            os.close(fd)


def _names(fd: int) -> list[bytes]:
    with os.scandir(fd) as found:
        return [os.fsencode(entry.name) for entry in found]


__all__ = ["DIGEST_BYTES", "Beat", "digest", "digest_of", "signature_of", "signatures_of"]
