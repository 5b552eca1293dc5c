"""The state of the last complete run, what it proves, and the locks that prevent simultaneous runs.

The state is a small file, by default next to the target. It identifies the source: if a disk is not
mounted, the source's path leads to an empty directory or another file system, and then nothing may
be removed. The file is text. Each line begins with a keyword and a space:

    fmirror 4              the file type, and the version of the format
    source PATH            the path of the source, percent-encoded as in the error log
    filesystem TYPE ID     type and hexadecimal identity of the source's file system, or `-`
                           if the identity is unknown
    session NUMBER WORDS   the generation of a btrfs snapshot, or 0; then the identity of the
                           source's file system while it stays mounted, or `-`
    root INODE             the inode number of the source directory
    target TYPE ID INODE   file system and inode number of the target directory
    mark SECONDS           the change time that the last run gave the target at its end, or 0
    kept WORDS             the compared fields of fdiff, separated by commas, and `ctime` if the
                           contents of all files with a new change time were compared
    given DIGEST           digest of the owners and modes that options specified, or `-`
    began SECONDS          start of the run, in seconds since 1970 with nine decimal places
    full SECONDS           start of the last run that compared both sides completely
    touched SECONDS        start of the last run that may have changed the target, or its end if
                           that run was complete
    moved SECONDS          time at which a run last began to remove copied entries from a source;
                           omitted if the whole target has been a copy of a source since
    entries COUNT          number of entries in the source
    mount PATH             a mount point below the source (one line for each)
    subvolume ID NUMBER    origin and generation of the source if it is a read-only btrfs snapshot,
                           or `- 0`
    snapshot ID            identity of that snapshot, or `-`
    left ID NUMBER TIME    state of the target at the end of the run if it is a btrfs subvolume:
                           its identity, and its last change by generation and in nanoseconds
                           since 1970; otherwise `- 0 0`
    names WHICH            `alike` if the target then had no name that the source lacked, or `more`

Each line ends with a newline, and the order of lines is not significant. If a run did not cover the
whole source (because of filters, a list, `--existing` and similar options), it leaves an existing
state unchanged. If there is none, it writes a state whose `kept` is empty.

The file name consists of `.fmirror-`, sixteen hex digits of a hash of the target's path (XXH3, 64
bits), and `.state`. A file is ignored if it has another version or if other users may write to it.

A run locks the target directory, and a file next to the state. Without locks, two simultaneous runs
would undo each other's work, and both would report success. The kernel holds the locks, so a killed
run leaves none. The lock on the directory works for every path to it, for example through a bind
mount. The lock on the file excludes another run while the directory does not exist yet. A run
removes the file at its end. If write permission is missing or locks are not supported, there is no
lock.

A run uses the state as proof that nothing has changed since, or that all changes are known. For the
source, it shows that the snapshot of that run still exists unchanged. Identities of snapshots are
random, so a file system that has this snapshot shares its history. It was neither recreated nor
restored from an earlier image. Later changes have newer generations. For the target, it shows that
no inode has changed since. For the last change, btrfs records the generation and the time in
nanoseconds. A restored file system does not reproduce these values, and a snapshot of the target
does not change them. No clocks are compared.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from contextlib import suppress
from typing import NamedTuple

import msgspec
import xxhash
from msgspec import msgpack

from pcircle.core.encoding import show
from pcircle.core.errors import UsageError
from pcircle.core.writing import write_all
from pcircle.fs.attributes.btrfs import Subvolume, has_subvolumes, number_of, subvolume_of, sync
from pcircle.fs.attributes.mounts import mounts_below, type_of_mount
from pcircle.fs.attributes.owners import Given
from pcircle.fs.directories import closing_fd
from pcircle.fs.file_system import LOCAL, session, volume_id
from pcircle.fs.open_flags import OPEN_DIRECTORY_FOLLOW
from pcircle.fs.safe_open import OTHERS_WRITE, create, opened, replace
from pcircle.fs.safe_open import place_of as trusted_place
from pcircle.fs.status import birth_ns
from pcircle.jobs.failures import encode
from pcircle.tools.fmirror.options import MirrorOptions
from pcircle.tools.fmirror.plan import kept_words
from pcircle.walk.attributes import ANY

READ = "ctime"
"""The word in `kept` for a run that compared the contents of all files with a new change time."""

_FIRST = "fmirror 4"
_LOCAL_NS, _SERVED_NS = 2 * 10**9, 3600 * 10**9


class Identity(msgspec.Struct, frozen=True):
    """The identity of a directory; it stays the same if its file system is mounted again."""

    filesystem: str
    root: int


class Session(msgspec.Struct, frozen=True):
    """The identity of a source file system while it stays mounted.

    `words` is `-` if it is unknown. `generation` is that of a read-only btrfs snapshot, or 0.
    """

    words: str = "-"
    generation: int = 0

    def continues(self, last: Session) -> bool:
        """Return whether this session continues the session of the `last` run."""
        return self.words != "-" and self.words == last.words and self.generation >= last.generation


class SubvolumeState(NamedTuple):
    """The identity of a btrfs subvolume, and the last change to any of its inodes."""

    uuid: str
    generation: int
    changed_ns: int


class MirrorState(msgspec.Struct, frozen=True):
    """The facts about the last complete run that the state file records."""

    source: str
    identity: Identity
    target: Identity
    compared: frozenset[str]
    began_ns: int
    entries: int
    subvolume: tuple[str, int] | None = None
    mounts: frozenset[str] = frozenset()
    snapshot: str | None = None
    left: SubvolumeState | None = None
    alike: bool = False
    given: str = "-"
    full_ns: int = 0
    touched_ns: int = 0
    moved_ns: int = 0
    session: Session = Session()
    mark_ns: int = 0


def identity_of(path: bytes) -> Identity:
    """Return the identity of a directory; all snapshots of a btrfs subvolume share it.

    Raise OSError if the directory cannot be opened.
    """
    with closing_fd(os.open(path, OPEN_DIRECTORY_FOLLOW)) as fd:
        status, subvolume = os.fstat(fd), subvolume_of(fd)
        kind = type_of_mount(fd) or b"unknown"
        known = volume_id(fd, kind)
    if subvolume is not None:
        return Identity(f"btrfs {subvolume.origin}", status.st_ino)
    return Identity(f"{kind.decode(errors='replace')} {known or '-'}", status.st_ino)


def session_of(path: bytes) -> Session:
    """Return the session of a source. Raise OSError if it cannot be opened."""
    with closing_fd(os.open(path, OPEN_DIRECTORY_FOLLOW)) as fd:
        mounted, subvolume = session(fd), subvolume_of(fd)
    if mounted is None:
        return Session()
    if subvolume is None:
        return Session(mounted)
    if subvolume.read_only and not subvolume.is_touched:
        return Session(f"{mounted} {subvolume.origin}", subvolume.generation)
    return Session(f"{mounted} {subvolume.uuid} writable")


def give_mark(target: bytes) -> int:
    """Give a target a new change time, and return it for the state, or 0 if that is not possible.

    If the file system is later restored from an image, the target will have an older change time.
    """
    try:
        with closing_fd(os.open(target, OPEN_DIRECTORY_FOLLOW)) as fd:
            before = os.fstat(fd)
            os.utime(fd, ns=(before.st_atime_ns, before.st_mtime_ns))
            after_ns = os.fstat(fd).st_ctime_ns
    except OSError:
        return 0
    return after_ns if after_ns != before.st_ctime_ns else 0


def has_mark(target: bytes, known: MirrorState) -> bool:
    """Return whether a target has the change time that the last run gave it.

    Raise OSError if the target cannot be examined.
    """
    return known.mark_ns != 0 and os.stat(target).st_ctime_ns == known.mark_ns


def is_new(target: bytes, known: MirrorState) -> bool:
    """Return whether a target was created after the last run, so that the state does not apply.

    Only birth times on a local file system can be compared with the state, because they come from
    the same clock.
    """
    kind = known.target.filesystem.partition(" ")[0].encode()
    born_ns = birth_ns(target, None, follow=True) if kind in LOCAL else None
    return born_ns is not None and born_ns > known.touched_ns


def identity_if_readable(path: bytes) -> Identity | None:
    """Return the identity of a directory, or None if it cannot be opened.

    The walk will report that error.
    """
    try:
        return identity_of(path)
    except OSError:
        return None


def place_of(target: bytes, directory: bytes | None) -> bytes:
    """Return the path of a target's state file, next to the target or in `directory`."""
    real = os.path.realpath(target)
    name = b".fmirror-%016x.state" % xxhash.xxh3_64_intdigest(real)
    return os.path.join(os.path.dirname(real) if directory is None else directory, name)


