"""Access control lists as `setfacl` has them in text, and what its options make of a list.

An edit is an entry of such a text: a tag, whom it names, and rights; of one that is to be removed
the rights are missing. `edited` does to a list what `setfacl -m` and `-x` do: rights of `X` count
where a right to execute is there or the entry is a directory, and the mask becomes what the
entries that it limits have together, unless it was given itself.
"""

# Annotations are evaluated here, once: otherwise msgspec compiles each of them in every rank.
import os
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from pcircle.acls import GROUP, MASK, NOBODY, OTHER, OWNER, OWNING_GROUP, USER, entries_of, packed
from pcircle.ui.names import show

_TAGS = {"u": (OWNER, USER), "g": (OWNING_GROUP, GROUP), "m": (MASK, 0), "o": (OTHER, 0)}
_WORDS = {"user": "u", "group": "g", "mask": "m", "other": "o"}
_RIGHTS = {"r": 4, "w": 2, "x": 1, "-": 0, "X": 0}
_LIMITED = (USER, OWNING_GROUP, GROUP)
_BASE = (OWNER, OWNING_GROUP, OTHER)

Entries = dict[tuple[int, int], int]
"""Rights by tag and the number of whom it names, `NOBODY` where it names none."""


class Edit(msgspec.Struct, frozen=True, array_like=True):
    """An entry that is set; with `removes` one that goes. `searches` tells of an `X`."""

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
    """The entries of a text as of `setfacl -m` or, if it `removes`, `-x`. ValueError.

    `number_of` finds a user ("u") or a group ("g") by name. With `default` all are of default
    lists, as with `-d`; else those that say so.
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
        kind, fields = "u", ["u", *fields]  # a name alone is a user's
    if kind not in _TAGS or len(fields) < 2 - removes:
        raise _invalid(text)
    of_all, of_one = _TAGS[kind]
    if of_one and len(fields) > 1:
        name, rights = fields[1], fields[2:]
    else:  # of a mask and of others the empty name may be missing
        name, rights = "", fields[2:] if len(fields) > 2 and not fields[1] else fields[1:]
        rights = [right for right in rights if right] if removes else rights
    if bool(rights) == removes or len(rights) > 1:
        raise _invalid(text)
    tag, number = (of_one, number_of(kind, name)) if name else (of_all, NOBODY)
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
    """The list that a mode alone is."""
    bits = ((OWNER, mode >> 6), (OWNING_GROUP, mode >> 3), (OTHER, mode))
    return {(tag, NOBODY): right & 7 for tag, right in bits}


def entries(access: bytes | None, mode: int) -> Entries:
    """The entries of an access list, or of a mode where there is none.

    The mode counts, as `chmod` would change the list.
    """
    if access is None:
        return minimal(mode)
    found = {(tag, number): right for tag, right, number in entries_of(access)}
    group = MASK if (MASK, NOBODY) in found else OWNING_GROUP
    for tag, shift in ((OWNER, 6), (group, 3), (OTHER, 0)):
        found[tag, NOBODY] = mode >> shift & 7
    return found


def edited(found: Entries, edits: Sequence[Edit], *, is_directory: bool) -> Entries:
    """A list after these edits. ValueError if it would make no sense."""
    found = dict(found)
    for edit in edits:
        key = edit.tag, edit.number
        if edit.removes:
            found.pop(key, None)
            continue
        executes = edit.searches and (is_directory or any(right & 1 for right in found.values()))
        found[key] = edit.rights | executes
    names = any(tag in (USER, GROUP) for tag, _ in found)
    if names or (MASK, NOBODY) in found:
        found.setdefault((MASK, NOBODY), found.get((OWNING_GROUP, NOBODY), 0))
        if not any(edit.tag == MASK for edit in edits):
            limited = [right for (tag, _), right in found.items() if tag in _LIMITED]
            found[MASK, NOBODY] = _together(limited)
    missing = [tag for tag in _BASE if (tag, NOBODY) not in found]
    if missing or (names and (MASK, NOBODY) not in found):
        raise ValueError("the list would have no entry for the owner, the group, others or a mask")
    return found


def _together(rights: Sequence[int]) -> int:
    value = 0
    for right in rights:
        value |= right
    return value


def without_names(found: Entries) -> Entries:
    """A list as of `setfacl -b`: what the owning group really has, it keeps."""
    bare = {(tag, NOBODY): found[tag, NOBODY] for tag in _BASE}
    bare[OWNING_GROUP, NOBODY] &= found.get((MASK, NOBODY), 7)
    return bare


def bits_of(found: Entries) -> int:
    """The nine bits of the mode that goes with a list."""
    group = found.get((MASK, NOBODY), found[OWNING_GROUP, NOBODY])
    return found[OWNER, NOBODY] << 6 | group << 3 | found[OTHER, NOBODY]


def as_access(found: Entries) -> bytes | None:
    """A list as the kernel has it; None if the mode alone says the same."""
    if all(tag in _BASE for tag, _ in found):
        return None
    return as_default(found)


def as_default(found: Entries) -> bytes:
    """The same of a default list, which is one in any case."""
    order: list[Any] = sorted(found.items())
    return packed((tag, right, number) for (tag, number), right in order)
