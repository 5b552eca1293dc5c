"""Changes in a source since the last complete run, and the proof that no change is missed.

btrfs reports changes if the source is a read-only snapshot of the same subvolume as the last
source, because everything in it is on disk and no longer changes. For each inode that is newer than
the last run, btrfs returns its paths. The names in each newer directory are compared with those in
the target. In this way new, removed and renamed entries are found in the directories that they
entered and left. A subvolume within the source appears in the snapshot as an empty directory
without an inode, so it is compared with all its contents if its name is new. Nothing else is
compared on either side. `--changed=fs` asserts that only fmirror has changed the target, and
`--changed=auto` requires a proof.

With `--changed-from`, only the entries of a list are compared. Listed entries that the source lacks
are extraneous.

The proof uses the last state. For the source, it shows that the snapshot of the last complete run
still exists unchanged. Identities of snapshots are random, so a file system that has this snapshot
shares its history, and was neither recreated nor restored from an earlier image. Later changes have
newer generations. For the target, the proof shows that no inode has changed since. btrfs records
the last change by generation and by nanosecond. A restored file system does not reproduce these
values, and a snapshot of the target does not change them. No clocks are compared.
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
    Subvolume,
    changed_since,
    has_subvolumes,
    names_of,
    number_of,
    path_of,
    subvolume_of,
    subvolumes_in,
    sync,
)
from pcircle.fs.attributes.mounts import mounts_below
from pcircle.fs.directories import Directories, bases, capacity_of, open_below, working_directory
from pcircle.fs.lists import record_of
from pcircle.fs.open_flags import OPEN_DIRECTORY_FOLLOW
from pcircle.fs.sorting import Sorter
from pcircle.tools.fmirror.options import MirrorOptions
from pcircle.tools.fmirror.plan import kept_words
from pcircle.tools.fmirror.state import state
from pcircle.tools.fmirror.state.state import Identity, MirrorState, SubvolumeState
from pcircle.tools.fmirror.work.extraneous import ExtraneousFinder, Surplus, packed
from pcircle.walk.attributes import ANY

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

    `gone` receives the other entries if they are extraneous, which requires a `finder`. The
    directories `sides` are identified by `known` as in `RootPath`. The records include parent
    directories, because their times have changed. Raise StoppedEarly if temporary space runs out.
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
    """Return the topmost missing component of a path, as a path."""
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


def source_of(path: bytes) -> Subvolume | None:
    """Return the subvolume whose root is this directory, or None if it is not such a root.

    Raise OSError if the directory cannot be opened.
    """
    fd = os.open(path, OPEN_DIRECTORY_FOLLOW)
    try:
        return subvolume_of(fd)
    finally:
        os.close(fd)


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
    fd = os.open(source, OPEN_DIRECTORY_FOLLOW)
    top = os.open(target, OPEN_DIRECTORY_FOLLOW)
    try:
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
    finally:
        os.close(fd)
        os.close(top)
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
        fd = open_below(top_fd, path)
        try:
            with os.scandir(to_scan(fd)) as entries:
                for entry in entries:
                    name = os.fsencode(entry.name)
                    if entry.is_dir(follow_symlinks=False):
                        paths.append(os.path.join(path, name))
                        continue
                    status = os.stat(name, dir_fd=fd, follow_symlinks=False)
                    if status.st_nlink > 1:
                        for above, other in names_of(top_fd, status.st_ino):
                            yield record_of(os.path.join(path_of(top_fd, above), other))
        finally:
            os.close(fd)


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


# ---- proof ---------------------------------------------------------------------------------------


def is_whole(options: MirrorOptions) -> bool:
    """Return whether a run covers the whole source and leaves the target equal to it."""
    upkeep = options.upkeep
    if options.filters or options.files_from is not None or options.wanted != ANY:
        return False
    if options.apply is not None:
        return False
    if options.one_file_system and mounts_below(options.sources[0]):
        return False
    part = upkeep.newer or upkeep.stays or upkeep.existing or upkeep.prunes
    return not (part or options.compare_dest)


def other_target(options: MirrorOptions, known: MirrorState) -> str:
    """Return why the target is not in the state of the last complete run, or an empty string."""
    target = options.target
    if state.identity_if_readable(target) != known.target:
        return "the target is not the directory of the last complete run"
    if not frozenset(kept_words(options.keep)) <= known.compared:
        return "the last complete run kept fewer attributes"
    if not state.has_same_owners(known, options.keep.given):
        return "the last complete run set other owners or modes, or names are mapped"
    if not state.has_mark(target, known):
        return "the target was changed since the last complete run, or restored from an image"
    return ""


def overdue(options: MirrorOptions, known: MirrorState) -> str:
    """Return why everything must be compared again, or an empty string."""
    if options.full_every_s is None:
        return ""
    if state.now_ns() - known.full_ns <= options.full_every_s * 10**9:
        return ""
    return "the last full run is older than --full-every"


def quiet_ns(
    options: MirrorOptions, known: MirrorState, identity: Identity | None
) -> tuple[int, int] | None:
    """Return a time limit for the source and one for the target.

    Entries whose change times are older than these limits are unchanged since the last complete
    run. `identity` is the identity of the source. Return None if either file system is not the same
    as at the last complete run or was restored from an image.
    """
    ours_ns = source_quiet_ns(options, known, identity)
    try:
        there = state.identity_of(options.target)
        is_marked = state.has_mark(options.target, known)
    except OSError:
        return None
    if ours_ns is None or there != known.target or not is_marked:
        return None
    if there.filesystem.endswith(" -"):
        return None
    return ours_ns, state.quiet_since(known, there.filesystem)


def source_quiet_ns(
    options: MirrorOptions, known: MirrorState, identity: Identity | None
) -> int | None:
    """Return the limit of `quiet_ns` for the source."""
    wanted = frozenset(kept_words(options.keep))
    wanted |= {state.READ} if options.upkeep.ctime else set()
    if identity is None or identity != known.identity or not wanted <= known.compared:
        return None
    if not state.has_same_owners(known, options.keep.given):
        return None
    try:
        if not state.session_of(options.sources[0]).continues(known.session):
            return None
    except OSError:
        return None
    return state.quiet_since(known, identity.filesystem)


def snapshot_of(now: Subvolume | None) -> tuple[tuple[str, int], str] | None:
    """Return a source's origin with its generation, and its identity, for the state.

    Return None unless the source is an unchanged read-only snapshot, because nothing else proves
    anything to a later run.
    """
    if now is None or not now.read_only or now.is_touched:
        return None
    return (now.origin, now.generation), now.uuid


def number_of_last(source: bytes, known: MirrorState) -> int | None:
    """Return the number of the last run's snapshot, or None unless it still exists unchanged."""
    if known.snapshot is None:
        return None
    fd = os.open(source, OPEN_DIRECTORY_FOLLOW)
    try:
        return number_of(fd, known.snapshot)
    except OSError:
        return None
    finally:
        os.close(fd)


