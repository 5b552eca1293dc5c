"""What the options of frm mean, and running it with them."""

from __future__ import annotations

import argparse
import errno
import os
from collections.abc import Sequence
from typing import Any

from pcircle.cli.arguments import refuse_remote
from pcircle.cli.change_program import ChangeConsole, refuse_twice
from pcircle.core.errors import EntriesFailed, UsageError, operand_error, worst
from pcircle.core.names import show
from pcircle.core.units import format_size, plural
from pcircle.jobs.tree_task import resolve
from pcircle.ops.remove import trash
from pcircle.ops.remove.plan import RemovalCounters
from pcircle.ops.remove.remover import RemoveTask
from pcircle.runtime import Outcome
from pcircle.tools.common.remove_program import RestartableRemoval
from pcircle.tools.frm.operands import opened, root_of
from pcircle.walk.roots import Root

_ALONE = ("files_from", "plan", "apply", "max_delete", "keep_root", "empty_dirs", "keep_times")


class Task(RemoveTask):
    """A rank's part, or a thread's."""

    tool = "frm"


class Console(ChangeConsole):
    """Tells the user of a removal."""

    _program: RemoveProgram

    def summary(self, total: RemovalCounters) -> str:
        """See `TreeConsole`."""
        typed = self._program.typed
        dry = typed.dry_run or typed.plan is not None
        done = "moved to the trash" if typed.trash is not None else "removed"
        parts = [f"{plural(total.completed, 'entry', 'entries')} {'would be ' * dry}{done}"]
        others = {"kept": total.kept + total.left_out, "vanished": total.vanished}
        parts += [f"{count:,} {what}" for what, count in others.items() if count]
        if typed.bytes and not dry:
            sizes = map(format_size, (total.named_bytes, total.freed_bytes))
            parts.append("{} of names, {} freed".format(*sizes))
        return ", ".join(parts)

    def total(self, outcome: Outcome[dict[int, int]]) -> Any:
        """See `TreeConsole`: with what had gone when ranks were lost."""
        return self._program.with_former(super().total(outcome))

    def end(self, outcome: Outcome[dict[int, int]]) -> tuple[int, list[str]]:
        """See `Console`."""
        untold = self._program.tidy_up()
        code, reasons = super().end(outcome)
        for text in untold:
            self.note(f"frm: {text}")
        return worst((code, EntriesFailed.exit_code)) if untold else code, reasons


class RemoveProgram(RestartableRemoval):
    """frm, for the runtime."""

    name, said = "frm", "removed"
    task_type, console_type = Task, Console

    def __init__(self, typed: argparse.Namespace, paths: Sequence[bytes], **more: Any) -> None:
        super().__init__(typed, paths, **more)
        self._holders: list[tuple[bytes, int, os.stat_result]] = []
        self._run = b""
        if typed.trash is not None:
            self.said = "moved"
        self._known: tuple[tuple[int, int], ...] = ()

    def roots(self) -> tuple[Root, ...]:
        """See `TreeProgram`."""
        typed = self.typed
        if typed.apply is not None:
            return self.read_plan().roots
        if typed.files_from is not None:
            return resolve(self.paths)
        if typed.empty_trash is not None:
            return trash.list_runs("--empty-trash", os.fsencode(typed.empty_trash))
        found = [found for found in map(self._root, self.paths) if found is not None]
        self._known = tuple(held for _, held in found)
        roots = tuple(root for root, _ in found)
        for option in ("plan", "max_delete"):
            if getattr(typed, option) is not None:
                refuse_twice(f"--{option.replace('_', '-')}", roots)
        return roots

    def _root(self, path: bytes) -> tuple[Root, tuple[int, int]] | None:
        typed = self.typed
        try:
            found = root_of(path, keep_root=typed.keep_root, recursive=typed.recursive or typed.dir)
            if found is None and not typed.force:
                raise FileNotFoundError(2, os.strerror(2))
        except OSError as error:
            if typed.force and not typed.keep_root and error.errno == errno.ENOTDIR:
                return None  # as for rm, what is below a file does not exist
            text = f"cannot remove '{show(path)}': {error.strerror or error}"
            raise operand_error(text, error) from None
        if found is not None and typed.trash is not None:  # moved as it is, whatever it is
            root, held = found
            return Root(root.holder, root.name or root.within, path), held
        return found

    def decided(self, roots: tuple[Root, ...], ranks: int) -> dict[str, Any]:
        """See `TreeProgram`."""
        typed = self.typed
        if typed.trash is not None and not typed.dry_run:
            self._run = trash.create_run("--trash", os.fsencode(typed.trash))
        moved = b"" if typed.trash is None else self._run or b"."
        return super().decided(roots, ranks) | {"trash": moved, "holders": self._known}

    def begin(self, roots: tuple[Root, ...]) -> None:
        """See `TreeProgram`."""
        super().begin(roots)
        typed = self.typed
        if typed.keep_times and not typed.dry_run and typed.plan is None:
            for holder in {root.holder for root in roots}:
                try:
                    fd = opened(os.path.join(self.directory(), holder))
                except OSError as error:
                    text = f"cannot open '{show(holder)}': {error.strerror or error}"
                    raise UsageError(text) from None
                self._holders.append((holder, fd, os.fstat(fd)))

    def prepare(self, nodes: Sequence[int]) -> bytes:
        """See `Program`. A run that is refused leaves no directory in the trash."""
        try:
            return super().prepare(nodes)
        except BaseException:
            if self._run:
                trash.remove_empty_run(self._run)
            raise

    def tidy_up(self) -> list[str]:
        """The job has ended: what each PATH was in gets its times back. What could not be done."""
        failed = []
        for holder, fd, status in self._holders:
            try:
                os.utime(fd, ns=(status.st_atime_ns, status.st_mtime_ns))
            except OSError as error:
                failed.append(f"cannot keep the times of '{show(holder)}': {error.strerror}")
            os.close(fd)
        if self._run:
            trash.remove_empty_run(self._run)
        return failed


