"""The interpretation of the options of fmirror, and the checks before any change.

`owning` interprets the options for owners and modes of copies: `--chown`, `--chmod`, `--usermap`
and `--groupmap`. The checks refuse trees that lie within each other, empty trees, and unsuitable
trees of other options, such as `--link-dest` and `--backup-dir`.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from pcircle.cli.options import AllOptions, CommonOptions
from pcircle.core.encoding import show
from pcircle.core.errors import EntriesFailed, UsageError
from pcircle.core.units import chunk_bytes, interval_s, parse_number, parse_size
from pcircle.fs.attributes.metadata import PreservedAttributes
from pcircle.fs.attributes.mounts import place_of
from pcircle.fs.attributes.owners import Bits, Given, IdRule, read_modes
from pcircle.fs.data import DataCopier
from pcircle.fs.directories import directory_and_ancestors
from pcircle.fs.safe_open import directory, make_directory
from pcircle.ops.checkpoint.plan import CheckpointOptions
from pcircle.ops.copy.entry.overwrite import OverwriteOptions
from pcircle.tools.common.copy_arguments import checkpoint_options_of, keep_of, limit_of
from pcircle.tools.common.copy_options import CopyOptions
from pcircle.tools.fmirror import plan_file
from pcircle.tools.fmirror.plan import DeletionPolicy, Look, UpdatePolicy
from pcircle.tools.fmirror.work.rename_pairs import RenamedPaths
from pcircle.walk.attributes import ANY
from pcircle.walk.globs import Rule, leave_out

if TYPE_CHECKING:
    from pcircle.tools.fmirror.snapshots import Snapshot

# Options of the jobs before the copy, which print nothing and leave the output files to the copy.
QUIET: dict[str, object] = {
    "silent": True,
    "quiet": True,
    "verbose": 0,
    "stats": 0,
    "progress": "never",
}
NO_OUTPUT: dict[str, object] = {
    "json": None,
    "error_log": None,
    "json_lines": None,
    "list_out": None,
}


class MirrorOptions(CopyOptions):
    """The resolved options of a mirror.

    `looks` restricts a job to the search for moved files or for extraneous entries. Such a job is
    silent. `renamed` contains the paths that a dry run of `--moved` would rename. `clears` selects
    whether files or all entries are removed from the source, and `clearing` is set for the job that
    removes them.
    """

    _filters = CommonOptions.FILTERS
    _one = CommonOptions.ONE_FILE_SYSTEM
    _safety = CommonOptions.SAFETY
    _copying = CopyOptions.COPYING
    _performance = CommonOptions.PERFORMANCE
    _output = CommonOptions.OUTPUT
    _records = CommonOptions.RECORDS
    _plans = CommonOptions.PLANS
    _dry = CommonOptions.DRY_RUN

    upkeep: UpdatePolicy
    deleting: DeletionPolicy
    ignore_errors: bool = False
    allow_empty: bool = False
    allow_foreign: bool = False
    allow_moved: bool = False
    state_dir: bytes | None = None
    changed: Literal["walk", "fs", "auto"] = "walk"
    plan: str | None = None
    apply: str | None = None
    since_manifest: str | None = None
    new_manifest: str | None = None
    changed_from: str | None = None
    full_every_s: float | None = None
    itemize: bool = False
    moved: bool = False
    looks: Literal["", "moves", "surplus"] = ""
    renamed: RenamedPaths = RenamedPaths()
    clears: Literal["", "files", "all"] = ""
    clearing: bool = False
    link_dest: tuple[bytes, ...] = ()
    compare_dest: tuple[bytes, ...] = ()
    copy_dest: tuple[bytes, ...] = ()
    reflink_dest: tuple[bytes, ...] = ()
    snapshot: Snapshot | None = None
    written: tuple[tuple[str, str], ...] = ()
    """The output options and their files, which a silent job checks although it writes none."""

    @property
    def is_idle(self) -> bool:
        """Return whether neither this job nor a following one changes anything."""
        return self.dry and not (self.looks == "moves" and self.moved) and not self.clearing

    def comparison(self, **changes: object) -> MirrorOptions:
        """Return these options with `changes` for a dry run that writes no output files."""
        never = CheckpointOptions(never=True)
        dry: dict[str, object] = {"dry": True, "itemize": False, "sign": None, "verify": False}
        return self.replace(**NO_OUTPUT, **dry, checkpoint=never, **changes)

    @property
    def kept_at(self) -> bytes:
        """Return the target, or with `--snapshot` the directory that contains all snapshots."""
        return self.target if self.snapshot is None else self.snapshot.directory


def options_of(args: argparse.Namespace) -> MirrorOptions:
    """Return the options of a command line. Raise UsageError if they are invalid."""
    plan_file.refuse(args)
    if args.apply is not None:  # rank 0 reads the operands from the plan
        args = argparse.Namespace(**vars(args) | {"operands": [".", "."]})
    return made_of(args)


def made_of(args: argparse.Namespace) -> MirrorOptions:
    """Return the options, including those of a plan. Raise UsageError if they are invalid."""
    operands = [os.fsencode(word) for word in args.operands]
    if len(operands) != 2 or not all(operands):
        missing = "missing operands A and B" if not operands else "missing operand B"
        raise UsageError(missing if len(operands) < 2 else "expected two operands, A and B")
    source, target = operands
    if not (args.strict_operands or os.path.isdir(target)):
        target = target.rstrip(b"/") or target
    _refuse(args)
    dry = args.dry_run or args.plan is not None
    link_dest = _trees(args.link_dest)
    copy_dest, reflink_dest = _trees(args.copy_dest), _trees(args.reflink_dest)
    snapshot = None
    if args.snapshot is not None:
        from pcircle.tools.fmirror import snapshots  # few runs make one

        snapshot = snapshots.wanted(args.snapshot, args.keep, target)
        last = snapshots.latest(target)
        link_dest = link_dest if last is None else (last, *link_dest)
        if not args.dry_run or os.path.isdir(target):  # a dry run does not create B
            target = snapshot.unfinished
    return MirrorOptions.of(
        args,
        tool="fmirror",
        sources=(source,),
        target=target,
        exact=True,
        keep=_keep(args),
        chunk_bytes=None if args.chunksize is None else chunk_bytes("--chunksize", args.chunksize),
        bytes_per_s=limit_of("--bwlimit", args.bwlimit, parse_size),
        operations_per_s=limit_of("--ops-limit", args.ops_limit, parse_number),
        reflink=args.reflink,
        sparse=args.sparse,
        existing=_existing(args),
        checkpoint=_checkpoint(args),
        dry=dry,
        link_dest=link_dest,
        snapshot=snapshot,
        compare_dest=_trees(args.compare_dest),
        copy_dest=copy_dest,
        reflink_dest=reflink_dest,
        moved=args.moved,
        itemize=args.itemize or args.verbose > 0,
        verify=args.verify,
        sign=args.signature,
        stripe=args.stripe,
        upkeep=_upkeep(args),
        deleting=_deleting(args),
        ignore_errors=args.ignore_errors,
        allow_empty=args.allow_empty,
        allow_foreign=args.allow_foreign,
        allow_moved=args.allow_moved,
        state_dir=None if args.state_dir is None else os.fsencode(args.state_dir),
        written=_written(args),
        **_change_options(args),
    )


def _change_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options that concern plans, lists of changes, and removals from the source."""
    every = args.full_every
    return {
        "plan": args.plan,
        "apply": args.apply,
        "clears": "all" if args.move else "files" if args.remove_source_files else "",
        "since_manifest": args.since_manifest,
        "new_manifest": args.new_manifest,
        "changed": args.changed,
        "changed_from": args.changed_from,
        "full_every_s": None if every is None else interval_s("--full-every", every),
    }


