"""The program of fchmod, fchown and fchgrp, which interprets the options and runs the change."""

from __future__ import annotations

import argparse
import errno
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

from pcircle.cli.change_program import ChangeConsole, ChangeProgram
from pcircle.core.encoding import show
from pcircle.core.errors import EntriesFailed, UsageError, operand_error, worst
from pcircle.core.units import plural
from pcircle.jobs.action_log import ActionOutput
from pcircle.jobs.failures import Failure, LogFile
from pcircle.jobs.plan_file import LoadedPlan, head, read_plan
from pcircle.jobs.tree_task import resolve
from pcircle.runtime import Outcome
from pcircle.tools.fchmod import report
from pcircle.tools.fchmod.options import ModeOptions, OwnerOptions
from pcircle.tools.fchmod.report import Denied, ModeCounters, ModePlan, Unmapped
from pcircle.tools.fchmod.request import request_of, root_of
from pcircle.tools.fchmod.state.state import check_mark
from pcircle.tools.fchmod.visitor import ModeTask
from pcircle.walk.roots import Root

_SHOWN = 10  # the maximum number of owners or ids in a remark


class ModeConsole(ChangeConsole):
    """Prints changed entries, failures and the summary."""

    _program: ModeProgram

    def __init__(self, program: ModeProgram, log: LogFile | None) -> None:
        super().__init__(program, log)
        self._denied: Counter[int] = Counter()
        self._unmapped: tuple[Counter[int], Counter[int]] = Counter(), Counter()

    def notice(self, source: int, values: Sequence[object]) -> None:
        for value in values:
            if isinstance(value, Denied):
                self._denied[value.uid] += value.count
            elif isinstance(value, Unmapped):
                self._unmapped[value.is_group][value.number] += value.count
        super().notice(source, values)

    def is_silent(self, failure: Failure) -> bool:
        return failure.errno == errno.EPERM and bool(self._program.options.hides_denied)

    def summary(self, total: ModeCounters) -> str:
        dry = "would be " * self._program.options.dry
        parts = [f"{plural(total.changed, 'entry', 'entries')} {dry}changed"]
        unchanged = total.completed - total.changed
        remaining = {
            "unchanged": max(0, unchanged),
            "kept": total.kept + total.left_out,
            "further names": total.linked,
            "vanished": total.vanished,
        }
        parts += [f"{count:,} {what}" for what, count in remaining.items() if count]
        return ", ".join(parts)

    def remarks(self, total: ModeCounters, code: int) -> Iterable[str]:
        yield from super().remarks(total, code)
        if self._denied:
            yield f"not permitted: {_listed(self._denied, report.user)}"
        for what, counts in zip(("users", "groups"), self._unmapped, strict=True):
            if counts:
                yield f"{what} without a mapping: {_listed(counts, str)}"

    def end(self, outcome: Outcome[dict[int, int]]) -> tuple[int, list[str]]:
        """Complete the undo file, even if the job was stopped, and end the console."""
        if self._program.options.undo is not None and outcome.code:
            outcome = self.with_plan_ended(outcome, self.planned)
        code, reasons = super().end(outcome)
        applied = self._program.applied
        if applied is not None and applied.cut:
            code = worst((code, EntriesFailed.exit_code))
            shown = show(os.fsencode(self._program.options.apply or ""))
            reasons.append(f"'{shown}' is incomplete: only the entries that it lists were restored")
        return code, reasons


def _listed(counts: Counter[int], name_of: Callable[[int], str]) -> str:
    shown = [f"{count:,} of {name_of(number)}" for number, count in counts.most_common(_SHOWN)]
    more = len(counts) - len(shown)
    return ", ".join(shown + ([f"{more:,} more"] if more else []))


class ModeProgram(ChangeProgram):
    """The program of fchmod, fchown or fchgrp."""

    plan_type: ClassVar[type[ModePlan]] = ModePlan
    task_type: ClassVar[type[ModeTask]] = ModeTask
    console_type: ClassVar[type[ModeConsole]] = ModeConsole
    options: ModeOptions

    def __init__(
        self, tool: str, options: ModeOptions, paths: Sequence[bytes], **more: object
    ) -> None:
        self.name = tool
        super().__init__(options, paths, tool=tool, **more)
        if options.undo is not None:
            written = (options.list_out, options.json_lines, options.error_log)
            shown = show(os.fsencode(options.undo))
            if options.undo in (*written, options.files_from):
                raise UsageError(f"'{shown}' is used by two options")
            if _is_nonempty(options.undo):
                reason = "may be the record of an earlier run; specify a different file"
                raise UsageError(f"--undo: '{shown}' {reason}")

    def read_plan(self) -> LoadedPlan:
        """Read an undo file; each of the three tools can undo the changes of the others."""
        found = read_plan(self.options.apply or "", "fchmod", check_mark, may_be_cut=True)
        self.applied: LoadedPlan | None = found
        return found

    def roots(self) -> tuple[Root, ...]:
        options = self.options
        if options.apply is not None:
            return self.read_plan().roots
        if options.files_from is not None:
            return resolve(self.paths)
        return tuple(map(self._root, self.paths))

    def _root(self, path: bytes) -> Root:
        options = self.options
        # As in coreutils, `chown -R` follows links only with -H or -L.
        follow = not (options.no_dereference or options.never)
        if self.name != "fchmod" and options.recursive:
            follow = bool(options.operand_links or options.all_links)
        try:
            return root_of(
                path,
                recursive=options.recursive,
                follow=follow,
                keeps_root=options.preserve_root or not options.no_preserve_root,
            )
        except OSError as error:
            reason = error.strerror or str(error)
            raise operand_error(f"cannot access '{show(path)}': {reason}", error) from None

    def decided(self, roots: tuple[Root, ...], ranks: int) -> dict[str, Any]:
        options, found = self.options, super().decided(roots, ranks)
        verbosity = 2 if options.verbose else int(options.changes)
        acts: ActionOutput = found["acts"]
        word = "changed" if verbosity else ""
        found["acts"] = ActionOutput(acts.lines, acts.end, word, options.undo is not None)
        return found | {"verbosity": verbosity}

    def begin(self, roots: tuple[Root, ...]) -> None:
        super().begin(roots)
        if self.options.undo is not None:
            from pcircle.jobs.plan_output import PlanFile  # few runs write a plan

            self.planned: PlanFile | None = PlanFile(self.options.undo, "--undo", "undo file")
            self.planned.append(head("fchmod", roots, self.directory()))


def _is_nonempty(name: str) -> bool:
    """Return whether a file is known to exist and not to be empty."""
    try:
        return os.stat(os.fsencode(name)).st_size > 0
    except (OSError, ValueError):
        return False


def program_of(tool: str, options: ModeOptions, operands: Sequence[str]) -> ModeProgram:
    """Return the program of a change; raise UsageError if the options or operands are invalid."""
    is_listed = options.files_from is not None
    request, paths = request_of(tool, options, operands)
    if not paths and is_listed:
        paths = [b"."]
    return ModeProgram(
        tool,
        options,
        paths,
        request=request,
        recursive=options.recursive and options.apply is None,
        listed=is_listed or options.apply is not None,
        silent=options.hides_denied,
        undo=options.undo is not None,
        follow=options.recursive and options.all_links,
    )


def change_typed(tool: str, args: argparse.Namespace) -> int:
    """Run a parsed command line and return the exit code; raise UsageError if it is invalid."""
    declared = ModeOptions if tool == "fchmod" else OwnerOptions
    return program_of(tool, declared.of(args), args.operands).run()
