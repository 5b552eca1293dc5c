"""The judges: independent comparisons of a tree with its copy.

``rsync`` in a dry run with checksums is the first: old, exact, not ours. It fails beyond
``PATH_MAX``, so the second is a walker over descriptors that hashes contents and compares the
requested attributes. Both ignore holes, which have a separate judge. No judge imports code of the
tools.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from itertools import zip_longest
from typing import BinaryIO, NamedTuple

import pytest

from .trees import Visit, walk

CONTENT: frozenset[str] = frozenset()
METADATA = frozenset({"mode", "owner", "times"})

# A file system counts its own maps (extent blocks) as blocks of the file: allow 64 KiB.
BLOCKS_GRACE = 128
_BLOCK_BYTES = 1 << 20


class Entry(NamedTuple):
    """The compared fields of one entry; all others stay 0."""

    depth: int
    name: bytes
    kind: int
    size_bytes: int
    substance: bytes
    mode: int
    owner: tuple[int, int]
    modified_ns: int


def _substance(visit: Visit) -> bytes:
    """Return the digest of a regular file, the target of a link, the number of a device."""
    kind = stat.S_IFMT(visit.status.st_mode)
    if kind == stat.S_IFLNK:
        return os.fsencode(os.readlink(visit.name, dir_fd=visit.parent))
    if kind in (stat.S_IFCHR, stat.S_IFBLK):
        return b"%d" % visit.status.st_rdev
    if kind != stat.S_IFREG:
        return b""
    digest = hashlib.blake2b()
    with _opened(visit) as file:
        while data := file.read(_BLOCK_BYTES):
            digest.update(data)
    return digest.digest()


def _opened(visit: Visit) -> BinaryIO:
    fd = os.open(visit.name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=visit.parent)
    return open(fd, "rb", buffering=0)


def _is_same_content(left: Visit, right: Visit) -> bool:
    """Return whether two regular files of equal size have the same bytes."""
    with _opened(left) as one, _opened(right) as other:
        while data := one.read(_BLOCK_BYTES):
            if data != other.read(_BLOCK_BYTES):
                return False
        return not other.read(1)


def _is_regular(visit: Visit) -> bool:
    return stat.S_ISREG(visit.status.st_mode)


def _entry(visit: Visit, keep: frozenset[str], *, whole: bool = True) -> Entry:
    """Return the entry; unless `whole`, without the content of a regular file."""
    status = visit.status
    regular = stat.S_ISREG(status.st_mode)
    # A link has no mode of its own on Linux.
    with_mode = "mode" in keep and not stat.S_ISLNK(status.st_mode)
    return Entry(
        depth=visit.depth,
        name=visit.name,
        kind=stat.S_IFMT(status.st_mode),
        size_bytes=status.st_size if regular else 0,
        substance=_substance(visit) if whole or not regular else b"",
        mode=stat.S_IMODE(status.st_mode) if with_mode else 0,
        owner=(status.st_uid, status.st_gid) if "owner" in keep else (0, 0),
        modified_ns=status.st_mtime_ns if "times" in keep else 0,
    )


def snapshot(root: bytes, keep: frozenset[str] = METADATA) -> list[Entry]:
    """Return the tree as a list, parents first; `root` is first, with an empty name."""
    top, *below = (_entry(visit, keep) for visit in _visits(root))
    return [top._replace(name=b""), *below]


def _visits(root: bytes) -> Iterator[Visit]:
    """Yield `root` and everything below it."""
    status = os.lstat(root)
    parent = os.open(os.path.dirname(root) or b".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield Visit(0, os.path.basename(root), status, parent)
    finally:
        os.close(parent)
    if stat.S_ISDIR(status.st_mode):
        yield from walk(root)


def differences(source: bytes, target: bytes, keep: frozenset[str] = METADATA) -> list[str]:
    """Return at most ten differences found by the walker; empty for equal trees.

    It walks both trees in parallel and compares the bytes of files, which is several times faster
    than hashing them.
    """
    found = []
    for number, visits in enumerate(zip_longest(_visits(source), _visits(target))):
        left, right = (visit and _entry(visit, keep, whole=False) for visit in visits)
        if left and right and not number:
            left, right = left._replace(name=b""), right._replace(name=b"")
        if left != right:
            found.append(f"{left} is not {right}")
        elif all(map(_is_regular, visits)) and not _is_same_content(*visits):
            found.append(f"{left} has another content")
        if len(found) == 10:
            break
    return found


def rsync_differences(
    source: bytes, target: bytes, *, preserved: bool, more: str = ""
) -> list[str]:
    """Return the changes by which rsync would make `target` equal to `source`.

    With `preserved` it also compares mode, owner and times to the nanosecond, and with `more` the
    attributes of these options of rsync. Skips the test where rsync is missing.
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
    """Return the extents (start, end) of `path` that hold data, from SEEK_DATA and SEEK_HOLE."""
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
    """Return files of two flat directories whose holes or allocated blocks differ."""
    found = []
    for name in sorted(os.listdir(source)):
        left, right = os.path.join(source, name), os.path.join(target, name)
        if data_map(left) != data_map(right):
            found.append(f"{name!r}: {data_map(left)} is not {data_map(right)}")
        blocks = os.stat(left).st_blocks, os.stat(right).st_blocks
        if blocks[1] > blocks[0] + BLOCKS_GRACE:
            found.append(f"{name!r}: {blocks[1]} blocks for {blocks[0]}")
    return found
