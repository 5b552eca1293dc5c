"""Set the attributes of copies, in an order that grants no access too early.

The owner comes first, because changing it clears the set-id bits and capabilities. Extended
attributes and access control lists (ACLs) follow, then the mode, which restores the set-id bits,
and then the times. Inode flags (`pcircle.fs.attributes.xattrs`) come last, because they may forbid
all other changes. A file whose mode is preserved has mode 0600 until its final mode is set, so it
is accessible to no other user. The exception is a file that was created with its final owner and
mode. An inherited ACL has no effect during that time, because the group bits are its mask, and it
is replaced before the mode is set. From an existing entry, `pcircle.fs.attributes.exposure` has
already withdrawn the rights that its source does not grant.

Changing the owner requires privilege. For unprivileged users, as with cp, only the group is changed
if possible, and a failure is not reported. A copy whose owner or group differs from that of the
source does not get the set-id bits.
"""

# Annotations are not deferred, because msgspec would compile each of them on every rank.
import errno
import os
import stat
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec.structs import replace

from pcircle.fs.attributes import xattrs
from pcircle.fs.attributes.acls import give_access, without_group
from pcircle.fs.attributes.owners import Given, giver_of

if TYPE_CHECKING:
    from pcircle.fs.status import FileStatus

SET_ID_BITS = stat.S_ISUID | stat.S_ISGID
_MODE_BITS = 0o7777
_NOT_ALLOWED = (errno.EPERM, errno.EINVAL)

S = TypeVar("S")


class PreservedAttributes(msgspec.Struct, frozen=True, array_like=True):
    """The attributes that a copy preserves. `mode` and `acl` are preserved only together.

    With `special`, FIFOs, sockets and devices are copied. With `stripe`, Lustre layouts are
    preserved if source and target are on Lustre. With `xattr_demanded`, `acl_demanded` or
    `stripe_demanded`, an entry fails if its attributes of that kind cannot be preserved. `given`
    defines owners and modes that replace those of the sources.
    """

    mode: bool = False
    ownership: bool = False
    timestamps: bool = False
    xattr: bool = False
    acl: bool = False
    links: bool = False
    flags: bool = False
    special: bool = False
    xattr_demanded: bool = False
    acl_demanded: bool = False
    stripe: bool = False
    stripe_demanded: bool = False
    given: Given | None = None

    @property
    def any(self) -> bool:
        """Return whether copies are given any attributes after their creation."""
        basic = self.mode or self.ownership or self.timestamps
        return basic or self.xattr or self.acl or self.flags

    def status(self, source: S) -> S:
        """Return a source's status, with owner, group and mode replaced by those of its copy."""
        return source if self.given is None else giver_of(self.given).status(source)

    def extended_attributes(
        self, source: "FileStatus", held: xattrs.ExtendedAttributes | None
    ) -> xattrs.ExtendedAttributes | None:
        """Return a source's extended attributes, with ACLs replaced by those of its copy."""
        if held is None or self.given is None:
            return held
        given, mode = giver_of(self.given), source.st_mode
        return replace(held, values=[(name, given.list(name, v, mode)) for name, v in held.values])


def settle_file(
    fd: int | bytes,
    source: os.stat_result,
    keep: PreservedAttributes,
    held: xattrs.ExtendedAttributes | None = None,
    made: os.stat_result | None = None,
) -> list[xattrs.AttributeLoss]:
    """Set the attributes of an open file, or of a path, except inode flags.

    `made` is the status of a file that this job has created with access only for its owner. If it
    already has the right owner and group, these are not set again. Return the attributes that could
    not be preserved. Raises OSError.
    """
    source, held = keep.status(source), keep.extended_attributes(source, held)
    refused: list[xattrs.AttributeLoss] = []
    mode = source.st_mode & _MODE_BITS
    is_right = made is not None and made.st_uid == source.st_uid and made.st_gid == source.st_gid
    if keep.ownership and not is_right:
        try:
            os.chown(fd, source.st_uid, source.st_gid)
        except OSError as error:
            if not _chown_group(fd, source, error):
                mode &= ~SET_ID_BITS
    if held is not None:
        refused = xattrs.give_attributes(fd, held)
        if keep.acl:
            directory = stat.S_ISDIR(source.st_mode)
            mode = xattrs.give_lists(fd, held, mode, refused, directory=directory)
    if keep.mode:
        os.chmod(fd, mode)
    if keep.timestamps:
        os.utime(fd, ns=(source.st_atime_ns, source.st_mtime_ns))
    return refused


