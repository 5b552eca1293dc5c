"""What the options of frm mean, and running it with them."""

from __future__ import annotations

import argparse
import os

from pcircle.errors import UsageError
from pcircle.frm.plan import Counters, Plan, root_of
from pcircle.frm.remover import RemoveTask
from pcircle.tool.changing import ChangeConsole, ChangeProgram
from pcircle.tool.trees import resolve
from pcircle.ui.names import show
from pcircle.ui.report import plural
from pcircle.walk.roots import Root


class Console(ChangeConsole):
    """Tells the user of a removal."""

    def summary(self, total: Counters) -> str:
        """See `TreeConsole`."""
        return f"{plural(total.completed, 'entry', 'entries')} removed"


class RemoveProgram(ChangeProgram):
    """frm, for the runtime."""

    name = "frm"
    said = "removed"

    @property
    def lists_whole(self) -> bool:
        """See `TreeProgram`."""
        return bool(self.typed.recursive)

    plan_type, task_type, console_type = Plan, RemoveTask, Console

    def roots(self) -> tuple[Root, ...]:
        """See `TreeProgram`."""
        typed, found = self.typed, []
        if typed.apply is not None:
            return self.read_plan().roots
        if typed.files_from is not None:
            return resolve(self.paths)
        for path in self.paths:
            try:
                deep = typed.recursive or typed.dir
                root = root_of(path, keep_root=typed.keep_root, recursive=deep)
                if root is None and not typed.force:
                    raise FileNotFoundError(2, os.strerror(2))
            except OSError as error:
                text = f"cannot remove '{show(path)}': {error.strerror}"
                raise UsageError(text) from None
            if root is not None:
                found.append(root)
        return tuple(found)


def remove_typed(typed: argparse.Namespace) -> int:
    """Carry out a parsed command line; returns the exit code. UsageError if it makes no sense."""
    if typed.ask:
        raise UsageError("-i and -I: nothing is asked; use --plan FILE and then --apply FILE")
    for option, value in (("truncate", typed.truncate), ("immutable", typed.immutable)):
        if value is not None:
            raise UsageError(f"--{option}: not available yet")
    if typed.cross_mounts and typed.one_file_system:
        raise UsageError("--cross-mounts cannot be combined with -x")
    if typed.empty_dirs:
        if typed.kind is not None:
            raise UsageError("--empty-dirs cannot be combined with --kind")
        typed.kind = "d"
    paths = list(map(os.fsencode, typed.operands))
    is_listed = typed.files_from is not None
    if is_listed and not paths:
        paths = [b"."]
    return RemoveProgram(
        typed,
        paths,
        recursive=typed.recursive,
        keep_root=typed.keep_root or is_listed,
        listed=is_listed or typed.apply is not None,
        keep_times=typed.keep_times,
        force_modes=typed.force_modes,
        enter_mounts=typed.cross_mounts,
    ).run()
