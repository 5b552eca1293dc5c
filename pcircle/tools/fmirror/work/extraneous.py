"""Finds extraneous entries, and looks them up in the source again before their removal.

Extraneous entries are found while the source directory is being listed. The names of a small source
directory are kept in memory and compared with the names of its copy. For a large directory, the
target's names are looked up in the source block by block, so that memory use is bounded. An entry
is extraneous only if the listing of the source directory was complete.

Excluded entries are not extraneous unless `--delete-excluded` is given. The files of this run are
not extraneous either: temporary files, the mark and the checkpoint. Users' entries with similar
names are not mistaken for these files.

`Absence` looks at the source again right before an entry is removed. The source is in use. A name
that was missing when its directory was listed may exist again, like the name of a rotated log. Each
name is looked up by its path from the root, because a directory that was opened earlier may have
been moved since. If the directory changes during the look-up, its names are looked up again. If it
keeps changing, its names count as existing.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import IO, TYPE_CHECKING, Protocol

import msgspec
import xxhash

from pcircle.core.encoding import show, text_of, to_scan
from pcircle.core.errors import StoppedEarly
from pcircle.core.writing import discard
from pcircle.fs.directories import Directories, bases, device_and_inode, join_path
from pcircle.fs.directories import join_path as joined
from pcircle.fs.entry_errors import Changed, error_context
from pcircle.fs.open_flags import OPEN_DIRECTORY_PATH
from pcircle.fs.scan import Block, StableListing, blocks, encoded, listed_first, rewound
from pcircle.fs.sorting import pieces
from pcircle.fs.write_access import WriteAccess
from pcircle.jobs.action_log import ActionLog, ActionOutput
from pcircle.ops.checkpoint.plan import JournalPlan
from pcircle.ops.checkpoint.previous_records import exclude_checkpoint
from pcircle.ops.copy.entry.collisions import folding_key, folds_name
from pcircle.ops.copy.tree.items import scope_of
from pcircle.ops.copy.tree.worker import Worker
from pcircle.runtime import Context
from pcircle.tools.fmirror.plan import DeletionPolicy, MirrorPlan
from pcircle.tools.fmirror.work.listing import ChangeTimes
from pcircle.walk.globs import Rule, choosing, leave_out, read_rule
from pcircle.walk.walker import EmptinessTest, Scope

if TYPE_CHECKING:
    from pcircle.ops.copy.tree.items import Item


_MOST_AT_HAND = 1 << 16
KINDS = ("files", "directories", "links", "specials")
DELETING = b"*deleting   "
MOVING = "remove from the copy of directory"
"""The operation in a failure that reports a skipped removal in a changing directory."""


class Surplus(msgspec.Struct, frozen=True, array_like=True, tag="x"):
    """NUL-terminated paths below root number `root` that exist only in the target.

    If the only path is a directory that this run has replaced, `was` is its former path. Entries
    at `doubtful` paths may have moved within the source since the run began.
    """

    root: int
    paths: bytes
    was: bytes = b""
    doubtful: bool = False

    def without(self, excluded: Container[bytes]) -> Surplus:
        """Return a notice with the paths that are not excluded."""
        paths = self.paths.split(b"\0")[:-1]
        left = packed(self.root, [path for path in paths if path not in excluded])
        return msgspec.structs.replace(left, doubtful=self.doubtful)


class ExtraneousPaths:
    """The extraneous paths of a run, stored in an unnamed temporary file on rank 0."""

    def __init__(self) -> None:
        self._stream: IO[bytes] | None = None
        self.count: int = 0
        self.replaced: dict[bytes, bytes] = {}  # present and former paths of replaced directories

    def add(self, surplus: Surplus) -> None:
        """Add the paths of a notice. Raise StoppedEarly if there is no space for them."""
        if self._stream is None:
            import tempfile  # rarely needed

            self._stream = tempfile.TemporaryFile(prefix="pcircle-surplus-")  # noqa: SIM115
        try:
            self._stream.write(surplus.paths)
        except OSError as error:
            text = "cannot write the list of deletions to the temporary directory"
            raise StoppedEarly(f"{text}: {error.strerror}") from error
        if surplus.was:
            self.replaced[surplus.paths.rstrip(b"\0")] = surplus.was
        self.count += surplus.paths.count(b"\0")

    def add_all(self, other: ExtraneousPaths) -> None:
        """Add all paths of another object. Raise StoppedEarly if there is no space for them."""
        for path in other.paths():
            self.add(packed(0, [path]))

    def paths(self) -> Iterator[bytes]:
        """Yield all paths in the order in which they were added."""
        if self._stream is not None:
            self._stream.seek(0)
            yield from pieces(self._stream, b"\0")

    def close(self) -> None:
        """Release the disk space."""
        if self._stream is not None:
            discard(self._stream)


class DeletionDecisions(Protocol):
    """The part of a run's plan that determines which entries are extraneous."""

    @property
    def deleting(self) -> DeletionPolicy: ...
    @property
    def rules(self) -> tuple[Rule, ...]: ...
    @property
    def token(self) -> bytes: ...
    @property
    def journal(self) -> JournalPlan | None: ...
    @property
    def began_ns(self) -> int | None: ...


