"""Compares the entries of a directory, and reports those that exist on one side only.

Names that may exist on both sides are looked up in blocks. Equal files require two look-ups and a
comparison of columns. Contents, and attributes that are not part of the status, are compared pair
by pair. If that takes too long, the remaining names are handed back.

Large files are compared in chunks, so that several ranks can read a file at once. The item of a
file reads the first megabyte itself. If the files differ there, as most differing files do, no
chunks are created. The join of the item reports the result.

An entry that exists on one side only is reported, or recorded as a possible move.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import msgspec
import xxhash

from pcircle.core.buffers import aligned
from pcircle.core.units import timestamp
from pcircle.fs.data import ReadEffects, data_ranges, may_have_holes
from pcircle.fs.directories import HOLDER, Lease, closing_fd, join_path
from pcircle.fs.entry_errors import Changed
from pcircle.fs.file_system import size_is_nominal
from pcircle.fs.open_flags import OPEN_FILE
from pcircle.fs.scan import Block, encoded
from pcircle.fs.stats import CAPACITY
from pcircle.jobs.failures import NoticeSink, report_effects, shown_below
from pcircle.jobs.tree_task import EntryVisitor, TreeItem
from pcircle.ops.compare.content import ContentComparer
from pcircle.ops.compare.details import DetailComparer
from pcircle.ops.compare.fields import CONTENT, KIND, LINKS, NOTHING, SIZE, TARGET
from pcircle.ops.compare.statuses import (
    Fds,
    Openers,
    Status,
    StatusComparer,
    error_side,
    open_files,
    set_error_side,
    with_side,
)
from pcircle.runtime import Context
from pcircle.tools.fdiff.plan import (
    ONLY_A,
    ONLY_B,
    DiffCounters,
    DiffItem,
    ExtraneousLookup,
    LargeFilePair,
    LinkedPair,
    OneSidedFile,
    PairChunk,
)
from pcircle.walk.items import DirectoryIdentity, Tree, handed_back, source_of, target_of
from pcircle.walk.open_directory import ItemContext, Open
from pcircle.walk.visitor import Names, Where

if TYPE_CHECKING:
    from pcircle.tools.fdiff.reporter import ComparisonTask

KINDS: Final = ("files", "links", "specials", "directories")
"""The names of a `Block`'s lists, one for each kind of entry."""
_MODES: Final = {"files": stat.S_IFREG, "links": stat.S_IFLNK, "directories": stat.S_IFDIR}
_READ_BYTES = 1 << 20
LARGE_BYTES: Final = 32 << 20
"""Files larger than this are compared in chunks, which other ranks can steal."""
_FIRST_BYTES = 1 << 20
_STEP_BYTES = 8 << 20
_SMALLEST_CHUNK_BYTES = 16 << 20
_LARGEST_CHUNK_BYTES = 256 << 20
_CHUNKS_PER_RANK = 32
_CHUNK_S = 0.25
_UNLIKE = -1
"""The slot that counts differing chunks. Slot numbers below it are error codes."""


