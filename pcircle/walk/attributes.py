"""Filters by the attributes of an entry: kind, path, size, owner, times, and location of its data.

Filters do not apply to directories: these are entered anyway, because they may contain selected
entries. Cheap filters are applied first. An entry is looked up once for all filters, and only if a
filter needs its status and all cheaper filters have selected it. An entry that cannot be looked up
is selected, so that the tool's own access reports the failure. If a filter uses birth times, but
the file system does not store them, the directory fails.
"""

# Annotations are not deferred, because msgspec would compile each of them on every rank.
import os
import re
import stat
from collections.abc import Callable, Sequence
from typing import Literal, Protocol

import msgspec

from pcircle.core.units import Timestamp
from pcircle.fs.data import OfflineDetector
from pcircle.fs.directories import join_path
from pcircle.fs.entry_errors import AGELESS, EntryError
from pcircle.fs.scan import Block
from pcircle.fs.status import birth_ns

KINDS = "fdlpsbc"
_SPECIAL = "psbc"
LETTERS = {
    stat.S_IFDIR: "d",
    stat.S_IFREG: "f",
    stat.S_IFLNK: "l",
    stat.S_IFIFO: "p",
    stat.S_IFSOCK: "s",
    stat.S_IFBLK: "b",
    stat.S_IFCHR: "c",
}

Time = Literal["mtime", "ctime", "atime", "btime"]
Test = Callable[[os.stat_result], bool]
BirthTest = Callable[[bytes, int], bool]
Names = list[str]


class Moment(msgspec.Struct, frozen=True, array_like=True):
    """A time since the epoch or, with `ago`, a duration before the start of the job."""

    time: Timestamp
    ago: bool = False

    def at_ns(self, now_ns: int) -> int:
        """Return the time since the epoch."""
        return now_ns - self.time.ns if self.ago else self.time.ns


class AttributeFilter(msgspec.Struct, frozen=True, array_like=True):
    """The attributes that an entry must have to be selected. None accepts any value.

    Each field has the name of the option that sets it. The time that `by_time` selects must be
    after `newer_than`, and no later than `older_than`. The size must be between `min_bytes` and
    `max_bytes`. `owners`, `groups` and `kinds` (letters of `KINDS`) contain the accepted values.
    Every regular expression in `match` must match the path below the root. With `skip_offline`, the
    data must be in the file system, not on tape.
    """

    newer_than: Moment | None = None
    older_than: Moment | None = None
    by_time: Time = "mtime"
    min_bytes: int | None = None
    max_bytes: int | None = None
    owners: tuple[int, ...] | None = None
    groups: tuple[int, ...] | None = None
    kinds: str | None = None
    match: tuple[bytes, ...] = ()
    skip_offline: bool = False


class OfflineCounter(Protocol):
    """The counter of files that are excluded as offline."""

    offline: int


ANY = AttributeFilter()


def chooser_of(
    attribute_filter: AttributeFilter,
    now_ns: int,
    *,
    follow: bool,
    tally: OfflineCounter | None = None,
) -> Callable[[Block, bytes, int], None]:
    """Return a function that removes entries without the required attributes from a block.

    The function also takes the path and the descriptor of the directory. With `follow`, the
    attributes of a link are those of its target.
    """
    patterns = [re.compile(text, re.DOTALL).search for text in attribute_filter.match]
    tests = _tests(attribute_filter, now_ns)
    kinds = KINDS if attribute_filter.kinds is None else attribute_filter.kinds
    among = [*tests, _is_of(kinds)] if set(_SPECIAL) - set(kinds) else tests
    born = _birth_test(attribute_filter, now_ns, follow=follow)
    online = _OnlineTest(tally, follow=follow) if attribute_filter.skip_offline else None

    def matching(
        names: Names, is_selected: bool, tests: Sequence[Test], path: bytes, fd: int
    ) -> Names:
        if not (names and is_selected):
            return []
        if patterns:
            paths = ((name, join_path(path, os.fsencode(name))) for name in names)
            names = [name for name, whole in paths if all(find(whole) for find in patterns)]
        if tests or born is not None or online is not None:
            return [name for name in names if _passes(name, fd, tests, born, online, follow)]
        return names

    def choose(block: Block, path: bytes, fd: int) -> None:
        block.files = matching(block.files, "f" in kinds, tests, path, fd)
        block.links = matching(block.links, "l" in kinds, tests, path, fd)
        any_special = not set(_SPECIAL).isdisjoint(kinds)
        block.specials = matching(block.specials, any_special, among, path, fd)

    return choose


