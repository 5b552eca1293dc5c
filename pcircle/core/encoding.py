"""Names as text that is the same bytes again, in every locale.

A name is bytes. Python makes text of it by the locale's encoding, and in Big5, Big5-HKSCS, cp932
and Johab the same text of two names, so that one of them would be taken for the other. In UTF-8
all bytes come back as they were (bytes that are no characters travel as lone surrogates), and so
nothing is done there. In any other locale every byte that is not ASCII travels that way: then
`os.fsencode`, and every call that takes a path, gives the very bytes again, whatever the encoding.

Text that Python itself has decoded (`sys.argv`, entries of a scan by descriptor) is not asked for
in such a locale, but the bytes that it came from. What this is not: a way to show names, which is
`pcircle.core.names`.
"""

from __future__ import annotations

import os
import sys

from pcircle.core.errors import UsageError

IS_EXACT = sys.getfilesystemencoding() == "utf-8"
"""Whether Python's own text of a name is the same bytes again."""


def text_of(name: bytes) -> str:
    """A name as text, of which `os.fsencode` makes the same bytes."""
    return os.fsdecode(name) if IS_EXACT else name.decode("ascii", "surrogateescape")


def to_scan(directory_fd: int) -> int | bytes:
    """What to give `os.scandir` for an open directory; with bytes, the entries' names are bytes."""
    return directory_fd if IS_EXACT else b"/proc/self/fd/%d" % directory_fd


def exact(name: str | bytes) -> str:
    """The text of an entry's name, of a scan of `to_scan`."""
    return name if isinstance(name, str) else text_of(name)


def arguments() -> list[str]:
    """The command line's arguments, each as `text_of` has it. UsageError if they are not known."""
    decoded = sys.argv[1:]
    # Others than the process was started with are given by a program, as to a library.
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
    """The names of extended attributes, as text as of `text_of`. OSError as of `os.listxattr`."""
    names = os.listxattr(source, follow_symlinks=follow)
    if IS_EXACT or all(name.isascii() for name in names):
        return names
    import ctypes  # Python gives these names as its own text only

    libc = ctypes.CDLL(None, use_errno=True)
    call = libc.flistxattr if isinstance(source, int) else libc.listxattr
    if not follow:
        call = libc.llistxattr
    room = ctypes.create_string_buffer(1 << 16)  # the kernel gives no longer list
    file = source if isinstance(source, int) else os.fsencode(source)
    size = call(file, room, ctypes.c_size_t(len(room)))
    if size < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return [text_of(name) for name in room.raw[:size].split(b"\0")[:-1]]
