"""Owners and modes that copies are given in place of their sources': maps of ids, changes of modes.

Which user becomes which goes by rules, the first that fits. The same rules hold for users and
groups whom access control lists name; where two become one by it they have the rights that both
had, since whom a list is to keep out it must keep out still. A change of modes is rsync's
``--chmod``: a list of masks, one after the other, for all entries but symbolic links.
"""

# Annotations are evaluated here, once: otherwise msgspec compiles each of them in every rank.
import os
import stat
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, Literal, TypeVar

import msgspec

from pcircle.fs.attributes.acls import (
    ACCESS,
    DEFAULT,
    GROUP,
    MASK,
    OTHER,
    OWNER,
    OWNING_GROUP,
    USER,
    entries_of,
    mode_with,
    packed,
)

_ALL, _EXECUTE = 0o7777, 0o111
_WHO = {"u": (0o100, 0o4000), "g": (0o010, 0o2000), "o": (0o001, 0), "a": (0o111, 0o6000)}
_SHIFTS = {"u": 6, "g": 3, "o": 0}
_CLEARED = {"u": 0o4700, "g": 0o2070, "o": 0o1007, "a": 0o7777}  # where rights are copied
_BITS = {"r": 4, "w": 2, "x": 1, "X": 1}
_OCTAL = frozenset("01234567")

S = TypeVar("S")


class Rule(msgspec.Struct, frozen=True, array_like=True):
    """Ids from `low` to `high` become `to`; with a `pattern`, those whose name it matches."""

    low: int
    high: int
    to: int
    pattern: str = ""


class Bits(msgspec.Struct, frozen=True, array_like=True):
    """A step of a change: bits that stay and bits that are given, of directories or of others.

    With `searches` the right to execute is given to directories, and where somebody had it. If it
    `copies` the rights of a class to those in `given`, these are what that class has, and with
    `removes` they are taken away.
    """

    kept: int
    given: int
    of: Literal["", "D", "F"] = ""
    searches: bool = False
    copies: Literal["", "u", "g", "o"] = ""
    removes: bool = False


class Given(msgspec.Struct, frozen=True, array_like=True):
    """What is given. `uid` and `gid` are everybody's unless they are None, whatever the maps say.

    Whom a list names goes by the maps alone.
    """

    uid: int | None = None
    gid: int | None = None
    users: tuple[Rule, ...] = ()
    groups: tuple[Rule, ...] = ()
    modes: tuple[Bits, ...] = ()

    @property
    def by_name(self) -> bool:
        """Whether names decide, which may mean other ids the next time."""
        return any(rule.pattern for rule in (*self.users, *self.groups))


class IdMap:
    """What rules say of an id: another one, or None."""

    def __init__(self, rules: Sequence[Rule], name_of: Callable[[int], str]) -> None:
        self._rules = rules
        self._name_of = name_of
        self._known: dict[int, int | None] = {}

    def __call__(self, number: int) -> int | None:
        """What an id becomes."""
        if not self._rules:
            return None
        if number not in self._known:
            found = (rule.to for rule in self._rules if self._matches(rule, number))
            self._known[number] = next(found, None)
        return self._known[number]

    def _matches(self, rule: Rule, number: int) -> bool:
        if rule.pattern:
            return fnmatchcase(self._name_of(number), rule.pattern)
        return rule.low <= number <= rule.high


class Giver:
    """Tells what entries are given; for any number of threads."""

    def __init__(self, given: Given) -> None:
        self._given = given
        self._users = IdMap(given.users, user_name)
        self._groups = IdMap(given.groups, group_name)
        self._modes: dict[int, int] = {}  # by the whole mode of a source, which has its kind

    def status(self, status: Any) -> Any:
        """The status of a source with the owner, the group and the mode that its copy is given."""
        given, mode = self._given, self.mode(status.st_mode)
        uid = self.user(status.st_uid) if given.uid is None else given.uid
        gid = self.group(status.st_gid) if given.gid is None else given.gid
        if (mode, uid, gid) == (status.st_mode, status.st_uid, status.st_gid):
            return status
        if not isinstance(status, os.stat_result):
            return status._replace(st_mode=mode, st_uid=uid, st_gid=gid)
        reduced: Any = status.__reduce__()
        values, others = reduced[1]
        return os.stat_result((mode, *values[1:4], uid, gid, *values[6:]), others)

    def user(self, number: int) -> int:
        """What the maps make of a user."""
        found = self._users(number)
        return number if found is None else found

    def group(self, number: int) -> int:
        """What the maps make of a group."""
        found = self._groups(number)
        return number if found is None else found

    def mode(self, whole: int) -> int:
        """The whole mode that an entry of this one is given."""
        known = self._modes.get(whole)
        if known is None:
            known = self._modes[whole] = changed(whole, self._given.modes)
        return known

    def list(self, name: str, value: bytes, mode: int) -> bytes:
        """An access control list, or the like, of a source of this whole mode, as it is given."""
        if name not in (ACCESS, DEFAULT):
            return value
        old = list(entries_of(value))
        new = [(tag, rights, self._named(tag, number)) for tag, rights, number in old]
        if name == ACCESS and self._given.modes:
            bits = self.mode(mode & ~_ALL | mode_with(mode, value))
            new = _with_bits(new, bits)
        return value if new == old else packed(_together(new))

    def _named(self, tag: int, number: int) -> int:
        if tag == USER:
            return self.user(number)
        return self.group(number) if tag == GROUP else number


