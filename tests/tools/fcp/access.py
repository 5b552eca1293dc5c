"""Random access control lists for tests, and the access that they grant.

Written from acl(5) and not from the behaviour of fcp: `allowed` is the algorithm by which access is
granted, `subjects` are all types of processes that a set of lists distinguishes.
"""

from __future__ import annotations

import itertools
import os
import random
import stat
import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pytest

ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"
NOBODY = 0xFFFFFFFF
OWNER, USER, OWNING_GROUP, GROUP, MASK, OTHER = 1, 2, 4, 8, 16, 32
USERS, GROUPS = (2, 3, 1001, 70_000), (5, 6, 2002)
STRANGER = 4_000_000


def drawn_seed() -> int:
    """Return a constant, or a new value with HYPOTHESIS_PROFILE=explore: see tests/conftest.py.

    A test fails because of the code or not at all.
    """
    explores = os.environ.get("HYPOTHESIS_PROFILE") == "explore"
    return random.randrange(1 << 32) if explores else 1


Entry = tuple[int, int, int]  # tag, rights, number


class Access(NamedTuple):
    """The access rights of an entry, which its copy must have."""

    owner: int
    group: int
    mode: int
    access: tuple[Entry, ...] = ()
    default: tuple[Entry, ...] = ()


class Subject(NamedTuple):
    """A process, by its user and its groups."""

    user: int
    groups: frozenset[int]


def pack(entries: Iterable[Entry]) -> bytes:
    """Return a list in the format of the kernel."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def unpack(value: bytes) -> tuple[Entry, ...]:
    """Return the entries of a list."""
    return tuple(struct.iter_unpack("<HHI", value[4:]))


def random_list(rng: random.Random, named: int = 3) -> bytes:
    """Return a list with a limited number of names; each right is granted at random."""
    users = rng.sample(USERS, rng.randint(0, min(named, len(USERS))))
    groups = rng.sample(GROUPS, rng.randint(0 if users else 1, min(named, len(GROUPS))))
    entries: list[Entry] = [(OWNER, rng.choice((7, 7, 6, rng.randrange(8))), NOBODY)]
    entries += [(USER, rng.randrange(8), number) for number in sorted(users)]
    entries.append((OWNING_GROUP, rng.randrange(8), NOBODY))
    entries += [(GROUP, rng.randrange(8), number) for number in sorted(groups)]
    entries.append((MASK, rng.choice((7, 7, rng.randrange(8))), NOBODY))
    return pack([*entries, (OTHER, rng.choice((0, rng.randrange(8))), NOBODY)])


def give(path: bytes, name: str, value: bytes) -> None:
    """Set a list; skip the test where the file system does not support it."""
    try:
        os.setxattr(path, name, value)
    except OSError as error:
        pytest.skip(f"the file system of the tests holds no {name}: {error}")


def access_of(path: bytes) -> Access:
    """Return the access rights of an entry."""
    lists = []
    for name in (ACCESS, DEFAULT):
        try:
            lists.append(unpack(os.getxattr(path, name, follow_symlinks=False)))
        except OSError:
            lists.append(())
    status = os.lstat(path)
    return Access(status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode), *lists)


def tree(root: bytes) -> dict[bytes, Access]:
    """Return the access rights of the root and all entries below it, by path."""
    found = {b".": access_of(root)}
    for above, directories, files in os.walk(root):
        for name in (*directories, *files):
            path = os.path.join(above, name)
            if not os.path.islink(path):
                found[os.path.relpath(path, root)] = access_of(path)
    return found


def allowed(entry: Access, who: Subject) -> int:
    """Return the rights of a process to an entry, by acl(5)."""
    mode = entry.mode
    acl = entry.access or (
        (OWNER, mode >> 6 & 7, NOBODY),
        (OWNING_GROUP, mode >> 3 & 7, NOBODY),
        (OTHER, mode & 7, NOBODY),
    )
    rights = {tag: right for tag, right, _ in acl}
    mask = rights.get(MASK, 7)
    if who.user == entry.owner:
        return rights[OWNER]
    for tag, right, number in acl:
        if tag == USER and number == who.user:
            return right & mask
    matching = [right for tag, right, _ in acl if tag == OWNING_GROUP and entry.group in who.groups]
    matching += [right for tag, right, number in acl if tag == GROUP and number in who.groups]
    if not matching:
        return rights[OTHER]
    # Several rights are granted by one entry together; a single right by any entry.
    return sum({bit for bit in (4, 2, 1) for right in matching if right & mask & bit})


def subjects(*entries: Access) -> Iterator[Subject]:
    """Yield distinguishable processes: named users and a stranger, in up to two named groups."""
    every = [entry for access in entries for entry in (*access.access, *access.default)]
    users = {number for tag, _, number in every if tag == USER} | {
        access.owner for access in entries
    }
    groups = {number for tag, _, number in every if tag == GROUP} | {
        access.group for access in entries
    }
    members = [(), *itertools.combinations(sorted(groups), 1)]
    members += itertools.combinations(sorted(groups), 2)
    for user in (*sorted(users), STRANGER):
        for memberships in members:
            yield Subject(user, frozenset(memberships))


def exceeds(copy: Access, source: Access) -> list[str]:
    """Return the processes except the owner with more access to the copy than to the source."""
    return [
        f"{who} may {allowed(copy, who):o}, not {allowed(source, who):o}"
        for who in subjects(copy, source)
        if who.user not in (copy.owner, source.owner) and allowed(copy, who) & ~allowed(source, who)
    ]


def keeps_groups_above_others(entry: Access) -> bool:
    """Return whether membership of a group never costs a right that others have."""
    groups = frozenset(n for tag, _, n in entry.access if tag == GROUP) | {entry.group}
    other = allowed(entry, Subject(STRANGER, frozenset()))
    return all(not other & ~allowed(entry, Subject(STRANGER, frozenset({n}))) for n in groups)


def falls_short(now: Access, before: Access, after: Access) -> list[str]:
    """Return the members of at most one group that lack access granted by both states.

    Users that a list names are assumed to be in no group: no list can express access that one state
    grants by one entry and the other state by another entry.
    """
    return [
        f"{who} may {allowed(now, who):o}, not {both:o}"
        for who in subjects(now, before, after)
        if not who.groups or (who.user == STRANGER and len(who.groups) == 1)
        if (both := allowed(before, who) & allowed(after, who)) & ~allowed(now, who)
    ]
