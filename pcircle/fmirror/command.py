"""Running a mirror: what copies, then what removes, then what is remembered of it."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any

import msgspec

from pcircle.errors import EntriesFailed, UsageError, worst
from pcircle.fmirror import changes, state
from pcircle.fmirror.options import MirrorOptions, options_of
from pcircle.fmirror.plan import MirrorPlan, kept_words
from pcircle.fmirror.refusals import (
    has_entries,
    make_backup,
    refuse_apart,
    refuse_inside,
    refuse_other,
    warn_of_slash,
)
from pcircle.fmirror.removal import Found, Removal, moved
from pcircle.fmirror.report import MirrorConsole, MirrorReport
from pcircle.fmirror.work.surplus import packed
from pcircle.fmirror.work.task import JournaledMirror, MirrorTask
from pcircle.fs.lists import Lists, sort
from pcircle.guards import require, require_type
from pcircle.runtime import Observer
from pcircle.tool.program import run_tool
from pcircle.transfer.plan import DIRECTORY, Root
from pcircle.transfer.program import CopyProgram, run_copy
from pcircle.transport.launch import detect
from pcircle.ui.errorlog import decode, encode
from pcircle.ui.names import show
from pcircle.ui.report import plural

if TYPE_CHECKING:
    from pcircle.transfer.dry import DryTask


class MirrorProgram(CopyProgram):
    """The first job of a mirror, which copies, for the runtime."""

    plan_type = MirrorPlan
    task_type, journaled_type = MirrorTask, JournaledMirror
    console_type = MirrorConsole

    def __init__(self, options: MirrorOptions, umask: int) -> None:
        super().__init__(options, umask)
        self._mirror = options
        self.console: MirrorConsole | None = None  # on rank 0, as what follows
        self.identity: state.Identity | None = None
        self.known: state.State | None = None
        self.changes: changes.Changes | None = None  # if the file system has told them
        self.subvolume: tuple[str, int] | None = None
        self.again = options.deleting.wanted

    def listing(self, roots: tuple[Root, ...]) -> Lists | None:
        """See `CopyProgram`: what has changed, if the file system is to tell and can."""
        options = self._mirror
        (root,) = roots
        source, target = options.sources[0], options.target
        if root.kind != DIRECTORY:
            raise UsageError(f"'{show(source)}' is not a directory")
        refuse_inside(source, target)
        for other in (*options.link_dest, *options.compare_dest):
            refuse_other(other, source, target)
        for other in options.link_dest:
            refuse_apart("--link-dest", other, os.stat(other).st_dev, target)
        self.identity = state.identity_of(source)
        self.known = state.read(state.place_of(target, options.state_dir))
        now = changes.source_of(source)
        if now is not None and now.read_only:
            self.subvolume = now.origin, now.generation
        if not options.by_file_system:
            return None
        before = None if self.known is None else self.known.subvolume
        why = changes.unfit(source, before) or self._unfit(target)
        if why or before is None:
            if not options.quiet:
                self.complain(f"all of the source is looked at: {why}")
            return None
        self.changes = changes.found(source, target, before[1])
        return sort([(0, self.changes.records)])

    def _unfit(self, target: bytes) -> str:
        """Why the target is not what the last complete run has left; empty if it may be."""
        known = require(self.known)
        if not os.path.isdir(target) or state.identity_of(target) != known.target:
            return "the target is another directory than at the last complete run"
        if not frozenset(kept_words(self._mirror.keep)) <= known.kept:
            return "the last complete run has kept less"
        return ""

    def decided(self, roots: tuple[Root, ...]) -> dict[str, Any]:
        """See `CopyProgram`."""
        options, known = self._mirror, self.known
        source, target = options.sources[0], options.target
        if options.deleting.wanted:
            self._refuse_source(source, target)
        if options.deleting.backup is not None:
            make_backup(options.deleting.backup, source, target, make=not options.dry)
        warn_of_slash(source, target, self.complain)
        quiet_ns = None if known is None else self._quiet_ns(known, target)
        return {
            "upkeep": options.upkeep,
            "deleting": options.deleting,
            "quiet_ns": quiet_ns,
            "itemize": options.itemize,
            "link_dest": options.link_dest,
            "compare_dest": options.compare_dest,
        }

    def _quiet_ns(self, known: state.State, target: bytes) -> tuple[int, int] | None:
        """Since when nothing has changed whose change time is earlier, on both sides."""
        try:
            there = state.identity_of(target)
        except OSError:
            return None
        wanted = frozenset(kept_words(self._mirror.keep))
        sides = known.identity, known.target
        if sides != (self.identity, there) or not wanted <= known.kept:
            return None
        ours, theirs = (state.quiet_since(known, side.filesystem) for side in sides)
        return ours, theirs

    def dry_type(self) -> type[DryTask]:
        """See `CopyProgram`."""
        from pcircle.fmirror.work.dry import DryMirrorTask  # few runs are dry

        return DryMirrorTask

    def _refuse_source(self, source: bytes, target: bytes) -> None:
        """UsageError if the source is not what it was, or has nothing: it may not be mounted."""
        options = self._mirror
        if not options.allow_empty and not has_entries(source) and has_entries(target):
            raise UsageError(
                f"'{show(source)}' is empty and '{show(target)}' is not: nothing is removed; "
                "if this is meant, add --allow-empty"
            )
        known = self.known
        if known is None or options.allow_foreign:
            return
        if known.identity != self.identity:
            raise UsageError(
                f"'{show(source)}' is another directory or file system than at the last complete "
                "run: nothing is removed; if this is meant, add --allow-foreign"
            )
        missing = known.mounts - state.mounts_of(source)
        if missing:
            inner = show(os.path.join(source, decode(min(missing))))
            raise UsageError(
                f"'{inner}' was a mount point at the last complete run and is none now: nothing is "
                "removed; if this is meant, add --allow-foreign"
            )

    def observer(self, plan: bytes) -> Observer[Any]:
        decided = msgspec.msgpack.decode(plan, type=MirrorPlan)
        console = require_type(MirrorConsole, super().observer(plan))
        self.console = console
        console.look, console.itemizes = decided.upkeep.look, decided.itemize
        if self.changes is not None and self.changes.surplus:
            console.found.add(packed(0, self.changes.surplus))
        return console


def mirror_typed(typed: argparse.Namespace) -> int:
    """Carry out a parsed command line; returns the exit code. UsageError if it makes no sense."""
    return _run(typed)[0]


def called(typed: argparse.Namespace) -> MirrorReport | None:
    """As `mirror_typed`, for a program: nothing is printed, and the report is returned."""
    typed.quiet, typed.progress, typed.verbose, typed.itemize = True, "never", 0, False
    return _run(typed)[1]


def _run(typed: argparse.Namespace) -> tuple[int, MirrorReport | None]:
    options = options_of(typed)
    began_ns = state.now_ns()
    program: list[MirrorProgram] = []

    def made(options: Any, umask: int) -> MirrorProgram:
        program.append(MirrorProgram(options, umask))
        return program[0]

    code = run_copy(options, made)
    copied = program[0]
    if options.deleting.wanted and code in (0, EntriesFailed.exit_code):
        code = _remove(typed, options, copied, code)
    elif copied.console is not None:
        code = copied.console.tell(code, 0, "", ())
    console = copied.console
    if console is not None:
        console.found.close()
    if console is not None and not code and not options.dry:
        _remember(options, copied, began_ns, _entries(copied))
    return code, None if console is None else console.report


def _entries(copied: MirrorProgram) -> int:
    """How many entries the source has, as far as that is known."""
    entries = require(copied.console).entries
    if copied.changes is not None:  # few of them were looked at
        return max(entries, require(copied.known).entries)
    return entries


def _remember(options: MirrorOptions, copied: MirrorProgram, began_ns: int, entries: int) -> None:
    place = state.place_of(options.target, options.state_dir)
    source, there = encode(options.sources[0]), options.target
    try:
        sides = require(copied.identity), state.identity_of(there)
        kept = frozenset(kept_words(options.keep))
        mounts = state.mounts_of(options.sources[0])
        run = state.State(source, *sides, kept, began_ns, entries, copied.subvolume, mounts)
        state.write(place, run)
    except OSError as error:
        if options.state_dir is not None or options.verbose:
            copied.complain(f"cannot write the state '{show(place)}': {error.strerror}")


def _remove(
    typed: argparse.Namespace, options: MirrorOptions, copied: MirrorProgram, code: int
) -> int:
    """The second job: what is surplus goes, unless something forbids it. The exit code of both."""
    console = copied.console
    withheld = "" if console is None else console.withheld(ignore=options.ignore_errors)
    if console is not None and withheld and console.found.count:
        kept = plural(console.found.count, "entry", "entries")
        copied.complain(f"{kept} of the target not removed: {withheld}")
    found = None if console is None else Found() if withheld else console.found
    if withheld:
        code = worst((code, EntriesFailed.exit_code))
    if found is not None and not found.count and (detect(os.environ).size or 1) == 1:
        return require(console).tell(code, 0, withheld, ())
    backup = options.deleting.backup
    keeps = backup is not None
    entries = 0 if console is None else _entries(copied)
    removal = Removal(typed, options.target, found, entries, dry=options.dry, keeps=keeps)
    code = worst((code, run_tool(removal, options)))
    if console is None:
        return code
    report = removal.report
    removed = 0 if report is None else sum(report.counts[name] for name in _REMOVED)
    if backup is not None and code in (0, EntriesFailed.exit_code) and not options.dry:
        failed = moved(backup, options.target, require(found).paths())
        for text in failed:
            copied.complain(text)
        code = worst((code, EntriesFailed.exit_code)) if failed else code
    return console.tell(code, removed, withheld, () if report is None else report.failures)


_REMOVED = ("files", "directories", "links", "special")
