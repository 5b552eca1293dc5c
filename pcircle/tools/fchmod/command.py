"""The meaning of the options of fchmod, fchown and fchgrp, and the run with them."""

from __future__ import annotations

import argparse
import errno
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from pcircle.cli.change_program import ChangeConsole, ChangeProgram
from pcircle.core.errors import EntriesFailed, UsageError, operand_error, worst
from pcircle.core.names import show
from pcircle.core.units import plural
from pcircle.jobs.action_log import Wanted
from pcircle.jobs.error_log import LogFile
from pcircle.jobs.failures import Failure
from pcircle.jobs.plan_file import Planned, head, read_plan
from pcircle.jobs.tree_task import resolve
from pcircle.runtime import Outcome
from pcircle.tools.fchmod import report as telling
from pcircle.tools.fchmod.operands import root_of
from pcircle.tools.fchmod.options import asked_of
from pcircle.tools.fchmod.plan import Counters, Denied, ModePlan, Unmapped
from pcircle.tools.fchmod.state.state import check_mark
from pcircle.tools.fchmod.task import ModeTask
from pcircle.walk.roots import Root

_SHOWN = 10  # owners, and ids, in a remark


class Console(ChangeConsole):
    """Reports a change."""

    _program: ModeProgram

    def __init__(self, program: ModeProgram, log: LogFile | None) -> None:
        super().__init__(program, log)
        self._denied: Counter[int] = Counter()
        self._unmapped: tuple[Counter[int], Counter[int]] = Counter(), Counter()

    def notice(self, source: int, values: Sequence[Any]) -> None:
        for value in values:
            if isinstance(value, Denied):
                self._denied[value.uid] += value.count
            elif isinstance(value, Unmapped):
                self._unmapped[value.is_group][value.number] += value.count
        super().notice(source, values)

    def is_silent(self, failure: Failure) -> bool:
        return failure.errno == errno.EPERM and bool(self._program.typed.silent)

    def summary(self, total: Counters) -> str:
        dry = "would be " * self._program.typed.dry_run
        parts = [f"{plural(total.changed, 'entry', 'entries')} {dry}changed"]
        rest = total.completed - total.changed
        others = {
            "unchanged": max(0, rest),
            "kept": total.kept + total.left_out,
            "further names": total.linked,
            "vanished": total.vanished,
        }
        parts += [f"{count:,} {what}" for what, count in others.items() if count]
        return ", ".join(parts)

    def remarks(self, total: Counters, code: int) -> Iterable[str]:
        yield from super().remarks(total, code)
        if self._denied:
            yield f"not permitted: {_listed(self._denied, telling.user)}"
        for what, counts in zip(("users", "groups"), self._unmapped, strict=True):
            if counts:
                yield f"{what} that are not mapped: {_listed(counts, str)}"

    def end(self, outcome: Outcome[dict[int, int]]) -> tuple[int, list[str]]:
        """End the console; changes can be undone, however the job ended."""
        if self._program.typed.undo is not None and outcome.code:
            outcome = self.with_plan_ended(outcome, self.planned)
        code, reasons = super().end(outcome)
        applied = self._program.applied
        if applied is not None and applied.cut:
            code = worst((code, EntriesFailed.exit_code))
            shown = show(os.fsencode(self._program.typed.apply))
            reasons.append(f"'{shown}' is not complete: only what it lists was restored")
        return code, reasons


def _listed(counts: Counter[int], name_of: Any) -> str:
    told = [f"{count:,} of {name_of(number)}" for number, count in counts.most_common(_SHOWN)]
    more = len(counts) - len(told)
    return ", ".join(told + ([f"{more:,} more"] if more else []))