def program_of(typed: argparse.Namespace) -> RemoveProgram:
    """What a parsed command line asks for. UsageError if it makes no sense."""
    _refuse(typed)
    if not typed.force:
        refuse_remote(typed.operands)
    is_listed = typed.files_from is not None
    if typed.empty_dirs:
        typed.kind = "d"
    paths = list(map(os.fsencode, typed.operands)) or [b"."] * is_listed
    if typed.empty_trash is not None:
        paths = [os.fsencode(typed.empty_trash)]
    return RemoveProgram(
        typed,
        paths,
        # Of a plan nothing goes but what it lists.
        recursive=(typed.recursive and typed.apply is None) or typed.empty_trash is not None,
        keep_root=typed.keep_root or is_listed,
        listed=is_listed or typed.apply is not None,
        keep_times=typed.keep_times,
        force_modes=typed.force_modes,
        enter_mounts=typed.cross_mounts,
        sized=typed.bytes,
    )


def _refuse(typed: argparse.Namespace) -> None:
    if typed.ask:
        raise UsageError("-i and -I: nothing is asked; use --plan FILE and then --apply FILE")
    if typed.cross_mounts and typed.one_file_system:
        raise UsageError("--cross-mounts cannot be combined with -x")
    if typed.empty_dirs and typed.kind is not None:
        raise UsageError("--empty-dirs cannot be combined with --kind")
    if typed.empty_trash is not None and typed.operands:
        raise UsageError(f"--empty-trash takes no PATH: extra operand '{typed.operands[0]}'")
    if typed.empty_trash is not None and typed.files_from is not None:
        raise UsageError("--empty-trash cannot be combined with --files-from")
    if typed.force_modes and typed.max_delete is not None and typed.apply is None:
        text = "--max-delete cannot be combined with --force-modes"
        raise UsageError(f"{text}: what is in directories of no permission can't be counted")
    for option in ("trash", "empty_trash"):
        if typed.strict_operands and getattr(typed, option) is not None:
            raise UsageError(
                f"--strict-operands cannot be combined with --{option.replace('_', '-')}"
            )
    if typed.trash is not None:
        from pcircle.cli.filters import attributes_of
        from pcircle.walk.attributes import ANY

        given = [name for name in (*_ALONE, "empty_trash") if getattr(typed, name)]
        if given:
            raise UsageError(f"--trash cannot be combined with --{given[0].replace('_', '-')}")
        if typed.dir and not typed.recursive:
            raise UsageError("--trash cannot be combined with -d; to move directories, add -r")
        if typed.filters or attributes_of(typed) != ANY:
            raise UsageError("--trash cannot be combined with filters")


def remove_typed(typed: argparse.Namespace) -> int:
    """Carry out a parsed command line; returns the exit code. UsageError if it makes no sense."""
    return program_of(typed).run()
