"""The proof that nothing has changed since the last complete run, or that all changes are known.

The proof uses the state of the last complete run. For the source, it shows that the snapshot of
that run still exists unchanged. Identities of snapshots are random, so a file system that has this
snapshot shares its history. It was neither recreated nor restored from an earlier image. Later
changes have newer generations. For the target, the proof shows that no inode has changed since. For
the last change, btrfs records the generation and the time in nanoseconds. A restored file system
does not reproduce these values, and a snapshot of the target does not change them. No clocks are
compared.
"""

from __future__ import annotations

import os

from pcircle.fs.attributes.btrfs import Subvolume, has_subvolumes, number_of, subvolume_of, sync
from pcircle.fs.attributes.mounts import mounts_below
from pcircle.fs.directories import closing_fd
from pcircle.fs.open_flags import OPEN_DIRECTORY_FOLLOW
from pcircle.tools.fmirror.options import MirrorOptions
from pcircle.tools.fmirror.plan import kept_words
from pcircle.tools.fmirror.state import state
from pcircle.tools.fmirror.state.state import Identity, MirrorState, SubvolumeState
from pcircle.walk.attributes import ANY


def source_of(path: bytes) -> Subvolume | None:
    """Return the subvolume whose root is this directory, or None if it is not such a root.

    Raise OSError if the directory cannot be opened.
    """
    with closing_fd(os.open(path, OPEN_DIRECTORY_FOLLOW)) as fd:
        return subvolume_of(fd)


def is_whole(options: MirrorOptions) -> bool:
    """Return whether a run covers the whole source and leaves the target equal to it."""
    upkeep = options.upkeep
    if options.filters or options.files_from is not None or options.attribute_filter != ANY:
        return False
    if options.apply is not None:
        return False
    if options.one_file_system and mounts_below(options.sources[0]):
        return False
    part = upkeep.newer or upkeep.stays or upkeep.existing or upkeep.prunes
    return not (part or options.compare_dest)


def other_target(options: MirrorOptions, known: MirrorState) -> str:
    """Return why the target is not in the state of the last complete run, or an empty string."""
    target = options.target
    if state.identity_if_readable(target) != known.target:
        return "the target is not the directory that the last complete run used"
    if not frozenset(kept_words(options.keep)) <= known.compared:
        return "the last complete run kept fewer attributes"
    if not state.has_same_owners(known, options.keep.given):
        return "the last complete run set other owners or modes, or names are mapped"
    if not state.has_mark(target, known):
        return "the target was changed since the last complete run, or restored from an image"
    return ""


def overdue(options: MirrorOptions, known: MirrorState) -> str:
    """Return why everything must be compared again, or an empty string."""
    if options.full_every_s is None:
        return ""
    if state.now_ns() - known.full_ns <= options.full_every_s * 10**9:
        return ""
    return "the last full run is older than --full-every"


def quiet_ns(
    options: MirrorOptions, known: MirrorState, identity: Identity | None
) -> tuple[int, int] | None:
    """Return a time limit for the source and one for the target.

    Entries whose change times are older than these limits are unchanged since the last complete
    run. `identity` is the identity of the source. Return None if this is not certain, for example
    because a file system was replaced or restored from an image.
    """
    ours_ns = source_quiet_ns(options, known, identity)
    try:
        there = state.identity_of(options.target)
        is_marked = state.has_mark(options.target, known)
    except OSError:
        return None
    if ours_ns is None or there != known.target or not is_marked:
        return None
    if there.filesystem.endswith(" -"):
        return None
    return ours_ns, state.quiet_since(known, there.filesystem)


def source_quiet_ns(
    options: MirrorOptions, known: MirrorState, identity: Identity | None
) -> int | None:
    """Return the limit of `quiet_ns` for the source."""
    required = frozenset(kept_words(options.keep))
    required |= {state.READ} if options.upkeep.ctime else set()
    if identity is None or identity != known.identity or not required <= known.compared:
        return None
    if not state.has_same_owners(known, options.keep.given):
        return None
    try:
        if not state.session_of(options.sources[0]).continues(known.session):
            return None
    except OSError:
        return None
    return state.quiet_since(known, identity.filesystem)


def snapshot_of(now: Subvolume | None) -> tuple[tuple[str, int], str] | None:
    """Return a source's origin with its generation, and its identity, for the state.

    Return None unless the source is an unchanged read-only snapshot, because a later run can rely
    on nothing else.
    """
    if now is None or not now.read_only or now.is_touched:
        return None
    return (now.origin, now.generation), now.uuid


def number_of_last(source: bytes, known: MirrorState) -> int | None:
    """Return the number of the last run's snapshot, or None unless it still exists unchanged."""
    if known.snapshot is None:
        return None
    with closing_fd(os.open(source, OPEN_DIRECTORY_FOLLOW)) as fd:
        try:
            return number_of(fd, known.snapshot)
        except OSError:
            return None


def left_of(target: bytes) -> SubvolumeState | None:
    """Flush a target to disk and return its state, or None if it is not a writable subvolume."""
    try:
        with closing_fd(os.open(target, OPEN_DIRECTORY_FOLLOW)) as fd:
            if subvolume_of(fd) is None:
                return None
            sync(fd)  # otherwise delayed writes would change inodes later
            now = subvolume_of(fd)
    except OSError:
        return None
    return None if now is None or now.read_only else SubvolumeState(now.uuid, *now.changed)


def _has_subvolumes(target: bytes) -> bool:
    """Return whether a target that is a subvolume may contain other subvolumes."""
    try:
        with closing_fd(os.open(target, OPEN_DIRECTORY_FOLLOW)) as fd:
            return has_subvolumes(fd)
    except OSError:
        return True


def unproven(options: MirrorOptions, known: MirrorState, number: int | None) -> str:
    """Return why a change may have been missed, or an empty string."""
    if options.upkeep.look in ("content", "none"):
        return "all files must be compared or copied"
    if not is_whole(options):
        return "only part of the source is selected"
    if number is None:
        return "the snapshot of the last complete run no longer exists"
    if options.deleting.enabled and not known.alike:
        return "the last complete run left entries that the source lacks"
    if known.left is None:
        return "the target was not a btrfs subvolume at the last complete run"
    if mounts_below(options.target) or _has_subvolumes(options.target):
        return "there are subvolumes or mount points below the target"
    if known.left != left_of(options.target):
        return "the target was changed since the last complete run"
    return ""
