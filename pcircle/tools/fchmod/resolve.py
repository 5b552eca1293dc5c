"""The new state of an entry, computed from its current state without system calls.

The steps are owner and group, set-id bits as the change of owner leaves them, mode, and access
control lists. The result is the same as after `chown`, `chmod` and `setfacl`, in that order.

Access control lists are edited in the text form of `setfacl`. An edit is an entry of the text: a
tag, a name and, unless the entry is removed, permissions. `edited` changes a list as `setfacl -m`
and `-x` do. The permission `X` grants execution if some entry of the list already grants it or if
the list belongs to a directory. Unless an edit names the mask, the mask of a list that has or needs
one becomes the union of the entries that it limits.
"""

# Annotations are evaluated here, because otherwise msgspec would compile them in every rank.
import os
import stat
from collections import Counter
from collections.abc import Callable, Sequence
from functools import reduce
from operator import or_
from typing import Literal

import msgspec

from pcircle.core.encoding import show
from pcircle.fs.attributes import acls
from pcircle.fs.attributes.modes import SET_ID, parse_mode
from pcircle.fs.attributes.owners import IdMap, IdRule
from pcircle.fs.entry_errors import EntryError
from pcircle.tools.fchmod.state import EntryState, with_set_id_cleared

_TAGS = {
    "u": (acls.OWNER, acls.USER),
    "g": (acls.OWNING_GROUP, acls.GROUP),
    "m": (acls.MASK, 0),
    "o": (acls.OTHER, 0),
}
_WORDS = {"user": "u", "group": "g", "mask": "m", "other": "o"}
_RIGHTS = {"r": 4, "w": 2, "x": 1, "-": 0, "X": 0}
_LIMITED = (acls.USER, acls.OWNING_GROUP, acls.GROUP)
_BASE_TAGS = (acls.OWNER, acls.OWNING_GROUP, acls.OTHER)

Entries = dict[tuple[int, int], int]
"""Permissions by tag and id; the id is `NOBODY` for tags without a name."""


class Edit(msgspec.Struct, frozen=True, array_like=True):
    """An entry to set or, if `removes` is set, to remove.

    `searches` means that the permissions contain `X`.
    """

    tag: int
    number: int
    rights: int
    searches: bool = False
    removes: bool = False
    default: bool = False


def read_edits(
    text: str,
    number_of: Callable[[str, str], int],
    *,
    removes: bool = False,
    default: bool = False,
) -> tuple[Edit, ...]:
    """Parse the text of `setfacl -m` or, if `removes` is set, of `setfacl -x`.

    `number_of` returns the id of a user ("u") or a group ("g") by name. If `default` is set, as
    with `-d`, all entries belong to default lists; otherwise only those with the prefix `d:` do.
    Raise ValueError if the text is invalid.
    """
    words = [word.strip() for word in text.replace("\n", ",").split(",")]
    found = tuple(_edit(word, number_of, removes, default) for word in words if word)
    if not found:
        raise ValueError("no entry")
    return found


def _edit(text: str, number_of: Callable[[str, str], int], removes: bool, default: bool) -> Edit:
    fields = text.split(":")
    if fields[0] in ("d", "default"):
        default, fields = True, fields[1:]
    kind = _WORDS.get(fields[0], fields[0]) if fields else ""
    if kind not in _TAGS and not removes and len(fields) == 2:
        kind, fields = "u", ["u", *fields]  # a bare name is a user
    if kind not in _TAGS or len(fields) < 2 - removes:
        raise _invalid(text)
    of_all, of_one = _TAGS[kind]
    if of_one and len(fields) > 1:
        name, rights = fields[1], fields[2:]
    else:  # the empty name of a mask or of `other` may be omitted
        name, rights = "", fields[2:] if len(fields) > 2 and not fields[1] else fields[1:]
        rights = [right for right in rights if right] if removes else rights
    if bool(rights) == removes or len(rights) > 1:
        raise _invalid(text)
    tag, number = (of_one, number_of(kind, name)) if name else (of_all, acls.NOBODY)
    if removes:
        return Edit(tag, number, 0, False, True, default)
    value, searches = _rights(rights[0], text)
    return Edit(tag, number, value, searches, False, default)


def _invalid(text: str) -> ValueError:
    return ValueError(f"invalid entry '{show(os.fsencode(text))}'")


def _rights(text: str, whole: str) -> tuple[int, bool]:
    if len(text) == 1 and text in "01234567":
        return int(text), False
    if not text or set(text) - set(_RIGHTS):
        raise _invalid(whole)
    return reduce(or_, (_RIGHTS[letter] for letter in text)), "X" in text


