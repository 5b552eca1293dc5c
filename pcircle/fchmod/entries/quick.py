"""Modes or owners of many files of a directory, looked up and changed a block at a time.

`os.stat` and a call for each name take as long in Python as in the kernel. As in `fs/stats.py`,
which looks the names up, the calls are made by an iterator over their arguments. It is for plain
files alone, of which nothing else is to be known: the others, and those that fail, are left to who
looks at one entry after the other.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from itertools import repeat, starmap
from typing import Any

from pcircle.fchmod.entries.calls import EMPTY_PATH, FCHMODAT2, ITSELF, NO_FOLLOW, chown_calls, many
from pcircle.fs.scan import Listings, few_files
from pcircle.fs.stats import CAPACITY, Failed, Stats
from pcircle.fs.trouble import Changed

_NO_SUBDIRECTORY = 2  # links of a directory, where these count subdirectories

__all__ = ["CAPACITY", "Quick"]


class Quick:
    """Changes files, for one thread; `mode_of` finds the new bits of a whole mode.

    With an `owner` and group, of which one may be None, they get these, and their modes are what
    the kernel leaves of them.
    """

    def __init__(
        self, mode_of: Callable[[int], int], owner: tuple[int | None, int | None] | None = None
    ) -> None:
        self._mode_of = mode_of
        self._owner = owner
        self._stats = Stats(threads=1)
        self._systems = Listings()
        self._keeping, self._giving = many()
        self.is_able = self._giving is not None or owner is not None
        self._chown = chown_calls()
        self._looks_first = False

    def enter(self, device: int) -> None:
        """What comes next is on the file system of this number."""
        self._stats.waits = self._systems.of(device).waits

    def names(self, directory_fd: int, status: os.stat_result, most: int) -> list[bytes] | None:
        """All names in a directory, if it seems to hold at `most` so many, and files alone."""
        if status.st_nlink > _NO_SUBDIRECTORY:
            return None
        found = self._systems.whole(directory_fd, status, self._systems.of(status.st_dev))
        if found is None:
            return few_files(directory_fd, most)
        return found if len(found) <= most else None

    def look(self, directory_fd: int, names: Sequence[bytes]) -> bool:
        """Look up at most `CAPACITY` names; whether all are files that have one name each."""
        try:
            self._stats.look(directory_fd, names)
        except Failed:
            return False
        count = len(names)
        if not self._stats.has_single_names(0, count):
            return False
        return self._stats.are_files(count) or all(
            map(stat.S_ISREG, self._stats.column("mode", 0, count))
        )

    def change(self, directory_fd: int, names: Sequence[bytes]) -> tuple[int, list[bytes]]:
        """Change those that were looked up: how many, and those that could not be changed."""
        count = len(names)
        if self._owner is not None:
            return self._give(directory_fd, names, *self._owner)
        if count and self._stats.are_files(count):
            return self._set(directory_fd, names, self._stats.column("mode", 0, 1)[0])
        by_mode: dict[int, list[bytes]] = {}
        for name, mode in zip(names, self._stats.column("mode", 0, count), strict=True):
            by_mode.setdefault(mode, []).append(name)
        changed, failed = 0, []
        for mode, some in by_mode.items():
            number, rest = self._set(directory_fd, some, mode)
            changed += number
            failed += rest
        return changed, failed

    def change_held(self, directory_fd: int, names: Sequence[bytes]) -> tuple[int, list[bytes]]:
        """The same of modes, of names that others may exchange, and that were not looked up.

        What is opened decides, and is changed. That takes four calls, so where few files have
        changed names are looked up first. Those that are no plain files are not changed, either.
        """
        if not names:
            return 0, []
        meant = names
        if self._looks_first:
            if not self.look(directory_fd, names):
                return 0, list(names)
            modes = self._stats.column("mode", 0, len(names))
            meant = [
                name
                for name, mode in zip(names, modes, strict=True)
                if self._mode_of(mode) != mode & 0o7777
            ]
        changed, failed = 0, []
        for name in meant:
            try:
                changed += self._change_opened(directory_fd, name)
            except OSError:
                failed.append(name)
        self._looks_first = 2 * changed < len(names)
        return changed, failed

    def _change_opened(self, directory_fd: int, name: bytes) -> bool:
        """Change one file, whatever has its name; whether there was something to. OSError."""
        fd = os.open(name, ITSELF, dir_fd=directory_fd)
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
                raise Changed("it is no plain file")
            new = self._mode_of(status.st_mode)
            if new == status.st_mode & 0o7777:
                return False
            call: Any = self._giving if self._stats.waits else self._keeping
            if call(FCHMODAT2, fd, b"", new, EMPTY_PATH):
                raise Changed("its mode could not be set")
            return True
        finally:
            os.close(fd)

    def _set(self, fd: int, names: Sequence[bytes], mode: int) -> tuple[int, list[bytes]]:
        new = self._mode_of(mode)
        if new == mode & 0o7777:
            return 0, []
        call: Any = self._giving if self._stats.waits else self._keeping
        arguments = zip(repeat(FCHMODAT2), repeat(fd), names, repeat(new), repeat(NO_FOLLOW))
        return _counted(names, list(starmap(call, arguments)))

    def _give(
        self, fd: int, names: Sequence[bytes], uid: int | None, gid: int | None
    ) -> tuple[int, list[bytes]]:
        """The same of owners."""
        count = len(names)
        uids, gids = self._stats.column("uid", 0, count), self._stats.column("gid", 0, count)
        others = [
            name
            for name, user, group in zip(names, uids, gids, strict=True)
            if uid not in (None, user) or gid not in (None, group)
        ]
        if not others:
            return 0, []
        keeping, giving = self._chown
        call: Any = giving if self._stats.waits else keeping
        numbers = repeat(-1 if uid is None else uid), repeat(-1 if gid is None else gid)
        arguments = zip(repeat(fd), others, *numbers, repeat(NO_FOLLOW))
        return _counted(others, list(starmap(call, arguments)))


def _counted(names: Sequence[bytes], codes: Sequence[int]) -> tuple[int, list[bytes]]:
    """How many calls have succeeded, and the names of the others."""
    if not any(codes):
        return len(names), []
    failed = [name for name, code in zip(names, codes, strict=True) if code]
    return len(names) - len(failed), failed
