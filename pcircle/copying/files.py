"""Copying files, links and the ranges of large files, one at a time: all cases.

The plain case of small files is in `pcircle.copying.plain`; here is what to do
with holes, names that are taken, files that change, space that runs out, and
with files that many ranks copy at once.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from pcircle.buffers import aligned
from pcircle.copying import target
from pcircle.copying.counts import Counts
from pcircle.copying.existing import Taken
from pcircle.copying.extras import Extras
from pcircle.copying.layouts import Layouts
from pcircle.copying.links import LinkCopier
from pcircle.copying.means import Means, Moved, refuse_change
from pcircle.copying.observing import Observer
from pcircle.copying.plain import ONE_READ_BYTES, PlainCopier
from pcircle.copying.settings import CHUNK_UNIT_BYTES, SOURCE_FLAGS, Identity, Range, Settings
from pcircle.copying.target import BegunFile, Creation
from pcircle.fs.data import Mover, Pair, data_ranges, may_have_holes, pair_of
from pcircle.fs.exposure import withdraw
from pcircle.fs.file_system import are_same, is_pseudo, reports_holes
from pcircle.fs.trouble import SAME_FILE, Changed, Trouble, tried, trying
from pcircle.fs.xattrs import FLAGS, Held
from pcircle.writing import write_all

_MAX_TRIES = 3  # for a file, at each of which a signal came
_LOOK_EVERY_S = 0.02  # counts are told, and it is asked whether the job stops
_CHUNK_SPLIT_S = 0.25
_REACH = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a copy that is being made

COPIED, LARGE, LINKED = range(3)
"""What became of a file; see `Copier.file`."""


class Tally(NamedTuple):
    """What was not copied of some files: the large, those of several names, and why they failed."""

    large: list[tuple[bytes, int]]  # with their sizes
    linked: list[tuple[bytes, os.stat_result]]
    failed: list[tuple[bytes, str, OSError]]


class Copier:
    """A rank's means to copy entries between two open directories; `observers` look on."""

    def __init__(
        self,
        settings: Settings,
        counts: Counts,
        extras: Extras,
        observers: Sequence[Observer] = (),
    ) -> None:
        self.means = means = Means(settings, counts, extras, observers)
        self.names = means.names
        self.link = LinkCopier(means).link
        self.skip = means.skip
        self.status: os.stat_result | None = None  # of the last file that was opened
        self._size = 0  # of its content, which may be another one than it claims
        self._settings = settings
        self._counts = counts
        self._extras = extras
        self._look_s = 0.0  # when it is to be looked at the clock and at the job again
        self._watch = watch = means.watch
        # What is looked at must be read.
        ways = (settings.reflink, settings.sparse, () if watch.reads else None)
        self._mover = Mover(*ways, watch.see if watch.reads else None)
        self._small = aligned(ONE_READ_BYTES + 1)
        self.layouts = Layouts(settings, extras)
        # What is cloned, searched for zeros, written beside its name or given a layout is
        # never plain.
        plain = not (self._mover.must_clone or settings.sparse == "always" or self.layouts.active)
        plain = plain and settings.existing.plain
        self.plain = PlainCopier(settings, extras, watch, is_active=plain)

    @property
    def is_stopping(self) -> Callable[[], bool]:
        """Whether the job stops, as the item at hand sees it."""
        return self.means.is_stopping

    @is_stopping.setter
    def is_stopping(self, stop: Callable[[], bool]) -> None:
        self.means.is_stopping = stop

    def files(
        self,
        names: Sequence[bytes],
        source_fd: int,
        target_fd: int,
        stop: Callable[[], bool],
        enough: Callable[[], bool],
    ) -> tuple[int, Tally]:
        """Copy regular files of one directory to another, until `stop` or `enough`.

        Returns how many were tried, and what was not copied of these.
        What is not plain, errors included, is begun again by `file`, which
        knows all cases and says what went wrong. NoSpace as of `file`.
        """
        self.means.is_stopping = stop
        tally = Tally([], [], [])
        try:
            device = os.fstat(source_fd).st_dev
        except OSError:
            device = -1  # so none is plain, and each says why
        count = tries = 0
        while count < len(names):
            some = list(names[count : count + self.plain.offer])
            until_ns = int(self._look_s * 1e9)
            sizes = self.plain.copy(some, source_fd, target_fd, device, until_ns)
            count += len(sizes)
            tries = 0 if sizes else tries + 1
            if tries == _MAX_TRIES:
                count, sizes = count + 1, [-1]
            if sizes and sizes[-1] < 0:
                del sizes[-1]
                self._counts.add_files(len(sizes), sum(sizes))
                self._slowly(names[count - 1], source_fd, target_fd, tally)
            else:
                self._counts.add_files(len(sizes), sum(sizes))
            now_s = time.monotonic()
            if now_s > self._look_s:
                if stop() or enough():
                    break
                self._look_s = now_s + _LOOK_EVERY_S
        return count, tally

    def _slowly(self, name: bytes, source_fd: int, target_fd: int, tally: Tally) -> None:
        before = self._counts.copied()
        try:
            outcome = self.file(source_fd, name, target_fd, name)
            if outcome == COPIED:
                self._watch.settled(name)
            if outcome == LARGE and self.status is not None:
                tally.large.append((name, self.status.st_size))
            elif outcome == LINKED and self.status is not None:
                tally.linked.append((name, self.status))
        except OSError as error:
            self._counts.take_back(before)  # closing its source may fail after it was counted
            tally.failed.append((name, tried(error, "copy"), error))

    def file(
        self, source_fd: int, source: bytes, target_fd: int, name: bytes, *, claimed: bool = False
    ) -> int:
        """Copy a regular file: `COPIED`, or with nothing done `LARGE` or `LINKED`.

        `COPIED` is as well what was left as it is.
        `LINKED` has several names that are to be one in the copy as well, and
        was not `claimed`. The `status` of what was opened is kept. OSError, which says
        what was tried, if it can't be copied; NoSpace if no file could.
        """
        self.status = None
        self._watch.attempt(1)  # it may have to be renamed
        existing, linked = self._settings.existing, self._settings.keep.links
        # Whether a name of several stays is decided when it is its turn, but for -n.
        early = existing.stays or claimed or not linked
        if existing.decides and early and self.means.stays(source_fd, source, target_fd, name):
            return COPIED
        try:
            with trying("open"):
                outcome = self._opened_file(source_fd, source, target_fd, name, claimed, early)
        except Taken:
            self.skip(target_fd, name)
            return COPIED
        if isinstance(outcome, int):
            return outcome
        self._watch.copied(source, self._size)
        counts = self._counts
        counts.files += 1
        counts.sized += 1
        counts.bytes_found += self._size
        counts.bytes_done += self._size
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
        """The status of the file that was copied, or what became of it instead."""
        fd = os.open(source, self._settings.source_flags, dir_fd=source_fd)
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise Changed("it is no longer a regular file")
            self.status, self._size = status, status.st_size
            if not claimed and self.means.is_one_of_several(status, source_fd):
                return LINKED
            if not early and self.means.stays(source_fd, source, target_fd, name):
                return COPIED
            self.means.recalls.see(source, source_fd, status)
            if status.st_size > self._settings.large_bytes and not _is_made_up(fd, status):
                keeper = self.names.keeper
                if keeper is None or not keeper.has_content(name, fd, status):
                    return LARGE
            try:
                self._whole(fd, status, target_fd, name)
            except OSError as error:
                if error.errno != errno.ENOSPC and not isinstance(error, Moved):
                    raise
                # There was room for a probe: perhaps others have made some meanwhile. What has
                # moved may be what it was, or a new version as a whole.
                os.lseek(fd, 0, os.SEEK_SET)
                self.status = status = os.fstat(fd)
                self._size = status.st_size
                self._whole(fd, status, target_fd, name)
            return status
        finally:
            os.close(fd)

    def _whole(self, fd: int, status: os.stat_result, target_fd: int, name: bytes) -> None:
        creation = self._created(target.create, fd, status, target_fd, name)
        try:
            self._fill(fd, status, creation, target_fd)
            with trying("rename the copy of"):
                target.publish(creation, target_fd, self._settings, self.names)
                self._protect(creation, target_fd)
        except OSError as error:
            self._give_up(creation, target_fd, error)
            raise

    def _created(
        self,
        create: Callable[..., Creation],
        fd: int,
        status: os.stat_result,
        target_fd: int,
        name: bytes,
    ) -> Creation:
        with trying("create the copy of"):
            try:
                make = self.layouts.maker(fd)
                created: Creation = create(
                    target_fd, name, status, self._settings, self.names, make
                )
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

    def _empty(self, fd: int, status: os.stat_result, creation: Creation) -> None:
        """Cut a file that is rewritten to nothing.

        Whom its source will not let read must not read what comes.
        """
        if are_same(fd, creation.fd):
            raise Trouble(SAME_FILE, "it and its copy are the same file")
        withdraw(creation.fd, status, self._settings.keep, self._held(fd, creation), rewritten=True)
        os.ftruncate(creation.fd, 0)

    def _fill(self, fd: int, status: os.stat_result, creation: Creation, target_fd: int) -> None:
        try:
            with trying("clone" if self._mover.must_clone else "copy"):
                self._content(fd, creation, status)
            if self._settings.keep.any or creation.written != creation.name:
                with trying("set the attributes of the copy of"):
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
        with trying("finish the copy of"):
            os.close(creation.fd)

    def _held(self, fd: int, creation: Creation) -> Held | None:
        """What the copy of an open source is to have beyond its mode, owner and times."""
        extras = self._extras
        with trying("read the attributes of"):
            return extras.of_file(fd, alone=creation.rewritten) if extras.any else None

    def _settle(self, creation: Creation, source: os.stat_result, target_fd: int) -> None:
        refused = target.settle(creation, source, self._settings)
        if refused:
            self._extras.account(refused, target_fd)

    def _sync(self, fd: int) -> None:
        if self._settings.existing.sync:
            with trying("flush the copy of"):
                os.fsync(fd)

    def _content(self, fd: int, creation: Creation, status: os.stat_result) -> None:
        watch, keeper, out = self._watch, self.names.keeper, creation.fd
        if keeper and keeper.gives_content(creation.name, (fd, status), out, self._moved):
            return None
        if not watch.reads:
            return self._moved(fd, out, status)
        watch.begin_at(0)
        self._moved(fd, out, status)
        # Not the source's: files of /proc and /sys have another size than they have bytes.
        watch.end_file(os.fstat(out).st_size)

    def _moved(self, fd: int, out: int, status: os.stat_result) -> None:
        size, pair = status.st_size, None
        if self._mover.must_clone or size > ONE_READ_BYTES:
            pair = (status.st_dev, os.fstat(out).st_dev)
            if self._mover.clone(fd, out, pair):
                self._unchanged(fd, status)
                return
        if not size or _is_made_up(fd, status):
            self._unsized(fd, out)
        elif self._settings.sparse == "always" or may_have_holes(status):
            self._sparse(fd, out, status, pair or pair_of(fd, out))
        elif size <= ONE_READ_BYTES:
            # One byte more is asked for than there should be, so growth is seen as well.
            data = self._small[: os.readv(fd, [self._small[: size + 1]])]
            self._watch.due(len(data))
            if len(data) != size:
                raise Changed("it changed while it was copied")
            self._watch.see(0, data)
            write_all(out, data)
        else:
            if self._move(fd, out, 0, size, pair) != size:
                raise Changed("it shrank while it was copied")
            self._unchanged(fd, status)

    def _unsized(self, fd: int, out: int) -> None:
        """Copy up to the end, whatever size the file claims: so files of /proc and /sys are read.

        Some of them give all that they have to one read, and nothing to the next one.
        """
        done = 0
        while count := os.readv(fd, [self._small]):
            if self.means.is_stopping():
                raise Changed("it was unfinished when the job stopped")
            data = self._small[:count]
            self._watch.due(count)
            self._watch.see(done, data)
            write_all(out, data)
            done += count
        self._size = done

    def _sparse(self, fd: int, out: int, status: os.stat_result, pair: Pair) -> None:
        os.ftruncate(out, status.st_size)
        whole = (0, status.st_size)
        never = self._settings.sparse == "never"
        digs = not (never or reports_holes(fd))  # then its zeros tell where its holes are
        for offset, length in [whole] if never else data_ranges(fd, *whole):
            if self._move(fd, out, offset, length, pair, digs=digs) != length:
                raise Changed("it shrank while it was copied")
        self._unchanged(fd, status)

    def _move(
        self, fd: int, out: int, offset: int, length: int, pair: Pair | None, *, digs: bool = False
    ) -> int:
        """As of `Mover.move`, slice by slice where somebody keeps to a pace."""
        watch, move = self._watch, self._mover.move
        if not watch.is_paced and length <= self._settings.large_bytes:
            return move(fd, out, offset, length, pair, digs=digs)
        done = 0
        while done < length:
            if length > self._settings.large_bytes and self.means.is_stopping():
                raise Changed("it was unfinished when the job stopped")
            part = min(watch.slice_bytes, length - done)
            watch.due(part)
            moved = move(fd, out, offset + done, part, pair, digs=digs)
            done += moved
            if moved < part:
                break
        return done

    def _unchanged(self, fd: int, before: os.stat_result) -> None:
        refuse_change(before, os.fstat(fd))

    @contextmanager
    def opened(self, source_fd: int, source: bytes) -> Iterator[tuple[int, os.stat_result]]:
        """A large source file, open, and its status."""
        with trying("open"):
            fd = os.open(source, self._settings.source_flags, dir_fd=source_fd)
            try:
                status = os.fstat(fd)
                if not stat.S_ISREG(status.st_mode):
                    raise Changed("it is no longer a regular file")
                yield fd, status
            finally:
                with suppress(OSError):  # it was only read
                    os.close(fd)

    def take_up(
        self,
        source: tuple[int, os.stat_result],
        ranges: list[tuple[int, int]],
        made: os.stat_result,
        names: tuple[bytes, bytes],
        target_fd: int,
    ) -> BegunFile:
        """As `begin`, of a file begun before; `names` are the temporary one and its own."""
        fd, status = source
        written, name = names
        creation = target.taken_up(target_fd, name, written, status, self._settings, self.names)
        creation.identity = (made.st_dev, made.st_ino)
        creation.held = self._held(fd, creation)
        if creation.rewritten:
            self._withdraw_again(creation, status, target_fd)
        self._counts.sized += 1
        self._counts.bytes_found += status.st_size
        return status, creation, self._settings.identify(made), ranges

    def _withdraw_again(self, creation: Creation, status: os.stat_result, target_fd: int) -> None:
        """The source may grant less than when an earlier run began to rewrite its copy."""
        with trying("reach the copy of"):
            out = os.open(creation.written, _REACH, dir_fd=target_fd)
            try:
                made = os.fstat(out)
                if (made.st_dev, made.st_ino) != creation.identity:
                    raise Changed("its copy was replaced while it was made")
                withdraw(out, status, self._settings.keep, creation.held, rewritten=True)
            finally:
                os.close(out)

    def begin(
        self,
        source_fd: int,
        source: bytes,
        target_fd: int,
        name: bytes,
        divide: Callable[[int, os.stat_result, int], list[tuple[int, int]]],
    ) -> BegunFile:
        """Make the temporary file that a large file's chunks go to, of its full size, closed.

        Returns the source's status, what was made, its identity, and the
        ranges that `divide` says of the open source, its status and the unit
        of the chunks; none if it could be cloned.
        """
        with self.opened(source_fd, source) as (fd, status):
            creation, identity, cloned = self._make(fd, status, target_fd, name)
            with trying("copy"):
                ranges = [] if cloned else divide(fd, status, creation.unit_bytes)
        self._counts.sized += 1
        self._counts.bytes_found += status.st_size
        return status, creation, identity, ranges

    def _make(
        self, fd: int, status: os.stat_result, target_fd: int, name: bytes
    ) -> tuple[Creation, Identity, bool]:
        creation = self._created(target.create_beside, fd, status, target_fd, name)
        try:
            try:
                with trying("read the attributes of"):
                    creation.identify()
                    creation.held = self._held(fd, creation)
                with trying("clone" if self._mover.must_clone else "copy"):
                    made = os.fstat(creation.fd)
                    cloned = self._mover.clone(fd, creation.fd, (status.st_dev, made.st_dev))
                    if not cloned:
                        os.ftruncate(creation.fd, status.st_size)
                        creation.unit_bytes = self.layouts.unit_bytes(fd, creation.fd)
            finally:
                os.close(creation.fd)
        except OSError as error:
            self._give_up(creation, target_fd, error)
            raise
        return creation, self._settings.identify(made), cloned

    def _give_up(self, creation: Creation, target_fd: int, error: OSError) -> None:
        """Remove what was made; NoSpace if the reason is that there is none for anything."""
        try:
            target.stop_if_full(error, target_fd, self.names)
        finally:
            target.discard(creation.written, target_fd, creation.identity)

    def chunk(
        self, item: Range, source_fd: int, target_fd: int, split: bool, stop: Callable[[], bool]
    ) -> tuple[int, OSError | None]:
        """Copy a chunk; returns where it got to, and the error that it stopped at, if any.

        With `split` it stops, after a quarter of a second, at a slice's end,
        so that the rest can be shared. NoSpace if nothing could be written.
        """
        with trying("open"):
            fd = os.open(item.name, self._settings.source_flags, dir_fd=source_fd)
        try:
            with trying("open"):
                self._check_identity(fd, item.source, "the file was replaced while it was copied")
            with trying("reach the copy of"):
                out = os.open(item.temporary, _REACH, dir_fd=target_fd)
            return self._range(item, fd, out, target_fd, split, stop)
        finally:
            os.close(fd)

    def _range(
        self,
        item: Range,
        fd: int,
        out: int,
        target_fd: int,
        split: bool,
        stop: Callable[[], bool],
    ) -> tuple[int, OSError | None]:
        reached = item.offset
        error: OSError | None = None
        try:
            with trying("reach the copy of"):
                self._check_identity(out, item.target, "its copy was replaced while it was made")
            with trying("copy"):
                self._watch.begin_at(item.offset)
                for after in self._slices(item, fd, out, split, stop):
                    reached = after
                self._watch.end_range(item.offset, reached, stopped=stop())
            self._sync(out)
        except OSError as caught:
            target.stop_if_full(caught, target_fd, self.names)
            error = caught
        finally:
            os.close(out)
        return reached, error

    def _slices(
        self, item: Range, fd: int, out: int, split: bool, stop: Callable[[], bool]
    ) -> Iterator[int]:
        """Copy slice by slice, giving where each ends; a hole is passed with what follows it."""
        until_s = time.monotonic() + _CHUNK_SPLIT_S
        offset, end = item.offset, item.offset + item.length
        pair = pair_of(fd, out)
        # Looking for a hole that is not there may cost as much as copying.
        whole = [(item.offset, item.length)]
        digs = item.sparse and not reports_holes(fd)
        for start, length in data_ranges(fd, *whole[0]) if item.sparse else whole:
            for at, size in self._cuts(start, length):
                if self._move(fd, out, at, size, pair, digs=digs) != size:
                    raise Changed("it shrank while it was copied")
                self._advance(item, offset, at + size)
                offset = at + size
                yield offset
                # Of what is signed only whole blocks are left to others.
                shared = split and (not self._watch.by_blocks or offset % CHUNK_UNIT_BYTES == 0)
                if stop() or (shared and time.monotonic() > until_s):
                    return
        self._advance(item, offset, end)
        yield end

    def _cuts(self, start: int, length: int) -> Iterator[tuple[int, int]]:
        """A range in slices; of what is signed none straddles blocks."""
        end = start + length
        while start < end:
            size = min(self._watch.slice_bytes, end - start)
            if self._watch.by_blocks:
                size = min(size, CHUNK_UNIT_BYTES - start % CHUNK_UNIT_BYTES)
            yield start, size
            start += size

    def _advance(self, item: Range, offset: int, reached: int) -> None:
        self._counts.bytes_done += reached - offset
        self._counts.weight += item.weight * (reached - offset) / item.length

    def _check_identity(self, fd: int, identity: Identity, otherwise: str) -> None:
        if self._settings.identify(os.fstat(fd)) != identity:
            raise Changed(otherwise)

    def finish(
        self,
        before: os.stat_result,
        creation: Creation,
        identity: Identity,
        names: tuple[int, bytes, int],
        *,
        failed: bool,
    ) -> None:
        """All chunks are done: set the attributes and rename; or remove it, if one has `failed`.

        `names` are the source's directory and name and the target's
        directory. OSError if the source is not what it was, or as of the rest.
        """
        source_fd, name, target_fd = names
        try:
            if failed:
                target.discard(creation.written, target_fd, creation.identity)
                return
            with trying("copy"):
                now = os.stat(name, dir_fd=source_fd, follow_symlinks=self._settings.follow)
                refuse_change(before, now)
            with trying("set the attributes of the copy of"):
                self._settle_again(before, creation, identity, target_fd)
            with trying("rename the copy of"):
                target.still_replaceable(creation, before, self._settings, target_fd, self.names)
                target.publish(creation, target_fd, self._settings, self.names)
                self._protect(creation, target_fd)
        except OSError as error:
            self._give_up(creation, target_fd, error)
            raise

    def _settle_again(
        self, before: os.stat_result, creation: Creation, identity: Identity, target_fd: int
    ) -> None:
        creation.fd = os.open(creation.written, _REACH, dir_fd=target_fd)
        try:
            self._check_identity(creation.fd, identity, "its copy was replaced while it was made")
            if creation.held is not None and creation.held.flags:
                creation.identify()
            self._settle(creation, before, target_fd)
            self._sync(creation.fd)
        finally:
            os.close(creation.fd)

    def _protect(self, creation: Creation, target_fd: int) -> None:
        """Set the inode flags, which may forbid renaming, of a file that has its name."""
        if creation.held is None or not creation.held.flags:
            return
        try:
            fd = os.open(creation.name, SOURCE_FLAGS, dir_fd=target_fd)
        except PermissionError:  # its mode may forbid its owner to read it
            self._counts.lose({FLAGS})
            return
        try:
            made = os.fstat(fd)
            if (made.st_dev, made.st_ino) != creation.identity:
                raise Changed("its copy was replaced while it was made")
            self._extras.protect(fd, creation.held)
        finally:
            os.close(fd)


def _is_made_up(fd: int, status: os.stat_result) -> bool:
    """Return whether the size of a file is a nominal one, of which sysfs has less."""
    return not status.st_blocks and is_pseudo(fd)
