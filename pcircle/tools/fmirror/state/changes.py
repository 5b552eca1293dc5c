"""Changes in a source since the last complete run.

btrfs can report changes if the source is a read-only snapshot of the same subvolume as the last
source. Everything in such a snapshot is on disk and no longer changes. btrfs returns the paths of
each file that has changed since the last run. The names in each changed directory are compared with
those in the target. In this way new, removed and renamed entries are found in the directories that
they entered and left. A subvolume within the source appears in the snapshot as an empty directory
without an inode of its own. If its name is new, it is compared with all its contents. Nothing else
is compared on either side. `--changed=fs` asserts that only fmirror has changed the target, and
`--changed=auto` requires a proof (`pcircle.tools.fmirror.state.state`).

With `--changed-from`, only the entries of a list are compared. Listed entries that the source lacks
are extraneous.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby

import msgspec

from pcircle.core.encoding import text_of, to_scan
from pcircle.fs.attributes.btrfs import (
    ROOT_INODE,
    changed_since,
    names_of,
    path_of,
    subvolumes_in,
)
from pcircle.fs.attributes.mounts import mounts_below
from pcircle.fs.directories import (
    Directories,
    bases,
    capacity_of,
    closing_fd,
    open_below,
    working_directory,
)
from pcircle.fs.lists import record_of
from pcircle.fs.open_flags import OPEN_DIRECTORY_FOLLOW
from pcircle.fs.sorting import Sorter
from pcircle.tools.fmirror.state.state import source_of
from pcircle.tools.fmirror.work.extraneous import ExtraneousFinder, Surplus, packed

_NO_SUCH = (FileNotFoundError, NotADirectoryError)


# ---- changes in a list ---------------------------------------------------------------------------


def named(
    records: Iterable[bytes],
    sides: tuple[bytes, bytes],
    finder: ExtraneousFinder | None,
    gone: Callable[[Surplus], None],
    known: Sequence[tuple[int, int] | None] = (),
) -> Iterator[bytes]:
    """Yield the records of the listed entries that exist in the source.

    If a `finder` is given, `gone` receives the other entries that are extraneous. The directories
    `sides` are identified by `known` as in `RootPath`. The records include parent directories,
    because their times may have changed. Raise StoppedEarly if temporary space runs out.
    """
    base = bases([(side, b"") for side in sides], working_directory(), known)
    directories = Directories(base, capacity_of(is_first=True))
    missing = Sorter()
    try:
        for record in records:
            path = record.rstrip(b"\0").replace(b"\0", b"/")
            above, _, name = path.rpartition(b"/")
            try:
                if name:
                    with directories.lease(0, above) as lease:
                        os.stat(name, dir_fd=lease.fd, follow_symlinks=False)
                    yield record_of(above or b".")
            except _NO_SUCH:
                missing.add(record)
                continue
            except OSError:
                pass  # the comparison will report the error
            yield record
        yield from _missing(missing.sorted(), directories, finder, gone)
    finally:
        missing.close()
        directories.close()


def _missing(
    records: Iterable[bytes],
    directories: Directories,
    finder: ExtraneousFinder | None,
    gone: Callable[[Surplus], None],
) -> Iterator[bytes]:
    """Yield records of directories that have lost listed entries, and report extraneous paths."""
    paths = (record.rstrip(b"\0").replace(b"\0", b"/") for record in records)
    tops = ((_top(path, directories), path) for path in paths)
    for above, group in groupby(tops, lambda item: os.path.dirname(item[0])):
        yield record_of(above or b".")
        if finder is None:
            continue
        try:
            surplus = _surplus(above, directories, finder)
        except _NO_SUCH:
            continue  # the target lacks the directory
        except OSError:
            yield record_of(above or b".", whole=True)  # the comparison will report the error
            continue
        there = (path for top, path in group if top in surplus and _is_there(path, directories))
        gone(packed(0, there))


def _top(path: bytes, directories: Directories) -> bytes:
    """Return the shortest prefix of a path that is missing in the source."""
    while True:
        above = os.path.dirname(path)
        if not above:
            return path
        try:
            with directories.lease(0, above):
                return path
        except OSError:
            path = above


def _is_there(path: bytes, directories: Directories) -> bool:
    above, _, name = path.rpartition(b"/")
    try:
        with directories.lease(1, above) as lease:
            os.stat(name, dir_fd=lease.fd, follow_symlinks=False)
    except _NO_SUCH:
        return False
    except OSError:
        pass  # the removal will report the error
    return True


def _surplus(above: bytes, directories: Directories, finder: ExtraneousFinder) -> set[bytes]:
    """Return the paths of the entries that exist only in the target's directory.

    Raise OSError if a directory cannot be read.
    """
    lease = directories.lease
    with lease(0, above, readable=True) as source, lease(1, above, readable=True) as target:
        names = {text_of(name) for name in os.listdir(b"/proc/self/fd/%d" % source.fd)}
        found = finder.surplus(names, (source.fd, target.fd), above)
        return {path for paths in found for path in paths}


# ---- changes that btrfs reports ------------------------------------------------------------------


class Changes(msgspec.Struct, frozen=True):
    """The changes that btrfs reports.

    `records` are list records of the entries to compare, and `surplus` contains the extraneous
    paths.
    """

    records: list[bytes]
    surplus: list[bytes]


def unfit(path: bytes, known: tuple[str, int] | None) -> str:
    """Return why the file system cannot report the changes in a source, or an empty string.

    `known` contains the source's origin and generation at the last complete run.
    """
    try:
        now = source_of(path)
    except OSError as error:
        return f"it could not be queried: {error.strerror}"
    if now is None or not now.read_only:
        return "the source is not a read-only btrfs snapshot"
    if os.geteuid():
        return "only root can query btrfs"
    if known is None:
        return "no earlier complete run with a known generation exists"
    if now.origin != known[0] or now.generation < known[1]:
        return "the source is not a later state of the source of the last complete run"
    if mounts_below(path):
        return "there are mount points below the source"
    return ""


def found(
    source: bytes,
    target: bytes,
    generation: int,
    number: int | None,
    finder: ExtraneousFinder | None,
) -> Changes:
    """Return the changes in a source since a generation.

    `number` identifies the earlier snapshot if it still exists. If there is no `finder`, extraneous
    entries are ignored. Raise OSError if btrfs cannot be queried or a directory cannot be read.
    """
    changes = Changes([], [])
    with (
        closing_fd(os.open(source, OPEN_DIRECTORY_FOLLOW)) as fd,
        closing_fd(os.open(target, OPEN_DIRECTORY_FOLLOW)) as top,
    ):
        directories = set()
        for inode, mode in changed_since(fd, generation):
            if stat.S_ISDIR(mode):
                directories.add(inode)
                continue
            for directory, name in names_of(fd, inode):
                path = os.path.join(path_of(fd, directory), name)
                changes.records.append(record_of(path, whole=False))
        paths = {path_of(fd, inode): inode for inode in directories}
        whole: bytes | None = None
        for path in sorted(paths, key=lambda path: path.split(b"/")):
            if whole is not None and path.startswith(whole):
                continue
            if _may_have_moved(fd, paths[path], directories, number):
                changes.records.append(record_of(path, whole=True))
                changes.records.extend(_other_names(fd, path))
                whole = path + b"/"
            else:
                _directory(path, (fd, top), changes, finder)
                for name in subvolumes_in(fd, paths[path], generation):
                    changes.records.append(record_of(os.path.join(path, name), whole=True))
    return changes


def _may_have_moved(fd: int, inode: int, changed: set[int], number: int | None) -> bool:
    """Return whether entries below a directory may have had another path.

    The earlier snapshot shows the former path. If it no longer exists, a changed parent directory
    counts as a sign of a rename.
    """
    if inode == ROOT_INODE:
        return False
    if number is None:
        return any(above in changed for above, _ in names_of(fd, inode))
    try:
        return path_of(fd, inode, number) != path_of(fd, inode)
    except FileNotFoundError:
        return True


def _other_names(top_fd: int, path: bytes) -> Iterator[bytes]:
    """Yield records of all names of hard-linked files below a directory."""
    paths = [path]
    while paths:
        path = paths.pop()
        with closing_fd(open_below(top_fd, path)) as fd, os.scandir(to_scan(fd)) as entries:
            for entry in entries:
                name = os.fsencode(entry.name)
                if entry.is_dir(follow_symlinks=False):
                    paths.append(os.path.join(path, name))
                    continue
                status = os.stat(name, dir_fd=fd, follow_symlinks=False)
                if status.st_nlink > 1:
                    for above, other in names_of(top_fd, status.st_ino):
                        yield record_of(os.path.join(path_of(top_fd, above), other))


def _directory(
    path: bytes, tops: tuple[int, int], changes: Changes, finder: ExtraneousFinder | None
) -> None:
    """Compare the names in a directory with those in the target.

    If the target lacks the directory, record it with all its contents.
    """
    changes.records.append(record_of(path or b".", whole=False))
    fds = [open_below(tops[0], path)]
    try:
        fds.append(open_below(tops[1], path))
        here, there = (set(os.listdir(b"/proc/self/fd/%d" % fd)) for fd in fds)
        for name in here - there:
            changes.records.append(record_of(os.path.join(path, name), whole=True))
        if finder is not None and there - here:
            names = set(map(text_of, here))
            for paths in finder.surplus(names, (fds[0], fds[1]), path):
                changes.surplus.extend(paths)
    except (FileNotFoundError, NotADirectoryError):
        changes.records.append(record_of(path, whole=True))
    finally:
        for fd in fds:
            os.close(fd)
