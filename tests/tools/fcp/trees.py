"""Builders of the trees that the fcp tests copy, and a remover that can delete every one of them.

A copier breaks on what is rare: names that are not text, sizes next to a boundary, holes, times
before 1970, directories without write permission, paths longer than ``PATH_MAX``. Each builder
creates one family, small enough to be copied by every launcher. All of them use directory
descriptors where paths would be too long; that is also why the remover is here: ``shutil.rmtree``
recurses and fails on the deep trees. Random trees are generated in ``test_property.py``.
"""

from __future__ import annotations

import os
import random
import stat
from collections.abc import Iterator
from typing import NamedTuple

KIB = 1024
MIB = 1024 * 1024
BLOCK_BYTES = 4 * MIB
FOREIGN_UID = 12345
FOREIGN_GID = 54321

ODD_NAMES = (
    b"-rf",
    b"--",
    b" leading and trailing ",
    b"two\nlines",
    b"carriage\rreturn",
    b"tab\tand\x07bell",
    b"\x1b[31mred",
    b"not utf-8 \xff\xfe\x80",
    b"lone surrogate \xed\xa0\x80",
    "emoji \N{GRINNING FACE}".encode(),
    "combining e\N{COMBINING ACUTE ACCENT}".encode(),
    "precomposed \N{LATIN SMALL LETTER E WITH ACUTE}".encode(),
    b"back\\slash",
    b"quote'\"`$(x)",
    b"*?[a]",
    b"...",
    b"~",
    b"#hash",
    b"n" * 255,
    b"n" * 254 + b"m",
    bytes(range(1, 47)) + bytes(range(48, 128)),
    bytes(range(128, 256)),
)

BORDER_SIZES = (
    0,
    1,
    511,
    4095,
    4096,
    4097,
    64 * KIB,
    MIB - 1,
    MIB + 1,
    BLOCK_BYTES - 1,
    BLOCK_BYTES,
    BLOCK_BYTES + 1,
    2 * BLOCK_BYTES + 12345,
)

# (seconds, nanoseconds) that every file system of today can keep: ext4 ends in 1901 and 2446.
ODD_TIMES_NS = (
    0,
    -1,
    -631_152_000 * 10**9 + 999_999_999,
    1,
    1_234_567_890_123_456_789,
    2**31 * 10**9 - 1,
    2**31 * 10**9,
    4_102_444_800 * 10**9 + 987_654_321,
)


def content(seed: int | str, size_bytes: int) -> bytes:
    """Return bytes without a period, so that a misplaced block is always detected."""
    return random.Random(seed).randbytes(size_bytes)


def write_file(path: bytes, data: bytes, mode: int = 0o644) -> bytes:
    """Create `path` with `data` and exactly `mode`, and return `path`."""
    with open(path, "xb") as stream:
        stream.write(data)
    os.chmod(path, mode)
    return path


def make_directory(root: bytes, *parts: bytes) -> bytes:
    """Create a directory below `root`, and the directories above it; return its path."""
    assert not any(part.startswith(b"/") for part in parts), "this would lead out of the root"
    path = os.path.join(root, *parts)
    os.makedirs(path)
    return path


def add_odd_names(root: bytes) -> None:
    """Add files, directories and links with names of all bytes except NUL and the slash."""
    files = make_directory(root, b"odd files")
    directories = make_directory(root, b"odd directories")
    links = make_directory(root, b"odd links")
    for number, name in enumerate(ODD_NAMES):
        write_file(os.path.join(files, name), content(number, 100 + number))
        inner = make_directory(directories, name)
        write_file(os.path.join(inner, name), content(-number, 10 + number))
        os.symlink(name, os.path.join(links, name))


def add_borders(root: bytes) -> None:
    """Add sizes next to each boundary, one that needs many chunks, and one with a long name."""
    borders = make_directory(root, b"borders")
    for size_bytes in BORDER_SIZES:
        write_file(os.path.join(borders, b"%d" % size_bytes), content(size_bytes, size_bytes))
    inner = make_directory(root, b"large", b"inner")
    write_file(os.path.join(inner, b"seventy"), content("seventy", 70 * MIB + 17))
    # A longer temporary name in the same directory would exceed the limit.
    write_file(os.path.join(inner, b"L" * 255), content("long", 2 * BLOCK_BYTES + 1))


def add_empty(root: bytes) -> None:
    """Add empty directories, alone and nested, and a directory of empty files only."""
    make_directory(root, b"empty", b"nested", b"again")
    files = make_directory(root, b"empty files")
    for number in range(20):
        write_file(os.path.join(files, b"%d" % number), b"")


