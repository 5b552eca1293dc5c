"""Lists of digests as sha256sum and its kin print and read them: a line for each file.

    DIGEST  NAME            two blanks, or a blank and a star
    SHA256 (NAME) = DIGEST  as with --tag

Lists are read as these tools read them: blanks may come first, a line that begins with # is a
comment, one blank between digest and name is as good as two where all lines have it so, and lines
that are none of these are counted.

With `-z` these tools end lines with NUL and escape nothing. No other list has a NUL, so one that
ends with NUL is read like that.

A name with a newline, a carriage return or a backslash has these escaped, and
its line begins with a backslash. A digest is of the whole file, so it is made
from the first byte to the last by one process.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pcircle.signature.algorithms import Hasher

NAMES = ("xxh128", "md5", "sha1", "sha224", "sha256", "sha384", "sha512", "blake2b")
"""The digests that there is a tool of this kind for."""

_LINE = re.compile(rb"[ \t]*(\\?)([0-9a-fA-F]{32,128})[ \t](.+)", re.DOTALL)
_TAG = re.compile(
    rb"[ \t]*(\\?)([A-Za-z0-9]+) ?\((.*)\)[ \t]*=[ \t]*([0-9a-fA-F]{32,128})", re.DOTALL
)
_ESCAPED = re.compile(rb"(?:[^\\\0]|\\[\\nr])*")
_MAX_NAMED = 10  # lines that make no sense
_NOT_A_LINE = "not a checksum line"
_ESCAPES = {b"\\": b"\\\\", b"\n": b"\\n", b"\r": b"\\r"}
_MEANT = {code: char for char, code in _ESCAPES.items()}
_TAGS = {
    b"XXH128": "xxh128",
    b"BLAKE2b": "blake2b",
    **{name.upper().encode(): name for name in NAMES if name.startswith(("md5", "sha"))},
}
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
        raise ValueError(f"unknown algorithm '{name}'; choose from {', '.join(NAMES)}")
    import hashlib

    return hashlib.new(name, usedforsecurity=False)


def line_of(digest: bytes, path: bytes) -> bytes:
    """A line, without its end."""
    escaped = re.sub(rb"[\\\n\r]", lambda match: _ESCAPES[match[0]], path)
    return b"%b%b  %b" % (b"\\" if escaped != path else b"", digest, escaped)


def read_line(line: bytes, *, reverse: bool = False, null: bool = False) -> Listed:
    """What a line says. ValueError if it is none.

    With `reverse` it is of a list with one blank between digest and name, with `null` of one whose
    lines end with NUL.
    """
    if b"\0" in line:
        raise ValueError("it contains NUL; for a NUL-terminated list add --null")
    if null and line.lstrip(b" \t").startswith(b"\\"):
        raise ValueError(_NOT_A_LINE)
    match = _LINE.fullmatch(line)
    if match is not None:
        escaped, digest, path = match.groups()
        if not reverse:
            if not _has_mark(path):
                raise ValueError(_NOT_A_LINE)
            path = path[1:]
        return Listed(digest.lower(), _unescaped(path, escaped), None)
    match = _TAG.fullmatch(line)
    if match is None or match[2] not in _TAGS:
        raise ValueError(_NOT_A_LINE)
    escaped, tag, path, digest = match.groups()
    return Listed(digest.lower(), _unescaped(path, escaped), _TAGS[tag])


def _has_mark(rest: bytes) -> bool:
    """Whether a blank or a star stands between the blank behind a digest and a name."""
    return len(rest) > 1 and rest[:1] in b" *"


def _unescaped(path: bytes, escaped: bytes) -> bytes:
    """A name that was escaped if its line says so. ValueError for an escape that there is not."""
    if not escaped:
        return path
    if _ESCAPED.fullmatch(path) is None:
        raise ValueError("invalid escape in a file name")
    return re.sub(rb"\\[\\nr]", lambda match: _MEANT[match[0]], path)


class Digests(NamedTuple):
    """A list: its algorithm, its lines, how many others make no sense, and why the first do not."""

    algorithm: str
    lines: list[Listed]
    bad: int
    first_bad: Sequence[str]


def read_list(text: bytes, wanted: str | None, *, null: bool = False) -> Digests:
    """Read a list as sha256sum does; `wanted` is the algorithm that it should be of.

    Comments and empty lines are skipped, other lines that make no sense counted. ValueError,
    with the number of the first of these, if no line makes sense.
    """
    found: list[Listed] = []
    bad: list[str] = []  # the first ones
    bad_count = 0
    null = null or text.endswith(b"\0")
    ended = text.count(b"\0")  # lines, where NUL ends them
    reverse: bool | None = None  # what the first line that shows it is; no list has both
    for number, line in enumerate(_lines(text, null=null), 1):
        if line.startswith(b"#") or not line:
            continue
        if reverse is None and (match := _LINE.fullmatch(line)) is not None:
            fitting = _OF_LENGTH.get(len(match[2]), ())
            if fitting and wanted in (None, *fitting):
                reverse = not _has_mark(match[3])
        try:
            if null and number > ended:
                raise ValueError("it does not end with NUL and may be cut off")
            listed = read_line(line, reverse=bool(reverse), null=null)
            candidates = _OF_LENGTH.get(len(listed.digest), ())
            known = wanted or listed.algorithm
            if known not in (None, *candidates) or listed.algorithm not in (None, known):
                raise ValueError(f"not a digest of {known}")
            if not candidates:
                raise ValueError(_NOT_A_LINE)
        except ValueError as error:
            bad_count += 1
            if len(bad) < _MAX_NAMED:
                bad.append(f"line {number}: {error}")
            continue
        if known is None and len(candidates) > 1:
            choice = " or ".join(candidates)
            raise ValueError(f"line {number}: ambiguous digest length; choose with -a: {choice}")
        wanted = known or candidates[0]
        found.append(listed)
    if not found or wanted is None:
        raise ValueError(bad[0] if bad else "no checksum lines found")
    return Digests(wanted, found, bad_count, bad)


def _lines(text: bytes, *, null: bool) -> Iterator[bytes]:
    """The lines of a list without their ends."""
    if null:
        yield from text.removesuffix(b"\0").split(b"\0")
        return
    for line in text.removesuffix(b"\n").split(b"\n"):
        yield line.removesuffix(b"\r")
