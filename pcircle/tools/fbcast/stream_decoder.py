"""Decoders of the stream on a node: one writes files, the other compares a list of files.

Bytes arrive in pieces of any length. A file receives its attributes when its content is complete,
and a directory when all its entries are complete. Until then only the owner can open them.
"""

from __future__ import annotations

import os
import stat
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import NamedTuple

from pcircle.core.encoding import show
from pcircle.core.writing import write_at
from pcircle.fs.attributes.metadata import PreservedAttributes, settle_file, settle_link
from pcircle.fs.attributes.xattrs import ExtendedAttributes
from pcircle.fs.directories import close_open, closing_fd, open_below
from pcircle.fs.open_flags import CREATE_FILE_READABLE, OPEN_DIRECTORY, OPEN_ENTRY_PATH, OPEN_FILE
from pcircle.tools.fbcast import messages
from pcircle.tools.fbcast.signatures import Beat, digest_of

KEEP = PreservedAttributes(mode=True, ownership=True, timestamps=True, acl=True)
_COPY_BYTES = 1 << 30


class InvalidStreamError(OSError):
    """The stream is malformed, or refers to content that this node no longer has."""


class _Entered(NamedTuple):
    fd: int
    name: bytes
    about: messages.About | None


class StreamDecoder(ABC):
    """Decodes a stream, and calls `frame` for each frame and `content` for file content.

    `name` is the name of the latest entry in the stream.
    """

    def __init__(self) -> None:
        self.is_complete: bool = False
        self.name = b""
        self._partial = b""
        self._missing = 0  # bytes of the current content that have not arrived

    def write(self, data: bytes) -> None:
        """Decode the next bytes."""
        view = memoryview(data)
        while view:
            if self._missing:
                count = min(self._missing, len(view))
                self.content(view[:count])
                self._missing -= count
                view = view[count:]
                continue
            view = self._head(view)

    def _head(self, view: memoryview) -> memoryview:
        """Decode a frame, or store its beginning, and return the remaining bytes."""
        have = len(self._partial)
        if have < messages.LENGTH.size:
            take = messages.LENGTH.size - have
            self._partial += view[:take]
            view = view[take:]
            if len(self._partial) < messages.LENGTH.size:
                return view
        (length,) = messages.LENGTH.unpack_from(self._partial)
        take = messages.LENGTH.size + length - len(self._partial)
        self._partial += view[:take]
        if len(self._partial) == messages.LENGTH.size + length:
            frame = messages.decode(self._partial[messages.LENGTH.size :])
            self._partial = b""
            if isinstance(frame, messages.ContentHeader):
                self._missing = frame.length
            self.is_complete = isinstance(frame, messages.Close)
            self.frame(frame)
        return view[take:]

    @abstractmethod
    def frame(self, frame: messages.Frame) -> None:
        """Handle a frame."""

    @property
    def path(self) -> bytes:
        """Return the path of the latest entry, relative to the target."""
        return self.name

    @abstractmethod
    def content(self, data: memoryview) -> None:
        """Handle content of the open file."""

    def complete(self) -> bytes:
        """Return the answer to the stream; raise InvalidStreamError if it ended early."""
        if not self.is_complete or self._partial or self._missing:
            raise InvalidStreamError("the stream ended early")
        return b""

    def close(self) -> None:  # noqa: B027 (a comparer opens nothing)
        """Close everything that is open."""


