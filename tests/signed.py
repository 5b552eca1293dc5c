"""A plain reference of the dataset signature, from docs/signature.rst: one thread, no package."""

from __future__ import annotations

import hashlib
import os
import stat
import struct
from typing import Any

import xxhash

ALGORITHMS: dict[str, Any] = {"xxh128": xxhash.xxh3_128, "sha256": hashlib.sha256}
_BLOCK = 4194304


def digest_of(path: bytes, algorithm: str = "xxh128") -> tuple[bytes, bytes]:
    """Return the kind and the digest of a path."""

    def digest(data: bytes) -> bytes:
        found: bytes = ALGORITHMS[algorithm](data).digest()
        return found

    status = os.lstat(path)
    mode = status.st_mode
    if stat.S_ISREG(mode):
        with open(path, "rb") as stream:
            blocks = [digest(block) for block in iter(lambda: stream.read(_BLOCK), b"")]
        size = struct.pack(">Q", status.st_size)
        return b"f", digest(b"file\0" + size + b"".join(blocks))
    if stat.S_ISLNK(mode):
        return b"l", digest(b"link\0" + os.readlink(path))
    if stat.S_ISDIR(mode):
        names = sorted(os.listdir(path))
        stream_ = b"dir\0"
        for name in names:
            kind, below = digest_of(os.path.join(path, name), algorithm)
            stream_ += struct.pack(">H", len(name)) + name + kind + below
        return b"d", digest(stream_ + struct.pack(">Q", len(names)))
    kinds = {stat.S_IFIFO: b"p", stat.S_IFSOCK: b"s", stat.S_IFCHR: b"c", stat.S_IFBLK: b"b"}
    kind = kinds[stat.S_IFMT(mode)]
    number = status.st_rdev if kind in b"cb" else 0
    return kind, digest(b"node\0" + kind + struct.pack(">Q", number))


def signature_of(path: bytes, algorithm: str = "xxh128") -> str:
    """Return the text of a signature."""
    return f"pcsig1:{algorithm}:{digest_of(path, algorithm)[1].hex()}"
