"""The options of fmirror: their declarations, values and checks.

This module is imported before the command line is parsed. `pcircle.tools.fmirror.checks` checks
operands and trees.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

from pcircle.cli.arguments import require_operands
from pcircle.cli.declarations import Section, option, override, taken
from pcircle.cli.options import CommonOptions, later, window_ns_of
from pcircle.core.errors import UsageError
from pcircle.core.units import interval_s as seconds_of
from pcircle.tools.common.copy_options import CopyOptions, attributes_of, preserve_option

if TYPE_CHECKING:
    from typing_extensions import Self

    from pcircle.cli.option_values import Owner
    from pcircle.fs.attributes.metadata import PreservedAttributes
    from pcircle.fs.attributes.owners import Bits, Given, IdRule
    from pcircle.ops.checkpoint.plan import CheckpointOptions
    from pcircle.ops.copy.entry.overwrite import OverwriteOptions
    from pcircle.tools.fmirror.plan import DeletionPolicy, RenamedPaths, UpdatePolicy
    from pcircle.tools.fmirror.snapshots import Snapshot

# Options of the jobs around the copy: with QUIET they print nothing, and with NO_OUTPUT they leave
# the output files to the copy.
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
_WRITTEN = tuple(NO_OUTPUT)


def _path(_: str, text: str) -> bytes:
    return os.path.abspath(os.fsencode(text))


def _trees(name: str, texts: Sequence[str]) -> tuple[bytes, ...]:
    return tuple(_path(name, text) for text in texts)


def _encoded(_: str, text: Any) -> Any:
    return os.fsencode(text) if isinstance(text, str) else tuple(map(os.fsencode, text))


def _owner(name: str, text: str) -> Owner:
    from pcircle.cli.option_values import read_owner

    owner = read_owner(name, text, login=False)
    if owner.uid is owner.gid is None:
        raise UsageError(f"{name}: invalid value '{text}': must be USER:GROUP")
    return owner


def _modes(name: str, texts: Sequence[str]) -> tuple[Bits, ...]:
    if not texts:
        return ()
    from pcircle.core.encoding import show
    from pcircle.fs.attributes.owners import read_modes

    umask = os.umask(0)
    os.umask(umask)
    try:
        return tuple(chain.from_iterable(read_modes(text, umask) for text in texts))
    except ValueError as error:
        raise UsageError(f"{name}: {show(os.fsencode(str(error)))}") from None


def _refuse_owners(given: Given, keep: PreservedAttributes, *, numeric: bool) -> None:
    """Raise UsageError if the given owners and modes conflict with other options."""
    if numeric and given.by_name:
        raise UsageError("--numeric-ids cannot be combined with maps that contain name patterns")
    if given.uid is not None and given.users:
        raise UsageError("--usermap cannot be combined with an owner of --chown")
    if given.gid is not None and given.groups:
        raise UsageError("--groupmap cannot be combined with a group given to --chown")
    gives_users = given.uid is not None or bool(given.users)
    owns = gives_users or given.gid is not None or bool(given.groups)
    if owns and not keep.ownership:
        raise UsageError("--chown, --usermap and --groupmap require --preserve=ownership")
    if given.modes and not keep.mode:
        raise UsageError("--chmod requires --preserve=mode")
    if gives_users and os.geteuid():
        raise UsageError("only root may give files to other users: --chown, --usermap")


# Arguments that several declarations share. A plan and a resumed run keep `_RECORDED` options.
_RECORDED = {"recorded": True, "same_on_resume": True}
_REFERENCE_TREES = {"metavar": "DIR", "repeatable": True, "parse": _trees}
_ID_MAP = {"metavar": "FROM:TO,...", "parse": later("read_map"), "otherwise": ()}
_KNOWN_CHANGES = ("changed", "changed_from", "since_manifest")


class MirrorOptions(CopyOptions, root="A"):
    """The options of a mirror.

    `arguments` are the parsed arguments. `written` pairs the output options with their files, for
    checks in jobs that write none of these files. `looks` restricts a job to the search for moved
    files or for extraneous entries. Such a job is silent. `clearing` is set for the job that
    removes entries from the source. `snapshot` is the tree that `--snapshot` creates.
    """

    arguments: argparse.Namespace
    written: tuple[tuple[str, str], ...] = ()
    looks: Literal["", "moves", "surplus"] = ""
    clearing: bool = False
    snapshot: Snapshot | None = None

    _comparison = Section("Comparison and attributes")
    checksum: bool = option(
        "-c",
        "--checksum",
        excludes=("size_only", "ignore_times"),
        **_RECORDED,
        help="compare file contents, not times",
    )
    size_only: bool = option(
        "--size-only",
        excludes=("ignore_times",),
        **_RECORDED,
        help="treat files of the same size as unchanged",
    )
    ignore_times: bool = option(
        "-I",
        "--ignore-times",
        **_RECORDED,
        help="copy all files, even unchanged ones",
    )
    ctime: bool = option(
        "--ctime",
        excludes=("checksum", "size_only", "ignore_times"),
        **_RECORDED,
        help="compare contents of files whose ctime is after the last run",
    )
    window_ns: int | None = option(
        "--modify-window",
        metavar="T",
        parse=window_ns_of,
        **_RECORDED,
        help="treat times that differ by at most T as equal",
    )
    changed: Literal["walk", "fs", "auto"] = option(
        "--changed",
        choices=("walk", "fs", "auto"),
        default="walk",
        same_on_resume="listed",
        help="find changes by walking A (default) or using the file system",
    )
    since_manifest: str | None = option(
        "--since-manifest",
        metavar="FILE",
        excludes=(
            *("changed_from", "files_from", "moved", "snapshot_name", "sign", "delete_excluded"),
            *("ignore_times", "changed", "delete=during"),
        ),
        help="read fsum's manifest of B instead of B itself",
    )
    new_manifest: str | None = option(
        "--new-manifest", metavar="FILE", help="write the manifest of B for the next run"
    )
    changed_from: str | None = option(
        "--changed-from",
        metavar="FILE",
        excludes=(
            *("files_from", "moved", "snapshot_name", "sign", "delete_excluded", "filters"),
            *("ctime", "changed", "delete=during"),
        ),
        same_on_resume="listed",
        help="examine only the paths listed in FILE (-: stdin)",
    )
    full_every_s: float | None = option(
        "--full-every",
        metavar="T",
        parse=seconds_of,
        requires=_KNOWN_CHANGES,
        help="examine everything if the last full run is older than T",
    )
    update: bool = option(
        "-u", "--update", recorded=True, same_on_resume=True, help="skip files that are newer in B"
    )
    only_existing: bool = option(
        "--existing", recorded=True, same_on_resume=True, help="skip creating new entries in B"
    )
    ignore_existing: bool = option(
        "--ignore-existing",
        **_RECORDED,
        help="skip updating existing entries in B",
    )
    prunes: bool = option(
        "-m",
        "--prune-empty-dirs",
        excludes=("apply", "files_from", *_KNOWN_CHANGES),
        same_on_resume=True,
        help="skip directories that contain no files to copy",
    )
    link_dest: tuple[bytes, ...] = option(
        "--link-dest",
        **_REFERENCE_TREES,
        excludes=("sign",),
        **_RECORDED,
        help="hard-link unchanged entries from DIR (repeatable)",
    )
    compare_dest: tuple[bytes, ...] = option(
        "--compare-dest",
        **_REFERENCE_TREES,
        excludes=("sign",),
        same_on_resume=True,
        help="skip entries that are unchanged in DIR (repeatable)",
    )
    copy_dest: tuple[bytes, ...] = option(
        "--copy-dest",
        **_REFERENCE_TREES,
        **_RECORDED,
        help="copy contents from DIR if they are the same (repeatable)",
    )
    reflink_dest: tuple[bytes, ...] = option(
        "--reflink-dest",
        **_REFERENCE_TREES,
        excludes=("reflink=never",),
        **_RECORDED,
        help="like --copy-dest, but share blocks with DIR (repeatable)",
    )
    moved: bool = option(
        "--moved",
        excludes=("ignore_times", "changed=fs", "link_dest", "compare_dest", "strict_operands"),
        help="rename entries in B that were moved in A",
    )
    archive: bool = option(
        "-a",
        "--archive",
        excludes=("preserve",),
        recorded=True,
        help="keep everything (default)",
    )
    preserve: Any = preserve_option("all", "all").changed(recorded=True)
    _one = CommonOptions.ONE_FILE_SYSTEM
    _verify = taken("verify", "sync")

    _owners = Section("Owners and modes in B")
    owner: Owner | None = option(
        "--chown",
        metavar="USER:GROUP",
        takes="owner",
        parse=_owner,
        **_RECORDED,
        help="set the owner and group of all entries",
    )
    modes: tuple[Bits, ...] = option(
        "--chmod",
        metavar="MODES",
        repeatable=True,
        parse=_modes,
        **_RECORDED,
        help="change modes as in rsync: D2775,Fo-w",
    )
    user_map: tuple[IdRule, ...] = option(
        "--usermap",
        **_ID_MAP,
        **_RECORDED,
        help="map users, also in access control lists",
    )
    group_map: tuple[IdRule, ...] = option(
        "--groupmap",
        **_ID_MAP,
        **_RECORDED,
        help="map groups, also in access control lists",
    )
    numeric_ids: bool = option(
        "--numeric-ids", recorded=True, help="keep numeric user and group IDs (default)"
    )

    _deletions = Section("Deletions")
    delete: Literal["after", "before", "during"] | None = option(
        "--delete",
        bare="after",
        choices=("after", "before", "during"),
        metavar="WHEN",
        excludes=("files_from",),
        recorded=True,
        help="delete entries that exist only in B: at the end (default; after or before) or during",
    )
    delete_excluded: bool = option(
        "--delete-excluded",
        requires=("delete", "snapshot_name"),
        excludes=("apply",),
        help="delete excluded entries as well",
    )
    protect: tuple[bytes, ...] = option(
        "--protect",
        metavar="GLOB",
        repeatable=True,
        parse=_encoded,
        requires=("delete", "snapshot_name"),
        excludes=("apply",),
        help="never delete entries that match GLOB",
    )
    _max_delete = taken("max_delete")
    max_delete: Any = override(
        requires=("delete", "apply"),
        help="delete nothing if more than N (or N%%) would be deleted",
    )
    ignore_errors: bool = option(
        "--ignore-errors",
        requires=("delete", "snapshot_name", "apply"),
        help="delete even if part of A could not be read",
    )
    allow_empty: bool = option("--allow-empty", help="allow A to be empty (normally refused)")
    allow_foreign: bool = option(
        "--allow-foreign", help="allow a source other than the one used by the last run"
    )
    allow_moved: bool = option(
        "--allow-moved", help="allow deletions after files were moved from A to B"
    )
    # Some of these options would remove from B the only copies of entries that were removed from A.
    _not_cleared = (
        *("apply", "changed_from", "compare_dest", "delete", "dry", "only_existing", "moved"),
        *("plan", "sign", "since_manifest", "snapshot_name", "changed", "files_from=-"),
    )
    clears_files: bool = option(
        "--remove-source-files",
        excludes=_not_cleared,
        hints={"files_from=-": ": the list is read twice"},
        help="remove files from A after their copies are verified",
    )
    clears_all: bool = option(
        "--move",
        excludes=_not_cleared,
        hints={"files_from=-": ": the list is read twice"},
        help="like --remove-source-files, and remove empty directories",
    )
    backup_dir: bytes | None = option(
        "--backup-dir",
        metavar="DIR",
        parse=_path,
        excludes=("delete=during",),
        help="move replaced and deleted entries into DIR",
    )
    snapshot_name: str | None = option(
        "--snapshot",
        metavar="NAME",
        bare="",
        excludes=(
            *("delete", "moved", "backup_dir", "max_delete", "files_from", "sign"),
            *("only_existing", "changed"),
        ),
        help="create B/NAME (default: the time), linking unchanged files",
    )
    retained: str | None = option(
        "--keep",
        metavar="LIST",
        requires=("snapshot_name",),
        help="snapshots to retain: 7d,4w,12m",
    )
    state_dir: bytes | None = option(
        "--state-dir",
        metavar="DIR",
        parse=_encoded,
        recorded=True,
        help="directory for saved state (default: next to B)",
    )

    _filters = CommonOptions.FILTERS
    _safety = CommonOptions.SAFETY
    strict_operands: bool = override(recorded=True)
    _checkpoints = CopyOptions.CHECKPOINTS
    _performance = CommonOptions.PERFORMANCE
    _copying = CopyOptions.COPYING
    reflink: Any = override(recorded=True)
    sparse: Any = override(recorded=True)
    stripe: str | None = override(recorded=True)

    _output = CommonOptions.OUTPUT
    verbose: int = override(help="list changes, as -i does (-vv: also inter-process traffic)")
    _not_planned = (
        *("backup_dir", "changed", "changed_from", "full_every_s", "retained", "clears_all"),
        *("moved", "clears_files", "sign", "since_manifest", "snapshot_name"),
    )
    _plans = taken("dry", "plan", "apply")
    plan: str | None = override(
        excludes=(*_not_planned, "delete=during"),
        help="write a plan for --apply instead of changing B",
    )
    apply: str | None = override(
        same_on_resume="listed",
        excludes=(*_not_planned, "compare_dest", "one_file_system"),
        help="carry out a plan, skipping entries that have changed",
    )
    itemize: bool = option("-i", "--itemize", help="list changes in the format of rsync -i")
    _records = CommonOptions.RECORDS
    _sign = taken("sign")

    @classmethod
    def of(cls, args: argparse.Namespace, **others: Any) -> Self:
        operands = [os.fsencode(word) for word in args.operands]
        applies = args.apply is not None and not cls._is_planned(args)
        # With --apply, rank 0 reads the operands from the plan.
        paths = [b".", b"."] if applies else operands
        require_operands(paths, "A", "B")
        if not all(paths):
            raise UsageError("empty file name")
        source, target = paths
        if not (args.strict_operands or os.path.isdir(target)):
            target = target.rstrip(b"/") or target
        given = ((f"--{name.replace('_', '-')}", getattr(args, name)) for name in _WRITTEN)
        options = super().of(
            args,
            arguments=args,
            tool="fmirror",
            sources=(source,),
            target=target,
            exact=True,
            dry=args.dry_run or args.plan is not None,
            itemize=args.itemize or args.verbose > 0,
            written=tuple((name, path) for name, path in given if path not in (None, "-")),
            **others,
        )
        if applies:
            from pcircle.cli.change_program import refuse_with_apply

            refuse_with_apply(options, operands)
        if options.snapshot_name is not None:
            options = options._with_snapshot(options.snapshot_name)
        # Evaluate both now: invalid owners must be refused before any copy, and `deleting` must not
        # change in jobs that change `dry`.
        return options.replace(keep=options.keep, deleting=options.deleting)

    def _with_snapshot(self, name: str) -> Self:
        """Return the options for mirroring to a new snapshot in the target."""
        from pcircle.tools.fmirror import snapshots  # few runs make snapshots

        snapshot = snapshots.snapshot_of(name, self.retained, self.target)
        last = snapshots.latest(self.target)
        changes: dict[str, object] = {"snapshot": snapshot}
        if last is not None:
            changes["link_dest"] = (last, *self.link_dest)
        if not self.dry or os.path.isdir(self.target):  # a dry run does not create B
            changes["target"] = snapshot.unfinished
        return self.replace(**changes)

    @staticmethod
    def _is_planned(args: argparse.Namespace) -> bool:
        """Return whether the options of a plan have been merged into the arguments."""
        return "planned" in args

    @classmethod
    def refuse_combinations(cls, args: argparse.Namespace) -> None:
        if cls._is_planned(args):
            return
        super().refuse_combinations(args)
        if args.apply is not None:
            for _, found in cls.offered():
                if found.recorded and found.is_given(args):
                    raise UsageError(f"--apply cannot be combined with {found.shown(args)}")

    @property
    def clears(self) -> Literal["", "files", "all"]:
        """Return what is removed from the source: files, all entries, or nothing ("")."""
        return "all" if self.clears_all else "files" if self.clears_files else ""

    @cached_property
    def renamed(self) -> RenamedPaths:
        """The paths that a dry run of `--moved` would rename."""
        from pcircle.tools.fmirror.plan import RenamedPaths

        return RenamedPaths()

    @property
    def is_idle(self) -> bool:
        """Return whether neither this job nor any renames that it prepares change files."""
        return self.dry and not (self.looks == "moves" and self.moved) and not self.clearing

    def comparison(self, **changes: object) -> MirrorOptions:
        """Return the options for a dry run without output files, with further `changes`."""
        from pcircle.ops.checkpoint.plan import CheckpointOptions

        never = CheckpointOptions(never=True)
        dry: dict[str, object] = {"dry": True, "itemize": False, "sign": None, "verify": False}
        return self.replace(**NO_OUTPUT, **dry, checkpoint=never, **changes)

    @property
    def kept_at(self) -> bytes:
        """Return the target, or with `--snapshot` the directory that contains all snapshots."""
        return self.target if self.snapshot is None else self.snapshot.directory

    @cached_property
    def keep(self) -> PreservedAttributes:
        """The attributes to preserve: all, or those in `--preserve`. Special files are copied."""
        from msgspec.structs import replace

        from pcircle.fs.attributes.owners import Given

        owner = self.owner
        uid, gid = (None, None) if owner is None else (owner.uid, owner.gid)
        given = Given(uid, gid, self.user_map, self.group_map, self.modes)
        keep = self._preserving(self.preserve)
        if given == Given():
            return keep
        _refuse_owners(given, keep, numeric=self.numeric_ids)
        return replace(keep, given=given)

    def _preserving(self, names: Sequence[str]) -> PreservedAttributes:
        from msgspec.structs import replace

        return replace(attributes_of(names, archive=not names), special=True)

    def effective(self) -> Self:
        return super().effective().replace(update=self.update and not self.ignore_existing)

    @cached_property
    def existing(self) -> OverwriteOptions:
        """The overwrite options; they leave decisions on existing entries to the mirror."""
        from pcircle.ops.copy.entry.overwrite import OverwriteOptions

        near = bool(self.copy_dest or self.reflink_dest)
        # With these options, a later run would not replace a file that a killed run left
        # incomplete.
        whole = self.apply is not None or self.update or self.ignore_existing
        return OverwriteOptions(by_policy=True, near=near, sync=self.sync, whole=whole)

    @cached_property
    def checkpoint(self) -> CheckpointOptions:
        """The checkpoint options.

        With `--since-manifest`, the checkpoint of an interrupted run is discarded, because the
        manifest no longer describes the target.
        """
        from msgspec.structs import replace

        found = super().checkpoint
        if self.since_manifest is not None and not found.never:
            return replace(found, resume=False, restart=True)
        if self.snapshot is None or found.resume or found.never:
            return found
        return replace(found, restart=True)

    @cached_property
    def upkeep(self) -> UpdatePolicy:
        """The rules for updating entries."""
        from pcircle.tools.fmirror.plan import UpdatePolicy

        content = "content" if self.checksum else "size" if self.size_only else "time"
        return UpdatePolicy(
            "none" if self.ignore_times else content,  # type: ignore[arg-type]
            self.window_ns,
            self.update,
            self.ignore_existing,
            self.only_existing,
            self.ctime,
            self.prunes,
        )

    @cached_property
    def deleting(self) -> DeletionPolicy:
        """The treatment of extraneous entries."""
        from pcircle.tools.fmirror.plan import DeletionPolicy

        return DeletionPolicy(
            self.delete is not None or self.snapshot is not None,
            self.delete_excluded,
            self.protect,
            self.backup_dir,
            during=self.delete == "during" and not self.dry,
            reported=self.itemize,
        )

    def refuse_conflicts(self) -> None:
        super().refuse_conflicts()
        if self.new_manifest is not None and self.since_manifest is None:
            raise UsageError(
                "--new-manifest requires --since-manifest; create the first manifest with fsum -o"
            )
        if self.changed_from is not None and self.selects_by_attribute:
            raise UsageError("--changed-from cannot be combined with filters")
        if self.moved and self.delete is None:
            raise UsageError(
                "--moved requires --delete: entries that remain in B cannot be renamed"
            )
        if self.changed == "fs" and (self.filters or self.files_from is not None):
            raise UsageError("--changed=fs cannot be combined with filters or --files-from")
        if self.changed != "walk" and self.delete == "during":
            raise UsageError(f"--delete=during cannot be combined with --changed={self.changed}")
        for name, trees in ("copy", self.copy_dest), ("reflink", self.reflink_dest):
            for other, given in ("signature", self.sign is not None), ("verify", self.verify):
                if trees and given:
                    text = "contents that are not read from A cannot be compared with A"
                    raise UsageError(f"--{name}-dest cannot be combined with --{other}: {text}")
        if self.plan is not None:
            outputs = (self.json, self.json_lines, self.list_out, self.error_log, self.files_from)
            if self.plan in outputs:
                from pcircle.core.encoding import show

                raise UsageError(f"'{show(os.fsencode(self.plan))}' is used by two options")
