"""Removes extraneous entries, or moves them to the backup.

This job runs after the copy, which has found the paths. Like the paths of `--files-from`, they form
a sorted list on disk, so their number is not limited by memory. frm's remover removes them.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from pcircle.cli.change_program import ChangeConsole, ChangeProgram
from pcircle.cli.results import append_output
from pcircle.core.encoding import show
from pcircle.core.errors import require_type
from pcircle.core.units import plural
from pcircle.fs.directories import Lease, closing_fd, join_path
from pcircle.fs.entry_errors import errno_and_reason, error_context, kind_of, tried
from pcircle.fs.lists import Lists, record_of, sort
from pcircle.fs.safe_open import directory
from pcircle.fs.scan import Block, blocks, encoded
from pcircle.fs.write_access import Admissions, Obstacle, WriteAccess
from pcircle.jobs.action_log import ActionLines, ActionLog
from pcircle.jobs.change_task import MaxDelete
from pcircle.jobs.failures import Failure, LogFile
from pcircle.jobs.plan_file import LoadedPlan, split_mark
from pcircle.jobs.tree_task import TreeItem, resolve
from pcircle.ops.remove.plan import RemovalCounters, RemovalPlan
from pcircle.ops.remove.remover import Remover, RemoveTask, restore
from pcircle.runtime import Context, Outcome
from pcircle.tools.fmirror.options import MirrorOptions
from pcircle.tools.fmirror.plan import MirrorPlan
from pcircle.tools.fmirror.work import extraneous
from pcircle.tools.fmirror.work.backup import Backup, TargetAccess, paths_to_move
from pcircle.tools.fmirror.work.rename_pairs import PathHashes
from pcircle.walk.attributes import ANY
from pcircle.walk.globs import Rule, choosing
from pcircle.walk.open_directory import Open
from pcircle.walk.roots import Root
from pcircle.walk.visitor import Names, Where

if TYPE_CHECKING:
    from pcircle.jobs.action_log import Said
    from pcircle.jobs.plan_output import PlanFile


class DeletionLog(ActionLog):
    """Reports deletions in the format of rsync."""

    def done(
        self,
        action: str,
        root: int,
        path: bytes,
        kind: str,
        size: int = 0,
        *,
        said: Said = None,
        why: tuple[str, ...] = (),
    ) -> None:
        if self.output.word:
            said = extraneous.deletion_line(path, kind)
        super().done(action, root, path, kind, size, said=said, why=why)


class DeletionPlan(RemovalPlan, frozen=True, kw_only=True):
    """The plan of the removals.

    `renamed` holds, as `PathHashes`, the paths that a dry run with --moved would rename; these are
    not removed. If `source` is given, entries that exist there are not removed.
    """

    renamed: memoryview = memoryview(b"")
    source: extraneous.MirrorSource | None = None


class DeletionCounters(RemovalCounters):
    """Counters of removals and of entries that stay.

    `returned` counts entries that exist in the source again, and `moving` entries whose directory
    in the source keeps changing.
    """

    returned: int
    moving: int


class _Returned:
    """The state of a directory that stays because it exists in the source again."""

    def __init__(self, obstacle: Obstacle | None) -> None:
        self.obstacle = obstacle


class Deleter(Remover):
    """Removes extraneous entries unless they exist in the source again or would be renamed."""

    counters: DeletionCounters

    def __init__(self, task: RemoveTask, counters: RemovalCounters | None = None) -> None:
        super().__init__(task, counters)
        plan = require_type(DeletionPlan, task.plan)
        self._renamed = PathHashes(plan.renamed)
        self._absence: extraneous.Absence | None = None
        if plan.source is not None:
            self._absence = extraneous.Absence(plan.source, task.identify)

    def enter(self, opened: Open[int], source: Lease, holder: Open[int] | None) -> Lease | None:
        """Skip a directory that exists in the source again."""
        above, _, name = opened.path.rpartition(b"/")
        lease = super().enter(opened, source, holder)
        if self._absence is not None and name and self._goes(opened):
            with error_context("look up in the source"):
                found = self._absence.has(above, [name], directories=True)
            if found.names:
                self._count_kept(found)
                opened.entered, opened.own = False, _Returned(opened.own.obstacle)
        return lease

    def end(self, context: Context[TreeItem], opens: Sequence[Open[int]]) -> None:
        super().end(context, opens)
        if self._absence is not None:
            self._absence.close()

    def leave(self, opened: Open[int], context: Context[TreeItem]) -> int:
        if not isinstance(opened.own, _Returned):
            return super().leave(opened, context)
        with suppress(OSError):  # the next run will report the error
            restore(opened, self.task.directories)
        return 1

    def names(
        self, where: Where, names: Names, fds: tuple[int, int], context: Context[TreeItem]
    ) -> None:
        """Remove names unless they exist in the source again."""
        if self._absence is not None:
            self._leave_returned(self._absence, where, names, context)
        super().names(where, names, fds, context)

    def _leave_returned(
        self, absence: extraneous.Absence, where: Where, names: Names, context: Context[TreeItem]
    ) -> None:
        bare = {name: split_mark(name)[0] for name in names.all()}
        gone: set[bytes] = set()
        try:
            found = absence.has(where.path, list(bare.values()), directories=False)
            self._count_kept(found)
            gone.update(found.names)
        except OSError as error:
            for name in bare.values():
                path = join_path(where.path, name)
                self.fail(where.root, path, "look up in the source", error, context)
            gone.update(bare.values())
        if gone:
            self._stays = 1
            self.counters.weight += where.weight * len(gone)
            self.counters.sized += len(gone)
            for names_of_kind in (names.files, names.links, names.specials):
                names_of_kind[:] = [name for name in names_of_kind if bare[name] not in gone]

    def _count_kept(self, found: extraneous.PresentNames) -> None:
        counters, count = self.counters, len(found.names)
        counters.kept += count
        counters.moving += count * found.moving
        counters.returned += count * (not found.moving)

    def meant(self, opened: Open[int], blocks: Iterable[Block], source: Lease) -> Iterable[Block]:
        for block in super().meant(opened, blocks, source):
            if len(self._renamed):
                path, renamed = opened.path, self._renamed
                block.files[:] = [
                    name
                    for name in block.files
                    if join_path(path, os.fsencode(name)) not in renamed
                ]
            yield block


class DeletionTask(RemoveTask):
    """The removals on one rank or thread."""

    tool = "fmirror"
    visitor_type: ClassVar[type[Deleter]] = Deleter
    plan: DeletionPlan
    counters_type: ClassVar[type[DeletionCounters]] = DeletionCounters
    actions_type: ClassVar[type[DeletionLog]] = DeletionLog


class DeletionConsole(ChangeConsole):
    """Reports the deletions, but leaves the JSON result to the console of the copy."""

    account = "removed"
    _program: DeletionProgram

    def notice(self, source: int, values: Sequence[object]) -> None:
        """Report entries of replaced directories with their former paths."""
        replaced = self._program.found.replaced
        if replaced:
            values = [
                msgspec.structs.replace(value, said=_renamed(value.said, replaced))
                if isinstance(value, ActionLines)
                else value
                for value in values
            ]
        program = self._program
        if program.planned is not None:
            values = [program.as_planned(value) for value in values]
        super().notice(source, values)

    def conclude(self, outcome: Outcome[dict[int, int]]) -> int:
        """Conclude the job. Print no result if entries have yet to be moved to the backup."""
        self.quiet: bool = self.quiet or self._program.keeps
        return super().conclude(outcome)

    def end_plan(self, last: bytes) -> str:
        """Do not complete the plan, because its last line is written later."""
        return ""

    def remarks(self, total: DeletionCounters, code: int) -> Iterable[str]:
        yield from super().remarks(total, code)
        for count, why in (
            (total.returned, "they exist in A again"),
            (total.moving, "their directory in A keeps changing"),
        ):
            if count:
                yield f"{plural(count, 'entry', 'entries')} not removed from B: {why}"

    def summary(self, total: RemovalCounters) -> str:
        verb = self._program.verb
        text = f"{plural(total.completed, 'entry', 'entries')} {verb}"
        return f"{text}, {total.vanished:,} vanished" if total.vanished else text


def _renamed(said: bytes, replaced: Mapping[bytes, bytes]) -> bytes:
    """Return deletion lines with the paths that the entries had when the run began."""
    lines = []
    for line in said.splitlines(keepends=True):
        path = line.removeprefix(extraneous.DELETING)
        for now, was in replaced.items():
            if path.startswith(show(now).encode() + b"/"):
                line = extraneous.DELETING + show(was).encode() + path[len(show(now).encode()) :]
        lines.append(line)
    return b"".join(lines)


class DeletionProgram(ChangeProgram):
    """The program of the removal job.

    `found` contains the extraneous paths, and `entries` is the number of entries in the source. If
    `keeps` is set, the job only counts and reports, and the paths are moved to the backup
    afterwards. Entries that `rules` exclude stay, and so do their parent directories. `decision`,
    the plan of the copy, identifies the source; entries that exist there are not removed. The
    target must be the directory identified by `known`. If `plan` is given, planned removals are
    added to that file. With `--apply`, `applied` selects the planned removals. `renamed` is passed
    to `DeletionPlan`. If `flags` is set, inode flags that forbid removal are cleared.
    """

    name: str = "fmirror"
    said: str = "removed"
    plan_type: ClassVar[type[DeletionPlan]] = DeletionPlan
    task_type: ClassVar[type[DeletionTask]] = DeletionTask
    console_type: ClassVar[type[DeletionConsole]] = DeletionConsole

    def __init__(
        self,
        options: MirrorOptions,
        target: bytes,
        found: extraneous.ExtraneousPaths,
        entries: int,
        *,
        dry: bool,
        keeps: bool,
        rules: Sequence[Rule] = (),
        renamed: bytes = b"",
        plan: PlanFile | None = None,
        applied: Callable[[Iterable[bytes], Mapping[bytes, bytes]], LoadedPlan] | None = None,
        decision: MirrorPlan | None = None,
        known: tuple[int, int] | None = None,
        flags: bool = False,
    ) -> None:
        self.verb = "would be removed" if dry else "removed"
        self.keeps: bool = keeps and not dry
        changes: dict[str, Any] = {
            **WITHOUT_SELECTION,
            "verbose": int(options.itemize),
            "stats": 0,
            "dry": dry or keeps,
            "max_delete": _of_target(options.max_delete, entries),
        }
        if keeps:
            changes["json_lines"] = None
        if rules:
            changes["filters"] = (*_replaced(found.replaced), *map(_as_typed, rules))
        super().__init__(
            options.replace(**changes),
            [target],
            recursive=applied is None,
            keep_root=True,
            listed=True,
            keep_times=True,
            force_modes=not dry,
            restores=not dry,
            lifts_flags=flags and not dry,
            renamed=renamed,
            source=None if decision is None else extraneous.source_of(decision),
        )
        self.found = found
        self._known = known
        self.entries_planned: int = 0
        self._plan, self._applied = plan, applied

    def can_lose_ranks(self) -> bool:
        """Return False, because a mirror does not restart one of its jobs if ranks are lost."""
        return False

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for ranks in new interpreters, without what only rank 0 uses."""
        empty = {"found": extraneous.ExtraneousPaths(), "_applied": None, "_plan": None}
        return {**vars(self), **empty}

    def roots(self) -> tuple[Root, ...]:
        """Return the root, or nothing if there are no paths to remove."""
        found = self.found
        if not found.count:
            return ()
        (root,) = resolve(self.paths)
        roots = (msgspec.structs.replace(root, known=self._known),)
        if self._applied is not None:
            self.applied: LoadedPlan = msgspec.structs.replace(
                self._applied(found.paths(), found.replaced), roots=roots
            )
        return roots

    def decided(self, roots: tuple[Root, ...], ranks: int) -> dict[str, Any]:
        decided = super().decided(roots, ranks)
        acts = msgspec.structs.replace(decided["acts"], plan=self._plan is not None)
        return decided | {"acts": acts}

    def as_planned(self, value: object) -> object:
        """Count the plan lines of a notice, and return the notice with these marked as removals."""
        if not isinstance(value, ActionLines) or not value.planned:
            return value
        lines = value.planned.splitlines(keepends=True)
        self.entries_planned += len(lines)
        planned = b"".join(b"[1," + line.removeprefix(b"[0,") for line in lines)
        return msgspec.structs.replace(value, planned=planned)

    def listing(self, roots: tuple[Root, ...]) -> Lists | None:
        if self.applied is not None:
            return self.applied.lists
        paths = self.found.paths()
        return sort([(0, (record_of(path, whole=True) for path in paths))] if roots else [])

    def begin(self, roots: tuple[Root, ...]) -> None:
        """Append to the plan and the logs of the copy."""
        self.planned: PlanFile | None = self._plan
        self.log: LogFile | None = append_log(self.options.error_log)
        self.actions: LogFile | None = append_log(self.options.json_lines)


