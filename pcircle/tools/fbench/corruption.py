"""Simulates silent data corruption, by seed, in copies of trees that `fbench make` has created.

Sizes and modification times are preserved. A file is modified only if the record of `fbench make`
lists it, its content matches the record, and all of its hard links are in this tree. So neither
unrelated files nor the original of a hard-linked copy can be damaged.
"""

from __future__ import annotations

import hashlib
import os
import random
import stat
from collections.abc import Callable
from typing import BinaryIO

import msgspec

from pcircle import __version__
from pcircle.core.errors import UsageError
from pcircle.core.names import show
from pcircle.fs.open_flags import OPEN_DIRECTORY_PATH
from pcircle.fs.safe_open import reading
from pcircle.jobs.failures import decode
from pcircle.tools.fbench.tree_maker import FORMAT, TreeEntry, TreeHeader

CORRUPT_FORMAT = "fbench corrupt 1"
_READ_BYTES = 1 << 20
_LONGEST_RUN = 512  # wrong bytes, like a lost sector
_MAX_LINE_BYTES = 1 << 20


class CorruptionHeader(msgspec.Struct, frozen=True):
    """The first line of the record."""

    format: str
    version: str
    seed: int
    made_seed: int


class Damage(msgspec.Struct, frozen=True):
    """A line of the record: the bytes from `offset`, in hex, before and after the change."""

    path: str
    offset: int
    was: str
    now: str


def read_record(path: str) -> tuple[TreeHeader, list[TreeEntry]]:
    """Return the contents of a record of `fbench make`. Raise UsageError if it is invalid."""
    name = show(os.fsencode(path))
    try:
        with open(reading(os.fsencode(path)), "rb") as stream:
            header = msgspec.json.decode(stream.readline(_MAX_LINE_BYTES), type=TreeHeader)
            lines = msgspec.json.Decoder(TreeEntry).decode_lines(stream.read())
    except OSError as error:
        raise UsageError(f"--made: cannot read '{name}': {error.strerror}") from None
    except (msgspec.DecodeError, ValueError) as error:
        raise UsageError(f"--made: '{name}' is not a record of fbench make: {error}") from None
    if header.format != FORMAT:
        raise UsageError(f"--made: '{name}' is not a record of fbench make: {header.format}")
    return header, lines


def corrupt(
    root_fd: int,
    seed: int,
    changes: int,
    made: tuple[TreeHeader, list[TreeEntry]],
    record: Callable[[msgspec.Struct], None],
) -> int:
    """Corrupt up to `changes` files of a tree, and return how many were corrupted.

    Raise OSError if a file or the record cannot be written.
    """
    header, lines = made
    dice = random.Random(seed)
    record(CorruptionHeader(CORRUPT_FORMAT, __version__, seed, header.seed))
    files = [line for line in lines if line.kind == "file" and line.size]
    dice.shuffle(files)
    done = 0
    for line in files:
        if done == changes:
            break
        offset = dice.randrange(line.size)
        length = 1 if dice.random() < 0.5 else dice.randrange(1, _LONGEST_RUN)
        noise = dice.randbytes(length)
        done += _damaged(root_fd, line, offset, noise, record)
    return done


def _damaged(
    root_fd: int,
    line: TreeEntry,
    offset: int,
    noise: bytes,
    record: Callable[[msgspec.Struct], None],
) -> bool:
    """Corrupt a file if it is unchanged since it was made, and return whether it was.

    The change is recorded before it is written, so that all damage is known even if the disk is
    full. Raise OSError if a write fails.
    """
    fd = _opened(root_fd, decode(line.path))
    if fd is None:
        return False
    with open(fd, "r+b", buffering=0) as file:
        status = os.fstat(fd)
        is_made = stat.S_ISREG(status.st_mode) and status.st_size == line.size
        if not is_made or status.st_nlink != line.names or _digest(file) != line.sha256:
            return False
        file.seek(offset)
        was = file.read(min(len(noise), line.size - offset))
        now = bytes(a ^ (b or 1) for a, b in zip(was, noise, strict=False))
        record(Damage(line.path, offset, was.hex(), now.hex()))
        file.seek(offset)
        file.write(now)
        os.utime(fd, ns=(status.st_atime_ns, status.st_mtime_ns))
    return True


def _digest(file: BinaryIO) -> str:
    digest = hashlib.sha256()
    while piece := file.read(_READ_BYTES):
        digest.update(piece)
    return digest.hexdigest()


def _opened(root_fd: int, path: bytes) -> int | None:
    """Open a file below a directory for writing without following links.

    Return None if that is not possible.
    """
    *folders, name = path.split(b"/")
    if not all((*folders, name)) or b".." in folders or name in (b".", b".."):
        return None
    fd = os.dup(root_fd)
    try:
        for folder in folders:
            flags = OPEN_DIRECTORY_PATH
            inner = os.open(folder, flags, dir_fd=fd)
            os.close(fd)
            fd = inner
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        return os.open(name, flags, dir_fd=fd)
    except OSError:
        return None
    finally:
        os.close(fd)