_WRITTEN = ("json", "json_lines", "list_out", "error_log")


def _written(args: argparse.Namespace) -> tuple[tuple[str, str], ...]:
    given = ((_option(name), getattr(args, name)) for name in _WRITTEN)
    return tuple((option, path) for option, path in given if path not in (None, "-"))


def _trees(paths: list[str] | None) -> tuple[bytes, ...]:
    return tuple(os.path.abspath(os.fsencode(path)) for path in paths or ())


def _existing(args: argparse.Namespace) -> OverwriteOptions:
    """Return the overwrite options; a mirror's overwrite policy decides about existing entries."""
    near = bool(args.copy_dest or args.reflink_dest)
    # With these options, a file that a killed run has truncated would never be replaced.
    whole = args.apply is not None or args.update or args.ignore_existing
    return OverwriteOptions(by_policy=True, near=near, sync=args.fsync, whole=whole)


def _keep(args: argparse.Namespace) -> PreservedAttributes:
    """Return the attributes to preserve: all of them, or those that `--preserve` lists.

    Special files are always copied.
    """
    if not args.preserve:
        return owning(args, keep_of(None, archive=True))
    if args.archive:
        raise UsageError("-a cannot be combined with --preserve")
    keep = msgspec.structs.replace(keep_of(args.preserve, archive=False), special=True)
    return owning(args, keep)


