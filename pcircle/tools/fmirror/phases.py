"""A run of fmirror: its phases in order, and their shared state.

Most phases are jobs. All ranks execute the same phases, but only rank 0 has the results. On the
other ranks, `MirrorRun.console` is None.

At the end, a run records in the target's state what later runs may rely on.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec.structs import replace

from pcircle.cli.program import run_tool, with_jobs_for
from pcircle.cli.results import report_to_caller
from pcircle.core.encoding import show
from pcircle.core.errors import EntriesFailed, StoppedEarly, UsageError, require, worst
from pcircle.core.units import plural
from pcircle.fs.safe_open import any_link
from pcircle.fs.write_access import WriteAccess
from pcircle.jobs.failures import encode
from pcircle.jobs.plan_file import tail
from pcircle.tools.common.copy_program import run_copy
from pcircle.tools.fmirror import plan_file
from pcircle.tools.fmirror.options import NO_OUTPUT, QUIET, MirrorOptions
from pcircle.tools.fmirror.plan import DeletionPolicy, UpdatePolicy, kept_words
from pcircle.tools.fmirror.program import ClearProgram, MirrorApplyProgram, MirrorProgram
from pcircle.tools.fmirror.report import ClearConsole, MirrorConsole, RemovalResult
from pcircle.tools.fmirror.state import state
from pcircle.tools.fmirror.state.state import Lock
from pcircle.tools.fmirror.work.extraneous import Absence, ExtraneousPaths, packed, source_of
from pcircle.tools.fmirror.work.listing import KnownTimes
from pcircle.transport.launch import launched

if TYPE_CHECKING:
    from pcircle.jobs.failures import FailedEntry
    from pcircle.tools.fmirror.removal import DeletionProgram
    from pcircle.tools.fmirror.snapshots import Snapshot
    from pcircle.tools.fmirror.state.manifests import ManifestSurvey
    from pcircle.tools.fmirror.work.rename_pairs import RenameResult
    from pcircle.walk.globs import Rule


P = TypeVar("P", bound=MirrorProgram)

_REMOVED = ("files", "directories", "links", "special")


class MirrorRun:
    """A run of fmirror: its options, its exit code and the results of its phases.

    `ending` releases resources at the end. If a phase sets `is_over`, the run ends after that phase
    without a report.
    """

    copied: MirrorProgram
    """The program of the copy; the copy phase sets it."""

    def __init__(self, options: MirrorOptions, lock: Lock, ending: ExitStack) -> None:
        self.options = options
        self.lock = lock
        self.ending = ending
        self.began_ns: int = state.now_ns()
        self.code: int = 0
        self.is_over = False
        self.renames: RenameResult | None = None
        self.survey: ManifestSurvey | None = None
        self.doubts: Sequence[FailedEntry] = ()  # directories whose missing entries may have moved
        self.removed: RemovalResult = RemovalResult()
        self.expired: list[bytes] = []  # names of expired snapshots
        self.cleared = 0

    def execute(self) -> None:
        """Execute the phases, until one of them ends the run."""
        for phase in list(phases_of(self.options)):
            if phase.is_due(self):
                phase.run(self)
            if self.is_over:
                return

    @property
    def console(self) -> MirrorConsole | None:
        """Return the console of the copy on rank 0, and None on other ranks."""
        return self.copied.console

    @property
    def can_start_jobs(self) -> bool:
        """Return whether another job may start.

        After an exit code other than 0 and 1 (some entries failed), ranks may have been lost.
        """
        return self.code in (0, EntriesFailed.exit_code)

    def add_code(self, code: int) -> None:
        """Combine the exit code of the run with the exit code of a phase."""
        self.code = worst((self.code, code))

    def compare(self, options: MirrorOptions) -> tuple[int, MirrorConsole | None]:
        """Run a job that only compares, and return its exit code and, on rank 0, its console."""
        code, program = _copy(options, partial(MirrorProgram, lock=self.lock))
        return code, program.console


class MirrorPhase(msgspec.Struct, frozen=True):
    """A phase of a run; it is skipped unless `is_due` returns true when its turn comes."""

    name: str
    run: Callable[[MirrorRun], None]
    is_due: Callable[[MirrorRun], bool] = lambda _run: True


def phases_of(options: MirrorOptions) -> Iterator[MirrorPhase]:
    """Yield the phases of a run in order."""
    if options.moved:
        yield MirrorPhase("rename moved files", _rename)
    if options.since_manifest is not None:
        yield MirrorPhase("compare with the manifest", partial(_survey, options.since_manifest))
    if options.deleting.during and options.max_delete is not None:
        yield MirrorPhase("count removals", _count)
    yield MirrorPhase("copy", _copy_changes)
    if options.deleting.during:
        yield MirrorPhase("report removals", _report_removals, _removes_during)
    if options.deleting.enabled or options.apply is not None:
        yield MirrorPhase("check for moves", _recheck, _can_start_jobs)
        yield MirrorPhase("remove", _remove, _can_start_jobs)
    if options.snapshot is not None:
        yield MirrorPhase(
            "complete the snapshot", partial(_complete, options.snapshot), _can_start_jobs
        )
        if options.snapshot.rules:
            yield MirrorPhase(
                "remove old snapshots", partial(_expire, options.snapshot), _can_start_jobs
            )
    if options.clears:
        yield MirrorPhase("remove from the source", _clear, _can_start_jobs)
    if options.plan is not None:
        yield MirrorPhase("complete the plan", partial(_end_plan, options.plan))
    yield MirrorPhase("report", _report)
    if not options.dry:
        yield MirrorPhase("record the state", _record_state)
    if options.new_manifest is not None and not options.dry:
        yield MirrorPhase(
            "write the manifest", partial(_renew, options.new_manifest), _can_start_jobs
        )


def _can_start_jobs(run: MirrorRun) -> bool:
    return run.can_start_jobs


def _removes_during(run: MirrorRun) -> bool:
    return run.options.deleting.during  # `_count` clears it if there are too many removals


def _is_alone() -> bool:
    return (launched().size or 1) == 1


def _copy(options: MirrorOptions, make: Callable[[MirrorOptions, int], P]) -> tuple[int, P]:
    """Run a copy, and return its exit code and its program."""
    programs: list[P] = []

    def made(options: MirrorOptions, umask: int) -> P:
        programs.append(make(options, umask))
        return programs[0]

    return run_copy(options, made), programs[0]


# ---- before the copy -----------------------------------------------------------------------------


def _rename(run: MirrorRun) -> None:
    """Rename moved files."""
    from pcircle.tools.fmirror.renames import move  # few runs rename files

    run.code, run.renames = move(run.options, run.compare)
    run.is_over = bool(run.code)
    if not run.is_over:
        run.ending.callback(run.renames.close)
        run.options = run.options.replace(renamed=run.renames.renamed)


def _survey(manifest: str, run: MirrorRun) -> None:
    """Select the entries that may differ from the manifest."""
    from pcircle.tools.fmirror.state.manifests import ManifestSurvey  # few runs use a manifest

    run.survey = ManifestSurvey(run.options, run.lock, manifest)
    run.ending.callback(run.survey.close_all)
    code = run_tool(run.survey, run.options)
    if code != EntriesFailed.exit_code:  # the copy will report failed entries itself
        run.code, run.is_over = code, bool(code)


def _count(run: MirrorRun) -> None:
    """Count the removals in advance, because `--max-delete` limits them.

    If the count stops early, because there are too many or a time limit is reached, the copy
    removes nothing. Errors other than failed entries end the run.
    """
    from pcircle.tools.fmirror.removal import DeletionProgram

    options = run.options
    later = replace(options.deleting, during=False)
    found, entries = ExtraneousPaths(), 0
    rules: tuple[Rule, ...] = ()
    code, console = run.compare(
        options.comparison(**QUIET, looks="surplus", moved=False, deleting=later)
    )
    with nullcontext() if console is None else closing(console):
        if code == UsageError.exit_code:
            return  # the copy will report the same error
        if code in (0, EntriesFailed.exit_code):
            if console is not None:
                found, entries, rules = console.found, console.entries, console.rules
                found.add_all(console.doubtful)
            silent = NO_OUTPUT | {"verbose": 0, "stats": 0, "itemize": False, "quiet": True}
            deletion = DeletionProgram(
                options.replace(**silent),
                options.target,
                found,
                entries,
                dry=True,
                keeps=False,
                rules=rules,
            )
            deletion.again = True
            code = run_tool(deletion, options)
    if code not in (0, EntriesFailed.exit_code):  # the copy will report failed entries itself
        run.code, run.is_over = code, code != StoppedEarly.exit_code
        run.options = options.replace(deleting=DeletionPolicy())


# ---- the copy ------------------------------------------------------------------------------------


def _copy_changes(run: MirrorRun) -> None:
    """Update the target. End the run if A could not be read."""

    def made(options: MirrorOptions, umask: int) -> MirrorProgram:
        kind = MirrorProgram if options.apply is None else MirrorApplyProgram
        return kind(options, umask, run.lock, run.survey)

    code, copied = _copy(run.options, made)
    run.add_code(code)
    run.copied, console = copied, copied.console
    run.options = copied.mirror  # including the options of a plan
    if console is not None:
        run.ending.callback(console.close)
        if run.renames is not None:
            options = run.options
            run.add_code(console.tell_moved(run.renames, options.json_lines, options.list_out))
    # If A could not be read, the run must end before the removals.
    run.is_over = run.code == EntriesFailed.exit_code and not copied.has_begun


# ---- removals ------------------------------------------------------------------------------------


def _report_removals(run: MirrorRun) -> None:
    """Report the entries that the copy has removed."""
    console = run.console
    if console is not None:
        withheld = console.withheld(ignore=False)
        if withheld:
            run.copied.complain(
                f"{withheld}: corresponding contents were not removed from the target"
            )
        run.removed = RemovalResult(console.removed, withheld)


def _recheck(run: MirrorRun) -> None:
    """Add the doubtful entries to the extraneous ones if none can have moved within the source."""
    options, copied, console = run.options, run.copied, run.console
    doubtful, times = ExtraneousPaths(), KnownTimes()
    if console is not None and console.withheld(ignore=options.ignore_errors):
        console.found.add_all(console.doubtful)  # removals are withheld anyway
    elif console is not None:
        doubtful, times = console.doubtful, console.times
    if _is_alone() and not doubtful.count:
        return
    from pcircle.tools.fmirror.recheck import RecheckProgram  # few runs remove entries

    recheck = RecheckProgram(
        options,
        options.sources[0],
        doubtful,
        times,
        decision=copied.decision,
        known=copied.sides[0].known,
        walks=not copied.is_part,
    )
    code = run_tool(recheck, options)
    run.add_code(code)
    if console is not None and doubtful.count:
        if not code:
            console.found.add_all(doubtful)
        run.doubts = () if recheck.report is None else recheck.report.failures


def _remove(run: MirrorRun) -> None:
    """Remove extraneous entries, or move them to the backup, unless removals are withheld."""
    options, copied, console = run.options, run.copied, run.console
    if console is None:
        run.add_code(run_tool(_deletion(run, ExtraneousPaths()), options))
        return
    withheld = console.withheld(ignore=options.ignore_errors)
    found = console.found
    if withheld:
        if found.count:
            entries = plural(found.count, "entry", "entries")
            copied.complain(f"{entries} not removed from the target: {withheld}")
        run.add_code(EntriesFailed.exit_code)
        found = ExtraneousPaths()
    failures: list[FailedEntry] = []
    not_moved: list[FailedEntry] = []
    removed = planned = 0
    if found.count or not _is_alone():
        deletion = _deletion(run, found)
        run.add_code(run_tool(deletion, options))
        planned, report = deletion.entries_planned, deletion.report
        if report is not None:
            removed = sum(report.counts[name] for name in _REMOVED)
            failures += report.failures
            if report.counts["moving"]:
                run.add_code(EntriesFailed.exit_code)
        backup = options.deleting.backup
        if backup is not None and run.can_start_jobs and not options.dry:
            stay = _back_up(run, console, backup, found, not_moved)
            removed = 0 if stay < 0 else max(removed - stay, 0)
            if report is not None and not options.quiet:
                copied.complain(f"{plural(removed, 'entry', 'entries')} moved to the backup")
    run.removed = RemovalResult(
        run.removed.entries + removed,
        run.removed.withheld or withheld,
        [*failures, *not_moved],
        planned,
        (*not_moved, *run.doubts),
    )


def _deletion(run: MirrorRun, found: ExtraneousPaths) -> DeletionProgram:
    """Return the job that removes the `found` paths. Only rank 0 has any."""
    from pcircle.tools.fmirror.removal import DeletionProgram

    options, copied, console = run.options, run.copied, run.console
    applied = copied.applied
    entries = 0 if console is None else copied.entries
    return DeletionProgram(
        options,
        options.target,
        found,
        entries if applied is None else applied.tail.found,
        dry=options.dry,
        keeps=options.deleting.backup is not None,
        rules=() if console is None else console.rules,
        renamed=options.renamed.old,
        plan=copied.planned,
        applied=None if applied is None else partial(plan_file.removals, applied),
        decision=copied.decision,
        known=copied.sides[1].known,
        flags=options.keep.flags,
    )


def _back_up(
    run: MirrorRun,
    console: MirrorConsole,
    backup: bytes,
    found: ExtraneousPaths,
    not_moved: list[FailedEntry],
) -> int:
    """Move extraneous entries to the backup.

    Add failures to `not_moved`. Return the number of entries that stay, or -1 as `moved` does.
    """
    from pcircle.tools.fmirror.removal import moved

    copied, options = run.copied, run.options
    absence = Absence(source_of(console.decision))
    try:
        failed, stay = moved(
            backup,
            options.target,
            found.paths(),
            console.rules,
            absence,
            known=copied.sides[1].known,
            strict=options.strict_operands,
            access=WriteAccess(owner=True, flags=options.keep.flags),
        )
    finally:
        absence.close()
    for failure in failed:
        copied.complain(failure.said("fmirror").removeprefix("fmirror: "))
        not_moved.append(failure.reported())
    if failed:
        run.add_code(EntriesFailed.exit_code)
    return stay


# ---- snapshots -----------------------------------------------------------------------------------


def _complete(snapshot: Snapshot, run: MirrorRun) -> None:
    """Rename the snapshot to its final name if the copy is complete, and list expired snapshots."""
    from pcircle.tools.fmirror import snapshots

    options, copied = run.options, run.copied
    if run.console is None:
        return
    if run.code and not options.ignore_errors:
        text = "the next run continues it (--ignore-errors creates it anyway)"
        copied.complain(f"no snapshot was created because some entries failed; {text}")
        return
    try:
        if not options.dry:
            snapshots.complete(snapshot, sync=options.existing.sync)
        names = snapshots.names_in(snapshot.directory)
        run.expired = snapshots.expired({*names, snapshot.name}, snapshot.rules, snapshot.name)
    except OSError as error:
        copied.complain(f"'{show(snapshot.path)}': {error.strerror}")
        run.add_code(EntriesFailed.exit_code)


def _expire(snapshot: Snapshot, run: MirrorRun) -> None:
    """Remove expired snapshots."""
    from pcircle.tools.fmirror.removal import DeletionProgram

    console, options = run.console, run.options
    if _is_alone() and not run.expired:
        return
    found = ExtraneousPaths()
    for name in run.expired:
        found.add(packed(0, [name]))
    directory, flags = snapshot.directory, options.keep.flags
    deletion = DeletionProgram(
        options.replace(max_delete=None),
        directory,
        found,
        0,
        dry=options.dry,
        keeps=False,
        flags=flags,
    )
    deletion.verb = "of old snapshots " + deletion.verb
    run.add_code(run_tool(deletion, options))
    found.close()
    if console is not None:
        console.expired = tuple(map(show, run.expired))


# ---- the end -------------------------------------------------------------------------------------


def _clear(run: MirrorRun) -> None:
    """Remove mirrored entries from the source."""
    _record_moves(run.options, run.copied, run.began_ns)
    # Compare files of equal size byte by byte, and their times if these are preserved.
    options = run.options.comparison(clearing=True, upkeep=UpdatePolicy("size"))
    code, program = _copy(options, partial(ClearProgram, lock=run.lock))
    run.add_code(code)
    if isinstance(program.console, ClearConsole):
        run.cleared = program.console.cleared


def _end_plan(plan: str, run: MirrorRun) -> None:
    """Write the last line of the plan if nothing has failed."""
    copied, console = run.copied, run.console
    if console is None:
        return
    if run.code:
        copied.complain(f"the plan '{show(os.fsencode(plan))}' is incomplete and unusable")
        return
    reason = console.end_plan(tail(console.planned + run.removed.planned, copied.entries))
    if reason:
        copied.complain(reason)
        run.code = StoppedEarly.exit_code


def _report(run: MirrorRun) -> None:
    """Write the report of all phases."""
    if run.console is not None:
        run.code = run.console.tell(run.code, run.removed, run.cleared)


def _record_state(run: MirrorRun) -> None:
    """Record the result of the run in the state of the target."""
    options, copied, console = run.options, run.copied, run.copied.console
    if console is not None:
        is_complete = not run.code and options.files_from is None
        if not is_complete or not _record(options, copied, console, run.began_ns):
            _keep_mark(options, copied)


def _renew(manifest: str, run: MirrorRun) -> None:
    """Write a manifest of the updated target."""
    from pcircle.tools.fmirror.state.manifests import renew  # few runs write a manifest

    survey, complain = require(run.survey), run.copied.complain
    run.code = renew(run.options, survey, manifest, run.code, complain)


# ---- command -------------------------------------------------------------------------------------


def run_command(args: argparse.Namespace) -> int:
    """Carry out a parsed command line, and return the exit code.

    Raise UsageError if the options are invalid.
    """
    options = MirrorOptions.of(args)
    if options.apply is None:
        options = with_jobs_for(options, (*options.sources, options.target))
    lock = Lock()
    with any_link(options.insecure_links), ExitStack() as ending:
        ending.callback(lock.end)
        run = MirrorRun(options, lock, ending)
        run.execute()
        if not run.is_over and run.console is not None and run.console.report is not None:
            report_to_caller(run.console.report)  # instead of the report of the last job
        return run.code


# ---- record of the run ---------------------------------------------------------------------------


def _record_moves(options: MirrorOptions, copied: MirrorProgram, began_ns: int) -> None:
    """Record that entries will be removed from the source.

    A later run with `--delete` would remove their only copies, and must therefore be refused.
    """
    if copied.console is None or copied.identity is None:
        return
    place, now_ns = state.place_of(options.kept_at, options.state_dir), state.now_ns()
    try:
        known = copied.known
        if known is None:
            sides = copied.identity, state.identity_of(options.kept_at)
            source = encode(options.sources[0])
            known = state.MirrorState(source, *sides, frozenset(), began_ns, 0)
        copied.known = msgspec.structs.replace(known, touched_ns=now_ns, moved_ns=now_ns)
        state.write(place, copied.known)
    except OSError as error:
        text = f"cannot write the state '{show(place)}': {error.strerror}"
        copied.complain(f"{text}; a later --delete will not be refused")


def _moved_ns(options: MirrorOptions, copied: MirrorProgram) -> int:
    """Return the time of the last move to the target whose files may exist nowhere else, or 0.

    If this run has removed all extraneous entries, no such files are left.
    """
    deleting, known = options.deleting, copied.known
    all_went = deleting.enabled and not deleting.protected and options.snapshot is None
    if known is None or (all_went and not copied.is_part):
        return 0
    return known.moved_ns


def _keep_mark(options: MirrorOptions, copied: MirrorProgram) -> None:
    """Mark the target again after an incomplete run if it had the mark of the last run."""
    known = copied.known
    if known is None or not copied.has_mark or options.snapshot is not None:
        return
    with suppress(OSError):  # if the target has no mark, the next run compares more
        if not state.has_mark(options.target, known):
            mark_ns, now_ns = state.give_mark(options.target), state.now_ns()
            marked = msgspec.structs.replace(known, mark_ns=mark_ns, touched_ns=now_ns)
            state.write(state.place_of(options.target, options.state_dir), marked)


def _record(
    options: MirrorOptions, copied: MirrorProgram, console: MirrorConsole, began_ns: int
) -> bool:
    """Write the state of a complete run, or return False if the old state must stay."""
    place = state.place_of(options.kept_at, options.state_dir)
    there, known = options.kept_at, copied.known
    is_whole = state.is_whole(options) and not copied.is_continued and not copied.is_named
    if not is_whole and known is not None:
        return False  # a partial run does not invalidate the state of the last complete one
    if copied.identity is None:
        return False  # A was unreadable at the start, so a later run could not recognise it
    try:
        sides = copied.identity, state.identity_of(there)
        compared = frozenset(kept_words(options.keep) if is_whole else ())
        if is_whole and (options.upkeep.ctime or options.upkeep.look in ("content", "none")):
            compared |= {state.READ}
        full_ns = began_ns if is_whole else 0
        if copied.is_part:
            full_ns = 0 if known is None else known.full_ns
        new = state.MirrorState(
            encode(options.sources[0]),
            *sides,
            compared,
            began_ns,
            copied.entries,
            mounts=state.mounts_of(options.sources[0]),
            given=state.digest_of(options.keep.given),
            full_ns=full_ns,
            touched_ns=state.now_ns(),
            moved_ns=_moved_ns(options, copied),
            session=copied.session,
        )
        if options.snapshot is None:
            is_marked = known is not None and copied.has_mark and state.has_mark(there, known)
            if known is not None and is_marked and not console.has_changed_target:
                new = msgspec.structs.replace(new, mark_ns=known.mark_ns)
            else:
                new = msgspec.structs.replace(new, mark_ns=state.give_mark(there))
        if is_whole and copied.snapshot is not None and copied.survey is None:
            origin, uuid = copied.snapshot
            alike = options.deleting.enabled and not options.deleting.protected
            left = state.left_of(there)
            new = msgspec.structs.replace(
                new, subvolume=origin, snapshot=uuid, left=left, alike=alike
            )
        state.write(place, new)
    except OSError as error:
        if options.state_dir is not None or options.verbose:
            copied.complain(f"cannot write the state '{show(place)}': {error.strerror}")
    return True