WITHOUT_SELECTION: dict[str, object] = {
    "filters": (),
    "files_from": None,
    "null": False,
    "attribute_filter": ANY,
    "apply": None,
    "plan": None,
    "list_out": None,
    "json": None,
    "recursive": True,
    "one_file_system": False,
}
"""Options that the user cannot choose for the deletions, with their fixed values."""


_TOKEN_BYTES = len(".fcp-01234567-")


def _replaced(paths: Iterable[bytes]) -> list[tuple[str, bytes]]:
    """Return rules that include all contents of directories that were replaced.

    These directories have temporary names that begin with the prefix of this run.
    """
    prefixes = {os.path.basename(path)[:_TOKEN_BYTES] for path in paths}
    return [("include", prefix + b"*/***") for prefix in sorted(prefixes)]


def _as_typed(rule: Rule) -> tuple[str, bytes]:
    """Return a rule as a command-line option whose pattern cannot be mistaken for a modifier."""
    return "exclude", (b"+ " if rule.include else b"- ") + rule.pattern


def append_log(path: str | None) -> LogFile | None:
    """Open a log of the copy for appending. Return None if there is no log."""
    return None if path is None else LogFile(append_output(path))


def _of_target(most: MaxDelete | None, entries: int) -> MaxDelete | None:
    """Convert a limit that is a share of the target's entries into a number.

    `entries` is the number of entries in the source, all of which the target has after the copy.
    """
    if most is None or not most.is_share or most.number >= 100:
        return None if most is not None and most.is_share else most
    share = most.number / 100
    return MaxDelete(most.text, int(share * entries / (1 - share)), is_share=False)


