"""A result in a file that is there whole or not at all; and as one JSON document.

The idea: scripts poll for a report and read it the moment it appears, so it is written under a
temporary name beside its own and renamed.  Every document carries ``schema``, the version of its
form; a model without one is a type error, not a surprise for a reader.

Paths in a model are text made by :func:`pcircle.ui.names.show`, which keeps every byte of a name;
raw bytes would come out as base64.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import BinaryIO, Protocol

import msgspec

from pcircle.errors import UsageError
from pcircle.ui.names import show

__all__ = ["Document", "check", "encode", "put", "write"]

_NAME_BYTES = 200
# Names of descriptors that are open already; what is behind them is never to be replaced.
_DESCRIPTOR_NAMES = (b"/dev/fd/", b"/dev/std", b"/proc/")


class Document(Protocol):
    """A msgspec Struct with the version of its form."""

    @property
    def schema(self) -> int: ...


def encode(document: Document) -> bytes:
    """*document* as indented UTF-8 JSON, ended by a newline; keys in the order of its fields."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def check(where: str) -> None:
    """Refuse, before any work, a FILE that could not be written after it: UsageError.

    ``-`` always passes.  What changes in the meantime is found by :func:`write`.
    """
    if where == "-":
        return
    if not where:
        raise UsageError("an empty name is no file's")
    path = _resolved(os.fsencode(where))
    parent = os.path.dirname(path) or b"."
    if os.path.isdir(path):
        problem = "is a directory"
    elif _is_written_in_place(os.fsencode(where)):
        # By the name that was given: what a descriptor's stands for may have none.
        problem = "" if os.access(where, os.W_OK) else "can't be written"
    elif not os.path.isdir(parent):
        problem = "its directory does not exist"
    else:
        problem = _problem_of_new(path, parent)
    if problem:
        raise UsageError(f"{show(os.fsencode(where))}: {problem}")


def write(document: Document, where: str, stdout: BinaryIO | None) -> None:
    """Write *document* to the file *where*, atomically; to *stdout* if that is ``-``.

    *stdout* is None if it was closed when the process began.

    A FIFO, a device or an open descriptor (``/dev/stdout``, a shell's ``>(command)``) is written
    as it is.  OSError if it can't be written: a result is never dropped in silence.
    """
    data = encode(document)
    if where == "-":
        if stdout is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        stdout.write(data)
        stdout.flush()
    else:
        put(data, where)


def put(data: bytes, where: str, *, durable: bool = False) -> None:
    """Have *data* in the file *where*, as `write` has a document; with *durable* on disk as well.

    OSError if it can't be written.
    """
    path = os.fsencode(where)
    if _is_written_in_place(path):
        with open(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC), "wb") as file:
            file.write(data)
    else:
        _replace(_resolved(path), data, durable=durable)


def _problem_of_new(path: bytes, parent: bytes) -> str:
    """Why no file could be put there; nothing if it could."""
    try:
        os.lstat(path)
    except FileNotFoundError:
        pass  # nothing in the way
    except OSError as error:  # too long a name, for one
        return error.strerror or str(error)
    return "" if os.access(parent, os.W_OK | os.X_OK) else "its directory can't be written"


def _resolved(path: bytes) -> bytes:
    """What a link stands for; any other path as it is, which may be in reach from here only."""
    return os.path.realpath(path) if os.path.islink(path) else path


def _is_written_in_place(path: bytes) -> bool:
    if os.path.abspath(path).startswith(_DESCRIPTOR_NAMES):
        return True
    try:
        return not stat.S_ISREG(os.stat(path).st_mode)
    except FileNotFoundError:
        return False
    except OSError:  # a loop of links, a file as a directory: opening it will say which
        return False


def _replace(path: bytes, data: bytes, *, durable: bool) -> None:
    """Put *data* under *path*; an existing file is replaced, its mode kept."""
    parent, name = os.path.split(path)
    # A name that is as long as may be has no room for more.
    temporary = os.path.join(parent, name[:_NAME_BYTES] + b".%d.tmp" % os.getpid())
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with open(fd, "wb") as file:
            with contextlib.suppress(FileNotFoundError):  # there was none: the umask's mode is it
                os.fchmod(fd, stat.S_IMODE(os.stat(path).st_mode))
            file.write(data)
            if durable:
                file.flush()
                os.fsync(fd)
        os.rename(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):  # the first error is the one to tell
            os.unlink(temporary)
        raise
