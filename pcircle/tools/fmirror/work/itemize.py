"""The lines of `--itemize`, in the format of rsync, for both real and dry runs.

Entries are compared before they are changed. The line of a hard-linked entry depends on all names
of its inode, so rank 0 collects and sorts these names. The first name that exists in the target
keeps its inode there, and the other names become links to it. If none exists, all names are new.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING

import msgspec

from pcircle.core.encoding import show
from pcircle.fs.sorting import Sorter
from pcircle.jobs.action_log import ActionLines
from pcircle.jobs.plan_file import entry
from pcircle.ops.compare import fields
from pcircle.ops.compare.details import DetailComparer
from pcircle.ops.copy.tree.counters import CopyCounters
from pcircle.runtime import Context
from pcircle.tools.fmirror import plan_file
from pcircle.tools.fmirror.plan import MirrorPlan
from pcircle.tools.fmirror.work.overwrite_policy import MirrorOverwritePolicy

if TYPE_CHECKING:
    from pcircle.ops.copy.tree.items import Item

_COLUMNS = 11
_TIME_COLUMN = 4
_TOGETHER = 256
_INODE_DIGITS = 32
_NEW = fields.KIND | fields.CONTENT

Status = os.stat_result


class LinkedRecords(msgspec.Struct, frozen=True, array_like=True, tag="h"):
    """Records of hard-linked names of the source, which `LinkedNameGroups` collects."""

    records: tuple[bytes, ...]


class LinkedName(msgspec.Struct, frozen=True):
    """A name of a hard-linked inode of the source.

    `inode` is the inode number of the target's entry, or 0 if that is missing or of another kind.
    `alone` means that the target's inode has no other name, and `near` that a reference tree has
    the content. `marks` are the marks of both sides for a plan.
    """

    path: bytes
    mode: int
    size: int
    different: int
    inode: int
    alone: int
    near: int
    marks: bytes


class LinkedNameChange(msgspec.Struct, frozen=True):
    """The change to a hard-linked name; `line` is empty if the name does not change."""

    name: LinkedName
    line: bytes
    linked: bool  # to another name of the inode

    @property
    def touches(self) -> bool:
        """Return whether only the attributes of the entry change."""
        return not (self.linked or self.name.different & _NEW) and bool(self.name.alone)

    @property
    def size_bytes(self) -> int:
        """Return the number of bytes to copy."""
        return self.name.size if stat.S_ISREG(self.name.mode) and not self.linked else 0

    @property
    def planned(self) -> bytes:
        """Return the line for this name in a plan."""
        word = plan_file.LINK if self.linked else plan_file.TOUCH
        if not self.line:
            word = plan_file.SAME
        elif self.name.different & _NEW and not self.linked:
            word = plan_file.COPY
        return entry(0, self.name.path, b"%b;%b" % (self.name.marks, word))


def line_of(
    different: int,
    mode: int,
    path: bytes,
    *,
    look: str = "",
    keeps_times: bool = True,
    linked: bool = False,
) -> bytes:
    """Return the line of an entry.

    `different` contains `KIND` for a new entry, and `CONTENT` for one that is replaced. Contents
    are known to differ only if `look` is "content". If times are not preserved, a replaced entry
    gets the current time, which rsync shows as `T`.
    """
    known = different if look == "content" else different & ~fields.CONTENT
    shown = fields.itemize(known, mode)[:_COLUMNS]
    if stat.S_ISREG(mode):
        shown = (">" if different & _NEW else ".") + shown[1:]
    if not (keeps_times or different & fields.KIND):
        shown = shown[:_TIME_COLUMN] + ("." if shown[0] == "." else "T") + shown[_TIME_COLUMN + 1 :]
    if linked:
        shown = "h" + shown[1:]
    slash = "/" if stat.S_ISDIR(mode) else ""
    return f"{shown} {show(path or b'.')}{slash}\n".encode()


class Itemizer:
    """Compares entries and itemizes their changes.

    Each thread has its own instance.
    """

    def __init__(self, plan: MirrorPlan, keeping: MirrorOverwritePolicy) -> None:
        self._plan = plan
        self._policy = keeping
        compared_fields = keeping.details.fields | fields.FLAGS * plan.keep.flags
        self._details = DetailComparer(compared_fields, lists=keeping.details.lists, lenient=True)
        self._said: list[bytes] = []
        self._linked: list[bytes] = []

    def entry(
        self, root: int, path: bytes, name: bytes, fds: tuple[int, int]
    ) -> tuple[Status, Status | None, int]:
        """Return the statuses of the source and target entries, and their differences.

        Raise OSError if they cannot be compared.
        """
        source = os.stat(name, dir_fd=fds[0], follow_symlinks=False)
        try:
            if fds[1] < 0:
                raise FileNotFoundError
            old = os.stat(name, dir_fd=fds[1], follow_symlinks=False)
        except FileNotFoundError:
            return source, None, _NEW
        self._policy.enter(root, path)
        return source, old, self._policy.differences(source, old, (fds[0], name, fds[1], name))

    def is_linked(self, source: Status) -> bool:
        """Return whether an entry has other names that must be hard-linked in the target."""
        return self._plan.keep.links and source.st_nlink > 1 and not stat.S_ISDIR(source.st_mode)

    def is_left(self, source: Status, old: Status | None) -> bool:
        """Return whether an option keeps the target's entry unchanged, so that it is not linked."""
        return old is not None and self._policy.leaves(source, old)

    def say(
        self,
        path: bytes,
        source: Status,
        old: Status | None,
        different: int,
        context: Context[Item],
        *,
        marks: bytes = b"-",
        near: bool = False,
    ) -> None:
        """Report an entry if it changes.

        `marks` are its marks for a plan, and `near` means that a reference tree has its content.
        """
        if self.is_linked(source):
            if self.is_left(source, old):
                return
            number = source.st_dev if self._plan.one_node else 0
            self._linked.append(_record(number, path, (source, old), different, near, marks))
        elif different and self._plan.itemize:
            look, keeps_times = self._plan.upkeep.look, self._plan.keep.timestamps
            line = line_of(different, source.st_mode, path, look=look, keeps_times=keeps_times)
            self._said.append(line)
        if len(self._said) + len(self._linked) >= _TOGETHER:
            self.tell(context)

    def directory(
        self, path: bytes, source: tuple[int, Status], target_fd: int | None, context: Context[Item]
    ) -> int:
        """Report a directory if it changes, and return its differences.

        `target_fd` is None if the target lacks the directory. Raise OSError if its attributes
        cannot be read.
        """
        fd, status = source
        different = fields.KIND
        if target_fd is not None:
            old = os.fstat(target_fd)
            different = self._policy.status_differences(status, old)
            different |= self._details.compare_directories((fd, target_fd), status, old)
        self.say(path, status, None, different, context)
        return different

    def tell(self, context: Context[Item]) -> None:
        """Send all reports to rank 0."""
        if self._said:
            said, self._said = self._said, []
            context.note([ActionLines(b"", said=b"".join(said))])
        if self._linked:
            linked, self._linked = self._linked, []
            context.note([LinkedRecords(tuple(linked))])


