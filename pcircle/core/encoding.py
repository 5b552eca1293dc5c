r"""Decode file names losslessly in every locale, and show them safely and unambiguously.

A name consists of bytes, which Python decodes with the encoding of the locale. Big5, Big5-HKSCS,
cp932 and Johab decode different names to the same text, so that two files could be confused. In
UTF-8 locales Python's decoding is reversible, because bytes that are not characters become lone
surrogates. In any other locale this module decodes every byte that is not ASCII to a lone
surrogate. From these, `os.fsencode` and every call that takes a path restore the original bytes in
any encoding.

In such a locale, text that Python itself has decoded (`sys.argv`, entries of a scan by descriptor)
is replaced by a decoding of the original bytes.

`show` displays a name. The creator of a file chooses its bytes, so a name that is printed raw can
move the cursor, overwrite the line above, or (by bidirectional overrides) look like a different
name. Everything that Unicode does not consider printable is therefore escaped: ``\xNN`` is always
one byte, ``\uNNNN`` and ``\UNNNNNNNN`` are always one character, and ``\\`` is a backslash.
Different names are always shown as different text.

Plain ASCII, by far the most common case, takes some 0.2 µs per name; other names are processed
character by character.

This module does not quote for a shell, and does not protect against names that merely look alike.
"""

from __future__ import annotations

import os
import sys

from pcircle.core.errors import UsageError

IS_EXACT = sys.getfilesystemencoding() == "utf-8"
"""True if Python's own decoding of names can be reversed."""

COMMENT = (b"#", b";")
"""The first bytes of comment lines in a list whose paths are terminated by newlines."""


def text_of(name: bytes) -> str:
    """Decode a name to text that `os.fsencode` encodes to the same bytes."""
    return os.fsdecode(name) if IS_EXACT else name.decode("ascii", "surrogateescape")


def to_scan(directory_fd: int) -> int | bytes:
    """Return the argument of `os.scandir` for a directory. If it is bytes, so are the names."""
    return directory_fd if IS_EXACT else b"/proc/self/fd/%d" % directory_fd


def exact(name: str | bytes) -> str:
    """Return the text of a name that `os.scandir` has returned for `to_scan`."""
    return name if isinstance(name, str) else text_of(name)


def arguments() -> list[str]:
    """Return the arguments of the command line, decoded like `text_of`.

    Raises UsageError if the original bytes cannot be read.
    """
    decoded = sys.argv[1:]
    # Arguments other than those of the process were set by a program, so they are returned
    # unchanged.
    if IS_EXACT or not decoded or decoded != sys.orig_argv[-len(decoded) :]:
        return decoded
    if all(word.isascii() for word in decoded):
        return decoded
    try:
        with open("/proc/self/cmdline", "rb") as stream:
            words = stream.read().split(b"\0")[:-1]
    except OSError as error:
        words = []
        reason = f"/proc/self/cmdline: {error.strerror}"
    else:
        reason = "/proc/self/cmdline is not the command line"
    if len(words) != len(sys.orig_argv):
        encoding = sys.getfilesystemencoding()
        raise UsageError(
            f"cannot read the arguments as bytes, which the encoding {encoding} of this locale "
            f"requires: {reason}; set LC_ALL=C.UTF-8"
        )
    return [text_of(word) for word in words[-len(decoded) :]]


def attributes(source: int | str | bytes, *, follow: bool = True) -> list[str]:
    """Return the names of extended attributes, decoded like `text_of`. Raises OSError."""
    names = os.listxattr(source, follow_symlinks=follow)
    if IS_EXACT or all(name.isascii() for name in names):
        return names
    import ctypes  # Python returns these names only in its own decoding

    libc = ctypes.CDLL(None, use_errno=True)
    call = libc.flistxattr if isinstance(source, int) else libc.listxattr
    if not follow:
        call = libc.llistxattr
    room = ctypes.create_string_buffer(1 << 16)  # the kernel's limit on the size of the list
    file = source if isinstance(source, int) else os.fsencode(source)
    size = call(file, room, ctypes.c_size_t(len(room)))
    if size < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return [text_of(name) for name in room.raw[:size].split(b"\0")[:-1]]


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
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is not UTF-8, as decoded by surrogateescape
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x80:
        return f"\\x{code:02x}"
    # U+0085 is two bytes in UTF-8, so it must not look like the lone byte \x85.
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