class TreeWriter(StreamDecoder):
    """Writes entries into an open directory.

    `old_fd` is the directory that contains the existing versions of files.
    """

    def __init__(self, root_fd: int, old_fd: int, beat: Beat) -> None:
        super().__init__()
        self._beat = beat
        self._old_fd = old_fd
        self._stack = [_Entered(os.dup(root_fd), b"", None)]
        self._file: messages.File | None = None
        self._fd = -1
        self._at = 0
        self._linked: dict[int, bytes] = {}  # paths of hard-linked files, by number

    def frame(self, frame: messages.Frame) -> None:
        top = self._stack[-1].fd
        if isinstance(frame, messages.File | messages.Enter | messages.Link | messages.Hard):
            self.name: bytes = frame.name
        if isinstance(frame, messages.File):
            self._begin(frame)
        elif isinstance(frame, messages.ContentHeader):
            self._at = frame.offset
        elif isinstance(frame, messages.FileEnd):
            self._end()
        elif isinstance(frame, messages.Enter):
            os.mkdir(_component(frame.name), 0o700, dir_fd=top)
            fd = os.open(frame.name, OPEN_DIRECTORY, dir_fd=top)
            self._stack.append(_Entered(fd, frame.name, frame.about))
        elif isinstance(frame, messages.Leave):
            self._leave()
        elif isinstance(frame, messages.Link):
            os.symlink(frame.text, _component(frame.name), dir_fd=top)
            self._settle_link(frame, top)
        elif isinstance(frame, messages.Hard):
            self._link(frame)

    def content(self, data: memoryview) -> None:
        write_at(self._fd, data, self._at)
        self._at += len(data)

    def complete(self) -> bytes:
        answer = super().complete()
        if len(self._stack) != 1 or self._fd >= 0:
            raise InvalidStreamError("the stream ended early")
        return answer

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            close_open(fd)  # the file is incomplete
        while self._stack:
            os.close(self._stack.pop().fd)

    # ---- entries ---------------------------------------------------------------

    @property
    def path(self) -> bytes:
        return self._path(self.name)

    def _path(self, name: bytes) -> bytes:
        return b"/".join([*(directory.name for directory in self._stack[1:]), name])

    def _begin(self, frame: messages.File) -> None:
        self._file = frame
        top = self._stack[-1].fd
        if frame.linked:
            self._linked[frame.number] = self._path(frame.name)
        self._fd = os.open(_component(frame.name), CREATE_FILE_READABLE, 0o600, dir_fd=top)
        if frame.known_digest:
            self._copy_old(frame)
        elif frame.size:
            os.ftruncate(self._fd, frame.size)

    def _copy_old(self, frame: messages.File) -> None:
        """Copy the content that this node already has, and verify its digest.

        The old file remains unchanged until the new file is shown. Verification is required because
        the old file may have changed since the comparison. The numbers of files may also differ if
        the source has changed.
        """
        path = self._path(frame.name)
        at = 0
        with suppress(FileNotFoundError), closing_fd(_open_below(self._old_fd, path)) as old:
            while at < frame.size and (
                count := os.copy_file_range(old, self._fd, min(_COPY_BYTES, frame.size - at))
            ):
                at += count
                self._beat()
        if at < frame.size or digest_of(self._fd, frame.size, self._beat) != frame.known_digest:
            why = "it was changed, here or at the source, since it was compared"
            raise InvalidStreamError(f"{show(path)}: {why}")

    def _end(self) -> None:
        file, fd = self._file, self._fd
        if file is None or fd < 0:
            raise InvalidStreamError("content without a file")
        held = ExtendedAttributes([*file.about.lists], alone=True)
        settle_file(fd, file.about.status(), KEEP, held)
        self._file, self._fd = None, -1
        os.close(fd)

    def _leave(self) -> None:
        entered = self._stack.pop()
        if entered.about is None:
            raise InvalidStreamError("more directories are left than were entered")
        with closing_fd(entered.fd):
            held = ExtendedAttributes([*entered.about.lists], alone=True)
            settle_file(entered.fd, entered.about.status(), KEEP, held)

    def _link(self, frame: messages.Hard) -> None:
        path = self._linked.get(frame.first, b"")
        holder, _, name = path.rpartition(b"/")
        with closing_fd(open_below(self._stack[0].fd, holder)) as fd:
            top = self._stack[-1].fd
            os.link(name, _component(frame.name), src_dir_fd=fd, dst_dir_fd=top)

    def _settle_link(self, frame: messages.Link, top: int) -> None:
        with closing_fd(os.open(frame.name, OPEN_ENTRY_PATH, dir_fd=top)) as fd:
            # The kernel can set the times of a link only by path.
            settle_link(b"/proc/self/fd/%d" % fd, frame.about.status(), KEEP)


class FileListComparer(StreamDecoder):
    """Compares the list of the source's files with the files in a directory.

    The answer is a bit map, indexed by the number of the file. A bit is set if this node needs the
    content of the file.
    """

    def __init__(self, old_fd: int, beat: Beat) -> None:
        super().__init__()
        self._old_fd = old_fd
        self._beat = beat
        self._bits = bytearray()
        self._number = 0

    def frame(self, frame: messages.Frame) -> None:
        if not isinstance(frame, messages.ListedFile):
            return
        if self._number % 8 == 0:
            self._bits.append(0)
        if not self._is_same(frame):
            self._bits[-1] |= 1 << self._number % 8
        self._number += 1

    def content(self, data: memoryview) -> None:
        """Ignore content, because a list contains none."""

    def complete(self) -> bytes:
        super().complete()
        return bytes(self._bits)

    def _is_same(self, listed: messages.ListedFile) -> bool:
        try:
            with closing_fd(_open_below(self._old_fd, listed.path)) as fd:
                status = os.fstat(fd)
                if not stat.S_ISREG(status.st_mode) or status.st_size != listed.size:
                    return False
                return digest_of(fd, status.st_size, self._beat) == listed.digest
        except OSError:
            return False


def _component(name: bytes) -> bytes:
    """Return the name if it is a single path component; otherwise raise InvalidStreamError."""
    if not name or name in (b".", b"..") or b"/" in name:
        raise InvalidStreamError("the stream contains an invalid name")
    return name


def _open_below(fd: int, path: bytes) -> int:
    """Open a file below an open directory for reading, without following links."""
    holder, _, name = path.rpartition(b"/")
    with closing_fd(open_below(fd, holder)) as inner:
        return os.open(name, OPEN_FILE, dir_fd=inner)
