"""Small directories with nothing but files, which most are, done with fewer steps than others."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, repeat

from pcircle.ffind.evaluating.bulk import In
from pcircle.ffind.evaluating.compiling import Compiled
from pcircle.ffind.evaluating.evaluator import Evaluator, chosen, depth_of
from pcircle.fs.directories import join_path
from pcircle.fs.scan import DirectoryBatch
from pcircle.fs.stats import CAPACITY, Failed, Row
from pcircle.guards import require
from pcircle.walk.opened import Gathering, Open

_FEW = 256  # entries
_ROOM = 8192  # of all directories, where no entry is looked up


class SmallDirectories(Evaluator):
    """Does these where the walk asks for it."""

    def bare(
        self, above: Open[int], names: list[bytes], directory_fd: int, context: Gathering[int]
    ) -> list[bytes]:
        """See `Visitor`: of a few files."""
        depth = depth_of(above.path) + 1
        if self._halted() or (self._max is not None and depth >= self._max):
            return names
        plan = self._of_kind["f"]
        is_meant = depth + 1 >= self._min
        together = plan.each is None and not (self._enters and self._of_several.each)
        # Names are looked up with the rest unless only some may be left.
        by_columns = together and plan.by_columns and is_meant
        looks = by_columns and not plan.filters
        device = require(above.leases)[0].opened.status.st_dev if self._enters else -1
        room = _ROOM
        if by_columns:
            room = 2 * CAPACITY if looks else CAPACITY
        elif not together:
            room = _FEW  # what is done with one entry may change the next directory
        rest: list[bytes] = []
        while names:
            if by_columns and self.task.stats.is_slow:  # then those of one directory overlap
                return names + rest
            keeps = not together or (by_columns and not looks)
            with DirectoryBatch(
                *(directory_fd, names, device),
                most=_FEW,
                room=room,
                looks=looks,
                keeps=keeps,
            ) as some:
                names, rest = some.later, rest + some.rest
                if not together:
                    undone = self._one_by_one(above, some)
                    if undone or self._halted():
                        return names + rest + undone
                    continue
                if self._enters:
                    self._do_themselves(above, some)
                lost = self._files_together(above, some, looks=looks) if is_meant else 0
                self._bare_done(above, len(some.names), len(some.kinds))
                self.counters.files -= lost
        return rest

    def _bare_done(self, above: Open[int], directories: int, files: int) -> None:
        """Count what was done by `bare`."""
        self.counters.files += files
        self.counters.done_at_once(directories, files, above.weight)

    def _one_by_one(self, above: Open[int], some: DirectoryBatch) -> list[bytes]:
        """Do open directories of which each entry is evaluated by itself; those not done."""
        opened: Open[int] = Open(above.root, b"", 0, above, 0)
        opened.leases = above.leases
        done, count = 0, len(some.names)
        # Of before they were read, which changes when they were used.
        rows = list(some.own.rows(count)) if self._enters else [None] * count
        for name, fd, (begin, end), status in zip(
            some.names, some.fds, some.ranges(), rows, strict=True
        ):
            self._plain(opened, name, fd, some.inside[begin:end], status)
            done += 1
            if self._halted():
                break
        self._bare_done(above, done, 0)
        return some.names[done:]

    def _do_themselves(self, above: Open[int], some: DirectoryBatch) -> None:
        """Do directories that were looked up, not what is in them."""
        plan, where = self._of_several, self._in(above, "d")
        if where.depth < self._min or not some.names:
            return
        left = some.names
        for choose in plan.filters:
            left = choose(left, where.prefix)
        kept = set(left)
        places = [place for place, name in enumerate(some.names) if name in kept]
        self.task.stats.put(some.own.data)
        self._do_at(places, plan, where, some.names)

    def _files_together(self, above: Open[int], some: DirectoryBatch, *, looks: bool) -> int:
        """Do all files in directories; how many of them failed or were gone."""
        where, plan = self._in(above, "f"), self._of_kind["f"]
        where = where._replace(depth=where.depth + 1)
        holders = [name + b"/" for name in some.names]
        if plan.end is not None and not plan.filters and not looks:
            self._print_all(plan.end, where.prefix, holders, some)
            return 0
        names, counts = some.inside, some.counts
        if plan.filters:
            names, counts = [], []
            for holder, (begin, end) in zip(holders, some.ranges(), strict=True):
                left = some.inside[begin:end]
                for choose in plan.filters:
                    left = choose(left, where.prefix + holder)
                names += left
                counts.append(len(left))
        if looks:
            self.task.stats.put(some.table, some.each_s)
        elif plan.by_columns:
            fds = list(chain.from_iterable(map(repeat, some.fds, counts)))
            try:
                self.task.stats.look(fds, names)
            except Failed:  # one by one, each with its error
                return self._files_apart(above, some)
        if names:
            each = list(chain.from_iterable(map(repeat, holders, counts)))
            self._do_at(range(len(names)), plan, where._replace(holders=each), names)
        return 0

    def _print_all(
        self, end: bytes, prefix: bytes, holders: Sequence[bytes], some: DirectoryBatch
    ) -> None:
        """Print the paths of all files in directories."""
        pieces: list[bytes] = []
        for holder, text in zip(holders, some.texts(), strict=True):
            if text:
                inside = prefix + holder
                pieces += (inside, text[:-1].replace(b"\0", end + inside), end)
        if pieces:
            self.task.output.add(0, b"".join(pieces))

    def _files_apart(self, above: Open[int], some: DirectoryBatch) -> int:
        lost = 0
        opened: Open[int] = Open(above.root, b"", 0, above, 0)
        for name, fd, (begin, end) in zip(some.names, some.fds, some.ranges(), strict=True):
            opened.path = join_path(above.path, name)
            lost += end - begin - self._do(opened, some.inside[begin:end], "f", fd)
        return lost

    def _do_at(
        self, places: Sequence[int], plan: Compiled, where: In, names: Sequence[bytes]
    ) -> None:
        """Do what is to be done with those in these places of names that were looked up."""
        places = chosen(plan, self.task.stats, places)
        if not places:
            return
        if len(places) < len(names):
            names = [names[place] for place in places]
            if where.holders:
                where = where._replace(holders=[where.holders[place] for place in places])
        if plan.end is not None:
            between = plan.end + where.prefix
            text = where.prefix + between.join(where.inside(names)) + plan.end
            self.task.output.add(0, text)
        elif plan.counts:
            self.counters.matched += len(names)
        elif plan.bulk is not None:
            self.task.output.add(0, plan.bulk.text(where, names, self.task.stats, places))

    def _plain(
        self,
        opened: Open[int],
        name: bytes,
        fd: int,
        files: list[bytes],
        status: Row | None,
    ) -> None:
        """Do a directory in which there are these files and nothing else."""
        above = require(opened.above)
        opened.path = join_path(above.path, name)
        if status is not None and depth_of(opened.path) >= self._min:
            entry = self._entry_in(above, require(above.leases)[0].fd, "d")
            entry.begin(name)
            entry.st = status
            self._evaluate_one(entry)
            self.counters.complaints += entry.bad
            if entry.pruned:
                return
        if files and not self._halted():
            count = len(files)
            done = self._do(opened, files, "f", fd)
            self.counters.found += count
            self.counters.sized += count
            self.counters.files += done
