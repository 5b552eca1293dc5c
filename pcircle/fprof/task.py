"""Profiling as a task: how a tree is walked, and how the sums of directories come together.

A directory is read once and its files looked up at once, in blocks. Then whoever reads it goes on
with its subdirectories, depth first, for some milliseconds; what is left then, at all levels,
becomes items that others can steal, the largest first. Names of a large directory become batches.

A directory is complete when all below it is, wherever that was walked. What a rank has added up
(`pcircle.fprof.collect`) stays there until the end of the job and is then merged up the tree.
"""

from __future__ import annotations

import os
import stat
import time
import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import reduce
from typing import TYPE_CHECKING, Any

import msgspec

from pcircle.fprof.collect import Collector, Files
from pcircle.fprof.counters import Counters
from pcircle.fprof.inodes import Claim, Inodes, home_of, unpack
from pcircle.fprof.items import (
    Batch,
    Claims,
    Done,
    Failure,
    Item,
    Lines,
    Sum,
    Tree,
    added,
    narrow,
    split,
    total_of,
    wide,
)
from pcircle.fprof.opened import Above, Open, all_left_of, left_of
from pcircle.fprof.packing import pack
from pcircle.fprof.packing import unpack as unpacked
from pcircle.fprof.plan import Plan, divide
from pcircle.fprof.profile import DirectoryRow, Profile, merge
from pcircle.fs.choosing import choosing
from pcircle.fs.directories import HOLDER, Lease, join_path
from pcircle.fs.roots import open_roots
from pcircle.fs.scan import Block, Listings, blocks, encoded
from pcircle.fs.stats import CAPACITY, Failed, Stats
from pcircle.fs.trouble import kind_of, told
from pcircle.guards import require_type
from pcircle.runtime import Here, PartedTask

if TYPE_CHECKING:
    from pcircle.fprof.looks import Looks
    from pcircle.fs.lists import Lists

_LIST_BYTES = 1 << 20  # of a list, that are divided at once
_ITEM_S = 0.01  # that an item goes on into subdirectories
_FIRST_ITEM_S = 0.001
_KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}
_SPACE = ("size", "blocks")
_BATCH_S = 0.1
_BATCH_NAMES = 2 * CAPACITY
_MANY_NAMES = 4 * CAPACITY  # of a block: the rest is for others


