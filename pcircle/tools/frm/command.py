"""The program of frm, which interprets the options, resolves the PATHs and runs the removal.

`root_of` refuses PATHs that must not be removed.
"""

from __future__ import annotations

import argparse
import errno
import os
import stat
from collections.abc import Sequence
from typing import Any, ClassVar

from pcircle.cli.arguments import refuse_remote
from pcircle.cli.change_program import ChangeConsole, refuse_twice
from pcircle.cli.options import AllOptions
from pcircle.cli.tree_program import TreeOptions
from pcircle.core.encoding import show
from pcircle.core.errors import EntriesFailed, UsageError, operand_error, worst
from pcircle.core.units import format_size, plural
from pcircle.fs.directories import device_and_inode
from pcircle.fs.open_flags import OPEN_DIRECTORY_FOLLOW, OPEN_ENTRY_PATH
from pcircle.fs.openat2 import is_same_mount
from pcircle.fs.safe_open import directory
from pcircle.jobs.tree_task import resolve
from pcircle.ops.remove import trash
from pcircle.ops.remove.plan import RemovalCounters
from pcircle.ops.remove.remover import RemoveTask
from pcircle.runtime import Outcome
from pcircle.tools.common.remove_program import RestartableRemoval
from pcircle.walk.roots import Root

_ALONE = ("files_from", "plan", "apply", "max_delete", "keep_root", "empty_dirs", "keep_times")


class FrmTask(RemoveTask):
    """The removal task of one rank or thread."""

    tool = "frm"


class RemoveConsole(ChangeConsole):
    """Prints the failures and the summary of a removal."""

    _program: RemoveProgram

    def summary(self, total: RemovalCounters) -> str:
        args = self._program.args
        dry = args.dry_run or args.plan is not None
        done = "moved to the trash" if args.trash is not None else "removed"
        parts = [f"{plural(total.completed, 'entry', 'entries')} {'would be ' * dry}{done}"]
        remaining = {"kept": total.kept + total.left_out, "vanished": total.vanished}
        parts += [f"{count:,} {what}" for what, count in remaining.items() if count]
        if args.bytes and not dry:
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


class RemoveProgram(RestartableRemoval):
    """The program of frm."""

    name: str = "frm"
    said: str = "removed"
    task_type: ClassVar[type[FrmTask]] = FrmTask
    console_type: ClassVar[type[RemoveConsole]] = RemoveConsole

    def __init__(self, args: argparse.Namespace, paths: Sequence[bytes], **more: Any) -> None:
        super().__init__(TreeOptions.of(args), paths, **more)
        self.args = args
        self._holders: list[tuple[bytes, int, os.stat_result]] = []
        self._run = b""
        if args.trash is not None:
            self.said = "moved"
        self._known: tuple[tuple[int, int], ...] = ()

    def roots(self) -> tuple[Root, ...]:
        args = self.args
        if args.apply is not None:
            return self.read_plan().roots
        if args.files_from is not None:
            return resolve(self.paths)
        if args.empty_trash is not None:
            return trash.list_runs("--empty-trash", os.fsencode(args.empty_trash))
        found = [found for found in map(self._root, self.paths) if found is not None]
        self._known = tuple(held for _, held in found)
        roots = tuple(root for root, _ in found)
        for option in ("plan", "max_delete"):
            if getattr(args, option) is not None:
                refuse_twice(f"--{option.replace('_', '-')}", roots)
        return roots

    def _root(self, path: bytes) -> tuple[Root, tuple[int, int]] | None:
        args = self.args
        try:
            found = root_of(path, keep_root=args.keep_root, recursive=args.recursive or args.dir)
            if found is None and not args.force:
                raise FileNotFoundError(2, os.strerror(2))
        except OSError as error:
            if args.force and not args.keep_root and error.errno == errno.ENOTDIR:
                return None  # like rm, treat a path below a file as missing
            text = f"cannot remove '{show(path)}': {error.strerror or error}"
            raise operand_error(text, error) from None
        # The trash receives entries of any type by a single rename.
        if found is not None and args.trash is not None:
            root, held = found
            return Root(root.holder, root.name or root.within, path), held
        return found

    def decided(self, roots: tuple[Root, ...], ranks: int) -> dict[str, Any]:
        args = self.args
        if args.trash is not None and not args.dry_run:
            self._run = trash.create_run("--trash", os.fsencode(args.trash))
        moved = b"" if args.trash is None else self._run or b"."
        return super().decided(roots, ranks) | {"trash": moved, "holders": self._known}

    def begin(self, roots: tuple[Root, ...]) -> None:
        """Open the output files, and the directories whose times will be restored.

        Raise UsageError if that fails.
        """
        super().begin(roots)
        args = self.args
        if args.keep_times and not args.dry_run and args.plan is None:
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
        """Restore the times of the directories that contain PATHs, and remove an empty trash run.

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


def program_of(args: argparse.Namespace) -> RemoveProgram:
    """Return the program for a parsed command line; raise UsageError if it is invalid."""
    _refuse(args)
    if not args.force:
        refuse_remote(args.operands)
    is_listed = args.files_from is not None
    if args.empty_dirs:
        args.kind = "d"
    paths = list(map(os.fsencode, args.operands)) or [b"."] * is_listed
    if args.empty_trash is not None:
        paths = [os.fsencode(args.empty_trash)]
    return RemoveProgram(
        args,
        paths,
        # A plan lists every entry that it removes, so directories are not removed recursively.
        recursive=(args.recursive and args.apply is None) or args.empty_trash is not None,
        keep_root=args.keep_root or is_listed,
        listed=is_listed or args.apply is not None,
        keep_times=args.keep_times,
        force_modes=args.force_modes,
        enter_mounts=args.cross_mounts,
        sized=args.bytes,
    )


def _refuse(args: argparse.Namespace) -> None:
    if args.ask:
        raise UsageError(
            "-i and -I are not supported, since frm never prompts; use --plan FILE and then "
            "--apply FILE"
        )
    if args.cross_mounts and args.one_file_system:
        raise UsageError("--cross-mounts cannot be combined with -x")
    if args.empty_dirs and args.kind is not None:
        raise UsageError("--empty-dirs cannot be combined with --kind")
    if args.empty_trash is not None and args.operands:
        raise UsageError(f"--empty-trash takes no PATH: extra operand '{args.operands[0]}'")
    if args.empty_trash is not None and args.files_from is not None:
        raise UsageError("--empty-trash cannot be combined with --files-from")
    if args.force_modes and args.max_delete is not None and args.apply is None:
        text = "--max-delete cannot be combined with --force-modes"
        raise UsageError(
            f"{text}: the contents of directories without permissions cannot be counted"
        )
    for option in ("trash", "empty_trash"):
        if args.strict_operands and getattr(args, option) is not None:
            raise UsageError(
                f"--strict-operands cannot be combined with --{option.replace('_', '-')}"
            )
    if args.trash is not None:
        given = [name for name in (*_ALONE, "empty_trash") if getattr(args, name)]
        if given:
            raise UsageError(f"--trash cannot be combined with --{given[0].replace('_', '-')}")
        if args.dir and not args.recursive:
            raise UsageError("--trash cannot be combined with -d; to move directories, add -r")
        if AllOptions.of(args).has_filters:
            raise UsageError("--trash cannot be combined with filters")


def remove_typed(args: argparse.Namespace) -> int:
    """Run a parsed command line and return the exit code; raise UsageError if it is invalid."""
    return program_of(args).run()


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
