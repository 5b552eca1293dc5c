"""The command lines of fchmod, fchown and fchgrp, which are one tool with three names."""

from __future__ import annotations

import argparse
from typing import Final

from pcircle.cli.arguments import Parser, ToolCommand, notes
from pcircle.tools.fchmod.options import ModeOptions, OwnerOptions

_CODES = """\
Exit codes: 0 success; 1 some entries could not be changed, each one named;
2 refused; 4 stopped early (--stop-after, a lost rank); 70 internal error;
130 and 143 interrupted.

Examples:
"""

_MODE = """\
Change the modes of files and, with -R, of directories and their contents.

MODE is octal or symbolic, as in chmod, or 'f:MODE d:MODE' for files and
directories separately. Without MODE, the changes of --mode, --owner, --group
and --acl are made in a single pass. Symbolic links in directories are not
followed. Entries that already have the requested attributes are left untouched."""

_OWNER = """\
Change the owner and group of files and, with -R, of directories and their
contents.

OWNER:GROUP is as in chown. Symbolic links in directories are changed
themselves, not followed. Entries that already have the requested owner and
group are left untouched."""

_GROUP = """\
Change the group of files and, with -R, of directories and their contents.

Symbolic links in directories are changed themselves, not followed. Entries
that already have the requested group are left untouched."""

_EXAMPLES = {
    "fchmod": """\
  fchmod -R g+rwX /data
  fchmod -R 'f:u=rw,go=r d:u=rwx,go=rx' /data
  fchmod -R --mode g+w --group users --undo before /data
  mpirun -np 8 fchmod --apply before""",
    "fchown": """\
  fchown -R root:users /data
  fchown -R --from root daemon /data
  fchown -R --usermap '1000-1999:daemon,*:nobody' /data
  mpirun -np 8 fchown -R -c root: /data""",
    "fchgrp": """\
  fchgrp -R users /data
  fchgrp -R --kind d users /data
  fchgrp -R --groupmap 100:users --undo before /data
  mpirun -np 8 fchgrp --apply before""",
}


def _add(p: Parser) -> None:
    p.takes_only_paths = False  # the first operand may be OWNER:GROUP
    (ModeOptions if p.prog == "fchmod" else OwnerOptions).add_to(p)


_MOST_USED = (
    "-R",
    "--reference",
    "-h",
    "--exclude",
    "--newer-than",
    "--dry-run",
    "--undo",
    "--apply",
    "-q",
    "-j",
)


_ELSEWHERE = {"-r": "-R changes trees; a-r removes read permission"}


def _shell(tool: str, operand: str, about: str) -> ToolCommand:
    def carry_out(args: argparse.Namespace) -> int:
        from pcircle.tools.fchmod.command import change_typed

        return change_typed(tool, args)

    usage = f"{tool} [OPTION]... {operand} PATH...\n       {tool} --apply FILE [OPTION]..."
    epilog = notes(tool, _CODES + _EXAMPLES[tool])
    return ToolCommand(
        tool,
        f"{operand} PATH...",
        usage,
        about,
        epilog,
        _add,
        carry_out,
        most_used=_MOST_USED,
        elsewhere=_ELSEWHERE,
    )


FCHMOD = _shell("fchmod", "MODE", _MODE)
FCHOWN = _shell("fchown", "OWNER[:[GROUP]]", _OWNER)
FCHGRP = _shell("fchgrp", "GROUP", _GROUP)
parser: Final = FCHMOD.parser
main: Final = FCHMOD.main
fchown: Final = FCHOWN.main
fchgrp: Final = FCHGRP.main
fchown_parser: Final = FCHOWN.parser
fchgrp_parser: Final = FCHGRP.parser
