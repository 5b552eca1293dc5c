"""`--dry-run`: the same walk, the same counts, and nothing touched."""

from __future__ import annotations

import os
import stat

from pcircle.circle import Sums
from pcircle.fcp.counters import Counters
from pcircle.fcp.items import Done, Failure, Item, Notice, Remark, Single, Tree, pack, unpack
from pcircle.fcp.plan import DIRECTORY, LINK, SPECIAL, Plan, open_sides
from pcircle.fcp.scan import blocks
from pcircle.fs.directories import HOLDER, join_path
from pcircle.runtime import Here, Task

_IN_THE_WAY = "something that is neither a file nor a link is in its place"


class DryTask(Task[Item, Done]):
    """One rank's part of a copy that is not made."""

    notice_type = Notice

    def __init__(self, plan: Plan, rank: int, size: int) -> None:
        self.counters = Counters()
        self._plan = plan
        self._sources, self._targets = open_sides(plan)

    def seed(self) -> list[Item]:
        self.counters.found = len(self._plan.roots)
        items: list[Item] = []
        for number, root in enumerate(self._plan.roots):
            weight = 1.0 / len(self._plan.roots)
            items.append(
                Tree(number, b"", weight) if root.kind == DIRECTORY else Single(number, weight)
            )
        return items

    def process(self, item: Item, here: Here[Item]) -> Done:
        try:
            if isinstance(item, Tree):
                self._tree(item, here)
            elif isinstance(item, Single):
                self._single(item, here)
        except OSError as error:
            path = item.path if isinstance(item, Tree) else b""
            self._fail(item.root, path, error.strerror or str(error), here)
        return Done()

    def merge(self, a: Done, b: Done) -> Done:
        return a

    def measure(self) -> Sums:
        return self.counters.sums()

    def _tree(self, item: Tree, here: Here[Item]) -> None:
        target_fd = -1
        with self._sources.lease(item.root, item.path) as source:
            try:
                with self._targets.lease(item.root, item.path) as lease:
                    target_fd = lease.fd
                    self._scan(item, source.fd, target_fd, here)
            except FileNotFoundError:
                if target_fd >= 0:
                    raise
                self._say(item.root, item.path, "would be made", here)
                self._scan(item, source.fd, -1, here)
        self.counters.directories += 1

    def _scan(self, item: Tree, source_fd: int, target_fd: int, here: Here[Item]) -> None:
        for block in blocks(source_fd):
            self.counters.found += len(block)
            each = item.weight / max(1, len(block))
            trees = unpack(pack(block.directories))
            here.spawn([Tree(item.root, join_path(item.path, n), each) for n in trees])
            for name in unpack(pack(block.files)):
                self._entry(item, name, source_fd, target_fd, here)
            for name in unpack(pack(block.links)):
                self._entry(item, name, source_fd, target_fd, here)
            for name in unpack(pack(block.specials)):
                self._fail(item.root, join_path(item.path, name), "a special file", here)

    def _entry(
        self, item: Tree, name: bytes, source_fd: int, target_fd: int, here: Here[Item]
    ) -> None:
        path = join_path(item.path, name)
        try:
            status = os.stat(name, dir_fd=source_fd, follow_symlinks=False)
            in_place = _in_place(name, target_fd)
        except OSError as error:
            self._fail(item.root, path, error.strerror or str(error), here)
            return
        self._count(item.root, path, status, in_place, here)

    def _single(self, item: Single, here: Here[Item]) -> None:
        root = self._plan.roots[item.root]
        with (
            self._sources.lease(item.root, HOLDER) as source,
            self._targets.lease(item.root, HOLDER) as lease,
        ):
            status = os.stat(root.source_name, dir_fd=source.fd, follow_symlinks=False)
            in_place = _in_place(root.target_name, lease.fd)
        if root.kind == SPECIAL:
            self._fail(item.root, b"", "a special file", here)
            return
        if root.kind == LINK:
            here.note([Remark(root.source_shown, "is a symbolic link: it is copied as one")])
        self._count(item.root, b"", status, in_place, here)

    def _count(
        self,
        root: int,
        path: bytes,
        status: os.stat_result,
        in_place: os.stat_result | None,
        here: Here[Item],
    ) -> None:
        if in_place is not None and _cannot_be_replaced(in_place.st_mode):
            self._fail(root, path, _IN_THE_WAY, here)
            return
        if stat.S_ISLNK(status.st_mode):
            self.counters.links += 1
        else:
            self.counters.files += 1
            self.counters.bytes_found += status.st_size
            self.counters.bytes_done += status.st_size
        what = "would be copied" if in_place is None else "would replace what is there"
        self._say(root, path, what, here)

    def _say(self, root: int, path: bytes, text: str, here: Here[Item]) -> None:
        if self._plan.say_each:
            here.note([Remark(self._shown(root, path), text)])

    def _fail(self, root: int, path: bytes, reason: str, here: Here[Item]) -> None:
        self.counters.failed += 1
        here.note([Failure(self._shown(root, path), "copy", 0, reason)])

    def _shown(self, root: int, path: bytes) -> bytes:
        shown = self._plan.roots[root].source_shown
        return os.path.join(shown, path) if path else shown


def _cannot_be_replaced(mode: int) -> bool:
    return not (stat.S_ISREG(mode) or stat.S_ISLNK(mode))


def _in_place(name: bytes, target_fd: int) -> os.stat_result | None:
    """What has the name in the target, None if nothing, or if there is no target yet."""
    if target_fd < 0:
        return None
    try:
        return os.stat(name, dir_fd=target_fd, follow_symlinks=False)
    except FileNotFoundError:
        return None
