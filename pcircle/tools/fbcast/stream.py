"""The stream of a broadcast: the reader creates it from files and trees, and nodes decode it.

Only the reader, the first rank, uses `SourceReader`. Each stream reads every entry once, in
directory order. Every node must receive the complete tree. So a file that changes while it is being
read, or an entry that cannot be read, ends the broadcast.

A node either writes files (`TreeWriter`) or compares a list of files (`FileListComparer`). Bytes
arrive in pieces of any length. A file receives its attributes when its content is complete, and a
directory when all its entries are complete. Until then only the owner can open them.
"""

from __future__ import annotations

import os
import resource
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from pcircle.core.buffers import aligned
from pcircle.core.encoding import show
from pcircle.core.writing import write_all, write_at
from pcircle.fs.attributes.acls import ACCESS, DEFAULT
from pcircle.fs.attributes.metadata import PreservedAttributes, settle_file, settle_link
from pcircle.fs.attributes.xattrs import ExtendedAttributes, read_attributes
from pcircle.fs.data import data_ranges, may_have_holes
from pcircle.fs.directories import close_open, closing_fd, open_below
from pcircle.fs.file_system import size_is_nominal
from pcircle.fs.open_flags import (
    CREATE_FILE_READABLE,
    OPEN_DIRECTORY,
    OPEN_DIRECTORY_FOLLOW,
    OPEN_ENTRY_PATH,
    OPEN_FILE,
)
from pcircle.tools.fbcast import forwarder, messages
from pcircle.tools.fbcast.signatures import (
    DIGEST_BYTES,
    Beat,
    digest_of,
    open_source,
    signatures_of,
)

_NOMINAL_BYTES = 128 << 10  # files of /proc/sys must be read in one call
_HEAD_BYTES = 64  # the maximum size of a `ContentHeader` frame
_MIN_PIECE_BYTES = 4 << 10  # a piece of content begins only in a chunk with this much room
KEEP = PreservedAttributes(mode=True, ownership=True, timestamps=True, acl=True)
_COPY_BYTES = 1 << 30


class Operand(NamedTuple):
    """One SRC: its path, which may be a symbolic link to follow, and its name on the nodes."""

    path: bytes
    name: bytes


class _Content(NamedTuple):
    """A range of an open file whose content must be read."""

    fd: int
    offset: int
    length: int
    path: bytes


class BroadcastTotals:
    """The totals of a broadcast; `skipped` counts special files by kind."""

    def __init__(self) -> None:
        self.entries = 0
        self.bytes = 0
        self.skipped: dict[str, int] = {}


