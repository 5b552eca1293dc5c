"""The command lines of fchmod, fchown and fchgrp, which are one tool with three names."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Final

from pcircle.cli.arguments import (
    POLITE,
    OptionalValue,
    Parser,
    add_actions,
    add_filters,
    add_safety,
    notes,
)
from pcircle.cli.shell import ToolCommand

BARE = {"--acl-remove": "--acl-remove=all", **POLITE}
_OWNER_OPTIONS = ("--of-owner", "--of-group")  # filters; the usual names set the new owner
_CODES = """\
Exit codes: 0 success; 1 some entries could not be changed, each one named;
2 refused; 4 stopped early (--stop-after, a lost rank); 70 internal error;
130 and 143 interrupted.

Examples:
"""

_MODE = """\
Change the modes of files and, with -R, of directories and their contents.

MODE is that of chmod, octal or symbolic, or 'f:MODE d:MODE' for files and for
directories. Without MODE, the changes of --mode, --owner, --group and --acl
are made in a single pass. Symbolic links in directories are not followed.
Entries that already have the requested attributes are left untouched."""

_OWNER = """\
Change the owner and group of files and, with -R, of directories and their
contents.

OWNER:GROUP is that of chown. Symbolic links in directories are changed
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
    """Add the options of all three commands."""
    _free_h(p)
    p.takes_only_paths = False  # the first operand may be OWNER:GROUP
    add = p.add_argument_group("Change").add_argument
    add("-R", "--recursive", action="store_true", help="change directories and their contents")
    if p.prog == "fchmod":
        add("--mode", metavar="MODE", help="the mode, instead of the operand MODE")
        add("--files", metavar="MODE", help="the mode of everything except directories")
        add("--dirs", metavar="MODE", help="the mode of directories")
        add("--owner", dest="new_owner", metavar="USER", help="change the owner")
        add("--group", dest="new_group", metavar="GROUP", help="change the group")
    add("--reference", metavar="FILE", help="use the attributes of FILE")
    add(
        "--from",
        dest="from_owner",
        metavar="O:G",
        help="change only entries with this owner and group",
    )
    add("--usermap", metavar="MAP", help="map owners: FROM:TO,... as in rsync")
    add("--groupmap", metavar="MAP", help="map groups in the same way")
    add("--acl", metavar="SPEC", help="modify access control lists like setfacl -m")
    add(
        "--acl-remove",
        metavar="SPEC",
        action=OptionalValue,
        help="remove list entries like setfacl -x, or whole lists",
    )
    add("--default-acl", metavar="SPEC", help="modify default lists like setfacl -dm")
    add("--keep-setid", action="store_true", help="restore set-id bits after a change of owner")
    add("--no-setid", action="store_true", help="clear the set-id bits of all files")
    add("--force", action="store_true", help="make system calls even if nothing would change")
    add("--undo", metavar="FILE", help="save the previous attributes for --apply")
    add("--apply", metavar="FILE", help="restore the attributes that --undo has saved")
    add("--dry-run", action="store_true", help="show what would be done (-c: list entries)")
    _add_ways(p.add_argument_group("Directories and links").add_argument)
    filters = add_filters(p, "PATH", *_OWNER_OPTIONS)
    filters.add_argument(
        "-x", "--one-file-system", action="store_true", help="stay on one file system"
    )
    add_safety(p)
    add_actions(p, "changed")
    p._option_string_actions["-v"].help = "list all entries"
    add = next(group for group in p._action_groups if group.title == "Output").add_argument
    add("-c", "--changes", action="store_true", help="list changed entries")
    add(
        "-f",
        "--silent",
        action="count",
        default=0,
        help="omit messages about EPERM (twice: do not exit with 1)",
    )
    p.set_defaults(plan=None, max_delete=None, owner_options=_OWNER_OPTIONS)


def _add_ways(add: Callable[..., object]) -> None:
    add("-h", "--no-dereference", action="store_true", help="change a link itself, not its target")
    add("-H", dest="operand_links", action="store_true", help="follow links given as PATH")
    add(
        "-L",
        dest="all_links",
        action="store_true",
        help="follow all links, including links in directories",
    )
    add("-P", dest="never", action="store_true", help="follow no links")
    add("--no-preserve-root", action="store_true", help="allow -R on /")
    add("--preserve-root", action="store_true", help="refuse -R on / (default)")


def _free_h(p: Parser) -> None:
    """Remove -h as a short form of --help, because chown has another option -h."""
    p._actions[0].option_strings = ["--help"]
    del p._option_string_actions["-h"]


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
        BARE,
        most_used=_MOST_USED,
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
