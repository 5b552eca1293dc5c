"""The phases of a mirror: the copy, the removals, and the state of the run."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from pcircle.cli.program import run_tool
from pcircle.core.errors import EntriesFailed, StoppedEarly, worst
from pcircle.core.guards import require
from pcircle.core.names import show
from pcircle.core.units import plural
from pcircle.fs.safe_open import any_link
from pcircle.fs.write_access import WriteAccess
from pcircle.jobs.failures import FailedEntry, Failure, encode
from pcircle.jobs.plan_file import tail
from pcircle.ops.checkpoint.resume import CheckpointOptions
from pcircle.tools.common.copy_program import run_copy
from pcircle.tools.fmirror import plan_file, snapshots
from pcircle.tools.fmirror.options import MirrorOptions, options_of
from pcircle.tools.fmirror.plan import UpdatePolicy, kept_words
from pcircle.tools.fmirror.program import ClearProgram, MirrorApplyProgram, MirrorProgram
from pcircle.tools.fmirror.removal import DeletionProgram, ExtraneousPaths, moved
from pcircle.tools.fmirror.report import ClearConsole, MirrorConsole, MirrorReport, RemovalResult
from pcircle.tools.fmirror.state import proof, state
from pcircle.tools.fmirror.state.lock import Lock
from pcircle.tools.fmirror.work.absence import Absence, source_of
from pcircle.tools.fmirror.work.extraneous import packed
from pcircle.transport.launch import launched

if TYPE_CHECKING:
    from pcircle.tools.fmirror.state.manifests import ManifestSurvey
    from pcircle.tools.fmirror.work.rename_pairs import RenameResult


def mirror_typed(args: argparse.Namespace) -> int:
    """Carry out a parsed command line and return the exit code. UsageError."""
    return _run(args)[0]


def called(args: argparse.Namespace) -> MirrorReport | None:
    """Run a mirror from a program without output, and return the report."""
    args.quiet, args.progress, args.verbose, args.itemize = True, "never", 0, False
    return _run(args)[1]


def _run(args: argparse.Namespace) -> tuple[int, MirrorReport | None]:
    options = options_of(args)
    lock = Lock()
    with any_link(options.insecure_links), ExitStack() as ending:
        ending.callback(lock.end)
        return _carried_out(args, options, lock, ending)


def _carried_out(
    args: argparse.Namespace, options: MirrorOptions, lock: Lock, ending: ExitStack
) -> tuple[int, MirrorReport | None]:
    began_ns = state.now_ns()
    program: list[MirrorProgram] = []

    def made(options: Any, umask: int) -> MirrorProgram:
        kind = MirrorProgram if options.apply is None else MirrorApplyProgram
        program.append(kind(options, umask, lock, args))
        program[0].survey = survey
        return program[0]

    survey: ManifestSurvey | None = None
    code, moved = _moved(args, options, lock)
    if not code and options.since_manifest is not None:
        from pcircle.tools.fmirror.state.manifests import ManifestSurvey  # few runs have one

        survey = ManifestSurvey(args, options, lock)
        ending.callback(survey.close_all)
        code = run_tool(survey, options)
        code = 0 if code == EntriesFailed.exit_code else code  # the copy reports them again
    if code:
        return code, None
    if moved is not None:
        ending.callback(moved.close)
        options = msgspec.structs.replace(options, renamed=moved.renamed)
    counted = 0
    if options.deleting.during and args.max_delete is not None:
        counted, options = _counted(args, options, lock)
        if counted not in (0, StoppedEarly.exit_code):
            return counted, None
    code = worst((run_copy(options, made), counted))
    copied = program[0]
    if copied.console is not None:
        ending.callback(copied.console.close)
    options, args = copied.mirror, require(copied.args)  # with what a plan has
    if moved is not None and copied.console is not None:
        reported_code = copied.console.tell_moved(moved, options.json_lines, options.list_out)
        code = worst((code, reported_code))
    if code == EntriesFailed.exit_code and not copied.has_begun:
        return code, None  # A could not be read: nothing was compared, so nothing may be removed
    removed = _removals(args, options, copied, code)
    code = removed.code
    if options.snapshot is not None:
        code = _keep_snapshots(args, options, copied, code)
    cleared = 0
    if options.clears and code in (0, EntriesFailed.exit_code):
        _remember_moving(options, copied, began_ns)
        code, cleared = _clear(options, lock, code)
    console = copied.console
    if console is None:
        return _renewed(args, options, copied, code), None
    if options.plan is not None:
        code = _end_plan(options.plan, copied, code, removed.planned)
    code = console.tell(code, removed, cleared)
    _end_state(options, copied, began_ns, code)
    code = _renewed(args, options, copied, code)
    return code, console.report


def _removals(
    args: argparse.Namespace, options: MirrorOptions, copied: MirrorProgram, code: int
) -> RemovalResult:
    """Return what was removed during the copy, or remove extraneous entries now."""
    during = _removed_during(copied, code) if options.deleting.during else RemovalResult(code)
    removes = options.deleting.wanted or options.apply is not None
    if not removes or code not in (0, EntriesFailed.exit_code):
        return during
    rechecked, stay = _recheck(args, options, copied)
    code = worst((code, rechecked))
    if code not in (0, EntriesFailed.exit_code):
        return during._replace(code=code)
    removed = _remove(args, options, copied, code)
    return removed._replace(
        entries=during.entries + removed.entries,
        withheld=during.withheld or removed.withheld,
        not_moved=(*removed.not_moved, *stay),
    )


def _recheck(
    args: argparse.Namespace, options: MirrorOptions, copied: MirrorProgram
) -> tuple[int, Sequence[FailedEntry]]:
    """Add doubtful entries to the extraneous ones if nothing can have moved; otherwise report them.

    Return an exit code, and the failures.
    """
    console, doubtful = copied.console, None
    if console is not None and console.withheld(ignore=options.ignore_errors):
        console.found.add_all(console.doubtful)  # removals are withheld anyway
    elif console is not None:
        doubtful = console.doubtful
    alone = (launched().size or 1) == 1
    if alone and (doubtful is None or not doubtful.count):
        return 0, ()
    from pcircle.tools.fmirror.recheck import RecheckProgram  # few runs do

    recheck = RecheckProgram(
        args,
        options.sources[0],
        doubtful,
        None if console is None else console.times,
        decision=copied.decision,
        known=copied.sides[0].known,
        walks=not copied.is_part,
    )
    code = run_tool(recheck, options)
    if console is None or doubtful is None:
        return code, ()
    if not code:
        console.found.add_all(doubtful)
    return code, () if recheck.report is None else recheck.report.failures


def _renewed(
    args: argparse.Namespace, options: MirrorOptions, copied: MirrorProgram, code: int
) -> int:
    """Write the manifest of the present target, if requested; return the exit code."""
    if options.new_manifest is None or options.dry or code not in (0, EntriesFailed.exit_code):
        return code
    from pcircle.tools.fmirror.state.renewal import renew  # few runs do

    return renew(args, options, require(copied.survey), code, copied.complain)


def _clear(options: MirrorOptions, lock: Lock, code: int) -> tuple[int, int]:
    """Remove mirrored entries from the source; return the exit code and the number of entries."""
    program: list[ClearProgram] = []

    def made(options: Any, umask: int) -> ClearProgram:
        program.append(ClearProgram(options, umask, lock))
        return program[0]

    more = {"dry": True, "itemize": False, "sign": None, "verify": False, "clearing": True}
    untold: dict[str, Any] = dict.fromkeys(("json", "error_log", "json_lines", "list_out"))
    # Files of equal size are compared byte by byte, and times if they are kept.
    how = {"upkeep": UpdatePolicy("size"), "checkpoint": CheckpointOptions(never=True)}
    code = worst((code, run_copy(msgspec.structs.replace(options, **more, **untold, **how), made)))
    console = program[0].console
    return code, console.cleared if isinstance(console, ClearConsole) else 0


def _moved(
    args: argparse.Namespace, options: MirrorOptions, lock: Lock
) -> tuple[int, RenameResult | None]:
    """Rename moved files, if requested; return 0, or the exit code that ends the run."""
    if not options.moved:
        return 0, None
    from pcircle.tools.fmirror.renames import move  # few runs do

    return move(args, options, partial(_looked, lock))


def _counted(
    args: argparse.Namespace, options: MirrorOptions, lock: Lock
) -> tuple[int, MirrorOptions]:
    """Count removals, see `counted`."""
    from pcircle.tools.fmirror.deletion_count import counted  # few runs do

    return counted(args, options, partial(_looked, lock))


def _looked(lock: Lock, options: MirrorOptions) -> tuple[int, MirrorConsole | None]:
    """Run a job that only compares; return the exit code and, on rank 0, its findings."""
    program: list[MirrorProgram] = []

    def made(options: Any, umask: int) -> MirrorProgram:
        program.append(MirrorProgram(options, umask, lock))
        return program[0]

    return run_copy(options, made), program[0].console


def _end_plan(plan: str, copied: MirrorProgram, code: int, removals: int) -> int:
    """Complete the plan if nothing has failed; return the exit code."""
    if code:
        copied.complain(f"the plan '{show(os.fsencode(plan))}' is not complete, and of no use")
        return code
    console = require(copied.console)
    reason = console.end_plan(tail(console.planned + removals, _entries(copied)))
    if reason:
        copied.complain(reason)
        return StoppedEarly.exit_code
    return 0


def _entries(copied: MirrorProgram) -> int:
    """Return the number of entries of the source, as far as known."""
    entries = require(copied.console).entries
    return max(entries, copied.least_entries) if copied.is_part else entries


def _remember_moving(options: MirrorOptions, copied: MirrorProgram, began_ns: int) -> None:
    """Record, before entries leave the source, that --delete would remove their copies later."""
    if copied.console is None or copied.identity is None:
        return
    place, now_ns = state.place_of(options.kept_at, options.state_dir), state.now_ns()
    try:
        known = copied.known
        if known is None:
            sides = copied.identity, state.identity_of(options.kept_at)
            known = state.MirrorState(encode(options.sources[0]), *sides, frozenset(), began_ns, 0)
        copied.known = known._replace(touched_ns=now_ns, moved_ns=now_ns)
        state.write(place, copied.known)
    except OSError as error:
        text = f"cannot write the state '{show(place)}': {error.strerror}"
        copied.complain(f"{text}; --delete will not be refused")


def _moved_ns(options: MirrorOptions, copied: MirrorProgram) -> int:
    """Return when files were moved to the target that may be in no source any more."""
    deleting = options.deleting
    all_went = deleting.wanted and not deleting.protected and options.snapshot is None
    if copied.known is None or (all_went and not copied.is_part):
        return 0
    return copied.known.moved_ns


def _end_state(options: MirrorOptions, copied: MirrorProgram, began_ns: int, code: int) -> None:
    """Update the state with everything that this run proves."""
    if options.dry:
        return
    is_complete = not code and options.files_from is None
    if not is_complete or not _remember(options, copied, began_ns, _entries(copied)):
        _keep_mark(options, copied)


def _keep_mark(options: MirrorOptions, copied: MirrorProgram) -> None:
    """Mark the target again after an incomplete run, if the last run's mark was there."""
    known = copied.known
    if known is None or not copied.has_mark or options.snapshot is not None:
        return
    with suppress(OSError):  # without a mark the next run compares more
        if not state.has_mark(options.target, known):
            mark_ns, now_ns = state.give_mark(options.target), state.now_ns()
            run = known._replace(mark_ns=mark_ns, touched_ns=now_ns)
            state.write(state.place_of(options.target, options.state_dir), run)


