"""Entries whose names are taken: which ones stay, and how files get their names.

Without an option what exists is replaced, at the moment its copy is complete.
`-n` lets everything stay, `-u` what is not older than its source, `--skip-same`
files of the same size and modification time and links of the same text. An
entry that stays is *skipped*: it is accounted for, and never touched.

A target may keep times less exactly than the source: a time that is the
source's, cut to what the target keeps, is the same for `--skip-same`, and not
older for `-u`, as with cp.

In place of the options a `Keeper` may decide: who brings a tree up to date that is there.
"""

# Annotations are evaluated here, once: otherwise msgspec compiles each of them in every rank.
import errno
import os
import stat
from collections.abc import Callable
from typing import Protocol

import msgspec

SPECIAL_KINDS = frozenset((stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFCHR, stat.S_IFBLK))
"""The types of FIFOs, sockets and devices."""


class Existing(msgspec.Struct, frozen=True, array_like=True):
    """What to do where a name is taken, and how files are written.

    `stays` is -n, `newer` -u, `same` --skip-same, `force` -f, `in_place`
    --inplace and `sync` --fsync. Where `stays` holds, `newer`, `same` and
    `force` have nothing to decide. With `kept` a `Keeper` decides, which may be `near` to content.
    With `whole` nothing has its name before it is complete.
    """

    stays: bool = False
    newer: bool = False
    same: bool = False
    force: bool = False
    in_place: bool = False
    sync: bool = False
    kept: bool = False
    near: bool = False
    whole: bool = False

    @property
    def decides(self) -> bool:
        """Whether something that exists may stay."""
        return self.stays or self.newer or self.same or self.kept

    @property
    def beside(self) -> bool:
        """Whether new files, too, are written under another name first.

        A file that an interruption has cut short would stay for ever.
        """
        return (self.stays or self.newer or self.whole) and not self.in_place

    @property
    def plain(self) -> bool:
        """Whether a file whose name is free is simply written."""
        return not (self.beside or self.sync or self.near)


class Keeper(Protocol):
    """Decides about entries that exist, of one directory at a time, for one thread.

    What it keeps it may have brought up to date; all else is replaced as it says.
    """

    def enter(self, root: int, path: bytes) -> None:
        """What follows is in this directory of the target."""

    def keeps(
        self, source: os.stat_result, old: os.stat_result, names: tuple[int, bytes, int, bytes]
    ) -> bool:
        """Whether `old` is left; `names` are both directories' and the names in them. OSError."""

    def leaves(self, source: os.stat_result, old: os.stat_result) -> bool:
        """Return whether an option leaves `old`, which need not be a copy of the source."""

    def may_replace(self, old: os.stat_result) -> bool:
        """Whether what is neither a regular file nor a link may be replaced."""

    def replace(self, written: bytes, name: bytes, directory_fd: int) -> None:
        """Give what is complete under another name its own, whatever has that. OSError."""

    def check(self, name: bytes, directory_fd: int, expected: bytes) -> None:
        """OSError if a name is not what it is to be, which only the keeper knows how to read."""

    def has_content(self, name: bytes, fd: int, source: os.stat_result) -> bool:
        """Whether the content of an open file of the source is at hand elsewhere."""

    def gives_content(
        self,
        name: bytes,
        source: tuple[int, os.stat_result],
        out: int,
        copy: Callable[[int, int, os.stat_result], None],
    ) -> bool:
        """Give an empty copy its content from elsewhere, perhaps by `copy`; whether it could."""

    def close(self) -> None:
        """The job has ended: let go of what is open."""


class Taken(FileExistsError):
    """The name was taken while the copy was made, and what has it is to stay."""

    def __init__(self) -> None:
        super().__init__(errno.EEXIST, os.strerror(errno.EEXIST))


def file_stays(
    existing: Existing,
    source: os.stat_result,
    old: os.stat_result,
    is_kept: Callable[[int, os.stat_result], bool] | None,
) -> bool:
    """Whether the file or link `old` is left where a copy of `source` would go.

    `is_kept` tells whether its time is what the target makes of a source's, see `Precision`; None
    where copies do not get the times of their sources.
    """
    if existing.stays:
        return True
    if existing.newer:
        if old.st_mtime_ns >= source.st_mtime_ns:
            return True
        if is_kept is not None and is_kept(source.st_mtime_ns, old):
            return True
    return (
        existing.same
        and stat.S_ISREG(source.st_mode)
        and stat.S_ISREG(old.st_mode)
        and source.st_size == old.st_size
        and is_kept is not None
        and is_kept(source.st_mtime_ns, old)
    )


def is_same_special(a: os.stat_result, b: os.stat_result) -> bool:
    """Whether two files are both the same FIFO, socket or device but for their names."""
    kind = stat.S_IFMT(a.st_mode)
    return kind in SPECIAL_KINDS and (kind, a.st_rdev) == (stat.S_IFMT(b.st_mode), b.st_rdev)


def is_copied_special(source: os.stat_result, old: os.stat_result) -> bool:
    """Whether one seems to be the other's copy: any two pipes are the same, and serve others."""

    def known_by(status: os.stat_result) -> tuple[int, ...]:
        return status.st_mode, status.st_uid, status.st_gid, status.st_mtime_ns

    return is_same_special(source, old) and known_by(source) == known_by(old)