def _upkeep(args: argparse.Namespace) -> UpdatePolicy:
    look: Look = "time"
    if args.checksum:
        look = "content"
    elif args.ignore_times:
        look = "none"
    elif args.size_only:
        look = "size"
    window = args.modify_window
    window_ns = None if window is None else int(interval_s("--modify-window", window) * 10**9)
    stays, exist = args.ignore_existing, args.existing
    more = args.ctime, args.prune_empty_dirs
    return UpdatePolicy(look, window_ns, args.update, stays, exist, *more)


def _deleting(args: argparse.Namespace) -> DeletionPolicy:
    if args.max_delete is not None:
        from pcircle.cli.change_program import max_delete_of

        max_delete_of("--max-delete", args.max_delete)  # refused before anything is copied
    backup = None if args.backup_dir is None else os.path.abspath(os.fsencode(args.backup_dir))
    return DeletionPolicy(
        args.delete is not None or args.snapshot is not None,
        args.delete_excluded,
        tuple(map(os.fsencode, args.protect or ())),
        backup,
        during=args.delete == "during" and not args.dry_run,
        reported=args.itemize or args.verbose > 0,
    )


def _checkpoint(args: argparse.Namespace) -> CheckpointOptions:
    """Return the checkpoint options.

    With `--since-manifest` or `--snapshot`, the checkpoint of an interrupted run is discarded, not
    refused.
    """
    checkpoint = checkpoint_options_of(args)
    if args.since_manifest is not None and not checkpoint.never:
        # An interrupted run has changed the target, so the manifest no longer describes it.
        return msgspec.structs.replace(checkpoint, resume=False, restart=True)
    if args.snapshot is None or checkpoint.resume or checkpoint.never:
        return checkpoint
    return msgspec.structs.replace(checkpoint, restart=True)


def _refuse_snapshot(args: argparse.Namespace) -> None:
    if args.snapshot is None:
        if args.keep is not None:
            raise UsageError("--keep requires --snapshot")
        return
    for name in (
        "delete",
        "moved",
        "backup_dir",
        "max_delete",
        "files_from",
        "signature",
        "existing",
    ):
        if getattr(args, name):
            option = f"--{name.replace('_', '-')}"
            raise UsageError(f"--snapshot cannot be combined with {option}")
    if args.changed != "walk":
        raise UsageError(f"--snapshot cannot be combined with --changed={args.changed}")


def _refuse_known_changes(args: argparse.Namespace) -> None:
    """Raise UsageError for options that conflict with a list of changes or a manifest."""
    names = ("since_manifest", "changed_from")
    selecting = [name for name in names if getattr(args, name) is not None]
    if args.full_every is not None and not selecting and args.changed == "walk":
        raise UsageError("--full-every requires --changed, --changed-from or --since-manifest")
    if args.new_manifest is not None and args.since_manifest is None:
        raise UsageError(
            "--new-manifest requires --since-manifest; create the first manifest with fsum -o"
        )
    if not selecting:
        return
    option = _option(selecting[0])
    cannot = ["changed_from", "files_from", "moved", "snapshot", "signature", "delete_excluded"]
    cannot += ["ignore_times"] if selecting[0] == "since_manifest" else ["filters", "ctime"]
    for name in cannot:
        if name != selecting[0] and getattr(args, name) not in (None, False, []):
            raise UsageError(f"{option} cannot be combined with {_option(name)}")
    if args.changed != "walk":
        raise UsageError(f"{option} cannot be combined with --changed={args.changed}")
    if selecting[0] == "changed_from" and AllOptions.of(args).wanted != ANY:
        raise UsageError("--changed-from cannot be combined with filters")


def _option(name: str) -> str:
    return name if name == "filters" else f"--{name.replace('_', '-')}"


