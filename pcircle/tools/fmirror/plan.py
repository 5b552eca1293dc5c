"""The plan of a mirror. It extends the plan of a copy and is made on rank 0."""

# This module does not postpone the evaluation of annotations, because msgspec would then compile
# each of them on every rank.
import os
from typing import Literal, TypeAlias

import msgspec

from pcircle.fs.attributes.metadata import PreservedAttributes
from pcircle.ops.compare import fields
from pcircle.ops.copy.tree.items import CopyPlan

Look: TypeAlias = Literal["time", "size", "content", "none"]
"""The evidence of equal content: size and time, size alone, all bytes, or no evidence ("none")."""


class UpdatePolicy(msgspec.Struct, frozen=True, array_like=True):
    """The rules for updating entries, set by options.

    `look` selects the evidence of equal content. Times are equal if they differ by at most
    `window_ns`, or, if that is None, agree to the precision that both sides support. If `newer` is
    set, newer files in the target stay. If `stays` is set, all existing files stay. If `existing`
    is set, missing entries are not created. If `ctime` is set, source files whose change time is
    later than the last complete run are read. If `prunes` is set, directories that contain only
    directories count as missing.
    """

    look: Look = "time"
    window_ns: int | None = None
    newer: bool = False
    stays: bool = False
    existing: bool = False
    ctime: bool = False
    prunes: bool = False


class DeletionPolicy(msgspec.Struct, frozen=True, array_like=True):
    """The treatment of extraneous entries, which stay unless `enabled` is set.

    If `excluded` is set, entries that rules exclude are also extraneous. Entries that match the
    `protected` rules stay. If `backup` is given, an absolute path, removed and replaced entries are
    moved there. If `during` is set, extraneous entries are removed as soon as their directory has
    been compared. If `reported` is set, each of these removals is printed.
    """

    enabled: bool = False
    excluded: bool = False
    protected: tuple[bytes, ...] = ()
    backup: bytes | None = None
    during: bool = False
    reported: bool = False


class RenamedPaths(msgspec.Struct, frozen=True, array_like=True, tag="r"):
    """The new and the present paths of files that a dry run would rename.

    Each path is an eight-byte hash as in `pcircle.tools.fmirror.work.rename_pairs.PathHashes`.
    """

    new: bytes = b""
    old: bytes = b""


class MirrorPlan(CopyPlan, frozen=True, kw_only=True):
    """The plan of a copy that updates its target.

    If the change times of an entry are older than `quiet_ns` on both sides, its attributes are
    equal. The last complete run made them equal (`pcircle.tools.fmirror.state.state`). This applies
    only to entries on the `devices` of the two roots. `itemize` prints a line for each change.
    `renamed` holds, as `pcircle.tools.fmirror.work.rename_pairs.PathHashes`, the paths that a dry
    run with --moved would rename; they do not count as missing.

    A missing entry that is up to date in a `link_dest` tree is linked from there. One that is up to
    date in a `compare_dest` tree is omitted. Content that a `copy_dest` or `reflink_dest` tree has
    is taken from it. All trees are absolute paths. The run began at `began_ns`.
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


_OF_KEEP = {
    "mode": fields.MODE,
    "timestamps": fields.MTIME,
    "xattr": fields.XATTR,
    "acl": fields.ACL,
}


def compared(keep: PreservedAttributes, *, privileged: bool) -> int:
    """Return the fields that must be equal if these attributes are preserved.

    Owners are compared only if the user may change them. Inode flags are set on copied files but
    not compared, because that would take six system calls per file.
    """
    compared_fields = fields.KIND | fields.SIZE | fields.RDEV | fields.TARGET
    for name, field in _OF_KEEP.items():
        compared_fields |= field * bool(getattr(keep, name))
    if keep.ownership:
        compared_fields |= fields.GROUP | fields.OWNER * privileged
    return compared_fields


def kept_words(keep: PreservedAttributes) -> tuple[str, ...]:
    """Return the names of the fields that a run makes equal."""
    return fields.field_names(compared(keep, privileged=not os.geteuid()))