def _remember(options: MirrorOptions, copied: MirrorProgram, began_ns: int, entries: int) -> bool:
    """Write the state of a complete run; return whether it covered the whole source."""
    place = state.place_of(options.kept_at, options.state_dir)
    source, there = encode(options.sources[0]), options.kept_at
    is_whole = proof.is_whole(options) and not copied.goes_on and not copied.is_named
    if not is_whole and copied.known is not None:
        return False  # a partial run does not invalidate the last complete one
    if copied.identity is None:
        return False  # A was unreadable at the start, so a later run could not recognise it
    try:
        sides = copied.identity, state.identity_of(there)
        compared = frozenset(kept_words(options.keep) if is_whole else ())
        if is_whole and (options.upkeep.ctime or options.upkeep.look in ("content", "none")):
            compared |= {state.READ}
        mounts = state.mounts_of(options.sources[0])
        given = state.digest_of(options.keep.given)
        run = state.MirrorState(
            source, *sides, compared, began_ns, entries, mounts=mounts, given=given
        )
        full_ns = began_ns if is_whole else 0
        if copied.is_part:
            full_ns = 0 if copied.known is None else copied.known.full_ns
        run = run._replace(full_ns=full_ns, touched_ns=state.now_ns())
        run = run._replace(moved_ns=_moved_ns(options, copied), session=copied.session)
        if options.snapshot is None:
            is_marked = copied.has_mark and state.has_mark(there, require(copied.known))
            if not is_marked or require(copied.console).has_changed_target:
                run = run._replace(mark_ns=state.give_mark(there))
            else:
                run = run._replace(mark_ns=require(copied.known).mark_ns)
        if is_whole and copied.snapshot is not None and copied.survey is None:
            origin, uuid = copied.snapshot
            alike = options.deleting.wanted and not options.deleting.protected
            left = proof.left_of(there)
            run = run._replace(subvolume=origin, snapshot=uuid, left=left, alike=alike)
        state.write(place, run)
    except OSError as error:
        if options.state_dir is not None or options.verbose:
            copied.complain(f"cannot write the state '{show(place)}': {error.strerror}")
    return True


