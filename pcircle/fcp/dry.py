"""`--dry-run`: the same walk, the same counts, and nothing touched."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from itertools import chain

from pcircle.circle import Sums
from pcircle.copying.collisions import Collision
from pcircle.copying.existing import Existing, file_stays
from pcircle.copying.precision import Precision
from pcircle.copying.special import is_same_special
from pcircle.fcp.choose import chosen_blocks, is_left_empty
from pcircle.fcp.counters import Counters
from pcircle.fcp.follow import below, refuse_cycle
from pcircle.fcp.foretold import Foretold
from pcircle.fcp.items import (
    Done,
    Failure,
    Item,
    Notice,
    Place,
    Remark,
    Singles,
    Tree,
    pack,
    unpack,
)
from pcircle.fcp.limits import limits_of
from pcircle.fcp.plan import DIRECTORY, LINK, SPECIAL, Plan, open_sides
from pcircle.fcp.seeds import seed_listed
from pcircle.fcp.special import Skipper, not_copied
from pcircle.fs.choosing import choosing
from pcircle.fs.directories import HOLDER, Lease, join_path
from pcircle.fs.lists import Group, Lists, Picked
from pcircle.fs.scan import Block, encoded
from pcircle.fs.trouble import kind_of, told
from pcircle.guards import require
from pcircle.runtime import Here, Task

_IN_THE_WAY = "something that is neither a file nor a link is in its place"


class DryTask(Task[Item, Done]):
    """One rank's part of a copy that is not made."""

    notice_type = Notice

    def __init__(self, plan: Plan, rank: int, size: int, lists: Lists | None) -> None:
        self._lists = lists
        self.counters = Counters()
        self._skipper = Skipper(plan, self.counters)
        self._plan = plan
        self._precision = Precision(None)
        self._blocks = chosen_blocks(plan)
        self._choose = choosing(plan.rules)
        self._sources, self._targets = open_sides(plan)
        self._foretold = Foretold(plan, self._sources, self._targets)
        self._limits = limits_of(plan, size)

    def close(self) -> None:
        """The job has ended: let the directories go."""
        self._sources.close()
        self._targets.close()

    def seed(self) -> list[Item]:
        roots = self._plan.roots
        if self._lists is not None:
            return list(seed_listed(self._plan, self._lists, self.counters))
        weight = 1.0 / len(roots)
        self.counters.found += len(roots)
        self.counters.scans_due += sum(root.kind == DIRECTORY for root in roots)
        return [
            Tree(number, b"", weight)
            if root.kind == DIRECTORY
            else Singles(number, number + 1, weight)
            for number, root in enumerate(roots)
        ]

    def process(self, item: Item, here: Here[Item]) -> Done:
        if self._limits is not None:
            self._limits.begin(item, here.is_stopping)
        if isinstance(item, Tree):
            if item.only is not None and item.only.is_range and self._lists is None:
                here.post(0, [item])
            else:
                self._tree(item, here)
        elif isinstance(item, Singles):
            self._single(item.first, here)
            self.counters.weight += item.weight
        return Done()

    def merge(self, a: Done, b: Done) -> Done:
        return a

    def measure(self) -> Sums:
        return self.counters.sums()

    def _tree(self, item: Tree, here: Here[Item]) -> None:
        self.counters.scans_done += 1
        self.counters.sized += 1
        try:
            with self._sources.lease(item.root, item.path, readable=True) as source:
                self._refuse_cycle(item, source)
                if not item.path:
                    self._foretold.check_root(item.root)
                try:
                    lease = self._targets.lease(item.root, item.path)
                except FileNotFoundError:
                    self._say(item.root, item.path, "would be made", here)
                    self._scan(item, source, -1, here)
                else:
                    with lease:
                        self._foretold.check_directory(item.root, item.path)
                        self._scan(item, source, lease.fd, here)
        except OSError as error:
            self.counters.failed += 1
            self._tell_failure(item.root, item.path, error, here)
            return
        self.counters.directories += 1

    def _refuse_cycle(self, item: Tree, source: Lease) -> None:
        if self._plan.follow and item.above is not None:
            refuse_cycle(item, source, self._sources, self._targets)

    def _scan(self, item: Tree, source: Lease, target_fd: int, here: Here[Item]) -> None:
        weight = item.weight
        if is_left_empty(self._plan, item, source.fd, self._sources):
            self.counters.weight += weight
            return
        place = Place(source.identity, (0, 0), (0, 0))  # there is no target to have one
        line = below(item, place) if self._plan.follow else b""
        source_fd = source.fd
        for block in self._blocks_of(item, source_fd):
            self._leave_later(item, block, here)
            only = block.below if isinstance(block, Picked) else {}
            share = weight if block.last else weight / 2
            weight -= share
            each = share / max(1, len(block))
            self.counters.found += len(block)
            self.counters.scans_due += len(block.directories)
            trees = unpack(pack(block.directories))
            inner = [only.get(name) for name in block.directories]
            paths = [join_path(item.path, name) for name in trees]
            here.spawn(
                [
                    Tree(item.root, path, each, place, part, line)
                    for path, part in zip(paths, inner, strict=True)
                ]
            )
            for name in unpack(pack(block.files)):
                self._entry(item, name, source_fd, target_fd, here)
            for name in unpack(pack(block.links)):
                self._entry(item, name, source_fd, target_fd, here)
            for name in unpack(pack(block.specials)):
                if self._plan.keep.special:
                    self._entry(item, name, source_fd, target_fd, here)
                    continue
                self._skip_special(item, name, source_fd, here)
            self.counters.weight += share - each * len(trees)

    def _leave_later(self, item: Tree, block: Block, here: Here[Item]) -> None:
        """Take out the names that others of a block will have in the target, as failures."""
        kinds = [block.files, block.links, block.directories]
        kinds += [block.specials] if self._plan.keep.special else []
        later = self._foretold.later(item.root, item.path, chain(*map(encoded, kinds)))
        if not later:
            return
        for name, other in later.items():
            self.counters.found += 1
            self._fail(item.root, join_path(item.path, name), Collision(other), here)
        for names in kinds:
            names[:] = [name for name in names if os.fsencode(name) not in later]

    def _blocks_of(self, item: Tree, source_fd: int) -> Iterator[Block]:
        """The names that would be copied."""
        if item.only is None:
            yield from self._blocks(item.path, source_fd)
            return
        follow = self._plan.follow
        if item.only.is_range:
            for part in require(self._lists).portions(item.only):
                text = part if isinstance(part, bytes) else b""
                block = Picked(source_fd, text, follow=follow)
                if isinstance(part, Group):
                    block.add_directory(part.name, part.listed())
                block.last = False
                self._choose(block, item.path)
                yield block
        last = Picked(source_fd, item.only.text, follow=follow)
        self._choose(last, item.path)
        yield last

    def _entry(
        self, item: Tree, name: bytes, source_fd: int, target_fd: int, here: Here[Item]
    ) -> None:
        path = join_path(item.path, name)
        if self._limits is not None:
            self._limits.operations(2)
        try:
            in_place = _in_place(name, target_fd)
            if in_place is not None:
                self._foretold.check(item.root, item.path, target_fd, name)
            if in_place is not None and self._plan.existing.stays:
                status = in_place  # then nobody looks at the source
            else:
                status = _readable_status(name, source_fd, follow=self._plan.follow)
        except OSError as error:
            self._fail(item.root, path, error, here)
            return
        same = self._plan.existing.same and _both_links(status, in_place)
        same = same and _same_link(source_fd, name, target_fd, name)
        self._count(item.root, path, status, in_place, here, same=same)

    def _skip_special(self, item: Tree, name: bytes, source_fd: int, here: Here[Item]) -> None:
        path = join_path(item.path, name)
        try:
            self._skipper.skip(item.root, item.path, name, source_fd, here)
        except OSError as error:
            self._fail(item.root, path, error, here)
        else:
            self._say(item.root, path, "would be skipped", here)

    def _single(self, number: int, here: Here[Item]) -> None:
        root = self._plan.roots[number]
        try:
            with (
                self._sources.lease(number, HOLDER) as source,
                self._targets.lease(number, HOLDER) as lease,
            ):
                if root.kind == SPECIAL and not self._plan.keep.special:
                    raise not_copied(source.fd, root.source_name)
                status = _readable_status(root.source_name, source.fd, follow=self._plan.follow)
                self._foretold.check_root(number)
                in_place = _in_place(root.target_name, lease.fd)
                if in_place is not None:
                    self._foretold.check(number, HOLDER, lease.fd, root.target_name)
                same = self._plan.existing.same and _both_links(status, in_place)
                names = (source.fd, root.source_name, lease.fd, root.target_name)
                same = same and _same_link(*names)
        except OSError as error:
            self._fail(number, b"", error, here)
            return
        if root.kind == LINK:
            here.note([Remark(root.source_shown, "is a symbolic link: it is copied as one")])
        self._count(number, b"", status, in_place, here, same=same)

    def _count(
        self,
        root: int,
        path: bytes,
        status: os.stat_result,
        in_place: os.stat_result | None,
        here: Here[Item],
        *,
        same: bool,
    ) -> None:
        existing = self._plan.existing
        alike = in_place is not None and is_same_special(status, in_place)
        if in_place is not None and not alike and _cannot_be_replaced(in_place.st_mode, existing):
            self._fail(root, path, FileExistsError(errno.EEXIST, _IN_THE_WAY), here)
            return
        self.counters.sized += 1
        is_kept = self._is_kept if self._plan.keep.timestamps else None
        stays = same or (alike and existing.decides)
        if in_place is not None and (stays or file_stays(existing, status, in_place, is_kept)):
            self.counters.skipped += 1
            self._say(root, path, "would be skipped", here)
            return
        if stat.S_ISLNK(status.st_mode):
            self.counters.links += 1
        elif not stat.S_ISREG(status.st_mode):
            self.counters.special += 1
        else:
            self.counters.files += 1
            self.counters.bytes_found += status.st_size
            self.counters.bytes_done += status.st_size
        what = "would be copied" if in_place is None else "would replace what is there"
        self._say(root, path, what, here)

    def _is_kept(self, source_ns: int, old: os.stat_result) -> bool:
        return self._precision.is_kept(source_ns, old, -1)

    def _say(self, root: int, path: bytes, text: str, here: Here[Item]) -> None:
        if self._plan.say_each:
            here.note([Remark(self._shown(root, path), text)])

    def _fail(self, root: int, path: bytes, error: OSError, here: Here[Item]) -> None:
        self.counters.failed += 1
        self.counters.sized += 1
        self._tell_failure(root, path, error, here)

    def _tell_failure(self, root: int, path: bytes, error: OSError, here: Here[Item]) -> None:
        entry = path if self._plan.roots[root].kind == DIRECTORY else b""
        shown = self._shown(root, path)
        here.note([Failure(shown, "copy", *told(error), root, entry, kind_of(error))])

    def _shown(self, root: int, path: bytes) -> bytes:
        shown = self._plan.roots[root].source_shown
        return os.path.join(shown, path) if path else shown


