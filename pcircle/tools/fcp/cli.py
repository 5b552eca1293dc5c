"""The command line of fcp, with its options; `pcircle.tools.common.copy_program` runs it."""

from __future__ import annotations

import argparse
import os
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from pcircle.cli.arguments import ToolCommand, notes, require_operands
from pcircle.cli.declarations import Option, Section, option, override, taken
from pcircle.cli.options import CommonOptions
from pcircle.core.errors import UsageError
from pcircle.tools.common.copy_options import CopyOptions, Links, joined, preserve_option, preserved

if TYPE_CHECKING:
    from typing_extensions import Self

    from pcircle.ops.copy.entry.overwrite import OverwriteOptions

DESCRIPTION = """\
Copy files and directory trees in parallel, on one machine or on many nodes.

As with cp, SRC is copied into DST if DST is an existing directory; otherwise
DST becomes the copy. Several sources require an existing directory.
Directories are copied recursively. An existing file is replaced atomically
once its copy is complete."""

EPILOG = notes(
    "fcp",
    """\
Exit codes: 0 success; 1 some entries failed, each one named; 2 refused before
anything was changed; 3 --verify found a copy that differs; 4 stopped early
(no space, a time limit, a lost rank); 70 internal error; 130, 143 interrupted.

Examples:
  fcp data /scratch/data
  mpirun -np 8 fcp -p --resume -T data /scratch/data
  fcp -a --verify data /archive/data
  fcp -p --exclude '*.tmp' --error-log errors.json data /backup""",
)


_BARE = "mode,ownership,timestamps"
# Options of mirroring tools, for which a hint names fmirror.
_OF_MIRRORS = (
    "--backup-dir",
    "--compare-dest",
    "--copy-dest",
    "--del",
    "--delete",
    "--delete-after",
    "--delete-before",
    "--delete-delay",
    "--delete-during",
    "--delete-excluded",
    "--link-dest",
    "--max-delete",
    "--mirror",
    "--remove-source-files",
)
_MIRROR = "fmirror makes one directory identical to another"
_BACKUP = "fmirror --backup-dir keeps what it replaces"
_ELSEWHERE = {
    "-i": "fcp never prompts; -n keeps existing files",
    "-z": "fcp sends no data over the network, so there is nothing to compress",
    "-l": "in cp this makes links; fmirror --link-dest links unchanged files",
    "--partial": "--resume continues after an interruption",
    "-b": _BACKUP,
    "--backup": _BACKUP,
    "--no-preserve": "without -p, -a and --preserve no attributes are kept",
    "--parents": "--files-from copies the listed paths with their directories",
    "--bufsize": "in dcp this is the buffer size; --chunksize sets the size of a copy unit",
}
"""Hints for options of cp, rsync and dcp that fcp does not have."""


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


def _carry_out(args: argparse.Namespace) -> int:
    from pcircle.cli.program import with_jobs_for
    from pcircle.tools.common.copy_program import run_copy

    options = FcpOptions.of(args)
    return run_copy(with_jobs_for(options, options.sources))


_USAGE = "fcp [OPTION]... SRC... DST"
_MOST_USED = (
    "-a",
    "-p",
    "-T",
    "-u",
    "--skip-same",
    "--resume",
    "--verify",
    "--exclude",
    "--dry-run",
    "-j",
)
_COMMAND = ToolCommand(
    "fcp",
    "SRC... DST",
    _USAGE,
    DESCRIPTION,
    EPILOG,
    FcpOptions.add_to,
    _carry_out,
    joined=joined,
    most_used=_MOST_USED,
    elsewhere=_ELSEWHERE | dict.fromkeys(_OF_MIRRORS, _MIRROR),
)
parser: Final = _COMMAND.parser
main: Final = _COMMAND.main
