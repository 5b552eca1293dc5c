"""List directories in blocks of names, grouped by kind.

A block contains at most about `BLOCK_ENTRIES` names or `BLOCK_BYTES` bytes, or what can be read in
a fifth of a second. Other ranks can thus process the first names of a huge directory while it is
still being read.

Native functions list several small directories in one call (`DirectoryBatch`).
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, islice, pairwise, repeat
from typing import Any, Literal

import msgspec

from pcircle.core.encoding import IS_EXACT, exact, text_of, to_scan
from pcircle.fs import native
from pcircle.fs.attributes.mounts import type_of_device
from pcircle.fs.directories import affordable_at_once, close_open
from pcircle.fs.native.interface import UNTRIED
from pcircle.fs.open_flags import OPEN_DIRECTORY
from pcircle.fs.stats import Table, within_limit

BLOCK_ENTRIES = 1 << 16
BLOCK_BYTES = 2 << 20
"""The approximate limit on the total length of the names in a block.

As objects, short names take three times as much memory.
"""
_BLOCK_S = 0.2
_CALLS = 5  # system calls for a directory, in addition to one for each entry
# Time limit for listing several directories, after which the walk checks whether the job is
# stopping.
_SCAN_NS = 20_000_000
_KINDS_NS = 100_000_000  # time limit for looking up kinds that the directory does not store
# On these file systems a listing includes all remaining entries even if listed entries are removed
# before it ends.
_STEADY = frozenset(b"tmpfs devtmpfs ext2 ext3 ext4 xfs btrfs f2fs ramfs overlay zfs".split())
_LOOK_EVERY = 1024
FILE, FOLDER, LINK = b"\x08", b"\x04", b"\x0a"
"""Kinds of entries, as the kernel numbers them (DT_*)."""
ONLY_FILES = 1 << FILE[0]
"""The set of kinds, as a bit mask, that contains only regular files."""


class PathListSlice(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The listed paths below a directory, as text or as a range.

    The range from `begin` to `end` refers to the list on rank 0. The first `skip` bytes of each
    record in it are the path of the directory.
    """

    text: bytes = b""
    begin: int = 0
    end: int = 0
    skip: int = 0

    @property
    def is_range(self) -> bool:
        """Return whether this is a range, which only rank 0 can read."""
        return self.end > self.begin


class StableListing:
    """Detects file systems whose listings are complete even if names are removed during listing."""

    def __init__(self) -> None:
        self._known: dict[int, bool] = {}  # by device

    def of(self, device: int) -> bool:
        """Return whether listings are complete on the device with this number on this node."""
        known = self._known.get(device)
        if known is None:
            known = self._known[device] = type_of_device(device) in _STEADY
        return known