@cache
def giver_of(given: Given) -> Giver:
    """Who tells what entries are given: one in a process, which remembers."""
    return Giver(given)


def _with_bits(entries: list[tuple[int, int, int]], mode: int) -> list[tuple[int, int, int]]:
    """The entries after a chmod."""
    group = MASK if any(tag == MASK for tag, _, _ in entries) else OWNING_GROUP
    new = {OWNER: mode >> 6 & 7, group: mode >> 3 & 7, OTHER: mode & 7}
    return [(tag, new.get(tag, rights), number) for tag, rights, number in entries]


def _together(entries: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """In the kernel's order, each user and group once."""
    found: dict[tuple[int, int], int] = {}
    for tag, rights, number in entries:
        found[tag, number] = found.get((tag, number), 7) & rights
    return [(tag, rights, number) for (tag, number), rights in sorted(found.items())]


def changed(whole: int, modes: Sequence[Bits]) -> int:
    """What a change of modes makes of a whole mode."""
    if stat.S_ISLNK(whole):
        return whole
    is_directory, executes = stat.S_ISDIR(whole), whole & _EXECUTE
    mode = whole & _ALL
    for bits in modes:
        if bits.of and (bits.of == "D") != is_directory:
            continue
        if bits.copies:
            rights = (mode >> _SHIFTS[bits.copies] & 7) * 0o111 & bits.given
            mode = mode & ~rights if bits.removes else mode & bits.kept | rights
            continue
        spared = _EXECUTE if bits.searches and not (executes or is_directory) else 0
        mode = mode & bits.kept | bits.given & ~spared
    return whole & ~_ALL | mode


def read_modes(text: str, umask: int) -> tuple[Bits, ...]:
    """What ``--chmod`` of rsync says, where nobody is named with this umask. ValueError."""
    return tuple(_bits(word, umask) for word in text.split(","))


def _bits(text: str, umask: int) -> Bits:
    """One of the list: kinds, who, an operator and what; or kinds and an octal mode."""
    wrong = ValueError(f"invalid mode '{text}'")
    rest = text.lstrip("DF")
    kinds = set(text[: len(text) - len(rest)])
    if len(kinds) > 1:
        raise wrong
    of: Any = "".join(kinds)
    if rest and _OCTAL.issuperset(rest):
        if int(rest, 8) > _ALL:
            raise wrong
        return Bits(0, int(rest, 8), of)
    at = next((place for place, letter in enumerate(rest) if letter in "+-="), -1)
    who, what = rest[: max(at, 0)], rest[at + 1 :]
    copies: Any = what if what in _SHIFTS else ""
    if at < 0 or set(who) - {*_WHO, "D", "F"} or set(what) - {*_BITS, "s", "t", *copies}:
        raise wrong
    kinds |= set(who) & {"D", "F"}
    if len(kinds) > 1:
        raise wrong
    of = "".join(kinds)
    if copies:
        return _copying(set(who) - kinds, rest[at], copies, of, umask)
    where = special = value = 0
    for letter in set(who) - kinds:
        where |= _WHO[letter][0]
        special |= _WHO[letter][1]
    for letter in set(what) & _BITS.keys():
        value |= _BITS[letter]
    set_id = (special or 0o4000) * ("s" in what) | 0o1000 * ("t" in what)
    value = where * value if where else 0o111 * value & ~umask
    searches = "X" in what
    if rest[at] == "+":
        return Bits(_ALL, value | set_id, of, searches)
    if rest[at] == "-":
        return Bits(_ALL & ~(value | set_id), 0, of, searches)
    kept = _ALL & ~((where or 0o111) * 7) & ~(special if set_id else 0)
    return Bits(kept, value | set_id, of, searches)


def _copying(who: set[str], operator: str, copies: Any, of: Any, umask: int) -> Bits:
    """A step by which a class gets, or loses, the rights that another one has."""
    cleared = 0
    for letter in who or {"a"}:
        cleared |= _CLEARED[letter]
    given = cleared & 0o777 & ~(0 if who else umask)
    kept = _ALL & ~cleared if operator == "=" else _ALL
    return Bits(kept, given, of, copies=copies, removes=operator == "-")


def user_name(number: int) -> str:
    """The name of a user on this node, or the number."""
    import pwd  # few runs ask for names

    try:
        return pwd.getpwuid(number).pw_name
    except (KeyError, OverflowError):
        return str(number)


def group_name(number: int) -> str:
    """The name of a group on this node, or the number."""
    import grp  # as above

    try:
        return grp.getgrgid(number).gr_name
    except (KeyError, OverflowError):
        return str(number)