def _remove(
    args: argparse.Namespace, options: MirrorOptions, copied: MirrorProgram, code: int
) -> RemovalResult:
    """Run the second job: remove extraneous entries, unless something forbids it."""
    console = copied.console
    withheld = "" if console is None else console.withheld(ignore=options.ignore_errors)
    if console is not None and withheld and console.found.count:
        withheld_entries = plural(console.found.count, "entry", "entries")
        copied.complain(f"{withheld_entries} of the target not removed: {withheld}")
    found = None if console is None else ExtraneousPaths() if withheld else console.found
    if withheld:
        code = worst((code, EntriesFailed.exit_code))
    if found is not None and not found.count and (launched().size or 1) == 1:
        return RemovalResult(code, withheld=withheld)
    backup = options.deleting.backup
    entries = 0 if console is None else _entries(copied)
    applied = copied.applied
    if applied is not None:
        entries = applied.tail.found
    removal = DeletionProgram(
        args,
        options.target,
        found,
        entries,
        dry=options.dry,
        keeps=backup is not None,
        rules=() if console is None else console.rules,
        renamed=options.renamed.old,
        plan=copied.planned,
        applied=None if applied is None else partial(plan_file.removals, applied),
        decision=copied.decision,
        known=copied.sides[1].known,
        flags=options.keep.flags,
    )
    code = worst((code, run_tool(removal, options)))
    if console is None:
        return RemovalResult(code)
    report = removal.report
    removed = 0 if report is None else sum(report.counts[name] for name in _REMOVED)
    if report is not None and report.counts["moving"]:
        code = worst((code, EntriesFailed.exit_code))
    kept_back: list[FailedEntry] = []
    if backup is not None and code in (0, EntriesFailed.exit_code) and not options.dry:
        failed, stay = _back_up(options, copied, require(found))
        for failure in failed:
            copied.complain(failure.said("fmirror").removeprefix("fmirror: "))
            kept_back.append(failure.reported())
        code = worst((code, EntriesFailed.exit_code)) if failed else code
        removed = 0 if stay < 0 else max(removed - stay, 0)
        if report is not None and not options.quiet:
            copied.complain(f"{plural(removed, 'entry', 'entries')} moved to the backup")
    failures = [*(() if report is None else report.failures), *kept_back]
    return RemovalResult(code, removed, withheld, failures, removal.entries_planned, kept_back)