def add_links(root: bytes, longest: int = 3000) -> None:
    """Add symbolic links: dangling, to directories, absolute, circular, long."""
    links = make_directory(root, b"links")
    targets = {
        b"dangling": b"no such file",
        b"to directory": b"../borders",
        b"to file": b"../borders/4096",
        b"absolute": b"/etc/hostname",
        b"outside": b"../../../..",
        b"itself": b"itself",
        b"bytes": b"\xff\n\x01",
        b"long": b"/".join([b"d" * 99] * (longest // 100)),
    }
    for name, target in targets.items():
        os.symlink(target, os.path.join(links, name))


def add_modes(root: bytes) -> None:
    """Add modes of files and directories, including those that hinder the copier itself."""
    modes = make_directory(root, b"modes")
    file_modes = [0o600, 0o444, 0o755, 0o777, 0o640, 0o400]
    if os.geteuid() == 0:
        file_modes += [0o000, 0o200, 0o111]
    for mode in file_modes:
        path = os.path.join(modes, b"file %04o" % mode)
        write_file(path, content(mode, 500), mode)
    for mode in (0o555, 0o700, 0o755, 0o777, 0o500):
        inner = make_directory(modes, b"directory %04o" % mode)
        write_file(os.path.join(inner, b"file"), content(-mode, 300))
        make_directory(inner, b"sub")
        os.chmod(inner, mode)


def add_special_bits(root: bytes) -> None:
    """Add set-user, set-group and sticky bits."""
    bits = make_directory(root, b"bits")
    for mode in (0o4755, 0o2755, 0o6711, 0o1644):
        write_file(os.path.join(bits, b"file %04o" % mode), content(mode, 100), mode)
    for mode in (0o2755, 0o1777):
        os.chmod(make_directory(bits, b"directory %04o" % mode), mode)


def add_holes(root: bytes) -> None:
    """Add sparse files: holes at the start, middle, end, everywhere, and across chunks."""
    holes = make_directory(root, b"holes")
    for name, size_bytes, data in (
        (b"start", 3 * MIB + 4096, ((3 * MIB, 4096),)),
        (b"middle", 6 * MIB, ((0, 8192), (6 * MIB - 8192, 8192))),
        (b"end", 10 * MIB, ((0, 4096),)),
        (b"all", 9 * MIB, ()),
        (b"chunks", 33 * MIB, ((0, 4096), (4 * MIB - 4096, 8192), (17 * MIB, MIB))),
        (b"small", 64 * KIB, ((32 * KIB, 4096),)),
        (b"small all", 16 * KIB, ()),
        (b"unaligned end", 5 * MIB + 123, ((MIB, 100),)),
    ):
        with open(os.path.join(holes, name), "xb") as stream:
            stream.truncate(size_bytes)
            for offset, length in data:
                stream.seek(offset)
                stream.write(content(offset, length))


def add_owners(root: bytes) -> None:
    """Add owners by number without a user name; only root can create them."""
    owners = make_directory(root, b"owners")
    write_file(os.path.join(owners, b"file"), b"owned")
    make_directory(owners, b"directory")
    os.symlink(b"file", os.path.join(owners, b"link"))
    if os.geteuid() == 0:
        for name in (b"file", b"directory", b"link"):
            path = os.path.join(owners, name)
            os.chown(path, FOREIGN_UID, FOREIGN_GID, follow_symlinks=False)


def add_times(root: bytes) -> None:
    """Add a file, a directory and a link for each odd time (`set_times` sets the times)."""
    times = make_directory(root, b"times")
    for number in range(len(ODD_TIMES_NS)):
        write_file(os.path.join(times, b"file %d" % number), content(number, 50))
        make_directory(times, b"directory %d" % number)
        os.symlink(b"x", os.path.join(times, b"link %d" % number))


def set_times(root: bytes) -> None:
    """Give every entry below `root`, and `root`, an odd modification time, children first."""
    number = 0
    for directory, _names, files in os.walk(root, topdown=False):
        paths = [os.path.join(directory, name) for name in sorted(files)]
        links = [entry.path for entry in os.scandir(directory) if entry.is_symlink()]
        for path in (*paths, *sorted(set(links) - set(paths)), directory):
            time_ns = ODD_TIMES_NS[number % len(ODD_TIMES_NS)]
            os.utime(path, ns=(time_ns, time_ns), follow_symlinks=False)
            number += 1


def build_odd_tree(root: bytes) -> bytes:
    """Build everything above in one tree of some 140 MiB; return `root`."""
    make_directory(root)
    for add in (
        add_odd_names,
        add_borders,
        add_empty,
        add_links,
        add_modes,
        add_holes,
        add_owners,
        add_times,
    ):
        add(root)
    set_times(root)
    return root


def build_small_tree(root: bytes) -> bytes:
    """Build a tree of a few dozen entries and 9 MiB, for tests whose subject is not the tree."""
    make_directory(root)
    for number in range(3):
        inner = make_directory(root, b"directory %d" % number, b"inner")
        for name in range(8):
            write_file(os.path.join(inner, b"%d" % name), content(name, 1000 * name))
    write_file(os.path.join(root, b"large"), content("large", 2 * BLOCK_BYTES + 5))
    os.symlink(b"large", os.path.join(root, b"link"))
    return root


def build_flat_tree(root: bytes, directories: int, files: int, size_bytes: int) -> bytes:
    """Build `directories` of `files` each; return `root`. Descriptors allow a million files."""
    os.makedirs(root, exist_ok=True)
    data = content("flat", size_bytes)
    for directory in range(directories):
        inner = make_directory(root, b"%06d" % directory)
        descriptor = os.open(inner, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for name in range(files):
                if not data:
                    os.mknod(b"%07d" % name, 0o644 | stat.S_IFREG, dir_fd=descriptor)
                    continue
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
                target = os.open(b"%07d" % name, flags, 0o644, dir_fd=descriptor)
                os.write(target, data)
                os.close(target)
        finally:
            os.close(descriptor)
    return root


def build_deep_tree(root: bytes, levels: int) -> bytes:
    """Build a chain of `levels` directories with entries to copy on the way; return `root`.

    Every level is 9 bytes of path, so 3,000 levels are six times ``PATH_MAX``. One descriptor is
    open at any time.
    """
    os.makedirs(root)
    here = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    for level in range(levels):
        if level % 50 == 0 or level == levels - 1:
            target = os.open(b"file", os.O_WRONLY | os.O_CREAT, 0o640, dir_fd=here)
            os.write(target, content(level, 1000 + level))
            os.close(target)
            os.symlink(b"file", b"link", dir_fd=here)
            os.mkdir(b"sibling", dir_fd=here)
        name = b"lev-%04d" % level
        os.mkdir(name, 0o755, dir_fd=here)
        below = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=here)
        os.close(here)
        here = below
    target = os.open(b"bottom", os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=here)
    os.write(target, content("bottom", BLOCK_BYTES + 9))
    os.close(target)
    # Bottom up through "..", so that no later creation changes a time that was set.
    for level in range(levels, -1, -1):
        time_ns = ODD_TIMES_NS[level % len(ODD_TIMES_NS)]
        for entry in (*sorted(os.listdir(here)), "."):
            # A level's subdirectory has its own time already, given when that level was "here".
            if not entry.startswith("lev-"):
                os.utime(entry, ns=(time_ns, time_ns), dir_fd=here, follow_symlinks=False)
        above = os.open("..", os.O_RDONLY | os.O_DIRECTORY, dir_fd=here)
        os.close(here)
        here = above
    os.close(here)
    return root


class Visit(NamedTuple):
    """One entry of a walk; `parent` is open only until the walk continues."""

    depth: int
    name: bytes
    status: os.stat_result
    parent: int


def walk(root: bytes) -> Iterator[Visit]:
    """Yield every entry below the directory `root`, parents first, names in byte order.

    It goes down by ``openat(name)`` and up by ``openat("..")``: one descriptor at any depth, no
    path at all. The tree must not change meanwhile.
    """
    here = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        pending = [sorted(map(os.fsencode, os.listdir(here)), reverse=True)]
        while pending:
            if not pending[-1]:
                pending.pop()
                if pending:
                    above = os.open("..", os.O_RDONLY | os.O_DIRECTORY, dir_fd=here)
                    os.close(here)
                    here = above
                continue
            name = pending[-1].pop()
            status = os.stat(name, dir_fd=here, follow_symlinks=False)
            yield Visit(len(pending), name, status, here)
            if stat.S_ISDIR(status.st_mode):
                flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
                below = os.open(name, flags, dir_fd=here)
                os.close(here)
                here = below
                pending.append(sorted(map(os.fsencode, os.listdir(here)), reverse=True))
    finally:
        os.close(here)


def build_failing(place: bytes, *names: bytes) -> tuple[bytes, bytes]:
    """Build a source of files and a target in which each of them is obstructed by a directory."""
    source, target = make_directory(place, b"source"), make_directory(place, b"target")
    for name in names:
        write_file(os.path.join(source, name), b"file")
        make_directory(target, name)
    return source, target


def remove_tree(root: bytes) -> None:
    """Delete `root` whatever its depth and modes; a missing root is no error."""
    if not os.path.lexists(root):
        return
    if not stat.S_ISDIR(os.lstat(root).st_mode):
        os.unlink(root)
        return
    here = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    entered: list[bytes] = []
    while True:
        os.fchmod(here, 0o700)
        below = _unlink_files(here)
        if below is not None:
            entered.append(below)
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
            try:
                inner = os.open(below, flags, dir_fd=here)
            except PermissionError:  # if an ordinary user may not read it
                os.chmod(below, 0o700, dir_fd=here)
                inner = os.open(below, flags, dir_fd=here)
            os.close(here)
            here = inner
        elif entered:
            above = os.open("..", os.O_RDONLY | os.O_DIRECTORY, dir_fd=here)
            os.close(here)
            here = above
            os.rmdir(entered.pop(), dir_fd=here)
        else:
            break
    os.close(here)
    os.rmdir(root)


def _unlink_files(here: int) -> bytes | None:
    """Unlink the entries of `here` up to the first directory, and return its name."""
    with os.scandir(here) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                return os.fsencode(entry.name)
            os.unlink(entry.name, dir_fd=here)
    return None


def count(root: bytes) -> tuple[int, int]:
    """Count the entries of the tree, `root` included, and the bytes of its regular files."""
    entries, size_bytes = 1, 0
    for visit in walk(root):
        entries += 1
        if stat.S_ISREG(visit.status.st_mode):
            size_bytes += visit.status.st_size
    return entries, size_bytes