class OneSidedReporter:
    """Reports entries that exist on one side only.

    Each thread has its own instance.
    """

    def __init__(self, task: ComparisonTask) -> None:
        self._plan = task.plan
        self._counters: DiffCounters = task.counters
        self._reporter = task.reporter
        self._fail = task.fail_side
        self._buffer: memoryview | None = None

    def tell(
        self,
        side: int,
        within: Where | ExtraneousLookup,
        found: Mapping[str, Sequence[bytes]],
        fd: int,
        context: Context[DiffItem],
        *,
        inside: bool = False,
    ) -> None:
        """Report entries of an open directory that exist on one side only.

        `found` contains their names by kind. If `inside` is set, the directory itself exists on one
        side only. The walk that found them then enters the subdirectories itself; otherwise `tell`
        passes these to `enter`.
        """
        reported = self._plan.reports_all or not inside
        for kind, names in found.items():
            for name in names:
                path = join_path(within.path, name)
                try:
                    self._tell(side, path, kind, name, fd, context, reported=reported)
                except OSError as error:
                    self._counters.sized += 1
                    self._fail(side, path, "read", error, context)
        if not inside:
            self.enter(side, within, found.get("directories", ()), context)

    def _tell(
        self,
        side: int,
        path: bytes,
        kind: str,
        name: bytes,
        fd: int,
        context: Context[DiffItem],
        *,
        reported: bool,
    ) -> None:
        counters, mode = self._counters, _MODES.get(kind, 0)
        if not mode:
            mode = os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode
        if kind == "files" and self._plan.moves:
            self._keep(side, path, name, fd, context, reported=reported)
        else:
            self._reporter.alone(side, path, mode, reported=reported)
        counters.sized += 1
        if kind != "directories":
            counters.count(mode)

    def _keep(
        self,
        side: int,
        path: bytes,
        name: bytes,
        fd: int,
        context: Context[DiffItem],
        *,
        reported: bool,
    ) -> None:
        """Record a file that may have moved, so that rank 0 can pair it at the end."""
        status = os.stat(name, dir_fd=fd, follow_symlinks=False)
        digest = b""
        if self._plan.by_content and status.st_size:
            digest = self._digest(name, fd, context)
        size, mtime = status.st_size, timestamp(status.st_mtime_ns)
        context.note([OneSidedFile(side, path, size, mtime, digest, status.st_mode, reported)])

    def _digest(self, name: bytes, directory_fd: int, context: Context[DiffItem]) -> bytes:
        if self._buffer is None:
            self._buffer = aligned(_READ_BYTES)
        digest = xxhash.xxh3_128()
        with closing_fd(os.open(name, OPEN_FILE, dir_fd=directory_fd)) as fd:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise Changed("it is no longer a regular file")
            while (count := os.readv(fd, [self._buffer])) and not context.stopping:
                digest.update(self._buffer[:count])
                self._counters.bytes_found += count
                self._counters.bytes_done += count
        return digest.digest()

    def enter(
        self,
        side: int,
        within: Where | ExtraneousLookup,
        names: Sequence[bytes],
        context: Context[DiffItem],
    ) -> None:
        """Spawn a walk of one-sided directories if the plan requires it; otherwise count them."""
        if not names:
            return
        if not self._plan.enters or (side and self._plan.one_sided):
            self._counters.directories += len(names)
            return
        identity = within.place.target if side else within.place.source
        self._counters.scans_due += len(names)
        place, packed = DirectoryIdentity(identity), b"\0".join(names)
        context.spawn([Tree(ONLY_A + side, within.path, 0.0, packed, place, within.slot)])


class OneSidedVisitor(EntryVisitor):
    """Visits directories that exist on one side only.

    Each thread has its own instance.
    """

    task: ComparisonTask
    counters: DiffCounters
    in_place = True

    def __init__(self, task: ComparisonTask) -> None:
        super().__init__(task)
        self._one_sided = OneSidedReporter(task)

    def send_reports(self, context: Context[DiffItem]) -> None:
        self.task.reporter.tell(context)

    def end(self, context: Context[DiffItem], opens: Sequence[Open[int]]) -> None:
        self.send_reports(context)

    def fail(
        self, root: int, path: bytes, doing: str, error: OSError, context: Context[TreeItem]
    ) -> None:
        """Report a failure on the side to which the root belongs."""
        self.task.fail_side(root - ONLY_A, path, doing, error, context)

    def meant(self, opened: Open[int], blocks: Iterable[Block], source: Lease) -> Iterator[Block]:
        """Report subdirectories as they are found."""
        for block in blocks:
            found = {"directories": encoded(block.directories)}
            self._one_sided.tell(
                opened.root - ONLY_A, opened, found, source.fd, self._context, inside=True
            )
            # `tell` has counted these subdirectories in `sized`; undo that, because the walk counts
            # each one when it enters it.
            self.counters.sized -= len(block.directories)
            yield block

    def names(
        self, where: Where, names: Names, fds: tuple[int, int], context: ItemContext[int]
    ) -> None:
        found = {kind: getattr(names, kind) for kind in KINDS if kind != "directories"}
        self.counters.weight += where.weight * len(names)
        self._one_sided.tell(where.root - ONLY_A, where, found, fds[0], context, inside=True)


