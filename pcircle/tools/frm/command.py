"""The program of frm: interprets the options, resolves the PATHs and runs the removal.

`root_of` refuses PATHs that must not be removed. A removal whose counts suffice is restarted after
a rank was lost: each thread records its removals in shared memory in advance
(`pcircle.ops.remove.removal_log`). From these records, the counts of a killed rank can be
recovered, but not the names.
"""

from __future__ import annotations

import argparse
import errno
import os
import stat
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from pcircle.cli.arguments import refuse_remote
from pcircle.cli.change_program import ChangeConsole, ChangeProgram, refuse_twice
from pcircle.core.encoding import show
from pcircle.core.errors import (
    EntriesFailed,
    StoppedEarly,
    UsageError,
    operand_error,
    require_type,
    worst,
)
from pcircle.core.units import format_size, plural
from pcircle.fs.attributes.mounts import is_same_mount
from pcircle.fs.directories import device_and_inode
from pcircle.fs.open_flags import OPEN_DIRECTORY_FOLLOW, OPEN_ENTRY_PATH
from pcircle.fs.safe_open import directory
from pcircle.jobs.tree_task import TreeTask, resolve
from pcircle.ops.remove import trash
from pcircle.ops.remove.plan import RemovalCounters, RemovalPlan
from pcircle.ops.remove.remover import RemoveTask
from pcircle.runtime import Outcome
from pcircle.tools.frm.options import RemoveOptions
from pcircle.walk.roots import Root

if TYPE_CHECKING:
    from pcircle.ops.remove.removal_log import RemovalLog

_UNKNOWN = "a rank was lost, and its removals cannot be counted; run the command again"


class FrmTask(RemoveTask):
    """The removal task of one rank or thread."""

    tool = "frm"


class RemoveConsole(ChangeConsole):
    """Prints the failures and the summary of a removal."""

    _program: RemoveProgram

    def summary(self, total: RemovalCounters) -> str:
        options = self._program.options
        dry = options.dry or options.plan is not None
        done = "moved to the trash" if options.trash is not None else "removed"
        parts = [f"{plural(total.completed, 'entry', 'entries')} {'would be ' * dry}{done}"]
        remaining = {"kept": total.kept + total.left_out, "vanished": total.vanished}
        parts += [f"{count:,} {what}" for what, count in remaining.items() if count]
        if options.sized and not dry:
            sizes = map(format_size, (total.named_bytes, total.freed_bytes))
            parts.append("{} of names, {} freed".format(*sizes))
        return ", ".join(parts)

    def total(self, outcome: Outcome[dict[int, int]]) -> RemovalCounters:
        """Return the counters of all ranks, including those of jobs that lost ranks."""
        return self._program.with_former(super().total(outcome))

    def end(self, outcome: Outcome[dict[int, int]]) -> tuple[int, list[str]]:
        """Tidy up and end the console; report directories whose times could not be restored."""
        failures = self._program.tidy_up()
        code, reasons = super().end(outcome)
        for text in failures:
            self.note(f"frm: {text}")
        return worst((code, EntriesFailed.exit_code)) if failures else code, reasons


