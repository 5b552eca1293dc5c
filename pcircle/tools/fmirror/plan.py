"""The plan of a mirror in addition to that of a copy, decided on rank 0."""

# Annotations are evaluated here, once: otherwise msgspec compiles each of them in every rank.
import os
from typing import Literal, TypeAlias

import msgspec

from pcircle.fs.attributes.metadata import Keep
from pcircle.ops.compare import fields
from pcircle.ops.copy.tree.items import CopyPlan

Look: TypeAlias = Literal["time", "size", "content", "none"]
"""The evidence of equal content: size and time, size alone, all bytes, none."""


class UpdatePolicy(msgspec.Struct, frozen=True, array_like=True):
    """How existing entries are updated.

    `look` selects the evidence of equal content; times are equal if they are at most `window_ns`
    apart (None: to the precision of both sides). With `newer` newer files of the target stay; with
    `stays` all existing files stay; with `existing` missing entries are not created. With `ctime`
    source files whose change time is later than the last complete run are read. With `prunes`
    directories that hold only directories count as missing.
    """

    look: Look = "time"
    window_ns: int | None = None
    newer: bool = False
    stays: bool = False
    existing: bool = False
    ctime: bool = False
    prunes: bool = False


class DeletionPolicy(msgspec.Struct, frozen=True, array_like=True):
    """Treatment of extraneous entries; unless `wanted`, they stay.

    With `excluded` this includes entries that rules exclude. Names that `protected` rules match
    stay. Removed and replaced entries move to `backup`, an absolute path, if given. With `during`
    they are removed as soon as their directory was compared.
    """

    wanted: bool = False
    excluded: bool = False
    protected: tuple[bytes, ...] = ()
    backup: bytes | None = None
    during: bool = False
    reported: bool = False


class MirrorPlan(CopyPlan, frozen=True, kw_only=True):
    """A copy that updates its target.

    Entries whose change times on source and target are older than `quiet_ns` have equal attributes,
    as the last complete run ensured (`pcircle.tools.fmirror.state.state`). This holds for entries
    on the `devices` of the roots. `itemize` prints a line for each change. Files that would be
    `renamed` by now do not count as missing; see
    `pcircle.tools.fmirror.work.rename_pairs.PathHashes`.

    A missing entry that is up to date in a `link_dest` tree is linked; one that is up to date in a
    `compare_dest` tree is left out. Content is taken from `copy_dest` and `reflink_dest` trees that
    have it. All trees are absolute paths. The run began at `began_ns`.
    """

    upkeep: UpdatePolicy = UpdatePolicy()
    deleting: DeletionPolicy = DeletionPolicy()
    quiet_ns: tuple[int, int] | None = None
    devices: tuple[int, int] = (0, 0)
    itemize: bool = False
    renamed: memoryview = memoryview(b"")  # a view of the received message, not a copy
    link_dest: tuple[bytes, ...] = ()
    compare_dest: tuple[bytes, ...] = ()
    copy_dest: tuple[bytes, ...] = ()
    reflink_dest: tuple[bytes, ...] = ()
    began_ns: int | None = None

    def more_options(self) -> dict[str, bytes]:
        more = {"how files are compared": msgspec.msgpack.encode(self.upkeep)}
        if self.keep.given is not None:
            more["owners and modes that are given"] = msgspec.msgpack.encode(self.keep.given)
        linked_trees = self.link_dest, self.compare_dest
        if any(linked_trees):
            more["--link-dest or --compare-dest"] = msgspec.msgpack.encode(linked_trees)
        near = self.copy_dest, self.reflink_dest
        if any(near):
            more["--copy-dest or --reflink-dest"] = msgspec.msgpack.encode(near)
        return more


_OF_KEEP = {
    "mode": fields.MODE,
    "timestamps": fields.MTIME,
    "xattr": fields.XATTR,
    "acl": fields.ACL,
}


def compared(keep: Keep, *, privileged: bool) -> int:
    """Return the fields that must be equal for these attributes.

    A user who may not give an owner does not compare it. Inode flags of files are not compared,
    which would take six calls for each; they are set on copied files.
    """
    wanted = fields.KIND | fields.SIZE | fields.RDEV | fields.TARGET
    for name, field in _OF_KEEP.items():
        wanted |= field * bool(getattr(keep, name))
    if keep.ownership:
        wanted |= fields.GROUP | fields.OWNER * privileged
    return wanted


def kept_words(keep: Keep) -> tuple[str, ...]:
    """Return the names of the fields that a run has made equal."""
    return fields.field_names(compared(keep, privileged=not os.geteuid()))