_NOT_CLEARED = (
    "apply", "changed_from", "compare_dest", "delete", "dry_run", "existing", "moved", "plan",
    "signature", "since_manifest", "snapshot",
)  # fmt: skip


def _refuse_clearing(args: argparse.Namespace) -> None:
    """Raise UsageError for options that conflict with removals from A.

    Some of them would remove from B the only copies of the entries that were removed from A.
    """
    if not (args.move or args.remove_source_files):
        return
    option = "--move" if args.move else "--remove-source-files"
    for name in _NOT_CLEARED:
        if getattr(args, name) not in (None, False, []):
            raise UsageError(f"{option} cannot be combined with {_option(name)}")
    if args.changed != "walk":
        raise UsageError(f"{option} cannot be combined with --changed={args.changed}")
    if args.files_from == "-":
        raise UsageError(f"{option} cannot be combined with --files-from=-: the list is read twice")


_NOT_DURING = ("backup_dir", "changed_from", "plan", "since_manifest")


def _refuse_during(args: argparse.Namespace) -> None:
    """Raise UsageError for options that prevent removals during the comparison."""
    if args.delete != "during":
        return
    names = [_option(name) for name in _NOT_DURING if getattr(args, name) is not None]
    if args.changed != "walk":
        names.append(f"--changed={args.changed}")
    if names:
        raise UsageError(f"--delete=during cannot be combined with {names[0]}")


_NOT_PRUNED = ("apply", "changed_from", "files_from", "since_manifest")


def _refuse_pruning(args: argparse.Namespace) -> None:
    """Raise UsageError for options that select directories without reading their contents."""
    if not args.prune_empty_dirs:
        return
    names = [_option(name) for name in _NOT_PRUNED if getattr(args, name) is not None]
    if args.changed != "walk":
        names.append(f"--changed={args.changed}")
    if names:
        raise UsageError(f"--prune-empty-dirs cannot be combined with {names[0]}")


def _refuse(args: argparse.Namespace) -> None:
    _refuse_pruning(args)
    _refuse_snapshot(args)
    _refuse_during(args)
    _refuse_clearing(args)
    _refuse_known_changes(args)
    looks = [name for name in ("checksum", "size_only", "ignore_times") if getattr(args, name)]
    if args.ctime and looks:
        raise UsageError(f"--ctime cannot be combined with --{looks[0].replace('_', '-')}")
    if len(looks) > 1:
        one, other = (f"--{name.replace('_', '-')}" for name in looks[:2])
        raise UsageError(f"{one} cannot be combined with {other}")
    if args.delete is None and args.snapshot is None:
        for name in ("delete_excluded", "max_delete", "ignore_errors", "protect"):
            if getattr(args, name) and args.apply is None:
                raise UsageError(f"--{name.replace('_', '-')} requires --delete")
    if args.moved:
        _refuse_with_moved(args)
    if args.changed == "fs" and (args.filters or args.files_from is not None):
        raise UsageError("--changed=fs cannot be combined with filters or --files-from")
    if args.signature is not None and (args.link_dest or args.compare_dest):
        raise UsageError("--signature cannot be combined with --link-dest or --compare-dest")
    for name in ("copy_dest", "reflink_dest"):
        for other in ("signature", "verify"):
            if getattr(args, name) and getattr(args, other):
                text = "contents that are not read from A cannot be compared with A"
                raise UsageError(f"{_option(name)} cannot be combined with --{other}: {text}")
    if args.reflink_dest and args.reflink == "never":
        raise UsageError("--reflink-dest cannot be combined with --reflink=never")
    if args.files_from is not None and args.delete is not None:
        raise UsageError("--delete cannot be combined with --files-from")


def _refuse_with_moved(args: argparse.Namespace) -> None:
    """Raise UsageError for options that conflict with --moved."""
    if args.delete is None:
        raise UsageError("--moved requires --delete: entries that remain in B cannot be renamed")
    for option, given in (
        ("--ignore-times", args.ignore_times),
        ("--changed=fs", args.changed == "fs"),
        ("--link-dest", args.link_dest),
        ("--compare-dest", args.compare_dest),
        ("--strict-operands", args.strict_operands),
    ):
        if given:
            raise UsageError(f"--moved cannot be combined with {option}")