class UnfilteredDecisions(msgspec.Struct, frozen=True):
    """`DeletionDecisions` for use before the plan exists."""

    deleting: DeletionPolicy
    rules: tuple[Rule, ...] = ()
    token: bytes = b""
    journal: JournalPlan | None = None
    began_ns: int | None = None


def kept_rules(plan: DeletionDecisions) -> tuple[Rule, ...]:
    """Return the rules that protect matching entries of the target from removal."""
    rules = () if plan.deleting.excluded else plan.rules
    protected = (read_rule(text, include=False) for text in plan.deleting.protected)
    return (*(rule for rule in protected if rule is not None), *rules)


class NameChecksum:
    """An order-independent checksum of a set of names: the sum of their digests.

    The seed is secret, so that users cannot choose names that yield a given sum.
    """

    def __init__(self) -> None:
        self._seed = int.from_bytes(os.urandom(8), "big")
        self._sum = 0

    def add(self, names: Iterable[bytes]) -> None:
        """Add names, none of which may have been added before."""
        self._sum += sum(map(xxhash.xxh3_128_intdigest, names, repeat(self._seed)))

    def matches(self, directory_fd: int) -> bool:
        """Return whether an open directory contains exactly these names, and rewind it."""
        difference = self._sum
        try:
            for block in blocks(rewound(directory_fd)):
                for kind in KINDS:
                    names = encoded(getattr(block, kind))
                    difference -= sum(map(xxhash.xxh3_128_intdigest, names, repeat(self._seed)))
        except OSError:  # the caller will encounter the same error
            difference = -1
        rewound(directory_fd)
        return not difference


