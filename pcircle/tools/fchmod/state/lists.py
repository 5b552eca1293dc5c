"""Access control lists in the text form of `setfacl`, and their edits.

An edit is an entry of the text: a tag, a name and, unless the entry is removed, permissions.
`edited` changes a list as `setfacl -m` and `-x` do. The permission `X` grants execution if some
entry of the list already grants it or if the list belongs to a directory. Unless an edit names the
mask, the mask of a list that has or needs one becomes the union of the entries that it limits.
"""

# Annotations are evaluated here, because otherwise msgspec would compile them in every rank.
import os
from collections.abc import Callable, Sequence

import msgspec

from pcircle.core.encoding import show
from pcircle.fs.attributes import acls

_TAGS = {
    "u": (acls.OWNER, acls.USER),
    "g": (acls.OWNING_GROUP, acls.GROUP),
    "m": (acls.MASK, 0),
    "o": (acls.OTHER, 0),
}
_WORDS = {"user": "u", "group": "g", "mask": "m", "other": "o"}
_RIGHTS = {"r": 4, "w": 2, "x": 1, "-": 0, "X": 0}
_LIMITED = (acls.USER, acls.OWNING_GROUP, acls.GROUP)
_BASE = (acls.OWNER, acls.OWNING_GROUP, acls.OTHER)

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
    value = 0
    for letter in text:
        value |= _RIGHTS[letter]
    return value, "X" in text


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
    found = {(tag, number): right for tag, right, number in acls.entries_of(access)}
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
            found[acls.MASK, acls.NOBODY] = _together(limited)
    missing = [tag for tag in _BASE if (tag, acls.NOBODY) not in found]
    if missing or (names and (acls.MASK, acls.NOBODY) not in found):
        raise ValueError("the list would lack an entry for the owner, group, others or mask")
    return found


def _together(rights: Sequence[int]) -> int:
    value = 0
    for right in rights:
        value |= right
    return value


def without_names(found: Entries) -> Entries:
    """Return a list as after `setfacl -b`; the owning group keeps its effective permissions."""
    bare = {(tag, acls.NOBODY): found[tag, acls.NOBODY] for tag in _BASE}
    bare[acls.OWNING_GROUP, acls.NOBODY] &= found.get((acls.MASK, acls.NOBODY), 7)
    return bare


def bits_of(found: Entries) -> int:
    """Return the nine permission bits of the mode that a list implies."""
    group = found.get((acls.MASK, acls.NOBODY), found[acls.OWNING_GROUP, acls.NOBODY])
    return found[acls.OWNER, acls.NOBODY] << 6 | group << 3 | found[acls.OTHER, acls.NOBODY]


def as_access(found: Entries) -> bytes | None:
    """Return an access list in kernel form, or None if the mode is equivalent."""
    if all(tag in _BASE for tag, _ in found):
        return None
    return as_default(found)


def as_default(found: Entries) -> bytes:
    """Return a default list in kernel form."""
    order = sorted(found.items())
    return acls.packed((tag, right, number) for (tag, number), right in order)
