"""What is as it should be, of entries that both sides have: most of them, every night.

Names are looked up on both sides, many at a time, and compared column by column; only of what has
changed since the last complete run attributes are asked for. Small directories in which nothing but
files is are looked at several at once: so what a block costs is paid for once for all of these.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress

from pcircle.comparing import fields
from pcircle.comparing.details import Details
from pcircle.comparing.inodes import Unchanged
from pcircle.fmirror.plan import MirrorPlan
from pcircle.fmirror.work.keeping import Keeping, read_from_ns
from pcircle.fs.directories import close_open
from pcircle.fs.scan import Listings, few, files_of, plain, records_bytes
from pcircle.fs.stats import CAPACITY, Failed, Row, Stats
from pcircle.guards import require

OF_FILES = fields.ALL & ~fields.TARGET
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NS = 10**9

_Pair = tuple[bytes, int, int]
"""A directory, open on both sides."""


class QuickCheck:
    """One worker thread's. `is_trusted`: what has old times was there at the last run."""

    def __init__(self, plan: MirrorPlan, keeper: Keeping, helped: int) -> None:
        self._keeper = keeper
        self._keeps_links = plan.keep.links
        self._quiet_ns, self._devices = plan.quiet_ns, plan.devices
        self._deletes = plan.deleting.wanted
        self._read_from_ns = read_from_ns(plan)
        source = Stats(helped)
        self._looks = source, Stats(helped, sharing=source)
        self._directories = Stats(1), Stats(1)
        self._systems = Listings()
        self._by_inode: Unchanged | None = None
        self.is_trusted = True

    def ask_in_bulk(self, sides: tuple[bool, bool]) -> None:
        """Of these sides the status of files may be asked for by their inodes."""
        self._by_inode = Unchanged(self._keeper.comparer.columns, sides, self._looks)

    def is_quiet(self, source: os.stat_result, target: os.stat_result) -> bool:
        """Whether neither was changed since the last complete run."""
        quiet_ns = self._quiet_ns
        if quiet_ns is None:
            return False
        is_older = source.st_ctime_ns < quiet_ns[0] and target.st_ctime_ns < quiet_ns[1]
        return is_older and self.is_known(source, target)

    def is_known(self, source: os.stat_result, target: os.stat_result) -> bool:
        """Return whether two directories are on the file systems of the last complete run.

        The state tells nothing of file systems that are mounted below these.
        """
        return (source.st_dev, target.st_dev) == self._devices

    # ---- names of one directory ------------------------------------------------

    def left(self, names: list[bytes], fds: tuple[int, int], among: int) -> list[bytes]:
        """Those of up to `CAPACITY` names that are not known to be as they should be."""
        self._wait_for([os.fstat(fd).st_dev for fd in fds])
        return self._left(names, fds, among)

    def _left(self, names: list[bytes], fds: tuple[int, int], among: int) -> list[bytes]:
        here, missing = _look(self._looks[1], fds[1], names)
        there, gone = _look(self._looks[0], fds[0], here)
        if gone:  # what is not there any more fails where it is copied
            _look(self._looks[1], fds[1], there)
        changed = self._changed(there, fds, among)
        return [*missing, *gone, *changed]

    def _wait_for(self, devices: list[int]) -> None:
        """What is looked up next is on these."""
        waits = any(self._systems.of(device).waits for device in devices)
        for look in self._looks:
            look.waits = waits

    def _changed(self, names: list[bytes], fds: tuple[int, int], among: int) -> list[bytes]:
        """Of names that were looked up on both sides those that are not as they should be."""
        if not names:
            return []
        source, target = self._looks
        count, keeper = len(names), self._keeper
        found = keeper.blocks(source, target, count)
        details = keeper.details
        linked: Sequence[int] = ()
        if self._keeps_links and not source.has_single_names(0, count):
            linked = source.column("links", 0, count)
        asks = 0 if self._are_quiet(count) else details.fields & among
        doubts = self._doubts(count)
        if not (found or linked or asks or doubts):
            return []
        changed = {*found, *doubts, *(place for place, number in enumerate(linked) if number > 1)}
        if asks:
            rows = list(zip(source.rows(count), target.rows(count), strict=True))
            rest = [place for place in range(count) if place not in changed]

            def ask(start: int, stop: int) -> None:
                for place in rest[start:stop]:
                    if _differs(details, names[place], fds, *rows[place]):
                        changed.add(place)

            (target if target.is_slow else source).beside(ask, 0, len(rest))
        return [name for place, name in enumerate(names) if place in changed]

    def _doubts(self, count: int) -> set[int]:
        """Of these the places of files that are to be read."""
        if self._read_from_ns is None:
            return set()
        if not self.is_trusted:
            return set(range(count))
        from_s = self._read_from_ns // _NS
        times = self._looks[0].column("ctime", 0, count)
        return {place for place, seconds in enumerate(times) if seconds >= from_s}

    def _are_quiet(self, count: int) -> bool:
        """Whether of these nothing was changed since the last complete run, on neither side."""
        return self.is_trusted and self._are_older(self._looks, count)

    def _are_older(self, looks: tuple[Stats, Stats], count: int) -> bool:
        if self._quiet_ns is None or not count:
            return False
        pairs = zip(looks, self._quiet_ns, strict=True)
        return all(max(look.column("ctime", 0, count)) < ns // _NS for look, ns in pairs)

    # ---- directories -----------------------------------------------------------

    def directories(self, names: list[bytes], fds: tuple[int, int]) -> tuple[list[bytes], int]:
        """Directories of one that are to be walked; and the files that the other ones hold.

        Those hold nothing else, and all is as it should be there and has been since the last
        complete run.
        """
        self.is_trusted = True
        pairs: list[_Pair] = []
        try:
            for name in names:
                with suppress(OSError):
                    source_fd = os.open(name, _DIRECTORY, dir_fd=fds[0])
                    # A side at a time, so that none is left open.
                    pairs.append((name, source_fd, -1))
                    target_fd = os.open(name, _DIRECTORY, dir_fd=fds[1])
                    pairs[-1] = name, source_fd, target_fd
            done, files = self._done([pair for pair in pairs if pair[2] >= 0])
        finally:
            for _, source_fd, target_fd in pairs:
                close_open(source_fd)
                if target_fd >= 0:
                    close_open(target_fd)
        if len(done) == len(names):
            return [], files
        return [name for name in names if name not in done], files

    def _done(self, pairs: list[_Pair]) -> tuple[set[bytes], int]:
        """Those in which all is as it should be; and how many files they hold."""
        done: set[bytes] = set()
        some: list[tuple[_Pair, list[bytes]]] = []
        files = waiting = 0
        for pair in self._alike(pairs):
            fds = pair[1], pair[2]
            told = None if self._by_inode is None else self._told_by_inode(self._by_inode, fds)
            if told is not None:
                done.add(pair[0])
                files += told
                continue
            inner = self._same_names(fds)
            if inner is None:
                continue
            if waiting + len(inner) > CAPACITY:
                files += self._settle(some, done)
                some, waiting = [], 0
            some.append((pair, inner))
            waiting += len(inner)
        files += self._settle(some, done)
        return done, files

    def _alike(self, pairs: list[_Pair]) -> list[_Pair]:
        """Those that are themselves as they should be, and were not changed since the last run."""
        count, looks = len(pairs), self._directories
        if not count or self._quiet_ns is None:
            return []
        try:
            looks[0].look_open([source_fd for _, source_fd, _ in pairs])
            looks[1].look_open([target_fd for _, _, target_fd in pairs])
        except Failed:
            return []
        devices = set(looks[0].devices(0, count)), set(looks[1].devices(0, count))
        if devices != ({self._devices[0]}, {self._devices[1]}):
            return []
        self._wait_for([*devices[0], *devices[1]])
        other = self._keeper.directories(*looks, count)
        if not other and self._are_older(looks, count):
            return pairs
        quiet = [
            [time_ns < ns for time_ns in look.times_ns("ctime", 0, count)]
            for look, ns in zip(looks, self._quiet_ns, strict=True)
        ]
        return [
            pair
            for place, (pair, *are_quiet) in enumerate(zip(pairs, *quiet, strict=True))
            if place not in other and all(are_quiet)
        ]

    def _told_by_inode(self, by_inode: Unchanged, fds: tuple[int, int]) -> int | None:
        ours_ns, theirs_ns = require(self._quiet_ns)
        try:
            before_s = ours_ns // _NS, theirs_ns // _NS
            told = by_inode.files(fds, before_s, alone=self._keeps_links)
        except OSError:
            told = None
        if told is None:
            for fd in fds:
                os.lseek(fd, 0, os.SEEK_SET)
        return told

    def _same_names(self, fds: tuple[int, int]) -> list[bytes] | None:
        """The names in a directory that has files alone, if the other one has no others.

        A name that the source has is looked up in the target later. If all are there, each for an
        entry of its own, and the records of both listings are as many bytes, there are no others.
        """
        try:
            found = plain(fds[0], CAPACITY)
            if found is None:
                os.lseek(fds[0], 0, os.SEEK_SET)
                names = files_of(few(fds[0], CAPACITY))
                if names is None:
                    return None
                found = names, -1
            names, size = found
            if not self._deletes or (size >= 0 and records_bytes(fds[1], size) == size):
                return names
            os.lseek(fds[1], 0, os.SEEK_SET)
            there = files_of(few(fds[1], CAPACITY))
            return None if there is None or set(there) != set(names) else names
        except OSError:
            return None

    def _settle(self, some: list[tuple[_Pair, list[bytes]]], done: set[bytes]) -> int:
        """Add those of some directories to `done` of whose files all are as they should be.

        The number of these.
        """
        if self._are_same(some):
            done.update(pair[0] for pair, _ in some)
            return sum(len(inner) for _, inner in some)
        files = 0
        for (name, source_fd, target_fd), inner in some:
            fds = source_fd, target_fd
            if not self._left(inner, fds, OF_FILES) and self._are_several(inner):
                done.add(name)
                files += len(inner)
        return files

    def _are_same(self, some: list[tuple[_Pair, list[bytes]]]) -> bool:
        """Whether all files of these directories surely are as they should be."""
        names = [name for _, inner in some for name in inner]
        if not names:
            return True
        try:
            self._looks[1].look([fd for (_, _, fd), inner in some for _ in inner], names)
            self._looks[0].look([fd for (_, fd, _), inner in some for _ in inner], names)
        except Failed:
            return False
        count, (source, target) = len(names), self._looks
        return (
            self._are_quiet(count)
            and not self._keeper.blocks(source, target, count)
            and (not self._keeps_links or source.has_single_names(0, count))
            and self._are_several(names)
            and not self._doubts(count)
        )

    def _are_several(self, names: list[bytes]) -> bool:
        """Whether names that were looked up in the target are of as many entries there."""
        count = len(names)
        return len(set(self._looks[1].column("inode", 0, count))) == count


def _differs(details: Details, name: bytes, fds: tuple[int, int], a: Row, b: Row) -> bool:
    """Whether two entries have other details; what can't be read is met where it is copied."""
    try:
        return bool(details.of_name(name, fds, a, b))
    except OSError:
        return True


def _look(look: Stats, fd: int, names: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    """Look names up; those that are there, which are looked up, and those that are not."""
    if not names:
        return names, []
    try:
        look.look(fd, names)
        return names, []
    except Failed as failed:
        gone = [name for place, name in enumerate(names) if place in failed.errors]
    there = [name for name in names if name not in set(gone)]
    return _look(look, fd, there)[0], gone
