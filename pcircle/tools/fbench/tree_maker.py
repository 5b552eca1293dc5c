"""Test trees that are created from a seed, and damaged to simulate silent data corruption.

The same seed and shape yield the same tree, including data and modification times. A record lists
each entry as a line of JSON, so that the results of copies, manifests and comparisons can be
checked. Trees are created only in new or empty directories, and no existing entry is replaced.

`corrupt` damages copies of trees that `fbench make` has created. Sizes and modification times are
preserved. A file is modified only if the record of `fbench make` lists it, its content matches the
record, and it has no hard links elsewhere. This protects unrelated files, and the originals of
copies that consist of hard links.
"""

from __future__ import annotations

import hashlib
import os
import random
import socket
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO

import msgspec
from msgspec.structs import replace

from pcircle import __version__
from pcircle.core.encoding import show
from pcircle.core.errors import UsageError
from pcircle.core.units import invalid, parse_size
from pcircle.fs.open_flags import CREATE_FILE, OPEN_DIRECTORY, OPEN_DIRECTORY_PATH
from pcircle.fs.safe_open import make_directory, reading
from pcircle.jobs.failures import decode
from pcircle.tools.fbench.plan import MAX_ENTRIES

FORMAT = "fbench make 1"
_PIECE_BYTES = 1 << 20
_MAX_PATH_BYTES = 2048
_NAMES = ("plain", "odd")
_ODD = (b" ", b"\n", b"-r", b"\xff\xfe", "ü漢".encode(), b"\x1b[1m", b"'\"$(x)", b"\\", b"*?[a]")
_LONGEST_NAME = 255
_FIRST_S, _LAST_S = 1_000_000_000, 1_700_000_000  # the range of modification times
_MODES = (0o644, 0o600, 0o640, 0o755)


class Shape(msgspec.Struct, frozen=True):
    """The number of entries of each kind, their depth and size, and the style of their names.

    Files have up to `size` bytes, and small sizes are more frequent. `hardlinks` is the number of
    additional names of these files, and `sparse` is the number of files that have holes.
    """

    files: int = 1000
    directories: int = 100
    depth: int = 5
    size: int = 65_536
    links: int = 20
    fifos: int = 0
    sockets: int = 0
    hardlinks: int = 20
    sparse: int = 10
    names: str = "plain"


class TreeEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of the record.

    Paths and targets are percent-encoded, as in error logs. For a file, `size`, `sha256` and the
    number of its `names` are set. For an additional hard link, `same_as` is the first name.
    """

    path: str
    kind: str
    size: int = 0
    sha256: str = ""
    names: int = 1
    target: str = ""
    same_as: str = ""
    holes: bool = False


class TreeHeader(msgspec.Struct, frozen=True):
    """The first line of a record."""

    format: str
    version: str
    seed: int
    shape: Shape


def shape_of(text: str) -> Shape:
    """Parse the value of --shape, such as files=1000,size=1M; raise UsageError if it is invalid."""
    shape = Shape()
    for word in text.split(",") if text else ():
        name, equals, value = word.partition("=")
        if not equals or name not in Shape.__struct_fields__:
            known = ", ".join(Shape.__struct_fields__)
            raise invalid("--shape", word, f"must be NAME=VALUE; choose from {known}")
        if name == "names":
            if value not in _NAMES:
                raise invalid("--shape", word, f"choose from {', '.join(_NAMES)}")
            shape = replace(shape, names=value)
            continue
        try:
            number = parse_size(value) if name == "size" else int(value)
        except ValueError as error:
            raise UsageError(f"--shape: {error}") from None
        if not 0 <= number <= (MAX_ENTRIES if name != "size" else 1 << 40):
            most = f"{MAX_ENTRIES:,}" if name != "size" else "1T"
            raise invalid("--shape", word, f"must be from 0 to {most}")
        shape = replace(shape, **{name: number})
    return shape


def prepare(folder: bytes) -> int:
    """Create and open a directory for a tree.

    Raise UsageError if it exists and is not empty, or cannot be created.
    """
    try:
        make_directory(folder)
        fd = os.open(folder, OPEN_DIRECTORY)
    except OSError as error:
        raise UsageError(f"cannot make a tree in '{show(folder)}': {error.strerror}") from None
    if os.listdir(fd):
        os.close(fd)
        raise UsageError(f"cannot make a tree in '{show(folder)}': it is not empty")
    return fd


def make(root_fd: int, seed: int, shape: Shape, record: Callable[[msgspec.Struct], None]) -> int:
    """Create a tree in an open directory, and return the number of entries.

    Raise OSError if that fails.
    """
    record(TreeHeader(FORMAT, __version__, seed, shape))
    tree = _Tree(root_fd, random.Random(seed), shape)
    count = 0
    for line in tree.made():
        record(line)
        count += 1
    return count


class _Tree:
    """Creates a tree; all random choices come from one generator, in a fixed order."""

    def __init__(self, root_fd: int, dice: random.Random, shape: Shape) -> None:
        self._root_fd = root_fd
        self._dice = dice
        self._shape = shape
        self._folders = [b""]
        self._number = 0

    def made(self) -> Iterator[TreeEntry]:
        """Create the entries one by one, and yield the line of the record for each."""
        shape, dice = self._shape, self._dice
        for _ in range(shape.directories):
            yield self._folder()
        files = [self._path("f") for _ in range(shape.files)]
        sparse = set(dice.sample(range(shape.files), min(shape.sparse, shape.files)))
        linked = dice.choices(range(shape.files), k=shape.hardlinks) if files else []
        further = Counter(linked)
        for number, path in enumerate(files):
            yield self._file(path, 1 + further[number], holes=number in sparse)
        for number in linked:
            yield self._further(files[number])
        for _ in range(shape.links):
            yield self._link(files)
        for kind, count in (("fifo", shape.fifos), ("socket", shape.sockets)):
            for _ in range(count):
                yield self._special(kind)
        for path in reversed(self._folders):
            self._date(path)

    def _path(self, letter: str) -> bytes:
        """Return an unused path."""
        dice = self._dice
        folder = dice.choice(self._folders)
        name = f"{letter}{self._number}".encode()
        self._number += 1
        if self._shape.names == "odd" and dice.random() < 0.5:
            name = dice.choice(_ODD) + name
            if dice.random() < 0.1 and len(folder) < _MAX_PATH_BYTES:
                name = name.ljust(_LONGEST_NAME, b"x")
        return folder + b"/" * bool(folder) + name

    def _folder(self) -> TreeEntry:
        path = self._path("d")
        os.mkdir(path, 0o755, dir_fd=self._root_fd)
        if path.count(b"/") + 1 < self._shape.depth:
            self._folders.append(path)
        return TreeEntry(path=text_of(path), kind="directory")

    def _date(self, path: bytes) -> None:
        when_s = self._dice.randrange(_FIRST_S, _LAST_S)
        os.utime(path or b".", (when_s, when_s), dir_fd=self._root_fd, follow_symlinks=False)

    def _file(self, path: bytes, names: int, *, holes: bool) -> TreeEntry:
        dice = self._dice
        size = int((self._shape.size + 1) ** dice.random()) - 1
        digest = hashlib.sha256()
        with open(os.open(path, CREATE_FILE, 0o600, dir_fd=self._root_fd), "wb") as file:
            for begin in range(0, size, _PIECE_BYTES):
                piece = dice.randbytes(min(_PIECE_BYTES, size - begin))
                if holes and begin // _PIECE_BYTES % 2 == 0:
                    piece = bytes(len(piece))  # the content of a hole
                    file.seek(len(piece), os.SEEK_CUR)
                else:
                    file.write(piece)
                digest.update(piece)
            file.truncate(size)
            file.flush()
            os.fchmod(file.fileno(), dice.choice(_MODES))
        self._date(path)
        return TreeEntry(
            path=text_of(path), kind="file", size=size, sha256=digest.hexdigest(), names=names,
            holes=holes and size > 0,
        )  # fmt: skip

    def _further(self, first: bytes) -> TreeEntry:
        path = self._path("h")
        fd = self._root_fd
        os.link(first, path, src_dir_fd=fd, dst_dir_fd=fd, follow_symlinks=False)
        return TreeEntry(path=text_of(path), kind="name", same_as=text_of(first))

    def _link(self, files: Sequence[bytes]) -> TreeEntry:
        path = self._path("l")
        target = b"../" * path.count(b"/") + self._dice.choice([b"nowhere", *files[:1000]])
        os.symlink(target, path, dir_fd=self._root_fd)
        self._date(path)
        return TreeEntry(path=text_of(path), kind="link", target=text_of(target))

    def _special(self, kind: str) -> TreeEntry:
        path = self._path("s")
        if kind == "fifo":
            os.mkfifo(path, 0o600, dir_fd=self._root_fd)
        else:
            _make_socket(path, self._root_fd)
        self._date(path)
        return TreeEntry(path=text_of(path), kind=kind)


def _make_socket(path: bytes, root_fd: int) -> None:
    """Create a socket in the file system.

    If mknod is not permitted, bind the socket at a path in /proc, because the paths of sockets must
    be short.
    """
    holder, _, name = path.rpartition(b"/")
    fd = os.open(holder or b".", OPEN_DIRECTORY_PATH, dir_fd=root_fd)
    try:
        try:
            os.mknod(name, stat.S_IFSOCK | 0o600, dir_fd=fd)
        except PermissionError:  # some systems allow only root to call mknod
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(b"/proc/self/fd/%d/%b" % (fd, name))
    finally:
        os.close(fd)


def text_of(path: bytes) -> str:
    """Percent-encode a path, as in error logs."""
    from pcircle.jobs.failures import encode

    return encode(path)


# ---- corruption ----------------------------------------------------------------------------------

CORRUPT_FORMAT = "fbench corrupt 1"
_READ_BYTES = 1 << 20
_LONGEST_RUN = 512  # fewer consecutive bytes than this are wrong: at most one sector
_MAX_LINE_BYTES = 1 << 20


class CorruptionHeader(msgspec.Struct, frozen=True):
    """The first line of the record of `fbench corrupt`."""

    format: str
    version: str
    seed: int
    made_seed: int


class Damage(msgspec.Struct, frozen=True):
    """A line of the same record: the bytes at `offset` in hexadecimal, before and after."""

    path: str
    offset: int
    was: str
    now: str


def read_record(path: str) -> tuple[TreeHeader, list[TreeEntry]]:
    """Return the contents of a record of `fbench make`; raise UsageError if it is invalid."""
    name = show(os.fsencode(path))
    try:
        with open(reading(os.fsencode(path), piped=True), "rb") as stream:
            header = msgspec.json.decode(stream.readline(_MAX_LINE_BYTES), type=TreeHeader)
            lines = msgspec.json.Decoder(TreeEntry).decode_lines(stream.read())
    except OSError as error:
        raise UsageError(f"--made: cannot read '{name}': {error.strerror}") from None
    except (msgspec.DecodeError, ValueError) as error:
        raise UsageError(
            f"--made: '{name}' is not a record written by fbench make: {error}"
        ) from None
    if header.format != FORMAT:
        raise UsageError(
            f"--made: '{name}' is not a record written by fbench make: {header.format}"
        )
    return header, lines


def corrupt(
    root_fd: int,
    seed: int,
    changes: int,
    made: tuple[TreeHeader, list[TreeEntry]],
    record: Callable[[msgspec.Struct], None],
) -> int:
    """Corrupt up to `changes` files in a tree, and return the number of corrupted files.

    Raise OSError if a file or the record cannot be written.
    """
    header, lines = made
    dice = random.Random(seed)
    record(CorruptionHeader(CORRUPT_FORMAT, __version__, seed, header.seed))
    files = [line for line in lines if line.kind == "file" and line.size]
    dice.shuffle(files)
    done = 0
    for line in files:
        if done == changes:
            break
        offset = dice.randrange(line.size)
        length = 1 if dice.random() < 0.5 else dice.randrange(1, _LONGEST_RUN)
        noise = dice.randbytes(length)
        done += _damaged(root_fd, line, offset, noise, record)
    return done


def _damaged(
    root_fd: int,
    line: TreeEntry,
    offset: int,
    noise: bytes,
    record: Callable[[msgspec.Struct], None],
) -> bool:
    """Corrupt a file if it is unchanged since it was created; return whether it was corrupted.

    The record is written before the damage, so that it is complete even if the disk is full. Raise
    OSError if a write fails.
    """
    fd = _opened(root_fd, decode(line.path))
    if fd is None:
        return False
    with open(fd, "r+b", buffering=0) as file:
        status = os.fstat(fd)
        is_made = stat.S_ISREG(status.st_mode) and status.st_size == line.size
        if not is_made or status.st_nlink != line.names or _digest(file) != line.sha256:
            return False
        file.seek(offset)
        was = file.read(min(len(noise), line.size - offset))
        now = bytes(a ^ (b or 1) for a, b in zip(was, noise, strict=False))
        record(Damage(line.path, offset, was.hex(), now.hex()))
        file.seek(offset)
        file.write(now)
        os.utime(fd, ns=(status.st_atime_ns, status.st_mtime_ns))
    return True


def _digest(file: BinaryIO) -> str:
    digest = hashlib.sha256()
    while piece := file.read(_READ_BYTES):
        digest.update(piece)
    return digest.hexdigest()


def _opened(root_fd: int, path: bytes) -> int | None:
    """Open a file below a directory for writing, without following links.

    Return None if that is impossible.
    """
    *folders, name = path.split(b"/")
    if not all((*folders, name)) or b".." in folders or name in (b".", b".."):
        return None
    fd = os.dup(root_fd)
    try:
        for folder in folders:
            flags = OPEN_DIRECTORY_PATH
            inner = os.open(folder, flags, dir_fd=fd)
            os.close(fd)
            fd = inner
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        return os.open(name, flags, dir_fd=fd)
    except OSError:
        return None
    finally:
        os.close(fd)
