"""Reading a source directory, in blocks, by kind.

A directory of ten entries and one of a hundred million come out the same way:
as blocks of at most `BLOCK_ENTRIES` names, some megabytes or a fifth of a second, so
that others can begin with the first names while the rest is still being read.

Who looks every name up anyway can have a small directory as a bare list of
names (`Listings`), at two thirds of the price. There is no call for the first
names of a directory only, so this is done where its size tells that it is small.
"""

from __future__ import annotations

import os
import re
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from pcircle.encoding import IS_EXACT, exact, text_of, to_scan
from pcircle.fs.directories import affordable_at_once, close_open
from pcircle.mounts import type_of_device
from pcircle.workers.starting import Limit

if TYPE_CHECKING:
    from pcircle.fs.listed import Listed

BLOCK_ENTRIES = 1 << 16
BLOCK_BYTES = 2 << 20
"""Of names; of short ones with their objects three times that."""
_BLOCK_S = 0.2
_SMALL_BYTES = 64 << 10
_MEMORY = frozenset({b"tmpfs", b"devtmpfs"})
# Here a directory's size grows with its names, by 12 bytes and more for each.
_TELLING = _MEMORY | {b"ext2", b"ext3", b"ext4", b"xfs"}
# A listing of these misses nothing that stays, though what was listed before is removed meanwhile.
_STEADY = _TELLING | {b"btrfs", b"f2fs", b"ramfs", b"overlay", b"zfs"}
_LOOK_EVERY = 1024
FILE, FOLDER, LINK, _SPECIAL = b"\x08", b"\x04", b"\x0a", b"\x0c"
"""Kinds of entries, as the kernel numbers them."""
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ITSELF = [b"\4.", b"\4.."]
_PLAIN = rb"(?:(?:%s|%s(?=\.\.?\0))([^\0]+))?" % (FILE, FOLDER)
_NEITHER = [b".", b".."]


class FileSystem(NamedTuple):
    """`tells`: the size of a directory grows with its names. `waits`: a look-up may have to wait
    for a disk or a server.
    """

    tells: bool
    waits: bool


class Listings:
    """The names of small directories, where the file system lets it be known that they are."""

    def __init__(self) -> None:
        self._known: dict[int, FileSystem] = {}  # by device

    def whole(
        self, directory_fd: int, status: os.stat_result, system: FileSystem
    ) -> list[bytes] | None:
        """All names of a directory; None if it might be a large one. OSError as of `blocks`."""
        # Where a size is 0 it tells nothing: so it is if the kernel has no tmpfs for devtmpfs.
        if not system.tells or not 0 < status.st_size <= _SMALL_BYTES:
            return None
        # By descriptor they would come as text, to be made bytes again.
        return os.listdir(b"/proc/self/fd/%d" % directory_fd)

    def of(self, device: int) -> FileSystem:
        """What is known of the file system that has this number on this node."""
        known = self._known.get(device)
        if known is None:
            known = self._known[device] = file_system(type_of_device(device))
        return known


class Steadiness:
    """Which file systems list a directory well from which names are removed meanwhile."""

    def __init__(self) -> None:
        self._known: dict[int, bool] = {}  # by device

    def of(self, device: int) -> bool:
        """Whether that is known of the file system that has this number on this node."""
        known = self._known.get(device)
        if known is None:
            known = self._known[device] = type_of_device(device) in _STEADY
        return known


def listed_first(found: Iterable[Block]) -> Iterator[Block]:
    """The same blocks, but none before the directory has been read to its end.

    They are kept in one piece each, so a million names are some ten million bytes.
    """
    kept: list[tuple[tuple[str, str, str, str], dict[str, Listed | None]]] = []
    for block in found:
        if block.last and not kept:
            yield block
            return
        kinds = (block.files, block.links, block.directories, block.specials)
        files, links, directories, specials = map("\0".join, kinds)
        kept.append(((files, links, directories, specials), block.below))
    for number, (texts, below) in enumerate(kept, 1):
        names = [text.split("\0") if text else [] for text in texts]
        block = Block()
        block.files, block.links, block.directories, block.specials = names
        block.below, block.last = below, number == len(kept)
        yield block


def file_system(type_: bytes | None) -> FileSystem:
    """What is known of file systems of a type; of an unknown one nothing."""
    return FileSystem(type_ in _TELLING, type_ not in _MEMORY)


class Block:
    """Names of one directory, by kind. `last` tells that the directory ends here.

    `below` is what is wanted of some of its directories; of the others it is all.
    """

    __slots__ = ("below", "directories", "files", "last", "links", "specials")

    def __init__(self) -> None:
        self.files: list[str] = []
        self.links: list[str] = []
        self.directories: list[str] = []
        self.specials: list[str] = []
        self.last = False
        self.below: dict[str, Listed | None] = {}

    def add_directory(self, name: bytes, below: Listed | None = None) -> None:
        """Add a directory, and what is wanted of it."""
        text = text_of(name)
        self.directories.append(text)
        if below is not None:
            self.below[text] = below

    def __len__(self) -> int:
        return len(self.files) + len(self.links) + len(self.directories) + len(self.specials)


