"""The judges: independent ways to tell whether one tree is a copy of another.

``rsync`` in a dry run with checksums is the first: old, exact, not ours. It fails beyond
``PATH_MAX``, so the second is a walker over descriptors that hashes contents and compares what it
is told to compare. Holes are invisible to both and have a judge of their own. No judge imports
anything of the tools.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
import subprocess
from itertools import zip_longest
from typing import NamedTuple

import pytest

from .trees import Visit, walk

CONTENT: frozenset[str] = frozenset()
METADATA = frozenset({"mode", "owner", "times"})

# A file system counts its own maps (extent blocks) as blocks of the file: 64 KiB of grace.
BLOCKS_GRACE = 128


class Entry(NamedTuple):
    """What is compared of one entry; what is not compared stays 0."""

    depth: int
    name: bytes
    kind: int
    size_bytes: int
    substance: bytes
    mode: int
    owner: tuple[int, int]
    modified_ns: int


def _substance(visit: Visit) -> bytes:
    """The digest of a regular file, the target of a link, the number of a device."""
    kind = stat.S_IFMT(visit.status.st_mode)
    if kind == stat.S_IFLNK:
        return os.fsencode(os.readlink(visit.name, dir_fd=visit.parent))
    if kind in (stat.S_IFCHR, stat.S_IFBLK):
        return b"%d" % visit.status.st_rdev
    if kind != stat.S_IFREG:
        return b""
    digest = hashlib.blake2b()
    with open(os.open(visit.name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=visit.parent), "rb") as file:
        while data := file.read(1 << 20):
            digest.update(data)
    return digest.digest()


def _entry(visit: Visit, keep: frozenset[str]) -> Entry:
    status = visit.status
    regular = stat.S_ISREG(status.st_mode)
    # A link has no mode of its own on Linux.
    with_mode = "mode" in keep and not stat.S_ISLNK(status.st_mode)
    return Entry(
        depth=visit.depth,
        name=visit.name,
        kind=stat.S_IFMT(status.st_mode),
        size_bytes=status.st_size if regular else 0,
        substance=_substance(visit),
        mode=stat.S_IMODE(status.st_mode) if with_mode else 0,
        owner=(status.st_uid, status.st_gid) if "owner" in keep else (0, 0),
        modified_ns=status.st_mtime_ns if "times" in keep else 0,
    )


def snapshot(root: bytes, keep: frozenset[str] = METADATA) -> list[Entry]:
    """The tree as a list, parents first; `root` itself comes first, under the empty name."""
    status = os.lstat(root)
    parent = os.open(os.path.dirname(root) or b".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        top = _entry(Visit(0, os.path.basename(root), status, parent), keep)
    finally:
        os.close(parent)
    entries = [top._replace(name=b"")]
    if stat.S_ISDIR(status.st_mode):
        entries.extend(_entry(visit, keep) for visit in walk(root))
    return entries


def differences(source: bytes, target: bytes, keep: frozenset[str] = METADATA) -> list[str]:
    """What the walker finds different, at most ten lines; empty for equal trees."""
    found = []
    for left, right in zip_longest(snapshot(source, keep), snapshot(target, keep)):
        if left != right:
            found.append(f"{left} is not {right}")
        if len(found) == 10:
            break
    return found


def rsync_differences(
    source: bytes, target: bytes, *, preserved: bool, more: str = ""
) -> list[str]:
    """What rsync would have to change to make `target` equal to `source`; empty for equal trees.

    With `preserved` it compares mode, owner and times to the nanosecond as well, and with `more`
    what these options of rsync stand for. Skips the test where there is no rsync.
    """
    rsync = shutil.which("rsync")
    if rsync is None:
        pytest.skip("rsync, the judge, is not installed")
    options = ["-naic" + more, "--modify-window=-1"] if preserved else ["-nrlic"]
    finished = subprocess.run(
        [rsync, *options, "--delete", source + b"/", target + b"/"],
        check=False,
        capture_output=True,
        env={**os.environ, "LC_ALL": "C"},
    )
    assert finished.returncode == 0, finished.stderr
    return [repr(line) for line in finished.stdout.splitlines()]


def data_map(path: bytes) -> list[tuple[int, int]]:
    """The extents (start, end) of `path` that hold data, as SEEK_DATA and SEEK_HOLE tell."""
    extents: list[tuple[int, int]] = []
    with open(path, "rb") as stream:
        descriptor, end = stream.fileno(), 0
        while True:
            try:
                start = os.lseek(descriptor, end, os.SEEK_DATA)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                return extents
            end = os.lseek(descriptor, start, os.SEEK_HOLE)
            extents.append((start, end))


def hole_differences(source: bytes, target: bytes) -> list[str]:
    """Files of two flat directories whose holes or allocated blocks differ."""
    found = []
    for name in sorted(os.listdir(source)):
        left, right = os.path.join(source, name), os.path.join(target, name)
        if data_map(left) != data_map(right):
            found.append(f"{name!r}: {data_map(left)} is not {data_map(right)}")
        blocks = os.stat(left).st_blocks, os.stat(right).st_blocks
        if blocks[1] > blocks[0] + BLOCKS_GRACE:
            found.append(f"{name!r}: {blocks[1]} blocks for {blocks[0]}")
    return found
