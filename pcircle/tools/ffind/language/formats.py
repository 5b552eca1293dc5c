"""Formats of -printf: plain text, and directives as in C's printf.

The output is that of GNU find, including irregularities: an unknown directive is printed unchanged,
`%5%` prints `%5`, and a flag `0` pads only numbers.
"""

from __future__ import annotations

import re

import msgspec

from pcircle.tools.ffind.plan import ExpressionNode, walk

ONE, TWO = b"abcdDfFgGhHiklmMnpPsStuUyYZ", b"ABCT"
_FLAGS = re.compile(rb"[-+ #]*[0-9]*(?:\.[0-9]*)?")
_ESCAPES = dict(zip(b"abfnrtv\\", b"\a\b\f\n\r\t\v\\", strict=True))
_MAX_WIDTH = 1 << 16
_LINE = b"\n"
_WRITING = {"print": _LINE, "print0": b"\0", "printf": _LINE, "ls": _LINE}
_WRITING |= {"json": _LINE, "csv": _LINE}


class FormatPiece(msgspec.Struct, frozen=True):
    """Plain text, or a directive if there is a `letter`; `kind` is the second letter of a time."""

    text: bytes = b""
    letter: str = ""
    kind: str = ""
    flags: str = ""


def parse_format(text: bytes, warnings: list[str]) -> tuple[list[FormatPiece], bool]:
    r"""Return the pieces of a format, and whether `\c` ends it; raise ValueError if invalid."""
    pieces: list[FormatPiece] = []
    plain = bytearray()
    at = 0

    def end_plain() -> None:
        if plain:
            pieces.append(FormatPiece(bytes(plain)))
            plain.clear()

    while at < len(text):
        byte = text[at]
        if byte == ord("\\"):
            if text[at + 1 : at + 2] == b"c":
                end_plain()
                return pieces, True
            found, at = _escape(text, at + 1, warnings)
            plain += found
        elif byte == ord("%"):
            piece, at = _directive(text, at, warnings)
            if piece.letter:
                end_plain()
                pieces.append(piece)
            else:
                plain += piece.text
        else:
            plain.append(byte)
            at += 1
    end_plain()
    return pieces, False


def end_of(text: bytes) -> bytes | None:
    """Return the terminator of a format, a newline or NUL, or None if it has none."""
    pieces, _ = parse_format(text, [])
    last = pieces[-1] if pieces else FormatPiece()
    end = last.text[-1:]
    is_one = end in (b"\n", b"\0") and sum(piece.text.count(end) for piece in pieces) == 1
    return end if is_one and not last.letter else None


def ends_of(expression: ExpressionNode) -> dict[int, bytes] | None:
    """Return the record terminator of each output stream, or None if any record lacks one."""
    ends: dict[int, bytes] = {}
    for node in walk(expression):
        if node.name in _WRITING:
            end = end_of(bytes(node.args[1])) if node.name == "printf" else _WRITING[node.name]
            if end is None or ends.setdefault(node.args[0], end) != end:
                return None
    return ends


def _escape(text: bytes, at: int, warnings: list[str]) -> tuple[bytes, int]:
    """Return the bytes of an escape, and its end; `at` is after the backslash."""
    octal = re.compile(rb"[0-7]{1,3}").match(text, at)
    if octal:
        return bytes([int(octal[0], 8) & 0xFF]), octal.end()
    if at >= len(text):
        warnings.append("-printf: the format ends with an incomplete backslash escape")
        return b"\\", at
    if text[at] in _ESCAPES:
        return bytes([_ESCAPES[text[at]]]), at + 1
    warnings.append(f"-printf: unknown escape \\{chr(text[at])!a}")
    return b"\\" + text[at : at + 1], at + 1


def _directive(text: bytes, at: int, warnings: list[str]) -> tuple[FormatPiece, int]:
    """Return a directive and its end; an invalid directive is plain text."""
    if at + 1 >= len(text):
        raise ValueError("-printf: the format ends with an incomplete '%' directive")
    if text[at + 1] == ord("%"):
        return FormatPiece(b"%"), at + 2
    found = _FLAGS.match(text, at + 1)
    end = found.end() if found else at + 1
    flags = text[at + 1 : end].decode()
    letter = text[end : end + 1]
    if letter in (b"", b"{", b"[", b"("):
        raise ValueError(f"-printf: unknown directive '{text[at : end + 1]!r:.20}'")
    if any(int(number) > _MAX_WIDTH for number in re.findall("[0-9]+", flags)):
        raise ValueError("-printf: a width is too large")
    if letter == b"%":
        return FormatPiece(text[at:end]), end + 1
    if letter in ONE:
        return FormatPiece(b"", letter.decode(), "", flags), end + 1
    if letter in TWO and end + 1 < len(text):
        kind = text[end + 1 : end + 2]
        if not kind.isascii() or not kind.decode().isprintable():
            raise ValueError("-printf: unknown time format")
        return FormatPiece(b"", letter.decode(), kind.decode(), flags), end + 2
    warnings.append(f"-printf: unknown directive %{chr(letter[0])!a}")
    return FormatPiece(text[at : end + 1]), end + 1