class RemoveProgram(ChangeProgram):
    """The program of frm."""

    name: str = "frm"
    said: str = "removed"
    plan_type: ClassVar[type[RemovalPlan]] = RemovalPlan
    task_type: ClassVar[type[FrmTask]] = FrmTask
    console_type: ClassVar[type[RemoveConsole]] = RemoveConsole
    options: RemoveOptions

    def __init__(self, options: RemoveOptions, paths: Sequence[bytes], **more: Any) -> None:
        super().__init__(options, paths, **more)
        self._holders: list[tuple[bytes, int, os.stat_result]] = []
        self._run = b""
        if options.trash is not None:
            self.said = "moved"
        self._known: tuple[tuple[int, int], ...] = ()
        self._log: RemovalLog | None = None
        self._previous_log: RemovalLog | None = None  # the log of the last run that lost ranks
        self._previous_counts: Counter[str] = Counter()  # totals of all runs that lost ranks

    def roots(self) -> tuple[Root, ...]:
        options = self.options
        if options.apply is not None:
            return self.read_plan().roots
        if options.files_from is not None:
            return resolve(self.paths)
        if options.empty_trash is not None:
            return trash.list_runs("--empty-trash", os.fsencode(options.empty_trash))
        found = [found for found in map(self._root, self.paths) if found is not None]
        self._known = tuple(held for _, held in found)
        roots = tuple(root for root, _ in found)
        if options.plan is not None or options.max_delete is not None:
            refuse_twice("--max-delete" if options.plan is None else "--plan", roots)
        return roots

    def _root(self, path: bytes) -> tuple[Root, tuple[int, int]] | None:
        options = self.options
        recursive = options.recursive or options.empty
        try:
            found = root_of(path, keep_root=options.keep_root, recursive=recursive)
            if found is None and not options.force:
                raise FileNotFoundError(2, os.strerror(2))
        except OSError as error:
            if options.force and not options.keep_root and error.errno == errno.ENOTDIR:
                return None  # like rm, treat a path below a file as missing
            text = f"cannot remove '{show(path)}': {error.strerror or error}"
            raise operand_error(text, error) from None
        # An entry of any type is moved to the trash by a single rename.
        if found is not None and options.trash is not None:
            root, held = found
            return Root(root.holder, root.name or root.within, path), held
        return found

    def decided(self, roots: tuple[Root, ...], ranks: int) -> dict[str, Any]:
        options = self.options
        if options.trash is not None and not options.dry:
            self._run = trash.create_run("--trash", os.fsencode(options.trash))
        moved = b"" if options.trash is None else self._run or b"."
        return super().decided(roots, ranks) | {"trash": moved, "holders": self._known}

    def begin(self, roots: tuple[Root, ...]) -> None:
        """Open the output files, and the directories whose times will be restored.

        Raise UsageError if that fails.
        """
        super().begin(roots)
        options = self.options
        if options.keep_times and not options.dry and options.plan is None:
            for holder in {root.holder for root in roots}:
                try:
                    fd = opened(os.path.join(self.directory(), holder))
                except OSError as error:
                    text = f"cannot open '{show(holder)}': {error.strerror or error}"
                    raise UsageError(text) from None
                self._holders.append((holder, fd, os.fstat(fd)))

    def prepare(self, nodes: Sequence[int]) -> bytes:
        """Prepare the run; remove its directory in the trash if the run is refused."""
        try:
            return super().prepare(nodes)
        except BaseException:
            if self._run:
                trash.remove_empty_run(self._run)
            raise

    def tidy_up(self) -> list[str]:
        """Restore the times of directories that contain PATHs, and remove an empty trash directory.

        Return messages about times that cannot be restored.
        """
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

    # ---- restarts after a rank was lost ----------------------------------------

    def can_lose_ranks(self) -> bool:
        """Return whether the job can restart. It cannot if names of removed entries are needed."""
        return super().can_lose_ranks() or self.options.is_restartable

    def share(self, ranks: int) -> None:
        from pcircle.ops.remove.removal_log import RemovalLog

        self._previous_log, self._log = self._log, RemovalLog(ranks)

    def task(self, plan: bytes, rank: int, size: int) -> TreeTask:
        task = require_type(RemoveTask, super().task(plan, rank, size))
        task.removal_log = self._log if self.can_lose_ranks() else None
        return task

    def prepare_again(self, plan: bytes, ranks: int) -> bytes:
        decided = msgspec.msgpack.decode(super().prepare_again(plan, ranks), type=RemovalPlan)
        try:
            log = self._previous_log
            where = decided.roots, decided.directory
            removed = None if log is None else log.count_removed(*where)
        except OSError as error:
            raise StoppedEarly(f"{_UNKNOWN}: {error.strerror}") from error
        if removed is None:
            raise StoppedEarly(_UNKNOWN)
        self._previous_counts.update(removed)
        gone = [
            number
            for number, root in enumerate(decided.roots)
            if not os.path.lexists(
                os.path.join(decided.directory, root.holder, root.name or root.within)
            )
        ]
        return msgspec.msgpack.encode(msgspec.structs.replace(decided, gone=tuple(gone)))

    def with_former(self, total: RemovalCounters) -> RemovalCounters:
        """Add the counts of the runs that lost ranks to the counts of the last run."""
        for name, count in self._previous_counts.items():
            setattr(total, name, getattr(total, name) + count)
            total.found += count
        return total


def program_of(options: RemoveOptions) -> RemoveProgram:
    """Return the program of a removal; raise UsageError if the options are invalid."""
    if not options.force:
        refuse_remote(list(map(os.fsdecode, options.paths)))
    is_listed = options.files_from is not None
    paths = options.paths or (b".",) * is_listed
    if options.empty_trash is not None:
        paths = (os.fsencode(options.empty_trash),)
    return RemoveProgram(
        options,
        paths,
        # A plan lists every entry that it removes, so directories are not removed recursively.
        recursive=(options.recursive and options.apply is None) or options.empty_trash is not None,
        keep_root=options.keep_root or is_listed,
        listed=is_listed or options.apply is not None,
    )


def remove_typed(args: argparse.Namespace) -> int:
    """Run a parsed command line and return the exit code; raise UsageError if it is invalid."""
    return program_of(RemoveOptions.of(args)).run()


# ---- roots ---------------------------------------------------------------------------------------


def root_of(
    path: bytes, *, keep_root: bool, recursive: bool
) -> tuple[Root, tuple[int, int]] | None:
    """Return the root of a PATH, and the device and inode of its parent directory.

    A symbolic link is not followed. Return None if the PATH does not exist. Raise UsageError for
    `/`, ``.`` and ``..``, for a mount point unless `keep_root` is set, and for a directory unless
    `recursive` is set. Raise OSError if the PATH cannot be opened, or if it must be a directory but
    is not.
    """
    stripped = path.rstrip(b"/")
    holder, name = os.path.split(stripped)
    if not stripped or name in (b".", b".."):
        raise UsageError(f"refusing to remove '{show(path)}'")
    holder = holder or b"."
    above = directory(holder)
    try:
        held = device_and_inode(os.fstat(above))
        fd = os.open(name, OPEN_ENTRY_PATH, dir_fd=above)
        try:
            is_directory = stat.S_ISDIR(os.fstat(fd).st_mode)
            if not (keep_root and is_directory) and not is_same_mount(fd, above):
                raise UsageError(
                    f"refusing to remove '{show(path)}': it is a mount point; "
                    "to empty it, add --keep-root"
                )
        finally:
            os.close(fd)
    except FileNotFoundError:
        return None
    finally:
        os.close(above)
    if is_directory and not recursive:
        raise UsageError(f"'{show(path)}' is a directory: add -r, or -d if it is empty")
    if not is_directory and (keep_root or path != stripped):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    root = Root(holder, b"", path, name) if is_directory else Root(holder, name, path)
    return root, held


def opened(path: bytes) -> int:
    """Open the directory that contains PATHs, as `root_of` does; raise OSError if that fails."""
    fd = directory(path)
    try:
        return os.open(b".", OPEN_DIRECTORY_FOLLOW, dir_fd=fd)
    finally:
        os.close(fd)
