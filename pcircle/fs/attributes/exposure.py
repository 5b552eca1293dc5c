"""Withdraw rights that a source does not grant, before its content is written to the target.

An existing directory or file gets its new owner, mode and access control list (ACL) when its
content is complete. Until then it has the *common rights*, which both its old and its final state
grant. So no user can read new content that the source denies to them, or old content that the
target denied to them. With the exception below, no user temporarily loses a right that both states
grant.

Rights are compared per user and group, because a user or group may be named on one side only, and
the owner and owning group may change. Users and groups that are not named have the rights of the
class "other". A member of several groups may have a right through one group before and through
another group afterwards. No ACL can express that, so the right is withdrawn in the meantime.

The owner is changed first, because an owner may grant any right. Before that, an ACL that names the
old and the new owner is set, so that changing the owner neither grants nor withdraws rights.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from contextlib import suppress

import msgspec
from msgspec.structs import replace

from pcircle.fs.attributes import acls
from pcircle.fs.attributes.metadata import PreservedAttributes, can_give_group, chown_file
from pcircle.fs.attributes.xattrs import ExtendedAttributes

_ALL = 7
_EITHER_GROUP = -1  # stands for the owning group while it changes


class Rights(msgspec.Struct, frozen=True):
    """The permissions that each user and group has on an entry: its ACL with the mask applied.

    `groups` include the owning group.
    """

    uid: int
    gid: int
    owner: int
    other: int
    users: dict[int, int]
    groups: dict[int, int]

    @property
    def of_any_group(self) -> int:
        """Return the rights that any user who is not named has, whatever their groups."""
        found = self.other
        for right in self.groups.values():
            found &= right
        return found


class AccessState(msgspec.Struct, frozen=True):
    """The permission bits of an entry, and its access control list."""

    mode: int
    access: bytes | None


def withdraw(
    target: int | bytes,
    source: os.stat_result,
    keep: PreservedAttributes,
    held: ExtendedAttributes | None,
    *,
    rewritten: bool = False,
) -> bool:
    """Reduce the rights to an existing entry to those that its source grants as well.

    If ownership is preserved, the entry gets the owner and group of the source as far as permitted.
    `target` is an open descriptor or a path that leads to the entry; `held` contains the ACLs of
    the source. A file that will be `rewritten` loses its set-id bits in the meantime. Return
    whether anything was changed. Raises OSError.
    """
    if not keep.mode:  # ACLs are preserved only together with modes
        return False
    source, held = keep.status(source), keep.extended_attributes(source, held)
    status = os.stat(target)
    now = AccessState(stat.S_IMODE(status.st_mode), acls.read_list(target))
    old = _rights(status.st_uid, status.st_gid, now)
    final = _final_state(source, held)
    uid, gid = _owner_to_be(status, source, keep)
    special = now.mode & ~0o777 | source.st_mode & stat.S_ISVTX
    if rewritten:
        special &= ~(stat.S_ISUID | stat.S_ISGID)
    elif not stat.S_ISDIR(status.st_mode):
        special &= source.st_mode | stat.S_ISVTX
    needed = 6 if rewritten else 0  # a large file is reopened for writing
    changed = False
    if (uid, gid) != (old.uid, old.gid):
        new = _rights(uid, gid, final)
        between = _between(old, new, common(old, new, needed))
        now, changed = _give(target, now, _state(special, between)), True
        with suppress(OSError):  # setting it again at the end will report the failure
            chown_file(target, source)
        status = os.stat(target)
        now = AccessState(stat.S_IMODE(status.st_mode), acls.read_list(target))
        special &= now.mode  # chown has cleared the set-id bits of a file
    new = _rights(status.st_uid, status.st_gid, final)
    shared = common(old, new, needed)
    requested = _state(special, shared)
    if shared == _simplified(_rights(status.st_uid, status.st_gid, now)):
        # A different ACL may express the same rights.
        requested = AccessState(special | now.mode & 0o777, now.access)
    return _give(target, now, requested) != now or changed


def common(old: Rights, new: Rights, needed: int = 0) -> Rights:
    """Return the rights that both states grant, with the owner and group of the new state.

    If the owner is the user of this process, it keeps its rights and gets those `needed`, because
    it could grant them to itself at any time.
    """
    if old.uid != new.uid:
        owner = new.owner
    elif old.uid == os.geteuid():
        owner = old.owner | needed
    else:
        owner = old.owner & new.owner
    of_new = new.of_any_group
    groups = {
        gid: old.groups.get(gid, old.other) & new.groups.get(gid, of_new)
        for gid in {*old.groups, *new.groups}
    }
    of_old = {**old.users, old.uid: old.owner}
    named = {*old.users, *new.users} | ({old.uid} if old.uid != new.uid else set())
    users = {
        uid: of_old.get(uid, old.other) & new.users.get(uid, of_new) for uid in named - {new.uid}
    }
    return _simplified(Rights(new.uid, new.gid, owner, old.other & new.other, users, groups))


def _between(old: Rights, new: Rights, shared: Rights) -> Rights:
    """Return the rights to set before the owner changes; the change does not affect them."""
    owner = old.owner | new.owner if old.uid != new.uid else shared.owner
    users = dict(shared.users)
    if old.uid != new.uid:
        users[new.uid] = old.users.get(new.uid, old.other) & new.owner
    of_old, of_new = (shared.groups.get(gid, shared.other) for gid in (old.gid, new.gid))
    # The entry of the owning group applies to the old group at first, and then to the new group.
    groups = {**shared.groups, old.gid: of_old, new.gid: of_new, _EITHER_GROUP: of_old & of_new}
    return _simplified(Rights(old.uid, _EITHER_GROUP, owner, shared.other, users, groups))


def _simplified(rights: Rights) -> Rights:
    """Return the rights without redundant entries."""
    other, groups = rights.other, rights.groups
    for gid in sorted(groups.keys() - {rights.gid}):
        remaining = [right for other_gid, right in groups.items() if other_gid != gid]
        if groups[gid] == other and not any(other & ~right for right in remaining):
            groups = {key: right for key, right in groups.items() if key != gid}
    same = all(right == other for right in groups.values())
    users = {uid: right for uid, right in rights.users.items() if not (same and right == other)}
    return replace(rights, users=users, groups=groups)


def _rights(uid: int, gid: int, state: AccessState) -> Rights:
    entries = list(acls.entries_of(state.access or acls.list_of(state.mode)))
    mask = next((right for tag, right, _ in entries if tag == acls.MASK), _ALL)
    owner = other = 0
    users: dict[int, int] = {}
    groups: dict[int, int] = {}
    for tag, right, number in entries:
        if tag == acls.OWNER:
            owner = right
        elif tag == acls.OTHER:
            other = right
        elif tag == acls.USER:
            users[number] = right & mask
        elif tag in (acls.GROUP, acls.OWNING_GROUP):
            of = gid if tag == acls.OWNING_GROUP else number
            groups[of] = groups.get(of, 0) | right & mask
    users.pop(uid, None)  # the owner's entry takes precedence
    return Rights(uid, gid, owner, other, users, groups)


def _state(special: int, rights: Rights) -> AccessState:
    """Return the mode and the ACL that express rights."""
    named = [(acls.USER, right, uid) for uid, right in sorted(rights.users.items())]
    groups = sorted((gid, right) for gid, right in rights.groups.items() if gid != rights.gid)
    named_groups = [(acls.GROUP, right, gid) for gid, right in groups]
    owning = rights.groups[rights.gid]
    if not (named or named_groups):
        return AccessState(special | rights.owner << 6 | owning << 3 | rights.other, None)
    mask = owning
    for _, right, _ in (*named, *named_groups):
        mask |= right
    entries: Iterable[tuple[int, int, int]] = (
        (acls.OWNER, rights.owner, acls.NOBODY),
        *named,
        (acls.OWNING_GROUP, owning, acls.NOBODY),
        *named_groups,
        (acls.MASK, mask, acls.NOBODY),
        (acls.OTHER, rights.other, acls.NOBODY),
    )
    return AccessState(special | rights.owner << 6 | mask << 3 | rights.other, acls.packed(entries))


def _final_state(source: os.stat_result, held: ExtendedAttributes | None) -> AccessState:
    """Return the final mode and ACL of the entry."""
    mode = stat.S_IMODE(source.st_mode)
    access = None if held is None else held.acl(acls.ACCESS)
    return AccessState(mode if access is None else acls.mode_with(mode, access), access)


def _owner_to_be(
    old: os.stat_result, source: os.stat_result, keep: PreservedAttributes
) -> tuple[int, int]:
    """Return the owner and the group that this process can give the entry."""
    if not keep.ownership:
        return old.st_uid, old.st_gid
    if not os.geteuid():
        return source.st_uid, source.st_gid
    return old.st_uid, source.st_gid if can_give_group(old, source.st_gid) else old.st_gid


def _give(target: int | bytes, now: AccessState, requested: AccessState) -> AccessState:
    """Change an entry from one state to another; return its new state. Raises OSError."""
    if now == requested:
        return now
    if requested.access is not None:
        try:
            os.setxattr(target, acls.ACCESS, requested.access)
        except OSError:  # ACLs are not supported: the mode grants no user more
            requested = AccessState(acls.mode_without(requested.mode, requested.access), None)
    if requested.access is None and now.access is not None:
        acls.replace_list(target, requested.mode)
    os.chmod(target, requested.mode)
    return requested