def _cannot_be_replaced(mode: int, existing: Existing) -> bool:
    """Whether something is in the way that is neither replaced nor left alone."""
    if existing.stays:
        return stat.S_ISDIR(mode)
    return not (stat.S_ISREG(mode) or stat.S_ISLNK(mode))


def _both_links(status: os.stat_result, in_place: os.stat_result | None) -> bool:
    return in_place is not None and stat.S_ISLNK(status.st_mode) and stat.S_ISLNK(in_place.st_mode)


def _same_link(source_fd: int, source: bytes, target_fd: int, name: bytes) -> bool:
    text = os.readlink(source, dir_fd=source_fd)
    return text == os.readlink(name, dir_fd=target_fd)


def _in_place(name: bytes, target_fd: int) -> os.stat_result | None:
    """What has the name in the target, None if nothing, or if there is no target yet."""
    if target_fd < 0:
        return None
    try:
        return os.stat(name, dir_fd=target_fd, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _readable_status(name: bytes, source_fd: int, *, follow: bool) -> os.stat_result:
    """The status of a source that could be copied. OSError if it could not."""
    status = os.stat(name, dir_fd=source_fd, follow_symlinks=follow)
    if stat.S_ISREG(status.st_mode):
        may_read = os.access(name, os.R_OK, dir_fd=source_fd, effective_ids=True)
        if not may_read:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return status
