"""Names of a source that are one in the target, as where case or Unicode forms do not count.

The names of a directory differ, so in a directory that this run has made nothing has the name of
an entry that is copied for the first time, unless the target takes another one for the same: that
is a collision, however the target folds names. It costs nothing until a name is taken.

In a directory that was there, names are taken as a rule. When one is, the directory is asked once
whether it has the entry by another spelling too; a plain directory has not, and that is all. One
that folds is held against the source: another name there that leads to the same entry collides.
Which of both was there first nobody can say, so neither replaces the other, and both are named.
"""

from __future__ import annotations

import os
import stat
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeAlias

from lru import LRU

from pcircle.encoding import to_scan
from pcircle.fs.directories import Directories
from pcircle.fs.trouble import COLLISION, Trouble
from pcircle.guards import require
from pcircle.names import show

_DIRECTORIES = 64  # of which something is kept
_Where: TypeAlias = "tuple[int, bytes]"
"""A directory by root and path."""

Siblings: TypeAlias = "Callable[[Directories, int, bytes], Iterable[bytes]]"
"""Of the sources, a root and a path: the names in that directory that are copied. OSError."""


def no_siblings(sources: Directories, root: int, path: bytes) -> Iterable[bytes]:
    """Where each name is copied by itself."""
    return ()


class Collision(Trouble):
    """The target has one entry for this name and for another one of the source."""

    def __init__(self, other: bytes | None) -> None:
        which = "another name" if other is None else f"'{show(other)}'"
        super().__init__(COLLISION, f"the destination treats its name as that of {which}")


class Collisions:
    """What a thread knows of the directory that it works in, and of some others."""

    def __init__(self, siblings: Siblings = no_siblings) -> None:
        self._siblings = siblings
        self._sources: Directories | None = None
        self._where: _Where = (0, b"")
        self._made = False
        self._folds: LRU[_Where, dict[bool, bool]] = LRU(_DIRECTORIES)
        self._alike: LRU[_Where, dict[str, list[bytes]]] = LRU(_DIRECTORIES)

    def enter(self, sources: Directories, root: int, path: bytes, *, made: bool) -> None:
        """What follows goes into the copy of this directory, which this run has made or not."""
        self._sources = sources
        self._where = root, path
        self._made = made

    def leave(self) -> None:
        """What follows is copied once more: that its name is there means nothing."""
        self._sources = None

    def check(self, directory_fd: int, name: bytes) -> None:
        """A name in the target's directory is taken: Collision if it is another name's."""
        if self._sources is None:
            return
        if self._made:
            other = None
            with suppress(OSError):
                other = self._other(directory_fd, name)
            raise Collision(other)
        if self._is_folded(directory_fd, name):
            other = self._other(directory_fd, name)
            if other is not None:
                raise Collision(other)

    def _is_folded(self, directory_fd: int, name: bytes) -> bool:
        """Whether the directory may have what has this name by another one."""
        known = self._folds.get(self._where)
        if known is None:
            known = self._folds[self._where] = {}
        for form in (False, True)[: 1 + (not name.isascii())]:
            if form not in known:
                found = has_two_names(directory_fd, name, form=form)
                if found is None:
                    continue
                known[form] = found
            if known[form]:
                return True
        return False

    def _other(self, directory_fd: int, name: bytes) -> bytes | None:
        """Another name of the source for which the target has the same entry; None if none has."""
        if self._where not in self._alike:
            self._alike[self._where] = alike(self._siblings(require(self._sources), *self._where))
        group = self._alike[self._where].get(key_of(name), [])
        others = [other for other in group if other != name]
        if not others:
            return None
        old = os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
        for other in others:
            if _is_same(old, directory_fd, name, other):
                return other
        return None


def key_of(name: bytes) -> str:
    """What names have in common that some file system may take for the same; others may too."""
    if name.isascii():
        return name.decode("ascii").lower().rstrip(" .")
    import unicodedata  # only now: most names are ASCII

    text = name.decode("utf-8", "surrogateescape")
    text = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).upper().casefold())
    return "".join(c for c in text if unicodedata.category(c) != "Cf").rstrip(" .")


def alike(names: Iterable[bytes]) -> dict[str, list[bytes]]:
    """The names that are like others, by what they have in common."""
    first: dict[str, bytes] = {}
    found: defaultdict[str, list[bytes]] = defaultdict(list)
    for name in names:
        key = key_of(name)
        if key in first:
            found[key].append(name)
        else:
            first[key] = name
    for key, others in found.items():
        others.insert(0, first[key])
    return dict(found)


def are_one(a: bytes, b: bytes, *, form: bool, case: bool) -> bool:
    """Whether names differ in nothing but their Unicode form, or case, or both."""
    with suppress(UnicodeError):
        pair = [name.decode() for name in (a, b)]
        if case:
            pair = [text.casefold() for text in pair]
        if form:
            import unicodedata

            pair = [unicodedata.normalize("NFC", text) for text in pair]
        return pair[0] == pair[1]
    return case and a.lower() == b.lower()


def has_two_names(directory_fd: int, name: bytes, *, form: bool) -> bool | None:
    """Whether an entry is found by another case of its name, or `form`; None if there is none.

    OSError if the name is not there.
    """
    other = _other_form(name) if form else _other_case(name)
    if other is None:
        return None
    old = os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
    return _is_same(old, directory_fd, name, other)


def _other_case(name: bytes) -> bytes | None:
    other = name.swapcase()  # of what is ASCII: all that fold case fold that
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
    """Whether both names lead to one entry, `old`; two entries may be links to one file."""
    try:
        now = os.stat(other, dir_fd=directory_fd, follow_symlinks=False)
    except OSError:
        return False
    if not os.path.samestat(old, now):
        return False
    if stat.S_ISDIR(old.st_mode) or old.st_nlink == 1:
        return True
    try:
        return not {name, other} <= set(listed(directory_fd))
    except OSError:  # nothing better is known of a directory that can't be read
        return True


def listed(directory_fd: int) -> list[bytes]:
    """The names in a directory. OSError if it can't be read."""
    with afresh(directory_fd) as fd:
        return list(map(os.fsencode, os.listdir(to_scan(fd))))


@contextmanager
def afresh(directory_fd: int) -> Iterator[int]:
    """A directory, opened once more to be read, whoever is reading it."""
    fd = os.open(b".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory_fd)
    try:
        yield fd
    finally:
        os.close(fd)