def _entries_of(access: bytes) -> Entries:
    return {(tag, number): right for tag, right, number in acls.entries_of(access)}


def _base(found: Entries) -> Entries:
    return {(tag, acls.NOBODY): found[tag, acls.NOBODY] for tag in _BASE_TAGS}


def minimal(mode: int) -> Entries:
    """Return the access control list that is equivalent to a mode."""
    bits = ((acls.OWNER, mode >> 6), (acls.OWNING_GROUP, mode >> 3), (acls.OTHER, mode))
    return {(tag, acls.NOBODY): right & 7 for tag, right in bits}


def entries(access: bytes | None, mode: int) -> Entries:
    """Return the entries of an access list, adjusted to the mode of the file.

    The mode prevails, because `chmod` would change the list. If there is no list, return the
    equivalent of the mode.
    """
    if access is None:
        return minimal(mode)
    found = _entries_of(access)
    group = acls.MASK if (acls.MASK, acls.NOBODY) in found else acls.OWNING_GROUP
    for tag, shift in ((acls.OWNER, 6), (group, 3), (acls.OTHER, 0)):
        found[tag, acls.NOBODY] = mode >> shift & 7
    return found


def edited(found: Entries, edits: Sequence[Edit], *, is_directory: bool) -> Entries:
    """Return the list that results from edits; raise ValueError if it is invalid."""
    found = dict(found)
    for edit in edits:
        key = edit.tag, edit.number
        if edit.removes:
            found.pop(key, None)
            continue
        executes = edit.searches and (is_directory or any(right & 1 for right in found.values()))
        found[key] = edit.rights | executes
    names = any(tag in (acls.USER, acls.GROUP) for tag, _ in found)
    if names or (acls.MASK, acls.NOBODY) in found:
        found.setdefault((acls.MASK, acls.NOBODY), found.get((acls.OWNING_GROUP, acls.NOBODY), 0))
        if not any(edit.tag == acls.MASK for edit in edits):
            limited = [right for (tag, _), right in found.items() if tag in _LIMITED]
            found[acls.MASK, acls.NOBODY] = reduce(or_, limited, 0)
    missing = [tag for tag in _BASE_TAGS if (tag, acls.NOBODY) not in found]
    if missing or (names and (acls.MASK, acls.NOBODY) not in found):
        raise ValueError("the list would lack an entry for the owner, group, others or mask")
    return found


def without_names(found: Entries) -> Entries:
    """Return a list as after `setfacl -b`; the owning group keeps its effective permissions."""
    bare = _base(found)
    bare[acls.OWNING_GROUP, acls.NOBODY] &= found.get((acls.MASK, acls.NOBODY), 7)
    return bare


def bits_of(found: Entries) -> int:
    """Return the nine permission bits of the mode that a list implies."""
    group = found.get((acls.MASK, acls.NOBODY), found[acls.OWNING_GROUP, acls.NOBODY])
    return found[acls.OWNER, acls.NOBODY] << 6 | group << 3 | found[acls.OTHER, acls.NOBODY]


def as_access(found: Entries) -> bytes | None:
    """Return an access list in kernel form, or None if the mode is equivalent."""
    if all(tag in _BASE_TAGS for tag, _ in found):
        return None
    return as_default(found)


def as_default(found: Entries) -> bytes:
    """Return a default list in kernel form."""
    order = sorted(found.items())
    return acls.packed((tag, right, number) for (tag, number), right in order)


class ChangeRequest(msgspec.Struct, frozen=True, array_like=True):
    """The requested change, independent of the current state of an entry.

    `directory_mode` and `other_mode` are modes as typed, subject to `umask`, or None to keep the
    mode. `uid` and `gid` are the new ids unless they are None. `users` and `groups` map current
    ids. If `from_uid` or `from_gid` is given, entries with other ids are not changed. `edits`
    change access control lists, and `no_lists` removes them. When the owner of a file changes, its
    set-id bits are cleared if `set_id` is "clear" and kept if it is "keep". If it is "none", those
    of all files are cleared.
    """

    directory_mode: str | None = None
    other_mode: str | None = None
    umask: int = 0
    uid: int | None = None
    gid: int | None = None
    from_uid: int | None = None
    from_gid: int | None = None
    users: tuple[IdRule, ...] = ()
    groups: tuple[IdRule, ...] = ()
    edits: tuple[Edit, ...] = ()
    no_lists: bool = False
    set_id: Literal["clear", "keep", "none"] = "clear"

    @property
    def owns(self) -> bool:
        """Return whether owners or groups may change."""
        return self.uid is not None or self.gid is not None or bool(self.users or self.groups)

    @property
    def sets_owner_alone(self) -> bool:
        """Return whether the request only sets the same owner or group for all entries."""
        modes = self.directory_mode is not None or self.other_mode is not None
        fixed = self.uid is not None or self.gid is not None
        maps = bool(self.users or self.groups)
        return fixed and not (modes or maps or self.lists) and self.set_id == "clear"

    @property
    def lists(self) -> bool:
        """Return whether access control lists may change."""
        return bool(self.edits) or self.no_lists