def listed_first(found: Iterable[Block]) -> Iterator[Block]:
    """Yield the same blocks, but only after the whole directory has been read.

    Until then the names of a block are stored as joined text, which takes less memory than objects.
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
    """Some names of a directory, by kind. `last` marks the directory's last block.

    `below` contains the selected parts of subdirectories; those that it lacks are selected
    completely.
    """

    __slots__ = ("below", "directories", "files", "last", "links", "specials")

    def __init__(self) -> None:
        self.files: list[str] = []
        self.links: list[str] = []
        self.directories: list[str] = []
        self.specials: list[str] = []
        self.last: bool = False
        self.below: dict[str, PathListSlice | None] = {}

    def add_directory(self, name: bytes, below: PathListSlice | None = None) -> None:
        """Add a subdirectory and its selected part."""
        text = text_of(name)
        self.directories.append(text)
        if below is not None:
            self.below[text] = below

    def add_target(self, link: str, mode: int) -> None:
        """Add a symbolic link by the kind of its target, which has this mode."""
        if stat.S_ISDIR(mode):
            self.directories.append(link)
        elif stat.S_ISREG(mode):
            self.files.append(link)
        else:
            self.specials.append(link)

    def __len__(self) -> int:
        return len(self.files) + len(self.links) + len(self.directories) + len(self.specials)


def blocks(directory_fd: int) -> Iterator[Block]:
    """Yield the entries of a directory as at least one block. Raises OSError.

    Kinds that the directory does not store are looked up without following links.
    """
    block = Block()
    with os.scandir(to_scan(directory_fd)) as entries:
        batch: list[os.DirEntry[Any]] = list(islice(entries, _LOOK_EVERY))
        if len(batch) == _LOOK_EVERY:  # most directories have fewer entries
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
    # Most entries are files, which a comprehension selects faster than a loop.
    files = [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
    block.files += files if IS_EXACT else map(exact, files)
    if len(files) == len(entries):
        return
    if not files:  # many directories contain only directories
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
    """Return the names in a directory and the kind of each; None if there are too many names.

    A kind is one byte, such as `FILE`, or 0 if it is unknown. With `asks`, kinds that the directory
    does not store are looked up. The directory is read from its beginning; if None is returned, it
    is rewound. Raises OSError.
    """
    until_ns = time.monotonic_ns() + _KINDS_NS if asks else 0
    found: tuple[list[bytes], bytes] | None = within_limit().list_directory(
        directory_fd, max_names, until_ns
    )
    return found


class DirectoryBatch:
    """Small directories that one native call lists; their parents may be the same or different.

    For the plain directories, in order, there are `names`, `counts` of entries, and a table of
    their own status from before they were read (`own`). If they are kept open, there are also
    descriptors (`fds`). For all their entries together there are names (`inside`, or `text` with
    NUL-terminated names, or `texts` by directory) and `kinds`. If the entries were looked up, there
    is also a `table` for `Stats.put`.

    `unread` contains the directories that are not plain or cannot be read, and `later` those that
    were not tried. `places` are the positions of the plain directories among all names. The call
    took `elapsed_s` seconds, and a system call `each_s` seconds on average. If system calls take
    long, `Stats.look` is faster, because it overlaps look-ups.

    Leaving the context closes the descriptors.
    """

    __slots__ = (
        *("_inside", "counts", "each_s", "elapsed_s", "ends", "fds", "kinds", "later", "names"),
        *("own", "places", "table", "text", "unread"),
    )
    fds: list[int]
    text: bytes
    ends: bytes
    kinds: bytes
    table: bytes

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
        """List at least one of these directories, and more while their entries fit in `max_all`.

        A directory is plain if it is on `device` and has at most `max_entries` entries, all of
        `kinds`. If `device` is -1, any device is accepted, and `own` is not available. `looks`
        looks up the entries (2: except directories), and `keeps` keeps the directories open.
        `max_parents` limits the number of directories with subdirectories that are kept open.
        `sorts` sorts the entries of each directory by name. With `beneath`, a directory must be on
        the same mount as its parent; this requires Linux 5.6.
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
        self.own: Table = Table(own)
        self._inside: list[bytes] | None = None
        calls = len(self.kinds) + _CALLS * len(batch)
        self.elapsed_s: float = time.perf_counter() - began_s
        self.each_s: float = self.elapsed_s / max(1, calls)
        counts = native.numbers(outcomes)
        if counts and min(counts) >= 0:
            self.names: list[bytes] = batch
            self.counts: list[int] = counts
            self.unread: list[bytes] = []
            self.places: Sequence[int] = range(len(batch))
            self.later: list[bytes] = names[len(batch) :]
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
        if not tried:  # EINTR from a signal or the file system: the walk tries again
            self.unread, tried = names[:1], 1
        self.later = names[tried:]

    @property
    def inside(self) -> list[bytes]:
        """Return the names of the entries of all directories."""
        names = self._inside
        if names is None:
            names = self._inside = self.text.split(b"\0")[:-1]
        return names

    def entry_fds(self) -> list[int]:
        """Return the descriptor of each entry's directory."""
        return list(chain.from_iterable(map(repeat, self.fds, self.counts)))

    def texts(self) -> list[bytes]:
        """Return the names in each directory, NUL-terminated."""
        text, ends = self.text, native.numbers(self.ends)
        return [text[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]

    def ranges(self) -> list[tuple[int, int]]:
        """Return the range of each directory's entries in `inside`."""
        return list(pairwise(accumulate(self.counts, initial=0)))

    def __enter__(self) -> DirectoryBatch:
        return self

    def taken(self, place: int) -> int:
        """Return a directory's descriptor, which the caller must close."""
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
    """Rewind a directory that was opened or listed earlier, so that it lists new entries.

    btrfs lists the entries that existed when the directory was opened or rewound. Raises OSError.
    """
    os.lseek(directory_fd, 0, os.SEEK_SET)
    return directory_fd


def encoded(names: Sequence[str]) -> list[bytes]:
    """Encode names as bytes, with a single call for all of them."""
    return os.fsencode("\0".join(names)).split(b"\0") if names else []
