"""The options of fcp: their declarations, values and checks.

This module is imported before the command line is parsed.
"""

from __future__ import annotations

import argparse
import os
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pcircle.cli.arguments import require_operands
from pcircle.cli.declarations import Option, Section, option, override, taken
from pcircle.cli.options import CommonOptions
from pcircle.core.errors import UsageError
from pcircle.tools.common.copy_options import CopyOptions, Links, preserve_option, preserved

if TYPE_CHECKING:
    from typing_extensions import Self

    from pcircle.ops.copy.entry.overwrite import OverwriteOptions

_BARE = "mode,ownership,timestamps"


def _link_option(*names: str, const: Links, help: str, **arguments: Any) -> Any:
    more = {"dest": "links", "action": "store_const", "const": const, **arguments}
    return Option(*names, help=help, **more)


class FcpOptions(CopyOptions):
    """The options of fcp."""

    _what = Section("Source and destination")
    _recursive = CommonOptions.RECURSIVE
    recursive: bool = override(names=("-r", "-R", "--recursive"))
    target_directory: str | None = option(
        "-t", "--target-directory", metavar="DIR", help="copy all sources into DIR"
    )
    exact: bool = option(
        "-T", "--no-target-directory", help="copy to DST itself, even if it is a directory"
    )
    archive: bool = option(
        "-a",
        "--archive",
        same_on_resume=True,
        help="--preserve=all, and copy FIFOs, sockets and devices",
    )
    preserve: tuple[str, ...] = option(
        "-p",
        dest="preserve",
        action="append_const",
        const=_BARE,
        repeatable=True,
        parse=preserved,
        same_on_resume=True,
        help=f"like --preserve={_BARE}",
        also=(preserve_option("like -p", _BARE),),
    )
    _retry = taken("retry_from")
    links: Links = _link_option(
        "-P",
        "--no-dereference",
        const="none",
        default="none",
        help="copy symbolic links as links (default)",
    ).changed(
        same_on_resume=True,
        also=(
            _link_option("-L", "--dereference", const="all", help="follow all symbolic links"),
            _link_option("-H", const="operands", help="follow only symbolic links given as SRC"),
        ),
    )
    _one = CommonOptions.ONE_FILE_SYSTEM
    _verify = taken("verify")
    _dry = CommonOptions.DRY_RUN

    _filters = CommonOptions.FILTERS
    _safety = CommonOptions.SAFETY

    _existing = Section("Existing files")
    force: bool = option(
        "-f",
        "--force",
        same_on_resume=True,
        help="with --inplace, replace files that cannot be opened",
    )
    no_clobber: bool = option(
        "-n", "--no-clobber", same_on_resume=True, help="never overwrite; overrides -u and -f"
    )
    update: bool = option("-u", "--update", same_on_resume=True, help="overwrite only older files")
    skip_same: bool = option(
        "--skip-same",
        same_on_resume=True,
        help="with -p, skip files with the same size and modification time",
    )
    in_place: bool = option(
        "--inplace", same_on_resume=True, help="write into existing files (not atomic)"
    )
    _sync = taken("sync")

    _checkpoints = CopyOptions.CHECKPOINTS
    _performance = CommonOptions.PERFORMANCE
    _copying = CopyOptions.COPYING

    _output = CommonOptions.OUTPUT
    verbose: int = override(help="list copied entries (-vv: also inter-process traffic)")
    _records = CommonOptions.RECORDS
    _sign = taken("sign")

    @classmethod
    def of(cls, args: argparse.Namespace, **others: Any) -> Self:
        operands = [os.fsencode(word) for word in args.operands]
        into = args.target_directory is not None
        if into and args.no_target_directory:
            raise UsageError("-t cannot be combined with -T")
        target = os.fsencode(args.target_directory) if into else None
        names = ("SRC",) if into else ("SRC", "DST")
        require_operands(operands, *names, more=not args.no_target_directory)
        if target is None:
            target = operands.pop()
        if not target or not all(operands):
            raise UsageError("empty file name")
        return super().of(
            args, tool="fcp", sources=tuple(operands), target=target, into=into, **others
        )

    @cached_property
    def existing(self) -> OverwriteOptions:
        """The treatment of existing entries."""
        from pcircle.ops.copy.entry.overwrite import OverwriteOptions

        stays = self.no_clobber
        return OverwriteOptions(
            stays=stays,
            newer=self.update and not stays,
            same=self.skip_same and not stays,
            force=self.force and not stays,
            in_place=self.in_place,
            sync=self.sync,
        )

    def effective(self) -> Self:
        found = super().effective()
        if not self.no_clobber:
            return found
        return found.replace(update=False, skip_same=False, force=False)

    def refuse_conflicts(self) -> None:
        super().refuse_conflicts()
        if self.skip_same and not self.keep.timestamps:
            raise UsageError("--skip-same requires -p")
