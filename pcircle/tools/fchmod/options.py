"""The options of fchmod, fchown and fchgrp: their declarations and values.

This module is imported before the command line is parsed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pcircle.cli.declarations import Section, option, override, taken
from pcircle.cli.options import CommonOptions, later

if TYPE_CHECKING:
    from pcircle.cli.option_values import Owner
    from pcircle.fs.attributes.owners import IdRule


def _from(name: str, text: str) -> Owner:
    from pcircle.cli.option_values import read_owner

    return read_owner(name, text, login=False)


_CHANGES = (
    *("mode", "files", "dirs", "uid", "gid", "reference", "from_owner", "user_map", "group_map"),
    *("acl", "acl_remove", "default_acl", "keep_setid", "no_setid"),
)


class ModeOptions(CommonOptions, root="PATH", done="changed"):
    """The options of fchmod."""

    _change = Section("Change")
    _recursive = CommonOptions.RECURSIVE
    recursive: bool = override(
        names=("-R", "--recursive"), help="change directories and their contents"
    )
    mode: str | None = option("--mode", metavar="MODE", help="mode, instead of the operand MODE")
    files: str | None = option(
        "--files", metavar="MODE", help="mode for everything except directories"
    )
    dirs: str | None = option("--dirs", metavar="MODE", help="mode for directories")
    uid: int | None = option(
        "--owner",
        dest="uid",
        metavar="USER",
        takes="user",
        parse=later("user_of"),
        help="change the owner",
    )
    gid: int | None = option(
        "--group",
        dest="gid",
        metavar="GROUP",
        takes="group",
        parse=later("group_of"),
        help="change the group",
    )
    reference: str | None = option("--reference", metavar="FILE", help="use the attributes of FILE")
    from_owner: Owner | None = option(
        "--from",
        metavar="O:G",
        takes="owner",
        parse=_from,
        help="change only entries with this owner and group",
    )
    user_map: tuple[IdRule, ...] = option(
        "--usermap",
        metavar="MAP",
        parse=later("read_map"),
        otherwise=(),
        help="map owners: FROM:TO,... as in rsync",
    )
    group_map: tuple[IdRule, ...] = option(
        "--groupmap",
        metavar="MAP",
        parse=later("read_map"),
        otherwise=(),
        help="map groups in the same way",
    )
    acl: str | None = option(
        "--acl", metavar="SPEC", help="modify access control lists like setfacl -m"
    )
    acl_remove: str | None = option(
        "--acl-remove",
        metavar="SPEC",
        bare="all",
        help="remove ACL entries like setfacl -x, or whole ACLs",
    )
    default_acl: str | None = option(
        "--default-acl", metavar="SPEC", help="modify default ACLs like setfacl -dm"
    )
    keep_setid: bool = option(
        "--keep-setid",
        excludes=("no_setid",),
        help="restore set-id bits after a change of owner",
    )
    no_setid: bool = option("--no-setid", help="clear the set-id bits of all files")
    force: bool = option("--force", help="make system calls even if nothing would change")
    undo: str | None = option(
        "--undo",
        metavar="FILE",
        excludes=("dry",),
        hints={"dry": ", which changes nothing"},
        help="save the previous attributes for --apply",
    )
    _apply = taken("apply")
    apply: str | None = override(
        excludes=(*_CHANGES, "undo"), help="restore the attributes saved by --undo"
    )
    _dry = CommonOptions.DRY_RUN
    dry: bool = override(help="show what would be done (-c: list entries)")

    _links = Section("Directories and links")
    no_dereference: bool = option(
        "-h",
        "--no-dereference",
        called="-h",
        help="change links themselves, not their targets",
    )
    operand_links: bool = option(
        "-H", excludes=("never", "no_dereference"), help="follow links given as PATH"
    )
    all_links: bool = option(
        "-L",
        excludes=("operand_links", "never", "no_dereference", "undo", "apply", "files_from"),
        help="follow all links, including links in directories",
    )
    never: bool = option("-P", help="follow no links")
    no_preserve_root: bool = option("--no-preserve-root", help="allow -R on /")
    preserve_root: bool = option("--preserve-root", help="refuse -R on / (default)")

    # Here the usual names of these two filters, --owner and --group, set the new owner and group.
    _filters = CommonOptions.FILTERS
    owners: tuple[int, ...] | None = override(names=("--of-owner",))
    groups: tuple[int, ...] | None = override(names=("--of-group",))
    _one = CommonOptions.ONE_FILE_SYSTEM
    _safety = CommonOptions.SAFETY

    _performance = CommonOptions.PERFORMANCE
    _rate = CommonOptions.OPS_LIMIT
    _polite = CommonOptions.POLITE
    _stop = CommonOptions.STOP

    _output = CommonOptions.OUTPUT
    verbose: int = override(help="list all entries")
    _records = CommonOptions.RECORDS
    changes: bool = option("-c", "--changes", help="list changed entries")
    hides_denied: int = option(
        "-f",
        "--silent",
        dest="hides_denied",
        action="count",
        default=0,
        help="omit messages about EPERM (given twice: do not exit with 1)",
    )

    @property
    def names_change(self) -> bool:
        """Return whether options specify the change, so that the first operand is a PATH."""
        given = (
            *(self.mode, self.files, self.dirs, self.uid, self.gid, self.reference, self.acl),
            *(self.acl_remove, self.default_acl),
        )
        return self.maps or any(value is not None for value in given)

    @property
    def maps(self) -> bool:
        """Return whether owners or groups are mapped."""
        return bool(self.user_map or self.group_map)


class OwnerOptions(ModeOptions, without=("mode", "files", "dirs", "uid", "gid")):
    """The options of fchown and fchgrp."""