class SourceReader:
    """The source of a broadcast; it implements `pcircle.tools.fbcast.conductor.StreamSource`."""

    def __init__(self, operands: Sequence[Operand]) -> None:
        self.totals: BroadcastTotals = BroadcastTotals()
        self._operands = operands
        self._frames: Iterator[messages.Frame | _Content] = iter(())
        self._pending = b""
        self._content: _Content | None = None
        self._chunk_bytes = forwarder.MAX_CHUNK_BYTES
        self._buffer = aligned(forwarder.MAX_CHUNK_BYTES)
        self._needed: bytes | None = None
        self._digests = bytearray()  # of the listed files, in the order of their numbers
        self._files_seen = 0
        allow_descriptors()

    def begin(self, nodes: int, files: bool, needed: bytes | None) -> messages.Way:
        enough = forwarder.crossing_bytes(nodes)
        size_bytes = self._size_up_to(enough)
        way, self._chunk_bytes = forwarder.choose(size_bytes, nodes)
        if size_bytes > enough:  # the exact size is unknown
            way, self._chunk_bytes = "chain", forwarder.MAX_CHUNK_BYTES
        self._needed = needed
        self._frames = iter(self._walk() if files else self._list())
        self._pending, self._content = b"", None
        return way

    def close(self) -> None:
        """Close all files and directories that are open."""
        close = getattr(self._frames, "close", None)
        if close is not None:
            close()

    def sign(self) -> bytes:
        return signatures_of([operand.path for operand in self._operands])

    def read(self) -> tuple[bytes, bool]:
        view = self._buffer[: self._chunk_bytes]
        at = 0
        while at < len(view):
            if self._pending:
                count = min(len(self._pending), len(view) - at)
                view[at : at + count] = self._pending[:count]
                self._pending = self._pending[count:]
                at += count
            elif self._content is not None:
                if at and len(view) - at < _HEAD_BYTES + _MIN_PIECE_BYTES:
                    break
                at = self._read_content(self._content, view, at)
            else:
                frame = next(self._frames, None)
                if frame is None:
                    return bytes(view[:at]), True
                if isinstance(frame, _Content):
                    self._content = frame
                else:
                    self._pending = messages.packed(frame)
        return bytes(view[:at]), False

    def _read_content(self, content: _Content, view: memoryview, at: int) -> int:
        """Fill the chunk from a file, and return the end of the filled part."""
        length = min(content.length, len(view) - at - _HEAD_BYTES)
        head = messages.packed(messages.ContentHeader(content.offset, length))
        view[at : at + len(head)] = head
        at += len(head)
        end = at + length
        offset = content.offset
        while at < end:
            count = os.preadv(content.fd, [view[at:end]], offset)
            if not count:
                raise OSError(f"{show(content.path)}: it changed while it was read")
            at += count
            offset += count
        left = content.length - length
        self._content = content._replace(offset=offset, length=left) if left else None
        return at

    # ---- walking ---------------------------------------------------------------

    def _walk(self) -> Iterator[messages.Frame | _Content]:
        self.totals = BroadcastTotals()
        self._files_seen = 0
        links: dict[tuple[int, int], int] = {}
        for path, name in self._operands:
            try:
                status = os.stat(path)
                if stat.S_ISDIR(status.st_mode):
                    yield from self._tree(path, name, links)
                else:
                    yield from self._file(None, path, name, path, links)
            except OSError as error:
                raise _named(path, error) from error
        yield messages.Close(self.totals.entries)

    def _tree(
        self, path: bytes, name: bytes, links: dict[tuple[int, int], int]
    ) -> Iterator[messages.Frame | _Content]:
        """Yield a directory and everything below it; avoid recursion because trees may be deep."""
        fd = os.open(path, OPEN_DIRECTORY_FOLLOW)
        stack: list[tuple[int, bytes, Iterator[os.DirEntry[str]]]] = []
        try:
            yield self._enter(fd, name)
            stack.append((fd, path, _entries(fd)))
            while stack:
                fd, path, entries = stack[-1]
                entry = next(entries, None)
                if entry is None:
                    yield messages.Leave()
                    os.close(stack.pop()[0])
                    continue
                name = os.fsencode(entry.name)
                below = os.path.join(path, name)
                try:
                    if entry.is_dir(follow_symlinks=False):
                        inner = os.open(name, OPEN_DIRECTORY, dir_fd=fd)
                        stack.append((inner, below, _entries(inner)))
                        yield self._enter(inner, name)
                    elif entry.is_symlink():
                        self.totals.entries += 1
                        status = os.stat(name, dir_fd=fd, follow_symlinks=False)
                        text = os.readlink(name, dir_fd=fd)
                        yield messages.Link(name, messages.about(status), text)
                    else:
                        yield from self._file(fd, name, name, below, links)
                except OSError as error:
                    raise _named(below, error) from error
        finally:
            for open_fd, *_ in stack:
                os.close(open_fd)

    def _enter(self, fd: int, name: bytes) -> messages.Enter:
        self.totals.entries += 1
        lists = read_attributes(fd, xattr=False, lists=(ACCESS, DEFAULT))
        return messages.Enter(name, messages.about(os.fstat(fd), tuple(lists)))

    def _file(
        self,
        holder: int | None,
        opened: bytes,
        name: bytes,
        path: bytes,
        links: dict[tuple[int, int], int],
    ) -> Iterator[messages.Frame | _Content]:
        status = os.stat(opened, dir_fd=holder, follow_symlinks=holder is None)
        if not stat.S_ISREG(status.st_mode):
            kind = _KINDS.get(stat.S_IFMT(status.st_mode), "special file")
            self.totals.skipped[kind] = self.totals.skipped.get(kind, 0) + 1
            return
        fd = open_source(opened, holder)
        copy = -1
        try:
            status = os.fstat(fd)
            identity = status.st_dev, status.st_ino
            self.totals.entries += 1
            if identity in links:
                yield messages.Hard(name, links[identity])
                return
            number, self._files_seen = self._files_seen, self._files_seen + 1
            linked = status.st_nlink > 1
            if linked:
                links[identity] = number
            lists = read_attributes(fd, xattr=False, lists=(ACCESS,))
            copy = _read_to_end(fd) if size_is_nominal(fd, status) else -1
            size = status.st_size if copy < 0 else os.fstat(copy).st_size
            known_digest = self._known_digest(number)
            about = messages.about(status, tuple(lists))
            yield messages.File(name, about, size, number, linked, known_digest)
            if not known_digest:
                if copy < 0:
                    yield from self._contents(fd, status, path)
                elif size:
                    yield _Content(copy, 0, size, path)
                self.totals.bytes += size
            yield messages.FileEnd()
        finally:
            os.close(fd)
            if copy >= 0:
                os.close(copy)

    def _contents(self, fd: int, status: os.stat_result, path: bytes) -> Iterator[_Content]:
        ranges: Iterator[tuple[int, int]] = iter([(0, status.st_size)] if status.st_size else [])
        if may_have_holes(status):
            ranges = data_ranges(fd, 0, status.st_size)
        for offset, length in ranges:
            yield _Content(fd, offset, length, path)
        now = os.fstat(fd)
        if (now.st_size, now.st_mtime_ns) != (status.st_size, status.st_mtime_ns):
            raise OSError("it changed while it was read")

    def _known_digest(self, number: int) -> bytes:
        """Return the digest of a listed file whose content no node needs, or an empty string."""
        needed = self._needed
        listed = self._digests[DIGEST_BYTES * number : DIGEST_BYTES * (number + 1)]
        if needed is None or not listed:
            return b""
        is_needed = number // 8 < len(needed) and needed[number // 8] >> number % 8 & 1
        return b"" if is_needed else bytes(listed)

    # ---- sizes and lists ---------------------------------------------------------

    def _list(self) -> Iterator[messages.Frame]:
        """Yield all files with their digests, in the order of the stream."""
        path: list[bytes] = []
        content: list[_Content] = []
        name, size = b"", 0
        self._needed = None
        self._digests.clear()
        for frame in self._walk():
            if isinstance(frame, messages.Enter):
                path.append(frame.name)
            elif isinstance(frame, messages.Leave):
                path.pop()
            elif isinstance(frame, messages.File):
                name, size = b"/".join([*path, frame.name]), frame.size
                content = []
            elif isinstance(frame, _Content):
                content.append(frame)
            elif isinstance(frame, messages.FileEnd):
                fd = content[0].fd if content else -1
                checksum = digest_of(fd, size)
                self._digests += checksum
                yield messages.ListedFile(name, size, checksum)
        yield messages.Close(self.totals.entries)

    def _size_up_to(self, enough_bytes: int) -> int:
        """Return the size of the stream, or a number above `enough_bytes` if it is larger.

        As in the stream, only an operand that is a symbolic link is followed, holes and special
        files have no content, and the content of an inode is sent once.
        """
        size_bytes = 0
        linked: set[tuple[int, int]] = set()
        waiting = [(operand.path, True) for operand in self._operands]
        while waiting and size_bytes <= enough_bytes:
            path, is_operand = waiting.pop()
            try:
                status = os.stat(path, follow_symlinks=is_operand)
                size_bytes += _HEAD_BYTES
                if stat.S_ISDIR(status.st_mode):
                    with os.scandir(path) as entries:
                        waiting += [(entry.path, False) for entry in entries]
                elif stat.S_ISLNK(status.st_mode):
                    size_bytes += status.st_size
                elif stat.S_ISREG(status.st_mode):
                    identity = status.st_dev, status.st_ino
                    if identity not in linked:
                        size_bytes += _content_bytes(path, status)
                    if status.st_nlink > 1:
                        linked.add(identity)
            except OSError:
                continue  # the walk reports the error
        return size_bytes


