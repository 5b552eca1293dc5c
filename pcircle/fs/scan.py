"""Read a source directory in blocks, by kind.

A directory of ten entries and one of a hundred million are read in the same way: in blocks of at
most `BLOCK_ENTRIES` names, some megabytes or a fifth of a second, so that other ranks can start
with the first names while the directory is still being read.

Native functions list small directories, several by one call (`DirectoryBatch`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, islice, pairwise, repeat
from typing import TYPE_CHECKING, Any, Literal

from pcircle.core.encoding import IS_EXACT, exact, text_of, to_scan
from pcircle.fs import native
from pcircle.fs.attributes.mounts import type_of_device
from pcircle.fs.directories import affordable_at_once, close_open
from pcircle.fs.native.pure import UNTRIED
from pcircle.fs.open_flags import OPEN_DIRECTORY
from pcircle.fs.stats import Table, within_limit

if TYPE_CHECKING:
    from pcircle.fs.path_list_slice import PathListSlice

BLOCK_ENTRIES = 1 << 16
BLOCK_BYTES = 2 << 20
"""The size of the names of a block; short ones take three times that as objects."""
_BLOCK_S = 0.2
_CALLS = 5  # for a directory itself
_SCAN_NS = 20_000_000  # of several directories, between two looks at whether the job stops
_KINDS_NS = 100_000_000  # for looking up the kinds of entries
# On these a listing misses no remaining entry, even if listed entries are removed meanwhile.
_STEADY = frozenset(b"tmpfs devtmpfs ext2 ext3 ext4 xfs btrfs f2fs ramfs overlay zfs".split())
_LOOK_EVERY = 1024
FILE, FOLDER, LINK = b"\x08", b"\x04", b"\x0a"
"""Kinds of entries, with the numbers of the kernel."""
ONLY_FILES = 1 << FILE[0]
"""The bit of regular files among the bits of kinds."""


class StableListing:
    """Detect file systems whose listings are complete although names are removed meanwhile."""

    def __init__(self) -> None:
        self._known: dict[int, bool] = {}  # by device

    def of(self, device: int) -> bool:
        """Return whether listings are complete on the file system with this number on this node."""
        known = self._known.get(device)
        if known is None:
            known = self._known[device] = type_of_device(device) in _STEADY
        return known


def listed_first(found: Iterable[Block]) -> Iterator[Block]:
    """Yield the same blocks, but not before the directory has been read to its end.

    The names of a block are kept joined, so a million names are some ten million bytes.
    """
    packed: list[tuple[tuple[str, str, str, str], dict[str, PathListSlice | None]]] = []
    for block in found:
        if block.last and not packed:
            yield block
            return
        kinds = (block.files, block.links, block.directories, block.specials)
        files, links, directories, specials = map("\0".join, kinds)
        packed.append(((files, links, directories, specials), block.below))
    for number, (texts, below) in enumerate(packed, 1):
        names = [text.split("\0") if text else [] for text in texts]
        block = Block()
        block.files, block.links, block.directories, block.specials = names
        block.below, block.last = below, number == len(packed)
        yield block


class Block:
    """Names of one directory, by kind. `last` means that the directory ends here.

    `below` has the selected parts of some subdirectories; the remaining ones are selected
    completely.
    """

    __slots__ = ("below", "directories", "files", "last", "links", "specials")

    def __init__(self) -> None:
        self.files: list[str] = []
        self.links: list[str] = []
        self.directories: list[str] = []
        self.specials: list[str] = []
        self.last = False
        self.below: dict[str, PathListSlice | None] = {}

    def add_directory(self, name: bytes, below: PathListSlice | None = None) -> None:
        """Add a directory with its selected part."""
        text = text_of(name)
        self.directories.append(text)
        if below is not None:
            self.below[text] = below

    def __len__(self) -> int:
        return len(self.files) + len(self.links) + len(self.directories) + len(self.specials)


def blocks(directory_fd: int) -> Iterator[Block]:
    """Yield the entries of a directory, at least one block. OSError.

    A kind that the directory does not store is looked up without following links.
    """
    block = Block()
    with os.scandir(to_scan(directory_fd)) as entries:
        batch: list[os.DirEntry[Any]] = list(islice(entries, _LOOK_EVERY))
        if len(batch) == _LOOK_EVERY:  # most directories have fewer, and end here
            until_s, size = time.monotonic() + _BLOCK_S, 0
            while batch:
                size += sum([len(entry.name) for entry in batch])
                _add(block, batch)
                is_full = len(block) >= BLOCK_ENTRIES or size >= BLOCK_BYTES
                if is_full or time.monotonic() > until_s:
                    yield block
                    block = Block()
                    until_s, size = time.monotonic() + _BLOCK_S, 0
                batch = list(islice(entries, _LOOK_EVERY))
    _add(block, batch)
    block.last = True
    yield block


def _add(block: Block, entries: Sequence[os.DirEntry[Any]]) -> None:
    # Most are files, and a comprehension sorts these out faster than a loop does.
    files = [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
    block.files += files if IS_EXACT else map(exact, files)
    if len(files) == len(entries):
        return
    if not files:  # many directories have nothing but directories
        directories = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        if len(directories) == len(entries):
            block.directories += directories if IS_EXACT else map(exact, directories)
            return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            block.directories.append(exact(entry.name))
        elif entry.is_symlink():
            block.links.append(exact(entry.name))
        elif not entry.is_file(follow_symlinks=False):
            block.specials.append(exact(entry.name))


def names_and_kinds(
    directory_fd: int, max_names: int, *, asks: bool = True
) -> tuple[list[bytes], bytes] | None:
    """Return the names in a directory and the kind of each, or None if there are more. OSError.

    A kind is one byte, such as `FILE`, or 0 if it is unknown. With `asks`, entries whose kind the
    directory does not store are looked up. The directory is read from its beginning, and is at its
    beginning again where None is returned.
    """
    until_ns = time.monotonic_ns() + _KINDS_NS if asks else 0
    found: tuple[list[bytes], bytes] | None = within_limit().list_directory(
        directory_fd, max_names, until_ns
    )
    return found


class DirectoryBatch:
    """Small directories of one directory, or each of its own, which one native call has listed.

    The plain ones of them, in their order, have `names`, `counts` of entries, a table of their own
    status from before they were read (`own`) and, if they are kept open, descriptors (`fds`). The
    entries of all of them together have names (`inside`, or `text` with a NUL behind each name, or
    `texts` by directory), `kinds` and, if they were looked up, a `table` for `Stats.put`.

    `unread` are the directories that are not plain or cannot be read, and `later` the names that
    were not tried. `places` are the positions of the plain directories in all names. All took
    `elapsed_s` seconds, and a system call `each_s` on average; if that is long, `Stats.look` is
    faster, because it overlaps look-ups.

    As a context manager it closes the descriptors.
    """

    __slots__ = (
        *("_inside", "counts", "each_s", "elapsed_s", "ends", "fds", "kinds", "later", "names"),
        *("own", "places", "table", "text", "unread"),
    )

    def __init__(
        self,
        directory_fd: int | list[int],
        names: list[bytes],
        device: int,
        *,
        max_entries: int,
        max_all: int,
        looks: bool | Literal[2] = False,
        keeps: bool = False,
        max_parents: int = 0,
        beneath: bool = False,
        sorts: bool = False,
        kinds: int = ONLY_FILES,
    ) -> None:
        """List some of these directories, at least one, while `max_all` entries are enough for all.

        A directory is plain if it is on `device` and has at most `max_entries` entries, all of
        `kinds`. With -1 any device is accepted, and `own` is not known. `looks` looks the entries
        up (2: except directories), `keeps` keeps the directories open, `max_parents` keeps at most
        this number of directories with subdirectories open, and `sorts` sorts the entries of each
        by name. With `beneath` a directory must be on the same mount as its parent, which needs
        Linux 5.6.
        """
        began_s = time.perf_counter()
        batch = names[: affordable_at_once()] if keeps else names
        if not isinstance(directory_fd, int):
            directory_fd = directory_fd[: len(batch)]
        outcomes, self.fds, own, self.text, self.ends, self.kinds, self.table = (
            within_limit().scan_directories(
                *(directory_fd, batch, OPEN_DIRECTORY, device, kinds, max_entries),
                max(max_all, max_entries),
                *(looks, keeps, max_parents, beneath, sorts, time.monotonic_ns() + _SCAN_NS),
            )
        )
        self.own = Table(own)
        self._inside: list[bytes] | None = None
        calls = len(self.kinds) + _CALLS * len(batch)
        self.elapsed_s = time.perf_counter() - began_s
        self.each_s = self.elapsed_s / max(1, calls)
        counts = native.numbers(outcomes)
        if counts and min(counts) >= 0:
            self.names, self.counts, self.unread = batch, counts, []
            self.places: Sequence[int] = range(len(batch))
            self.later = names[len(batch) :]
            return
        tried = len(counts) if UNTRIED not in counts else counts.index(UNTRIED)
        self.names, self.counts, self.unread = [], [], list[bytes]()
        self.places = [place for place in range(tried) if counts[place] >= 0]
        for name, count in zip(batch, counts[:tried], strict=False):
            if count < 0:
                self.unread.append(name)
            else:
                self.names.append(name)
                self.counts.append(count)
        if not tried:  # EINTR, by a signal or from the file system: the walk tries again
            self.unread, tried = names[:1], 1
        self.later = names[tried:]

    @property
    def inside(self) -> list[bytes]:
        """Return the names in all directories."""
        names = self._inside
        if names is None:
            names = self._inside = self.text.split(b"\0")[:-1]
        return names

    def entry_fds(self) -> list[int]:
        """Return for each entry the descriptor of its directory."""
        return list(chain.from_iterable(map(repeat, self.fds, self.counts)))

    def texts(self) -> list[bytes]:
        """Return the names in each directory, NUL-terminated."""
        text, ends = self.text, native.numbers(self.ends)
        return [text[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]

    def ranges(self) -> list[tuple[int, int]]:
        """Return the first and last places of entries in `inside`, for each directory."""
        return list(pairwise(accumulate(self.counts, initial=0)))

    def __enter__(self) -> DirectoryBatch:
        return self

    def taken(self, place: int) -> int:
        """Return the descriptor of a directory, which the caller must close."""
        fd: int = self.fds[place]
        self.fds[place] = -1
        return fd

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the descriptors."""
        fds, self.fds = self.fds, []
        for fd in fds:
            if fd >= 0:
                close_open(fd)


def rewound(directory_fd: int) -> int:
    """Rewind a directory that was opened or listed before, so that new entries are seen.

    btrfs lists the entries that existed when the directory was opened or rewound. OSError.
    """
    os.lseek(directory_fd, 0, os.SEEK_SET)
    return directory_fd


def encoded(names: Sequence[str]) -> list[bytes]:
    """Return the names of a block as bytes, all at once."""
    return os.fsencode("\0".join(names)).split(b"\0") if names else []
