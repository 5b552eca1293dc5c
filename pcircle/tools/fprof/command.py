"""The program of fprof: interprets the options, runs the walk, and writes the report."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from pcircle import __version__
from pcircle.cli import console as base
from pcircle.cli import json_output as jsonout
from pcircle.cli.output import MessageStream
from pcircle.cli.program import WalkProgram
from pcircle.cli.results import Results
from pcircle.core.encoding import show
from pcircle.core.errors import Defect, EntriesFailed, UsageError, require_type, worst
from pcircle.core.writing import standard_error, standard_output
from pcircle.fs.safe_open import any_link
from pcircle.jobs.failures import LogFile, open_log
from pcircle.runtime import Observer, Outcome
from pcircle.tools.fprof.options import PIECES, ProfileOptions
from pcircle.tools.fprof.plan import (
    FileLines,
    ProfilePlan,
    ProfileResult,
    ProfileTotals,
    add_up,
    index_of,
    resolve,
    totals,
)
from pcircle.tools.fprof.profile.model import Profile, unpack
from pcircle.tools.fprof.reports.outputs import check_outputs, tell, write_outputs
from pcircle.tools.fprof.reports.report import ProfileRun, make, stopped
from pcircle.tools.fprof.reports.text import rank_table, summary
from pcircle.tools.fprof.task import ProfileTask
from pcircle.transport.launch import launched

if TYPE_CHECKING:
    from pcircle.fs.lists import Lists
    from pcircle.jobs.tree_task import TreePlan
    from pcircle.walk.roots import Root


class ProfileConsole(base.Console[ProfileResult]):
    """Prints failures and progress, and writes all outputs at the end."""

    tool = "fprof"
    has_result = True

    def __init__(
        self,
        plan: ProfilePlan,
        options: ProfileOptions,
        log: LogFile | None,
        lists: Mapping[str, LogFile],
    ) -> None:
        super().__init__(options, log)
        self._lists = lists
        self._plan = plan
        self._options = options

    def counted(self, counts: tuple[int, ...]) -> ProfileTotals:
        return totals(counts)

    def remark(self, notice: object) -> Iterable[str]:
        if isinstance(notice, FileLines):
            where = f"list, {notice.kind}"
            lines = self._fresh(where, notice.lines, self._plan.list_end)
            self._write(self._lists[notice.kind], lines, where)
            self._unlisted += notice.unlisted
        return ()

    def end(self, outcome: Outcome[ProfileResult]) -> tuple[int, list[str]]:
        for kind, log in self._lists.items():
            try:
                log.close()
            except OSError as error:
                self._fail_log(f"list, {kind}", error)
        return super().end(outcome)

    def bytes_shown(self, now: base.JobCounters) -> int:
        return now.bytes_done

    def conclude(self, outcome: Outcome[ProfileResult]) -> int:
        if self._plan.index is None:
            return self._concluded(outcome)
        from pcircle.tools.fprof.entries import clear

        try:
            return self._concluded(outcome)
        finally:
            clear(self._plan)

    def _concluded(self, outcome: Outcome[ProfileResult]) -> int:
        code, reasons = self.end(outcome)
        total = add_up(outcome.counts)
        packed = outcome.result.profile if outcome.result is not None and not code else b""
        profile = unpack(packed) if packed else None
        if not code:
            wrong = _account(total, profile)
            if wrong is not None:
                code = Defect.exit_code
                reasons.append(wrong)
        if total.troubles or self.log_failed:
            code = worst((code, EntriesFailed.exit_code))
        self.tell_failures()
        self.tell_reasons(code, reasons)
        run = ProfileRun(
            exit_code=code,
            elapsed_s=self.elapsed_s,
            reasons=tuple(reasons),
            failures=tuple(self.failures),
            failures_omitted=self.failures_omitted,
            reports=outcome.reports,
            rank_summary=self.rank_summary(outcome),
        )
        if profile is None:
            self.results.document(stopped([root.shown for root in self._plan.roots], run))
            return worst((code, self.results.code))
        report = make(profile, self._options, run)
        place, save = self._plan.index, self._options.save
        if place is not None and save is not None:
            from pcircle.tools.fprof.entries import publish

            write = partial(publish, self._plan, place, save, entry_count(profile))
            self.results.write(index_of(save), write)
        write_outputs(self._options, profile, report, run, self.results)
        entries = report.counts.entries
        table = rank_table(report.ranks, entries, self.stats) if self.stats else ""
        if tables := self.rank_tables(report, entries, table):
            self.note(tables.rstrip("\n"))
        if self.verbose:
            self.note(f"fprof: {summary(report)}")
        return worst((code, self.results.code))


def entry_count(profile: Profile) -> int:
    """Return the number of entries in a profile."""
    return sum(tally[0] for tally in profile.kinds.values())


def _account(total: ProfileTotals, profile: Profile | None) -> str | None:
    """Return a message if the counts of a successful job disagree, or None if they agree."""
    profiled = 0 if profile is None else entry_count(profile)
    examined = total.settled - total.failed
    text = base.unsettled(total)
    if not text and profiled != examined:
        text = f"{examined} entries were examined, but {profiled} profiled"
    return base.miscounted(text, total) if text else None


# Modules that only some runs need are imported late, so that all other runs start faster.

KEPT_TOP = 100
"""The length of top lists in a saved profile."""


class ProfileProgram(WalkProgram[ProfileTask]):
    """The program of fprof."""

    name = "fprof"
    reads_only: ClassVar[bool] = True
    plan_type: ClassVar[type[ProfilePlan]] = ProfilePlan
    options: ProfileOptions

    def __init__(self, options: ProfileOptions) -> None:
        super().__init__(options, options.paths)
        self._volumes: tuple[int, ...] = ()
        self._parts: bytes | None = None  # path prefix of the parts of an index
        self._listed: dict[str, LogFile] = {}  # by kind, on rank 0

    def withdraw(self) -> None:
        if self._parts is not None:
            os.unlink(self._parts)

    def check(self) -> None:
        check_outputs(self.options)

    def roots(self) -> tuple[Root, ...]:
        roots, self._volumes = resolve(self.paths)
        return roots

    def decided(self, roots: tuple[Root, ...], ranks: int) -> dict[str, Any]:
        options = self.options
        return {
            "volumes": self._volumes,
            "facets": tuple(sorted(options.facets())),
            "top": max(KEPT_TOP if options.everything else 1, options.top),
            "ranks": ranks,
            "lists": tuple(kind for kind, _ in options.lists),
            "list_end": b"\0" if options.null else b"\n",
        }

    def begin(self, roots: tuple[Root, ...]) -> None:
        if self.options.entries:
            from pcircle.tools.fprof.entries import place_for

            self._parts = place_for(str(self.options.save), roots, self.directory())
        if self.options.lists:
            self._begin_lists(b"\0" if self.options.null else b"\n")
        super().begin(roots)

    def opened(self) -> dict[str, Any]:
        return {"index": self._parts}

    def prepare_again(self, plan: bytes, ranks: int) -> bytes:
        """Return the plan for a new job after a rank was lost.

        Remove the parts of the index that the ranks of the earlier job wrote.
        """
        if self._parts is not None:
            from pcircle.walk.segments import remove  # required only if ranks were lost

            remove(self._parts, msgspec.msgpack.decode(plan, type=ProfilePlan).ranks)
        return super().prepare_again(plan, ranks)

    def _begin_lists(self, end: bytes) -> None:
        """Open the lists of files, and raise UsageError if that fails."""
        from pcircle.tools.fprof.entries import heading

        for kind, name in self.options.lists:
            log = self._listed[kind] = LogFile(open_log(name, "--list-out"))
            try:
                log.append(heading(kind, end))
            except OSError as error:
                shown = show(os.fsencode(name))
                raise UsageError(f"--list-out: cannot write '{shown}': {error.strerror}") from None

    def new_task(self, plan: TreePlan, rank: int, lists: Lists | None) -> ProfileTask:
        return ProfileTask(require_type(ProfilePlan, plan), rank, lists)

    def observer(self, plan: bytes) -> Observer[Any]:
        decided = msgspec.msgpack.decode(plan, type=ProfilePlan)
        return ProfileConsole(decided, self.options, self.log, self._listed)


def profile_typed(args: argparse.Namespace) -> int:
    """Run a parsed command line and return its exit code; raise UsageError if it is invalid."""
    if not all(args.operands):
        raise UsageError("empty file name")
    if args.diff is not None:
        with any_link(args.insecure_links):
            return _diff(args)
    if args.merge and not args.operands:
        raise UsageError("missing operand FILE")
    options = _options_of(args)
    if options.merge:
        with any_link(options.insecure_links):
            return _report_saved(options)
    return _run(options)


def _report_saved(options: ProfileOptions) -> int:
    """Report on the saved profiles that the operands name, and return the exit code.

    Ranks other than rank 0 do nothing. Raise UsageError if the options or profiles are unsuitable.
    """
    if launched().rank:
        return 0
    from pcircle.tools.fprof.profile import saved
    from pcircle.tools.fprof.profile.model import merge

    check_outputs(options)
    *_, merged = accumulate((saved.read(path) for path in options.paths), merge)
    missing = sorted(options.facets() - set(merged.facets))
    if options.tree and "tree" in missing:
        missing.remove("tree")  # the tree is optional
    if missing:
        raise UsageError(f"--merge: these profiles lack {', '.join(missing)}")
    if options.top > merged.top:
        limit = f"these profiles keep the first {merged.top:,} of each list"
        raise UsageError(f"--top: {limit}")
    run = ProfileRun(exit_code=EntriesFailed.exit_code if merged.failed or merged.unreadable else 0)
    report = make(merged, options, run)
    results = Results("fprof", options.json, MessageStream(standard_error()).line)
    write_outputs(options, merged, report, run, results)
    return worst((run.exit_code, results.code))


def _diff(args: argparse.Namespace) -> int:
    """Compare two saved profiles on rank 0, and return the exit code."""
    ProfileOptions.refuse_others(args, "diff", "two saved profiles")
    if launched().rank:
        return 0
    from pcircle.tools.fprof.profile import saved

    if args.json is not None:
        jsonout.check(args.json)
    old, new = args.diff
    found = saved.compare(saved.read(old), saved.read(new), (old, new), __version__)
    parts = None if args.quiet else lambda unicode: saved.render_comparison(found)
    results = Results("fprof", args.json, MessageStream(standard_error()).line)
    tell(found, parts, results)
    return worst((found.exit_code, results.code))


def _options_of(args: argparse.Namespace) -> ProfileOptions:
    """Return the options of a command line; raise UsageError if they are invalid.

    A list of files (`--list-out`) also requests the examination that finds these files. On a
    terminal the standard report ends with the largest directories.
    """
    paths = tuple(map(os.fsencode, args.operands or ["."]))
    options = ProfileOptions.of(args, paths=paths)
    lists = dict(options.lists)
    pieces = options.pieces or (PIECES if "compress" in lists else 0)
    return options.replace(
        tree=options.levels is None and not options.quiet and _is_read(options),
        sparse=options.sparse or "sparse" in lists,
        stripe=options.stripe or "stripe" in lists,
        pieces=pieces,
        everything=any((options.save, options.html, options.plot)),
    )


def _is_read(options: ProfileOptions) -> bool:
    """Return whether the report is printed on a terminal."""
    return MessageStream(standard_error() if options.json == "-" else standard_output()).isatty()


def _run(options: ProfileOptions) -> int:
    # Every walk needs ctypes, which would otherwise be imported by each forked rank.
    import ctypes  # noqa: F401

    return ProfileProgram(options).run()
