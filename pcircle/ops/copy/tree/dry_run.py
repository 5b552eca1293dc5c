"""`--dry-run`: walk and count like a copy without changing anything, and predict name collisions.

`CollisionPreview` detects a collision with an existing entry as a copy does. It infers whether two
new names would collide from the names in the nearest existing directory and its parents.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain, islice
from typing import ClassVar, TypeAlias

from pcircle.circle import ProgressSums
from pcircle.fs.directories import HOLDER, Directories, Lease, join_path
from pcircle.fs.entry_errors import errno_and_reason, kind_of, tried
from pcircle.fs.lists import Lists
from pcircle.fs.open_flags import OPEN_DIRECTORY_FOLLOW
from pcircle.fs.scan import Block, encoded
from pcircle.jobs.failures import Failure
from pcircle.ops.copy.entry import overwrite, target
from pcircle.ops.copy.entry.attributes import AttributeCopier
from pcircle.ops.copy.entry.collisions import (
    CollisionError,
    Collisions,
    differ_only_by,
    folds_name,
    group_by_key,
    list_names,
)
from pcircle.ops.copy.tree.counters import CopyActionLog, CopyCounters, letter_of
from pcircle.ops.copy.tree.directory import DirectoryComparison
from pcircle.ops.copy.tree.items import (
    DIRECTORY,
    LINK,
    SPECIAL,
    CopyPlan,
    CopyResult,
    Item,
    Notice,
    Remark,
    SingleRoots,
    open_sides,
    scope_of,
)
from pcircle.ops.copy.tree.selection import (
    SpecialFileSkipper,
    below,
    first_items,
    not_copied,
    refuse_cycle,
    siblings_of,
)
from pcircle.ops.copy.tree.worker import ItemLimits, limits_of
from pcircle.runtime import Context, Task
from pcircle.walk.items import Batch, DirectoryIdentity, Portion, Tree
from pcircle.walk.open_directory import ItemContext, Open
from pcircle.walk.visitor import Names, Visitor, Where
from pcircle.walk.walker import Walker

DryState: TypeAlias = "CopyResult | list[Open[None]]"
"""The result of an item, or the directories that its join completes."""

_IN_THE_WAY = "an entry that is neither a file nor a link is in the way"


class DryTask(Task[Item, CopyResult]):
    """One rank's share of a dry run."""

    notice_type: ClassVar[object] = Notice
    visitor_type: ClassVar[type[DryVisitor]]

    def __init__(self, plan: CopyPlan, rank: int, size: int, lists: Lists | None) -> None:
        self._lists = lists
        self.counters: CopyCounters = CopyCounters()
        self._plan = plan
        self._sources, self._targets = open_sides(plan)
        self._limits = limits_of(plan, size)
        self._acting = (
            CopyActionLog(plan.tool, plan.acts, rank, planned=True) if plan.acts.any else None
        )
        sides = self._sources, self._targets
        parts = (self.counters, *sides, self._limits, self._acting)
        self._visitor = self.visitor_type(plan, *parts)
        self._visitor.lists = lists
        scope = scope_of(plan)
        # The target may not exist, so only the visitor reads it.
        self._walker = Walker(self._visitor, scope, self._sources, None, self.counters, rank, lists)

    def close(self) -> None:
        """Close the directories."""
        self._sources.close()
        self._targets.close()

    def seed(self) -> list[Item]:
        return list(first_items(self._plan, self._lists, self.counters))

    def process(self, item: Item, context: Context[Item]) -> DryState:
        own = self._do(item, context)
        self._tell_actions(context)
        return own

    def _tell_actions(self, context: Context[Item]) -> None:
        if self._acting is not None:
            self._acting.actions.tell(context)

    def _do(self, item: Item, context: Context[Item]) -> DryState:
        if self._limits is not None:
            self._limits.begin(item, context.is_stopping)
        if isinstance(item, Tree):
            if item.only is not None and item.only.is_range and self._lists is None:
                context.post(0, [item])
                return CopyResult()
            walked = self._walker.tree(item, context)
            return walked if isinstance(walked, list) else CopyResult()
        if isinstance(item, Batch):
            self._walker.batch(item, context)
        elif isinstance(item, Portion):
            self._walker.portion(item, context)
        elif isinstance(item, SingleRoots):
            self._singles(item, context)
        return CopyResult()

    def _singles(self, item: SingleRoots, context: Context[Item]) -> None:
        enough = ItemContext[None](context).time_limit()
        for number in range(item.first, item.end):
            self._visitor.single(number, context)
            self.counters.weight += item.weight
            if context.stopping or enough():
                context.spawn(item.halves_after(number))
                break

    def join(
        self, item: Item, own: DryState, merged: CopyResult, context: Context[Item]
    ) -> CopyResult:
        if isinstance(own, list):
            self._walker.join(own, {}, context)
            self._tell_actions(context)
        return CopyResult()

    def merge(self, a: CopyResult, b: CopyResult) -> CopyResult:
        return a

    def measure(self) -> ProgressSums:
        return self.counters.sums()

    def figures(self, counts: tuple[int, ...]) -> dict[str, int]:
        return self.counters.figures(counts)