# ---- owners and modes ----------------------------------------------------------------------------


def owning(args: argparse.Namespace, keep: PreservedAttributes) -> PreservedAttributes:
    """Return the attributes to preserve, with the owners and modes that options specify.

    Raise UsageError if these options are invalid.
    """
    uid = gid = None
    if args.chown is not None:
        from pcircle.cli.ids import read_owner  # few runs give owners

        owner = read_owner("--chown", args.chown, login=False)
        uid, gid = owner.uid, owner.gid
        if uid is gid is None:
            raise UsageError(f"--chown: invalid value '{args.chown}': must be USER:GROUP")
    users, groups = _map("--usermap", args.usermap), _map("--groupmap", args.groupmap)
    given = Given(uid, gid, users, groups, _modes(args.chmod or ()))
    if given == Given():
        return keep
    if args.numeric_ids and given.by_name:
        raise UsageError("--numeric-ids cannot be combined with maps of patterns of names")
    _refuse_owners(given, keep)
    return msgspec.structs.replace(keep, given=given)


def _refuse_owners(given: Given, keep: PreservedAttributes) -> None:
    if given.uid is not None and given.users:
        raise UsageError("--usermap cannot be combined with an owner of --chown")
    if given.gid is not None and given.groups:
        raise UsageError("--groupmap cannot be combined with a group of --chown")
    gives_users = given.uid is not None or bool(given.users)
    owns = gives_users or given.gid is not None or bool(given.groups)
    if owns and not keep.ownership:
        raise UsageError("--chown, --usermap and --groupmap require --preserve=ownership")
    if given.modes and not keep.mode:
        raise UsageError("--chmod requires --preserve=mode")
    if gives_users and os.geteuid():
        raise UsageError("only root may give files to other users: --chown, --usermap")


def _map(option: str, text: str | None) -> tuple[IdRule, ...]:
    if text is None:
        return ()
    from pcircle.cli.ids import read_map  # few runs map owners

    return read_map(option, text)


def _modes(texts: tuple[str, ...] | list[str]) -> tuple[Bits, ...]:
    """Return the mode changes in order. Raise UsageError if one is invalid."""
    umask = os.umask(0)
    os.umask(umask)
    found: list[Bits] = []
    for text in texts:
        try:
            found += read_modes(text, umask)
        except ValueError as error:
            raise UsageError(f"--chmod: {show(os.fsencode(str(error)))}") from None
    return tuple(found)


# ---- refusals ------------------------------------------------------------------------------------


class HeldDirectory(msgspec.Struct, frozen=True):
    """A directory that is being held open.

    `path` leads to exactly this directory, and `known` is its device and inode number. If it could
    not be opened, they are the given path and None.
    """

    path: bytes
    known: tuple[int, int] | None = None


@contextmanager
def held(path: bytes) -> Iterator[HeldDirectory]:
    """Hold a directory open, so that the walk enters the same directory that was checked."""
    try:
        fd = _opened(path)
    except OSError:
        yield HeldDirectory(path)
        return
    try:
        status, at = os.fstat(fd), b"/proc/self/fd/%d" % fd
        yield HeldDirectory(at if os.path.lexists(at) else path, (status.st_dev, status.st_ino))
    finally:
        os.close(fd)


def _opened(path: bytes) -> int:
    """Open a directory, with `O_PATH` if it is unreadable. Raise OSError on failure."""
    flags = os.O_DIRECTORY | os.O_CLOEXEC
    try:
        return os.open(path, os.O_RDONLY | flags)  # unlike O_PATH, this triggers an automount
    except OSError:
        return os.open(path, os.O_PATH | flags)


def refuse_inside(path: bytes, *trees: bytes, said: bytes | None = None) -> None:
    """Raise UsageError if a directory is one of these trees or lies in one of them.

    The message names `said` instead of the directory, for example a path to be created in it.
    """
    try:
        fd = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        try:
            above = set(directory_and_ancestors(fd))
        except OSError as error:
            error.filename = path
            raise
        for other in trees:
            with suppress(OSError):  # the tree does not exist
                there = os.stat(other)
                if (there.st_dev, there.st_ino) in above:
                    raise UsageError(f"'{show(said or path)}' is inside '{show(other)}'")
    finally:
        os.close(fd)


