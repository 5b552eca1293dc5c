"""The directory DST of a node, in which the stream is staged and the result is shown by renaming.

A job keeps all its files in one directory, `.fbcast-JOB-RANK`, which is locked while the job is
running:

- `new` contains the received entries under their names.
- `old` contains the entries that they replaced.
- `intent` exists from the time when this node is ready to show the entries until it has shown or
  discarded them. Its content suffices for either, even if no other rank is left.

A name is shown by renaming the new entry to it or, if the old or new entry is a directory, by
exchanging the two. At any moment the name refers to either the complete old tree or the complete
new tree. Only on a file system that cannot exchange directories is the name missing for a moment.
Each step can be repeated, because the intent contains the inode numbers of the new entries.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

import msgspec

from pcircle.collective import Directory, Op, Refused
from pcircle.core.encoding import show
from pcircle.core.errors import require
from pcircle.core.writing import write_all
from pcircle.fs.attributes.mounts import mounts_below
from pcircle.fs.directories import closing_fd
from pcircle.fs.file_system import reason_of_full
from pcircle.fs.naming import NO_SUCH_RENAME, exchange
from pcircle.fs.open_flags import CREATE_FILE, OPEN_DIRECTORY
from pcircle.fs.safe_open import directory as open_directory
from pcircle.fs.scan import rewound
from pcircle.tools.fbcast.messages import BroadcastPlan, Ready
from pcircle.tools.fbcast.signatures import signatures_of
from pcircle.tools.fbcast.stream import (
    FileListComparer,
    InvalidStreamError,
    StreamDecoder,
    TreeWriter,
    allow_descriptors,
)

PREFIX = b".fbcast-"
_JOB = rb"\.fbcast-[0-9a-f]{16}-[0-9]+"
_INTENT = b"intent"
_OLD_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAX_INTENT_BYTES = 1 << 20


class Intent(msgspec.Struct, frozen=True, array_like=True):
    """The operation that a node is ready to carry out.

    `inodes` and `modes` describe the new entries. For a removal they are empty.
    """

    op: Op
    names: tuple[bytes, ...]
    inodes: tuple[int, ...]
    modes: tuple[int, ...]
    records: bytes


class Decisions:
    """The directories in which the decisions of this job and of earlier jobs are recorded."""

    def __init__(self) -> None:
        self.path = b""
        self.earlier: dict[Op, bytes] = {}

    def settle(self, op: Op, commit: bool) -> bool | None:
        return Directory(self.earlier.get(op, self.path)).settle(op, commit)

    def forget(self, op: Op) -> None:
        Directory(self.earlier.get(op, self.path)).forget(op)


class Destination:
    """The directory DST of one node; it implements `pcircle.tools.fbcast.node.Disk`."""

    def __init__(self, host: str, rank: int, decisions: Decisions) -> None:
        self._host = host
        self._rank = rank
        self._decisions = decisions
        self._plan: BroadcastPlan | None = None
        self._target = b""
        self._fd = -1  # descriptor of the target
        self._work: dict[bytes, int] = {}  # descriptors of locked job directories, by name
        self._own = b""
        self._ops: dict[Op, bytes] = {}  # the name of the job directory of each intent
        self._finished: set[tuple[bytes, ...]] = set()
        self._stream: StreamDecoder | None = None
        self._staged = False
        self._syncs_all = False
        self._beats = 0
        self._syncing = False

    # ---- beginning -------------------------------------------------------------

    def join(self, plan: BroadcastPlan, recover: Callable[[], Iterable[object]]) -> Ready:
        self._plan = plan
        self._syncs_all = plan.sync
        self._decisions.path = plan.records
        text = plan.target.replace(b"{host}", os.fsencode(self._host))
        self._target = text.replace(b"{rank}", b"%d" % self._rank)
        try:
            problem = self._join(plan, recover)
        except OSError as error:
            reason = reason_of_full(error, self._fd) if self._fd >= 0 else error.strerror or error
            unwritable = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
            problem = f"{show(self._target)}: {reason}"
            return Ready(self._host, problem, unwritable=unwritable)
        if problem:
            return Ready(self._host, problem)
        present = plan.verb == "copy" and all(map(self._status, plan.names))
        completed = plan.verb == "copy" and plan.names in self._finished
        exists = "" if plan.verb != "copy" else self._refused(plan)
        return Ready(self._host, "", exists, completed, present)

    def _join(self, plan: BroadcastPlan, recover: Callable[[], Iterable[object]]) -> str:
        self._fd = open_directory(self._target)
        if plan.verb == "check":
            return ""
        allow_descriptors()
        shown = show(self._target)
        for place in sorted(mounts_below(self._target)):
            if place.partition(b"/")[0] in plan.names:
                return f"{show(os.path.join(self._target, place))} is a mount point"
        if not self._take_earlier(plan):
            return f"{shown}: another fbcast is running here"
        if list(recover()):
            return (
                f"{shown}: the outcome of an earlier run is unknown here, and its record cannot be "
                "read"
            )
        self._clear()
        self._own = b"%b%b-%d" % (PREFIX, plan.job.encode(), self._rank)
        os.mkdir(self._own, 0o700, dir_fd=self._fd)
        if not self._take(self._own):
            return f"{shown}: another fbcast is running here"
        for name in os.listdir(rewound(self._fd)):
            job = os.fsencode(name)
            if job.startswith(PREFIX + plan.job.encode()) and job != self._own:
                return f"{shown}: other nodes use the same directory; use {{host}} in its name"
        try:
            os.stat(os.path.join(plan.records, plan.proof))
        except OSError:
            records = show(plan.records)
            return f"{records} is not shared by all nodes; specify another with --record-dir"
        return ""

    def _refused(self, plan: BroadcastPlan) -> str:
        """Return the reason why existing names must not be replaced, or an empty string."""
        for name, folder in zip(plan.names, plan.folders, strict=True):
            status = self._status(name)
            shown = show(os.path.join(self._target, name))
            if status is None:
                continue
            if plan.keep:
                return f"{shown} exists"
            is_folder = stat.S_ISDIR(status.st_mode)
            if (is_folder or folder) and not (plan.force or (plan.update and is_folder == folder)):
                return f"{shown} exists; add --update to update it, or --force to replace it"
        return ""

    def _status(self, name: bytes) -> os.stat_result | None:
        try:
            return os.stat(name, dir_fd=self._fd, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def _take_earlier(self, plan: BroadcastPlan) -> bool:
        """Lock the directories of earlier jobs of this user.

        Return False if such a job is still running.
        """
        for text in os.listdir(rewound(self._fd)):
            name = os.fsencode(text)
            if re.fullmatch(_JOB, name) is None:
                continue
            status = self._status(name)
            if status is None or not stat.S_ISDIR(status.st_mode):
                continue
            own = PREFIX + plan.job.encode()
            if status.st_uid != os.geteuid() or name.startswith(own):
                continue
            if not self._take(name):
                return False
            intent = self._intent(name)
            if intent is not None:
                self._ops[intent.op] = name
                self._decisions.earlier[intent.op] = intent.records
        return True

    def _take(self, name: bytes) -> bool:
        fd = os.open(name, OPEN_DIRECTORY, dir_fd=self._fd)
        try:
            if os.fstat(fd).st_uid != os.geteuid():
                raise PermissionError(errno.EPERM, f"{show(name)} belongs to another user")
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if isinstance(error, BlockingIOError):
                return False
            raise
        self._work[name] = fd
        return True

    def _clear(self) -> None:
        """Remove the directories of jobs that are not in doubt."""
        for name in set(self._work) - set(self._ops.values()):
            _remove(name, self._fd, self._beat)
            os.close(self._work.pop(name))

    # ---- the stream ------------------------------------------------------------

    def sign(self, names: Sequence[bytes]) -> bytes:
        if not all(map(self._status, names)):
            return b""  # differs from the signature of any source
        paths = [os.path.join(self._target, name) for name in names]
        return signatures_of(paths, self._beat)

    def begin(self, files: bool) -> None:
        self._stop()
        self._staged = False
        if not self._own:
            raise OSError("this node failed to start")
        if not files:
            self._stream = FileListComparer(self._fd, self._beat)
            return
        work = self._work[self._own]
        _remove(b"new", work, self._beat)
        os.mkdir(b"new", 0o700, dir_fd=work)
        with closing_fd(os.open(b"new", OPEN_DIRECTORY, dir_fd=work)) as fd:
            self._stream = TreeWriter(fd, self._fd, self._beat)

    def write(self, data: bytes) -> None:
        stream = self._stream
        if stream is None:
            raise OSError("this node failed to start")
        try:
            stream.write(data)
        except InvalidStreamError:
            raise
        except OSError as error:
            path = show(os.path.join(self._target, stream.path))
            reason = reason_of_full(error, self._fd)
            raise OSError(error.errno, f"cannot write '{path}': {reason}") from error

    def complete(self) -> bytes:
        stream = self._stream
        if stream is None:
            raise OSError("this node failed to start")
        answer = stream.complete()
        if isinstance(stream, TreeWriter):
            self._staged = True
            self._sync(whole=self._syncs_all)
        self._stop()
        return answer

    def _sync(self, *, whole: bool) -> None:
        """Flush the job's directory to disk, and before that, if `whole` is set, the file system.

        This may take a long time, but leaves little for the collective operation to flush.
        """
        self._syncing = True
        try:
            if whole:
                from pcircle.ops.checkpoint.file_system_sync import sync_file_system

                sync_file_system(self._fd)
            os.fsync(self._work[self._own])
        finally:
            self._syncing = False

    def _beat(self) -> None:
        self._beats += 1

    def pulse(self) -> int:
        self._beats += self._syncing
        return self._beats

    def _stop(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def drop(self) -> None:
        self._stop()
        if self._fd < 0:
            return
        try:
            self._clear()
        finally:
            opened = [*self._work.values(), self._fd]
            self._work.clear()
            self._fd = -1
            for fd in opened:
                os.close(fd)

    # ---- the store of the collective operation ------------------------------------

    def prepare(self, op: Op, coordinator: int, what: bytes) -> bytes:
        """Write the intent; raise Refused if this node cannot carry it out."""
        plan = self._plan
        if plan is None or what != plan.job.encode() or not self._own:
            raise Refused("this node already has a record from another job")
        for stale in [candidate for candidate, job in self._ops.items() if job == self._own]:
            self.undo(stale)  # the reader repeats a request only if the previous one failed
        inodes: list[int] = []
        modes: list[int] = []
        work = self._work[self._own]
        if plan.verb == "copy":
            if not self._staged:
                raise Refused("this node does not have the complete data")
            for name in plan.names:
                status = os.stat(os.path.join(b"new", name), dir_fd=work, follow_symlinks=False)
                inodes.append(status.st_ino)
                modes.append(status.st_mode)
        with suppress(FileExistsError):
            os.mkdir(b"old", 0o700, dir_fd=work)
        intent = Intent(op, plan.names, tuple(inodes), tuple(modes), plan.records)
        with closing_fd(os.open(b".intent", CREATE_FILE, 0o600, dir_fd=work)) as fd:
            write_all(fd, msgspec.msgpack.encode(intent))
            os.fsync(fd)
        os.rename(b".intent", _INTENT, src_dir_fd=work, dst_dir_fd=work)
        os.fsync(work)
        self._ops[op] = self._own
        return b""

    def look(self, what: bytes) -> bytes:
        """Refuse every query, because a broadcast sends none."""
        raise Refused("there is nothing to be asked")

    def commit(self, op: Op) -> None:
        """Show the new names, or move away the names to remove."""
        job = self._ops.get(op)
        if job is None:
            return
        work = self._work[job]
        intent = require(self._intent(job))
        for number, name in enumerate(intent.names):
            if not intent.inodes:
                with suppress(FileNotFoundError):
                    os.rename(name, b"old/%d" % number, src_dir_fd=self._fd, dst_dir_fd=work)
            else:
                self._show(name, intent, number, work)
        os.fsync(self._fd)
        self._forget(op, job)
        self._finished.add(intent.names)

    def _show(self, name: bytes, intent: Intent, number: int, work: int) -> None:
        mode = intent.modes[number]
        status = self._status(name)
        if status is None or status.st_ino != intent.inodes[number]:
            new = os.path.join(b"new", name)
            if stat.S_ISDIR(mode):
                # A directory without write permission cannot be moved to another parent.
                os.chmod(new, 0o700, dir_fd=work)
            self._rename(new, name, status, stat.S_ISDIR(mode), number, work)
        if stat.S_ISDIR(mode):
            os.chmod(name, stat.S_IMODE(mode), dir_fd=self._fd)

    def _rename(
        self,
        new: bytes,
        name: bytes,
        old: os.stat_result | None,
        folder: bool,
        number: int,
        work: int,
    ) -> None:
        if old is not None and (folder or stat.S_ISDIR(old.st_mode)):
            try:
                exchange(new, name, work, self._fd)
                return
            except OSError as error:
                if error.errno not in NO_SUCH_RENAME:
                    raise
            os.rename(name, b"old/%d" % number, src_dir_fd=self._fd, dst_dir_fd=work)
        os.rename(new, name, src_dir_fd=work, dst_dir_fd=self._fd)

    def undo(self, op: Op) -> None:
        """Remove the intent; the staged entries remain until the end of the job."""
        job = self._ops.get(op)
        if job is not None:
            self._forget(op, job)

    def in_doubt(self) -> Iterable[Op]:
        """Return the operations whose intents still exist."""
        return list(self._ops)

    def _forget(self, op: Op, job: bytes) -> None:
        with suppress(FileNotFoundError):
            os.unlink(_INTENT, dir_fd=self._work[job])
        del self._ops[op]

    def _intent(self, job: bytes) -> Intent | None:
        try:
            fd = os.open(_INTENT, _OLD_FILE, dir_fd=self._work[job])
        except FileNotFoundError:
            return None
        with open(fd, "rb") as file:
            return msgspec.msgpack.decode(file.read(_MAX_INTENT_BYTES), type=Intent)


class _Removal:
    """Receives the outcomes of a removal, which stops at the first failure."""

    def __init__(self, beat: Callable[[], None]) -> None:
        self._beat = beat
        self.error: OSError | None = None

    def due(self, count: int) -> bool:
        self._beat()
        return self.is_stopping()

    def is_stopping(self) -> bool:
        return self.error is not None

    def gone(self, path: bytes, kind: str) -> None:
        """Do nothing, because only this tool knows the temporary entries."""

    def failed(self, path: bytes, doing: str, error: OSError) -> None:
        if self.error is None:
            reason = f"cannot remove '{show(path)}': {error.strerror}"
            self.error = OSError(error.errno, reason)


def _remove(name: bytes, holder: int, beat: Callable[[], None]) -> None:
    """Remove a tree; directories that their owner may not list or change are made accessible.

    Raises OSError.
    """
    from pcircle.fs.write_access import WriteAccess
    from pcircle.ops.remove.tree import TreeRemover

    removal = _Removal(beat)
    TreeRemover(removal, access=WriteAccess(owner=True)).remove(name, holder)
    if removal.error is not None:
        raise removal.error