class ExtraneousFinder:
    """Finds extraneous entries.

    Each thread has its own instance.
    """

    def __init__(self, plan: DeletionDecisions, emptiness: EmptinessTest | None = None) -> None:
        """If `emptiness` is given, empty directories of the source count as missing."""
        self._emptiness = emptiness
        deleting, rules = plan.deleting, kept_rules(plan)
        self._choose = choosing(rules) if rules else None
        # With --delete-excluded, entries that exist in the source are removed if rules exclude
        # them.
        self._leave_out = choosing(plan.rules) if deleting.excluded and plan.rules else None
        self._temporary = f".fcp-{plan.token.decode()}-"
        self._journal = plan.journal
        self._change_times = ChangeTimes(plan.began_ns)
        self.tell_doubtful: Callable[[list[bytes]], None] | None = None
        """Receives extraneous entries of directories that may have changed since the run began."""
        # With --delete=during, entries are removed from a directory while it is being listed.
        self._steadiness = StableListing() if deleting.during else None

    def watched(
        self,
        found: Iterable[Block],
        fds: tuple[int, int],
        path: bytes,
        tell: Callable[[list[bytes]], None],
        waits: Callable[[], bool] = bool,
    ) -> Iterator[Block]:
        """Yield the blocks of a source directory, and then pass extraneous paths to `tell`.

        If `waits` returns true after the last block, the caller will look for extraneous entries
        later.
        """
        names: set[str] | None = set()
        total = NameChecksum()
        for block in found:
            if names is not None:
                names.update(block.files, block.directories, block.links, block.specials)
                if len(names) > _MOST_AT_HAND:
                    total.add(encoded(list(names)))
                    names = None
            else:
                for kind in KINDS:
                    total.add(encoded(getattr(block, kind)))
            yield block
            if block.last and not waits():
                with error_context("list the copy of directory"):
                    if names is None and total.matches(fds[1]):
                        return
                    for surplus in self.surplus(names, fds, path):
                        tell(surplus)

    def surplus(
        self, names: set[str] | None, fds: tuple[int, int], path: bytes
    ) -> Iterator[list[bytes]]:
        """Yield the paths of entries that exist only in the target directory.

        `names` are the names in the source directory, or None if they are looked up one by one.
        Raise OSError if a directory cannot be read.

        If the source directory has changed since the run began, the entries are passed to
        `tell_doubtful`. They may have moved to a directory that had already been listed. Removing
        them would then leave the target without them.
        """
        source_fd, target_fd = fds
        listed = blocks(target_fd)
        if self._steadiness is not None and not self._steadiness.of(os.fstat(target_fd).st_dev):
            listed = listed_first(listed)
        for block in listed:
            there = Block()
            self._leave_own(block, path, target_fd)
            for kind in KINDS:
                kind_names = getattr(block, kind)
                if names is not None:
                    kind_names = [name for name in kind_names if name not in names]
                # A listing may be incomplete, so look up each name in the source as well.
                gone = [name for name in kind_names if not self._exists(name, source_fd, path)]
                if self._leave_out is not None and len(gone) < len(kind_names):
                    setattr(there, kind, [name for name in kind_names if name not in set(gone)])
                setattr(block, kind, gone)
            if len(block) and folds(target_fd, block):
                keys = {folding_key(os.fsencode(name)) for name in os.listdir(to_scan(source_fd))}
                for kind in KINDS:
                    there_only = [
                        name
                        for name in getattr(block, kind)
                        if folding_key(os.fsencode(name)) not in keys
                    ]
                    setattr(block, kind, there_only)
            if len(there) and self._leave_out is not None:
                left_out = {kind: set(getattr(there, kind)) for kind in KINDS}
                self._leave_out(there, path, target_fd)
                for kind in KINDS:
                    kind_names = getattr(block, kind)
                    kind_names += left_out[kind] - set(getattr(there, kind))
            if len(block) and self._choose is not None:
                self._choose(block, path, target_fd)
            if not len(block):
                continue
            found = block.files + block.directories + block.links + block.specials
            paths = [join_path(path, name) for name in encoded(found)]
            # Read the change time after the look-ups, so that it reflects any change before them.
            if not self._change_times.is_recent(source_fd, os.fstat(source_fd)):
                yield paths
            elif self.tell_doubtful is not None:
                self.tell_doubtful(paths)

    def _leave_own(self, block: Block, path: bytes, target_fd: int) -> None:
        """Remove the names of this run's own files from a block of the target directory."""
        prefix, journal = self._temporary, self._journal
        for kind in KINDS:
            kind_names = getattr(block, kind)
            setattr(block, kind, [name for name in kind_names if not name.startswith(prefix)])
        if journal is not None:
            if not path:
                mark = text_of(journal.mark)
                block.files = [name for name in block.files if name != mark]
            for _ in exclude_checkpoint([block], target_fd, journal.path):
                pass

    def _exists(self, name: str, source_fd: int, path: bytes) -> bool:
        if self._emptiness is None or not _exists(name, source_fd):
            return _exists(name, source_fd)
        return not self._emptiness.is_empty(path, os.fsencode(name), source_fd)


