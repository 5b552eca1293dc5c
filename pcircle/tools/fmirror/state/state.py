"""The state of the last complete run, and the locks that keep simultaneous runs apart.

The state is a small file next to the target, never in it. It identifies the source: a disk that is
not mounted leaves an empty directory, or another file system, in its place, and then nothing may be
removed. The file is text. Each line begins with a keyword and a space:

    fmirror 4              the file type, and the version of the format
    source PATH            the source, percent-encoded as in the error log
    filesystem TYPE ID     its type, and its identity in hex, or `-` if unknown
    session NUMBER WORDS   the generation of a snapshot of btrfs, or 0; then the identity of the
                           source's file system while it stays mounted, or `-`
    root INODE             the source's own inode
    target TYPE ID INODE   file system and inode of the target
    mark SECONDS           the change time that the last run gave the target at its end, or 0
    kept WORDS             the compared fields of fdiff, separated by commas; with `ctime` if the
                           content of files with a new change time was compared
    given DIGEST           digest of owners and modes given by options, or `-`
    began SECONDS          begin of the run, in seconds since 1970 with nine decimal places
    full SECONDS           begin of the last run that compared both sides completely
    touched SECONDS        begin of the last run that may have changed the target; if that run was
                           complete, its end
    moved SECONDS          time at which a run last began to remove copied entries from a source;
                           omitted if the whole target has been a copy of a source since
    entries COUNT          number of entries of the source
    mount PATH             a mount point below the source; one line for each
    subvolume ID NUMBER    origin and generation of a read-only snapshot of btrfs, or `- 0`
    snapshot ID            its own identity, or `-`
    left ID NUMBER TIME    of a target that is a subvolume of btrfs, at the end of the run: its
                           identity, and its last change, by generation and in nanoseconds since
                           1970; or `- 0 0`
    names WHICH            `alike` if the target then had no name that the source lacked, or `more`

Each line ends with a newline; the order of lines is not significant. A run that did not cover the
whole source (filters, a list, `--existing` and the like) leaves an existing state unchanged;
without one it writes a state with empty `kept`.

The name of the file is `.fmirror-`, sixteen hex digits of the target's path (XXH3, 64 bits), and
`.state`. A file of another version, or one that other users may write, is ignored.

A run locks the target directory, and a file next to the state. Two simultaneous runs would undo
each other's work, and both would call it complete. The kernel holds the locks, so a killed run
leaves none. The lock on the directory works for every path to it, such as a bind mount. The lock on
the file separates runs that both create the directory; a run removes the file at its end. Without
write access, or where locking is not supported, there is no lock.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from contextlib import suppress
from typing import NamedTuple

import xxhash
from msgspec import msgpack

from pcircle.core.encoding import show
from pcircle.core.errors import UsageError
from pcircle.core.writing import write_all
from pcircle.fs.attributes.btrfs import subvolume_of
from pcircle.fs.attributes.mounts import mounts_below, type_of_mount
from pcircle.fs.attributes.owners import Given
from pcircle.fs.file_system import LOCAL, session, volume_id
from pcircle.fs.open_flags import OPEN_DIRECTORY_FOLLOW
from pcircle.fs.safe_open import OTHERS_WRITE, create, opened, replace
from pcircle.fs.safe_open import place_of as trusted_place
from pcircle.fs.status import birth_ns
from pcircle.jobs.failures import encode

READ = "ctime"
"""The field that means that the content of every file was compared."""

_FIRST = "fmirror 4"
_LOCAL_NS, _SERVED_NS = 2 * 10**9, 3600 * 10**9


class Identity(NamedTuple):
    """The identity of a directory; a new mount of its file system does not change it."""

    filesystem: str
    root: int


class Session(NamedTuple):
    """The identity of a source file system while it stays mounted; `words` are `-` if unknown.

    `generation` belongs to a read-only snapshot of btrfs; otherwise it is 0.
    """

    words: str = "-"
    generation: int = 0

    def continues(self, last: Session) -> bool:
        """Return whether this session continues the session of the `last` run."""
        return self.words != "-" and self.words == last.words and self >= last


class SubvolumeState(NamedTuple):
    """A subvolume of btrfs, and the last change of one of its inodes."""

    uuid: str
    generation: int
    changed_ns: int


class MirrorState(NamedTuple):
    """The last complete run."""

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
    """Return the identity of a directory; snapshots of one subvolume share it. OSError."""
    fd = os.open(path, OPEN_DIRECTORY_FOLLOW)
    try:
        status, subvolume = os.fstat(fd), subvolume_of(fd)
        kind = type_of_mount(fd) or b"unknown"
        known = volume_id(fd, kind)
    finally:
        os.close(fd)
    if subvolume is not None:
        return Identity(f"btrfs {subvolume.origin}", status.st_ino)
    return Identity(f"{kind.decode(errors='replace')} {known or '-'}", status.st_ino)


def session_of(path: bytes) -> Session:
    """Return the session of a source. OSError."""
    fd = os.open(path, OPEN_DIRECTORY_FOLLOW)
    try:
        mounted, subvolume = session(fd), subvolume_of(fd)
    finally:
        os.close(fd)
    if mounted is None:
        return Session()
    if subvolume is None:
        return Session(mounted)
    if subvolume.read_only and not subvolume.is_touched:
        return Session(f"{mounted} {subvolume.origin}", subvolume.generation)
    return Session(f"{mounted} {subvolume.uuid} writable")


def give_mark(target: bytes) -> int:
    """Give a target a new change time, which the state records, and return it; 0 if impossible.

    A file system that is restored from an image has the change time of an earlier run.
    """
    try:
        fd = os.open(target, OPEN_DIRECTORY_FOLLOW)
    except OSError:
        return 0
    try:
        before = os.fstat(fd)
        os.utime(fd, ns=(before.st_atime_ns, before.st_mtime_ns))
        after_ns = os.fstat(fd).st_ctime_ns
    except OSError:
        return 0
    finally:
        os.close(fd)
    return after_ns if after_ns != before.st_ctime_ns else 0


def has_mark(target: bytes, known: MirrorState) -> bool:
    """Return whether a target has the change time that the last run gave it. OSError."""
    return known.mark_ns != 0 and os.stat(target).st_ctime_ns == known.mark_ns


def is_new(target: bytes, known: MirrorState) -> bool:
    """Return whether a target was created after the last run; then the state is not about it.

    Only a local file system sets birth times by the clock that the state uses.
    """
    kind = known.target.filesystem.partition(" ")[0].encode()
    born_ns = birth_ns(target, None, follow=True) if kind in LOCAL else None
    return born_ns is not None and born_ns > known.touched_ns


def identity_if_readable(path: bytes) -> Identity | None:
    """Return the identity of a directory, or None if unreadable; the walk reports that error."""
    try:
        return identity_of(path)
    except OSError:
        return None


def place_of(target: bytes, directory: bytes | None) -> bytes:
    """Return the path of the state of a target: next to it, or in `directory`."""
    real = os.path.realpath(target)
    name = b".fmirror-%016x.state" % xxhash.xxh3_64_intdigest(real)
    return os.path.join(os.path.dirname(real) if directory is None else directory, name)


def read(path: bytes) -> MirrorState | None:
    """Return the recorded state, if it can be trusted."""
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
        times = [_read_time(words[name]) for name in ("began", "full", "touched")]
        identity = Identity(words["filesystem"], int(words["root"]))
        filesystem, _, inode = words["target"].rpartition(" ")
        target = Identity(filesystem, int(inode))
        compared = frozenset(filter(None, words["kept"].split(",")))
        known = words["source"], identity, target, compared
        origin, _, generation = words["subvolume"].partition(" ")
        subvolume = None if origin == "-" else (origin, int(generation))
        mounts = frozenset(line[6:] for line in lines if line.startswith("mount "))
        snapshot = None if words["snapshot"] == "-" else words["snapshot"]
        uuid, *numbers = words["left"].split(" ")
        left = None if uuid == "-" else SubvolumeState(uuid, *map(int, numbers))
        more = snapshot, left, words["names"] == "alike", words["given"]
        entries = int(words["entries"])
        times.append(_read_time(words.get("moved", "0.0")))
        number, _, mounted = words["session"].partition(" ")
        began_ns, *latest_ns = times
        full_ns, touched_ns, moved_ns = latest_ns
        return MirrorState(
            *known,
            began_ns,
            entries,
            subvolume,
            mounts,
            *more,
            full_ns=full_ns,
            touched_ns=touched_ns,
            moved_ns=moved_ns,
            session=Session(mounted, int(number)),
            mark_ns=_read_time(words["mark"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write(path: bytes, run: MirrorState) -> None:
    """Record a complete run. OSError."""
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
        try:
            write_all(fd, "".join(f"{line}\n" for line in lines).encode())
        finally:
            os.close(fd)
        replace(temporary, path)
    except OSError:
        with suppress(OSError):  # the first error is the one to report
            os.unlink(temporary)
        raise


def _time(ns: int) -> str:
    seconds, fraction_ns = divmod(ns, 10**9)
    return f"{seconds}.{fraction_ns:09}"


def _read_time(text: str) -> int:
    seconds, _, fraction_ns = text.partition(".")
    return int(seconds) * 10**9 + int(fraction_ns)


def digest_of(given: Given | None) -> str:
    """Return the record of given owners and modes; empty if names decide."""
    if given is None:
        return "-"
    return "names" if given.by_name else f"{xxhash.xxh3_64_intdigest(msgpack.encode(given)):016x}"


def is_given_alike(state: MirrorState, given: Given | None) -> bool:
    """Return whether the last complete run has certainly given the same owners and modes."""
    return (given is None or not given.by_name) and state.given == digest_of(given)


def mounts_of(source: bytes) -> frozenset[str]:
    """Return the mount points below a source, as recorded."""
    return frozenset(map(encode, mounts_below(source)))


def quiet_since(state: MirrorState, filesystem: str) -> int:
    """Return the time before which an unchanged entry was last changed, in nanoseconds.

    A local file system takes change times from this machine's clock, perhaps rounded to two
    seconds. Otherwise a server sets them, and its clock may be wrong.
    """
    kind = filesystem.partition(" ")[0].encode()
    return state.began_ns - (_LOCAL_NS if kind in LOCAL else _SERVED_NS)


def now_ns() -> int:
    """Return the time to record."""
    return time.time_ns()


# ---- lock ----------------------------------------------------------------------------------------

_TAKEN = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)  # NFS returns EACCES


def lock_place_of(target: bytes, directory: bytes | None) -> bytes:
    """Return the path of the lock file: next to the target, or in `directory`.

    Next to the target only its name matters, because several paths may lead to its parent.
    """
    real = os.path.realpath(target)
    above, name = os.path.split(real)
    known_by = name if directory is None else real
    name = b".fmirror-%016x.lock" % xxhash.xxh3_64_intdigest(known_by)
    return os.path.join(above if directory is None else directory, name)


class Lock:
    """A lock that rank 0 takes once; `end` releases it."""

    def __init__(self) -> None:
        self._fd = self._directory_fd = -1
        self._path = b""

    def take(self, target: bytes, directory: bytes | None) -> None:
        """Lock a target. UsageError if another run holds the lock.

        The file is in `directory`, or next to the target.
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
            return  # it does not exist yet, or is unreadable
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
                fcntl.flock(fd, fcntl.LOCK_UN)  # also for processes that have inherited it
            with suppress(OSError):
                os.close(fd)


def _is_taken(target: bytes) -> UsageError:
    text = "another run of fmirror is going on there; wait until it has ended"
    return UsageError(f"'{show(target)}': {text}")


def _file(path: bytes) -> int:
    """Open the lock file, creating it if necessary. OSError, also for a file of another program."""
    with suppress(FileExistsError):
        return create(path, 0o600)
    with trusted_place(path) as place:
        if place.status is None:
            raise FileNotFoundError
        if not stat.S_ISREG(place.status.st_mode) or place.status.st_uid != os.geteuid():
            raise PermissionError
        return opened(place, os.O_WRONLY)