def _record(
    number: int,
    path: bytes,
    sides: tuple[Status, Status | None],
    different: int,
    near: bool,
    marks: bytes,
) -> bytes:
    """Return the record of a name.

    Sorting groups the records by inode. Within a group, names in a directory precede names in its
    subdirectories.
    """
    source, old = sides
    *above, name = path.split(b"/")
    place = b"".join(b"\2%b\0" % part for part in above)
    inode = 0 if old is None or different & fields.KIND else old.st_ino
    alone = old is not None and old.st_nlink == 1
    numbers = b"%d %d %d" % (source.st_mode, source.st_size, different)
    numbers += b" %d %d %d" % (inode, alone, near)
    return b"%016x%016x%b\1%b\0\0%b %b" % (number, source.st_ino, place, name, numbers, marks)


def count(counters: CopyCounters, mode: int, size: int) -> None:
    """Count an entry that is not a directory, and its bytes."""
    counters.count(mode)
    counters.bytes_found += size
    counters.bytes_done += size


class LinkedNameGroups:
    """The hard-linked names of a run, grouped by inode on rank 0."""

    def __init__(self) -> None:
        self._sorter = Sorter()

    def add(self, linked: LinkedRecords) -> None:
        """Add the names of a notice."""
        for record in linked.records:
            self._sorter.add(record)

    def changes(self, look: str, *, keeps_times: bool) -> Iterator[LinkedNameChange]:
        """Yield a change for every name of each inode that has at least one changed name.

        This method can be called only once.
        """
        for _, group in groupby(self._sorter.sorted(), lambda record: record[:_INODE_DIGITS]):
            names = [_read(record) for record in group]
            first = next((name for name in names if name.inode), names[-1])
            changed = [name for name in names if name.different or name.inode != first.inode]
            for name in names if changed else ():
                linked, line = name is not first, b""
                if name in changed:
                    line = line_of(
                        name.different,
                        name.mode,
                        name.path,
                        look=look,
                        keeps_times=keeps_times,
                        linked=linked,
                    )
                yield LinkedNameChange(name, line, linked=linked)
        self._sorter.close()


def _read(record: bytes) -> LinkedName:
    key, _, text = record[_INODE_DIGITS:].rpartition(b"\0\0")
    path = b"/".join(part[1:] for part in key.split(b"\0"))
    *numbers, marks = text.split(b" ")
    mode, size, different, inode, alone, near = map(int, numbers)
    return LinkedName(path, mode, size, different, inode, alone, near, marks)
