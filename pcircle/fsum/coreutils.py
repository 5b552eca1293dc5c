"""Lists of digests as sha256sum and its kin print and read them: a line for each file.

    DIGEST  NAME            two blanks, or a blank and a star
    SHA256 (NAME) = DIGEST  as with --tag

A name with a newline, a carriage return or a backslash has these escaped, and
its line begins with a backslash. A digest is of the whole file, so it is made
from the first byte to the last by one process.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from pcircle.signature.algorithms import Hasher

NAMES = ("xxh128", "md5", "sha1", "sha224", "sha256", "sha384", "sha512", "blake2b")
"""The digests that there is a tool of this kind for."""

_LINE = re.compile(rb"(\\?)([0-9a-fA-F]{32,128}) [ *](.+)", re.DOTALL)
_TAG = re.compile(rb"(\\?)([A-Za-z0-9-]+) \((.+)\) = ([0-9a-fA-F]{32,128})", re.DOTALL)
_ESCAPES = {b"\\": b"\\\\", b"\n": b"\\n", b"\r": b"\\r"}
_MEANT = {code: char for char, code in _ESCAPES.items()}
_TAGS = {"XXH128": "xxh128", "BLAKE2b": "blake2b"}
_OF_LENGTH = {32: ("md5", "xxh128"), 40: ("sha1",), 56: ("sha224",), 64: ("sha256",)} | {
    96: ("sha384",),
    128: ("sha512", "blake2b"),
}


class Listed(NamedTuple):
    """A line: the digest in hexadecimal, the file's path, and the algorithm if it is named."""

    digest: bytes
    path: bytes
    algorithm: str | None


def new_hasher(name: str) -> Hasher:
    """A digest of one of `NAMES`, under way. ValueError if it is none."""
    if name == "xxh128":
        import xxhash

        return xxhash.xxh3_128()
    if name not in NAMES:
        raise ValueError(f"'{name}' is none of {', '.join(NAMES)}")
    import hashlib

    return hashlib.new(name, usedforsecurity=False)


def line_of(digest: bytes, path: bytes) -> bytes:
    """A line, without its end."""
    escaped = re.sub(rb"[\\\n\r]", lambda match: _ESCAPES[match[0]], path)
    return b"%b%b  %b" % (b"\\" if escaped != path else b"", digest, escaped)


def read_line(line: bytes) -> Listed:
    """What a line says. ValueError if it says nothing."""
    name = None
    match = _LINE.fullmatch(line)
    if match is not None:
        escaped, digest, path = match.groups()
    else:
        match = _TAG.fullmatch(line)
        if match is None:
            raise ValueError("it is not the line of a digest")
        escaped, tag, path, digest = match.groups()
        name = _TAGS.get(tag.decode(), tag.decode().lower().replace("-", ""))
    if escaped:
        path = re.sub(rb"\\[\\nr]", lambda match: _MEANT[match[0]], path)
    return Listed(digest.lower(), path, name)


def read_list(text: Iterator[bytes], wanted: str | None) -> tuple[str, list[Listed]]:
    """The lines of a list, and their algorithm; `wanted` is which it should be.

    ValueError, with the number of the line, if one makes no sense.
    """
    found = []
    for number, line in enumerate(text, 1):
        line = line.rstrip(b"\n").removesuffix(b"\r")
        if not line:
            continue
        try:
            listed = read_line(line)
            candidates = _OF_LENGTH.get(len(listed.digest), ())
            wanted = wanted or listed.algorithm
            if wanted is None and len(candidates) > 1:
                raise ValueError(f"say with -a which it is: {' or '.join(candidates)}")
            wanted = wanted or next(iter(candidates), None)
            if wanted not in candidates or listed.algorithm not in (None, wanted):
                raise ValueError(f"it is not a digest of {wanted}")
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
        found.append(listed)
    if wanted is None:
        raise ValueError("line 1: there is none")
    return wanted, found