class ProfileTask(PartedTask[Item, Done]):
    """One rank's part of a profile; with `first`, the part of it that another worker has."""

    notice_type = Failure

    def __init__(
        self,
        plan: Plan,
        rank: int,
        size: int,
        lists: Lists | None = None,
        first: ProfileTask | None = None,
        number: int = 0,
    ) -> None:
        super().__init__()
        division = divide(plan.threads)
        self.threads, self.most_threads = division.workers, division.most
        self._lists = lists  # on rank 0
        self.counters = Counters(first=first is None)
        self._plan = plan
        self._rank = rank
        self._size = size
        inodes: Inodes | None = None if first is None else first._collector.inodes
        self._collector: Collector = Collector(plan.facets, plan.top, plan.edges, inodes)
        self._looks: Looks | None = None
        if {"sparse", "stripe", "compress"}.intersection(plan.facets):
            from pcircle.fprof.looks import Looks  # most runs need none

            self._looks = Looks(plan)
        self._listings = Listings()
        self._stats = Stats(division.helped_of(number))
        self._directories = open_roots(plan.roots, plan.directory, is_first=first is None)
        self._choose = choosing(plan.rules)
        self._devices: dict[tuple[int, bytes], int] = {}  # of mount points, as this node has them
        self._claims: defaultdict[int, list[Claim]] = defaultdict(list)

    def close(self) -> None:
        """The job has ended: let the directories go."""
        self._collector.inodes.close()
        for part in self.parts:
            part._stats.close()
            part._directories.close()

    @property
    def counted(self) -> Counters:
        return self.counters

    def beside(self, number: int) -> ProfileTask:
        return ProfileTask(self._plan, self._rank, self._size, self._lists, self, number)

    def finish(self) -> Done:
        return Done(profile=pack(reduce(merge, (part._end() for part in self.parts))))

    def _end(self) -> Profile:
        """What this worker has added up."""
        profile = self._collector.end(tuple(root.shown for root in self._plan.roots))
        if self._looks is not None:
            self._looks.end(profile, self._plan.pieces)
        profile.failed = self.counters.failed
        profile.unreadable = self.counters.unreadable
        return profile

    def seed(self) -> Iterator[Item]:
        if self._lists is not None:
            only = self._lists.parts[0].listed
            if only is not None:
                yield Lines(0, only, 1.0)
                return
        weight = 1.0 / len(self._plan.roots)
        self.counters.found += len(self._plan.roots)
        for number, root in enumerate(self._plan.roots):
            if root.name:
                yield Batch(number, HOLDER, b"", b"", b"", weight, number, any=root.name)
            else:
                self.counters.scans_due += 1
                yield Tree(number, b"", b"", weight, number)

    # ---- one item --------------------------------------------------------------

    def process(self, item: Item, here: Here[Item]) -> Any:
        began_s = time.perf_counter()
        if isinstance(item, Tree):
            own: Any = self._tree(item, here)
        elif isinstance(item, Batch):
            own = self._batch(item, here)
        elif isinstance(item, Lines):
            own = self._lines(item, here)
        else:
            for claim in unpack(item.packed):
                self._collector.claim(claim)
            own = Done()
        for home, claims in self._claims.items():
            here.post(home, [Claims(b"".join(map(Claim.pack, claims)))])
        self._claims.clear()
        self.counters.work_s += time.perf_counter() - began_s
        if here.spawned and isinstance(own, Done):
            return [], own
        return own

    def merge(self, a: Done, b: Done) -> Done:
        profile = a.profile or b.profile
        if a.profile and b.profile:
            profile = pack(merge(unpacked(a.profile), unpacked(b.profile)))
        slots = dict(a.slots)
        for slot, part in b.slots.items():
            known = slots.get(slot)
            slots[slot] = part if known is None else narrow(added(wide(known), wide(part)))
        return Done(slots, profile)

    def join(self, item: Item, own: Any, merged: Done, here: Here[Item]) -> Done:
        opened, done = own
        if not opened:
            # Of a batch: what it has given back to be done counts where it counts itself.
            parts = [wide(part) for part in (*done.slots.values(), *merged.slots.values())]
            if not isinstance(item, Batch) or not parts:
                return Done(done.slots)
            return Done({item.slot: narrow(total_of(parts))})
        tree = require_type(Tree, item)
        for slot, part in merged.slots.items():
            opened[slot].add(wide(part))
        while len(opened) > 1:
            part = self._complete(tree.root, opened.pop())
            opened[-1].add(part)
        return Done({tree.slot: narrow((*opened[0].sums, 0))})

    # ---- lists -----------------------------------------------------------------

    def _lines(self, item: Lines, here: Here[Item]) -> Done:
        """Divide what is listed among all."""
        if self._lists is None:
            here.post(0, [item])
            return Done()
        from pcircle.fprof.listing import divided

        # The rest waits until this is done, so that not all of a long list is in memory.
        only, rest = self._lists.cut(item.only, _LIST_BYTES)
        whole = item.only.end - item.only.begin
        weight = item.weight * (only.end - only.begin) / whole if whole else item.weight
        if rest.is_range:
            here.spawn([Lines(item.root, rest, item.weight - weight)])
        count = sum(1 for _ in self._lists.records(only))
        if not count:
            self.counters.weight += weight
        for part in divided(self._lists.records(only), item.root, weight / max(1, count)):
            if here.stopping:
                break
            names = split(part.names if isinstance(part, Tree) else part.any)
            self.counters.found += len(names)
            self.counters.scans_due += len(names) if isinstance(part, Tree) else 0
            here.spawn([part])
        return Done()

    # ---- directories -----------------------------------------------------------

    def _tree(self, item: Tree, here: Here[Item]) -> Any:
        """Walk for a while. Directories that are open then are what the join gets.

        The lowest of them is the one that the item's are in, of which nothing else is known.
        """
        until_s = time.monotonic() + (_ITEM_S if item.names else _FIRST_ITEM_S)
        depth = item.path.count(b"/") + 1 if item.path else 0
        stack = [Open(item.path, depth, item.mount)]
        stack[0].sums[0] = 0
        stack[0].each = item.weight
        go_on = True
        if item.names:
            stack[0].pending = split(item.names)
        else:
            stack.append(Open(b"", 0, b""))
            go_on = self._enter(item.root, stack, item.weight, here)
        with closing(Above(self._directories, item.root)) as above:
            while go_on and time.monotonic() < until_s:
                top = stack[-1]
                if top.pending:
                    name = top.pending.pop()
                    stack.append(Open(join_path(top.path, name), top.depth + 1, top.mount))
                    place = above.of(top), name
                    go_on = self._enter(item.root, stack, top.each, here, place)
                    if stack[-1].pending or not go_on:
                        continue
                elif len(stack) == 1:
                    break
                part = self._complete(item.root, stack.pop())
                stack[-1].add(part)
        here.spawn(all_left_of(item.root, stack))
        own = (stack, Done())
        return own if here.spawned else self.join(item, own, Done(), here)

    def _complete(self, root: int, opened: Open) -> Sum:
        """A directory and all below it are done: its sums, as its parent wants them."""
        entries, size = opened.sums
        self._collector.directory(
            DirectoryRow(
                root,
                opened.path,
                opened.depth,
                entries,
                size,
                opened.own_entries,
                opened.own_bytes,
            )
        )
        return entries, size, 0

    def _enter(
        self,
        root: int,
        stack: list[Open],
        weight: float,
        here: Here[Item],
        place: tuple[Lease | None, bytes] = (None, b""),
    ) -> bool:
        """Read the last directory of a stack, which has this name in that of a lease.

        False if most of it was given away, so that nobody waits for more.
        """
        opened = stack[-1]
        counters = self.counters
        counters.scans_done += 1
        above, name = place
        try:
            if above is None:
                lease = self._directories.lease(root, opened.path)
            else:
                lease = self._directories.lease_below(above, name)
        except OSError as error:
            counters.weight += weight
            counters.failed += 1
            self._note(root, opened.path, "reach", error, here)
            return True
        with lease:
            status = lease.opened.status
            system = self._listings.of(status.st_dev)
            self._stats.waits = system.waits
            counters.directories += 1
            self._collector.others("directory", (status.st_size,), (status.st_blocks,))
            if self._is_mount_point(root, opened, status) and self._plan.one_file_system:
                counters.weight += weight
                return True
            try:
                if lease.searched:
                    # This says why it can't be read.
                    os.close(os.open(b".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=lease.fd))
                names = None
                if not self._plan.rules:
                    began_s = time.perf_counter()
                    names = self._listings.whole(lease.fd, status, system)
                    counters.readdir_s += time.perf_counter() - began_s
                if names is not None:
                    self._whole(root, opened, weight, names, lease.fd, here)
                    return True
                return self._read(root, opened, weight, len(stack) - 1, lease, here)
            except OSError as error:
                counters.weight += weight if not opened.own_entries else 0.0
                counters.unreadable += 1
                self._note(root, opened.path, "read directory", error, here)
                return True
            finally:
                if opened.pending:
                    self._directories.keep(lease, root, opened.path)

    def _is_mount_point(self, root: int, opened: Open, status: os.stat_result) -> bool:
        """Whether it is on another file system than what it is in; notes that it is."""
        key = (root, opened.mount)
        if key not in self._devices:
            with self._directories.lease(*key) as lease:
                self._devices[key] = lease.identity[0]
        if self._devices[key] == status.st_dev:
            return False
        opened.mount = opened.path
        self._devices[root, opened.mount] = status.st_dev
        return True

    def _read(
        self, root: int, opened: Open, weight: float, slot: int, lease: Lease, here: Here[Item]
    ) -> bool:
        counters = self.counters
        alone = True
        scan = blocks(lease.fd)
        while True:
            began_s = time.perf_counter()
            block = next(scan, None)
            counters.readdir_s += time.perf_counter() - began_s
            if block is None:
                return alone
            self._choose(block, opened.path)
            count = len(block)
            # Of a directory whose end is not in sight nobody knows the share of a name.
            share = weight if block.last else weight / 2
            weight -= share
            counters.found += count
            opened.own_entries += count
            opened.sums[0] += count - len(block.directories)
            if not count:
                counters.weight += share
                continue
            opened.each = share / count
            counters.scans_due += len(block.directories)
            opened.pending += encoded(block.directories)
            alone = self._names_of(root, opened, slot, block, lease.fd, here) and alone
            if not block.last:
                here.spawn(left_of(root, opened, slot))
                alone = False
            if here.stopping:
                return False

    def _whole(
        self,
        root: int,
        opened: Open,
        weight: float,
        names: list[bytes],
        fd: int,
        here: Here[Item],
    ) -> None:
        """Look at all names of a small directory; which kind each is of is found on the way."""
        count = len(names)
        self.counters.found += count
        opened.own_entries += count
        opened.sums[0] += count
        if not count:
            self.counters.weight += weight
            return
        opened.each = weight / count
        item = Batch(root, opened.path, b"", b"", b"", opened.each, 0, opened.mount)
        for start in range(0, count, CAPACITY):
            if here.stopping:
                return
            part = names if count <= CAPACITY else names[start : start + CAPACITY]
            some = self._looked_up(item, part, fd, here)
            if some:
                self._sorted(item, opened, some, fd)

    def _sorted(self, item: Batch, opened: Open, names: Sequence[bytes], fd: int) -> None:
        """Add what was looked up, each name as what it is."""
        if self._stats.are_files(len(names)):
            total = self._add_files(item, names, None, fd)
            opened.add((0, total, total))
            return
        modes = self._stats.column("mode", 0, len(names))
        places: dict[str, list[int]] = {"file": [], "directory": [], "link": [], "special": []}
        for place, mode in enumerate(modes):
            places[_KINDS.get(stat.S_IFMT(mode), "special")].append(place)
        below = places["directory"]
        if item.any and below:
            self._others("directory", below)
            below = []
        opened.pending += [names[place] for place in below]
        opened.sums[0] -= len(below)
        self.counters.scans_due += len(below)
        self.counters.weight -= item.weight * len(below)  # it is theirs to be done
        total = 0
        if files := places["file"]:
            total += self._add_files(item, [names[place] for place in files], files, fd)
        for kind in ("link", "special"):
            if places[kind]:
                total += self._others(kind, places[kind])
        opened.add((0, total, total))

    def _names_of(
        self, root: int, opened: Open, slot: int, block: Block, fd: int, here: Here[Item]
    ) -> bool:
        """Look at what of a block is no directory, or have others do it."""
        names = len(block) - len(block.directories)
        if names <= _MANY_NAMES and block.last:
            where = Batch(root, opened.path, b"", b"", b"", opened.each, slot, opened.mount)
            files, links = encoded(block.files), encoded(block.links)
            part = self._names(where, files, links, encoded(block.specials), fd, here)
            opened.add((0, *part))
            return True
        for kind in ("files", "links", "specials"):
            listed = encoded(getattr(block, kind))
            here.spawn(
                [
                    msgspec.structs.replace(
                        Batch(root, opened.path, b"", b"", b"", opened.each, slot, opened.mount),
                        **{kind: b"\0".join(listed[start : start + _BATCH_NAMES])},
                    )
                    for start in range(0, len(listed), _BATCH_NAMES)
                ]
            )
        return False

    # ---- names -----------------------------------------------------------------

    def _batch(self, item: Batch, here: Here[Item]) -> Done:
        files, links, specials = map(split, (item.files, item.links, item.specials))
        listed = split(item.any)
        try:
            with self._directories.lease(item.root, item.path) as lease:
                self._stats.waits = self._listings.of(lease.identity[0]).waits
                self._any(item, listed, lease.fd, here)
                part = self._names(item, files, links, specials, lease.fd, here)
        except OSError as error:
            for name in files + links + specials + listed:
                self._lost(item, name, error, here)
            return Done()
        return Done({item.slot: narrow((0, *part))})

    def _any(self, item: Batch, names: Sequence[bytes], fd: int, here: Here[Item]) -> None:
        """Look names of any kind up and add them."""
        alone = Open(item.path, 0, item.mount)
        for start in range(0, len(names), CAPACITY):
            some = self._looked_up(item, names[start : start + CAPACITY], fd, here)
            if some:
                self._sorted(item, alone, some, fd)

    def _names(
        self,
        item: Batch,
        files: Sequence[bytes],
        links: Sequence[bytes],
        specials: Sequence[bytes],
        fd: int,
        here: Here[Item],
    ) -> tuple[int, int]:
        """Look names up and add them: the bytes that count for their directory, twice.

        What takes too long is handed back, in two parts.
        """
        until_s = time.monotonic() + _BATCH_S
        total = 0
        for start in range(0, len(files), CAPACITY):
            if start and (time.monotonic() > until_s or here.stopping):
                self._hand_back(item, files[start:], here)
                break
            total += self._files(item, files[start : start + CAPACITY], fd, here)
        for kind, names in (("link", links), ("special", specials)):
            for start in range(0, len(names), CAPACITY):
                some = self._looked_up(item, names[start : start + CAPACITY], fd, here)
                if some:
                    total += self._others(kind, range(len(some)))
        return total, total

    def _others(self, kind: str, places: Sequence[int]) -> int:
        """Add what is no file, of one kind, that was looked up; its bytes."""
        sizes, taken = (
            [column[place] for place in places]
            for column in (self._stats.column(name, 0, places[-1] + 1) for name in _SPACE)
        )
        self._collector.others(kind, sizes, taken)
        total = sum(sizes)
        self.counters.bytes += total
        if kind == "directory":
            self.counters.directories += len(places)
        elif kind == "link":
            self.counters.links += len(places)
        else:
            self.counters.special += len(places)
        return total

    def _files(self, item: Batch, names: Sequence[bytes], fd: int, here: Here[Item]) -> int:
        names = self._looked_up(item, names, fd, here)
        return self._add_files(item, names, None, fd) if names else 0

    def _add_files(
        self, item: Batch, names: Sequence[bytes], places: Sequence[int] | None, fd: int
    ) -> int:
        """Add files that were looked up; the bytes that count for their directory."""
        depth = 0 if item.path in (b"", HOLDER) else item.path.count(b"/") + 1
        if item.path == HOLDER:
            depth = -1  # a PATH that is a file is its own root
        files = Files(self._stats, names, (item.root, item.path, depth), places)
        total, claims = self._collector.files(files)
        self.counters.files += len(names)
        self.counters.bytes += total
        for claim in claims:
            self._claim(item, claim)
        if self._looks is not None:
            self._looks.look(fd, files, self._collector.profile)
        return total

    def _claim(self, item: Batch, claim: Claim) -> None:
        """Ask the home of a file of several names, which may be this rank."""
        if not self._plan.one_node:
            # Nodes number devices each in their own way.
            volume = self._plan.volumes[item.root]
            if item.mount:
                volume = zlib.crc32(b"%d/%b" % (volume, item.mount)) << 16
            claim = claim._replace(volume=volume)
        home = home_of(claim, self._size)
        if home == self._rank:
            self._collector.claim(claim)
        else:
            self._claims[home].append(claim)

    def _looked_up(
        self, item: Batch, names: Sequence[bytes], fd: int, here: Here[Item]
    ) -> Sequence[bytes]:
        """Have names looked up. Those that can't be fail, and are not among those returned."""
        began_s = time.perf_counter()
        self.counters.weight += item.weight * len(names)
        try:
            self._stats.look(fd, names)
        except Failed as failed:
            for place, error in failed.errors.items():
                self.counters.weight -= item.weight
                self._lost(item, names[place], error, here)
            names = [name for place, name in enumerate(names) if place not in failed.errors]
            # The others again, side by side: this is rare.
            self.counters.weight -= item.weight * len(names)
            return self._looked_up(item, names, fd, here)
        self.counters.stat_s += time.perf_counter() - began_s
        return names

    def _hand_back(self, item: Batch, files: Sequence[bytes], here: Here[Item]) -> None:
        """Spawn what a slow batch has left, in two parts."""
        half = (len(files) + 1) // 2
        change = msgspec.structs.replace
        here.spawn(
            [
                change(item, files=b"\0".join(part), links=b"", specials=b"")
                for part in (files[:half], files[half:])
                if part
            ]
        )

    # ---- failures --------------------------------------------------------------

    def _lost(self, item: Batch, name: bytes, error: OSError, here: Here[Item]) -> None:
        """An entry that can't be looked at."""
        self.counters.weight += item.weight
        self.counters.failed += 1
        self._note(item.root, join_path(item.path, name), "look up", error, here)

    def _note(self, root: int, path: bytes, doing: str, error: OSError, here: Here[Item]) -> None:
        base = self._plan.roots[root]
        entry = b"" if base.name else path
        shown = os.path.join(base.shown, entry) if entry else base.shown
        here.note([Failure(shown, doing, *told(error), root, entry, kind_of(error))])
