"""`ffind --apply`: removes only entries that a plan lists."""

from __future__ import annotations

from typing import ClassVar

from pcircle.cli.change_program import ChangeConsole, ChangeProgram
from pcircle.core.units import plural
from pcircle.ops.remove.plan import RemovalCounters, RemovalPlan
from pcircle.ops.remove.remover import RemoveTask
from pcircle.walk.roots import Root


class FindApplyTask(RemoveTask):
    """The removal task of one rank or thread."""

    tool = "ffind"


class FindApplyConsole(ChangeConsole):
    """Reports the removal."""

    _program: FindApplyProgram

    def summary(self, total: RemovalCounters) -> str:
        done = "would be removed" if self._program.options.dry else "removed"
        parts = [f"{plural(total.completed, 'entry', 'entries')} {done}"]
        remaining = {"kept": total.kept + total.left_out, "vanished": total.vanished}
        parts += [f"{count:,} {what}" for what, count in remaining.items() if count]
        return ", ".join(parts)


class FindApplyProgram(ChangeProgram):
    """The program of `ffind --apply`. Like the search, it enters mount points."""

    name: str = "ffind"
    said: str = "deleted"
    plan_type: ClassVar[type[RemovalPlan]] = RemovalPlan
    task_type: ClassVar[type[FindApplyTask]] = FindApplyTask
    console_type: ClassVar[type[FindApplyConsole]] = FindApplyConsole

    def roots(self) -> tuple[Root, ...]:
        return self.read_plan().roots