def _exists(name: str, directory_fd: int) -> bool:
    try:
        os.stat(os.fsencode(name), dir_fd=directory_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def folds(directory_fd: int, block: Block) -> bool:
    """Return whether a directory may ignore case or Unicode normalisation in these names.

    In such a directory, a name that the source lacks may belong to an entry that the source has.
    Raise OSError if a name cannot be examined.
    """
    for form in (False, True):
        for name in chain(*(getattr(block, kind) for kind in KINDS)):
            if form and name.isascii():
                continue
            try:
                found = folds_name(directory_fd, os.fsencode(name), form=form)
            except FileNotFoundError:
                continue  # the entry has just been removed
            if found:
                return True
            if found is False:
                break  # the answer is the same for all names
    return False


class InlineDeletion:
    """`--delete=during`: removes extraneous entries of the current directory.

    Each thread has its own instance. This object is the `RemovalListener` of its own remover.
    """

    _context: Context[Item]

    def __init__(self, plan: MirrorPlan, worker: Worker) -> None:
        self._counters = worker.counters
        self._accounts = worker.accounts
        self._limits = worker.limits
        first = None if worker.acting is None else worker.acting.actions
        self._actions = ActionLog("fmirror", ActionOutput(plan.acts.lines), worker.rank, first)
        self._is_reported = plan.deleting.reported
        rules = kept_rules(plan)
        access = WriteAccess(owner=True, flags=plan.keep.flags)
        from pcircle.ops.remove.tree import TreeRemover  # few runs remove entries

        self._remover = TreeRemover(self, choosing(rules) if rules else None, access)
        self._whole = TreeRemover(self, access=access)
        self._absence = Absence(source_of(plan), plan.identify)
        self._root = 0
        self._renamed = b"", b""  # present and former path of a replaced directory

    def begin(self, context: Context[Item]) -> None:
        """Set the context of the current item. It receives the reports."""
        self._context = context

    def remove(self, root: int, paths: Iterable[bytes], directory_fd: int) -> None:
        """Remove the extraneous entries of a directory unless they now exist in the source."""
        self._root, self._renamed = root, (b"", b"")
        for path in paths:
            try:
                if not self._absence.lacks(path, directory_fd):
                    continue
            except FileNotFoundError:
                continue
            except OSError as error:
                self.failed(path, "look up in the source", error)
                continue
            self._counters.surplus += 1
            self._remover.remove(path, directory_fd)

    def close(self) -> None:
        """Release the source."""
        self._absence.close()

    def remove_replaced(self, root: int, path: bytes, was: bytes, directory_fd: int) -> None:
        """Remove a directory that an entry of another kind has replaced, including its contents."""
        self._root, self._renamed = root, (path, was)
        self._counters.surplus += 1
        self._whole.remove(path, directory_fd)

    def tell(self) -> None:
        """Send all pending reports to rank 0."""
        self._actions.tell(self._context)

    # ---- calls of the remover --------------------------------------------------

    def due(self, count: int) -> bool:
        if self._limits is None:
            return False
        self._limits.operations(count)
        return True

    def is_stopping(self) -> bool:
        return self._context.is_stopping()

    def gone(self, path: bytes, kind: str) -> None:
        self._counters.removed += 1
        now, was = self._renamed
        if now:
            path = was + path.removeprefix(now)
        said = b""
        if self._is_reported:
            said = deletion_line(path, kind)
        self._actions.done("delete", self._root, path, kind, said=said)
        if self._actions.is_full:
            self.tell()

    def failed(self, path: bytes, doing: str, error: OSError) -> None:
        """Report a failure to remove an extraneous entry."""
        counters = self._counters
        counters.found += 1
        counters.failed += 1
        counters.sized += 1
        doing = doing.replace("remove", "remove the copy of", 1)
        failure = self._accounts.failure(self._root, path, doing, error)
        self._context.note([failure])
        self._actions.failed("delete", self._root, path, error.errno)


def deletion_line(path: bytes, kind: str) -> bytes:
    """Return the line that reports a deletion, as in rsync."""
    return DELETING + show(path).encode() + b"/" * (kind == "d") + b"\n"


def with_counterparts(found: Iterable[Block], target_fd: int) -> Iterator[Block]:
    """Yield the blocks without the names that the target lacks.

    `target_fd` is -1 if the target lacks the directory.
    """
    for block in found:
        for kind in KINDS:
            names = getattr(block, kind) if target_fd >= 0 else ()
            setattr(block, kind, [name for name in names if _exists(name, target_fd)])
        yield block


def without_empty(
    found: Iterable[Block], emptiness: EmptinessTest, path: bytes, source_fd: int
) -> Iterator[Block]:
    """Yield the blocks of a source directory without empty directories."""
    for block in found:
        emptiness.without_empty(block, path, source_fd)
        yield block


def packed(root: int, paths: Iterable[bytes], *, doubtful: bool = False) -> Surplus:
    """Return a notice of extraneous paths."""
    return Surplus(root, b"".join(path + b"\0" for path in paths), doubtful=doubtful)


def moved_away(count: int) -> Changed:
    """Return the error that explains why `count` entries stay in the copy of a directory."""
    stay = "1 entry stays" if count == 1 else f"{count:,} entries stay"
    return Changed(f"it changed during the run; {stay} until the next run")


# ---- second look at the source -------------------------------------------------------------------

_LOOKS = 3
_MISSING = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


class MirrorSource(msgspec.Struct, frozen=True, array_like=True):
    """The source of a mirror, identified by device and inode (`known`), and its scope.

    If `excluded` is set, excluded entries count as absent. If `prunes` is set, directories that
    contain only directories count as absent.
    """

    holder: bytes
    name: bytes
    directory: bytes
    known: tuple[int, int] | None
    scope: Scope
    excluded: bool
    prunes: bool


def source_of(plan: MirrorPlan) -> MirrorSource:
    """Return the source of a mirror."""
    (root,) = plan.roots
    where = root.source_holder, root.source_name, plan.directory, root.source_known
    return MirrorSource(*where, scope_of(plan), plan.deleting.excluded, plan.upkeep.prunes)


class PresentNames(msgspec.Struct, frozen=True):
    """Names that exist in a source directory.

    If the directory keeps changing, `moving` is set, and the names are those that may exist.
    """

    names: frozenset[bytes]
    moving: bool = False


class Absence:
    """Looks up names in the source.

    Each thread has its own instance.
    """

    def __init__(
        self,
        source: MirrorSource,
        identify: Callable[[os.stat_result], tuple[int, int]] = device_and_inode,
    ) -> None:
        base = bases([(source.holder, source.name)], source.directory, [source.known])
        self._directories = Directories(base, 2, identify)
        self._emptiness = EmptinessTest(source.scope) if source.prunes else None
        self._rules: Sequence[Rule] = source.scope.rules if source.excluded else ()

    def close(self) -> None:
        """Release the source."""
        self._directories.close()

    def has(self, path: bytes, names: Sequence[bytes], *, directories: bool) -> PresentNames:
        """Return which names of a directory exist in the source. Raise OSError if that is unknown.

        In the target, all of these names are directories if `directories` is set. Otherwise none
        of them is.
        """
        found: set[bytes] = set()
        for _ in range(_LOOKS):
            fd = self._opened(path)
            if fd < 0:
                return PresentNames(frozenset(found))
            try:
                changed_ns = os.fstat(fd).st_ctime_ns
                there = (name for name in names if self._is_there(path, name, fd, directories))
                found.update(
                    name for name in there if not self._is_left_out(path, name, directories)
                )
                if os.fstat(fd).st_ctime_ns == changed_ns:
                    return PresentNames(frozenset(found))
            finally:
                os.close(fd)
        return PresentNames(frozenset(names), moving=True)

    def lacks(self, path: bytes, target_fd: int) -> bool:
        """Return whether the source lacks an entry of an open target directory.

        Raise OSError if that is unknown.
        """
        above, _, name = path.rpartition(b"/")
        mode = os.stat(name, dir_fd=target_fd, follow_symlinks=False).st_mode
        return not self.has(above, [name], directories=stat.S_ISDIR(mode)).names

    def _opened(self, path: bytes) -> int:
        """Open a source directory by its path, or return -1 if it does not exist.

        Raise OSError if it cannot be opened.
        """
        with self._directories.lease(0, b"") as top:
            fd = os.dup(top.fd)
        above = b""
        for name in filter(None, path.split(b"/")):
            try:
                if not self._is_there(above, name, fd, True):
                    return -1
                inner = os.open(name, OPEN_DIRECTORY_PATH, dir_fd=fd)
            except OSError as error:
                if error.errno not in _MISSING:
                    raise
                return -1
            finally:
                os.close(fd)
            fd, above = inner, joined(above, name)
        return fd

    def _is_there(self, path: bytes, name: bytes, fd: int, is_directory: bool) -> bool:
        """Return whether a name exists and, if `is_directory` is set, is a directory."""
        try:
            status = os.stat(name, dir_fd=fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        if is_directory and not stat.S_ISDIR(status.st_mode):
            return False
        return self._emptiness is None or not self._emptiness.is_empty(path, name, fd)

    def _is_left_out(self, path: bytes, name: bytes, is_directory: bool) -> bool:
        rules = self._rules
        return bool(rules) and leave_out(rules, joined(path, name), directory=is_directory)
