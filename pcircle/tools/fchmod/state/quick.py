"""Changes the modes or owners of many files with one call of a native function.

Only regular files are changed here, and only if their status is all that the change depends on.
Other entries, and failures, are left to the code that processes single entries.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Sequence

from pcircle.fs import native
from pcircle.fs.entry_errors import Changed
from pcircle.fs.scan import DirectoryBatch
from pcircle.fs.stats import CAPACITY, StatBlockError, Stats
from pcircle.tools.fchmod.state.state import ITSELF, NEVER, sets_modes_by_name, target_of

Directory = int | list[int]
"""The descriptor of the directory that contains all names, or a descriptor for each name."""

__all__ = ["CAPACITY", "BulkChanger"]


class BulkChanger:
    """Changes files for one thread.

    `mode_of` computes the new permission bits from a mode. `owner` is a user and a group, of which
    one may be None. If it is given, the owner is set instead, and the kernel decides which mode
    bits remain.
    """

    def __init__(
        self, mode_of: Callable[[int], int], owner: tuple[int | None, int | None] | None = None
    ) -> None:
        self._mode_of = mode_of
        self._owner = owner
        self._stats = Stats(threads=1)
        self.is_able: bool = owner is not None or sets_modes_by_name()
        self._looks_first = False

    def look(self, directory_fd: Directory, names: Sequence[bytes]) -> bool:
        """Look up at most `CAPACITY` names; return whether all are files with a single name."""
        return not any(self.odd(directory_fd, names))

    def odd(
        self, directory_fd: Directory, names: Sequence[bytes]
    ) -> tuple[Sequence[int], Sequence[int]]:
        """Look up names; return the places of hard-linked files, and of non-files or failures."""
        try:
            self._stats.look(directory_fd, names)
        except StatBlockError as failed:
            return self._odd(len(names), failed.errors)
        return self._odd(len(names))

    def change_all(self, batch: DirectoryBatch, apart: set[int]) -> tuple[int, list[int]]:
        """Change the files of a batch, except those in `apart`; return the results of `change`."""
        names = batch.inside
        fds = batch.entry_fds()
        self._stats.put(batch.table)
        several = set(self._odd(len(names))[0]) - apart
        changed, failed = self.change(fds, names, apart | several)
        return changed, [*several, *failed]

    def _odd(self, count: int, lost: Collection[int] = ()) -> tuple[Sequence[int], Sequence[int]]:
        stats = self._stats
        is_plain = not lost and stats.has_single_names(0, count)
        if is_plain and (
            stats.are_files(count) or all(map(stat.S_ISREG, stats.column("mode", 0, count)))
        ):
            return (), ()
        several, odd = [], []
        rows = zip(stats.column("mode", 0, count), stats.column("links", 0, count), strict=True)
        for place, (mode, links) in enumerate(rows):
            if place in lost or not stat.S_ISREG(mode):
                odd.append(place)
            elif links > 1:
                several.append(place)
        return several, odd

    def change(
        self, directory_fd: Directory, names: Sequence[bytes], odd: Collection[int] = ()
    ) -> tuple[int, list[int]]:
        """Change files that were looked up, except those in `odd`.

        Return the number of changed files, and the places that failed.
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
            number, undone = self._set(directory_fd, names, places, mode)
            changed += number
            failed += undone
        return changed, failed

    def change_held(
        self, directory_fd: int, names: Sequence[bytes], modes: Sequence[int] = ()
    ) -> tuple[int, list[bytes]]:
        """Change the modes of files whose names other users may exchange.

        Each file is opened, checked and changed by its descriptor. Because that takes four calls,
        names are looked up first if few files are likely to need changes, unless `modes` are given.
        Return the number of changed files, and the names that failed or are not files.
        """
        if not names:
            return 0, []
        meant = names
        if self._looks_first and not modes:
            if not self.look(directory_fd, names):
                return 0, list(names)
            modes = self._stats.column("mode", 0, len(names))
        if modes:
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
        """Change the file that has this name now, and return whether its mode differed.

        Raise OSError if that fails, and Changed if it is not a regular file with a single name.
        """
        fd = os.open(name, ITSELF, dir_fd=directory_fd)
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
                raise Changed("it is not a plain file")
            new = self._mode_of(status.st_mode)
            if new == status.st_mode & 0o7777:
                return False
            os.chmod(target_of(fd), new)
            return True
        finally:
            os.close(fd)

    def _set(
        self, fd: Directory, names: Sequence[bytes], places: Sequence[int], mode: int
    ) -> tuple[int, list[int]]:
        new = self._mode_of(mode)
        return (0, []) if new == mode & 0o7777 else _change(fd, names, places, new, -1, -1)

    def _give(
        self,
        fd: Directory,
        names: Sequence[bytes],
        odd: Collection[int],
        uid: int | None,
        gid: int | None,
    ) -> tuple[int, list[int]]:
        """Change the owners of files that were looked up; see `change`."""
        count = len(names)
        uids, gids = self._stats.column("uid", 0, count), self._stats.column("gid", 0, count)
        places = [
            place
            for place, (user, group) in enumerate(zip(uids, gids, strict=True))
            if (uid not in (None, user) or gid not in (None, group)) and place not in odd
        ]
        numbers = [-1 if number is None else number for number in (uid, gid)]
        return _change(fd, names, places, -1, *numbers)


def _change(
    fd: Directory, names: Sequence[bytes], places: Sequence[int], mode: int, uid: int, gid: int
) -> tuple[int, list[int]]:
    """Change the mode, user and group of the files at `places`.

    Return the number of changed files, and the places that failed.
    """
    if len(places) < len(names):
        names = [names[place] for place in places]
        fd = fd if isinstance(fd, int) else [fd[place] for place in places]
    outcomes = native.change_names(fd, list(names), mode, uid, gid, NEVER)
    if outcomes.count(0) == len(outcomes):
        return len(places), []
    codes = zip(places, native.numbers(outcomes), strict=True)
    failed = [place for place, code in codes if code]
    return len(places) - len(failed), failed
