"""Change owners and modes of copies: map user and group ids, and apply rsync's ``--chmod``.

The first rule that matches an id determines the new id. The rules also apply to the users and
groups that access control lists (ACLs) name. If two of these are mapped to the same id, it gets the
intersection of their rights, because an ACL may exist to deny access. A mode change follows rsync's
``--chmod``: a list of bit operations, applied in order to all entries except symbolic links.
"""

# Annotations are not deferred, because msgspec would compile each of them on every rank.
import os
import stat
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec

from pcircle.fs.attributes import acls

_ALL, _EXECUTE = 0o7777, 0o111
_WHO = {"u": (0o100, 0o4000), "g": (0o010, 0o2000), "o": (0o001, 0), "a": (0o111, 0o6000)}
_SHIFTS = {"u": 6, "g": 3, "o": 0}
# The bits that are cleared by assigning another class's rights.
_CLEARED = {"u": 0o4700, "g": 0o2070, "o": 0o1007, "a": 0o7777}
_BITS = {"r": 4, "w": 2, "x": 1, "X": 1}
_OCTAL = frozenset("01234567")

S = TypeVar("S")

_FileType: TypeAlias = Literal["", "D", "F"]
_UserClass: TypeAlias = Literal["", "u", "g", "o"]


class IdRule(msgspec.Struct, frozen=True, array_like=True):
    """Map the ids from `low` to `high`, or those whose names match a given `pattern`, to `to`."""

    low: int
    high: int
    to: int
    pattern: str = ""


class Bits(msgspec.Struct, frozen=True, array_like=True):
    """A step of a mode change: bits to retain and bits to add.

    `of` limits the step to directories (D) or other files (F). With `searches`, execute permission
    is added only to directories and to files that already have it for some class. With `copies`,
    the bits in `given` are limited to the rights of that class. With `removes`, these rights are
    removed instead.
    """

    retained: int
    given: int
    of: _FileType = ""
    searches: bool = False
    copies: _UserClass = ""
    removes: bool = False


class Given(msgspec.Struct, frozen=True, array_like=True):
    """The owners and modes that copies get. If `uid` or `gid` is not None, it overrides the maps.

    Ids in ACLs are changed only by the maps.
    """

    uid: int | None = None
    gid: int | None = None
    users: tuple[IdRule, ...] = ()
    groups: tuple[IdRule, ...] = ()
    modes: tuple[Bits, ...] = ()

    @property
    def by_name(self) -> bool:
        """True if any rule matches names; their ids may differ in the next run."""
        return any(rule.pattern for rule in (*self.users, *self.groups))


class IdMap:
    """A function that maps an id to another id, or to None if no rule matches."""

    def __init__(self, rules: Sequence[IdRule], name_of: Callable[[int], str]) -> None:
        self._rules = rules
        self._name_of = name_of
        self._known: dict[int, int | None] = {}

    def __call__(self, number: int) -> int | None:
        """Return the new id, or None if no rule matches."""
        if not self._rules:
            return None
        if number not in self._known:
            found = (rule.to for rule in self._rules if self._matches(rule, number))
            self._known[number] = next(found, None)
        return self._known[number]

    def _matches(self, rule: IdRule, number: int) -> bool:
        if rule.pattern:
            return fnmatchcase(self._name_of(number), rule.pattern)
        return rule.low <= number <= rule.high


class Giver:
    """Computes the owners, modes and ACLs of copies. Safe to use from any thread."""

    def __init__(self, given: Given) -> None:
        self._given = given
        self._users = IdMap(given.users, user_name)
        self._groups = IdMap(given.groups, group_name)
        self._modes: dict[int, int] = {}  # by the source's full mode, which includes the file type

    def status(self, status: Any) -> Any:
        """Return a source's status with the owner, group and mode of its copy."""
        given, mode = self._given, self.mode(status.st_mode)
        uid = self.user(status.st_uid) if given.uid is None else given.uid
        gid = self.group(status.st_gid) if given.gid is None else given.gid
        if (mode, uid, gid) == (status.st_mode, status.st_uid, status.st_gid):
            return status
        if not isinstance(status, os.stat_result):
            return msgspec.structs.replace(status, st_mode=mode, st_uid=uid, st_gid=gid)
        reduced: Any = status.__reduce__()
        values, extra_fields = reduced[1]
        return os.stat_result((mode, *values[1:4], uid, gid, *values[6:]), extra_fields)

    def user(self, number: int) -> int:
        """Map a user id."""
        found = self._users(number)
        return number if found is None else found

    def group(self, number: int) -> int:
        """Map a group id."""
        found = self._groups(number)
        return number if found is None else found

    def mode(self, whole: int) -> int:
        """Return the new full mode (with the file type) for a full mode."""
        known = self._modes.get(whole)
        if known is None:
            known = self._modes[whole] = changed(whole, self._given.modes)
        return known

    def list(self, name: str, value: bytes, mode: int) -> bytes:
        """Return the new value of an extended attribute of a source with this full mode.

        Only ACLs change.
        """
        if name not in (acls.ACCESS, acls.DEFAULT):
            return value
        old = list(acls.entries_of(value))
        new = [(tag, rights, self._named(tag, number)) for tag, rights, number in old]
        if name == acls.ACCESS and self._given.modes:
            bits = self.mode(mode & ~_ALL | acls.mode_with(mode, value))
            new = _with_bits(new, bits)
        return value if new == old else acls.packed(_together(new))

    def _named(self, tag: int, number: int) -> int:
        if tag == acls.USER:
            return self.user(number)
        return self.group(number) if tag == acls.GROUP else number


