"""The status of many entries, as columns of numbers.

Walks that examine each file spend most of their time here. `os.stat` creates about twenty objects
for each file, of which a profile needs three. One call of `native.stat_names` looks up hundreds of
names and returns a table, from which columns are read.

If look-ups take long, several threads share the names of a block. If file operations have a time
limit (`OperationTimeout`), names are looked up by functions of `os`, for which the limit is
enforced.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import threading
import time
from array import array
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Final

import msgspec

from pcircle.core.units import NS_PER_S
from pcircle.fs import native
from pcircle.fs.directories import affordable_threads
from pcircle.fs.native.interface import COLUMNS, UNTRIED
from pcircle.threads.workers import OperationTimeout, Overlap, RangeFunction, cpu_and_delay_s

CAPACITY: Final = 512
"""The maximum number of names that are looked up at a time; their table fits in the CPU cache."""

_WIDTH = 8  # bytes of a number
PLACE_OF: Final = {name: place for place, name in enumerate(COLUMNS)}
"""The position of each column."""
_ONE = (1).to_bytes(_WIDTH, sys.byteorder)
_UNTRIED = UNTRIED.to_bytes(_WIDTH, sys.byteorder, signed=True)
_UNSIGNED = frozenset({"inode", "device", "rdev"})
_MAX_WORKERS = 16
_AT_ONCE = 16
_FEW_WORKERS = 4
_SLOW_S = 50e-6
_SLOW_BLOCKS = 3  # slow blocks in excess of fast ones, from which look-ups count as slow
_PROBE_NS = 300_000  # the duration of a probe
# Slow probes that prove slow look-ups: one may be slow because the thread waited for a lock.
_PROBES = 3
_SURELY_SLOW_S = 500e-6  # time per name from which a probe counts twice
_PROBE_PERIOD = 16  # blocks looked up on several threads between two probes
_NEVER = 1 << 62
_WORTH_IT = 8  # fewer names are not worth waking a thread


class StatBlockError(Exception):
    """Some names could not be looked up; `errors` maps their positions to their errors."""

    def __init__(self, errors: dict[int, OSError]) -> None:
        super().__init__(f"{len(errors)} names could not be looked up")
        self.errors = errors


class StatusRow(msgspec.Struct, frozen=True):
    """The status of one entry, with the field names of `os.stat`."""

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


class Table:
    """The status of some entries, stored by columns (`interface.COLUMNS`)."""

    def __init__(self, data: bytes = b"") -> None:
        self._put(data)

    def _put(self, data: bytes) -> None:
        self.data = data
        self._count = len(data) // (_WIDTH * len(PLACE_OF))
        view = memoryview(data)
        self._signed, self._plain = view.cast("q"), view.cast("Q")

    @property
    def count(self) -> int:
        """Return the number of entries."""
        return self._count

    def column(self, name: str, start: int, stop: int) -> list[int]:
        """Return a column for the entries from `start` up to, but not including, `stop`."""
        begin = PLACE_OF[name] * self._count
        view = self._plain if name in _UNSIGNED else self._signed
        return view[begin + start : begin + stop].tolist()

    def times_ns(self, name: str, start: int, stop: int) -> list[int]:
        """Return a column of times in nanoseconds."""
        seconds, nanoseconds = (
            self.column(name, start, stop),
            self.column(f"{name}_ns", start, stop),
        )
        return [NS_PER_S * second + ns for second, ns in zip(seconds, nanoseconds, strict=True)]

    def rows(self, count: int) -> Iterator[StatusRow]:
        """Return the rows of the first `count` entries."""
        names = ("mode", "inode", "device", "links", "uid", "gid", "size", "blocks", "block_size")
        columns = [self.column(name, 0, count) for name in (*names, "rdev")]
        times = (self.times_ns(name, 0, count) for name in ("atime", "mtime", "ctime"))
        return map(StatusRow, *columns, *times)

    def _bytes(self, name: str, start: int, stop: int) -> bytes:
        begin = PLACE_OF[name] * self._count
        return self.data[_WIDTH * (begin + start) : _WIDTH * (begin + stop)]

    def picked(self, places: Sequence[int]) -> Table:
        """Return the table of the entries at these positions."""
        found = bytearray()
        for name in PLACE_OF:
            column = self._bytes(name, 0, self._count)
            cells = memoryview(column).cast("q")
            found += array("q", map(cells.__getitem__, places)).tobytes()
        return Table(bytes(found))

    def agrees(self, other: Table, name: str, count: int) -> bool:
        """Return whether both tables have the same column for the first `count` entries."""
        return self._bytes(name, 0, count) == other._bytes(name, 0, count)

    def common(self, name: str, count: int) -> int | None:
        """Return the common value of the first `count` entries in a column; None if they differ."""
        found = self._bytes(name, 0, count)
        is_common = count and found == found[:_WIDTH] * count
        return self.column(name, 0, 1)[0] if is_common else None

    def are_files(self, count: int) -> bool:
        """Return whether the first `count` entries are regular files with the same mode."""
        mode = self.common("mode", count)
        return mode is not None and stat.S_ISREG(mode)

    def has_single_names(self, start: int, stop: int) -> bool:
        """Return whether no entry in this range has other hard links."""
        return self._bytes("links", start, stop) == _ONE * (stop - start)


class Stats(Table):
    """Looks up names; as a table, it contains their status after the last look-up.

    Links are not followed. If look-ups take long, up to `threads` run at once. With `sharing`, this
    object uses the threads of that object, so the two must take turns.
    """

    def __init__(
        self,
        threads: int = 16,
        looked_up_by: ModuleType | None = None,
        sharing: Stats | None = None,
    ) -> None:
        super().__init__()
        self._native = looked_up_by or within_limit()
        self._overlap: Overlap = Overlap(threads) if sharing is None else sharing._overlap
        self._slow = 0  # rises with each slow block, falls with each fast block
        self._blocks_since_probe = 0
        self._delay_s = 0.0  # for which the thread has waited for a processor
        self._directory_fd: int | list[int] = -1
        self._names: list[bytes] = []
        self._parts: dict[int, tuple[bytes, bytes]] = {}  # by the position of the first name

    def look(self, directory_fd: int | Sequence[int], names: Sequence[bytes]) -> None:
        """Look up names in one directory, or each name in its own directory.

        Raises `StatBlockError` if names cannot be looked up; the rows of the other names are valid.
        There may be at most `CAPACITY` names.
        """
        count = len(names)
        if count > CAPACITY:
            raise ValueError(f"{count} names are too many at a time")
        self._directory_fd = directory_fd if isinstance(directory_fd, int) else list(directory_fd)
        self._names = list(names)
        self._parts = {}
        if count < _WORTH_IT:
            self._range(0, count)
        else:
            begin = self._probe_again(count) if self.is_slow else 0
            if not self.is_slow:
                begin = self._probe(begin, count)
            if begin < count:
                self._look_overlapped(begin, count)
        self._take()

    def look_up(
        self, directory_fd: int | Sequence[int], names: Sequence[bytes]
    ) -> dict[int, OSError]:
        """Look up names like `look`, and return the errors by place instead of raising them."""
        try:
            self.look(directory_fd, names)
        except StatBlockError as failed:
            return failed.errors
        return {}

    def look_many(self, directory_fd: int, names: Sequence[bytes]) -> None:
        """Look up any number of names in one directory. Raises `StatBlockError` like `look`."""
        tables: list[bytes] = []
        errors: dict[int, OSError] = {}
        for begin in range(0, len(names), CAPACITY):
            try:
                self.look(directory_fd, names[begin : begin + CAPACITY])
            except StatBlockError as failed:
                errors |= {begin + place: error for place, error in failed.errors.items()}
            tables.append(self.data)
        self._put(tables[0] if len(tables) == 1 else _joined(tables))
        if errors:
            raise StatBlockError(errors)

    def look_at_paths(self, paths: Sequence[bytes]) -> None:
        """Look up paths, relative to the working directory. Raises `StatBlockError`."""
        rows: list[os.stat_result | None] = []
        failed: dict[int, OSError] = {}
        for place, path in enumerate(paths):
            try:
                rows.append(os.lstat(path))
            except OSError as error:
                rows.append(None)
                failed[place] = error
        self._put(native.twin().table(rows))
        if failed:
            raise StatBlockError(failed)

    def put(self, table: bytes, each_s: float | None = None) -> None:
        """Set the table of entries that other code looked up, each in `each_s` seconds."""
        self._put(table)
        if each_s is not None:
            step = 1 if each_s > _SLOW_S else -1
            self._slow = min(max(self._slow + step, 0), 2 * _SLOW_BLOCKS)

    def _take(self) -> None:
        """Set the table from the parts. Raises `StatBlockError`."""
        parts = [self._parts[begin] for begin in sorted(self._parts)]
        outcomes = parts[0][0] if len(parts) == 1 else b"".join(part[0] for part in parts)
        self._put(parts[0][1] if len(parts) == 1 else _joined([part[1] for part in parts]))
        if outcomes.count(0) == len(outcomes):
            return
        raise StatBlockError(
            {
                place: _error(-1 - code)
                for place, code in enumerate(native.numbers(outcomes))
                if code
            }
        )

    def _probe_again(self, count: int) -> int:
        """Look up some names if a probe is due; return the position reached.

        Threads that wait for the interpreter lock seem to have slow look-ups. If a process that did
        not get the processor in time began to use threads, it would otherwise never stop doing so.
        """
        self._blocks_since_probe += 1
        if self._blocks_since_probe < _PROBE_PERIOD:
            return 0
        self._blocks_since_probe = 0
        self._delay_since_last()
        end, each_s = self._timed(0, count)
        if each_s <= _SLOW_S:
            self._slow = 0
        return end

    def _timed(self, begin: int, count: int) -> tuple[int, float]:
        """Look up names for a moment; return the position reached, and the time per name.

        The time does not include that in which the thread was ready to run but had no processor.
        That is read only if the look-ups seem slow, and the first time it may be too long.
        """
        began_s = time.perf_counter()
        end = self._range(begin, count, time.monotonic_ns() + _PROBE_NS)
        done, spent_s = max(1, end - begin), time.perf_counter() - began_s
        if spent_s > _SLOW_S * done:
            spent_s -= self._delay_since_last()
        return end, spent_s / done

    def _delay_since_last(self) -> float:
        """Return how long the thread has waited for a processor since the last call."""
        before_s, self._delay_s = self._delay_s, cpu_and_delay_s([threading.get_native_id()])[1]
        return max(0.0, self._delay_s - before_s)

    def _probe(self, begin: int, count: int) -> int:
        """Look up names until look-ups prove to be slow; return the position reached."""
        slow = 0
        while begin < count:
            begin, each_s = self._timed(begin, count)
            if each_s <= _SLOW_S:
                self._slow = max(self._slow - 1, 0)
                continue
            slow += 2 if each_s > _SURELY_SLOW_S else 1
            if slow >= _PROBES:
                self._slow = max(self._slow, _SLOW_BLOCKS)
                return begin
        # One block of few names proves little.
        self._slow = min(self._slow + slow, 2 * _SLOW_BLOCKS)
        return begin

    def _look_overlapped(self, begin: int, end: int) -> None:
        began_s = time.perf_counter()
        self._overlap.run(self._all, begin, end)
        # Overlapped look-ups take only a part of the time that they would take one by one.
        spent_s = (time.perf_counter() - began_s) * self._overlap.threads
        if spent_s > _SLOW_S * (end - begin):
            self._slow = min(self._slow + 1, 2 * _SLOW_BLOCKS)
        else:
            self._slow = max(self._slow - 1, 0)

    @property
    def is_slow(self) -> bool:
        """Return whether recent look-ups were slow."""
        return self._slow >= _SLOW_BLOCKS

    def beside(self, function: RangeFunction, start: int, stop: int) -> None:
        """Call a function for a range of names, in parallel parts if look-ups are slow."""
        if self.is_slow:
            self._overlap.run(function, start, stop)
        else:
            function(start, stop)

    def close(self) -> None:
        """End the threads."""
        self._overlap.close()

    def _all(self, start: int, stop: int) -> None:
        self._range(start, stop)

    def _range(self, start: int, stop: int, until_ns: int = _NEVER) -> int:
        """Look up the names from `start` up to `stop`, on any thread; return the position reached.

        If there is no deadline, all names are looked up, even if signals arrive.
        """
        while True:
            fds = self._directory_fd
            fds = fds if isinstance(fds, int) else fds[start:stop]
            outcomes, table = self._native.stat_names(fds, self._names[start:stop], until_ns)
            done = _tried(outcomes)
            if not done and start < stop:  # EINTR from a signal or the file system
                fd = fds if isinstance(fds, int) else fds[:1]
                names = self._names[start : start + 1]
                outcomes, table = native.twin().stat_names(fd, names, _NEVER)
                done = 1
            if done == stop - start:
                self._parts[start] = outcomes, table
                return stop
            self._parts[start] = outcomes[: _WIDTH * done], _first(table, done)
            start += done
            if until_ns != _NEVER:
                return start


def _error(code: int) -> OSError:
    if code == errno.ETIMEDOUT and OperationTimeout.limit_s is not None:
        return OSError(code, f"no response within {OperationTimeout.limit_s:g} s")
    return OSError(code, os.strerror(code))


def _tried(outcomes: bytes) -> int:
    """Return the number of leading names that were tried."""
    if not outcomes.endswith(_UNTRIED):
        return len(outcomes) // _WIDTH
    return native.numbers(outcomes).index(UNTRIED)


def _joined(tables: Sequence[bytes]) -> bytes:
    """Return one table with the rows of all tables."""
    whole = [Table(table) for table in tables]
    return b"".join(table._bytes(name, 0, table.count) for name in PLACE_OF for table in whole)


def _first(table: bytes, count: int) -> bytes:
    """Return the table of the first `count` rows."""
    whole = Table(table)
    return b"".join(whole._bytes(name, 0, count) for name in PLACE_OF)


def within_limit() -> ModuleType:
    """Return the native functions or, if there is a time limit, functions that enforce it."""
    return native.module if OperationTimeout.limit_s is None else native.twin()


class Division(msgspec.Struct, frozen=True):
    """The number of a rank's workers (None: adaptive), its maximum, and the number of helpers.

    Helpers share the look-ups of a worker if these are slow.
    """

    workers: int | None
    max_workers: int
    helped: int

    def helped_of(self, number: int) -> int:
        """Return the number of parallel look-ups of a worker; later workers have fewer."""
        return self.helped if number < _FEW_WORKERS else min(self.helped, _FEW_WORKERS)


def divide(threads: int | None) -> Division:
    """Divide the parallel operations among workers, which read directories, and their helpers."""
    max_workers = min(_MAX_WORKERS, affordable_threads())
    if threads is None:
        return Division(None, max_workers, _AT_ONCE)
    workers = min(max_workers, -(-threads // _FEW_WORKERS))
    return Division(workers, max_workers, max(1, threads // workers))
