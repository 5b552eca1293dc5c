"""The plain case of a small directory, and nothing else, as `pcircle.copying.plain` is of a file.

Most directories hold a few regular files. One of these that is made anew, in a directory that hands
down no access control lists, with nobody looking on (no limits, no signature, no verification, no
run to be resumed), is copied in one go: it is never an `Open` of the walk, and of the steps of
`pcircle.transfer.work.visitor` only those are left that ask the kernel. What is met before it is
made and is not plain leaves it to the walk; what is met after that leaves it to the walk as well,
from there on, so there is no second account here of what can go wrong.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from time import monotonic_ns
from typing import Any, NamedTuple

from pcircle.checkpoint.journal import Counts, Subtree
from pcircle.fs.directories import Lease, join_path
from pcircle.fs.metadata import settle_file
from pcircle.fs.scan import names_of_files
from pcircle.guards import require
from pcircle.transfer.counters import named
from pcircle.transfer.items import Part
from pcircle.transfer.plan import Plan
from pcircle.transfer.worker.takings import between
from pcircle.transfer.worker.worker import Worker
from pcircle.walk.opened import Open

_MAX_NAMES = 64
_MAX_NS = 20_000_000  # then it is the walk's, which looks whether the job stops, and gives back


class Begun(NamedTuple):
    """A directory that was made, but is not complete; nothing of it is counted yet.

    `target` is None if it can't be opened, which is the `error`. The first `done` of its `names`
    are copied, with so many bytes. What could not be kept of these is counted since it `began`.
    """

    began: Counts
    target: Lease | None
    names: list[bytes]
    done: int = 0
    done_bytes: int = 0
    error: OSError | None = None


class SmallDirectories:
    """One worker thread's."""

    def __init__(self, worker: Worker) -> None:
        plan = worker.plan
        self._umask = plan.umask
        self._plan_keep = plan.keep
        self._keep = plan.keep if plan.keep.any else None
        self._closed = plan.keep.mode
        self._sides = worker.sides
        self._extras = worker.extras
        self._counters = worker.counters
        self._recorder = worker.recorder
        self._takings = worker.takings
        self._plain = worker.copier.copier.plain

    def copy(self, above: Open[Part], name: bytes, source: Lease) -> Begun | bool:
        """Copy a directory of the one `above`; false: nothing was done, true: all of it."""
        status = source.opened.status
        place = above.place
        if place is None:
            return False
        holder, target = require(above.leases)
        # Links to a directory tell how many are in it, where they tell anything.
        if status.st_nlink > 2 or status.st_dev != holder.opened.status.st_dev:
            return False
        if source.identity == place.copy or is_to_be_opened(
            self._plan_keep.status(status), self._umask
        ):
            return False
        if self._extras.any and not (place.bare and self._has_no_extras(source.fd)):
            return False
        try:
            names = names_of_files(source.fd, _MAX_NAMES)
        except OSError:
            return False  # the walk says so
        if names is None:
            return False
        target = require(target)
        began = self._takings.now()
        try:
            os.mkdir(name, made_with(status, self._umask, closed=self._closed), dir_fd=target.fd)
        except OSError:
            return False
        try:
            made = self._sides.targets.lease_below(target, name)
        except OSError as error:
            return Begun(began, None, names, error=error)
        return self._fill(above, name, (source, made), names, began)

    def _has_no_extras(self, source_fd: int) -> bool:
        try:
            return self._extras.of_directory(source_fd, alone=False) is None
        except OSError:
            return False  # the walk says so

    def _fill(
        self,
        above: Open[Part],
        name: bytes,
        sides: tuple[Lease, Lease],
        names: list[bytes],
        began: Counts,
    ) -> Begun | bool:
        """Copy what is in it, and complete it."""
        source, made = sides
        source_fd, target_fd = source.fd, made.fd
        self._extras.enter(target_fd, bare=True, made=made.opened.status)
        until_ns = monotonic_ns() + _MAX_NS
        sizes: list[int] = []
        if names:
            device = source.opened.status.st_dev
            sizes = self._plain.copy(names, source_fd, target_fd, device, until_ns)
        if sizes and sizes[-1] < 0:
            del sizes[-1]
        done, done_bytes = len(sizes), sum(sizes)
        if done < len(names):
            return Begun(began, made, names, done, done_bytes)
        try:
            if self._keep is not None:
                made_as = made.opened.status if self._keep.mode else None
                settle_file(target_fd, source.opened.status, self._keep, None, made_as)
            copy = os.fstat(target_fd)
        except OSError:
            return Begun(began, made, names, done, done_bytes)
        made.end()
        self._count(above.weight, done, done_bytes)
        if self._recorder is not None:
            counts = named(between(began, self._takings.now()))
            key = self._recorder.keys.directory(above.root, join_path(above.path, name))
            self._recorder.add(Subtree(key, counts, copy.st_ino, copy.st_ctime_ns))
        return True

    def _count(self, weight: float, files: int, size: int) -> None:
        """Count it, as one of its holder's."""
        counters = self._counters
        counters.weight += weight
        counters.scans_done += 1
        counters.found += files
        counters.directories += 1
        counters.directories_created += 1
        counters.sized += 1
        counters.add_files(files, size)


def small_directories(worker: Worker) -> SmallDirectories | None:
    """The means to copy small directories in one go; None where somebody wants to know more."""
    plan = worker.plan
    looking_on: Sequence[Any] = (
        worker.limits,
        worker.signer,
        worker.waiting,
        worker.earlier,
        worker.acting,
    )
    if any(each is not None for each in looking_on) or not _is_simple(plan):
        return None
    if not worker.copier.copier.plain.is_active:
        return None
    return SmallDirectories(worker)


def _is_simple(plan: Plan) -> bool:
    striping = plan.striping
    others = plan.follow or plan.keep.flags or plan.existing.sync
    return not (others or striping.keep or striping.gives)


def made_with(source: os.stat_result, umask: int, *, closed: bool) -> int:
    """The mode that the copy of a directory is made with; `closed` to others if it gets one later.

    As with cp, the umask is for writing of others also where a default list is handed down.
    """
    return 0o700 if closed else source.st_mode & 0o1777 & ~(umask & 0o022) | 0o700


def is_to_be_opened(source: os.stat_result, umask: int) -> int:
    """The bits of its owner that a directory is made with, but is not to have in the end."""
    return 0o700 & (~source.st_mode | umask)