@cache
def giver_of(given: Given) -> Giver:
    """Return the `Giver` for these changes; each process has only one, which caches its results."""
    return Giver(given)


def _with_bits(entries: list[tuple[int, int, int]], mode: int) -> list[tuple[int, int, int]]:
    """Return the ACL entries after a chmod."""
    group = acls.MASK if any(tag == acls.MASK for tag, _, _ in entries) else acls.OWNING_GROUP
    new = {acls.OWNER: mode >> 6 & 7, group: mode >> 3 & 7, acls.OTHER: mode & 7}
    return [(tag, new.get(tag, rights), number) for tag, rights, number in entries]


def _together(entries: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Sort ACL entries in the kernel's order, merging the entries of the same user or group."""
    found: dict[tuple[int, int], int] = {}
    for tag, rights, number in entries:
        found[tag, number] = found.get((tag, number), 7) & rights
    return [(tag, rights, number) for (tag, number), rights in sorted(found.items())]


def changed(whole: int, modes: Sequence[Bits]) -> int:
    """Apply the steps of a mode change to a full mode."""
    if stat.S_ISLNK(whole):
        return whole
    is_directory, executes = stat.S_ISDIR(whole), whole & _EXECUTE
    mode = whole & _ALL
    for bits in modes:
        if bits.of and (bits.of == "D") != is_directory:
            continue
        if bits.copies:
            rights = (mode >> _SHIFTS[bits.copies] & 7) * 0o111 & bits.given
            mode = mode & ~rights if bits.removes else mode & bits.retained | rights
            continue
        spared = _EXECUTE if bits.searches and not (executes or is_directory) else 0
        mode = mode & bits.retained | bits.given & ~spared
    return whole & ~_ALL | mode


def read_modes(text: str, umask: int) -> tuple[Bits, ...]:
    """Parse rsync's ``--chmod``; the umask applies to steps without a class. Raises ValueError."""
    return tuple(_bits(word, umask) for word in text.split(","))


def _type_of(kinds: set[str]) -> _FileType:
    return "D" if "D" in kinds else "F" if "F" in kinds else ""


def _class_of(what: str) -> _UserClass:
    return "u" if what == "u" else "g" if what == "g" else "o" if what == "o" else ""


def _bits(text: str, umask: int) -> Bits:
    """Parse one step: file types, classes, an operator and permissions, or an octal mode."""
    wrong = ValueError(f"invalid mode '{text}'")
    clause = text.lstrip("DF")
    kinds = set(text[: len(text) - len(clause)])
    if len(kinds) > 1:
        raise wrong
    of = _type_of(kinds)
    if clause and _OCTAL.issuperset(clause):
        if int(clause, 8) > _ALL:
            raise wrong
        return Bits(0, int(clause, 8), of)
    at = next((place for place, letter in enumerate(clause) if letter in "+-="), -1)
    who, what = clause[: max(at, 0)], clause[at + 1 :]
    copies = _class_of(what)
    if at < 0 or set(who) - {*_WHO, "D", "F"} or set(what) - {*_BITS, "s", "t", *copies}:
        raise wrong
    kinds |= set(who) & {"D", "F"}
    if len(kinds) > 1:
        raise wrong
    of = _type_of(kinds)
    if copies:
        return _copying(set(who) - kinds, clause[at], copies, of, umask)
    where = special = value = 0
    for letter in set(who) - kinds:
        where |= _WHO[letter][0]
        special |= _WHO[letter][1]
    for letter in set(what) & _BITS.keys():
        value |= _BITS[letter]
    set_id = (special or 0o4000) * ("s" in what) | 0o1000 * ("t" in what)
    value = where * value if where else 0o111 * value & ~umask
    searches = "X" in what
    if clause[at] == "+":
        return Bits(_ALL, value | set_id, of, searches)
    if clause[at] == "-":
        return Bits(_ALL & ~(value | set_id), 0, of, searches)
    preserved = _ALL & ~((where or 0o111) * 7) & ~(special if set_id else 0)
    return Bits(preserved, value | set_id, of, searches)


def _copying(who: set[str], operator: str, copies: _UserClass, of: _FileType, umask: int) -> Bits:
    """Return a step that grants or removes the rights of another class."""
    cleared = 0
    for letter in who or {"a"}:
        cleared |= _CLEARED[letter]
    given = cleared & 0o777 & ~(0 if who else umask)
    preserved = _ALL & ~cleared if operator == "=" else _ALL
    return Bits(preserved, given, of, copies=copies, removes=operator == "-")


def find_user_name(number: int) -> str | None:
    """Return the name of a user on this node, or None if the user has no name."""
    import pwd  # few runs need names

    try:
        return pwd.getpwuid(number).pw_name
    except (KeyError, OverflowError):
        return None


def find_group_name(number: int) -> str | None:
    """Return the name of a group on this node, or None if the group has no name."""
    import grp  # few runs need names

    try:
        return grp.getgrgid(number).gr_name
    except (KeyError, OverflowError):
        return None


def user_name(number: int) -> str:
    """Return the name of a user on this node, or the number as text."""
    return find_user_name(number) or str(number)


def group_name(number: int) -> str:
    """Return the name of a group on this node, or the number as text."""
    return find_group_name(number) or str(number)
