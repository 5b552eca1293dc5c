"""The visitor of fprof: looks up names and adds up their attributes.

Small directories that contain only files are listed and looked up many at a time. In other small
directories all names are looked up to find those that are directories. Larger directories are read
in blocks, by type of entry. During the walk, ranks exchange only the sums of directories and claims
of hard-linked files. All other results are added up on the rank that looked up the entry
(`pcircle.tools.fprof.profile.collect`).
"""

from __future__ import annotations

import os
import stat
import time
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from pcircle.fs.directories import CLOSED, HOLDER, Directories, Lease, join_path
from pcircle.fs.scan import Block, DirectoryBatch, names_and_kinds
from pcircle.fs.stats import CAPACITY, StatBlockError, Stats
from pcircle.jobs.failures import NoticeSink, failure_of, report_effects, shown_below
from pcircle.runtime import Context
from pcircle.tools.fprof.plan import Mixed, ProfileCounters, ProfilePlan, Sum, added
from pcircle.tools.fprof.profile.collect import SPECIALS, Collector, FileBatch
from pcircle.tools.fprof.profile.groups import Claim, home_of
from pcircle.tools.fprof.profile.model import DirectoryRow
from pcircle.walk.items import ANYWHERE, UNREACHED, DirectoryIdentity, handed_back
from pcircle.walk.open_directory import BATCH_S, ItemContext, Open
from pcircle.walk.visitor import DirectoryScan, Names, Visitor, Where

if TYPE_CHECKING:
    from pcircle.jobs.action_log import ActionLog
    from pcircle.tools.fprof.entries import Entries, FileLists
    from pcircle.tools.fprof.profile.examinations import FileExaminer

NOTHING: Sum = (0, 0, 0)

_KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}
_SPACE = ("size", "blocks")
_WHOLE = 4 * CAPACITY  # the maximum number of names in a directory that is listed at once
_SCAN = DirectoryScan(max_entries=256, max_batch_entries=2 * CAPACITY, look_up=True)


class ProfileContext(NamedTuple):
    """The objects that a visitor uses.

    `examiner` examines files, `entries` writes the index, `lists` collects the lines of
    `--list-out`, and `log` those of `--verbose`; each is None if it was not requested.
    """

    counters: ProfileCounters
    collector: Collector
    stats: Stats
    directories: Directories
    examiner: FileExaminer | None
    entries: Entries | None
    lists: FileLists | None
    log: ActionLog | None


