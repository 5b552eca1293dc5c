"""Results as JSON documents; a regular file appears only when it is complete.

Scripts poll for a report and read it as soon as it appears, so it is written under a temporary name
and renamed. Every document contains a field `schema`, the version of its format.

Paths in a document are strings from `pcircle.core.encoding.show`, which preserves every byte.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterable
from typing import BinaryIO, Protocol

import msgspec

from pcircle.core.encoding import show
from pcircle.core.errors import UsageError
from pcircle.core.writing import standard_output, write_all, write_stream
from pcircle.fs.attributes.acls import give_access, read_list
from pcircle.fs.open_flags import CREATE_FILE
from pcircle.fs.safe_open import ResolvedName, named, opened, refuse_foreign, refuse_pseudo

_NAME_BYTES = 200


class JsonDocument(Protocol):
    """A msgspec Struct with the version of its format."""

    @property
    def schema(self) -> int: ...


def encode(document: JsonDocument) -> bytes:
    """Return a document as indented UTF-8 JSON with a final newline, in the order of its fields."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def check(where: str) -> None:
    """Raise UsageError, before any work, for a file that could not be written at the end.

    `-` always passes. Changes in the meantime are detected by `write`.
    """
    if where == "-":
        return
    if not where:
        raise UsageError("empty file name")
    try:
        with named(os.fsencode(where)) as place:
            problem = _problem(place)
    except FileNotFoundError:
        problem = "its directory does not exist"
    except OSError as error:
        problem = error.strerror or str(error)
    if problem:
        raise UsageError(f"cannot write '{show(os.fsencode(where))}': {problem}")


def write(document: JsonDocument, where: str, stdout: BinaryIO | None) -> None:
    """Write a document to the file `where`, atomically, or to `stdout` if `where` is `-`.

    `stdout` is None if it was closed when the process started. A FIFO, a device or an open
    descriptor (`/dev/stdout`, `>(command)` of a shell) is written to directly. Raises OSError.
    """
    data = encode(document)
    if where == "-":
        write_stream(stdout, data)
    else:
        put(data, where)


def put(data: bytes, where: str, *, durable: bool = False) -> None:
    """Write data to the file `where`, atomically; flush it to disk if `durable`.

    Raises OSError.
    """
    _put((data,), where, durable=durable)


def stream(pieces: Iterable[bytes], where: str, *, private: bool = False) -> None:
    """Write a file from pieces; `-` is standard output. Raises OSError.

    If `private` is set, only the owner can read a new file.
    """
    if where == "-":
        for piece in pieces:
            write_stream(getattr(standard_output(), "buffer", None), piece)
    else:
        _put(pieces, where, durable=False, mode=0o600 if private else 0o666)


def _put(pieces: Iterable[bytes], where: str, *, durable: bool, mode: int = 0o666) -> None:
    with named(os.fsencode(where)) as place:
        if _is_written_in_place(place):
            fd = opened(place, os.O_WRONLY | os.O_APPEND)
            try:
                for piece in pieces:
                    write_all(fd, piece)
            finally:
                os.close(fd)
        else:
            _replace(place, pieces, durable=durable, mode=mode)


def _problem(place: ResolvedName) -> str:
    """Return why the file could not be written, or an empty string. Raises OSError."""
    if not place.name or place.is_directory:
        return "it is a directory"
    if _is_written_in_place(place):
        refuse_foreign(place)
        behind = os.stat(place.name, dir_fd=place.fd)
        if not stat.S_ISFIFO(behind.st_mode):
            os.close(opened(place, os.O_WRONLY | os.O_APPEND))
            return ""
        # A FIFO is not opened here, because its reader would see end of file when it is closed
        # again.
        may_write = os.access(place.name, os.W_OK, dir_fd=place.fd)
        return "" if may_write else os.strerror(errno.EACCES)
    refuse_pseudo(place)
    refuse_foreign(place)
    if not os.access(b".", os.W_OK | os.X_OK, dir_fd=place.fd):
        return "its directory is not writable"
    holder, user = os.fstat(place.fd), os.geteuid()
    sticky = bool(holder.st_mode & stat.S_ISVTX)
    # In a sticky directory only the owners of the file and of the directory may replace the file.
    if sticky and place.status and user not in (0, place.status.st_uid, holder.st_uid):
        return "it belongs to another user and is in a sticky directory"
    return ""


def _is_written_in_place(place: ResolvedName) -> bool:
    """Return whether the place is a FIFO, device or descriptor, so it must not be replaced."""
    return place.descriptor or not (place.status is None or stat.S_ISREG(place.status.st_mode))


def _replace(place: ResolvedName, pieces: Iterable[bytes], *, durable: bool, mode: int) -> None:
    """Write pieces under a temporary name and rename the file; keep an old file's mode and ACL."""
    refuse_pseudo(place)
    refuse_foreign(place)
    # A name of maximum length leaves no room for a suffix.
    temporary = place.name[:_NAME_BYTES] + b".%d.tmp" % os.getpid()
    old = place.status
    fd = os.open(temporary, CREATE_FILE, mode if old is None else 0o600, dir_fd=place.fd)
    try:
        try:
            if old is not None:  # the umask determines the mode of a new file
                access = read_list(b"/proc/self/fd/%d/%b" % (place.fd, place.name), follow=False)
                give_access(fd, stat.S_IMODE(old.st_mode), access)
            for piece in pieces:
                write_all(fd, piece)
            if durable:
                os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(temporary, place.name, src_dir_fd=place.fd, dst_dir_fd=place.fd)
    except BaseException:
        with contextlib.suppress(OSError):  # the first error is reported
            os.unlink(temporary, dir_fd=place.fd)
        raise
