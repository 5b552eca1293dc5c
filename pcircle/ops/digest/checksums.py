"""Reads and writes checksum lists in the format of sha256sum and related tools.

    DIGEST  NAME            two spaces, or a space and an asterisk SHA256 (NAME) = DIGEST  with
    --tag

Parsing follows GNU coreutils. Leading blanks are ignored, and lines that start with # are comments.
Digest and name may be separated by one space instead of two if this holds for all lines of a list.
Malformed lines are counted.

A name that contains a newline, a carriage return or a backslash is escaped, and its line starts
with a backslash. With `-z`, the tools terminate lines with NUL and escape nothing. Other lists
contain no NUL, so a list that ends with NUL is parsed as a list of NUL-terminated lines.

A digest depends on the order of the data, so one process reads each file from beginning to end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pcircle.ops.digest.digests import Hasher, unknown_algorithm

NAMES = ("xxh128", "md5", "sha1", "sha224", "sha256", "sha384", "sha512", "blake2b")
"""The algorithms for which other command-line tools read and write such lists.

The algorithms of signatures are different: see `pcircle.ops.digest.algorithm_names`.
"""

_LINE = re.compile(rb"[ \t]*(\\?)([0-9a-fA-F]{32,128})[ \t](.+)", re.DOTALL)
_TAG = re.compile(
    rb"[ \t]*(\\?)([A-Za-z0-9]+) ?\((.*)\)[ \t]*=[ \t]*([0-9a-fA-F]{32,128})", re.DOTALL
)
_ESCAPED = re.compile(rb"(?:[^\\\0]|\\[\\nr])*")
_MAX_MALFORMED_SHOWN = 10
_NOT_A_LINE = "not a checksum line"
_ESCAPES = {b"\\": b"\\\\", b"\n": b"\\n", b"\r": b"\\r"}
_UNESCAPES = {code: char for char, code in _ESCAPES.items()}
_TAGS = {
    b"XXH128": "xxh128",
    b"BLAKE2b": "blake2b",
    **{name.upper().encode(): name for name in NAMES if name.startswith(("md5", "sha"))},
}
_ALGORITHMS_BY_LENGTH = {32: ("md5", "xxh128"), 40: ("sha1",), 56: ("sha224",), 64: ("sha256",)} | {
    96: ("sha384",),
    128: ("sha512", "blake2b"),
}


class ChecksumLine(NamedTuple):
    """A parsed line: hexadecimal digest, path, and the algorithm if the line contains it."""

    digest: bytes
    path: bytes
    algorithm: str | None


def new_hasher(name: str) -> Hasher:
    """Return a new hasher for an algorithm in `NAMES`. Raises ValueError for any other name."""
    if name == "xxh128":
        import xxhash

        return xxhash.xxh3_128()
    if name not in NAMES:
        raise unknown_algorithm(name, NAMES)
    import hashlib

    return hashlib.new(name, usedforsecurity=False)


def digest_bytes(name: str) -> int:
    """Return the length of the digests of an algorithm. Raises ValueError for an unknown name."""
    return len(new_hasher(name).digest())


def format_line(digest: bytes, path: bytes) -> bytes:
    """Format a checksum line without its terminator."""
    escaped = re.sub(rb"[\\\n\r]", lambda match: _ESCAPES[match[0]], path)
    return b"%b%b  %b" % (b"\\" if escaped != path else b"", digest, escaped)


def parse_line(line: bytes, *, reverse: bool = False, null: bool = False) -> ChecksumLine:
    """Parse a checksum line. Raises ValueError if it is malformed.

    `reverse` selects the format with one space between digest and name, and `null` the rules for
    NUL-terminated lines, in which nothing is escaped.
    """
    if b"\0" in line:
        raise ValueError("it contains NUL characters; for a NUL-terminated list, add --null")
    if null and line.lstrip(b" \t").startswith(b"\\"):
        raise ValueError(_NOT_A_LINE)
    match = _LINE.fullmatch(line)
    if match is not None:
        escaped, digest, path = match.groups()
        if not reverse:
            if not _has_mark(path):
                raise ValueError(_NOT_A_LINE)
            path = path[1:]
        return ChecksumLine(digest.lower(), _unescape_if_marked(path, escaped), None)
    match = _TAG.fullmatch(line)
    if match is None or match[2] not in _TAGS:
        raise ValueError(_NOT_A_LINE)
    escaped, tag, path, digest = match.groups()
    return ChecksumLine(digest.lower(), _unescape_if_marked(path, escaped), _TAGS[tag])


def _has_mark(marked_name: bytes) -> bool:
    """Return whether a name is preceded by the mode mark, a space or an asterisk."""
    return len(marked_name) > 1 and marked_name[:1] in b" *"


def _unescape_if_marked(path: bytes, escaped: bytes) -> bytes:
    """Return the name, with escapes decoded if `escaped` is not empty.

    Raises ValueError if an escape is invalid.
    """
    if not escaped:
        return path
    if _ESCAPED.fullmatch(path) is None:
        raise ValueError("invalid escape in a file name")
    return re.sub(rb"\\[\\nr]", lambda match: _UNESCAPES[match[0]], path)


class ChecksumList(NamedTuple):
    """A parsed list, with the number of malformed lines and the first error messages."""

    algorithm: str
    lines: list[ChecksumLine]
    malformed_count: int
    first_errors: Sequence[str]


def parse_list(text: bytes, algorithm: str | None, *, null: bool = False) -> ChecksumList:
    """Parse a checksum list as sha256sum does; `algorithm` is the required algorithm, if any.

    Comments and empty lines are skipped, and malformed lines are counted. If no line is valid,
    raises ValueError with the number of the first malformed line.
    """
    found: list[ChecksumLine] = []
    errors: list[str] = []  # messages for the first malformed lines
    malformed_count = 0
    null = null or text.endswith(b"\0")
    terminated_count = text.count(b"\0")
    reverse: bool | None = None  # determined by the first unambiguous line
    for number, line in enumerate(_lines(text, null=null), 1):
        if line.startswith(b"#") or not line:
            continue
        if reverse is None and (match := _LINE.fullmatch(line)) is not None:
            fitting = _ALGORITHMS_BY_LENGTH.get(len(match[2]), ())
            if fitting and algorithm in (None, *fitting):
                reverse = not _has_mark(match[3])
        try:
            if null and number > terminated_count:
                raise ValueError("it does not end with NUL and may be truncated")
            parsed = parse_line(line, reverse=bool(reverse), null=null)
            candidates = _ALGORITHMS_BY_LENGTH.get(len(parsed.digest), ())
            known = algorithm or parsed.algorithm
            if known not in (None, *candidates) or parsed.algorithm not in (None, known):
                raise ValueError(f"not a digest of {known}")
            if not candidates:
                raise ValueError(_NOT_A_LINE)
        except ValueError as error:
            malformed_count += 1
            if len(errors) < _MAX_MALFORMED_SHOWN:
                errors.append(f"line {number}: {error}")
            continue
        if known is None and len(candidates) > 1:
            choice = " or ".join(candidates)
            raise ValueError(f"line {number}: ambiguous digest length; choose with -a: {choice}")
        algorithm = known or candidates[0]
        found.append(parsed)
    if not found or algorithm is None:
        raise ValueError(errors[0] if errors else "no checksum lines found")
    return ChecksumList(algorithm, found, malformed_count, errors)


def _lines(text: bytes, *, null: bool) -> Iterator[bytes]:
    """Yield the lines of a list without their terminators."""
    if null:
        yield from text.removesuffix(b"\0").split(b"\0")
        return
    for line in text.removesuffix(b"\n").split(b"\n"):
        yield line.removesuffix(b"\r")
