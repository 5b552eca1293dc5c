"""Access control lists for tests: made at random, and what they allow to whom.

Written after acl(5) and not after what fcp does: `allowed` is the algorithm by which access is
granted, `subjects` are all the kinds of processes that a set of lists tells apart.
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
    """The same in each run, or another one with HYPOTHESIS_PROFILE=explore: see tests/conftest.py.

    A test fails because of the code or not at all.
    """
    explores = os.environ.get("HYPOTHESIS_PROFILE") == "explore"
    return random.randrange(1 << 32) if explores else 1


Entry = tuple[int, int, int]  # tag, rights, number


class Access(NamedTuple):
    """All that decides who may do what with an entry: its kind aside, what a copy is to have."""

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
    """A list as the kernel has it."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def unpack(value: bytes) -> tuple[Entry, ...]:
    """The entries of a list."""
    return tuple(struct.iter_unpack("<HHI", value[4:]))


def random_list(rng: random.Random, named: int = 3) -> bytes:
    """A list that names up to so many; each right of each entry is given or not."""
    users = rng.sample(USERS, rng.randint(0, min(named, len(USERS))))
    groups = rng.sample(GROUPS, rng.randint(0 if users else 1, min(named, len(GROUPS))))
    entries: list[Entry] = [(OWNER, rng.choice((7, 7, 6, rng.randrange(8))), NOBODY)]
    entries += [(USER, rng.randrange(8), number) for number in sorted(users)]
    entries.append((OWNING_GROUP, rng.randrange(8), NOBODY))
    entries += [(GROUP, rng.randrange(8), number) for number in sorted(groups)]
    entries.append((MASK, rng.choice((7, 7, rng.randrange(8))), NOBODY))
    return pack([*entries, (OTHER, rng.choice((0, rng.randrange(8))), NOBODY)])


def give(path: bytes, name: str, value: bytes) -> None:
    """Set a list; skips the test where the file system holds none."""
    try:
        os.setxattr(path, name, value)
    except OSError as error:
        pytest.skip(f"the file system of the tests holds no {name}: {error}")


def access_of(path: bytes) -> Access:
    """What decides who may do what with an entry."""
    lists = []
    for name in (ACCESS, DEFAULT):
        try:
            lists.append(unpack(os.getxattr(path, name, follow_symlinks=False)))
        except OSError:
            lists.append(())
    status = os.lstat(path)
    return Access(status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode), *lists)


def tree(root: bytes) -> dict[bytes, Access]:
    """That of all entries below and of the root itself, by path."""
    found = {b".": access_of(root)}
    for above, directories, files in os.walk(root):
        for name in (*directories, *files):
            path = os.path.join(above, name)
            if not os.path.islink(path):
                found[os.path.relpath(path, root)] = access_of(path)
    return found


def allowed(entry: Access, who: Subject) -> int:
    """The rights that a process has to an entry, as acl(5) says."""
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
    # Rights are granted by one entry together; each of them alone by any.
    return sum({bit for bit in (4, 2, 1) for right in matching if right & mask & bit})


def subjects(*entries: Access) -> Iterator[Subject]:
    """Whom these tell apart: each user named and a stranger, in up to two of the groups named."""
    every = [entry for each in entries for entry in (*each.access, *each.default)]
    users = {number for tag, _, number in every if tag == USER} | {each.owner for each in entries}
    groups = {number for tag, _, number in every if tag == GROUP} | {each.group for each in entries}
    members = [(), *itertools.combinations(sorted(groups), 1)]
    members += itertools.combinations(sorted(groups), 2)
    for user in (*sorted(users), STRANGER):
        for some in members:
            yield Subject(user, frozenset(some))


def exceeds(copy: Access, source: Access) -> list[str]:
    """Who but the owner has more of the one than of the other."""
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
    """Return who lacks what two states grant, among members of at most one group.

    Users that a list names are taken to be members of none: no list can express what a state
    grants by one entry and the other state by another one.
    """
    return [
        f"{who} may {allowed(now, who):o}, not {both:o}"
        for who in subjects(now, before, after)
        if not who.groups or (who.user == STRANGER and len(who.groups) == 1)
        if (both := allowed(before, who) & allowed(after, who)) & ~allowed(now, who)
    ]