def test_of_directory(
    attribute_filter: AttributeFilter, now_ns: int
) -> Callable[[bytes, os.stat_result, int], bool] | None:
    """Return a test of a directory itself, by its path, status and descriptor.

    Return None if every directory passes. The test ignores `kinds`. If a size is required, all
    directories fail, because sizes do not apply to directories. The test raises EntryError if it
    needs birth times that the file system does not store.
    """
    if msgspec.structs.replace(attribute_filter, by_time=ANY.by_time, kinds=None) == ANY:
        return None
    if attribute_filter.min_bytes is not None or attribute_filter.max_bytes is not None:
        return lambda path, status, fd: False
    patterns = [re.compile(text, re.DOTALL).search for text in attribute_filter.match]
    tests = _tests(attribute_filter, now_ns)
    born = _birth_test(attribute_filter, now_ns, follow=False)

    def is_selected(path: bytes, status: os.stat_result, fd: int) -> bool:
        is_found = all(find(path) for find in patterns) and all(test(status) for test in tests)
        return is_found and (born is None or born(b"", fd))

    return is_selected


class _OnlineTest:
    """Tests whether the data of a file is in the file system, and counts the other files."""

    def __init__(self, tally: OfflineCounter | None, *, follow: bool) -> None:
        self._tally = tally
        self._tiers = OfflineDetector(follow=follow)

    def test(self, name: bytes, directory_fd: int, status: os.stat_result) -> bool:
        if not self._tiers.is_offline(name, directory_fd, status):
            return True
        if self._tally is not None:
            self._tally.offline += 1
        return False


def _passes(
    name: str,
    directory_fd: int,
    tests: Sequence[Test],
    born: BirthTest | None,
    online: _OnlineTest | None,
    follow: bool,
) -> bool:
    try:
        status = os.stat(name, dir_fd=directory_fd, follow_symlinks=follow)
    except OSError:
        return True  # the tool's own access reports the error
    if not all(test(status) for test in tests):
        return False
    if born is not None and not born(os.fsencode(name), directory_fd):
        return False
    return online is None or online.test(os.fsencode(name), directory_fd, status)


def _birth_test(
    attribute_filter: AttributeFilter, now_ns: int, *, follow: bool
) -> BirthTest | None:
    """Return the test of birth times, or None if any birth time is accepted."""
    newer, older = attribute_filter.newer_than, attribute_filter.older_than
    if attribute_filter.by_time != "btime" or (newer is None and older is None):
        return None
    after_ns = None if newer is None else newer.at_ns(now_ns)
    until_ns = None if older is None else older.at_ns(now_ns)

    def test(name: bytes, directory_fd: int) -> bool:
        born_ns = birth_ns(name, directory_fd, follow=follow)
        if born_ns is None:
            if name and _is_gone(name, directory_fd, follow):
                return True  # like every entry that cannot be looked up
            raise EntryError(
                AGELESS, "the file system does not store birth times (--by-time=btime)"
            )
        return (after_ns is None or born_ns > after_ns) and (
            until_ns is None or born_ns <= until_ns
        )

    return test


def _is_gone(name: bytes, directory_fd: int, follow: bool) -> bool:
    try:
        os.stat(name, dir_fd=directory_fd, follow_symlinks=follow)
    except OSError:
        return True
    return False


def _tests(attribute_filter: AttributeFilter, now_ns: int) -> list[Test]:
    """Return the tests of an entry's status."""
    tests: list[Test] = []
    times: dict[Time, Callable[[os.stat_result], int]] = {
        "mtime": lambda status: status.st_mtime_ns,
        "ctime": lambda status: status.st_ctime_ns,
        "atime": lambda status: status.st_atime_ns,
    }
    time_of = times.get(attribute_filter.by_time)
    if attribute_filter.newer_than is not None and time_of is not None:
        after_ns = attribute_filter.newer_than.at_ns(now_ns)
        tests.append(lambda status: time_of(status) > after_ns)
    if attribute_filter.older_than is not None and time_of is not None:
        until_ns = attribute_filter.older_than.at_ns(now_ns)
        tests.append(lambda status: time_of(status) <= until_ns)
    if attribute_filter.min_bytes is not None:
        min_bytes = attribute_filter.min_bytes
        tests.append(lambda status: status.st_size >= min_bytes)
    if attribute_filter.max_bytes is not None:
        max_bytes = attribute_filter.max_bytes
        tests.append(lambda status: status.st_size <= max_bytes)
    if attribute_filter.owners is not None:
        owners = frozenset(attribute_filter.owners)
        tests.append(lambda status: status.st_uid in owners)
    if attribute_filter.groups is not None:
        groups = frozenset(attribute_filter.groups)
        tests.append(lambda status: status.st_gid in groups)
    return tests


def _is_of(kinds: str) -> Test:
    return lambda status: LETTERS.get(stat.S_IFMT(status.st_mode), "?") in kinds
