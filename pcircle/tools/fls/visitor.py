"""The visitor of fls: looks up names and creates the records that rank 0 prints.

The item that reads a small directory also lists it, as one record that contains the sorted text.
The names of a larger directory are divided into batches that any rank can process, and each name
becomes one record.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import compress, repeat
from typing import Any, ClassVar

import msgspec

from pcircle.core.encoding import exact, to_scan
from pcircle.core.errors import require_type
from pcircle.fs.directories import HOLDER, Lease, join_path
from pcircle.fs.scan import FOLDER, Block, DirectoryBatch, encoded, names_and_kinds, rewound
from pcircle.fs.stats import CAPACITY, StatBlockError, Stats, divide
from pcircle.jobs.action_log import ActionLines, ActionLog
from pcircle.jobs.failures import Failure
from pcircle.jobs.tree_task import EntryVisitor, TreeItem, TreeTask
from pcircle.runtime import Context
from pcircle.threads.throttle import BURST_S, Throttle
from pcircle.tools.fls.fields import ColumnFormatter, NameBatch, StatBatch, Widths
from pcircle.tools.fls.plan import (
    OPERANDS,
    Keys,
    ListCounters,
    ListPlan,
    ListRecords,
    directories,
    place_in,
    record,
    root_place,
)
from pcircle.tools.fls.rows import RowFormatter, batches
from pcircle.walk.attributes import LETTERS
from pcircle.walk.items import handed_back
from pcircle.walk.open_directory import ItemContext, Open
from pcircle.walk.visitor import DirectoryScan, Names, Where
from pcircle.walk.walker import Walker

MAX_WHOLE = 4096
"""The maximum number of names in a directory that is listed as one record."""
_ITSELF = (b".", b"..")
_FEW = 256  # names
_HERE = -100  # AT_FDCWD
_FLUSH_BYTES = 64 << 10
_MUCH_BYTES = 1 << 20
_NAMES_ALONE = ("files", "links", "specials", "directories")


class ListVisitor(EntryVisitor):
    """The visitor of one worker thread."""

    batch_names: ClassVar[int] = 2 * CAPACITY

    def __init__(self, task: ListTask) -> None:
        super().__init__(task)
        plan = task.plan
        self._plan, self._form = plan, plan.form
        self._looks_up = plan.looks_up
        self._keys = Keys(plan.keys, directories_first=plan.directories_first)
        self._fields = ColumnFormatter(plan.form, plan.now_ns)
        self._rows = RowFormatter(plan.form) if plan.form.is_rows else None
        self._follows = plan.directories_first or plan.form.follows
        self._stats = task.stats
        self._acts = task.acts
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        more = self._follows or self._rows or self._acts or plan.form.shape == "total"
        is_plain = self._keys.of_names_alone and not more
        # Files of several directories can be formatted together if names and statuses suffice.
        is_plain = is_plain and plan.form.is_alike
        if is_plain and plan.recursive and plan.form.hidden < len(_ITSELF):
            looks, sorts = self._looks_up, bool(plan.keys)
            self.scan: DirectoryScan | None = DirectoryScan(
                _FEW, 2 * CAPACITY, looks, sort=sorts, any_device=not looks
            )

    def _shown(self, where: Where) -> bytes:
        """Return the path of a directory as printed, or an empty path for the holder of PATHs."""
        if where.path == HOLDER:
            return b""
        shown = self._plan.roots[where.root].shown
        if not where.path:
            return shown
        return shown.rstrip(b"/") + b"/" + where.path

    # ---- directories -----------------------------------------------------------

    def enter(self, opened: Open[int], source: Lease, holder: Open[int] | None) -> Lease | None:
        """Enter a directory, and compute its place in the listing."""
        super().enter(opened, source, holder)
        status = source.opened.status
        if holder is None:
            opened.ancestors = root_place(opened.root)
        else:
            key = self._keys.of_directory(os.path.basename(opened.path), status)
            opened.ancestors = place_in(holder.ancestors, key)
        if self._form.shape == "total":
            sums = (1, status.st_size, status.st_blocks, status.st_mtime_ns)
            self._keep_sums(opened.ancestors, sums, self._shown(opened))
        return None

    def scan_of(self, above: Open[int]) -> DirectoryScan | None:
        """Return how to scan small directories.

        If look-ups are slow, `_bodies` performs them instead of the scan, so that they overlap.
        """
        if self.scan is None or not (self._looks_up and self._stats.is_slow):
            return self.scan
        return msgspec.structs.replace(
            self.scan, max_batch_entries=CAPACITY, look_up=False, keep_open=True
        )

    def process_directories(
        self, above: Open[int], batch: DirectoryBatch, context: ItemContext[int]
    ) -> list[bytes]:
        """List small directories that contain only files; return the remaining names."""
        shown = self._shown(above).rstrip(b"/") + b"/"
        listed, undone = batch.names, list[bytes]()
        bodies = self._bodies(batch, above.leases[0].fd, shown)
        if bodies is None:
            return listed
        if b"\0." in b"\0" + batch.text and not self._form.hidden:
            hides = [b"\0." in b"\0" + text for text in batch.texts()]
            undone = list(compress(listed, hides))
            seen = [not does for does in hides]
            listed, bodies = list(compress(listed, seen)), list(compress(bodies, seen))
        headings = [b""] * len(listed)
        if self._plan.headed:
            paths = self._fields.shown([shown + name for name in listed])
            headings = [path + b":\n" for path in paths]
        places = [place_in(above.ancestors, key) for key in self._keys.of(listed, None, {})]
        self._keep(*directories(places, headings, bodies))
        return undone

    def _bodies(self, batch: DirectoryBatch, fd: int, shown: bytes) -> list[bytes] | None:
        """Return the text of each directory in a batch of directories that contain only files.

        Return None if a look-up failed or an entry is no longer a regular file.
        """
        names, counts = batch.inside, batch.counts
        stats = self._stats if self._looks_up and names else None
        if stats is not None and batch.fds:
            try:
                stats.look(batch.entry_fds(), names)
            except StatBlockError:
                return None
            if not all(map(stat.S_ISREG, set(stats.column("mode", 0, len(names))))):
                return None  # an entry was replaced after its directory was read
        elif stats is not None:
            stats.put(batch.table, batch.each_s)
        order = None
        if self._keys.turns:
            order = [
                place for begin, end in batch.ranges() for place in reversed(range(begin, end))
            ]
        looked = NameBatch(names, names, fd, shown, 0)
        if stats is not None:
            looked = StatBatch(names, names, fd, shown, 0, stats, {}, {}, {})
        return self._fields.bodies(looked, counts, order, batch.text * self._fields.are_plain)

    def read_directory(
        self, opened: Open[int], weight: float, source: Lease, context: Context[TreeItem]
    ) -> list[bytes] | None:
        """List a small directory as one record, and return its subdirectories.

        Return None if the directory is large, so that the walk reads it.
        """
        found = self._few(source)
        if found is None:
            return None
        names, below = found
        count = len(names)
        known = len(below)
        self.counters.found += count
        opened.weight = weight / max(1, count)
        itself = _ITSELF if self._form.hidden > 1 else ()
        names[:0] = itself
        looked = self._looked(opened, names, source.fd, context, len(itself))
        below += self._count(looked)
        self.counters.files -= known  # see `_count`
        if not self._plan.recursive:
            self.counters.directories += len(below)
            below = []
        self.counters.weight += weight - opened.weight * len(below)
        self._keep_entries(opened, looked, context, whole=True)
        return below

    def _few(self, source: Lease) -> tuple[list[bytes], list[bytes]] | None:
        """Return the names in a small directory, and its subdirectories unless names are looked up.

        Return None if the directory has too many names or if the type of an entry is unknown.
        """
        found = names_and_kinds(source.fd, MAX_WHOLE, asks=not self._looks_up)
        if found is None or (not self._looks_up and 0 in found[1]):
            return None
        names, kinds = found
        below: list[bytes] = []
        if not self._looks_up and FOLDER in kinds:
            below = [name for name, kind in zip(names, kinds, strict=True) if kind == FOLDER[0]]
        return self._visible(names), self._visible(below)

    def _visible(self, names: list[bytes]) -> list[bytes]:
        return names if self._form.hidden else [name for name in names if name[:1] != b"."]

    def meant(self, opened: Open[int], blocks: Iterable[Block], source: Lease) -> Iterator[Block]:
        """List the subdirectories of a large or filtered directory while its blocks are read."""
        itself = _ITSELF if self._form.hidden > 1 and opened.only is None else ()
        if opened.only is None:
            self._keep_widths(opened.ancestors, Widths([], heading=self._heading(opened)))
        for block in blocks:
            if not self._form.hidden:
                for kind in _NAMES_ALONE:
                    names = [name for name in getattr(block, kind) if not name.startswith(".")]
                    setattr(block, kind, names)
            if not self._plan.recursive:
                block.specials += block.directories
                block.directories = []
            entered = [*itself, *encoded(block.directories)]
            for at in range(0, len(entered), CAPACITY):
                batch = entered[at : at + CAPACITY]
                self._keep_entries(opened, self._looked(opened, batch, source.fd, None, 0), None)
            itself = ()
            if self._pending_bytes > _MUCH_BYTES:  # bounds the memory for a large directory
                self._flush(self._context)
            yield block

    # ---- names -----------------------------------------------------------------

    def names(
        self, where: Where, names: Names, fds: tuple[int, int], context: ItemContext[int]
    ) -> None:
        """List names in a large directory, or a PATH."""
        every = names.all()
        for at in range(0, len(every), CAPACITY):
            if at and context.is_stopping():
                context.spawn(list(handed_back(where, every[at:])))
                break
            batch = every[at : at + CAPACITY]
            self.counters.weight += where.weight * len(batch)
            looked = self._looked(where, batch, fds[0], context, 0)
            self.counters.directories += len(self._count(looked))
            self._keep_entries(where, looked, context)

    def operands(self) -> None:
        """Include directories among the PATHs in the column widths of other PATHs, as ls does."""
        directories = self._plan.directories
        for at in range(0, len(directories), CAPACITY):
            names = directories[at : at + CAPACITY]
            looked = self._looked(None, names, _HERE, None, 0)
            widths = self._fields.of(looked)[1]
            widths.blocks = 0
            self._keep_widths(OPERANDS, widths)

    def _looked(
        self,
        where: Where | None,
        names: Sequence[bytes],
        fd: int,
        context: Context[TreeItem] | None,
        itself: int,
    ) -> NameBatch:
        """Look up names if the plan requires it; report failures if there is a context."""
        shown, args, failed = b"", names, dict[int, OSError]()
        if where is not None:
            shown = self._shown(where)
            if where.path == HOLDER:
                args = [self._plan.roots[where.root].shown]
        if not self._looks_up:
            return NameBatch(names, args, fd, shown, itself)
        try:
            if where is None:
                self._stats.look_at_paths(names)
            else:
                self._stats.look_many(fd, names)
        except StatBlockError as failure:
            failed = failure.errors
            if where is not None and context is not None:
                for place, error in failed.items():
                    if place >= itself:
                        path = join_path(where.path, names[place])
                        self.fail(where.root, path, "look up", error, context)
        kinds = _kinds(fd) if failed else {}
        looked = StatBatch(names, args, fd, shown, itself, self._stats, failed, kinds, {})
        if self._follows:
            for place, mode in enumerate(looked.column("mode")):
                if stat.S_ISLNK(mode) and place not in failed:
                    with suppress(OSError):  # the link is dangling
                        looked.led[place] = os.stat(names[place], dir_fd=fd).st_mode
        return looked

    def _count(self, looked: NameBatch) -> list[bytes]:
        """Count names by type; return the directories among them if they were looked up."""
        counters, count = self.counters, len(looked.names) - looked.itself
        counters.sized += count
        if not isinstance(looked, StatBatch):
            counters.files += count  # types are unknown because nothing was looked up
            return []
        if not looked.itself and not looked.failed:
            mode = looked.stats.common("mode", count) or 0
            if stat.S_ISREG(mode):
                counters.files += count
                return []
            if stat.S_ISDIR(mode):
                return list(looked.names)
        below = []
        for place, mode in enumerate(looked.column("mode")):
            if place < looked.itself or place in looked.failed:
                continue
            if stat.S_ISDIR(mode):
                below.append(looked.names[place])
            else:
                self._count_kind(mode, 1)
        return below

    def _count_kind(self, mode: int, number: int) -> None:
        """Add a number to the counter of a type that is not a directory."""
        if stat.S_ISREG(mode):
            self.counters.files += number
        elif stat.S_ISLNK(mode):
            self.counters.links += number
        else:
            self.counters.special += number

    # ---- records ----------------------------------------------------------

    def _tell(self, acts: ActionLog, where: Where, looked: NameBatch) -> None:
        """Log an action for each name except those whose look-up failed."""
        modes, failed = list[int](), dict[int, OSError]()
        if isinstance(looked, StatBatch):
            modes, failed = looked.column("mode"), looked.failed
        path = b"" if self._plan.roots[where.root].name else where.path
        for place, name in enumerate(looked.names):
            if place >= looked.itself and name not in _ITSELF and place not in failed:
                kind = LETTERS.get(stat.S_IFMT(modes[place]), "?") if modes else ""
                below = b"" if where.path == HOLDER else join_path(path, name)
                acts.done("list", where.root, below, kind)
        if acts.is_full:
            acts.tell(self._context)

    def fail(
        self, root: int, path: bytes, doing: str, error: OSError, context: Context[TreeItem]
    ) -> None:
        super().fail(root, path, doing, error, context)
        if self._acts is not None:
            path = b"" if self._plan.roots[root].name else path
            self._acts.failed("list", root, path, error.errno)

    def _keep_entries(
        self,
        where: Where,
        looked: NameBatch,
        context: Context[TreeItem] | None,
        *,
        whole: bool = False,
    ) -> None:
        """Add the records of entries. If `whole` is set, these are all entries of a directory."""
        if self._acts is not None:
            self._tell(self._acts, where, looked)
        if self._form.shape == "total":
            if context is not None and isinstance(looked, StatBatch):
                self._add_sums(where, looked)
            return
        rows: list[bytes] | None = None
        stats, led = None, dict[int, int]()
        if isinstance(looked, StatBatch):
            stats, led = looked.stats, looked.led
            if self._rows is not None:
                rows = self._made_rows(self._rows, where, looked, context)
        place = getattr(where, "ancestors", b"") or OPERANDS
        order, heading = None, b"" if rows is not None else self._heading(where)
        if self._plan.keys:
            keys = self._keys.of(looked.printed, stats, led)
            if not whole:
                widths = Widths([])
                if rows is None:
                    made, widths = self._fields.of(looked)
                    rows = list(map(b"\0".join, made))
                widths.heading = heading
                self._keep_widths(place, widths)
                self._keep(*map(record, repeat(place), rows, keys))
                return
            order = sorted(range(len(keys)), key=keys.__getitem__)
        if rows is None:
            (text,) = self._fields.bodies(looked, [len(looked.names)], order, whole=whole)
        else:
            text = b"".join(rows if order is None else map(rows.__getitem__, order))
        self._keep(*directories((place,), (heading,), (text,)))

    def _made_rows(
        self,
        formatter: RowFormatter,
        where: Where,
        looked: StatBatch,
        context: Context[TreeItem] | None,
    ) -> list[bytes]:
        """Return the rows of entries, and report those that cannot be read."""
        if context is not None:
            formatter.is_stopping = context.is_stopping
        rows = formatter.of(looked)
        for place, error in formatter.failed:
            # The entry was already counted by its type.
            self._recount(where, looked, place, error, context)
        return rows

    def _heading(self, where: Where) -> bytes:
        if not self._plan.headed or where.path == HOLDER:
            return b""
        (shown,) = self._fields.shown([self._shown(where)])
        return shown + b":\n"

    def _keep_widths(self, place: bytes, widths: Widths) -> None:
        if self._rows is None and self._form.shape != "total" and self._plan.keys:
            self._keep(record(place, msgspec.msgpack.encode(widths)))

    def _add_sums(self, where: Where, looked: StatBatch) -> None:
        """Record the sums of entries other than directories; `enter` records directories."""
        columns = map(looked.column, ("mode", "size", "blocks"))
        times = looked.stats.times_ns("mtime", 0, len(looked.names))
        rows = [
            row
            for place, row in enumerate(zip(*columns, times, strict=True))
            if not stat.S_ISDIR(row[0]) and place not in looked.failed
        ]
        if rows:
            _, sizes, blocks, newest = zip(*rows, strict=True)
            sums = (len(rows), sum(sizes), sum(blocks), max(newest))
            place = getattr(where, "ancestors", b"") or OPERANDS
            self._keep_sums(place, sums, looked.shown or looked.printed[0])

    def _keep_sums(self, place: bytes, sums: tuple[int, ...], shown: bytes) -> None:
        self._keep(record(place, b"%d %d %d %d " % sums + shown))

    def _recount(
        self,
        where: Where,
        looked: StatBatch,
        place: int,
        error: OSError,
        context: Context[TreeItem] | None,
    ) -> None:
        mode = looked.column("mode")[place]
        if context is None or place < looked.itself or stat.S_ISDIR(mode):
            return
        self._count_kind(mode, -1)
        path = join_path(where.path, looked.names[place])
        self.fail(where.root, path, "read", error, context)

    def _keep(self, *packed: bytes) -> None:
        self._pending += packed
        self._pending_bytes += sum(map(len, packed))

    def send_reports(self, context: Context[TreeItem]) -> None:
        """Send all pending records and actions to rank 0."""
        self._flush(context)
        if self._acts is not None:
            self._acts.tell(context)

    def end(self, context: Context[TreeItem], opens: Sequence[Open[int]]) -> None:
        self.send_reports(context)

    def _flush(self, context: Context[TreeItem]) -> None:
        records, self._pending, self._pending_bytes = self._pending, [], 0
        for batch in batches(records, _FLUSH_BYTES):
            context.note([ListRecords(tuple(batch))])


def _kinds(fd: int) -> dict[bytes, bytes]:
    """Return, by name, the type letter that ls prints for an entry if its look-up fails."""
    kinds = {}
    with suppress(OSError), os.scandir(to_scan(rewound(fd))) as entries:
        for entry in entries:
            letter = b"d" if entry.is_dir(follow_symlinks=False) else b"-"
            letter = b"l" if entry.is_symlink() else letter
            kinds[os.fsencode(exact(entry.name))] = letter
    return kinds


class ListTask(TreeTask):
    """The listing task of one rank or thread. If look-ups are slow, helper threads overlap them."""

    notice_type: ClassVar[Any] = Failure | ActionLines | ListRecords
    counters_type: ClassVar[type[ListCounters]] = ListCounters
    visitor_type: ClassVar[type[ListVisitor]] = ListVisitor
    plan: ListPlan
    first: ListTask | None

    def begin(self) -> None:
        plan, first = self.plan, self.first
        self.acts: ActionLog | None = None
        if plan.acts.any:
            self.acts = ActionLog(
                "fls", plan.acts, self.rank, None if first is None else first.acts
            )
        self._throttle: Throttle | None = None
        if plan.operations_per_s is not None:
            rate = plan.operations_per_s / plan.ranks
            self._throttle = Throttle(rate, BURST_S) if first is None else first._throttle
        if self.turns is not None:  # one look-up at a time in each thread
            self.stats: Stats = Stats(1)
            return
        division = divide(self.plan.threads)
        self.threads: int | None = division.workers
        self.max_threads: int = division.max_workers
        number = 0 if self.first is None else len(self.first.parts)
        self.stats = Stats(division.helped_of(number))

    @property
    def is_at_will(self) -> bool:
        return self._throttle is None and super().is_at_will

    def pace(self, count: int, stop: Callable[[], bool]) -> None:
        """Wait until the rate limit permits `count` entries; each is one operation."""
        if self._throttle is not None:
            self._throttle.take(count, stop)

    def walker(self, visitor: EntryVisitor) -> Walker[int]:
        self._visitor = require_type(ListVisitor, visitor)
        return super().walker(visitor)

    def seed(self) -> Iterable[Any]:
        self._visitor.operands()
        return super().seed()

    def close(self) -> None:
        for part in self.parts:
            part.stats.close()
        super().close()
