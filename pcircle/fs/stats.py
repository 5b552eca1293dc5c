"""The attributes of many names of one directory, as columns of numbers.

A walk that looks at each file spends its time here. An `os.stat` makes an object of some twenty
others, of which a profile wants three: 0.7 µs beside the 0.85 µs that the kernel takes. So the
kernel writes its answers side by side into one buffer (`pcircle.fs.status` has the calls), and what
is wanted is read off as columns, by slices with a stride: a whole entry, name included, came from
1.85 to 1.4 µs (CPython 3.11, tmpfs, 500,000 files).

A name that can't be looked up by this, for whatever reason, is asked for once more by `os.stat`,
and so is every name where the C library has no such call. Where look-ups turn out to take long,
those of a block overlap.
"""

from __future__ import annotations

import os
import stat
import time
from array import array
from collections.abc import Iterator, Sequence
from itertools import repeat, starmap
from typing import Final, NamedTuple

from pcircle.fs.directories import affordable_threads
from pcircle.fs.status import Calls, calls, uncalled
from pcircle.workers.overlap import Overlap, Part
from pcircle.workers.starting import Limit

CAPACITY: Final = 512
"""Names that are looked up at a time: what is known of them stays in the processor's cache."""

_NS = 1_000_000_000
_MAX_WORKERS = 16
_AT_ONCE = 16
_FEW_WORKERS = 4
_SLOW_S = 50e-6
_SLOW_BLOCKS = 3  # of late
_SURELY_SLOW_S = 500e-6  # for each of a probe, and for the name after it
_PROBE = 4  # names that are looked up to see how long it takes
_PROBES = 3  # slow ones, to be sure: one may be because this process had to wait for a processor
_WORTH_IT = 8  # names; fewer are not worth to wake anybody


class Failed(Exception):
    """Some names of a block could not be looked up: their places, each with its error."""

    def __init__(self, errors: dict[int, OSError]) -> None:
        super().__init__(f"{len(errors)} names could not be looked up")
        self.errors = errors


class Row(NamedTuple):
    """What is known of one entry, by the names that `os.stat` has for it."""

    st_mode: int
    st_ino: int
    st_dev: int
    st_nlink: int
    st_uid: int
    st_gid: int
    st_size: int
    st_blocks: int
    st_blksize: int
    st_rdev: int
    st_atime_ns: int
    st_mtime_ns: int
    st_ctime_ns: int