NameOf = Callable[[int], str]


class CountingIdMap:
    """A map of ids; `unmapped` counts the ids for which there is no rule."""

    def __init__(self, rules: Sequence[IdRule], name_of: NameOf) -> None:
        self._rules = rules
        self._found = IdMap(rules, name_of)
        self.unmapped: Counter[int] = Counter()

    def __call__(self, number: int) -> int:
        """Return the new id."""
        if not self._rules:
            return number
        to = self._found(number)
        if to is None:
            self.unmapped[number] += 1
            return number
        return to


class StateResolver:
    """Computes the new states of entries, for one thread."""

    def __init__(
        self, request: ChangeRequest, user_of: NameOf, group_of: NameOf, *, force: bool = False
    ) -> None:
        self._request = request
        self._forces_owner = force and request.owns
        self._changes = {
            is_directory: None if text is None else parse_mode(text, request.umask)
            for is_directory, text in ((True, request.directory_mode), (False, request.other_mode))
        }
        self.users: CountingIdMap = CountingIdMap(request.users, user_of)
        self.groups: CountingIdMap = CountingIdMap(request.groups, group_of)
        self._modes: dict[int, int] = {}  # new permission bits by full mode, including the type
        # If so, the entry must not be replaced between the look-up and the change.
        self.depends: bool = bool(
            request.users or request.groups or request.lists or request.from_uid is not None or
            request.from_gid is not None
        )  # fmt: skip

        self.is_uniform: bool = _is_uniform(request)

    def selects(self, uid: int, gid: int) -> bool:
        """Return whether `--from` selects an entry."""
        request = self._request
        return request.from_uid in (None, uid) and request.from_gid in (None, gid)

    def mode(self, whole: int) -> int:
        """Return the new permission bits for a full mode if only the mode changes."""
        known = self._modes.get(whole)
        if known is None:
            is_directory = stat.S_ISDIR(whole)
            change, known = self._changes[is_directory], stat.S_IMODE(whole)
            if change is not None:
                known = change.of(known, is_directory=is_directory)
            if self._request.set_id == "none" and stat.S_ISREG(whole):
                known &= ~SET_ID
            self._modes[whole] = known
        return known

    def of(self, kind: int, old: EntryState) -> EntryState:
        """Return the new state of an entry; raise EntryError if its new list would be invalid."""
        request = self._request
        uid = self.users(old.uid) if request.uid is None else request.uid
        gid = self.groups(old.gid) if request.gid is None else request.gid
        if kind == stat.S_IFLNK:
            return old._replace(uid=uid, gid=gid)
        mode = old.mode
        owns = (uid, gid) != (old.uid, old.gid) or self._forces_owner
        if owns and kind != stat.S_IFDIR and request.set_id != "keep":
            mode = with_set_id_cleared(mode)
        mode = self.mode(kind | mode)
        new = old._replace(uid=uid, gid=gid, mode=mode)
        return self._with_lists(kind, new) if request.lists else new

    def _with_lists(self, kind: int, new: EntryState) -> EntryState:
        is_directory = kind == stat.S_IFDIR
        found = entries(new.access, new.mode)
        default = None if new.default is None else _entries_of(new.default)
        if self._request.no_lists:
            found, default = without_names(found), None
        edits = self._request.edits
        of_access = [edit for edit in edits if not edit.default]
        of_default = [edit for edit in edits if edit.default]
        try:
            if of_access:
                found = edited(found, of_access, is_directory=is_directory)
            if (
                of_default
                and is_directory
                and (default is not None or not all(edit.removes for edit in of_default))
            ):
                begun = {**_base(found), **(default or {})}
                default = edited(begun, of_default, is_directory=is_directory)
        except ValueError as error:
            raise EntryError("access control list", str(error)) from None
        return new._replace(
            mode=new.mode & ~0o777 | bits_of(found),
            access=as_access(found),
            default=None if default is None else as_default(default),
        )


def _is_uniform(request: ChangeRequest) -> bool:
    """Return whether all entries receive the same mode, or all keep their modes."""
    mode = request.other_mode
    if mode != request.directory_mode:
        return False
    return request.set_id != "none" if mode is None else mode.isdecimal()
