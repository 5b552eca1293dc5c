"""Small directories with nothing but files, which most are, done with fewer steps than others."""

from __future__ import annotations

import os
from collections.abc import Sequence

from pcircle.ffind.evaluating.bulk import In
from pcircle.ffind.evaluating.compiling import Compiled
from pcircle.ffind.evaluating.evaluator import Evaluator, chosen, depth_of
from pcircle.fs.directories import close_open, join_path
from pcircle.fs.scan import FILE, Together, few, files_of
from pcircle.fs.stats import CAPACITY, Failed
from pcircle.guards import require
from pcircle.walk.opened import Gathering, Open

_FEW = 256  # entries
_FILE = b"\0" + FILE
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class SmallDirectories(Evaluator):
    """Does these where the walk asks for it."""

    def bare(
        self, above: Open[int], names: list[bytes], directory_fd: int, context: Gathering[int]
    ) -> list[bytes]:
        """See `Visitor`: of a few entries, and no directory among them."""
        depth = depth_of(above.path) + 1
        if self._halted() or (self._max is not None and depth >= self._max):
            return names
        plan = self._of_kind["f"]
        is_plain = not self._enters and plan.each is None and plan.bulk is None and not plan.columns
        if is_plain and depth + 1 >= self._min:
            return self._bare_names(above, names, directory_fd, plan)
        if plan.each is None and not (self._enters and self._of_several.each):
            return self._together(above, names, directory_fd)
        rest: list[bytes] = []
        opened: Open[int] = Open(above.root, b"", 0, above, 0)
        opened.leases = above.leases
        for place, name in enumerate(names):
            try:
                fd = os.open(name, _DIRECTORY, dir_fd=directory_fd)
            except OSError:
                rest.append(name)
                continue
            try:
                status = os.fstat(fd) if self._enters else None
                found = few(fd, _FEW)
                if found is None or not self._plain(opened, name, fd, found, status):
                    rest.append(name)
            except OSError:
                rest.append(name)
            finally:
                close_open(fd)
            if self._halted():
                rest += names[place + 1 :]
                break
        self._bare_done(above, len(names) - len(rest), 0)
        return rest

    def _bare_done(self, above: Open[int], directories: int, files: int) -> None:
        """Count what was done by `bare`."""
        self.counters.files += files
        self.counters.done_at_once(directories, files, above.weight)

    def _bare_names(
        self, above: Open[int], names: list[bytes], directory_fd: int, plan: Compiled
    ) -> list[bytes]:
        """As of `bare`, where names alone decide, and all of a directory are done at once."""
        rest: list[bytes] = []
        texts: list[bytes] = []
        files = 0
        prefix, filters, end = self._prefix(above.root, above.path), plan.filters, plan.end
        open_, close = os.open, os.close
        for name in names:
            try:
                fd = open_(name, _DIRECTORY, dir_fd=directory_fd)
                try:
                    found = few(fd, _FEW)
                finally:
                    close(fd)
            except OSError:
                rest.append(name)
                continue
            if found is None or (count := found.count(_FILE)) != found.count(b"\0"):
                rest.append(name)
                continue
            files += count
            if not count or (end is None and not plan.counts):
                continue
            inside = prefix + name + b"/"
            if end is not None and not filters:
                texts.append(inside + found[2:].replace(_FILE, end + inside) + end)
                continue
            left = found.split(_FILE)[1:]
            for choose in filters:
                left = choose(left, inside)
            if end is None:
                self.counters.matched += len(left)
            elif left:
                texts.append(inside + (end + inside).join(left) + end)
        if texts:
            self.task.output.add(0, b"".join(texts))
        self._bare_done(above, len(names) - len(rest), files)
        return rest

    def _together(self, above: Open[int], names: Sequence[bytes], directory_fd: int) -> list[bytes]:
        """As of `bare`, where all is done by columns, which are those of many directories."""
        rest: list[bytes] = []
        # As find does it: it tells how a directory was before it was read.
        before = self.task.stats.look_at if self._enters else None
        if before is None:
            self._on(require(above.leases)[0].opened.status.st_dev)
        while names:
            with Together(directory_fd, names, _FEW, CAPACITY, before) as some:
                names, rest = some.later, rest + some.rest
                if not some.names:
                    continue
                if self._enters:
                    self._do_themselves(above, some)
                lost = self._files_together(above, some)
                self._bare_done(above, len(some.names), sum(map(len, some.files)))
                self.counters.files -= lost
        return rest

    def _do_themselves(self, above: Open[int], some: Together) -> None:
        """Do open directories that were looked up, not what is in them."""
        self._on(*set(self.task.stats.devices(0, len(some.fds))))
        plan, where = self._of_several, self._in(above, "d")
        if where.depth < self._min:
            return
        left = some.names
        for choose in plan.filters:
            left = choose(left, where.prefix)
        kept = set(left)
        places = [place for place, name in enumerate(some.names) if name in kept]
        self._do_at(places, plan, where, some.names)

    def _files_together(self, above: Open[int], some: Together) -> int:
        """Do all files in open directories; how many of them failed or were gone."""
        where, plan = self._in(above, "f"), self._of_kind["f"]
        if where.depth + 1 < self._min:
            return 0
        names: list[bytes] = []
        fds: list[int] = []
        holders: list[bytes] = []
        for name, fd, files in zip(some.names, some.fds, some.files, strict=True):
            holder, left = name + b"/", files
            for choose in plan.filters:
                left = choose(left, where.prefix + holder)
            count = len(left)
            names += left
            fds += [fd] * count
            holders += [holder] * count
        if plan.by_columns:
            try:
                self.task.stats.look(fds, names)
            except Failed:  # one by one, each with its error
                return self._files_apart(above, some)
        where = where._replace(depth=where.depth + 1, holders=holders)
        self._do_at(range(len(names)), plan, where, names)
        return 0

    def _files_apart(self, above: Open[int], some: Together) -> int:
        lost = 0
        opened: Open[int] = Open(above.root, b"", 0, above, 0)
        for name, fd, files in zip(some.names, some.fds, some.files, strict=True):
            opened.path = join_path(above.path, name)
            lost += len(files) - self._do(opened, files, "f", fd)
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
        found: bytes,
        status: os.stat_result | None,
    ) -> bool:
        """Do a directory with these entries, unless there is one among them that is no file."""
        above = require(opened.above)
        files = files_of(found)
        if files is None:
            return False
        opened.path = join_path(above.path, name)
        if status is not None:
            self._on(status.st_dev)
        if status is not None and depth_of(opened.path) >= self._min:
            entry = self._entry_in(above, require(above.leases)[0].fd, "d")
            entry.begin(name)
            entry.st = status
            self._evaluate_one(entry)
            self.counters.complaints += entry.bad
            if entry.pruned:
                return True
        if files and not self._halted():
            count = len(files)
            done = self._do(opened, files, "f", fd)
            self.counters.found += count
            self.counters.sized += count
            self.counters.files += done
        return True
