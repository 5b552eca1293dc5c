"""The options of frm: their declarations, values and checks.

This module is imported before the command line is parsed.
"""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any

from pcircle.cli.declarations import Option, Section, option, override
from pcircle.cli.options import CommonOptions
from pcircle.core.errors import UsageError

if TYPE_CHECKING:
    from typing_extensions import Self


class RemoveOptions(CommonOptions, root="PATH", done="removed"):
    """The options of frm."""

    paths: tuple[bytes, ...] = ()

    _removal = Section("Removal")
    _recursive = CommonOptions.RECURSIVE
    recursive: bool = override(
        names=("-r", "-R", "--recursive"), help="remove directories and their contents"
    )
    force: bool = option("-f", "--force", help="ignore a PATH that does not exist")
    empty: bool = option("-d", "--dir", help="remove empty directories")
    asks: bool = option(
        "-i",
        dest="asks",
        action="store_true",
        help="refused, because frm never prompts; use --plan",
        also=(Option("-I", dest="asks", action="store_true", help="refused, like -i"),),
    )
    keep_root: bool = option("--keep-root", help="empty each PATH, but keep PATH itself")
    trash: str | None = option(
        "--trash",
        metavar="DIR",
        excludes=(
            *("files_from", "plan", "apply", "max_delete", "keep_root", "empty_dirs", "keep_times"),
            *("empty_trash", "filters"),
        ),
        help="move each PATH into DIR, on the same file system",
    )
    empty_trash: str | None = option(
        "--empty-trash",
        metavar="DIR",
        excludes=("files_from",),
        help="remove the entries moved into DIR by --trash",
    )
    empty_dirs: bool = option(
        "--empty-dirs",
        excludes=("kinds",),
        help="remove only directories that are empty or become empty",
    )
    keep_times: bool = option("--keep-times", help="restore the times of remaining directories")
    force_modes: bool = option("--force-modes", help="add u+rwx to directories where required")
    enter_mounts: bool = option(
        "--cross-mounts",
        excludes=("one_file_system",),
        help="enter other file systems and bind mounts",
    )
    _one = CommonOptions.ONE_FILE_SYSTEM
    one_file_system: bool = override(help="stay on one file system (default)")
    _plans = CommonOptions.PLANS
    sized: bool = option("--bytes", help="report the bytes freed (looks up each file)")
    _dry = CommonOptions.DRY_RUN

    _filters = CommonOptions.FILTERS
    _safety = CommonOptions.SAFETY
    strict_operands: bool = override(excludes=("trash", "empty_trash"))

    _performance = CommonOptions.PERFORMANCE
    _rate = CommonOptions.OPS_LIMIT
    _polite = CommonOptions.POLITE
    _stop = CommonOptions.STOP

    _output = CommonOptions.OUTPUT
    verbose: int = override(help="list removed entries (-vv: also inter-process traffic)")
    _records = CommonOptions.RECORDS

    @classmethod
    def of(cls, args: argparse.Namespace, **others: Any) -> Self:
        kinds = {"kinds": "d"} if args.empty_dirs else {}
        return super().of(args, paths=tuple(map(os.fsencode, args.operands)), **kinds, **others)

    @property
    def is_restartable(self) -> bool:
        """Return whether no option needs more than the counts, which survive the loss of a rank."""
        named = self.verbose or self.json_lines is not None or self.list_out is not None
        special = (self.trash, self.empty_trash, self.files_from, self.apply)
        return not (
            named
            or any(name is not None for name in special)
            or self.sized
            or self.keep_times
            or self.selects_by_attribute
        )

    def refuse_conflicts(self) -> None:
        super().refuse_conflicts()
        if self.asks:
            raise UsageError(
                "-i and -I are not supported, because frm never prompts; use --plan FILE and then "
                "--apply FILE"
            )
        if self.empty_trash is not None and self.paths:
            extra = os.fsdecode(self.paths[0])
            raise UsageError(f"--empty-trash takes no PATH: extra operand '{extra}'")
        if self.force_modes and self.max_delete is not None and self.apply is None:
            text = "--max-delete cannot be combined with --force-modes"
            raise UsageError(
                f"{text}: the contents of directories without permissions cannot be counted"
            )
        if self.trash is not None and self.empty and not self.recursive:
            raise UsageError("--trash cannot be combined with -d; to move directories, add -r")
        if self.trash is not None and self.has_filters:
            raise UsageError("--trash cannot be combined with filters")