class EntryPair(msgspec.Struct, frozen=True):
    """An entry that exists on both sides: its path, and its name and status on each side."""

    path: bytes
    name: bytes
    other: bytes
    a: Status
    b: Status


class PairComparer:
    """Compares pairs.

    Each thread has its own instance. Its errors identify the side.
    """

    def __init__(
        self,
        task: ComparisonTask,
        one_sided: OneSidedReporter,
        comparer: StatusComparer,
        details: DetailComparer,
    ) -> None:
        plan = self._plan = task.plan
        self._counters: DiffCounters = task.counters
        self._reporter = task.reporter
        self._one_sided = one_sided
        self._comparer, self._details = comparer, details
        first, second = (ReadEffects(self._counters, noatime=plan.noatime) for _ in range(2))
        self._effects = first, second
        self._contents = ContentComparer(openers=(first.open, second.open))
        self.openers: Openers = first.open, second.open
        self.reopeners: Openers = first.reopen, second.reopen
        self._stats = task.stats
        self._fail = task.fail
        # Pairs that need more than a comparison of columns are compared one by one.
        self._needs_details = (
            bool(details.fields & ~TARGET) or plan.reads or task.reporter.matches_equal
        )
        self._grouped = bool(plan.fields & LINKS)

    def compare(self, where: Where, names: Names, fds: Fds, context: ItemContext[int]) -> None:
        """Compare names, and hand back the remaining ones if the time slice ends."""
        every, begun_s = names.all(), time.monotonic()
        at = 0
        while at < len(every):
            part = every[at : at + CAPACITY]
            left = self._block(where, part, fds, context, begun_s)
            at += len(part)
            enough = context.is_time_up(time.monotonic() - begun_s)
            enough = enough or self._reporter.actions.is_full
            if left or context.is_stopping() or (enough and at < len(every)):
                context.spawn(list(handed_back(where, [*left, *every[at:]])))
                return

    def names_in_b(self, path: bytes, names: Sequence[bytes]) -> Sequence[bytes]:
        """Return the names in B. They differ from the names in A only if the roots are files."""
        return [self._plan.roots[ONLY_B].name] if path == HOLDER else names

    def _block(
        self,
        where: Where,
        names: Sequence[bytes],
        fds: Fds,
        context: ItemContext[int],
        begun_s: float,
    ) -> Sequence[bytes]:
        """Compare a block of names, and return the remaining names if that takes too long."""
        names = self._looked_up(where, names, fds, context)
        count = len(names)
        if not count:
            return ()
        a, b = self._stats
        different = self._comparer.compare_blocks(a, b, count)
        single = not self._grouped or (
            a.has_single_names(0, count) and b.has_single_names(0, count)
        )
        if single and not self._needs_details and a.are_files(count) and not different:
            self._counters.files += count
            self._done(where, count)
            return ()
        b_names = self.names_in_b(where.path, names)
        pairs = zip(names, b_names, a.rows(count), b.rows(count), strict=True)
        for place, (name, other, x, y) in enumerate(pairs):
            path = b"" if where.path == HOLDER else join_path(where.path, name)
            pair = EntryPair(path, name, other, x, y)
            try:
                self._pair(where, pair, different.get(place, NOTHING), fds, context)
            except OSError as error:
                self._fail(path, "compare", error, context)
            self._done(where, 1)
            is_left = self._needs_details and place + 1 < count
            if is_left and context.is_time_up(time.monotonic() - begun_s):
                return names[place + 1 :]
        return ()

    def _done(self, where: Where, count: int) -> None:
        self._counters.weight += where.weight * count
        self._counters.sized += count

    def _looked_up(
        self, where: Where, names: Sequence[bytes], fds: Fds, context: ItemContext[int]
    ) -> Sequence[bytes]:
        """Look up names on both sides, and return those that exist on both.

        Report the other names.
        """
        while names:
            sides = names, self.names_in_b(where.path, names)
            errors = [
                stats.look_up(fd, side_names)
                for stats, fd, side_names in zip(self._stats, fds, sides, strict=True)
            ]
            if not any(errors):
                break
            for place in sorted({*errors[0], *errors[1]}):
                found = {side: errors[side][place] for side in (0, 1) if place in errors[side]}
                self._missed(where, names[place], fds, found, context)
            self._counters.weight += where.weight * len({*errors[0], *errors[1]})
            names = [
                name
                for place, name in enumerate(names)
                if place not in errors[0] and place not in errors[1]
            ]
        return names

    def _missed(
        self,
        where: Where,
        name: bytes,
        fds: Fds,
        errors: dict[int, OSError],
        context: ItemContext[int],
    ) -> None:
        """Report a name that one side lacks or whose look-up has failed.

        `errors` contains the error of each side on which the look-up failed.
        """
        failed_side, error = next(iter(errors.items()))
        if len(errors) == 1 and error.errno == errno.ENOENT:
            side = 1 - failed_side
            if side and self._plan.one_sided:
                self._counters.files += 1
                self._counters.sized += 1
                return
            kind = self.kind_of(name, fds[side])
            self._one_sided.tell(side, where, {kind: [name]}, fds[side], context)
            return
        self._counters.sized += 1
        failed = set_error_side(error, failed_side)
        path = b"" if where.path == HOLDER else join_path(where.path, name)
        self._fail(path, "look up", failed, context)

    def _pair(
        self, where: Where, pair: EntryPair, different: int, fds: Fds, context: ItemContext[int]
    ) -> None:
        """Compare a pair whose statuses have these differences, and report it.

        An OSError identifies the side that failed.
        """
        a, b = pair.a, pair.b
        if different & KIND:
            for side, mode in enumerate((a.st_mode, b.st_mode)):
                if stat.S_ISDIR(mode) and self._plan.enters and not (side and self._plan.one_sided):
                    self._counters.found += 1
                    self._counters.beside += 1
                    self._one_sided.enter(side, where, [pair.name], context)
        elif stat.S_IFMT(a.st_mode) == stat.S_IFMT(b.st_mode):
            if self._details.fields:
                different |= self._details.compare_names(pair.name, fds, a, b, pair.other)
            if self._plan.reads and stat.S_ISREG(a.st_mode):
                found = self._content(where, pair, different, fds, context)
                if found is None:
                    return
                different |= found
        self.settle(pair, different, context)

    def settle(self, pair: EntryPair, different: int, context: NoticeSink) -> None:
        """Report a pair, or record it if its hard links must still be compared."""
        a, b = pair.a, pair.b
        self._counters.count(a.st_mode)
        grouped = self._grouped and not different & KIND and max(a.st_nlink, b.st_nlink) > 1
        if grouped and not stat.S_ISDIR(a.st_mode):
            keys = self._identity(a), self._identity(b)
            context.note([LinkedPair(pair.path, *keys, different, a.st_mode, a.st_size)])
        else:
            self._reporter.pair(pair.path, a.st_mode, a.st_size, different)

    def _identity(self, status: Status) -> tuple[int, int]:
        """Return the identity of a file, without the device number if nodes may not share it."""
        return status.st_dev if self._plan.one_node else 0, status.st_ino

    def missing(self, names: Sequence[bytes], fd: int) -> list[bytes]:
        """Return the names that do not exist in an open directory of A."""
        errors = self._stats[0].look_up(fd, names)
        return [names[place] for place, error in errors.items() if error.errno == errno.ENOENT]

    def kind_of(self, name: bytes, fd: int) -> str:
        """Return the kind of an entry, as in a `Block`, or "files" if its look-up fails."""
        try:
            mode = os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode
        except OSError:
            return KINDS[0]
        if stat.S_ISDIR(mode):
            return "directories"
        if stat.S_ISLNK(mode):
            return "links"
        return "files" if stat.S_ISREG(mode) else "specials"

    def watch(self, path: bytes, context: NoticeSink) -> None:
        """Set the path and the context for reports on offline files and changed access times."""
        for effects, number in zip(self._effects, (ONLY_A, ONLY_B), strict=True):
            shown = shown_below(self._plan.roots[number], path)
            report_effects(effects, lambda root, below, shown=shown: shown, context)  # type: ignore[misc]

    def _see(self, pair: EntryPair, fds: Fds, context: NoticeSink) -> None:
        """Report a file of a pair that is about to be read if it is offline."""
        self.watch(pair.path, context)
        sides = ((pair.name, pair.a), (pair.other or pair.name, pair.b))
        for effects, fd, (name, status) in zip(self._effects, fds, sides, strict=True):
            effects.see(name, fd, status)

    def _content(
        self, where: Where, pair: EntryPair, different: int, fds: Fds, context: ItemContext[int]
    ) -> int | None:
        """Return `CONTENT` if the contents of two files differ, and `NOTHING` if not.

        Return None if another item will compare them.
        """
        a, b = pair.a, pair.b
        if any(map(size_is_nominal, fds, (a, b))):
            same, size = self._contents.same_to_end(pair.name, fds, pair.other)
            self._counters.bytes_found += size
            self._counters.bytes_done += size
            return NOTHING if same else CONTENT
        if a.st_size != b.st_size:
            return CONTENT
        if not a.st_size or (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino):
            return NOTHING
        if a.st_blocks <= 1 or b.st_blocks <= 1 or self._plan.noatime:
            self._see(pair, fds, context)
        if a.st_size > LARGE_BYTES:
            self._counters.sized -= 1  # the file will be counted when its item begins
            context.spawn(
                [LargeFilePair(where.path, pair.name, where.place, where.slot, different)]
            )
            return None
        size = a.st_size
        self._counters.bytes_found += size
        sparse = all(row.st_blocks * 512 < size for row in (a, b))
        same = self._contents.same_files(pair.name, fds, size, pair.other, sparse=sparse)
        self._counters.bytes_done += size
        return NOTHING if same else CONTENT