class Stats:
    """What `look` found of up to `CAPACITY` names, in their order. Links are not followed.

    `threads` look-ups are under way at once where they take long; `sharing` the threads of another
    one, with which it takes turns. Columns: `links`, `uid`, `gid`,
    `mode`, `inode`, `size` (bytes), `blocks` (of 512 bytes), `block_size`; `atime`, `ctime`,
    `mtime` (whole seconds) and what is behind the point, `atime_ns` and so on. Where nothing
    `waits`, as in memory, a block of look-ups keeps the interpreter's lock, which takes 4% off;
    anywhere else other threads must run meanwhile.
    """

    def __init__(
        self, threads: int = 16, looked_up_by: Calls | None = None, sharing: Stats | None = None
    ) -> None:
        self._calls = looked_up_by or (calls if Limit.limit_s is None else uncalled)(CAPACITY)
        self._columns = dict(_columns(self._calls))
        self._ones = memoryview(array(self._columns["links"].format, [1] * CAPACITY))
        self._mode, self._modes = 0, memoryview(array(self._columns["mode"].format, [0] * CAPACITY))
        self._around = _constants(self._calls.form.before), _constants(self._calls.form.after)
        self._open_around = self._calls.form.of_open
        self._overlap: Overlap = Overlap(threads) if sharing is None else sharing._overlap
        self.waits = True
        self._slow = 0  # blocks, more of late than not
        self._directory_fd: int | Sequence[int] = -1
        self._names: Sequence[bytes] = ()
        self._failed: dict[int, OSError] = {}

    def look(self, directory_fd: int | Sequence[int], names: Sequence[bytes]) -> None:
        """Look names up. `Failed` if some can't be: the columns of the others stand.

        All of one directory, or each in its own.
        """
        count = len(names)
        if count > CAPACITY:
            raise ValueError(f"{count} names are too many at a time")
        self._directory_fd = directory_fd
        self._names = names
        if count < _WORTH_IT:
            self._range(0, count)
        else:
            begin = 0 if self.is_slow else self._probe(count)
            if self.is_slow:
                self._look_overlapped(begin, count)
            else:
                self._range(begin, count)
        if self._failed:
            failed, self._failed = self._failed, {}
            raise Failed(failed)

    def look_open(self, fds: Sequence[int]) -> None:
        """What `os.fstat` tells of open files. `Failed` as of `look`."""
        calls = self._calls
        again: Sequence[int] = range(len(fds))
        if calls.giving is not None:
            before, after = map(_constants, calls.form.of_open)
            arguments = zip(fds, repeat(b""), *before, calls.places, *after)
            codes = list(starmap(calls.giving, arguments))
            again = [place for place, code in enumerate(codes) if code]
        failed: dict[int, OSError] = {}
        for place in again:
            try:
                calls.form.put(calls.buffer, place, os.fstat(fds[place]))
            except OSError as error:
                failed[place] = error
        if failed:
            raise Failed(failed)

    def look_at(self, fd: int, place: int) -> None:
        """The same of one, for a place. OSError."""
        calls = self._calls
        if calls.giving is not None:
            before, after = self._open_around
            if not calls.giving(fd, b"", *before, calls.places[place], *after):
                return
        calls.form.put(calls.buffer, place, os.fstat(fd))

    def _probe(self, count: int) -> int:
        """Look up the first of so many names to see whether it takes long; returns how many."""
        for probe in range(1, _PROBES + 1):
            stop = min(probe * _PROBE, count)
            began_s = time.perf_counter()
            self._range(stop - _PROBE, stop)
            took_s = time.perf_counter() - began_s
            if took_s <= _PROBE * _SLOW_S:
                self._slow = max(self._slow - 1, 0)
                return stop
            if took_s > _PROBE * _SURELY_SLOW_S and stop < count:
                began_s = time.perf_counter()
                self._range(stop, stop + 1)
                stop += 1
                if time.perf_counter() - began_s > _SURELY_SLOW_S:
                    self._slow = max(self._slow, _SLOW_BLOCKS)
                    return stop
            if stop + _PROBE > count:
                break
        self._slow = min(self._slow + probe, 2 * _SLOW_BLOCKS)
        return stop

    def _look_overlapped(self, begin: int, end: int) -> None:
        began_s = time.perf_counter()
        self._overlap.run(self._range, begin, end)
        # Overlapped, it takes a part of what it would.
        spent_s = (time.perf_counter() - began_s) * self._overlap.threads
        if spent_s > _SLOW_S * (end - begin):
            self._slow = min(self._slow + 1, 2 * _SLOW_BLOCKS)
        else:
            self._slow = max(self._slow - 1, 0)

    @property
    def is_slow(self) -> bool:
        """Whether look-ups take long."""
        return self._slow >= _SLOW_BLOCKS

    def beside(self, function: Part, start: int, stop: int) -> None:
        """Call a function for a range of names, for parts of it at once if look-ups take long."""
        if self.is_slow:
            self._overlap.run(function, start, stop)
        else:
            function(start, stop)

    def column(self, name: str, start: int, stop: int) -> list[int]:
        """A column of the names from `start` to before `stop`."""
        column: list[int] = self._columns[name][start:stop].tolist()
        return column

    def devices(self, start: int, stop: int, name: str = "device") -> list[int]:
        """The numbers of the devices that they are on, or of `rdev` are, as `os.stat` has them."""
        if name in self._columns:
            return self.column(name, start, stop)
        majors, minors = (self.column(f"{name}_{part}", start, stop) for part in ("major", "minor"))
        return list(map(os.makedev, majors, minors))

    def times_ns(self, name: str, start: int, stop: int) -> list[int]:
        """A time of theirs as `os.stat` has it, in nanoseconds."""
        seconds, rest = self.column(name, start, stop), self.column(f"{name}_ns", start, stop)
        return [_NS * second + ns for second, ns in zip(seconds, rest, strict=True)]

    def rows(self, count: int) -> Iterator[Row]:
        """All that is known of the first names, entry by entry."""
        numbers = ("mode", "inode", "links", "uid", "gid", "size", "blocks", "block_size")
        mode, inode, links, *others = (self.column(name, 0, count) for name in numbers)
        devices, nodes = self.devices(0, count), self.devices(0, count, "rdev")
        times = (self.times_ns(name, 0, count) for name in ("atime", "mtime", "ctime"))
        return map(Row, mode, inode, devices, links, *others, nodes, *times)

    def agrees(self, other: Stats, name: str, count: int) -> bool:
        """Whether a column of the first names is the same in both, at a fraction of its price."""
        return self._columns[name][:count] == other._columns[name][:count]

    def are_files(self, count: int) -> bool:
        """Whether the first names are regular files of one mode, as most of a directory are."""
        found = self._columns["mode"][:count]
        mode = found[0]
        if not stat.S_ISREG(mode):
            return False
        if mode != self._mode:
            self._mode, self._modes = mode, memoryview(array(found.format, [mode] * CAPACITY))
        return found == self._modes[:count]

    def has_single_names(self, start: int, stop: int) -> bool:
        """Whether none of these has another name: at a fraction of the price of a column."""
        return self._columns["links"][start:stop] == self._ones[: stop - start]

    def close(self) -> None:
        """End the threads, if any were needed."""
        self._overlap.close()

    def _range(self, start: int, stop: int) -> None:
        """Look up the names from `start` to before `stop`; on any thread."""
        call = self._calls.giving if self.waits else self._calls.keeping
        before, after = self._around
        again: Sequence[int] = range(start, stop)
        if call is not None:
            # By starmap a call takes the tuple that zip fills again and again: 4% less than by map.
            names, places = self._names, self._calls.places
            if stop - start < len(names):
                names, places = names[start:stop], places[start:stop]
            fds = self._directory_fd
            each = repeat(fds) if isinstance(fds, int) else fds[start:stop]
            arguments = zip(each, names, *before, places, *after, strict=False)
            codes = list(starmap(call, arguments))
            if not any(codes):
                return
            again = [start + place for place, code in enumerate(codes) if code]
        for place in again:
            fds = self._directory_fd
            fd = fds if isinstance(fds, int) else fds[place]
            try:
                status = os.stat(self._names[place], dir_fd=fd, follow_symlinks=False)
            except OSError as error:
                self._failed[place] = error
            else:
                self._calls.form.put(self._calls.buffer, place, status)


