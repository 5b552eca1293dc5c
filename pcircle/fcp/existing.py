"""Entries whose names are taken: which ones stay, and how files get their names.

Without an option what exists is replaced, at the moment its copy is complete.
`-n` lets everything stay, `-u` what is not older than its source, `--skip-same`
files of the same size and modification time and links of the same text. An
entry that stays is *skipped*: it is accounted for, and never touched.

A target may keep times less exactly than the source. `-u` reads from the times
of the file that is there how fine they can be, as cp does; a time that is the
source's, cut to that, is not older. `--skip-same` takes a time for the same
that is the source's, cut to what some file system keeps.
"""

from __future__ import annotations

import errno
import os
import stat

import msgspec

_MICROSECOND, _SECOND = 10**3, 10**9
_UNITS_NS = (2 * _SECOND, _SECOND, 10**6, _MICROSECOND, 100)
_CUT_TO_NS = (1, _MICROSECOND, _SECOND, 2 * _SECOND)


class Existing(msgspec.Struct, frozen=True, array_like=True):
    """What to do where a name is taken, and how files are written.

    `stays` is -n, `newer` -u, `same` --skip-same, `force` -f, `in_place`
    --inplace and `sync` --fsync. Where `stays` holds, `newer`, `same` and
    `force` have nothing to decide.
    """

    stays: bool = False
    newer: bool = False
    same: bool = False
    force: bool = False
    in_place: bool = False
    sync: bool = False

    @property
    def decides(self) -> bool:
        """Whether something that exists may stay."""
        return self.stays or self.newer or self.same

    @property
    def beside(self) -> bool:
        """Whether new files, too, are written under another name first.

        A file that an interruption has cut short would stay for ever.
        """
        return (self.stays or self.newer) and not self.in_place

    @property
    def plain(self) -> bool:
        """Whether a file whose name is free is simply written."""
        return not (self.beside or self.sync)


class Taken(FileExistsError):
    """The name was taken while the copy was made, and what has it is to stay."""

    def __init__(self) -> None:
        super().__init__(errno.EEXIST, os.strerror(errno.EEXIST))


def file_stays(
    existing: Existing, source: os.stat_result, old: os.stat_result, *, times_kept: bool
) -> bool:
    """Whether the file or link `old` is left where a copy of `source` would go."""
    if existing.stays:
        return True
    if existing.newer and not _is_older(source, old, times_kept=times_kept):
        return True
    return (
        existing.same
        and stat.S_ISREG(source.st_mode)
        and stat.S_ISREG(old.st_mode)
        and source.st_size == old.st_size
        and old.st_mtime_ns in [source.st_mtime_ns // cut * cut for cut in _CUT_TO_NS]
    )


def _is_older(source: os.stat_result, old: os.stat_result, *, times_kept: bool) -> bool:
    modified_ns = source.st_mtime_ns
    if times_kept:
        unit_ns = _unit_ns(old)
        modified_ns = modified_ns // unit_ns * unit_ns
    return old.st_mtime_ns < modified_ns


def _unit_ns(status: os.stat_result) -> int:
    """What the file system counts times in, as far as the times of one file show it."""
    times = (status.st_atime_ns, status.st_mtime_ns, status.st_ctime_ns)
    for unit_ns in _UNITS_NS:
        if not any(time_ns % unit_ns for time_ns in times):
            return unit_ns
    return 1