def blocks(directory_fd: int) -> Iterator[Block]:
    """The directory's entries; at least one block. OSError if it can't be read.

    A type that the directory does not tell is asked for, without following.
    """
    block = Block()
    # mypy knows of no scan of either kind.
    scan: Any = os.scandir(to_scan(directory_fd))
    with scan as entries:
        some = list(islice(entries, _LOOK_EVERY))
        if len(some) == _LOOK_EVERY:  # most directories have fewer, and end here
            until_s, size = time.monotonic() + _BLOCK_S, 0
            while some:
                size += sum([len(entry.name) for entry in some])
                _add(block, some)
                is_full = len(block) >= BLOCK_ENTRIES or size >= BLOCK_BYTES
                if is_full or time.monotonic() > until_s:
                    yield block
                    block = Block()
                    until_s, size = time.monotonic() + _BLOCK_S, 0
                some = list(islice(entries, _LOOK_EVERY))
    _add(block, some)
    block.last = True
    yield block


def _add(block: Block, entries: Sequence[os.DirEntry[Any]]) -> None:
    # Most are files, and a comprehension sorts these out faster than a loop does.
    files = [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
    block.files += files if IS_EXACT else map(exact, files)
    if len(files) == len(entries):
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            block.directories.append(exact(entry.name))
        elif entry.is_symlink():
            block.links.append(exact(entry.name))
        elif not entry.is_file(follow_symlinks=False):
            block.specials.append(exact(entry.name))


def records_of(
    begin: bytes = b".{16}", wanted: bytes = b"(.[^\0]+)"
) -> Callable[[bytearray, int, int], list[Any]]:
    """Finds what the kernel's records of entries hold: of each its kind and its name.

    A record is inode and place, 8 bytes each, which `begin` matches, its own length, 2 bytes, then
    these, which `wanted` does, and NUL; its length is a multiple of 8. Names of more than 255 bytes
    are not taken apart, as FUSE, NTFS and FAT may have: that and all behind it gives nothing, once.
    """
    # Most names are short.
    lengths = [(struct.pack("=H", size), size - 18) for size in range(24, 288, 8)]
    rest = b"|".join(re.escape(length) + b".{%d}" % more for length, more in lengths)
    return re.compile(b"(?s)%b(?=..%b)(?:%b)|.+" % (begin, wanted, rest)).findall


_OWN = threading.local()


def _means() -> tuple[Any, Any, bytearray, Any, Any]:
    """What this thread reads small directories with: a call, its buffer and what is found there.

    That is kinds and names; or names of regular files, `.` and `..`, and nothing of all else.
    """
    import ctypes  # only who walks needs it

    buffer = bytearray(32768)
    place = ctypes.byref((ctypes.c_char * len(buffer)).from_buffer(buffer))
    # An old C library has none, and nothing in it ends in time.
    call = getattr(ctypes.CDLL(None), "getdents64", None) if Limit.limit_s is None else None
    _OWN.means = found = call, place, buffer, records_of(), records_of(wanted=_PLAIN)
    return found


def few(directory_fd: int, most: int) -> bytes | None:
    """The entries of a directory, of each NUL, its kind and its name; None if these are more.

    Kinds are `FILE`, `FOLDER`, `LINK` and another one, of one byte each. Unless None comes of it,
    the descriptor is not at the beginning any more. OSError if it can't be read.

    The kernel's own records are taken apart by an expression, which needs no object for each entry
    and half the calls that a scan makes for a directory.
    """
    try:
        call, place, buffer, records, _ = _OWN.means
    except AttributeError:  # this thread's first
        call, place, buffer, records, _ = _means()
    found: list[bytes] = []
    room = len(buffer)
    size: int = -1 if call is None else call(directory_fd, place, room)
    while size > 0:
        found += records(buffer, 0, size)
        if len(found) > most + 2:
            break
        size = call(directory_fd, place, room)
    if not size:
        if found[:2] == _ITSELF:
            del found[:2]
        else:
            found = [each for each in found if each[1:] not in (b".", b"..")]
        text = b"\0" + b"\0".join(found) if found else b""
        if b"\0\0" not in text and text[-1:] != b"\0" and len(found) <= most:
            return text
    os.lseek(directory_fd, 0, os.SEEK_SET)
    return None if len(found) > most else _few_scanned(directory_fd, most)


def _few_scanned(directory_fd: int, most: int) -> bytes | None:
    """As `few`, where the kernel does not tell all of it: kinds may have to be asked for."""
    scan: Any = os.scandir(to_scan(directory_fd))
    with scan as entries:
        some = list(islice(entries, most + 1))
    if len(some) > most:
        return None
    return b"".join(b"\0" + _kind(entry) + os.fsencode(exact(entry.name)) for entry in some)


def _kind(entry: os.DirEntry[Any]) -> bytes:
    if entry.is_file(follow_symlinks=False):
        return FILE
    if entry.is_dir(follow_symlinks=False):
        return FOLDER
    return LINK if entry.is_symlink() else _SPECIAL


class Together:
    """Directories in one, open, and the names of the files that are all there is in each.

    `rest` are those that are none of these, or can't be opened or read; `later` those that were
    not tried, as there are enough names or descriptors.
    """

    __slots__ = ("fds", "files", "later", "names", "rest")

    def __init__(
        self,
        directory_fd: int,
        names: Sequence[bytes],
        most: int,
        room: int,
        before: Callable[[int, int], None] | None = None,
    ) -> None:
        """Open some of these, at least one, of at `most` so many files, as long as there is `room`
        for all names. Use it as a context: it ends the descriptors.

        Each is handed to `before` with its place before it is read, which changes when it was used.
        """
        self.names: list[bytes] = []
        self.fds: list[int] = []
        self.files: list[list[bytes]] = []
        self.rest: list[bytes] = []
        self.later: Sequence[bytes] = ()
        at_once = affordable_at_once()
        try:
            for place, name in enumerate(names):
                if place and (room < most or len(self.fds) == at_once):
                    self.later = names[place:]
                    break
                room -= self._open(directory_fd, name, most, before)
        except BaseException:
            self.__exit__()
            raise

    def _open(
        self,
        directory_fd: int,
        name: bytes,
        most: int,
        before: Callable[[int, int], None] | None,
    ) -> int:
        """Open and read one; how many names are in it."""
        files = None
        try:
            fd = os.open(name, _DIRECTORY, dir_fd=directory_fd)
        except OSError:
            self.rest.append(name)
            return 0
        try:
            if before is not None:
                before(fd, len(self.fds))
            files = files_of(few(fd, most))
        except OSError:
            pass  # who walks it will say what is wrong
        finally:
            if files is None:
                close_open(fd)
        if files is None:
            self.rest.append(name)
            return 0
        self.names.append(name)
        self.fds.append(fd)
        self.files.append(files)
        return len(files)

    def __enter__(self) -> Together:
        return self

    def __exit__(self, *_: object) -> None:
        for fd in self.fds:
            close_open(fd)


def files_of(found: bytes | None) -> list[bytes] | None:
    """The names of what `few` has found, if all are of regular files."""
    if found is None:
        return None
    names = found.split(b"\0" + FILE)[1:]
    return names if len(names) == found.count(b"\0") else None


def few_files(directory_fd: int, most: int) -> list[bytes] | None:
    """The names in a directory, if these are at `most` so many, and all of regular files."""
    try:
        found = few(directory_fd, most)
        if found is not None:
            os.lseek(directory_fd, 0, os.SEEK_SET)
    except OSError:
        return None
    return files_of(found)


def plain(directory_fd: int, most: int) -> tuple[list[bytes], int] | None:
    """The names in a directory and the bytes of its records, where these are at `most` so many,
    and of regular files. None else, and where the kernel does not tell.

    From the descriptor's place, which is not at the beginning after that. OSError never.
    """
    try:
        call, place, buffer, _, files = _OWN.means
    except AttributeError:  # this thread's first
        call, place, buffer, _, files = _means()
    names: list[bytes] = []
    room, total = len(buffer), 0
    size: int = -1 if call is None else call(directory_fd, place, room)
    while size > 0:
        total += size
        names += files(buffer, 0, size)
        if len(names) > most + 2:
            return None
        size = call(directory_fd, place, room)
    if names[:2] == _NEITHER:
        del names[:2]
    else:
        names = [name for name in names if name not in _NEITHER]
    return None if size or b"" in names else (names, total)


def records_bytes(directory_fd: int, most: int) -> int:
    """The bytes of a directory's records as of `plain`; -1 if these are more than `most`."""
    call, place, buffer, *_ = getattr(_OWN, "means", None) or _means()
    room, total = len(buffer), 0
    size: int = -1 if call is None else call(directory_fd, place, room)
    while size > 0:
        total += size
        if total > most:
            return -1
        size = call(directory_fd, place, room)
    return -1 if size else total


def all_names(directory_fd: int) -> Iterator[list[bytes]]:
    """The names in a directory of any size, some hundreds at a time, as the kernel tells them.

    OSError if it can't be read, and where there is no such call, or a name is too long.
    """
    call, place, buffer, records, _ = getattr(_OWN, "means", None) or _means()
    room = len(buffer)
    while size := -1 if call is None else call(directory_fd, place, room):
        if size < 0:
            raise OSError("the directory can't be read")
        found = records(buffer, 0, size)
        if not found[-1]:
            raise OSError("a name is very long")
        names = [each[1:] for each in found]
        yield [name for name in names if name not in _NEITHER] if b"." in names else names


def rewound(directory_fd: int) -> int:
    """A directory that was opened some time ago, or listed, so that all that is there now is seen.

    btrfs lists what was there when a directory was opened, or set to its beginning. OSError.
    """
    os.lseek(directory_fd, 0, os.SEEK_SET)
    return directory_fd


def encoded(names: Sequence[str]) -> list[bytes]:
    """Names of a block as bytes, all at once."""
    return os.fsencode("\0".join(names)).split(b"\0") if names else []
