"""The program of a mirror's copy. On rank 0 it checks the options and makes the plan."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from pcircle.cli.inputs import read_paths
from pcircle.core.encoding import show
from pcircle.core.errors import EntriesFailed, UsageError, require, require_type
from pcircle.jobs.action_log import ActionOutput
from pcircle.jobs.failures import decode
from pcircle.jobs.plan_file import LoadedPlan
from pcircle.ops.copy.tree.items import DIRECTORY, CopyPlan, CopyRoot
from pcircle.runtime import Observer, Task
from pcircle.tools.common.copy_program import CopyProgram
from pcircle.tools.fmirror import plan_file
from pcircle.tools.fmirror.checks import (
    HeldDirectory,
    has_entries,
    held,
    make_backup,
    refuse_apart,
    refuse_inside,
    refuse_other,
    refuse_removed,
    refuse_without_clones,
    warn_of_slash,
)
from pcircle.tools.fmirror.options import MirrorOptions
from pcircle.tools.fmirror.plan import MirrorPlan
from pcircle.tools.fmirror.report import ClearConsole, MirrorConsole
from pcircle.tools.fmirror.state import state
from pcircle.tools.fmirror.state.state import Lock
from pcircle.tools.fmirror.work.extraneous import (
    ExtraneousFinder,
    ExtraneousPaths,
    UnfilteredDecisions,
    kept_rules,
    packed,
)
from pcircle.tools.fmirror.work.listing import clock_ns
from pcircle.tools.fmirror.work.rename_pairs import PathHashes
from pcircle.tools.fmirror.work.visitor import (
    JournaledMirror,
    JournaledMirrorApply,
    MirrorApplyTask,
    MirrorTask,
)

if TYPE_CHECKING:
    from pcircle.fs.lists import Lists
    from pcircle.ops.copy.tree.dry_run import DryTask
    from pcircle.tools.common.copy_error_log import RetryEntry
    from pcircle.tools.fmirror.state.changes import Changes
    from pcircle.tools.fmirror.state.manifests import ManifestSurvey
    from pcircle.tools.fmirror.state.state import Session
    from pcircle.walk.globs import Rule


class MirrorProgram(CopyProgram):
    """The program of the copy job."""

    plan_type: ClassVar[type[MirrorPlan]] = MirrorPlan
    task_type: ClassVar[type[MirrorTask]] = MirrorTask
    said: ClassVar[str] = ""
    journaled_type: ClassVar[type[JournaledMirror]] = JournaledMirror
    console_type: ClassVar[type[MirrorConsole]] = MirrorConsole
    _options: MirrorOptions
    outlives_ranks = False
    lists_completely = True

    def __init__(
        self,
        options: MirrorOptions,
        umask: int,
        lock: Lock,
        survey: ManifestSurvey | None = None,
    ) -> None:
        """Initialise the program; `survey` is the completed comparison with a manifest."""
        super().__init__(options, umask)
        self._lock = lock
        self.applied: LoadedPlan | None = None  # the plan that --apply carries out
        # Unless noted otherwise, the following fields are set only on rank 0.
        self.console: MirrorConsole | None = None
        self.sides: tuple[HeldDirectory, HeldDirectory] = HeldDirectory(b""), HeldDirectory(b"")
        self.decision: MirrorPlan | None = None
        self.identity: state.Identity | None = None
        # Set on all ranks when the task begins. Nothing may be removed before that.
        self.has_begun: bool = False
        self.known: state.MirrorState | None = None
        self.session: Session = state.Session()
        self.has_mark: bool = False  # the target still has the mark of the last run
        self.devices: tuple[int, int] = 0, 0  # of A and B
        self.changes: Changes | None = None  # reported by the file system
        self.snapshot: tuple[tuple[str, int], str] | None = None
        self.again: bool = options.deleting.enabled or options.apply is not None
        self.again = self.again or options.new_manifest is not None or bool(options.clears)
        self.survey = survey
        self.is_named: bool = False  # only the entries of a user's list are compared
        self._gone = ExtraneousPaths()  # listed entries that A lacks

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for ranks in new interpreters, without what only rank 0 uses."""
        return {**vars(self), "survey": None, "_lock": None}

    @property
    def mirror(self) -> MirrorOptions:
        """Return the options. With `--apply`, those on rank 0 include the options of the plan."""
        return self._options

    def prepare(self, nodes: Sequence[int]) -> bytes:
        options = self._options
        snapshot = options.snapshot
        if os.path.isdir(options.sources[0]) and not options.is_idle:
            self._lock.take(options.kept_at, options.state_dir)
        if snapshot is not None:
            from pcircle.tools.fmirror import snapshots  # few runs make a snapshot

            source = options.sources[0]
            makes = os.path.isdir(source) and not options.dry
            if makes:
                above = os.path.dirname(snapshot.directory.rstrip(b"/")) or b"."
                refuse_inside(above, source, said=snapshot.directory)
            snapshots.begin(snapshot, make=makes)
        with held(options.sources[0]) as one, held(options.target) as other:
            self.sides = one, other
            return super().prepare(nodes)

    def _roots(self, failed: Sequence[RetryEntry], here: bytes) -> tuple[CopyRoot, ...]:
        """Return the roots with the identities of the directories that were checked."""
        source, target = self.sides
        known = {"source_known": source.known, "target_known": target.known}
        roots = super()._roots(failed, here)
        return tuple(msgspec.structs.replace(root, **known) for root in roots)

    def listing(self, roots: tuple[CopyRoot, ...]) -> Lists | None:
        """Return a list of the entries to compare, or None to compare everything."""
        self._examine(roots)
        options = self._options
        if self.survey is not None:
            return self.survey.lists()
        if options.changed_from is not None:
            return self._named(options.changed_from, options.sources[0], options.target)
        if options.changed == "walk":
            return None
        return self._reported_changes(options.sources[0], options.target)

    def _named(self, name: str, source: bytes, target: bytes) -> Lists | None:
        """Return the entries that the user lists as changed, or None to compare everything."""
        options, known = self._options, self.known
        why = ""
        if options.full_every_s is not None:
            why = state.overdue(options, known) if known else "there was no earlier complete run"
        if why:
            if not options.quiet:
                self.complain(f"examining the entire source: {why}")
            return None
        note = None if options.quiet else self.complain
        null, option = options.null, "--changed-from"
        self.is_named = True
        from pcircle.fs.lists import sort  # few runs have a list
        from pcircle.tools.fmirror.state.changes import named

        records = read_paths(name, null=null, whole=True, note=note, option=option, complete=True)
        identities = [side.known for side in self.sides]
        found = named(records, (source, target), self._finder(), self._gone.add, identities)
        return sort([(0, found)])

    def _examine(self, roots: tuple[CopyRoot, ...]) -> None:
        """Check and identify the trees, and read the recorded state.

        Raise UsageError if these trees cannot be mirrored.
        """
        options = self._options
        (root,) = roots
        source, target = options.sources[0], options.target
        if root.kind != DIRECTORY:
            raise UsageError(f"'{show(source)}' is not a directory")
        refuse_inside(source, target)
        for option, path in ("--plan", options.plan), ("--new-manifest", options.new_manifest):
            if path is not None:
                plan_file.refuse_within(option, path, source, target)
        reference_trees = options.link_dest + options.compare_dest + options.copy_dest
        for other in (*reference_trees, *options.reflink_dest):
            refuse_other(other, source, target)
        for name, trees in ("link", options.link_dest), ("reflink", options.reflink_dest):
            for other in trees:
                refuse_apart(f"--{name}-dest", other, os.stat(other).st_dev, target)
        if options.reflink_dest:
            refuse_without_clones(target, self.complain)
        there = self.sides[0].path
        self.known = state.read(state.place_of(options.kept_at, options.state_dir))
        self.identity = state.identity_if_readable(there)
        with suppress(OSError):  # the walk will report a root that cannot be read
            self.session = state.session_of(there)
            self.snapshot = state.snapshot_of(state.source_of(there))
        if self.identity is not None and self.known is not None and os.path.isdir(target):
            self.has_mark = state.has_mark(target, self.known)
            self.devices = os.stat(there).st_dev, os.stat(target).st_dev

    def _reported_changes(self, source: bytes, target: bytes) -> Lists | None:
        """Return the changes that the file system reports, or None if it may have missed any."""
        options, by_proof = self._options, self._options.changed == "auto"
        before = None if self.known is None else self.known.subvolume
        why, number = self._unfit(source)
        if why or before is None:
            if options.verbose if by_proof else not options.quiet:
                self.complain(f"examining the entire source: {why}")
            return None
        if by_proof and not options.quiet:
            self.complain(
                "examining only the changes that btrfs reports: the snapshot of the last "
                "complete run still exists, and the target has not changed since"
            )
        from pcircle.fs.lists import sort  # few runs use the changes that btrfs reports
        from pcircle.tools.fmirror.state import changes

        self.changes = changes.found(source, target, before[1], number, self._finder())
        return sort([(0, self.changes.records)])

    def _unfit(self, source: bytes) -> tuple[str, int | None]:
        """Return why changes may be missed, or an empty string, and the last snapshot's number."""
        from pcircle.tools.fmirror.state import changes  # few runs use the changes of btrfs

        options, known = self._options, self.known
        if known is None:
            return changes.unfit(source, None), None
        why = state.overdue(options, known) or changes.unfit(source, known.subvolume)
        why = why or state.other_target(options, known)
        if why:
            return why, None
        number = state.number_of_last(source, known)
        return state.unproven(options, known, number) if options.changed == "auto" else "", number

    def _finder(self) -> ExtraneousFinder | None:
        """Return the finder of extraneous entries on rank 0, or None if nothing is removed."""
        deleting = self._options.deleting
        return ExtraneousFinder(UnfilteredDecisions(deleting)) if deleting.enabled else None

    def _decide(
        self,
        nodes: Sequence[int],
        roots: tuple[CopyRoot, ...],
        rules: tuple[Rule, ...],
        here: bytes,
    ) -> CopyPlan:
        options = self._options
        if options.deleting.enabled:
            keeping_rules, written = (
                kept_rules(UnfilteredDecisions(options.deleting, rules)),
                options.written,
            )
            if options.state_dir is not None:
                place = os.fsdecode(state.place_of(options.kept_at, options.state_dir))
                written = (*written, ("--state-dir", place))
            refuse_removed(written, options.target, keeping_rules)
        return super()._decide(nodes, roots, rules, here)

    def decided(self, roots: tuple[CopyRoot, ...]) -> dict[str, Any]:
        if self.identity is None:  # with --files-from, `listing` was not called
            self._examine(roots)
        options, known = self._options, self.known
        source, target = options.sources[0], options.target
        if options.deleting.enabled:
            self._refuse_source(source)
        if options.deleting.backup is not None:
            make_backup(options.deleting.backup, source, target, make=not options.dry)
        warn_of_slash(source, target, self.complain)
        quiet_ns = None if known is None else state.quiet_ns(options, known, self.identity)
        if options.upkeep.ctime and quiet_ns is None and has_entries(target):
            self.complain(
                "--ctime: no complete run with this option is known, so all files are read"
            )
        return {
            "quiet_ns": quiet_ns,
            "devices": self.devices,
            "renamed": options.renamed.new,
            "began_ns": clock_ns(),
        }

    @property
    def is_part(self) -> bool:
        """Return whether only entries that may have changed were compared."""
        surveyed = self.survey is not None and self.survey.used
        return self.changes is not None or surveyed or self.is_named

    @property
    def entries(self) -> int:
        """Return the number of entries in the source, on rank 0.

        If only part of the source was compared, this is an estimate.
        """
        entries = 0 if self.console is None else self.console.entries
        if not self.is_part:
            return entries
        known = 0 if self.known is None else self.known.entries
        return max(entries, known if self.survey is None else self.survey.entries)

    def _acts(self, roots: tuple[CopyRoot, ...]) -> ActionOutput:
        acts = super()._acts(roots)
        return msgspec.structs.replace(acts, plan=self._options.plan is not None)

    def _open_logs(self) -> None:
        super()._open_logs()
        options = self._options
        if options.plan is not None:
            from pcircle.jobs.plan_output import PlanFile  # few runs write a plan

            self.planned: PlanFile = PlanFile(options.plan, "--plan", "plan")
            self.planned.append(plan_file.begun(options.arguments, *self._sides()))

    def _sides(self) -> tuple[list[bytes], list[str]]:
        """Return the paths of A and B, and their identities."""
        paths, known_by = [self._options.sources[0], self._options.target], []
        for path in paths:
            known = state.identity_if_readable(path)
            known_by.append("-" if known is None else f"{known.filesystem} {known.root}")
        return paths, known_by

    @property
    def is_continued(self) -> bool:
        """Return whether this run continues an earlier one.

        Such a run has not compared everything itself.
        """
        return self._checkpoint_session is not None and self._checkpoint_session.plan.run > 1

    def dry_type(self) -> type[DryTask]:
        if self._options.looks == "moves":
            from pcircle.tools.fmirror.renames import MissingFilesTask  # few runs rename files

            return MissingFilesTask
        from pcircle.tools.fmirror.work.dry import DryMirrorTask  # few runs are dry

        return DryMirrorTask

    def complain(self, text: str) -> None:
        """Print a message, except in a job that only searches (`looks`)."""
        if not self._options.looks:
            super().complain(text)

    def _refuse_source(self, source: bytes) -> None:
        """Raise UsageError if it may be unsafe to remove entries that the source lacks.

        If the source is empty or a different directory, its file system may not be mounted. Files
        that were moved from a source may exist only in the target.
        """
        options = self._options
        is_empty = not has_entries(self.sides[0].path, source)
        if is_empty and not options.allow_empty and has_entries(options.kept_at):
            raise UsageError(
                f"'{show(source)}' is empty and '{show(options.kept_at)}' is not: nothing was "
                "changed; if this is intended, add --allow-empty"
            )
        known = self.known
        if known is not None and known.moved_ns and not (options.allow_moved or options.snapshot):
            day = time.strftime("%Y-%m-%d", time.localtime(known.moved_ns // 10**9))
            raise UsageError(
                f"files were moved from a source to '{show(options.target)}' on {day}, and exist "
                "nowhere else: nothing was changed; if this is intended, add --allow-moved"
            )
        if known is None or options.allow_foreign or state.is_new(options.target, known):
            return
        if self.identity is None:
            raise EntriesFailed(f"cannot read '{show(source)}': nothing was changed")
        if known.identity != self.identity:
            raise UsageError(
                f"'{show(source)}' is not the source of the last complete run (different directory "
                "or file system): nothing was changed; if this is intended, add --allow-foreign"
            )
        missing = known.mounts - state.mounts_of(self.sides[0].path)
        if missing:
            inner = show(os.path.join(source, decode(min(missing))))
            raise UsageError(
                f"'{inner}' was a mount point at the last complete run and is no longer one: "
                "nothing was changed; if this is intended, add --allow-foreign"
            )

    def task(self, plan: bytes, rank: int, size: int) -> Task[Any, Any]:
        self.has_begun = True
        return super().task(plan, rank, size)

    def observer(self, plan: bytes) -> Observer[Any]:
        decided = msgspec.msgpack.decode(plan, type=MirrorPlan)
        console = require_type(MirrorConsole, super().observer(plan))
        self.console, self.decision = console, decided
        snapshot = self._options.snapshot
        console.place = None if snapshot is None else show(snapshot.path)
        console.decision, console.rules = decided, kept_rules(decided)
        console.applies = self.applied is not None
        console.renamed = PathHashes(self._options.renamed.old)
        self._touch()
        if self.changes is not None and self.changes.surplus:
            console.found.add(packed(0, self.changes.surplus))
        elif self.survey is not None:
            console.found = self.survey.found
        elif self.is_named:
            console.found = self._gone
        return console

    def _touch(self) -> None:
        """Record in the state that this run may change the target."""
        options = self._options
        if self.known is None or options.is_idle:
            return
        place = state.place_of(options.kept_at, options.state_dir)
        try:
            state.write(place, msgspec.structs.replace(self.known, touched_ns=state.now_ns()))
        except OSError as error:
            self.complain(f"cannot write the state '{show(place)}': {error.strerror}")


class MirrorApplyProgram(MirrorProgram):
    """The program of the copy with `--apply`. It uses the options that the plan records."""

    applied: LoadedPlan
    task_type: ClassVar[type[MirrorApplyTask]] = MirrorApplyTask
    journaled_type: ClassVar[type[JournaledMirrorApply]] = JournaledMirrorApply

    def prepare(self, nodes: Sequence[int]) -> bytes:
        self.applied, args = plan_file.planned(self._options.arguments)
        self._options = MirrorOptions.of(args)
        return super().prepare(nodes)

    def listing(self, roots: tuple[CopyRoot, ...]) -> Lists | None:
        """Return the entries to copy, and the directories from which entries are removed."""
        self._examine(roots)
        applied = require(self.applied)
        plan_file.refuse_others(applied, *self._sides())
        return applied.lists.of(0)

    def dry_type(self) -> type[DryTask]:
        from pcircle.tools.fmirror.work.dry import DryApplyTask  # few runs are dry

        return DryApplyTask


class ClearProgram(MirrorProgram):
    """The last job of `--remove-source-files` and `--move`: removes mirrored entries from A."""

    console_type: ClassVar[type[ClearConsole]] = ClearConsole

    def dry_type(self) -> type[DryTask]:
        # Imported here, because few runs remove entries from the source.
        from pcircle.tools.fmirror.work.remove_source import ClearTask, MoveAwayTask

        return MoveAwayTask if self._options.clears == "all" else ClearTask