class DryVisitor(Visitor[None]):
    """Determines and reports what a run would do at each step of the walk."""

    nothing: ClassVar[None] = None
    lists: Lists | None = None  # on rank 0
    _here: Context[Item]  # the context of the current item, set by `begin`

    def __init__(
        self,
        plan: CopyPlan,
        counters: CopyCounters,
        sources: Directories,
        targets: Directories,
        limits: ItemLimits | None,
        acting: CopyActionLog | None,
    ) -> None:
        self.counters = counters
        self._skipper = SpecialFileSkipper(plan, counters)
        self._plan = plan
        self._precision = overwrite.TimestampPrecision(None)
        self._extras = AttributeCopier(plan.keep, counters, target.TemporaryNames(plan, 0))
        self._differing = DirectoryComparison(plan.keep, self._extras)
        self._sources = sources
        self._targets = targets
        self._foretold = CollisionPreview(plan, sources, targets)
        self._limits = limits
        self._acting = acting
        self._entered = False  # whether the current directory could be opened

    # ---- directories -----------------------------------------------------------

    def enter(self, opened: Open[None], source: Lease, holder: Open[None] | None) -> Lease | None:
        """Determine and report whether a directory would be created or get new attributes.

        Return the lease of its existing copy, or None.
        """
        self._begin_directory()
        self._entered = True
        where = opened.root, opened.path
        above = b"" if holder is None else holder.ancestors
        if self._plan.follow and holder is not None:
            refuse_cycle((*where, above), source, self._sources, self._targets)
        opened.place = DirectoryIdentity(source.identity)
        if self._plan.follow:
            opened.ancestors = below(above, opened.place)
        if not opened.path:
            self._foretold.check_root(opened.root)
        lease = self._target_of(*where)
        if lease is None:
            opened.own = "copy"
            self._say(*where, "would be created", self._here)
            return None
        try:
            self._foretold.check_directory(*where)
            opened.own = "touch" if self._differs(source, lease) else ""
        except OSError:
            lease.end()
            raise
        if opened.own:
            self._say(*where, "would get its attributes", self._here)
        return lease

    def _differs(self, source: Lease, lease: Lease) -> bool:
        """Return whether the attributes of an existing directory would change. Raises OSError."""
        held = self._extras.read_directory(source.fd, alone=True) if self._extras.any else None
        return self._differing.of(source.opened.status, held, lease)

    def _target_of(self, root: int, path: bytes) -> Lease | None:
        """Return the existing copy of a directory, or None if there is none. Raises OSError."""
        try:
            return self._targets.lease(root, path)
        except FileNotFoundError:
            return None

    def known(self, opened: Open[None], context: Context[Item]) -> None:
        self._entered = False

    def _begin_directory(self) -> None:
        self.counters.scans_done += 1
        self.counters.sized += 1
        if self._limits is not None:
            self._limits.operations(self._limits.entry)

    def meant(self, opened: Open[None], blocks: Iterable[Block], source: Lease) -> Iterable[Block]:
        """Report names that would collide in the target, and remove them from the blocks."""
        for block in blocks:
            self._leave_later(opened, block)
            yield block

    def _leave_later(self, opened: Open[None], block: Block) -> None:
        kinds = [block.files, block.links, block.directories]
        kinds += [block.specials] if self._plan.keep.special else []
        later = self._foretold.later(opened.root, opened.path, chain(*map(encoded, kinds)))
        if not later:
            return
        for name, other in later.items():
            self.counters.found += 1
            path = join_path(opened.path, name)
            self._fail(opened.root, path, CollisionError(other), self._here)
        for names in kinds:
            names[:] = [name for name in names if os.fsencode(name) not in later]

    def begin(self, item: Item, context: Context[Item]) -> None:
        self._here = context
        if self._limits is not None:
            self._limits.start(context.is_stopping)

    def leave(self, opened: Open[None], context: Context[Item]) -> None:
        action = opened.own
        self.counters.directories += 1
        self.counters.directories_created += action == "copy"
        self.counters.directories_touched += action == "touch"
        if self._acting is not None:
            self._acting.directory(opened.root, opened.path, self._action(action))

    def _action(self, action: str) -> str:
        """Return the action of a directory for `--json-lines`."""
        return "copy"

    def failed(self, opened: Open[None], error: OSError, context: Context[Item]) -> None:
        if not self._entered:
            self._begin_directory()
        self.counters.failed += 1
        doing = tried(error, "read directory" if self._entered else "open directory")
        self._tell_failure(opened.root, opened.path, error, context, doing)

    def lost(self, opened: Open[None]) -> None:
        """Restore nothing, because a dry run changes nothing."""

    def merge(self, a: None, b: None) -> None:
        """Return None, because a dry run has no partial results."""

    def taken(self) -> None:
        """Return None, because a dry run has no partial results."""

    # ---- names -----------------------------------------------------------------

    def unreached(self, where: Where, name: bytes, error: OSError, context: Context[Item]) -> None:
        self._fail(where.root, join_path(where.path, name), error, context, "reach")

    def names(
        self, where: Where, names: Names, fds: tuple[int, int], context: ItemContext[None]
    ) -> None:
        """Determine and report what a run would do with the given names."""
        source_fd = fds[0]
        lease = self._target_of(where.root, where.path)
        if lease is None:
            self._all(where, names, source_fd, -1, context)
        else:
            with lease:
                self._all(where, names, source_fd, lease.fd, context)

    def _all(
        self, where: Where, names: Names, source_fd: int, target_fd: int, context: Context[Item]
    ) -> None:
        specials: list[bytes] = names.specials if self._plan.keep.special else []
        for name in chain(names.files, names.links, specials):
            self._entry(where, name, source_fd, target_fd, context)
        if not self._plan.keep.special:
            for name in names.specials:
                self._skip_special(where, name, source_fd, context)
        self.counters.weight += where.weight * len(names)

    def _entry(
        self, where: Where, name: bytes, source_fd: int, target_fd: int, context: Context[Item]
    ) -> None:
        path = join_path(where.path, name)
        if self._limits is not None:
            self._limits.operations(2)
        try:
            in_place = _in_place(name, target_fd)
            if in_place is not None:
                self._foretold.check(where.root, where.path, target_fd, name)
            if in_place is not None and self._plan.existing.stays:
                status = in_place  # a run does not read the source either
            else:
                status = _readable_status(name, source_fd, follow=self._plan.follow)
        except OSError as error:
            self._fail(where.root, path, error, context)
            return
        same = self._plan.existing.same and _both_links(status, in_place)
        same = same and _same_link(source_fd, name, target_fd, name)
        self._count(where.root, path, status, in_place, context, same=same)

    def _skip_special(
        self, where: Where, name: bytes, source_fd: int, context: Context[Item]
    ) -> None:
        path = join_path(where.path, name)
        try:
            mode = self._skipper.skip(where.root, where.path, name, source_fd, context)
        except OSError as error:
            self._fail(where.root, path, error, context)
        else:
            if self._acting is not None:
                self._acting.actions.skipped(where.root, path, letter_of(mode))
            self._say(where.root, path, "would be skipped", context)

    def single(self, number: int, context: Context[Item]) -> None:
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
            self._fail(number, b"", error, context)
            return
        if root.kind == LINK:
            context.note([Remark(root.source_shown, "is a symbolic link: it is copied as a link")])
        self._count(number, b"", status, in_place, context, same=same)

    def _count(
        self,
        root: int,
        path: bytes,
        status: os.stat_result,
        in_place: os.stat_result | None,
        context: Context[Item],
        *,
        same: bool,
    ) -> None:
        existing = self._plan.existing
        alike = in_place is not None and overwrite.is_same_special(status, in_place)
        if in_place is not None and not alike and _cannot_be_replaced(in_place.st_mode, existing):
            self._fail(root, path, FileExistsError(errno.EEXIST, _IN_THE_WAY), context)
            return
        self.counters.sized += 1
        is_kept = self._is_kept if self._plan.keep.timestamps else None
        stays = same or (alike and existing.decides)
        if in_place is not None and (
            stays or overwrite.file_stays(existing, status, in_place, is_kept)
        ):
            self.counters.skipped += 1
            if self._acting is not None:
                self._acting.actions.skipped(root, path, letter_of(in_place.st_mode))
            self._say(root, path, "would be skipped", context)
            return
        if stat.S_ISLNK(status.st_mode):
            self.counters.links += 1
        elif not stat.S_ISREG(status.st_mode):
            self.counters.special += 1
        else:
            self.counters.files += 1
            self.counters.bytes_found += status.st_size
            self.counters.bytes_done += status.st_size
        if self._acting is not None:
            size = status.st_size if stat.S_ISREG(status.st_mode) else 0
            letter = letter_of(status.st_mode)
            self._acting.actions.done("copy", root, path, letter, size)
        what = "would be copied" if in_place is None else "would replace the existing entry"
        self._say(root, path, what, context)

    def _is_kept(self, source_ns: int, old: os.stat_result) -> bool:
        return self._precision.is_kept(source_ns, old, -1)

    def _say(self, root: int, path: bytes, text: str, context: Context[Item]) -> None:
        if self._plan.say_each:
            context.note([Remark(self._shown(root, path), text)])

    def _fail(
        self,
        root: int,
        path: bytes,
        error: OSError,
        context: Context[Item],
        doing: str | None = None,
    ) -> None:
        self.counters.failed += 1
        self.counters.sized += 1
        self._tell_failure(root, path, error, context, doing or tried(error, "copy"))

    def _tell_failure(
        self, root: int, path: bytes, error: OSError, context: Context[Item], doing: str
    ) -> None:
        entry = path if self._plan.roots[root].kind == DIRECTORY else b""
        shown = self._shown(root, path)
        failure = Failure(shown, doing, *errno_and_reason(error), root, entry, kind_of(error))
        if self._acting is not None:
            self._acting.failed(failure)
        context.note([failure])

    def _shown(self, root: int, path: bytes) -> bytes:
        shown = self._plan.roots[root].source_shown
        return os.path.join(shown, path) if path else shown


