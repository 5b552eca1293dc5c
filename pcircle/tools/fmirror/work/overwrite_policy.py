"""The overwrite policy of a mirror: existing entries stay, are updated in place, or are replaced.

If the content of an entry equals the source's, only its changed attributes are set: owner, extended
attributes, access control lists, mode and times. They are set through a descriptor, and only if the
file has no other name, because another name may belong to a snapshot. All other entries are
replaced by a rename. If one of the two entries is a directory, a rename cannot replace the old one.
Then the two names are exchanged, and the old entry is removed afterwards. The name is missing for a
moment only if the file system does not support exchanges.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING

from pcircle.fs.attributes.exposure import withdraw
from pcircle.fs.attributes.metadata import settle_file, settle_link
from pcircle.fs.attributes.owners import giver_of
from pcircle.fs.attributes.xattrs import ExtendedAttributes, drop_attributes, give_attributes
from pcircle.fs.data import ReadEffects
from pcircle.fs.directories import join_path
from pcircle.fs.entry_errors import Changed, error_context
from pcircle.fs.file_system import size_is_nominal
from pcircle.fs.naming import NO_SUCH_RENAME, exchange
from pcircle.fs.stats import Table
from pcircle.fs.write_access import Admissions, WriteAccess
from pcircle.ops.compare import fields
from pcircle.ops.compare.details import DetailComparer
from pcircle.ops.compare.statuses import Status, StatusComparer, open_files
from pcircle.ops.copy.entry.attributes import AttributeCopier, pinned_path
from pcircle.ops.copy.tree.counters import CopyCounters
from pcircle.tools.fmirror import plan_file
from pcircle.tools.fmirror.plan import MirrorPlan, compared

if TYPE_CHECKING:
    from pcircle.ops.compare.content import ContentComparer
    from pcircle.tools.fmirror.work.backup import Backup
    from pcircle.tools.fmirror.work.reference_trees import CopyDest

_NO_RENAME = (errno.EISDIR, errno.ENOTDIR, errno.ENOTEMPTY, errno.EEXIST)
_CONTENT = fields.KIND | fields.SIZE | fields.TARGET | fields.RDEV
_NO_ATTRIBUTES = ExtendedAttributes([])

Sides = tuple[int, bytes, int, bytes]
"""The directory and name of the source entry, and of the target entry."""


def read_from_ns(plan: MirrorPlan) -> int | None:
    """Return the change time from which source files are read even if their times are equal.

    Return None if `--ctime` is not given.
    """
    if not plan.upkeep.ctime:
        return None
    return 0 if plan.quiet_ns is None else plan.quiet_ns[0]


class MirrorOverwritePolicy:
    """The overwrite policy of a mirror.

    Each thread has its own instance. `aside` lists replaced directories that must be removed, with
    their present and former paths.
    """

    def __init__(self, plan: MirrorPlan, counters: CopyCounters, extras: AttributeCopier) -> None:
        self._keep, self._upkeep, self._deleting = plan.keep, plan.upkeep, plan.deleting
        self._counters = counters
        self._extras = extras
        compared_fields = compared(plan.keep, privileged=not os.geteuid())
        # If times are evidence of equal content, compare them even if they are not preserved.
        by_time = fields.MTIME * (plan.upkeep.look == "time")
        self.comparer: StatusComparer = StatusComparer(
            compared_fields | by_time, plan.upkeep.window_ns
        )
        self._of_content = by_time if not plan.keep.timestamps else fields.NOTHING
        given = plan.keep.given
        lists = None if given is None else giver_of(given).list
        self.details: DetailComparer = DetailComparer(compared_fields, lists=lists, lenient=True)
        self.effects: ReadEffects = ReadEffects(counters, noatime=plan.noatime)
        self._openers = self.effects.open, self.effects.open
        self._read_from_ns = read_from_ns(plan)
        self.doubts = False  # entries with old change times may have moved
        self._groups = None if not os.geteuid() else {os.getegid(), *os.getgroups()}
        backup = plan.deleting.backup
        self._backup: Backup | None = None
        if backup is not None:
            from pcircle.tools.fmirror.work.backup import Backup  # few runs make a backup

            self._backup = Backup(backup)
        self._access = WriteAccess(owner=True, flags=plan.keep.flags)
        self._copy_dest: CopyDest | None = None
        if plan.copy_dest or plan.reflink_dest:
            # Few runs have the option.
            from pcircle.tools.fmirror.work.reference_trees import CopyDest

            self._copy_dest = CopyDest(plan, self._is_same)
        self._compared: tuple[tuple[tuple[int, ...], ...], bool] = (), False
        self._root, self._path = 0, b""
        self.aside: list[tuple[int, bytes, bytes]] = []

    @cached_property
    def _contents(self) -> ContentComparer:
        from pcircle.ops.compare.content import ContentComparer  # few runs read contents

        return ContentComparer(openers=self._openers)

    def enter(self, root: int, path: bytes) -> None:
        self._root, self._path = self.effects.place = root, path

    def close(self) -> None:
        """Release the directories of the backup."""
        if self._backup is not None:
            self._backup.close()
        if self._copy_dest is not None:
            self._copy_dest.close()

    # ---- content from elsewhere ------------------------------------------------

    def is_equal(
        self, root: int, path: bytes, entries: tuple[os.stat_result, os.stat_result], names: Sides
    ) -> bool:
        """Return whether an entry of a reference tree equals the source's entry at this place.

        Raise OSError if the entries cannot be compared.
        """
        self.enter(root, path)
        return not self.differences(*entries, names)

    def has_content(self, name: bytes, fd: int, source: os.stat_result) -> bool:
        return self._copy_dest is not None and self._copy_dest.has(
            (self._root, self._path), name, fd, source
        )

    def gives_content(
        self,
        name: bytes,
        source: tuple[int, os.stat_result],
        out: int,
        copy: Callable[[int, int, os.stat_result], None],
    ) -> bool:
        if self._copy_dest is None:
            return False
        where = self._root, self._path
        given = self._copy_dest.fill(where, name, source, out, copy)
        self._counters.nearby += given
        return given

    def _is_same(
        self, fds: tuple[int, int], statuses: tuple[os.stat_result, os.stat_result]
    ) -> bool:
        """Return whether two open files count as having the same content."""
        source, other = statuses
        different = self.comparer.differences(source, other)
        if source.st_size != other.st_size or self._upkeep.look == "none":
            return False
        if self._upkeep.look == "content" or self._is_doubted(source):
            return self._contents.same(fds, 0, source.st_size)
        return self._upkeep.look == "size" or not different & fields.MTIME

    # ---- existing entries ------------------------------------------------------

    def keeps(self, source: os.stat_result, old: os.stat_result, names: Sides) -> bool:
        different = self.differences(source, old, names)
        if not different:
            return True
        if different & fields.CONTENT or old.st_nlink > 1:
            return False
        with error_context("set the attributes of the copy of"):
            touch = partial(self._touch, source, old, names)
            self._access.change(touch, names[3], names[2])
        self._counters.touched += 1
        return True

    def differences(self, source: os.stat_result, old: os.stat_result, names: Sides) -> int:
        """Return the fields to change in an existing entry.

        If they include `CONTENT`, the entry must be replaced. Raise OSError if the entries cannot
        be compared.
        """
        if self.leaves(source, old):
            return fields.NOTHING
        different = self.status_differences(source, old)
        if stat.S_ISREG(source.st_mode) and size_is_nominal(names[0], source):
            different &= ~fields.SIZE
        if different & _CONTENT or not self._is_content(source, different, names):
            return different | fields.CONTENT
        with error_context("compare"):
            fds, name = (names[0], names[2]), names[1]
            different |= self.details.compare_names(name, fds, source, old)
        return different | fields.CONTENT * bool(different & _CONTENT)

    def leaves(self, source: os.stat_result, old: os.stat_result) -> bool:
        """Return whether an option keeps `old` unchanged even if it differs from the source.

        A directory on both sides is never kept unchanged, because its entries are mirrored.
        """
        upkeep, kinds = self._upkeep, (stat.S_IFMT(source.st_mode), stat.S_IFMT(old.st_mode))
        if upkeep.stays:
            return kinds != (stat.S_IFDIR, stat.S_IFDIR)
        newer = upkeep.newer and old.st_mtime_ns > source.st_mtime_ns
        return newer and kinds == (stat.S_IFREG, stat.S_IFREG)

    def refuse_left(self, source: os.stat_result, old: os.stat_result) -> None:
        """Raise OSError if an option keeps the entry that a directory would replace."""
        if self.leaves(source, old):
            with error_context("create the copy of"):
                raise FileExistsError(
                    errno.EEXIST, "an entry of a different kind has the same name and is kept"
                )

    def status_differences(self, source: Status, old: Status) -> int:
        """Return the fields in which two statuses differ and that this user can change."""
        source = self._keep.status(source)
        different = self.comparer.differences(source, old)
        if self._groups is not None and source.st_gid not in self._groups:
            different &= ~fields.GROUP
        if not stat.S_ISREG(source.st_mode):
            different &= ~self._of_content
        return different

    def blocks(self, source: Table, target: Table, count: int) -> dict[int, int]:
        """Return the differences of two blocks by place, in the form of `StatusComparer`."""
        if self._keep.given is None:
            return self.comparer.compare_blocks(source, target, count)
        return self._by_row(source, target, count)

    def directories(self, source: Table, target: Table, count: int) -> dict[int, int]:
        """Return, by place, the differences of directories that this user can change."""
        if self._keep.given is None and not self.comparer.compare_directories(
            source, target, count
        ):
            return {}
        return self._by_row(source, target, count)

    def _by_row(self, source: Table, target: Table, count: int) -> dict[int, int]:
        rows = enumerate(zip(source.rows(count), target.rows(count), strict=True))
        found = ((place, self.status_differences(a, b)) for place, (a, b) in rows)
        return {place: different for place, different in found if different}

    def _is_content(self, source: os.stat_result, different: int, names: Sides) -> bool:
        """Return whether a file of the same size counts as having the same content."""
        if not stat.S_ISREG(source.st_mode):
            return True
        look = self._upkeep.look
        if look != "none" and size_is_nominal(names[0], source):
            with error_context("compare"):
                return self._contents.same_to_end(names[1], (names[0], names[2]), names[3])[0]
        doubted = self._is_doubted(source) and not different & fields.MTIME
        if look == "content" or doubted:
            with (
                error_context("compare"),
                open_files(names[1], (names[0], names[2]), None, self._openers) as (fds, statuses),
            ):
                stamps = tuple((s.st_dev, s.st_ino, s.st_size, s.st_ctime_ns) for s in statuses)
                if stamps != self._compared[0]:  # the itemizer may have just compared this file
                    same = statuses[0].st_size == statuses[1].st_size
                    same = same and self._contents.same(fds, 0, statuses[0].st_size)
                    self._compared = stamps, same
                return self._compared[1]
        if look == "none":
            return False
        return look == "size" or not different & fields.MTIME

    def _is_doubted(self, source: os.stat_result) -> bool:
        from_ns = self._read_from_ns
        return from_ns is not None and (self.doubts or source.st_ctime_ns >= from_ns)

    def _touch(self, source: os.stat_result, old: os.stat_result, names: Sides) -> None:
        source_fd, source_name, target_fd, name = names
        kind = stat.S_IFMT(old.st_mode)
        extras, keep = self._extras, self._keep
        with pinned_path(target_fd, name, kind) as path:
            now = os.stat(path)
            if (now.st_dev, now.st_ino) != (old.st_dev, old.st_ino):
                raise Changed("its copy was replaced during the comparison")
            if kind == stat.S_IFLNK:
                held = extras.read_link(source_fd, source_name)
                if keep.xattr:
                    drop_attributes(path, held or _NO_ATTRIBUTES)
                if held is not None:
                    extras.account(give_attributes(path, held), target_fd)
                settle_link(path, source, keep)
                return
            held = extras.read_name(source_fd, source_name, alone=True) if extras.any else None
            if held is not None and keep.xattr:
                drop_attributes(path, held)
            withdraw(path, source, keep, held)
            refused = settle_file(path, source, keep, held, made=old)
            extras.account(refused, target_fd)

    # ---- replaced entries ------------------------------------------------------

    def may_replace(self, old: os.stat_result) -> bool:
        """Return whether an entry may be replaced.

        A directory may be replaced only if extraneous entries are removed.
        """
        return self._deleting.enabled or not stat.S_ISDIR(old.st_mode)

    def check(self, name: bytes, directory_fd: int, expected: bytes) -> None:
        """Raise OSError unless an entry that is about to be replaced is as `expected` by the plan.

        `expected` is an earlier result of `plan_file.mark_of_replaced`.
        """
        with error_context(plan_file.DOING):
            if plan_file.mark_of_replaced(name, directory_fd) != expected:
                raise Changed(plan_file.OTHER)

    def replace(self, written: bytes, name: bytes, directory_fd: int) -> None:
        """Replace an entry, and move the old one to the backup if there is one.

        If the old entry is immutable, or a directory without write permission for its owner, this
        protection is removed first.
        """
        with Admissions(self._access) as admissions:
            # An immutable entry cannot be linked or moved, so the backup would have to copy it.
            if self._backup is not None and self._access.flags:
                with suppress(FileNotFoundError):
                    admissions.admit_entry(name, directory_fd)
            try:
                self._replace(written, name, directory_fd)
            except PermissionError:
                if not admissions.admit_entry(name, directory_fd):
                    raise
                self._replace(written, name, directory_fd)

    def _replace(self, written: bytes, name: bytes, directory_fd: int) -> None:
        path = join_path(self._path, name)
        backup = self._backup
        if backup is not None and not backup.hold(path, directory_fd):
            if backup.swap(path, written, directory_fd):
                return
            if not backup.copy(path, written, directory_fd):
                backup.make_way(path, written, directory_fd)
                return
        try:
            os.rename(written, name, src_dir_fd=directory_fd, dst_dir_fd=directory_fd)
            return
        except OSError as error:
            if error.errno not in _NO_RENAME:
                raise
        if not _exchanged(written, name, directory_fd):
            return
        if stat.S_ISDIR(os.stat(written, dir_fd=directory_fd, follow_symlinks=False).st_mode):
            self.aside.append((self._root, join_path(self._path, written), path))
        else:
            os.unlink(written, dir_fd=directory_fd)


def _exchanged(written: bytes, name: bytes, directory_fd: int) -> bool:
    """Exchange the new entry and the old one, or return False if the old one has vanished."""
    try:
        exchange(written, name, directory_fd)
        return True
    except FileNotFoundError:
        os.rename(written, name, src_dir_fd=directory_fd, dst_dir_fd=directory_fd)
        return False
    except OSError as error:
        if error.errno not in NO_SUCH_RENAME:
            raise
    beside = written + b"-old"
    os.rename(name, beside, src_dir_fd=directory_fd, dst_dir_fd=directory_fd)
    try:
        os.rename(written, name, src_dir_fd=directory_fd, dst_dir_fd=directory_fd)
    except OSError:
        os.rename(beside, name, src_dir_fd=directory_fd, dst_dir_fd=directory_fd)
        raise
    os.rename(beside, written, src_dir_fd=directory_fd, dst_dir_fd=directory_fd)
    return True