def _columns(calls: Calls) -> Iterator[tuple[str, memoryview]]:
    """The fields of all records, by name."""
    buffer = memoryview(calls.buffer)
    views: dict[str, memoryview] = {
        "H": buffer.cast("H"),
        "I": buffer.cast("I"),
        "Q": buffer.cast("Q"),
        "q": buffer.cast("q"),
    }
    for name, (letter, place) in calls.form.columns.items():
        view = views[letter]
        yield name, view[place :: calls.form.record_bytes // view.itemsize]


def _constants(arguments: Sequence[int]) -> list[repeat[int]]:
    return [repeat(argument) for argument in arguments]


class Division(NamedTuple):
    """How many workers a rank has (None: adaptive), up to how many, and for how many
    look-ups each may have helpers, who are called only where it takes long.
    """

    workers: int | None
    most: int
    helped: int

    def helped_of(self, number: int) -> int:
        """Look-ups at once of worker `number`: with many workers, the later ones need few."""
        return self.helped if number < _FEW_WORKERS else min(self.helped, _FEW_WORKERS)


def divide(threads: int | None) -> Division:
    """Operations at once, by workers, which read a directory each, and look-ups in these."""
    most = min(_MAX_WORKERS, affordable_threads())
    if threads is None:
        return Division(None, most, _AT_ONCE)
    workers = min(most, -(-threads // _FEW_WORKERS))
    return Division(workers, most, max(1, threads // workers))