def refuse_removed(
    written: Iterable[tuple[str, str]], target: bytes, rules: Sequence[Rule]
) -> None:
    """Raise UsageError if an output file lies in the target and would be removed there.

    `written` contains pairs of an option and a path. Files that `rules` exclude are not removed.
    """
    for option, path in written:
        above, name = os.path.split(os.path.realpath(os.fsencode(path)))
        try:
            system, top = place_of(target)
            its_system, place = place_of(above)
        except OSError:
            continue  # the target or the directory of the file is missing
        place, top = os.path.join(place, name), os.path.join(top, b"")
        if its_system != system or not place.startswith(top):
            continue
        if not leave_out(rules, place.removeprefix(top), directory=False):
            shown = show(os.fsencode(path))
            raise UsageError(
                f"{option}: '{shown}' is inside '{show(target)}', and --delete would delete it; "
                "write it elsewhere, or add --protect"
            )


def refuse_other(other: bytes, source: bytes, target: bytes) -> None:
    """Raise UsageError if a reference tree is not a directory or is part of the mirror."""
    if not os.path.isdir(other):
        raise UsageError(f"'{show(other)}' is not a directory")
    try:
        os.close(directory(other))
    except OSError as error:
        text = f"cannot open directory '{show(other)}': {error.strerror or error}"
        raise UsageError(text) from None
    refuse_inside(other, source, target)


def make_backup(backup: bytes, source: bytes, target: bytes, *, make: bool) -> None:
    """Create the backup directory if `make` is set and it does not exist.

    Raise UsageError if the directory is not suitable.
    """
    try:
        if not os.path.lexists(backup):
            if not make:
                return
            make_directory(backup)
        device = os.stat(backup).st_dev
    except OSError as error:
        raise UsageError(f"--backup-dir '{show(backup)}': {error.strerror}") from None
    refuse_inside(backup, source, target)
    refuse_apart("--backup-dir", backup, device, target)


def refuse_apart(option: str, path: bytes, device: int, target: bytes) -> None:
    """Raise UsageError if a path is not on the target's file system.

    Hard links, renames and shared blocks are only possible within one file system.
    """
    there = target if os.path.isdir(target) else os.path.dirname(target.rstrip(b"/")) or b"."
    if os.path.isdir(there) and os.stat(there).st_dev != device:
        text = f"{option} '{show(path)}' is not on the file system of '{show(target)}'"
        raise UsageError(text)


def refuse_without_clones(target: bytes, say: Callable[[str], None]) -> None:
    """Raise UsageError if files on the target's file system cannot share blocks.

    This is tested with two unnamed files. If the file system does not support unnamed files, the
    copy tries to share the blocks of each file.
    """
    there = target if os.path.isdir(target) else os.path.dirname(target.rstrip(b"/")) or b"."
    fds: list[int] = []
    try:
        for _ in range(2):
            fds.append(os.open(there, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600))
        try:
            DataCopier("always").clone(fds[0], fds[1])
        except OSError as error:
            text = f"the file system of '{show(target)}' cannot share blocks ({error.strerror})"
            raise UsageError(f"--reflink-dest: {text}; --copy-dest copies") from None
    except OSError as error:
        text = f"cannot determine whether '{show(target)}' can share blocks ({error.strerror})"
        say(f"--reflink-dest: {text}: files that cannot share blocks are copied")
    finally:
        for fd in fds:
            os.close(fd)


def has_entries(path: bytes, said: bytes | None = None) -> bool:
    """Return whether a directory has entries. Messages name `said` instead if it is given."""
    try:
        with os.scandir(path) as entries:
            return next(entries, None) is not None
    except FileNotFoundError:
        return False
    except OSError as error:
        raise EntriesFailed(f"cannot read '{show(said or path)}': {error.strerror}") from None


def warn_of_slash(source: bytes, target: bytes, say: Callable[[str], None]) -> None:
    """Warn if B ends with a slash and contains A's name, because A is not created below B."""
    name = os.path.basename(source.rstrip(b"/"))
    if not (target.endswith(b"/") and name and os.path.isdir(os.path.join(target, name))):
        return
    if not os.path.lexists(os.path.join(source, name)):
        inner = os.path.join(target, name)
        say(
            f"'{show(target)}' itself becomes identical to '{show(source)}'; did you mean "
            f"'{show(inner)}'?"
        )