def moved(
    place: bytes,
    target: bytes,
    paths: Iterator[bytes],
    rules: Sequence[Rule],
    absence: extraneous.Absence,
    *,
    known: tuple[int, int] | None,
    strict: bool,
    access: WriteAccess,
) -> tuple[list[Failure], int]:
    """Move extraneous entries to the backup, directories with their contents.

    Return the failures and the number of entries that stay, or -1 if the target is not the
    directory identified by `known`. Entries that `rules` exclude stay, and so do entries that exist
    in the source again. If `strict` is set, the path of the target must not contain symbolic links.
    `access` defines which protections may be lifted temporarily.
    """
    backup, stay = Backup(place), 0
    failed: list[Failure] = []

    def fail(path: bytes, doing: str, error: OSError) -> None:
        shown = os.path.join(target, path)
        failed.append(Failure(shown, doing, *errno_and_reason(error), 0, path, kind_of(error)))

    choose = choosing(rules) if rules else None
    top = directory(target, linkless=strict)
    try:
        status = os.fstat(top)
        if known is not None and known != (status.st_dev, status.st_ino):
            fail(b"", "back up from", OSError(errno.ESTALE, "it was replaced by another directory"))
            return failed, -1
        for path in paths:
            with Admissions(access) as admissions:
                way = TargetAccess(top, admissions)
                try:
                    for inner in [path] if choose is None else paths_to_move(path, way, choose):
                        if _is_absent(inner, way, absence):
                            backup.move(inner, way)
                        else:
                            stay += _entries_of(inner, way)
                except OSError as error:
                    fail(path, tried(error, "back up"), error)
                    stay += _entries_of(path, way)
    finally:
        os.close(top)
        backup.close()
    return failed, stay


def _entries_of(path: bytes, way: TargetAccess) -> int:
    """Return the number of entries at and below a path."""
    found, waiting = 0, [path]
    while waiting:
        here = waiting.pop()
        found += 1
        with suppress(OSError), closing_fd(way.open(here)) as fd:
            for block in blocks(fd):
                found += len(block) - len(block.directories)
                waiting += [join_path(here, name) for name in encoded(block.directories)]
    return found


def _is_absent(path: bytes, way: TargetAccess, absence: extraneous.Absence) -> bool:
    """Return whether the source lacks an entry of the target.

    Raise OSError if that is unknown.
    """
    with closing_fd(way.open(os.path.dirname(path))) as fd:
        return absence.lacks(path, fd)