def read(path: bytes) -> MirrorState | None:
    """Return the recorded state, or None if it is missing, invalid or not trusted."""
    try:
        with trusted_place(path) as place:
            fd = opened(place, os.O_RDONLY)
        with open(fd, "rb") as stream:
            status = os.fstat(stream.fileno())
            if status.st_uid not in (0, os.geteuid()) or status.st_mode & OTHERS_WRITE:
                return None
            lines = stream.read(1 << 16).decode().splitlines()
        if not lines or lines[0] != _FIRST:
            return None
        words = {word: value for word, _, value in (line.partition(" ") for line in lines[1:])}
        filesystem, _, inode = words["target"].rpartition(" ")
        origin, _, generation = words["subvolume"].partition(" ")
        uuid, *numbers = words["left"].split(" ")
        number, _, mounted = words["session"].partition(" ")
        return MirrorState(
            source=words["source"],
            identity=Identity(words["filesystem"], int(words["root"])),
            target=Identity(filesystem, int(inode)),
            compared=frozenset(filter(None, words["kept"].split(","))),
            began_ns=_read_time(words["began"]),
            entries=int(words["entries"]),
            subvolume=None if origin == "-" else (origin, int(generation)),
            mounts=frozenset(line[6:] for line in lines if line.startswith("mount ")),
            snapshot=None if words["snapshot"] == "-" else words["snapshot"],
            left=None if uuid == "-" else SubvolumeState(uuid, *map(int, numbers)),
            alike=words["names"] == "alike",
            given=words["given"],
            full_ns=_read_time(words["full"]),
            touched_ns=_read_time(words["touched"]),
            moved_ns=_read_time(words.get("moved", "0.0")),
            session=Session(mounted, int(number)),
            mark_ns=_read_time(words["mark"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write(path: bytes, run: MirrorState) -> None:
    """Write the state file. Raise OSError on failure."""
    lines = (
        _FIRST,
        f"source {run.source}",
        f"filesystem {run.identity.filesystem}",
        f"root {run.identity.root}",
        f"session {run.session.generation} {run.session.words}",
        f"target {run.target.filesystem} {run.target.root}",
        f"mark {_time(run.mark_ns)}",
        f"kept {','.join(sorted(run.compared))}",
        f"given {run.given}",
        f"began {_time(run.began_ns)}",
        f"full {_time(run.full_ns)}",
        f"touched {_time(run.touched_ns)}",
        *([f"moved {_time(run.moved_ns)}"] if run.moved_ns else ()),
        f"entries {run.entries}",
        "subvolume {} {}".format(*run.subvolume or ("-", 0)),
        f"snapshot {run.snapshot or '-'}",
        "left {} {} {}".format(*run.left or ("-", 0, 0)),
        f"names {'alike' if run.alike else 'more'}",
        *(f"mount {path}" for path in sorted(run.mounts)),
    )
    temporary = path + b".%d" % os.getpid()
    fd = create(temporary, 0o600)
    try:
        with closing_fd(fd):
            write_all(fd, "".join(f"{line}\n" for line in lines).encode())
        replace(temporary, path)
    except OSError:
        with suppress(OSError):  # the first error is more useful to the user
            os.unlink(temporary)
        raise


def _time(ns: int) -> str:
    seconds, fraction_ns = divmod(ns, 10**9)
    return f"{seconds}.{fraction_ns:09}"


def _read_time(text: str) -> int:
    seconds, _, fraction_ns = text.partition(".")
    return int(seconds) * 10**9 + int(fraction_ns)


def digest_of(given: Given | None) -> str:
    """Return the digest of the owners and modes that options specify.

    Return `names` if they depend on names, because the number of a name may change between runs.
    """
    if given is None:
        return "-"
    return "names" if given.by_name else f"{xxhash.xxh3_64_intdigest(msgpack.encode(given)):016x}"


def has_same_owners(state: MirrorState, given: Given | None) -> bool:
    """Return whether the last complete run certainly set the same owners and modes."""
    return (given is None or not given.by_name) and state.given == digest_of(given)


def mounts_of(source: bytes) -> frozenset[str]:
    """Return the mount points below a source in the encoding of the state."""
    return frozenset(map(encode, mounts_below(source)))


def quiet_since(state: MirrorState, filesystem: str) -> int:
    """Return the time limit for the change times of unchanged entries.

    An entry whose change time is not earlier may have changed since the last complete run. A local
    file system takes change times from this machine's clock, possibly rounded to two seconds. Other
    times are set by a server whose clock may be wrong.
    """
    kind = filesystem.partition(" ")[0].encode()
    return state.began_ns - (_LOCAL_NS if kind in LOCAL else _SERVED_NS)


def now_ns() -> int:
    """Return the current time as recorded in the state."""
    return time.time_ns()


# ---- lock ----------------------------------------------------------------------------------------

_TAKEN = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)  # NFS returns EACCES


def lock_place_of(target: bytes, directory: bytes | None) -> bytes:
    """Return the path of the lock file, next to the target or in `directory`.

    Next to the target, the file is named only after the target's name, because several paths may
    lead to its parent directory.
    """
    real = os.path.realpath(target)
    above, name = os.path.split(real)
    known_by = name if directory is None else real
    name = b".fmirror-%016x.lock" % xxhash.xxh3_64_intdigest(known_by)
    return os.path.join(above if directory is None else directory, name)


class Lock:
    """The lock of a run: rank 0 takes it once, and `end` releases it."""

    def __init__(self) -> None:
        self._fd = self._directory_fd = -1
        self._path = b""

    def take(self, target: bytes, directory: bytes | None) -> None:
        """Lock a target. Raise UsageError if another run holds the lock.

        The lock file is in `directory` or next to the target.
        """
        if self._fd < 0:
            self._take_file(lock_place_of(target, directory), target)
        if self._directory_fd < 0:
            self._take_directory(target)

    def _take_file(self, path: bytes, target: bytes) -> None:
        while self._fd < 0:
            try:
                fd = _file(path)
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    if os.path.samestat(os.fstat(fd), os.lstat(path)):
                        self._fd, self._path = fd, path
                        return
                finally:
                    if self._fd < 0:
                        os.close(fd)
            except BlockingIOError:
                raise _is_taken(target) from None
            except (FileExistsError, FileNotFoundError):
                if not os.path.isdir(os.path.dirname(path)):
                    return
            except OSError:
                return

    def _take_directory(self, target: bytes) -> None:
        try:
            fd = os.open(target, OPEN_DIRECTORY_FOLLOW)
        except OSError:
            return  # the directory does not exist yet or is unreadable
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if error.errno not in _TAKEN:
                return  # the file system does not lock directories
            self.end()
            raise _is_taken(target) from None
        self._directory_fd = fd

    def end(self) -> None:
        """Release the lock."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            with suppress(OSError):
                os.unlink(self._path)
            with suppress(OSError):
                os.close(fd)
        if self._directory_fd >= 0:
            fd, self._directory_fd = self._directory_fd, -1
            with suppress(OSError):
                fcntl.flock(fd, fcntl.LOCK_UN)  # even if other processes have inherited the lock
            with suppress(OSError):
                os.close(fd)


def _is_taken(target: bytes) -> UsageError:
    text = "another run of fmirror is in progress there; wait until it ends"
    return UsageError(f"'{show(target)}': {text}")


def _file(path: bytes) -> int:
    """Open the lock file, and create it if necessary.

    Raise OSError on failure, or if the file was not created by this user's runs.
    """
    with suppress(FileExistsError):
        return create(path, 0o600)
    with trusted_place(path) as place:
        if place.status is None:
            raise FileNotFoundError
        if not stat.S_ISREG(place.status.st_mode) or place.status.st_uid != os.geteuid():
            raise PermissionError
        return opened(place, os.O_WRONLY)


def source_of(path: bytes) -> Subvolume | None:
    """Return the subvolume whose root is this directory, or None if it is not such a root.

    Raise OSError if the directory cannot be opened.
    """
    with closing_fd(os.open(path, OPEN_DIRECTORY_FOLLOW)) as fd:
        return subvolume_of(fd)


def is_whole(options: MirrorOptions) -> bool:
    """Return whether a run covers the whole source and leaves the target equal to it."""
    upkeep = options.upkeep
    if options.filters or options.files_from is not None or options.attribute_filter != ANY:
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
    if identity_if_readable(target) != known.target:
        return "the target is not the directory that the last complete run used"
    if not frozenset(kept_words(options.keep)) <= known.compared:
        return "the last complete run kept fewer attributes"
    if not has_same_owners(known, options.keep.given):
        return "the last complete run set other owners or modes, or names are mapped"
    if not has_mark(target, known):
        return "the target was changed since the last complete run, or restored from an image"
    return ""


def overdue(options: MirrorOptions, known: MirrorState) -> str:
    """Return why everything must be compared again, or an empty string."""
    if options.full_every_s is None:
        return ""
    if now_ns() - known.full_ns <= options.full_every_s * 10**9:
        return ""
    return "the last full run is older than --full-every"


def quiet_ns(
    options: MirrorOptions, known: MirrorState, identity: Identity | None
) -> tuple[int, int] | None:
    """Return a time limit for the source and one for the target.

    Entries whose change times are older than these limits are unchanged since the last complete
    run. `identity` is the identity of the source. Return None if this is not certain, for example
    because a file system was replaced or restored from an image.
    """
    ours_ns = source_quiet_ns(options, known, identity)
    try:
        there = identity_of(options.target)
        is_marked = has_mark(options.target, known)
    except OSError:
        return None
    if ours_ns is None or there != known.target or not is_marked:
        return None
    if there.filesystem.endswith(" -"):
        return None
    return ours_ns, quiet_since(known, there.filesystem)


def source_quiet_ns(
    options: MirrorOptions, known: MirrorState, identity: Identity | None
) -> int | None:
    """Return the limit of `quiet_ns` for the source."""
    required = frozenset(kept_words(options.keep))
    required |= {READ} if options.upkeep.ctime else set()
    if identity is None or identity != known.identity or not required <= known.compared:
        return None
    if not has_same_owners(known, options.keep.given):
        return None
    try:
        if not session_of(options.sources[0]).continues(known.session):
            return None
    except OSError:
        return None
    return quiet_since(known, identity.filesystem)


def snapshot_of(now: Subvolume | None) -> tuple[tuple[str, int], str] | None:
    """Return a source's origin with its generation, and its identity, for the state.

    Return None unless the source is an unchanged read-only snapshot, because a later run can rely
    on nothing else.
    """
    if now is None or not now.read_only or now.is_touched:
        return None
    return (now.origin, now.generation), now.uuid


def number_of_last(source: bytes, known: MirrorState) -> int | None:
    """Return the number of the last run's snapshot, or None unless it still exists unchanged."""
    if known.snapshot is None:
        return None
    with closing_fd(os.open(source, OPEN_DIRECTORY_FOLLOW)) as fd:
        try:
            return number_of(fd, known.snapshot)
        except OSError:
            return None


def left_of(target: bytes) -> SubvolumeState | None:
    """Flush a target to disk and return its state, or None if it is not a writable subvolume."""
    try:
        with closing_fd(os.open(target, OPEN_DIRECTORY_FOLLOW)) as fd:
            if subvolume_of(fd) is None:
                return None
            sync(fd)  # otherwise delayed writes would change inodes later
            now = subvolume_of(fd)
    except OSError:
        return None
    return None if now is None or now.read_only else SubvolumeState(now.uuid, *now.changed)


def _has_subvolumes(target: bytes) -> bool:
    """Return whether a target that is a subvolume may contain other subvolumes."""
    try:
        with closing_fd(os.open(target, OPEN_DIRECTORY_FOLLOW)) as fd:
            return has_subvolumes(fd)
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
    if options.deleting.enabled and not known.alike:
        return "the last complete run left entries that the source lacks"
    if known.left is None:
        return "the target was not a btrfs subvolume at the last complete run"
    if mounts_below(options.target) or _has_subvolumes(options.target):
        return "there are subvolumes or mount points below the target"
    if known.left != left_of(options.target):
        return "the target was changed since the last complete run"
    return ""
