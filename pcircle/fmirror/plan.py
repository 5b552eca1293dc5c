"""What a mirror is to do beside copying, decided once on rank 0 and then the same on every rank."""

# Annotations are evaluated here, once: otherwise msgspec compiles each of them in every rank.
import os
from typing import Literal, TypeAlias

import msgspec

from pcircle.comparing import fields
from pcircle.fs.metadata import Keep
from pcircle.transfer.plan import Plan

Look: TypeAlias = Literal["time", "size", "content", "none"]
"""What tells that a file's content is the same: size and time, size alone, all bytes, nothing."""


class Upkeep(msgspec.Struct, frozen=True, array_like=True):
    """How what is there already is brought up to date.

    `look` says what tells that content is the same, times being so if they are at most `window_ns`
    apart (None: as exactly as both sides keep them). `newer`: files of the target that are newer
    stay. `stays`: what is there stays as it is. `existing`: what is not there is left out. `ctime`:
    a file of the source that has changed in any way since the last complete run is read. `prunes`:
    directories of the source that hold nothing but directories are taken not to be there.
    """

    look: Look = "time"
    window_ns: int | None = None
    newer: bool = False
    stays: bool = False
    existing: bool = False
    ctime: bool = False
    prunes: bool = False


class Deleting(msgspec.Struct, frozen=True, array_like=True):
    """What becomes of entries that the source has not: nothing unless it is `wanted`.

    `excluded`: also of those that the rules leave out. Names that `protected` rules leave out
    stay. Those that are to be gone, or are replaced, go to `backup`, a whole path, if there is one.
    `during`: they go when their directory was compared, and are `told` of then.
    """

    wanted: bool = False
    excluded: bool = False
    protected: tuple[bytes, ...] = ()
    backup: bytes | None = None
    during: bool = False
    told: bool = False


class MirrorPlan(Plan, frozen=True, kw_only=True):
    """A copy to a target that is brought up to date.

    Entries that were last changed before `quiet_ns`, on the source and on the target, have the same
    attributes, since the last complete run has seen to it: see `pcircle.fmirror.earlier.state`.
    That holds for entries on both `devices`, those of the roots.
    `itemize`: with a line for each change. Files that would be `renamed` by now, which is as of
    `pcircle.fmirror.work.alike.Paths`, are not missing. What is missing in the target and as it
    should be in one of `link_dest` is linked to that, and what is so in one of `compare_dest` left
    out; content that one of `copy_dest` or `reflink_dest` has is taken from there: whole paths.
    The run began at `began_ns`.
    """

    upkeep: Upkeep = Upkeep()
    deleting: Deleting = Deleting()
    quiet_ns: tuple[int, int] | None = None
    devices: tuple[int, int] = (0, 0)
    itemize: bool = False
    renamed: memoryview = memoryview(b"")  # of the message, which has it once
    link_dest: tuple[bytes, ...] = ()
    compare_dest: tuple[bytes, ...] = ()
    copy_dest: tuple[bytes, ...] = ()
    reflink_dest: tuple[bytes, ...] = ()
    began_ns: int | None = None

    def more_options(self) -> dict[str, bytes]:
        """See `Plan`."""
        more = {"how files are compared": msgspec.msgpack.encode(self.upkeep)}
        if self.keep.given is not None:
            more["owners and modes that are given"] = msgspec.msgpack.encode(self.keep.given)
        others = self.link_dest, self.compare_dest
        if any(others):
            more["--link-dest or --compare-dest"] = msgspec.msgpack.encode(others)
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
    """The fields that must be the same where this is kept.

    Whoever may not give an owner does not ask for the same one. Inode flags of files are not
    looked at, which would take six calls for each: they go with what is copied.
    """
    wanted = fields.KIND | fields.SIZE | fields.RDEV | fields.TARGET
    for name, field in _OF_KEEP.items():
        wanted |= field * bool(getattr(keep, name))
    if keep.ownership:
        wanted |= fields.GROUP | fields.OWNER * privileged
    return wanted


def kept_words(keep: Keep) -> tuple[str, ...]:
    """The names of the fields that a run has made the same."""
    return fields.field_names(compared(keep, privileged=not os.geteuid()))