def _content_bytes(path: bytes, status: os.stat_result) -> int:
    """Return the size of a file without its holes. Raises OSError."""
    if not may_have_holes(status):
        return status.st_size
    fd = open_source(path, None)
    try:
        return sum(length for _, length in data_ranges(fd, 0, status.st_size))
    finally:
        os.close(fd)


def _read_to_end(fd: int) -> int:
    """Copy into memory a file whose reported size is meaningless, as in /proc.

    Return a descriptor of the copy.

    Raise OSError if that fails.
    """
    copy = os.memfd_create("content", os.MFD_CLOEXEC)
    try:
        piece = aligned(_NOMINAL_BYTES)
        while count := os.readv(fd, [piece]):
            write_all(copy, piece[:count])
    except OSError:
        os.close(copy)
        raise
    return copy


_KINDS = {
    stat.S_IFIFO: "FIFO",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "character device",
    stat.S_IFBLK: "block device",
}


def _entries(fd: int) -> Iterator[os.DirEntry[str]]:
    with os.scandir(fd) as found:
        return iter(list(found))


def _named(path: bytes, error: OSError) -> OSError:
    """Return the error with the path in its text, unless the text already contains a path."""
    if error.errno is None:
        text = str(error)
        prefix = show(path)
        return OSError(text if text.startswith("/") or ": " in text else f"{prefix}: {text}")
    return OSError(f"{show(path)}: {error.strerror}")


def allow_descriptors() -> None:
    """Raise the limit on open files: each level of a tree keeps a directory open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


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