class ProfileVisitor(Visitor[Sum]):
    """The visitor of one worker thread; `claims` are the pending claims by home."""

    nothing: ClassVar[Sum] = NOTHING
    batch_names: ClassVar[int] = 2 * CAPACITY

    def __init__(self, plan: ProfilePlan, rank: int, means: ProfileContext) -> None:
        self.claims: defaultdict[int, list[Claim]] = defaultdict(list)
        self._plan = plan
        self._rank = rank
        self._counters, self._collector, self._stats, self._directories = means[:4]
        self._examiner, self._entries, self._lists, self._log = means[4:]
        self._bytes = 0  # the bytes added since the last call of `taken`
        if self._examiner is None and self._entries is None and self._log is None:
            self.scan: DirectoryScan = _SCAN
        self._devices: dict[int, int] = {}  # device numbers of roots on this node

    def begin(self, item: object, context: Context[object]) -> None:
        if self._examiner is not None:
            roots = self._plan.roots
            report_effects(
                self._examiner.effects, lambda root, path: shown_below(roots[root], path), context
            )

    # ---- directories -----------------------------------------------------------

    def enter(self, opened: Open[Sum], source: Lease, holder: Open[Sum] | None) -> Lease | None:
        """Count a directory, and decide whether to enter it if it is a mount point.

        The `place` of the directory stores its file system, because `_claim` identifies hard-linked
        files by file system and inode.
        """
        status = source.opened.status
        self._reached(status)
        system = 0
        if holder is not None:
            if holder.place != ANYWHERE:
                system = holder.place.file_system
                device = holder.leases[0].opened.status.st_dev
            else:  # a name from a list
                device = self._device_of(opened.root)
            if device != status.st_dev:
                volume = self._plan.volumes[opened.root]
                system = zlib.crc32(b"%d/%b" % (volume, opened.path)) << 16
                opened.entered = not self._plan.one_file_system
        opened.place = DirectoryIdentity(source.identity, file_system=system)
        if self._entries is not None:
            self._entries.directory(opened.root, opened.path, status, entered=opened.entered)
        if self._log is not None:
            self._log.done("profile", opened.root, opened.path, "d")
        return None

    def _reached(self, status: os.stat_result) -> None:
        counters = self._counters
        counters.scans_done += 1
        counters.directories += 1
        self._collector.add_others("directory", [status.st_size], [status.st_blocks])

    def _device_of(self, root: int) -> int:
        if root not in self._devices:
            with self._directories.lease(root, b"") as lease:
                self._devices[root] = lease.opened.status.st_dev
        return self._devices[root]

    def scan_of(self, above: Open[Sum]) -> DirectoryScan | None:
        """Return the scan that reads many directories at once, or None if look-ups are slow.

        Slow look-ups overlap within one directory instead.
        """
        return None if self._stats.is_slow else self.scan

    def process_directories(
        self, above: Open[Sum], batch: DirectoryBatch, context: ItemContext[Sum]
    ) -> list[bytes]:
        """Add directories whose files were looked up together."""
        counters, collector, stats = self._counters, self._collector, self._stats
        number, count = len(batch.names), len(batch.kinds)
        stats.put(batch.table, batch.each_s)
        counters.stat_s += batch.elapsed_s
        prefix = above.path + b"/" if above.path else b""
        depth = prefix.count(b"/") + 1
        own, blocks = (batch.own.column(name, 0, number) for name in _SPACE)
        collector.add_others("directory", own, blocks)
        ranges = batch.ranges()
        if not count or stats.has_single_names(0, count):
            sizes = stats.column("size", 0, count)
            totals = [sum(sizes[begin:end]) for begin, end in ranges]
            if count:
                ends = [end for _, end in ranges]
                where = above.root, above.path, depth
                collector.files(FileBatch(stats, batch.inside, where, None, batch.names, ends))
        else:
            totals = []
            for name, (begin, end) in zip(batch.names, ranges, strict=True):
                if begin == end:
                    totals.append(0)
                    continue
                where = above.root, prefix + name, depth
                files = FileBatch(stats, batch.inside[begin:end], where, range(begin, end))
                total, claims = collector.files(files)
                totals.append(total)
                for claim in claims:
                    self._claim(above, claim)
        counters.bytes += sum(totals)
        collector.directories(above.root, prefix, depth, batch.names, batch.counts, totals)
        whole = number + count, sum(totals), 0
        above.part = self.merge(above.part, whole)
        return []

    def read_directory(
        self, opened: Open[Sum], weight: float, source: Lease, context: Context[object]
    ) -> list[bytes] | None:
        """List a small directory completely, and look up all its names.

        Return its subdirectories, or None if it has too many names.
        """
        counters, fd = self._counters, source.fd
        began_s = time.perf_counter()
        found = names_and_kinds(fd, _WHOLE, asks=False)
        counters.readdir_s += time.perf_counter() - began_s
        if found is None:
            return None
        names = found[0]
        opened.own = count = len(names)
        counters.found += count
        if not count:
            counters.weight += weight
            return names
        opened.weight = weight / count
        if count <= CAPACITY:
            looked_up = self._looked_up(opened, names, fd, context)
            total, below = self._sorted(opened, looked_up, fd) if looked_up else (0, [])
        else:
            total, below = 0, []
            for start in range(0, count, CAPACITY):
                if context.is_stopping():
                    break
                looked_up = self._looked_up(opened, names[start : start + CAPACITY], fd, context)
                if looked_up:
                    size, subdirectories = self._sorted(opened, looked_up, fd)
                    total += size
                    below += subdirectories
        counters.weight -= opened.weight * len(below)  # the subdirectories carry this weight
        opened.part = (count - len(below), total, total)
        return below

    def meant(self, opened: Open[Sum], blocks: Iterable[Block], source: Lease) -> Iterator[Block]:
        """Count all entries in a directory, including those that filters exclude."""
        opened.own = 0
        scan = iter(blocks)
        while True:
            began_s = time.perf_counter()
            block = next(scan, None)
            self._counters.readdir_s += time.perf_counter() - began_s
            if block is None:
                return
            count = len(block)
            opened.own += count
            opened.part = added(opened.part, (count - len(block.directories), 0, 0))
            yield block

    def leave(self, opened: Open[Sum], context: Context[object] | None) -> Sum:
        """Add a directory when everything below it is complete."""
        path = opened.path
        entries, size, own_bytes = opened.part
        entries += 1
        depth = path.count(b"/") + 1 if path else 0
        own = (opened.own or 0, own_bytes)
        self._collector.directory(DirectoryRow(opened.root, path, depth, entries, size, *own))
        return entries, size, 0

    def lost(self, opened: Open[Sum]) -> Sum:
        return self.leave(opened, None)

    def failed(self, opened: Open[Sum], error: OSError, context: Context[object]) -> None:
        """Report a failed directory; if it was opened, count it as unreadable."""
        if opened.leases is CLOSED:
            self._counters.scans_done += 1
            self._counters.failed += 1
            if self._entries is not None:
                self._entries.unreached(opened.root, opened.path, error, self._directories)
            self._note(opened.root, opened.path, "reach", error, context)
            return
        if opened.place is UNREACHED:
            status = opened.leases[0].opened.status
            self._reached(status)
            if self._entries is not None:
                self._entries.directory(opened.root, opened.path, status, entered=False)
        if self._entries is not None:
            self._entries.unread(opened.root, opened.path, error)
        self._counters.unreadable += 1
        self._note(opened.root, opened.path, "read directory", error, context)

    def merge(self, a: Sum, b: Sum) -> Sum:
        return added(a, b)

    # ---- names -----------------------------------------------------------------

    def names(
        self, where: Where, names: Names, fds: tuple[int, int], context: ItemContext[Sum]
    ) -> None:
        """Look up names and add them; spawn the remaining files if the batch takes too long."""
        until_s = time.monotonic() + BATCH_S
        fd = fds[0]
        files = names.files
        total = 0
        for start in range(0, len(files), CAPACITY):
            if start and (time.monotonic() > until_s or context.is_stopping()):
                context.spawn(list(handed_back(where, files[start:])))
                break
            found = self._looked_up(where, files[start : start + CAPACITY], fd, context)
            if found:
                total += self._add_files(where, found, None, fd)
        for kind, batch in (("link", names.links), ("special", names.specials)):
            for start in range(0, len(batch), CAPACITY):
                found = self._looked_up(where, batch[start : start + CAPACITY], fd, context)
                if found:
                    total += self._add_others(kind, range(len(found)), where, found)
        self._bytes += total

    def taken(self) -> Sum:
        """Return the bytes added since the last call, as direct contents of a directory."""
        total = self._bytes
        if not total:
            return NOTHING
        self._bytes = 0
        return 0, total, total

    def mixed(self, item: Mixed, context: NoticeSink) -> None:
        """Look up names of any kind and add them, but not to the sums of their directory."""
        names = item.names.split(b"\0")
        try:
            with self._directories.lease(item.root, item.path) as lease:
                for start in range(0, len(names), CAPACITY):
                    found = self._looked_up(
                        item, names[start : start + CAPACITY], lease.fd, context
                    )
                    if found:
                        self._sorted(item, found, lease.fd)
        except OSError as error:
            for name in names:
                self._counters.weight += item.weight
                self.unreached(item, name, error, context)

    def _sorted(self, where: Where, names: Sequence[bytes], fd: int) -> tuple[int, list[bytes]]:
        """Add entries that were looked up, by kind, and return their bytes and the subdirectories.

        Directories from a list are added here and not returned, because they are not entered.
        """
        if self._stats.are_files(len(names)):
            return self._add_files(where, names, None, fd), []
        modes = self._stats.column("mode", 0, len(names))
        places: dict[str, list[int]] = {"file": [], "directory": [], "link": [], "special": []}
        for place, mode in enumerate(modes):
            places[_KINDS.get(stat.S_IFMT(mode), "special")].append(place)
        below = places["directory"]
        if below and isinstance(where, Mixed):
            self._add_others("directory", below, where, names)
            below = []
        total = 0
        if files := places["file"]:
            total += self._add_files(where, [names[place] for place in files], files, fd)
        for kind in ("link", "special"):
            if places[kind]:
                total += self._add_others(kind, places[kind], where, names)
        return total, [names[place] for place in below]

    def _add_others(
        self, kind: str, places: Sequence[int], where: Where, names: Sequence[bytes]
    ) -> int:
        """Add the entries at these places, none of which is a file, and return their bytes."""
        sizes, taken = (
            [column[place] for place in places]
            for column in (self._stats.column(name, 0, places[-1] + 1) for name in _SPACE)
        )
        self._collector.add_others(kind, sizes, taken)
        total = sum(sizes)
        self._counters.bytes += total
        if kind == "directory":
            self._counters.directories += len(places)
        elif kind == "link":
            self._counters.links += len(places)
        else:
            self._specials(places, where, names)
        self._list(where, (names[place] for place in places))
        return total

    def _list(self, where: Where, names: Iterable[bytes]) -> None:
        """Record entries for `--verbose`."""
        if self._log is not None:
            for name in names:
                self._log.entry("profile", where.root, where.path, name)

    def _specials(self, places: Sequence[int], where: Where, names: Sequence[bytes]) -> None:
        """Count special files by kind, and list them if requested."""
        self._counters.special += len(places)
        column = self._stats.column("mode", 0, places[-1] + 1)
        modes = [column[place] for place in places]
        self._collector.specials(modes)
        if self._lists is not None:
            for place, mode in zip(places, modes, strict=True):
                word = SPECIALS.get(stat.S_IFMT(mode), "others").removesuffix("s")
                self._lists.add("special", where.root, where.path, names[place], word)

    def _add_files(
        self, where: Where, names: Sequence[bytes], places: Sequence[int] | None, fd: int
    ) -> int:
        """Add files that were looked up, and return the bytes that count for their directory."""
        path = where.path
        depth = path.count(b"/") + 1 if path else 0
        if path == HOLDER:
            depth = -1  # so that a PATH that is a file has depth 0
        files = FileBatch(self._stats, names, (where.root, path, depth), places)
        total, claims = self._collector.files(files)
        self._counters.files += len(names)
        self._counters.bytes += total
        for claim in claims:
            self._claim(where, claim)
        if self._examiner is not None:
            self._examiner.look(fd, files, self._collector.profile)
        self._list(where, names)
        return total

    def _claim(self, where: Where, claim: Claim) -> None:
        """Send a claim to the home of a hard-linked file. This rank may be the home itself."""
        if not self._plan.one_node:
            # Device numbers differ between nodes.
            system = where.place.file_system
            claim = claim._replace(volume=system or self._plan.volumes[where.root])
        home = home_of(claim, self._plan.ranks)
        if home == self._rank:
            self._collector.claim(claim)
        else:
            self.claims[home].append(claim)

    def _looked_up(
        self, where: Where, names: Sequence[bytes], fd: int, context: NoticeSink
    ) -> Sequence[bytes]:
        """Look up names, report failures, and return the remaining names."""
        began_s = time.perf_counter()
        counters, weight = self._counters, where.weight
        counters.weight += weight * len(names)
        try:
            self._stats.look(fd, names)
        except StatBlockError as failed:
            for place, error in failed.errors.items():
                self.unreached(where, names[place], error, context)
            names = [name for place, name in enumerate(names) if place not in failed.errors]
            # Failures are rare, so the remaining names are simply looked up again.
            counters.weight -= weight * len(names)
            return self._looked_up(where, names, fd, context)
        counters.stat_s += time.perf_counter() - began_s
        if names and self._entries is not None:
            self._entries.names(where.root, where.path, names, self._stats, fd)
        return names

    # ---- failures --------------------------------------------------------------

    def unreached(self, where: Where, name: bytes, error: OSError, context: NoticeSink) -> None:
        """Report an entry that cannot be looked up."""
        self._counters.failed += 1
        path = join_path(where.path, name)
        if self._entries is not None:
            self._entries.unreached(where.root, path, error, self._directories)
        self._note(where.root, path, "look up", error, context)

    def _note(
        self, root: int, path: bytes, doing: str, error: OSError, context: NoticeSink
    ) -> None:
        context.note([failure_of(self._plan.roots[root], root, path, doing, error)])