class ChunkedPair(msgspec.Struct, frozen=True):
    """A pair whose chunks are being compared; `different` holds the differences so far."""

    pair: EntryPair
    different: int


class LargeFileComparer:
    """Compares large files.

    Each thread has its own instance. The number of ranks determines the size of the chunks.
    """

    def __init__(self, task: ComparisonTask, pairs: PairComparer) -> None:
        self._task = task
        self._pairs = pairs
        self._counters = task.counters
        self._contents = ContentComparer()

    @contextmanager
    def _opened(
        self, item: LargeFilePair | PairChunk, openers: Openers
    ) -> Iterator[tuple[bytes, Fds, tuple[os.stat_result, os.stat_result]]]:
        place, task = item.place, self._task
        known = source_of(place), target_of(place)
        (other,) = self._pairs.names_in_b(item.path, [item.name])
        with (
            with_side(0, lambda _: task.directories.lease(0, item.path, known[0])) as source,
            with_side(1, lambda _: task.targets.lease(0, item.path, known[1])) as target,
            open_files(item.name, (source.fd, target.fd), other, openers) as (fds, statuses),
        ):
            yield other, fds, statuses

    def begin(self, item: LargeFilePair, context: Context[DiffItem]) -> ChunkedPair | None:
        """Compare the start of a pair, and divide the rest into chunks if it is equal.

        Return None if the pair is complete or has failed.
        """
        path = b"" if item.path == HOLDER else join_path(item.path, item.name)
        self._counters.sized += 1
        try:
            self._pairs.watch(path, context)
            with self._opened(item, self._pairs.openers) as (other, fds, (a, b)):
                pair = EntryPair(path, item.name, other, a, b)
                different = item.different | CONTENT
                if a.st_size != b.st_size:
                    different |= SIZE
                elif self._contents.same(fds, 0, min(a.st_size, _FIRST_BYTES)):
                    different = item.different
                    self._hand_out(item, fds, (a, b), context)
        except OSError as error:
            self._task.fail(path, "compare", error, context)
            return None
        if context.spawned:
            return ChunkedPair(pair, different)
        self._pairs.settle(pair, different, context)
        return None

    def _hand_out(
        self,
        item: LargeFilePair,
        fds: Fds,
        statuses: tuple[os.stat_result, os.stat_result],
        context: Context[DiffItem],
    ) -> None:
        """Spawn chunks for the rest of the file, except for ranges without data on either side."""
        size = statuses[0].st_size
        self._counters.bytes_found += size
        self._counters.bytes_done += min(size, _FIRST_BYTES)
        sparse = all(map(may_have_holes, statuses))
        whole = size // (_CHUNKS_PER_RANK * self._task.plan.ranks) // _STEP_BYTES * _STEP_BYTES
        whole = max(_SMALLEST_CHUNK_BYTES, min(_LARGEST_CHUNK_BYTES, whole))
        for offset in range(_FIRST_BYTES, size, whole):
            length = min(whole, size - offset)
            if sparse and not any(any(data_ranges(fd, offset, length)) for fd in fds):
                self._counters.bytes_done += length
                continue
            context.spawn([PairChunk(item.path, item.name, item.place, offset, length, sparse)])

    def chunk(self, item: PairChunk, context: Context[DiffItem]) -> dict[int, int]:
        """Compare a range, and spawn the remaining range in two parts if that takes too long."""
        until_s = time.monotonic() + _CHUNK_S
        at, end = item.offset, item.offset + item.length
        try:
            with self._opened(item, self._pairs.reopeners) as (_, fds, _statuses):
                while at < end and not context.stopping:
                    length = min(_STEP_BYTES, end - at)
                    if not self._contents.same(fds, at, length, sparse=item.sparse):
                        self._counters.bytes_done += end - at
                        return {_UNLIKE: 1}
                    at += length
                    self._counters.bytes_done += length
                    if time.monotonic() > until_s:
                        break
        except OSError as error:
            self._counters.bytes_done += end - at
            return {_code_of(error): 1}
        if at < end and not context.stopping:
            middle = at + (end - at) // 2 // _STEP_BYTES * _STEP_BYTES
            change = msgspec.structs.replace
            parts = [(a, b) for a, b in ((at, middle), (middle, end)) if b > a]
            context.spawn([change(item, offset=a, length=b - a) for a, b in parts])
        return {}

    def complete(self, begun: ChunkedPair, merged: dict[int, int], context: NoticeSink) -> None:
        """Report a pair after all of its chunks have been compared."""
        code = min(merged, default=0)
        if code < _UNLIKE and not merged.get(_UNLIKE):
            self._task.fail(begun.pair.path, "compare", _error_of(code), context)
            return
        found = CONTENT if merged.get(_UNLIKE) else NOTHING
        self._pairs.settle(begun.pair, begun.different | found, context)


def _code_of(error: OSError) -> int:
    """Encode an error and the side on which it occurred as a number."""
    return -2 - 2 * (error.errno or 0) - error_side(error)


def _error_of(code: int) -> OSError:
    number, side = divmod(-2 - code, 2)
    text = os.strerror(number) if number else "it is no longer the same file"
    return set_error_side(OSError(number or None, text), side)