def _back_up(
    options: MirrorOptions, copied: MirrorProgram, found: ExtraneousPaths
) -> tuple[list[Failure], int]:
    """Move extraneous entries to the backup; return the results of `moved`."""
    absence = Absence(source_of(require(copied.decision)))
    try:
        return moved(
            require(options.deleting.backup),
            options.target,
            found.paths(),
            require(copied.console).rules,
            absence,
            known=copied.sides[1].known,
            strict=options.strict_operands,
            access=WriteAccess(owner=True, flags=options.keep.flags),
        )
    finally:
        absence.close()


def _removed_during(copied: MirrorProgram, code: int) -> RemovalResult:
    """Return what was removed during the copy."""
    console = copied.console
    withheld = "" if console is None else console.withheld(ignore=False)
    if console is not None and withheld:
        copied.complain(f"{withheld}: nothing of these was removed from the target")
    return RemovalResult(code, 0 if console is None else console.removed, withheld)


def _keep_snapshots(
    args: argparse.Namespace, options: MirrorOptions, copied: MirrorProgram, code: int
) -> int:
    """Complete the snapshot if the copy is complete, and remove expired snapshots."""
    snapshot, console = require(options.snapshot), copied.console
    if code not in (0, EntriesFailed.exit_code):
        return code  # ranks may be lost, and no other job can begin
    old: list[bytes] = []
    whole = not code or options.ignore_errors
    if console is not None and not whole:
        text = "the next run goes on with it (--ignore-errors: have it in any case)"
        copied.complain(f"no snapshot was made, as some entries failed; {text}")
    elif console is not None:
        try:
            if not options.dry:
                snapshots.complete(snapshot, sync=options.existing.sync)
            names = snapshots.names_in(snapshot.directory)
            old = snapshots.expired({*names, snapshot.name}, snapshot.rules, snapshot.name)
        except OSError as error:
            copied.complain(f"'{show(snapshot.path)}': {error.strerror}")
            code = worst((code, EntriesFailed.exit_code))
    alone = (launched().size or 1) == 1
    if not snapshot.rules or (alone and not old):
        return code
    found = None
    if console is not None:
        found = ExtraneousPaths()
        for name in old:
            found.add(packed(0, [name]))
    args = argparse.Namespace(**vars(args) | {"max_delete": None})
    directory, flags = snapshot.directory, options.keep.flags
    removal = DeletionProgram(args, directory, found, 0, dry=options.dry, keeps=False, flags=flags)
    removal.verb = "of old snapshots " + removal.verb
    code = worst((code, run_tool(removal, options)))
    if found is not None:
        found.close()
        require(console).expired = tuple(map(show, old))
    return code


_REMOVED = ("files", "directories", "links", "special")
