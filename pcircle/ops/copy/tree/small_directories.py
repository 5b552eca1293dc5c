"""Copies small directories of plain files in batches.

Most directories contain only a few regular files. A few native calls copy a whole batch if the
directories are new in the target and their parent passes on no access control lists. They list the
sources, create the copies, copy the files and set the attributes. This requires a copy without
observers (rate limits, signature, verification, action log) and without an earlier run. A directory
that is not plain when it is listed is left to the walk. If a directory proves not to be plain after
its copy was created, the walk continues with the partial copy. Therefore this module need not
handle errors.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate, chain, repeat, takewhile
from time import monotonic_ns
from typing import cast

import msgspec

from pcircle.fs import native
from pcircle.fs.attributes.xattrs import IGNORED, USER_FLAGS
from pcircle.fs.directories import Lease, close_open, join_path
from pcircle.fs.native.interface import KEEP_MODE, KEEP_OWNER, KEEP_TIMES
from pcircle.fs.open_flags import OPEN_DIRECTORY
from pcircle.fs.scan import DirectoryBatch
from pcircle.fs.stats import Table
from pcircle.ops.checkpoint.journal import SubtreeRecord
from pcircle.ops.copy.entry.files import MAX_NAMES
from pcircle.ops.copy.tree.counters import of_new_directory
from pcircle.ops.copy.tree.items import PartialResult
from pcircle.ops.copy.tree.worker import Worker, WorkerPart
from pcircle.walk.open_directory import Open
from pcircle.walk.visitor import DirectoryScan

_MAX_FILES = 64
SCAN = DirectoryScan(_MAX_FILES, MAX_NAMES, keep_open=True)
_MAX_NS = 20_000_000  # limit for a batch's files; the walk, which can be stopped, copies the rest
_NEVER_NS = 1 << 62
_STATUS = KEEP_MODE | KEEP_OWNER | KEEP_TIMES


class PartialDirectory(msgspec.Struct, frozen=True):
    """A directory whose copy has started but is not complete, and whose entries are not counted.

    `leases` contains the open directories of both sides. The first `done` of its `names` are
    already copied, with a total of `done_bytes` bytes.
    """

    leases: tuple[Lease, Lease]
    names: list[bytes]
    done: int = 0
    done_bytes: int = 0


class _NewDirectories(msgspec.Struct, frozen=True):
    """The directories of a batch that were created; `own` contains the statuses of the sources."""

    names: list[bytes]
    sources: list[int]
    targets: list[int]
    own: Table
    files: list[list[bytes]]


class SmallDirectoryCopier(WorkerPart):
    """Copies small directories for one worker thread.

    If `leaves` is set, it is called with the descriptor and the status of each source directory. It
    returns whether the directory must be left to the walk.
    """

    leaves: Callable[[int, os.stat_result], bool] | None = None

    def __init__(self, worker: Worker) -> None:
        super().__init__(worker)
        self._umask = worker.plan.umask
        self._inode_flags = USER_FLAGS if worker.plan.keep.flags else 0

    def select(
        self, above: Open[PartialResult], names: list[bytes]
    ) -> tuple[list[bytes], list[bytes]]:
        """Divide directories into those that may be new, and those that are left to the walk."""
        place = above.place
        if self._extras.any and not place.bare:
            return [], names
        return (names, []) if place.made else _missing(names, above.leases[1].fd)

    def copy(
        self,
        above: Open[PartialResult],
        batch: DirectoryBatch,
        go_on: Callable[[bytes, PartialDirectory | OSError], None],
    ) -> list[bytes]:
        """Copy directories that were listed; return the names of those that were not touched.

        `go_on` is called with the name of each directory that is not complete, and with its state
        or the reason why it cannot be opened.
        """
        source, target = above.leases
        device = source.opened.status.st_dev
        self._extras.enter(target.fd, bare=True)
        keep = self._extras.plain_bits(device)
        if keep is None:
            return batch.names
        modes = batch.own.column("mode", 0, len(batch.names))
        chosen = self._chosen(batch, modes, above.place.copy[1])
        result, opened = native.make_directories(
            [batch.fds[at] for at in chosen],
            target.fd,
            [batch.names[at] for at in chosen],
            [made_with(modes[at], self._umask, closed=self._plan.keep.mode) for at in chosen],
            OPEN_DIRECTORY,
            keep,
            self._inode_flags,
            IGNORED,
            _NEVER_NS,
        )
        outcomes, fds = native.numbers(result), native.numbers(opened)
        ranges = batch.ranges()
        places = [at for at, fd in zip(chosen, fds, strict=True) if fd >= 0]
        made = _NewDirectories(
            [batch.names[at] for at in places],
            [batch.fds[at] for at in places],
            [fd for fd in fds if fd >= 0],
            batch.own if len(places) == len(batch.names) else batch.own.picked(places),
            [batch.inside[slice(*ranges[at])] for at in places],
        )
        if places:
            self._fill(above, made, device, keep, go_on)
        undone = set(batch.names).difference(made.names)
        for at, outcome, fd in zip(chosen, outcomes, fds, strict=True):
            if outcome >= 0 > fd:
                undone.remove(batch.names[at])
                go_on(batch.names[at], self._not_opened(batch, at, target))
        return [name for name in batch.names if name in undone]

    def _chosen(self, batch: DirectoryBatch, modes: Sequence[int], copy: int) -> Sequence[int]:
        """Return the indices of the directories whose status allows copying them here.

        `copy` is the inode of the copy of the root, which may be inside its own source and is
        excluded.
        """
        count = len(batch.names)
        inodes = batch.own.column("inode", 0, count)
        places: Sequence[int] = range(count)
        if copy in inodes or any(is_to_be_opened(mode, self._umask) for mode in set(modes)):
            places = [
                at
                for at in places
                if inodes[at] != copy and not is_to_be_opened(modes[at], self._umask)
            ]
        if self.leaves is not None:
            rows = list(batch.own.rows(count))
            leaves = self.leaves
            places = [
                at for at in places if not leaves(batch.fds[at], cast(os.stat_result, rows[at]))
            ]
        return places

    def _fill(
        self,
        above: Open[PartialResult],
        made: _NewDirectories,
        device: int,
        keep: int,
        go_on: Callable[[bytes, PartialDirectory | OSError], None],
    ) -> None:
        """Copy the files of new directories, and complete and close the directories."""
        begun: set[int] = set()
        try:
            self._extras.enter(made.targets[0], bare=True)
            sizes = self._copy_files(made, device)
            complete = [at for at, files in enumerate(made.files) if len(sizes[at]) == len(files)]
            failed = self._settle(made, complete, keep)
            if failed:
                complete = [at for at in complete if at not in failed]
            self._complete(above, made, complete, sizes)
            for at in sorted(set(range(len(made.names))).difference(complete)):
                begun.add(at)
                go_on(made.names[at], self._begun(made, at, sizes[at]))
        finally:
            for at, fd in enumerate(made.targets):
                if at not in begun:
                    close_open(fd)

    def _copy_files(self, made: _NewDirectories, device: int) -> list[list[int]]:
        """Copy files; return the sizes of the leading files copied in each directory."""
        files = list(chain.from_iterable(made.files))
        counts = list(map(len, made.files))
        ends = list(accumulate(counts))
        sources, targets = (
            list(chain.from_iterable(map(repeat, fds, counts)))
            for fds in (made.sources, made.targets)
        )
        sizes = [-1] * len(files)
        begin, until_ns = 0, monotonic_ns() + _MAX_NS
        while begin < len(files) and monotonic_ns() < until_ns:
            end = begin + MAX_NAMES
            found = self._copier.plain.copy(
                files[begin:end], sources[begin:end], targets[begin:end], device, until_ns
            )
            sizes[begin : begin + len(found)] = found
            if found and found[-1] >= 0:
                begin += len(found)
            else:  # the walk copies the remaining files of this directory
                begin = ends[bisect_right(ends, begin + max(0, len(found) - 1))]
        return [
            list(takewhile((0).__le__, sizes[end - count : end]))
            for count, end in zip(counts, ends, strict=True)
        ]

    def _settle(self, made: _NewDirectories, places: Sequence[int], keep: int) -> set[int]:
        """Set the attributes of complete directories; return the indices of those that failed."""
        keep &= _STATUS
        if not keep or not places:
            return set()
        own = made.own if len(places) == len(made.names) else made.own.picked(places)
        fds = [made.targets[at] for at in places]
        result = native.settle_open(fds, own.data, keep, *self._extras.owner_of_made())
        if not any(result):
            return set()
        return {at for at, error in zip(places, native.numbers(result), strict=True) if error}

    def _complete(
        self,
        above: Open[PartialResult],
        made: _NewDirectories,
        places: Sequence[int],
        sizes: Sequence[list[int]],
    ) -> None:
        """Count complete directories, and record each of them in the checkpoint."""
        counters, recorder = self._counters, self._recorder
        count = len(places)
        totals = [(len(sizes[at]), sum(sizes[at])) for at in places]
        counters.directories_created += count
        counters.add_files(0, sum(size for _, size in totals))
        if recorder is None or not places:
            return
        outcomes, table = native.stat_open([made.targets[at] for at in places])
        rows = zip(places, totals, native.numbers(outcomes), Table(table).rows(count), strict=True)
        for at, done, error, copy in rows:
            if error:
                continue  # without a record, a resumed run walks the directory again
            key = recorder.keys.directory(above.root, join_path(above.path, made.names[at]))
            recorder.add(SubtreeRecord(key, of_new_directory(*done), copy.st_ino, copy.st_ctime_ns))

    # ---- directories left to the walk ------------------------------------------

    def _begun(
        self, made: _NewDirectories, at: int, sizes: Sequence[int]
    ) -> PartialDirectory | OSError:
        """Return the state of a directory whose first files are copied, or the error."""
        target_fd, files = made.targets[at], made.files[at]
        try:
            status = os.fstat(target_fd)
        except OSError as error:
            close_open(target_fd)
            return error
        try:
            target = self._sides.targets.lease_open(target_fd, status)
            leases = self._with_source(made.sources[at], made.own, at, target)
        except OSError as error:
            return error
        return PartialDirectory(leases, files, len(sizes), sum(sizes))

    def _not_opened(
        self, batch: DirectoryBatch, at: int, above: Lease
    ) -> PartialDirectory | OSError:
        """Open a directory that was created but not opened; return its state, or the error."""
        files = batch.inside[slice(*batch.ranges()[at])]
        try:
            target = self._sides.targets.lease_below(above, batch.names[at])
            return PartialDirectory(self._with_source(batch.fds[at], batch.own, at, target), files)
        except OSError as error:
            return error

    def _with_source(
        self, source_fd: int, own: Table, at: int, target: Lease
    ) -> tuple[Lease, Lease]:
        """Return leases of both sides; the source has its status from before it was read.

        Raises OSError.
        """
        status = cast(os.stat_result, next(own.picked([at]).rows(1)))
        try:
            return self._sides.sources.lease_open(os.dup(source_fd), status), target
        except OSError:
            target.end()
            raise


def _missing(names: list[bytes], target_fd: int) -> tuple[list[bytes], list[bytes]]:
    """Divide names into those that are missing from a directory, and existing ones."""
    outcomes = native.numbers(native.stat_names(target_fd, names, _NEVER_NS)[0])
    there = [name for name, outcome in zip(names, outcomes, strict=True) if outcome == 0]
    return [name for name, outcome in zip(names, outcomes, strict=True) if outcome], there


def small_directories(worker: Worker) -> SmallDirectoryCopier | None:
    """Return the copier of small directories, or None if the options do not permit batches."""
    plan, striping = worker.plan, worker.plan.striping
    observers = (worker.limits, worker.signer, worker.waiting, worker.earlier, worker.acting)
    excluded = plan.follow or plan.existing.sync or striping.keep or striping.gives
    excluded = excluded or any(observer is not None for observer in observers)
    if excluded or not worker.copier.plain.is_active:
        return None
    return SmallDirectoryCopier(worker)


def made_with(mode: int, umask: int, *, closed: bool) -> int:
    """Return the creation mode for the copy of a directory with this mode.

    If `closed` is true, the final mode is set later. As with cp, the umask applies to write access
    even if a default access control list is inherited.
    """
    return 0o700 if closed else mode & 0o1777 & ~(umask & 0o022) | 0o700


def is_to_be_opened(mode: int, umask: int) -> int:
    """Return the owner's permissions that a directory needs only while it is being filled."""
    return 0o700 & (~mode | umask)