DryTask.visitor_type = DryVisitor


def _cannot_be_replaced(mode: int, existing: overwrite.OverwriteOptions) -> bool:
    """Return whether an existing entry can be neither replaced nor left in place."""
    if existing.stays:
        return stat.S_ISDIR(mode)
    return not (stat.S_ISREG(mode) or stat.S_ISLNK(mode))


def _both_links(status: os.stat_result, in_place: os.stat_result | None) -> bool:
    return in_place is not None and stat.S_ISLNK(status.st_mode) and stat.S_ISLNK(in_place.st_mode)


def _same_link(source_fd: int, source: bytes, target_fd: int, name: bytes) -> bool:
    text = os.readlink(source, dir_fd=source_fd)
    return text == os.readlink(name, dir_fd=target_fd)


def _in_place(name: bytes, target_fd: int) -> os.stat_result | None:
    """Return the status of a name in the target, or None if it is free or there is no target."""
    if target_fd < 0:
        return None
    try:
        return os.stat(name, dir_fd=target_fd, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _readable_status(name: bytes, source_fd: int, *, follow: bool) -> os.stat_result:
    """Return the status of a source entry. Raises OSError if it is a file that is not readable."""
    status = os.stat(name, dir_fd=source_fd, follow_symlinks=follow)
    if stat.S_ISREG(status.st_mode):
        may_read = os.access(name, os.R_OK, dir_fd=source_fd, effective_ids=True)
        if not may_read:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return status


_ASKED = 100  # maximum number of names to check in a directory


class CollisionPreview:
    """Predicts the name collisions of a copy; not thread-safe."""

    def __init__(self, plan: CopyPlan, sources: Directories, targets: Directories) -> None:
        self._roots = plan.roots
        self._sources = sources
        self._targets = targets
        self._collisions = Collisions(siblings_of(plan))

    def check(self, root: int, path: bytes, directory_fd: int, name: bytes) -> None:
        """Check a name that exists in the copy of a directory.

        Raises CollisionError if the entry belongs to another source name.
        """
        self._collisions.enter(self._sources, root, path, made=False)
        self._collisions.check(directory_fd, name)

    def check_directory(self, root: int, path: bytes) -> None:
        """Check the name of a directory whose copy exists. Raises CollisionError."""
        above, _, name = path.rpartition(b"/") if path else (HOLDER, b"", self._name(root))
        if name:
            with self._targets.lease(root, above) as holder:
                self.check(root, above, holder.fd, name)

    def check_root(self, root: int) -> None:
        """Raise CollisionError if a root would collide with an earlier root in the target."""
        holder = self._roots[root].target_holder
        before = [
            other.target_name for other in self._roots[:root] if other.target_holder == holder
        ]
        name = self._name(root)
        other = self.later(root, HOLDER, [*before, name]).get(name) if name else None
        if other is not None:
            raise CollisionError(other)

    def later(self, root: int, path: bytes, names: Iterable[bytes]) -> dict[bytes, bytes]:
        """Map each name that would collide to the earlier name with which it would collide."""
        found: dict[bytes, bytes] = {}
        for first, *later_names in group_by_key(names).values():
            for other in later_names:
                for form, case in ((False, True), (True, False), (True, True)):
                    if differ_only_by(first, other, form=form, case=case):
                        if self._folds(root, path, form=form, case=case):
                            found[other] = first
                        break
        return found

    def _name(self, root: int) -> bytes:
        return self._roots[root].target_name

    def _folds(self, root: int, path: bytes, *, form: bool, case: bool) -> bool:
        """Return whether the nearest existing directory ignores the given differences in names."""
        while True:
            with suppress(OSError), self._targets.lease(root, path) as lease:
                asked = [kind for kind, is_queried in ((True, form), (False, case)) if is_queried]
                return all(_shown(lease.fd, form=kind) for kind in asked)
            if path == HOLDER:
                return False
            path = path.rpartition(b"/")[0] if path else HOLDER


def _shown(directory_fd: int, *, form: bool) -> bool:
    """Return whether names in a directory or its parents show that the file system folds names."""
    for fd in _at_and_above(directory_fd):
        with suppress(OSError):
            for name in islice(list_names(fd), _ASKED):
                with suppress(OSError):  # removed in the meantime
                    found = folds_name(fd, name, form=form)
                    if found is not None:
                        return found
    return False


def _at_and_above(directory_fd: int) -> Iterator[int]:
    fd = os.open(b".", OPEN_DIRECTORY_FOLLOW, dir_fd=directory_fd)
    try:
        while True:
            yield fd
            status = os.fstat(fd)
            above = os.open(b"..", OPEN_DIRECTORY_FOLLOW, dir_fd=fd)
            os.close(fd)
            fd = above
            now = os.fstat(fd)
            if now.st_dev != status.st_dev or now.st_ino == status.st_ino:
                return
    except OSError:
        return
    finally:
        os.close(fd)