def can_give_group(old: os.stat_result, gid: int) -> bool:
    """Return whether an unprivileged user can change the group of an entry with this status."""
    return old.st_uid == os.geteuid() and gid in (os.getegid(), *os.getgroups())


def chown_file(fd: int | bytes, source: os.stat_result) -> bool:
    """Give an entry the source's owner and group; return whether it now has both."""
    try:
        os.chown(fd, source.st_uid, source.st_gid)
    except OSError as error:
        return _chown_group(fd, source, error)
    return True


def _chown_group(fd: int | bytes, source: os.stat_result, error: OSError) -> bool:
    """Set only the group, because setting the owner failed with `error`; see `chown_file`."""
    if error.errno not in _NOT_ALLOWED or not os.geteuid():
        raise error
    try:
        os.chown(fd, -1, source.st_gid)
    except OSError as second_error:
        if second_error.errno not in _NOT_ALLOWED:
            raise
    now = os.stat(fd)
    return (now.st_uid, now.st_gid) == (source.st_uid, source.st_gid)


def settle_link(path: bytes, source: os.stat_result, keep: PreservedAttributes) -> None:
    """Set the owner and times of a symbolic link; `path` must resolve to the link itself."""
    source = keep.status(source)
    if keep.ownership:
        chown_file(path, source)
    if keep.timestamps:
        os.utime(path, ns=(source.st_atime_ns, source.st_mtime_ns))


def settle_link_at(
    name: bytes, dir_fd: int, source: os.stat_result, keep: PreservedAttributes, *, owned: bool
) -> None:
    """Set the owner, unless `owned`, and times of a link whose name no other user can change."""
    source = keep.status(source)
    if keep.ownership and not owned:
        _chown_name(name, dir_fd, source)
    if keep.timestamps:
        times = source.st_atime_ns, source.st_mtime_ns
        os.utime(name, ns=times, dir_fd=dir_fd, follow_symlinks=False)


def settle_searched(dir_fd: int, source: os.stat_result, keep: PreservedAttributes) -> None:
    """Set the attributes of a directory that was opened with `O_PATH`.

    All calls use its entry `.`, which the new mode may make inaccessible, so the mode is set last.
    """
    source = keep.status(source)
    mode = stat.S_IMODE(source.st_mode)
    if keep.ownership and not _chown_name(b".", dir_fd, source):
        mode &= ~SET_ID_BITS
    if keep.timestamps:
        os.utime(b".", ns=(source.st_atime_ns, source.st_mtime_ns), dir_fd=dir_fd)
    if keep.mode:
        os.chmod(b".", mode, dir_fd=dir_fd)


def settle_as_replaced(
    fd: int, old: os.stat_result, access: bytes | None, keep: PreservedAttributes
) -> None:
    """Give a new file the owner and mode of the file that it replaces, unless `keep` defines them.

    `access` is the ACL that belongs to the mode of the old file. If the user may not set the old
    owner and group, the new file gets no set-id bits, and a different group gets no rights.
    """
    mode = stat.S_IMODE(old.st_mode)
    if not keep.ownership and not chown_file(fd, old):
        mode &= ~SET_ID_BITS
        if os.fstat(fd).st_gid != old.st_gid:
            if access is not None:
                access = without_group(access)
            else:
                mode &= ~stat.S_IRWXG
    if not keep.mode:
        give_access(fd, mode, access)


def _chown_name(name: bytes, dir_fd: int, source: os.stat_result) -> bool:
    try:
        os.chown(name, source.st_uid, source.st_gid, dir_fd=dir_fd, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NOT_ALLOWED or not os.geteuid():
            raise
    else:
        return True
    try:
        os.chown(name, -1, source.st_gid, dir_fd=dir_fd, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NOT_ALLOWED:
            raise
    now = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    return (now.st_uid, now.st_gid) == (source.st_uid, source.st_gid)
