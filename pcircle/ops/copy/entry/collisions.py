"""Detects collisions: names that differ in the source but are the same in the target.

Some file systems ignore case or Unicode normalization. The names in a source directory are
distinct. Therefore a name that is copied for the first time into a directory that this run created
is free, unless the target folds names. If the name is taken, that counts as a collision, whatever
the folding rule. The check costs nothing until a name is taken.

In a directory that existed before, names may already be taken. For the first such name, a test
determines whether the directory also finds the entry under another spelling. If it does, the source
is searched for another name that leads to the same entry; if there is one, the names collide. It is
unknown which of them the entry belongs to, so it is not replaced, and the collision is reported.
"""

from __future__ import annotations

import os
import stat
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from typing import TypeAlias

from lru import LRU

from pcircle.core.encoding import show, to_scan
from pcircle.fs.directories import Directories, closing_fd
from pcircle.fs.entry_errors import COLLISION, EntryError
from pcircle.fs.open_flags import OPEN_DIRECTORY_FOLLOW

_MAX_CACHED_DIRECTORIES = 64  # maximum number of directories in each cache
_DirectoryKey: TypeAlias = "tuple[int, bytes]"
"""A directory, identified by root and path."""

Siblings: TypeAlias = "Callable[[Directories, int, bytes], Iterable[bytes]]"
"""Returns the selected names in a directory, given the sources, a root and a path.

Raises OSError.
"""


def no_siblings(sources: Directories, root: int, path: bytes) -> Iterable[bytes]:
    """Return no names, for entries that are copied one at a time."""
    return ()


class CollisionError(EntryError):
    """The target has one entry for this name and another name of the source."""

    def __init__(self, other: bytes | None) -> None:
        which = "another name" if other is None else f"'{show(other)}'"
        super().__init__(COLLISION, f"the destination treats its name as that of {which}")


class Collisions:
    """Detects collisions in the current target directory of one thread."""

    def __init__(self, siblings: Siblings = no_siblings) -> None:
        self._siblings = siblings
        self._sources: Directories | None = None
        self._where: _DirectoryKey = (0, b"")
        self._made = False
        self._folds: LRU[_DirectoryKey, dict[bool, bool]] = LRU(_MAX_CACHED_DIRECTORIES)
        self._groups: LRU[_DirectoryKey, dict[str, list[bytes]]] = LRU(_MAX_CACHED_DIRECTORIES)

    def enter(self, sources: Directories, root: int, path: bytes, *, made: bool) -> None:
        """Set the current directory; `made` means that this run created its copy."""
        self._sources = sources
        self._where = root, path
        self._made = made

    def leave(self) -> None:
        """Disable the checks, because entries are copied again and their names exist."""
        self._sources = None

    def check(self, directory_fd: int, name: bytes) -> None:
        """Raise CollisionError if a taken name belongs to the copy of another source name."""
        sources = self._sources
        if sources is None:
            return
        if self._made:
            other = None
            with suppress(OSError):
                other = self._other(sources, directory_fd, name)
            raise CollisionError(other)
        if self._is_folded(directory_fd, name):
            other = self._other(sources, directory_fd, name)
            if other is not None:
                raise CollisionError(other)

    def _is_folded(self, directory_fd: int, name: bytes) -> bool:
        """Return whether the directory may have stored this entry under another name."""
        known = self._folds.get(self._where)
        if known is None:
            known = self._folds[self._where] = {}
        for form in (False, True)[: 1 + (not name.isascii())]:
            if form not in known:
                found = folds_name(directory_fd, name, form=form)
                if found is None:
                    continue
                known[form] = found
            if known[form]:
                return True
        return False

    def _other(self, sources: Directories, directory_fd: int, name: bytes) -> bytes | None:
        """Return another source name that leads to the same target entry, if there is one."""
        if self._where not in self._groups:
            self._groups[self._where] = group_by_key(self._siblings(sources, *self._where))
        group = self._groups[self._where].get(folding_key(name), [])
        candidates = [other for other in group if other != name]
        if not candidates:
            return None
        old = os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
        for other in candidates:
            if _is_same(old, directory_fd, name, other):
                return other
        return None


def folding_key(name: bytes) -> str:
    """Return a key that is equal for all names that some file system treats as the same.

    Different names that no file system confuses may also have equal keys.
    """
    if name.isascii():
        return name.decode("ascii").lower().rstrip(" .")
    import unicodedata  # imported late: most names are ASCII

    text = name.decode("utf-8", "surrogateescape")
    text = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).upper().casefold())
    return "".join(c for c in text if unicodedata.category(c) != "Cf").rstrip(" .")


def group_by_key(names: Iterable[bytes]) -> dict[str, list[bytes]]:
    """Group names by key, omitting groups with a single name."""
    first: dict[str, bytes] = {}
    found: defaultdict[str, list[bytes]] = defaultdict(list)
    for name in names:
        key = folding_key(name)
        if key in first:
            found[key].append(name)
        else:
            first[key] = name
    for key, candidates in found.items():
        candidates.insert(0, first[key])
    return dict(found)


def differ_only_by(a: bytes, b: bytes, *, form: bool, case: bool) -> bool:
    """Return whether names differ only in Unicode form (`form`), in case (`case`), or in both."""
    with suppress(UnicodeError):
        pair = [name.decode() for name in (a, b)]
        if case:
            pair = [text.casefold() for text in pair]
        if form:
            import unicodedata

            pair = [unicodedata.normalize("NFC", text) for text in pair]
        return pair[0] == pair[1]
    return case and a.lower() == b.lower()


def folds_name(directory_fd: int, name: bytes, *, form: bool) -> bool | None:
    """Return whether an entry is found by its name in another case or Unicode form.

    `form` selects the Unicode form instead of the case. Return None if the name has no other case
    or form. Raises OSError if the entry does not exist.
    """
    other = _other_form(name) if form else _other_case(name)
    if other is None:
        return None
    old = os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
    return _is_same(old, directory_fd, name, other)


def _other_case(name: bytes) -> bytes | None:
    other = name.swapcase()  # changes only ASCII letters, which all folding systems fold
    if other == name:
        with suppress(UnicodeError):
            other = name.decode().swapcase().encode()
    return None if other == name else other


def _other_form(name: bytes) -> bytes | None:
    import unicodedata

    with suppress(UnicodeError):
        text = name.decode()
        for form in ("NFC", "NFD"):
            other = unicodedata.normalize(form, text).encode()
            if other != name:
                return other
    return None


def _is_same(old: os.stat_result, directory_fd: int, name: bytes, other: bytes) -> bool:
    """Return whether two names lead to the entry `old` without being separate hard links."""
    try:
        other_status = os.stat(other, dir_fd=directory_fd, follow_symlinks=False)
    except OSError:
        return False
    if not os.path.samestat(old, other_status):
        return False
    if stat.S_ISDIR(old.st_mode) or old.st_nlink == 1:
        return True
    try:
        return not {name, other} <= set(list_names(directory_fd))
    except OSError:  # the names in an unreadable directory are unknown
        return True


def list_names(directory_fd: int) -> list[bytes]:
    """Return the names in a directory. Raises OSError if it is unreadable."""
    with reopened(directory_fd) as fd:
        return list(map(os.fsencode, os.listdir(to_scan(fd))))


def reopened(directory_fd: int) -> AbstractContextManager[int]:
    """Open a directory again with its own read position."""
    return closing_fd(os.open(b".", OPEN_DIRECTORY_FOLLOW, dir_fd=directory_fd))
