"""Modes or owners of many files of a directory, looked up and changed a block at a time.

`os.stat` and a call for each name take as long in Python as in the kernel. As in `fs/stats.py`,
which looks the names up, the calls are made by an iterator over their arguments. It is for plain
files alone, of which nothing else is to be known: the others, and those that fail, are left to who
looks at one entry after the other.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import repeat, starmap
from typing import Any

from pcircle.fchmod.entries.calls import EMPTY_PATH, FCHMODAT2, ITSELF, NO_FOLLOW, chown_calls, many
from pcircle.fs.scan import Listings
from pcircle.fs.stats import CAPACITY, Failed, Stats
from pcircle.fs.trouble import Changed

Directory = int | Sequence[int]
"""The descriptor of one that names are in, or of each name that of its own."""

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

    def look(self, directory_fd: Directory, names: Sequence[bytes]) -> bool:
        """Look up at most `CAPACITY` names; whether all are files that have one name each."""
        return not any(self.odd(directory_fd, names))

    def odd(
        self, directory_fd: Directory, names: Sequence[bytes]
    ) -> tuple[Sequence[int], Sequence[int]]:
        """Look up at most `CAPACITY` names; the places of files that have other names as well, and
        of what is no file, or could not be looked up.
        """
        lost: Collection[int] = ()
        stats, count = self._stats, len(names)
        try:
            stats.look(directory_fd, names)
        except Failed as failed:
            lost = failed.errors
        is_plain = not lost and stats.has_single_names(0, count)
        if is_plain and (
            stats.are_files(count) or all(map(stat.S_ISREG, stats.column("mode", 0, count)))
        ):
            return (), ()
        several, others = [], []
        rows = zip(stats.column("mode", 0, count), stats.column("links", 0, count), strict=True)
        for place, (mode, links) in enumerate(rows):
            if place in lost or not stat.S_ISREG(mode):
                others.append(place)
            elif links > 1:
                several.append(place)
        return several, others

    def change(
        self, directory_fd: Directory, names: Sequence[bytes], odd: Collection[int] = ()
    ) -> tuple[int, list[int]]:
        """Change those that were looked up, but not those in some places: how many, and the places
        of those that could not be.
        """
        count = len(names)
        if self._owner is not None:
            return self._give(directory_fd, names, odd, *self._owner)
        if count and not odd and self._stats.are_files(count):
            mode = self._stats.column("mode", 0, 1)[0]
            return self._set(directory_fd, names, range(count), mode)
        by_mode: dict[int, list[int]] = {}
        for place, mode in enumerate(self._stats.column("mode", 0, count)):
            if place not in odd:
                by_mode.setdefault(mode, []).append(place)
        changed, failed = 0, []
        for mode, places in by_mode.items():
            number, rest = self._set(directory_fd, names, places, mode)
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

    def _set(
        self, fd: Directory, names: Sequence[bytes], places: Sequence[int], mode: int
    ) -> tuple[int, list[int]]:
        new = self._mode_of(mode)
        if new == mode & 0o7777:
            return 0, []
        call: Any = self._giving if self._stats.waits else self._keeping
        fds, some = _at(fd, places), _at(names, places)
        arguments = zip(repeat(FCHMODAT2), fds, some, repeat(new), repeat(NO_FOLLOW))
        return _counted(places, list(starmap(call, arguments)))

    def _give(
        self,
        fd: Directory,
        names: Sequence[bytes],
        odd: Collection[int],
        uid: int | None,
        gid: int | None,
    ) -> tuple[int, list[int]]:
        """The same of owners."""
        count = len(names)
        uids, gids = self._stats.column("uid", 0, count), self._stats.column("gid", 0, count)
        places = [
            place
            for place, (user, group) in enumerate(zip(uids, gids, strict=True))
            if (uid not in (None, user) or gid not in (None, group)) and place not in odd
        ]
        if not places:
            return 0, []
        keeping, giving = self._chown
        call: Any = giving if self._stats.waits else keeping
        numbers = repeat(-1 if uid is None else uid), repeat(-1 if gid is None else gid)
        fds, some = _at(fd, places), _at(names, places)
        return _counted(places, list(map(call, fds, some, *numbers, repeat(NO_FOLLOW))))


def _at(values: Sequence[Any] | int, places: Sequence[int]) -> Iterable[Any]:
    """What is at these places, which are in order; a number stands for all."""
    if isinstance(values, int):
        return repeat(values)
    return values if len(places) == len(values) else map(values.__getitem__, places)


def _counted(places: Sequence[int], codes: Sequence[int]) -> tuple[int, list[int]]:
    """How many calls have succeeded, and the places of the others."""
    if not any(codes):
        return len(places), []
    failed = [place for place, code in zip(places, codes, strict=True) if code]
    return len(places) - len(failed), failed