def left_of(target: bytes) -> SubvolumeState | None:
    """Return the state of a target after everything was written to disk, or None if unknown."""
    try:
        fd = os.open(target, OPEN_DIRECTORY_FOLLOW)
        try:
            if subvolume_of(fd) is None:
                return None
            sync(fd)  # otherwise delayed writes would change inodes later
            now = subvolume_of(fd)
        finally:
            os.close(fd)
    except OSError:
        return None
    return None if now is None or now.read_only else SubvolumeState(now.uuid, *now.changed)


def _has_subvolumes(target: bytes) -> bool:
    """Return whether a target that is a subvolume may contain other subvolumes."""
    try:
        fd = os.open(target, OPEN_DIRECTORY_FOLLOW)
        try:
            return has_subvolumes(fd)
        finally:
            os.close(fd)
    except OSError:
        return True


def unproven(options: MirrorOptions, known: MirrorState, number: int | None) -> str:
    """Return why a change may have been missed, or an empty string."""
    if options.upkeep.look in ("content", "none"):
        return "all files must be compared or copied"
    if not is_whole(options):
        return "only part of the source is selected"
    if number is None:
        return "the snapshot of the last complete run no longer exists"
    if options.deleting.wanted and not known.alike:
        return "the last complete run left entries that the source lacks"
    if known.left is None:
        return "the target was not a btrfs subvolume at the last complete run"
    if mounts_below(options.target) or _has_subvolumes(options.target):
        return "there are subvolumes or mount points below the target"
    if known.left != left_of(options.target):
        return "the target was changed since the last complete run"
    return ""
