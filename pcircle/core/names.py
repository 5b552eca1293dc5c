r"""Show names of arbitrary bytes as text that is safe to print and unambiguous.

A file name consists of bytes that the creator of the file chose. Printed raw, it can move the
cursor, overwrite the line above, or (by bidirectional overrides) look like a different name.
Everything that Unicode does not consider printable is therefore escaped: ``\xNN`` is always one
byte, ``\uNNNN`` and ``\UNNNNNNNN`` are always one character, ``\\`` is a backslash. Two different
names are never shown alike.

Plain ASCII, by far the most common case, takes some 0.2 µs per name; other names are processed
character by character.

This module does not quote for a shell, and does not protect from names that merely look alike.
"""

from __future__ import annotations

__all__ = ["show"]


def show(name: bytes) -> str:
    r"""Return a name or a path as printable, unambiguous text: ``b"a\n"`` is shown as ``a\x0a``."""
    if name.isascii():
        text = name.decode("ascii")
        if text.isprintable() and "\\" not in text:
            return text
    return "".join(map(_show_character, name.decode("utf-8", "surrogateescape")))


def _show_character(character: str) -> str:
    if character == "\\":
        return r"\\"
    if character.isprintable():
        return character
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # how surrogateescape carries a byte that is not UTF-8
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x80:
        return f"\\x{code:02x}"
    # U+0085 is two bytes in UTF-8, so it must not look like the lone byte \x85.
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
