"""Copies regular files, and ranges of large files.

Most files are small, dense and regular, do not change while they are being read, and have a name
that is free in the target. `PlainCopier` copies many of these per call, with `pcircle.fs.native`.
`Copier` copies all other files one at a time and reports errors. It handles holes, existing names,
files that change, lack of space, and files that several ranks copy together.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import takewhile
from typing import TYPE_CHECKING

import msgspec

from pcircle.core.buffers import aligned
from pcircle.core.units import CHUNK_UNIT_BYTES
from pcircle.core.writing import write_all
from pcircle.fs import native
from pcircle.fs.attributes.exposure import withdraw
from pcircle.fs.attributes.xattrs import FLAGS, IGNORED, USER_FLAGS, ExtendedAttributes
from pcircle.fs.data import (
    DataCopier,
    Pair,
    copy_range,
    data_ranges,
    may_have_holes,
    pair_of,
    ways_of,
)
from pcircle.fs.directories import closing_fd
from pcircle.fs.entry_errors import SAME_FILE, Changed, EntryError, error_context, tried
from pcircle.fs.file_system import are_same, is_pseudo, reports_holes
from pcircle.fs.native.interface import NOT_PLAIN, UNTRIED
from pcircle.fs.open_flags import O_NOATIME, OPEN_FILE
from pcircle.ops.copy.entry import target
from pcircle.ops.copy.entry.attributes import AttributeCopier, LayoutCopier
from pcircle.ops.copy.entry.counts import CopyCounts
from pcircle.ops.copy.entry.links import LinkCopier
from pcircle.ops.copy.entry.observers import (
    CopyContext,
    CopyObserver,
    ObserverSet,
    SourceModifiedError,
    refuse_change,
)
from pcircle.ops.copy.entry.overwrite import DestinationExistsError
from pcircle.ops.copy.entry.settings import CopySettings, FileRange, Identity
from pcircle.ops.copy.entry.target import StartedFile, TargetFile, TargetFullError

if TYPE_CHECKING:
    from pcircle.ops.copy.entry.target import TemporaryNames

ONE_READ_BYTES = 128 << 10
MAX_NAMES = 256
"""The maximum number of files per call."""
_CONTENTS_BYTES = 2 * ONE_READ_BYTES
_MAX_RANGE_BYTES = 4 << 20
# Errors of copy_file_range if the file systems do not support it or a container forbids it.
_NO_RANGES = frozenset(
    -1 - code for code in (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM)
)


class PlainCopier:
    """Copies plain files for one thread; `is_active` is false if the options do not permit that.

    `offer` is the number of files to pass to the next call. It is small if many files are not
    plain, because each such file ends a call.
    """

    def __init__(
        self,
        settings: CopySettings,
        extras: AttributeCopier,
        observers: ObserverSet,
        *,
        is_active: bool,
    ) -> None:
        self.is_active = is_active
        self.offer: int = 1
        self._extras = extras
        self._observers = observers
        self._flags = settings.source_flags | (O_NOATIME if settings.noatime else 0)
        self._bits = target.creation_bits(settings)
        self._inode_flags = USER_FLAGS if settings.keep.flags else 0
        # If symbolic links are followed, a file may be reached by more names than its link count.
        self._max_links = sys.maxsize if not settings.keep.links else 0 if settings.follow else 1
        # Observers do not see data that the kernel copies, and the result may be a clone.
        ways = ways_of(settings.reflink, settings.sparse)
        is_range = copy_range in ways and not observers.reads
        self._range_bytes = min(settings.large_bytes, _MAX_RANGE_BYTES) if is_range else 0
        # The size of the buffer for the contents of one or more files.
        self._contents_bytes = 0
        if observers.reads:
            self._contents_bytes = ONE_READ_BYTES + 1 if observers.is_limited else _CONTENTS_BYTES

    def copy(
        self,
        names: list[bytes],
        source_fd: int | list[int],
        target_fd: int | list[int],
        device: int,
        until_ns: int,
    ) -> list[int]:
        """Copy the plain files among at most `MAX_NAMES` names in source directories on `device`.

        All names are in the same directory, unless the descriptors are given as lists with one
        element per name.

        Return the sizes of the files that were tried until `time.monotonic_ns` reached `until_ns`.
        The first file that fails or is not plain ends the call: its size is negative, and no copy
        of it remains. The list may be empty after a signal.
        """
        observers = self._observers
        if observers.is_limited:
            observers.attempt(0)
            names = names[:1]
        is_known = device >= 0  # false if `fstat` of the directory failed
        keep = self._extras.plain_bits(device) if self.is_active and is_known else None
        if keep is None:
            return [NOT_PLAIN]
        owner, group = self._extras.owner_of_made()
        result, contents = native.copy_files(
            source_fd,
            target_fd,
            names,
            self._flags,
            self._bits,
            keep,
            self._inode_flags,
            IGNORED,
            self._max_links,
            ONE_READ_BYTES,
            self._range_bytes,
            device,
            owner,
            group,
            until_ns,
            self._contents_bytes,
        )
        sizes = list(takewhile(UNTRIED.__ne__, native.numbers(result)))
        if sizes and sizes[-1] in _NO_RANGES:
            self._range_bytes = 0
        if sizes and sizes[-1] < 0:
            self.offer = 1
        else:
            self.offer = min(2 * self.offer, MAX_NAMES)
        if observers.any:
            self._notify_observers(names, sizes, contents)
        return sizes

    def _notify_observers(self, names: list[bytes], sizes: list[int], contents: bytes) -> None:
        """Notify the observers of copied files."""
        observers, view, begin = self._observers, memoryview(contents), 0
        for name, size in zip(names, sizes, strict=False):
            if size >= 0:
                observers.due(size)
                if observers.reads:
                    observers.small(view[begin : begin + size])
                    begin += size
                observers.copied(name, size)
                observers.settled(name)


_MAX_TRIES = 3  # maximum number of successive calls that signals may interrupt
_CHECK_INTERVAL_S = 0.02  # time between checks for a stop of the job or the end of its time slice
_CHUNK_SPLIT_S = 0.25
# For opening an unfinished copy.
_REACH = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

COPIED, LARGE, LINKED = range(3)
"""The outcomes of `Copier.file`."""


class RemainingFiles(msgspec.Struct, frozen=True):
    """Files that were not copied: large files, hard-linked files and failures."""

    large: list[tuple[bytes, int]]  # with their sizes
    linked: list[tuple[bytes, os.stat_result]]
    failed: list[tuple[bytes, str, OSError]]


class Copier:
    """Copies entries between two open directories for one thread."""

    context: CopyContext

    def __init__(
        self,
        settings: CopySettings,
        counts: CopyCounts,
        extras: AttributeCopier,
        observer_list: Sequence[CopyObserver] = (),
    ) -> None:
        self.context = context = CopyContext(settings, counts, extras, observer_list)
        self.names: TemporaryNames = context.names
        self.link: Callable[..., os.stat_result | None] = LinkCopier(context).link
        self.skip: Callable[[int, bytes], None] = context.skip
        self.status: os.stat_result | None = None  # status of the last opened file
        self._size = 0  # size of its content, which may differ from `st_size`
        self._settings = settings
        self._counts = counts
        self._extras = extras
        self._target = context.target
        self._next_check_s = 0.0  # time of the next check
        self._observers = observers = context.observers
        # If observers need the bytes, the kernel must not move them.
        ways = (settings.reflink, settings.sparse, () if observers.reads else None)
        self._mover = DataCopier(*ways, observers.see if observers.reads else None)
        self._small = aligned(ONE_READ_BYTES + 1)
        self.layouts: LayoutCopier = LayoutCopier(settings, extras)
        # No file is plain if files must be cloned, searched for zeros, synced, first written under
        # a temporary name or created with a layout.
        plain = not (self._mover.must_clone or settings.sparse == "always" or self.layouts.active)
        plain = plain and settings.existing.plain
        self.plain: PlainCopier = PlainCopier(settings, extras, observers, is_active=plain)

    def files(
        self,
        names: Sequence[bytes],
        source_fd: int,
        target_fd: int,
        stop: Callable[[], bool],
        time_is_up: Callable[[], bool],
    ) -> tuple[int, RemainingFiles]:
        """Copy regular files of one directory until `stop` or `time_is_up` returns true.

        Return the number of files that were tried, and those among them that were not copied. Files
        that fail or are not plain are passed to `file`, which reports the errors. If the target is
        full, the remaining files are not tried.
        """
        self.context.is_stopping = stop
        remaining = RemainingFiles([], [], [])
        try:
            device = os.fstat(source_fd).st_dev
        except OSError:
            device = -1  # no file counts as plain, and each one reports the error
        count = tries = 0
        while count < len(names):
            batch = list(names[count : count + self.plain.offer])
            until_ns = int(self._next_check_s * 1e9)
            sizes = self.plain.copy(batch, source_fd, target_fd, device, until_ns)
            count += len(sizes)
            tries = 0 if sizes else tries + 1
            if tries == _MAX_TRIES:
                count, sizes = count + 1, [-1]
            is_refused = bool(sizes) and sizes[-1] < 0
            if is_refused:
                del sizes[-1]
            self._counts.add_files(len(sizes), sum(sizes))
            if is_refused:
                self._copy_general(names[count - 1], source_fd, target_fd, remaining)
                if remaining.failed and isinstance(remaining.failed[-1][2], TargetFullError):
                    break
            now_s = time.monotonic()
            if now_s > self._next_check_s:
                if stop() or time_is_up():
                    break
                self._next_check_s = now_s + _CHECK_INTERVAL_S
        return count, remaining

    def _copy_general(
        self, name: bytes, source_fd: int, target_fd: int, remaining: RemainingFiles
    ) -> None:
        before = self._counts.copied()
        try:
            outcome = self.file(source_fd, name, target_fd, name)
            if outcome == COPIED:
                self._observers.settled(name)
            if outcome == LARGE and self.status is not None:
                remaining.large.append((name, self.status.st_size))
            elif outcome == LINKED and self.status is not None:
                remaining.linked.append((name, self.status))
        except OSError as error:
            self._counts.take_back(before)  # closing the source may fail after the file was counted
            remaining.failed.append((name, tried(error, "copy"), error))

    def file(
        self, source_fd: int, source: bytes, target_fd: int, name: bytes, *, claimed: bool = False
    ) -> int:
        """Copy a regular file and return `COPIED`; return `LARGE` or `LINKED` if nothing was done.

        `COPIED` includes existing files that stay. `LINKED` means that the file has other names
        that must become hard links, and that this name was not `claimed`. The attribute `status` is
        set to the status of the opened file. Raises OSError with the operation that failed, and
        TargetFullError if the target is full.
        """
        self.status = None
        self._observers.attempt(1)  # one more operation, because the file may be renamed
        existing, linked = self._settings.existing, self._settings.keep.links
        # Unless -n is given, hard-linked names are compared with existing entries only when
        # claimed.
        early = existing.stays or claimed or not linked
        names = source_fd, source, target_fd, name
        if existing.decides and early and self.context.skip_existing(*names):
            return COPIED
        try:
            with error_context("open"):
                outcome = self._opened_file(*names, claimed, early)
        except DestinationExistsError:
            self.skip(target_fd, name)
            return COPIED
        if isinstance(outcome, int):
            return outcome
        self._observers.copied(source, self._size)
        self._counts.add_files(1, self._size)
        return COPIED

    def _opened_file(
        self,
        source_fd: int,
        source: bytes,
        target_fd: int,
        name: bytes,
        claimed: bool,
        early: bool,
    ) -> os.stat_result | int:
        """Return the status of the file if it was copied, and the outcome otherwise."""
        with closing_fd(self._open_source(source, source_fd)) as fd:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise Changed("it is no longer a regular file")
            self.status, self._size = status, status.st_size
            if not claimed and self.context.is_one_of_several(status, source_fd):
                return LINKED
            if not early and self.context.skip_existing(source_fd, source, target_fd, name):
                return COPIED
            effects = self.context.effects
            effects.see(source, source_fd, status)
            if effects.flags:
                effects.check_atime(fd, source)
            if status.st_size > self._settings.large_bytes and not _has_nominal_size(fd, status):
                keeper = self.names.keeper
                if keeper is None or not keeper.has_content(name, fd, status):
                    return LARGE
            try:
                self._copy_whole(fd, status, target_fd, name)
            except OSError as error:
                is_full = isinstance(error, TargetFullError)
                has_space = error.errno == errno.ENOSPC and not is_full
                if not has_space and not isinstance(error, SourceModifiedError):
                    raise
                # Try again: after ENOSPC a probe found space, which other jobs may have freed. A
                # source whose change time alone has changed may have its old content, or be a
                # complete new version.
                os.lseek(fd, 0, os.SEEK_SET)
                self.status = status = os.fstat(fd)
                self._size = status.st_size
                self._copy_whole(fd, status, target_fd, name)
            return status

    def _copy_whole(self, fd: int, status: os.stat_result, target_fd: int, name: bytes) -> None:
        creation = self._create(self._target.create, fd, status, target_fd, name)
        try:
            self._fill(fd, status, creation, target_fd)
            with error_context("rename the copy of"):
                self._target.publish(creation, target_fd)
                self._protect(creation, target_fd)
        except OSError as error:
            target.give_up(error, target_fd, self.names, creation.written, creation.identity)
            raise

    def _create(
        self,
        create: Callable[..., TargetFile],
        fd: int,
        status: os.stat_result,
        target_fd: int,
        name: bytes,
    ) -> TargetFile:
        with error_context("create the copy of"):
            try:
                make = self.layouts.file_maker(fd)
                created: TargetFile = create(target_fd, name, status, make)
            except OSError as error:
                target.stop_if_full(error, target_fd, self.names)
                raise
            if created.rewritten:
                try:
                    self._empty(fd, status, created)
                except OSError:
                    os.close(created.fd)
                    raise
        return created

    def _empty(self, fd: int, status: os.stat_result, creation: TargetFile) -> None:
        """Truncate a file before it is rewritten.

        Permissions are withdrawn first, so that users who may not read the source cannot read the
        new content.
        """
        if are_same(fd, creation.fd):
            raise EntryError(SAME_FILE, "the source and its copy are the same file")
        withdraw(creation.fd, status, self._settings.keep, self._held(fd, creation), rewritten=True)
        os.ftruncate(creation.fd, 0)

    def _fill(self, fd: int, status: os.stat_result, creation: TargetFile, target_fd: int) -> None:
        try:
            with error_context("clone" if self._mover.must_clone else "copy"):
                self._content(fd, creation, status)
            if self._settings.keep.any or creation.written != creation.name:
                with error_context("set the attributes of the copy of"):
                    creation.held = self._held(fd, creation)
                    self._settle(creation, status, target_fd)
                    if creation.held is not None and creation.held.flags:
                        creation.identify()
            self._sync(creation.fd)
        except BaseException:
            with suppress(OSError):  # the first error is reported
                creation.identify()
            os.close(creation.fd)
            raise
        with error_context("finish the copy of"):
            os.close(creation.fd)

    def _held(self, fd: int, creation: TargetFile) -> ExtendedAttributes | None:
        """Return the attributes of an open source other than mode, owner and times, or None."""
        extras = self._extras
        with error_context("read the attributes of"):
            return extras.read_file(fd, alone=creation.rewritten) if extras.any else None

    def _settle(self, creation: TargetFile, source: os.stat_result, target_fd: int) -> None:
        refused = self._target.settle(creation, source)
        if refused:
            self._extras.account(refused, target_fd)

    def _sync(self, fd: int) -> None:
        if self._settings.existing.sync:
            with error_context("flush the copy of"):
                os.fsync(fd)

    def _content(self, fd: int, creation: TargetFile, status: os.stat_result) -> None:
        observers, keeper, out = self._observers, self.names.keeper, creation.fd
        if keeper and keeper.gives_content(creation.name, (fd, status), out, self._copy_content):
            return None
        if not observers.reads:
            return self._copy_content(fd, out, status)
        observers.begin_at(0)
        self._copy_content(fd, out, status)
        # Use the size of the copy, because st_size is wrong for files in /proc and /sys.
        observers.end_file(os.fstat(out).st_size)

    def _copy_content(self, fd: int, out: int, status: os.stat_result) -> None:
        size, pair = status.st_size, None
        if self._mover.must_clone or size > ONE_READ_BYTES:
            pair = (status.st_dev, os.fstat(out).st_dev)
            if self._mover.clone(fd, out, pair):
                self._check_unchanged(fd, status)
                return
        if not size or _has_nominal_size(fd, status):
            self._unsized(fd, out)
        elif self._settings.sparse == "always" or may_have_holes(status):
            self._sparse(fd, out, status, pair or pair_of(fd, out))
        elif size <= ONE_READ_BYTES:
            # Request one byte more than expected, to detect growth.
            data = self._small[: os.readv(fd, [self._small[: size + 1]])]
            self._observers.due(len(data))
            if len(data) != size:
                raise Changed("it changed while it was copied")
            self._observers.see(0, data)
            write_all(out, data)
        else:
            if self._move(fd, out, 0, size, pair) != size:
                raise Changed("it shrank while it was copied")
            self._check_unchanged(fd, status)

    def _unsized(self, fd: int, out: int) -> None:
        """Copy up to the end of a file in /proc or /sys, regardless of its nominal size.

        Some of these files return all data in the first read and nothing in the next.
        """
        done = 0
        while count := os.readv(fd, [self._small]):
            if self.context.is_stopping():
                raise Changed("it was unfinished when the job stopped")
            data = self._small[:count]
            self._observers.due(count)
            self._observers.see(done, data)
            write_all(out, data)
            done += count
        self._size = done

    def _sparse(self, fd: int, out: int, status: os.stat_result, pair: Pair) -> None:
        os.ftruncate(out, status.st_size)
        whole = (0, status.st_size)
        never = self._settings.sparse == "never"
        skips_zeros = not (never or reports_holes(fd))  # then holes are detected as zeros
        for offset, length in [whole] if never else data_ranges(fd, *whole):
            if self._move(fd, out, offset, length, pair, skips_zeros=skips_zeros) != length:
                raise Changed("it shrank while it was copied")
        self._check_unchanged(fd, status)

    def _move(
        self,
        fd: int,
        out: int,
        offset: int,
        length: int,
        pair: Pair | None,
        *,
        skips_zeros: bool = False,
    ) -> int:
        """Move data like `DataCopier.move`, but in slices if paced or larger than `large_bytes`."""
        observers, move = self._observers, self._mover.move
        if not observers.is_paced and length <= self._settings.large_bytes:
            return move(fd, out, offset, length, pair, skips_zeros=skips_zeros)
        done = 0
        while done < length:
            if length > self._settings.large_bytes and self.context.is_stopping():
                raise Changed("it was unfinished when the job stopped")
            part = min(observers.slice_bytes, length - done)
            observers.due(part)
            moved = move(fd, out, offset + done, part, pair, skips_zeros=skips_zeros)
            done += moved
            if moved < part:
                break
        return done

    def _check_unchanged(self, fd: int, before: os.stat_result) -> None:
        refuse_change(before, os.fstat(fd))

    def _open_source(self, name: bytes, directory_fd: int) -> int:
        flags = self._settings.source_flags
        return self.context.effects.reopen(name, flags, dir_fd=directory_fd)

    @contextmanager
    def opened(self, source_fd: int, source: bytes) -> Iterator[tuple[int, os.stat_result]]:
        """Open a large source file, and yield its descriptor and status."""
        with error_context("open"):
            fd = self._open_source(source, source_fd)
            try:
                status = os.fstat(fd)
                if not stat.S_ISREG(status.st_mode):
                    raise Changed("it is no longer a regular file")
                yield fd, status
            finally:
                with suppress(OSError):  # the file was only read
                    os.close(fd)

    def resume_file(
        self,
        source: tuple[int, os.stat_result],
        ranges: list[tuple[int, int]],
        made: os.stat_result,
        names: tuple[bytes, bytes],
        target_fd: int,
    ) -> StartedFile:
        """Resume a file that `begin` created in a previous run, under its temporary name.

        `names` are the temporary and the final name.
        """
        fd, status = source
        written, name = names
        creation = self._target.resume(target_fd, name, written, status)
        creation.identity = (made.st_dev, made.st_ino)
        creation.held = self._held(fd, creation)
        if creation.rewritten:
            self._repeat_withdrawal(creation, status, target_fd)
        self._counts.sized += 1
        self._counts.bytes_found += status.st_size
        return status, creation, self._settings.identify(made), ranges

    def _repeat_withdrawal(
        self, creation: TargetFile, status: os.stat_result, target_fd: int
    ) -> None:
        """Withdraw permissions again, because the source may grant less than before."""
        with (
            error_context("reach the copy of"),
            closing_fd(os.open(creation.written, _REACH, dir_fd=target_fd)) as out,
        ):
            made = os.fstat(out)
            if (made.st_dev, made.st_ino) != creation.identity:
                raise Changed("its copy was replaced by another entry")
            withdraw(out, status, self._settings.keep, creation.held, rewritten=True)

    def begin(
        self,
        source_fd: int,
        source: bytes,
        target_fd: int,
        name: bytes,
        divide: Callable[[int, os.stat_result, int], list[tuple[int, int]]],
    ) -> StartedFile:
        """Create the temporary file for a large file's chunks, with its full size, and close it.

        Return the status of the source, the copy, its identity, and the ranges to copy. `divide`
        computes the ranges from the open source, its status and the alignment of chunks. There are
        no ranges if the file was cloned.
        """
        with self.opened(source_fd, source) as (fd, status):
            creation, identity, cloned = self._make(fd, status, target_fd, name)
            with error_context("copy"):
                ranges = [] if cloned else divide(fd, status, creation.unit_bytes)
        self._counts.sized += 1
        self._counts.bytes_found += status.st_size
        return status, creation, identity, ranges

    def _make(
        self, fd: int, status: os.stat_result, target_fd: int, name: bytes
    ) -> tuple[TargetFile, Identity, bool]:
        creation = self._create(self._target.create_beside, fd, status, target_fd, name)
        try:
            try:
                with error_context("read the attributes of"):
                    creation.identify()
                    creation.held = self._held(fd, creation)
                with error_context("clone" if self._mover.must_clone else "copy"):
                    made = os.fstat(creation.fd)
                    cloned = self._mover.clone(fd, creation.fd, (status.st_dev, made.st_dev))
                    if not cloned:
                        os.ftruncate(creation.fd, status.st_size)
                        creation.unit_bytes = self.layouts.unit_bytes(fd, creation.fd)
            finally:
                os.close(creation.fd)
        except OSError as error:
            target.give_up(error, target_fd, self.names, creation.written, creation.identity)
            raise
        return creation, self._settings.identify(made), cloned

    def chunk(
        self, item: FileRange, source_fd: int, target_fd: int, split: bool, stop: Callable[[], bool]
    ) -> tuple[int, OSError | None]:
        """Copy a chunk; return the offset reached, and the error that stopped it, if any.

        If `split` is true, the copy stops at the end of a slice after a quarter of a second, so
        that the remaining range can be divided. Raises TargetFullError if the target is full.
        """
        with error_context("open"):
            fd = self._open_source(item.name, source_fd)
        with closing_fd(fd):
            with error_context("open"):
                self._check_identity(fd, item.source, "the file was replaced while it was copied")
            with error_context("reach the copy of"):
                out = os.open(item.temporary, _REACH, dir_fd=target_fd)
            return self._range(item, fd, out, target_fd, split, stop)

    def _range(
        self,
        item: FileRange,
        fd: int,
        out: int,
        target_fd: int,
        split: bool,
        stop: Callable[[], bool],
    ) -> tuple[int, OSError | None]:
        reached = item.offset
        error: OSError | None = None
        try:
            with error_context("reach the copy of"):
                self._check_identity(out, item.target, "its copy was replaced by another entry")
            with error_context("copy"):
                self._observers.begin_at(item.offset)
                for after in self._slices(item, fd, out, split, stop):
                    reached = after
                self._observers.end_range(item.offset, reached, stopped=stop())
            self._sync(out)
        except OSError as caught:
            target.stop_if_full(caught, target_fd, self.names)
            error = caught
        finally:
            os.close(out)
        return reached, error

    def _slices(
        self, item: FileRange, fd: int, out: int, split: bool, stop: Callable[[], bool]
    ) -> Iterator[int]:
        """Copy slice by slice, skipping holes, and yield the offset reached after each slice."""
        until_s = time.monotonic() + _CHUNK_SPLIT_S
        offset, end = item.offset, item.offset + item.length
        pair = pair_of(fd, out)
        # In a dense file the search for holes may take as long as the copy.
        whole = [(item.offset, item.length)]
        skips_zeros = item.sparse and not reports_holes(fd)
        for start, length in data_ranges(fd, *whole[0]) if item.sparse else whole:
            for at, size in self._split_range(start, length):
                if self._move(fd, out, at, size, pair, skips_zeros=skips_zeros) != size:
                    raise Changed("it shrank while it was copied")
                self._advance(item, offset, at + size)
                offset = at + size
                yield offset
                # A signed file is divided only at block boundaries.
                shared = split and (not self._observers.by_blocks or offset % CHUNK_UNIT_BYTES == 0)
                if stop() or (shared and time.monotonic() > until_s):
                    return
        self._advance(item, offset, end)
        yield end

    def _split_range(self, start: int, length: int) -> Iterator[tuple[int, int]]:
        """Divide a range into slices; in a signed file, no slice crosses a block boundary."""
        end = start + length
        while start < end:
            size = min(self._observers.slice_bytes, end - start)
            if self._observers.by_blocks:
                size = min(size, CHUNK_UNIT_BYTES - start % CHUNK_UNIT_BYTES)
            yield start, size
            start += size

    def _advance(self, item: FileRange, offset: int, reached: int) -> None:
        self._counts.bytes_done += reached - offset
        self._counts.weight += item.weight * (reached - offset) / item.length

    def _check_identity(self, fd: int, identity: Identity, otherwise: str) -> None:
        if self._settings.identify(os.fstat(fd)) != identity:
            raise Changed(otherwise)

    def finish(
        self,
        before: os.stat_result,
        creation: TargetFile,
        identity: Identity,
        names: tuple[int, bytes, int],
        *,
        failed: bool,
    ) -> None:
        """Complete a file after all its chunks were processed, or remove it if one `failed`.

        `names` are the directory and name of the source, and the directory of the target. Raises
        OSError if the source has changed or an operation fails.
        """
        source_fd, name, target_fd = names
        try:
            if failed:
                target.discard(creation.written, target_fd, creation.identity)
                return
            with error_context("copy"):
                source_status = os.stat(
                    name, dir_fd=source_fd, follow_symlinks=self._settings.follow
                )
                refuse_change(before, source_status)
            with error_context("set the attributes of the copy of"):
                self._settle_again(before, creation, identity, target_fd)
            with error_context("rename the copy of"):
                self._target.still_replaceable(creation, before, target_fd)
                self._target.publish(creation, target_fd)
                self._protect(creation, target_fd)
        except OSError as error:
            target.give_up(error, target_fd, self.names, creation.written, creation.identity)
            raise

    def _settle_again(
        self, before: os.stat_result, creation: TargetFile, identity: Identity, target_fd: int
    ) -> None:
        with closing_fd(os.open(creation.written, _REACH, dir_fd=target_fd)) as creation.fd:
            self._check_identity(creation.fd, identity, "its copy was replaced by another entry")
            if creation.held is not None and creation.held.flags:
                creation.identify()
            self._settle(creation, before, target_fd)
            self._sync(creation.fd)

    def _protect(self, creation: TargetFile, target_fd: int) -> None:
        """Set the inode flags of a renamed file, because they might have prevented the renaming."""
        if creation.held is None or not creation.held.flags:
            return
        try:
            fd = os.open(creation.name, OPEN_FILE, dir_fd=target_fd)
        except PermissionError:  # the mode may deny the owner read access
            self._counts.lose({FLAGS})
            return
        with closing_fd(fd):
            made = os.fstat(fd)
            if (made.st_dev, made.st_ino) != creation.identity:
                raise Changed("its copy was replaced by another entry")
            self._extras.protect(fd, creation.held)


def _has_nominal_size(fd: int, status: os.stat_result) -> bool:
    """Return whether the size of a file is only nominal, as in sysfs."""
    return not status.st_blocks and is_pseudo(fd)