class ModeProgram(ChangeProgram):
    """The program of fchmod, fchown or fchgrp."""

    plan_type, task_type, console_type = ModePlan, ModeTask, Console

    def __init__(
        self, tool: str, typed: argparse.Namespace, paths: Sequence[bytes], **more: Any
    ) -> None:
        self.name = tool
        super().__init__(typed, paths, tool=tool, **more)
        if typed.undo is not None:
            others = (typed.list_out, typed.json_lines, typed.error_log, typed.files_from)
            shown = show(os.fsencode(typed.undo))
            if typed.undo in others:
                raise UsageError(f"'{shown}' is used by two options")
            if _holds_something(typed.undo):
                reason = "may hold what an earlier run has changed; name another file"
                raise UsageError(f"--undo: '{shown}' {reason}")

    def read_plan(self) -> Planned:
        """Read the plan; each of the three tools undoes changes of all three."""
        self.applied = read_plan(self.typed.apply, "fchmod", check_mark, may_be_cut=True)
        return self.applied

    def roots(self) -> tuple[Root, ...]:
        typed = self.typed
        if typed.apply is not None:
            return self.read_plan().roots
        if typed.files_from is not None:
            return resolve(self.paths)
        return tuple(map(self._root, self.paths))

    def _root(self, path: bytes) -> Root:
        typed = self.typed
        # As chmod, and as chown, which follows no link with -R unless -H is there.
        follow = not (typed.no_dereference or typed.never)
        if self.name != "fchmod" and typed.recursive:
            follow = bool(typed.operand_links or typed.all_links)
        try:
            return root_of(
                path,
                recursive=typed.recursive,
                follow=follow,
                keeps_root=typed.preserve_root or not typed.no_preserve_root,
            )
        except OSError as error:
            reason = error.strerror or str(error)
            raise operand_error(f"cannot access '{show(path)}': {reason}", error) from None

    def decided(self, roots: tuple[Root, ...], ranks: int) -> dict[str, Any]:
        typed, found = self.typed, super().decided(roots, ranks)
        says = 2 if typed.verbose else int(typed.changes)
        acts: Wanted = found["acts"]
        word = "changed" if says else ""
        found["acts"] = Wanted(acts.lines, acts.end, word, typed.undo is not None)
        return found | {"says": says}

    def begin(self, roots: tuple[Root, ...]) -> None:
        super().begin(roots)
        if self.typed.undo is not None:
            from pcircle.jobs.plan_output import PlanFile  # few runs have one

            self.planned = PlanFile(self.typed.undo, "--undo", "undo file")
            self.planned.append(head("fchmod", roots, self.directory()))


def _holds_something(name: str) -> bool:
    """Return whether a file exists and is not empty; False if it cannot be looked up."""
    try:
        return os.stat(os.fsencode(name)).st_size > 0
    except (OSError, ValueError):
        return False


def program_of(tool: str, typed: argparse.Namespace) -> ModeProgram:
    """Return the program of a parsed command line. UsageError."""
    _refuse(typed)
    is_listed = typed.files_from is not None
    wish, paths = asked_of(tool, typed)
    if not paths and is_listed:
        paths = [b"."]
    return ModeProgram(
        tool,
        typed,
        paths,
        wish=wish,
        recursive=typed.recursive and typed.apply is None,
        listed=is_listed or typed.apply is not None,
        force=typed.force,
        silent=typed.silent,
        undo=typed.undo is not None,
        follow=typed.recursive and typed.all_links,
    )


def _refuse(typed: argparse.Namespace) -> None:
    if typed.all_links and (typed.never or typed.no_dereference or typed.operand_links):
        raise UsageError("-L cannot be combined with -H, -P or -h")
    for option in ("undo", "apply", "files_from"):
        if typed.all_links and getattr(typed, option) is not None:
            raise UsageError(f"-L cannot be combined with --{option.replace('_', '-')}")
    if typed.keep_setid and typed.no_setid:
        raise UsageError("--keep-setid cannot be combined with --no-setid")
    if typed.operand_links and (typed.never or typed.no_dereference):
        raise UsageError("-H cannot be combined with -P or -h")
    if typed.undo is not None and typed.dry_run:
        raise UsageError("--undo cannot be combined with --dry-run, which changes nothing")


def change_typed(tool: str, typed: argparse.Namespace) -> int:
    """Carry out a parsed command line and return the exit code. UsageError."""
    return program_of(tool, typed).run()
