"""Small directories with nothing but files, which most are, done with fewer steps than others."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import islice
from typing import Any

from pcircle.encoding import IS_EXACT, exact, to_scan
from pcircle.ffind.evaluating.compiling import Compiled
from pcircle.ffind.evaluating.evaluator import Evaluator, depth_of
from pcircle.fs.directories import join_path
from pcircle.fs.scan import encoded
from pcircle.guards import require
from pcircle.walk.opened import Gathering, Open

_FEW = 256  # entries
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
        is_plain = not self._enters and plan.each is None and not plan.columns
        if is_plain and depth + 1 >= self._min:
            return self._bare_names(above, names, directory_fd, plan)
        rest: list[bytes] = []
        opened: Open[int] = Open(above.root, b"", 0, above, 0)
        opened.leases = above.leases
        scandir: Any = os.scandir  # mypy knows of no scan of either kind
        for place, name in enumerate(names):
            try:
                fd = os.open(name, _DIRECTORY, dir_fd=directory_fd)
            except OSError:
                rest.append(name)
                continue
            try:
                status = os.fstat(fd) if self._enters else None
                with scandir(to_scan(fd)) as entries:
                    some = list(islice(entries, _FEW + 1))
                if len(some) > _FEW or not self._plain(opened, name, fd, some, status):
                    rest.append(name)
            except OSError:
                rest.append(name)
            finally:
                os.close(fd)
            if self._halted():
                rest += names[place + 1 :]
                break
        self._bare_done(above, len(names) - len(rest), 0)
        return rest

    def _bare_done(self, above: Open[int], directories: int, files: int) -> None:
        """Count what was done by `bare`."""
        counters = self.counters
        counters.found += files
        counters.files += files
        counters.scans_done += directories
        counters.directories += directories
        counters.sized += directories + files
        counters.weight += above.weight * directories

    def _bare_names(
        self, above: Open[int], names: list[bytes], directory_fd: int, plan: Compiled
    ) -> list[bytes]:
        """As of `bare`, where names alone decide, and all of a directory are done at once."""
        rest: list[bytes] = []
        texts: list[bytes] = []
        files = 0
        prefix, filters, end = self._prefix(above.root, above.path), plan.filters, plan.end
        scandir: Any = os.scandir  # mypy knows of no scan of either kind
        open_, close = os.open, os.close
        for name in names:
            try:
                fd = open_(name, _DIRECTORY, dir_fd=directory_fd)
                try:
                    with scandir(to_scan(fd)) as entries:
                        some = list(islice(entries, _FEW + 1))
                    found = [each.name for each in some if each.is_file(follow_symlinks=False)]
                finally:
                    close(fd)
            except OSError:
                rest.append(name)
                continue
            if len(found) < len(some) or len(some) > _FEW:
                rest.append(name)
                continue
            files += len(found)
            if not found or (end is None and not plan.counts):
                continue
            left = encoded(found if IS_EXACT else list(map(exact, found)))
            inside = prefix + name + b"/"
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

    def _plain(
        self,
        opened: Open[int],
        name: bytes,
        fd: int,
        some: Sequence[os.DirEntry[Any]],
        status: os.stat_result | None,
    ) -> bool:
        """Do a directory with these entries, unless there is one among them that is no file."""
        above = require(opened.above)
        files = [entry.name for entry in some if entry.is_file(follow_symlinks=False)]
        if len(files) < len(some):
            return False
        opened.path = join_path(above.path, name)
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
            texts = list(map(exact, files)) if not IS_EXACT else files
            done = self._do(opened, encoded(texts), "f", fd)
            self.counters.found += count
            self.counters.sized += count
            self.counters.files += done
        return True
