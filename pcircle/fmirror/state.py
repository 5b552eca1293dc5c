"""What a mirror remembers of its last complete run: a small file beside the target, never in it.

By it a source is known again: a disk that is not mounted leaves an empty directory, or another file
system, in its place, and then nothing may be removed. The file is text, a line each, the words
before the first space being these:

    fmirror 1              what it is, and the version of the format
    source PATH            the source, percent-encoded as in the error log
    filesystem TYPE ID     its type, and its identity in hex, or `-` where that changes
    root INODE             the source's own inode
    began SECONDS          when the run began, in seconds since 1970, with nine digits behind
    entries COUNT          how many entries the source had

Its name is `.fmirror-`, sixteen hex digits of the target's path (XXH3, 64 bits), and `.state`.
Whoever finds another version, or a file that others may write, goes on as if there were none.
"""

from __future__ import annotations

import os
import stat
import time
from typing import NamedTuple

import xxhash

from pcircle.mounts import type_of_device
from pcircle.trusted import create, reading, replace
from pcircle.ui.errorlog import encode

_FIRST = "fmirror 1"
_SURE = frozenset((b"ext2", b"ext3", b"ext4", b"btrfs", b"f2fs", b"zfs"))  # ids of their own
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class Identity(NamedTuple):
    """What a directory is known again by, also after its file system was mounted anew."""

    filesystem: str
    root: int


class State(NamedTuple):
    """The last complete run."""

    source: str
    identity: Identity
    began_ns: int
    entries: int


def identity_of(path: bytes) -> Identity:
    """The identity of a directory. OSError."""
    status = os.stat(path)
    kind = type_of_device(status.st_dev) or b"unknown"
    known = f"{os.statvfs(path).f_fsid:x}" if kind in _SURE else "-"
    return Identity(f"{kind.decode(errors='replace')} {known}", status.st_ino)


def place_of(target: bytes, directory: bytes | None) -> bytes:
    """The path of the state of a target, which need not exist: beside it, or in `directory`."""
    real = os.path.realpath(target)
    name = b".fmirror-%016x.state" % xxhash.xxh3_64_intdigest(real)
    return os.path.join(os.path.dirname(real) if directory is None else directory, name)


def read(path: bytes) -> State | None:
    """What was remembered, if anything is that can be trusted."""
    try:
        with open(reading(path), "rb") as stream:
            status = os.fstat(stream.fileno())
            if status.st_uid not in (0, os.geteuid()) or status.st_mode & _OTHERS_WRITE:
                return None
            lines = stream.read(1 << 16).decode().splitlines()
        if not lines or lines[0] != _FIRST:
            return None
        words = dict(line.partition(" ")[::2] for line in lines[1:])
        seconds, _, rest = words["began"].partition(".")
        began_ns = int(seconds) * 10**9 + int(rest)
        identity = Identity(words["filesystem"], int(words["root"]))
        return State(words["source"], identity, began_ns, int(words["entries"]))
    except (OSError, ValueError, KeyError):
        return None


def write(path: bytes, source: bytes, identity: Identity, began_ns: int, entries: int) -> None:
    """Remember a run that was complete. OSError."""
    seconds, rest = divmod(began_ns, 10**9)
    lines = (
        _FIRST,
        f"source {encode(source)}",
        f"filesystem {identity.filesystem}",
        f"root {identity.root}",
        f"began {seconds}.{rest:09}",
        f"entries {entries}",
    )
    temporary = path + b".%d" % os.getpid()
    fd = create(temporary, 0o600)
    with open(fd, "wb") as stream:
        stream.write("".join(f"{line}\n" for line in lines).encode())
    replace(temporary, path)


def now_ns() -> int:
    """The time, to be remembered."""
    return time.time_ns()
