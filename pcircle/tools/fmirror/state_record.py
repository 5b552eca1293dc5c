"""The record of a run in the state: what the next runs may rely on."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from pcircle.core.names import show
from pcircle.jobs.failures import encode
from pcircle.tools.fmirror.plan import kept_words
from pcircle.tools.fmirror.state import proof, state

if TYPE_CHECKING:
    from pcircle.tools.fmirror.options import MirrorOptions
    from pcircle.tools.fmirror.program import MirrorProgram
    from pcircle.tools.fmirror.report import MirrorConsole


def record_moves(options: MirrorOptions, copied: MirrorProgram, began_ns: int) -> None:
    """Record, before entries leave the source, that --delete would remove their copies later."""
    if copied.console is None or copied.identity is None:
        return
    place, now_ns = state.place_of(options.kept_at, options.state_dir), state.now_ns()
    try:
        known = copied.known
        if known is None:
            sides = copied.identity, state.identity_of(options.kept_at)
            source = encode(options.sources[0])
            known = state.MirrorState(source, *sides, frozenset(), began_ns, 0)
        copied.known = known._replace(touched_ns=now_ns, moved_ns=now_ns)
        state.write(place, copied.known)
    except OSError as error:
        text = f"cannot write the state '{show(place)}': {error.strerror}"
        copied.complain(f"{text}; --delete will not be refused")


def record_run(options: MirrorOptions, copied: MirrorProgram, began_ns: int, code: int) -> None:
    """Update the state with everything that a run proves; `code` is its exit code."""
    if copied.console is not None:
        is_complete = not code and options.files_from is None
        if not is_complete or not _record(options, copied, copied.console, began_ns):
            _keep_mark(options, copied)


def _moved_ns(options: MirrorOptions, copied: MirrorProgram) -> int:
    """Return when files were moved to the target that may be in no source any more."""
    deleting, known = options.deleting, copied.known
    all_went = deleting.wanted and not deleting.protected and options.snapshot is None
    if known is None or (all_went and not copied.is_part):
        return 0
    return known.moved_ns


def _keep_mark(options: MirrorOptions, copied: MirrorProgram) -> None:
    """Mark the target again after an incomplete run, if the last run's mark was there."""
    known = copied.known
    if known is None or not copied.has_mark or options.snapshot is not None:
        return
    with suppress(OSError):  # without a mark the next run compares more
        if not state.has_mark(options.target, known):
            mark_ns, now_ns = state.give_mark(options.target), state.now_ns()
            marked = known._replace(mark_ns=mark_ns, touched_ns=now_ns)
            state.write(state.place_of(options.target, options.state_dir), marked)


def _record(
    options: MirrorOptions, copied: MirrorProgram, console: MirrorConsole, began_ns: int
) -> bool:
    """Write the state of a complete run; return False if that leaves the old state."""
    place = state.place_of(options.kept_at, options.state_dir)
    there, known = options.kept_at, copied.known
    is_whole = proof.is_whole(options) and not copied.goes_on and not copied.is_named
    if not is_whole and known is not None:
        return False  # a partial run does not invalidate the last complete one
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
                new = new._replace(mark_ns=known.mark_ns)
            else:
                new = new._replace(mark_ns=state.give_mark(there))
        if is_whole and copied.snapshot is not None and copied.survey is None:
            origin, uuid = copied.snapshot
            alike = options.deleting.wanted and not options.deleting.protected
            left = proof.left_of(there)
            new = new._replace(subvolume=origin, snapshot=uuid, left=left, alike=alike)
        state.write(place, new)
    except OSError as error:
        if options.state_dir is not None or options.verbose:
            copied.complain(f"cannot write the state '{show(place)}': {error.strerror}")
    return True
